//! Control groups: run programs with less memory than the machine has, with slower disks, or with
//! few threads.
//!
//! Both versions of the kernel's interface are supported. Version 1 has a folder for each
//! controller, version 2 one for all of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fail::OrFail;
use crate::process::{Finished, Program};

const ROOT: &str = "/sys/fs/cgroup";

/// Interval at which the page cache of a running program is checked.
const POLL: Duration = Duration::from_millis(10);

/// The file names of one version of the interface (kernel documentation:
/// `cgroup-v1/{memory,blkio-controller}.rst`, `cgroup-v2.rst`).
struct Interface {
    memory: &'static str,
    io: &'static str,
    limit: &'static str,
    /// Missing if the kernel has no swap.
    swap: &'static str,
    /// Returns the value that forbids swap for a given memory limit: version 1 limits the sum of
    /// memory and swap.
    no_swap: fn(u64) -> u64,
    peak: &'static str,
    /// The file with the line `oom_kill`.
    events: &'static str,
    /// Lines of `memory.stat` about the group itself.
    dirty: [&'static str; 2],
    writes: &'static str,
    /// Formats a write limit for the device with these numbers.
    write_limit: fn(&str, u64) -> String,
}

const V1: Interface = Interface {
    memory: "memory",
    io: "blkio",
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    no_swap: |limit| limit,
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
    dirty: ["dirty", "writeback"],
    writes: "blkio.throttle.write_bps_device",
    write_limit: |device, rate| format!("{device} {rate}"),
};

const V2: Interface = Interface {
    memory: "",
    io: "",
    limit: "memory.max",
    swap: "memory.swap.max",
    no_swap: |_| 0,
    peak: "memory.peak",
    events: "memory.events",
    dirty: ["file_dirty", "file_writeback"],
    writes: "io.max",
    write_limit: |device, rate| format!("{device} wbps={rate}"),
};

/// A group whose programs share a memory limit, which includes their page cache, and get no swap.
/// It is removed when dropped.
pub struct MemoryCgroup {
    interface: &'static Interface,
    memory: PathBuf,
    /// The group that limits writes. In version 2 it is the same folder.
    io: Option<PathBuf>,
}

/// The result of a program that ran in a group.
pub struct InGroup {
    /// How the program ended.
    pub finished: Finished,
    /// The largest amount of dirty page cache seen while the program ran.
    pub most_dirty_bytes: u64,
}

impl MemoryCgroup {
    /// Makes a group limited to `limit_bytes`. Needs root, and one of the two interfaces.
    pub fn new(limit_bytes: u64) -> Self {
        let interface = interface();
        let memory = create(interface.memory);
        set(&memory.join(interface.limit), &limit_bytes.to_string());
        if memory.join(interface.swap).exists() {
            let swap = (interface.no_swap)(limit_bytes);
            set(&memory.join(interface.swap), &swap.to_string());
        }
        Self { interface, memory, io: None }
    }

    /// Limits how fast the group's programs write to the block device `device`.
    pub fn limit_writes(mut self, device: &Path, bytes_per_second: u64) -> Self {
        let device = fs::metadata(device).or_fail(device.display()).rdev();
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let io = match self.interface.io {
            "" => self.memory.clone(),
            controller => create(controller),
        };
        let limit = (self.interface.write_limit)(&numbers, bytes_per_second);
        set(&io.join(self.interface.writes), &limit);
        self.io = Some(io);
        self
    }

    /// Returns `program` changed to run in the group. Programs that already wrap it stay outside.
    pub fn wrap(&self, program: Program) -> Program {
        enter(program, self.folders())
    }

    /// Runs `program` in the group. Programs that already wrap it stay outside.
    pub fn run(&self, program: Program) -> InGroup {
        let program = self.wrap(program);
        let mut most_dirty_bytes = 0;
        let finished = std::thread::scope(|scope| {
            let running = scope.spawn(|| program.run());
            while !running.is_finished() {
                most_dirty_bytes = most_dirty_bytes.max(self.dirty_bytes());
                std::thread::sleep(POLL);
            }
            running.join()
        });
        InGroup {
            finished: finished.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            most_dirty_bytes,
        }
    }

    /// The highest memory use so far, including the page cache.
    pub fn peak_bytes(&self) -> u64 {
        let file = self.memory.join(self.interface.peak);
        let peak = fs::read_to_string(&file).or_fail(file.display());
        peak.trim().parse().or_fail(file.display())
    }

    /// Bytes in the page cache that are not on the disk yet.
    fn dirty_bytes(&self) -> u64 {
        let stat = self.memory.join("memory.stat");
        self.interface.dirty.map(|name| number(&stat, name)).iter().sum()
    }

    /// Number of programs that the kernel killed for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        number(&self.memory.join(self.interface.events), "oom_kill")
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let io = self.io.iter().filter(|io| **io != self.memory);
        io.chain([&self.memory])
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        for folder in self.folders() {
            let removed = fs::remove_dir(folder);
            // A second panic would hide the first.
            if !std::thread::panicking() {
                removed.or_fail(format!("{} still has programs", folder.display()));
            }
        }
    }
}

