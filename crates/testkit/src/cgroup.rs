//! Control groups: programs in less memory than the machine has, on slower disks.
//!
//! Both versions of the kernel's interface serve. Version 1 has a folder for each controller, version 2 one for all.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fail::OrFail;
use crate::process::{Finished, Program};

const ROOT: &str = "/sys/fs/cgroup";

/// Time between two looks at a running program's page cache.
const POLL: Duration = Duration::from_millis(10);

/// Names of one version. Kernel documentation: `cgroup-v1/{memory,blkio-controller}.rst`, `cgroup-v2.rst`.
struct Interface {
    memory: &'static str,
    io: &'static str,
    limit: &'static str,
    /// Absent from kernels that have no swap.
    swap: &'static str,
    /// The value that leaves nothing to swap, for a limit: version 1 counts memory and swap together.
    no_swap: fn(u64) -> u64,
    peak: &'static str,
    /// Has the line `oom_kill`.
    events: &'static str,
    /// Lines of `memory.stat`, of the group itself.
    dirty: [&'static str; 2],
    writes: &'static str,
    /// A limit for the device with these numbers.
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

/// A group whose programs share a limit of memory, their page cache included, and have no swap. Gone when dropped.
pub struct MemoryCgroup {
    interface: &'static Interface,
    memory: PathBuf,
    /// Throttles writes; the same folder in version 2.
    io: Option<PathBuf>,
}

/// The end of a program in a group.
pub struct InGroup {
    /// Its end.
    pub finished: Finished,
    /// The most bytes of its page cache that were not on the disk at once, as far as that was seen from outside.
    pub most_dirty_bytes: u64,
}

impl MemoryCgroup {
    /// A group of its own, limited to `limit_bytes`. Needs root, and one of the two interfaces.
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

    /// Slows down what the group's programs write to the block device `device`.
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

    /// `program`, to be run in the group; what wraps it already stays outside.
    pub fn wrap(&self, program: Program) -> Program {
        enter(program, self.folders())
    }

    /// Runs `program` in the group; what wraps it already stays outside.
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

    /// The most memory that was ever in use, page cache included.
    pub fn peak_bytes(&self) -> u64 {
        let file = self.memory.join(self.interface.peak);
        let peak = fs::read_to_string(&file).or_fail(file.display());
        peak.trim().parse().or_fail(file.display())
    }

    /// Bytes in the page cache that are not on the disk yet, now.
    fn dirty_bytes(&self) -> u64 {
        let stat = self.memory.join("memory.stat");
        self.interface.dirty.map(|name| number(&stat, name)).iter().sum()
    }

    /// Programs that the kernel ended because there was no memory left.
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

/// A group whose programs share a limit of processes, which counts threads. Gone when dropped.
pub struct PidsCgroup(PathBuf);

impl PidsCgroup {
    /// A group of its own without a limit. Needs root.
    pub fn new() -> Self {
        let controller = if Path::new(ROOT).join("pids").exists() {
            "pids"
        } else {
            set(&Path::new(ROOT).join("cgroup.subtree_control"), "+pids");
            ""
        };
        Self(create(controller))
    }

    /// Lets the group have `most` threads from now on; those that there are stay.
    pub fn limit(&self, most: u64) {
        set(&self.0.join("pids.max"), &most.to_string());
    }

    /// Lets it have any number.
    pub fn lift(&self) {
        set(&self.0.join("pids.max"), "max");
    }

    /// Threads that it has.
    pub fn threads(&self) -> u64 {
        let file = self.0.join("pids.current");
        let threads = fs::read_to_string(&file).or_fail(file.display());
        threads.trim().parse().or_fail(file.display())
    }

    /// `program`, to be run in the group; what wraps it already stays outside.
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
        // A program that was just killed needs a moment to be gone.
        let is_removed = (0..500).any(|_| {
            std::thread::sleep(POLL);
            fs::remove_dir(&self.0).is_ok()
        });
        if !std::thread::panicking() {
            assert!(is_removed, "{} still has programs", self.0.display());
        }
    }
}

/// `program` below a shell that enters the groups of these folders first, and becomes it.
fn enter<'f>(program: Program, folders: impl IntoIterator<Item = &'f PathBuf>) -> Program {
    let groups = folders.into_iter().map(|folder| folder.join("cgroup.procs"));
    let enter = r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit; shift; done; shift; exec "$@""#;
    let words = ["-c", enter, "sh"].map(PathBuf::from);
    program.under("sh", words.into_iter().chain(groups).chain(["--".into()]))
}

/// The cgroups that this machine has.
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

/// A new group of `controller`.
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

/// The number in the line `name` of `file`.
fn number(file: &Path, name: &str) -> u64 {
    let lines = fs::read_to_string(file).or_fail(file.display());
    let value = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).or_fail(format!("{} has no line {name}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 32 << 20;

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh").args(["-c", script])
    }

    #[test]
    fn a_program_that_needs_more_than_the_limit_is_killed() {
        let group = MemoryCgroup::new(LIMIT);
        let held = |mib| shell(&format!("x=$(head -c {mib}M /dev/zero | tr '\\0' x); echo ${{#x}}"));
        let small = group.run(held(1));
        small.finished.assert_success("1 MiB");
        assert!((1 << 20..LIMIT).contains(&group.peak_bytes()), "{}", group.peak_bytes());
        assert_eq!(group.oom_kills(), 0);
        assert_ne!(group.run(held(64)).finished.code(), 0);
        assert!(group.oom_kills() > 0);
    }

    #[test]
    fn dirty_pages_are_told_while_a_slow_disk_takes_them() {
        let folder = tempfile::tempdir().unwrap();
        let disk = crate::loopdev::LoopDevice::new(folder.path(), 8 << 20, 512);
        let group = MemoryCgroup::new(LIMIT).limit_writes(disk.path(), 8 << 20);
        let write = format!("head -c 4M /dev/zero | dd of={} bs=1M conv=fsync 2>&1", disk.path().display());
        let InGroup { finished, most_dirty_bytes } = group.run(shell(&write));
        finished.assert_success("a slow write");
        assert!(finished.wall.as_secs_f64() > 0.25, "{:?}", finished.wall);
        assert!((1 << 20..8 << 20).contains(&most_dirty_bytes), "{most_dirty_bytes}");
    }
}