/// A group whose programs share a limit on processes, in which threads count too. It is removed
/// when dropped.
pub struct PidsCgroup(PathBuf);

impl PidsCgroup {
    /// Makes a group without a limit. Needs root.
    pub fn new() -> Self {
        let controller = if Path::new(ROOT).join("pids").exists() {
            "pids"
        } else {
            set(&Path::new(ROOT).join("cgroup.subtree_control"), "+pids");
            ""
        };
        Self(create(controller))
    }

    /// Limits the group to `most` threads. Existing threads are not affected.
    pub fn limit(&self, most: u64) {
        set(&self.0.join("pids.max"), &most.to_string());
    }

    /// Removes the limit.
    pub fn lift(&self) {
        set(&self.0.join("pids.max"), "max");
    }

    /// The number of threads in the group.
    pub fn threads(&self) -> u64 {
        let file = self.0.join("pids.current");
        let threads = fs::read_to_string(&file).or_fail(file.display());
        threads.trim().parse().or_fail(file.display())
    }

    /// Returns `program` changed to run in the group. Programs that already wrap it stay outside.
    pub fn wrap(&self, program: Program) -> Program {
        enter(program, [&self.0])
    }
}

impl Default for PidsCgroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PidsCgroup {
    fn drop(&mut self) {
        // A killed program takes a moment to disappear.
        let is_removed = (0..500).any(|_| {
            std::thread::sleep(POLL);
            fs::remove_dir(&self.0).is_ok()
        });
        if !std::thread::panicking() {
            assert!(is_removed, "{} still has programs", self.0.display());
        }
    }
}

/// Wraps `program` in a shell that joins the groups of these folders and then becomes the program.
fn enter<'f>(program: Program, folders: impl IntoIterator<Item = &'f PathBuf>) -> Program {
    let groups = folders.into_iter().map(|folder| folder.join("cgroup.procs"));
    let enter = r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit; shift; done; shift; exec "$@""#;
    let words = ["-c", enter, "sh"].map(PathBuf::from);
    program.under("sh", words.into_iter().chain(groups).chain(["--".into()]))
}

/// The interface of this machine.
fn interface() -> &'static Interface {
    let root = Path::new(ROOT);
    if root.join(V1.memory).join(V1.limit).exists() {
        return &V1;
    }
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let has = |name| controllers.split_whitespace().any(|controller| controller == name);
    assert!(
        has("memory") && has("io"),
        "this test needs cgroups with the controllers memory and io (blkio) in {ROOT}: mount them, or run it elsewhere"
    );
    set(&root.join("cgroup.subtree_control"), "+memory +io");
    &V2
}

/// Makes a new group of `controller`.
fn create(controller: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("testkit-{}-{number}", std::process::id());
    let folder = Path::new(ROOT).join(controller).join(name);
    fs::create_dir(&folder).or_fail(format!("create the cgroup {} (needs root)", folder.display()));
    folder
}

fn set(file: &Path, value: &str) {
    fs::write(file, value).or_fail(format!("write {value} to {}", file.display()));
}

/// Returns the number in the line `name` of `file`.
fn number(file: &Path, name: &str) -> u64 {
    let lines = fs::read_to_string(file).or_fail(file.display());
    let value = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .and_then(|value| value.parse().ok())
        .or_fail(format!("{} has no line {name}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 32 << 20;

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh").args(["-c", script])
    }

    #[test]
    #[ignore = "root: rights of root"]
    fn a_program_that_needs_more_than_the_limit_is_killed() {
        let group = MemoryCgroup::new(LIMIT);
        let held =
            |mib| shell(&format!("x=$(head -c {mib}M /dev/zero | tr '\\0' x); echo ${{#x}}"));
        let small = group.run(held(1));
        small.finished.assert_success("1 MiB");
        assert!((1 << 20..LIMIT).contains(&group.peak_bytes()), "{}", group.peak_bytes());
        assert_eq!(group.oom_kills(), 0);
        assert_ne!(group.run(held(64)).finished.code(), 0);
        assert!(group.oom_kills() > 0);
    }

    #[test]
    #[ignore = "root: loop devices"]
    fn dirty_pages_are_counted_while_a_slow_disk_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let disk = crate::loopdev::LoopDevice::new(folder.path(), 8 << 20, 512);
        let group = MemoryCgroup::new(LIMIT).limit_writes(disk.path(), 8 << 20);
        let write =
            format!("head -c 4M /dev/zero | dd of={} bs=1M conv=fsync 2>&1", disk.path().display());
        let InGroup { finished, most_dirty_bytes } = group.run(shell(&write));
        finished.assert_success("a slow write");
        assert!(finished.wall.as_secs_f64() > 0.25, "{:?}", finished.wall);
        assert!((1 << 20..8 << 20).contains(&most_dirty_bytes), "{most_dirty_bytes}");
    }
}
