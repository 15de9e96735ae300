//! VMware disks in stages, while their guest keeps writing. vSphere is scripted, because VMware's
//! simulator tracks no changes ([`testkit::vsphere::tracked`]). nbdkit is real; its plugin reads
//! raw files in place of VMware's library.

use std::fmt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::process::{Finished, Running};
use testkit::random::Random;
use testkit::tools;
use testkit::vsphere::bring_library;
use testkit::vsphere::tracked::{BLOCK_BYTES, Checkpoint, DISK, Tracked, UUID, changed_bytes};
use testkit::wait;

use super::pod::{MIB, Pod};

pub(crate) const GUEST_BYTES: u64 = 96 * MIB;

/// Number of kills of each stage on each kind of target.
const KILLS: usize = 4;

/// A kill comes at a random moment in this time; a stage takes a little longer.
const WINDOW: Duration = Duration::from_millis(600);

/// The disk of a machine, with a filesystem, and its states so far.
pub(crate) struct Guest {
    folder: TempDir,
    pub(crate) states: Vec<(Checkpoint, PathBuf)>,
}

/// Shell commands by which the guest writes to its file system before each snapshot.
const ROUNDS: [&str; 3] = [
    "mkdir logs; head -c 9000000 /dev/urandom > a; head -c 6000000 /dev/urandom > b; head -c 3000000 /dev/urandom > logs/c",
    "head -c 70000 /dev/urandom | dd of=a conv=notrunc bs=4k seek=300; rm b; head -c 2500000 /dev/urandom > d; fstrim .",
    "rm logs/c; head -c 200000 /dev/zero | dd of=a conv=notrunc bs=4k seek=900; mv d e; for n in $(seq 300); do echo $n > f$n; done; fstrim .",
];

impl Guest {
    fn new() -> Self {
        let guest = Self { folder: tempfile::tempdir().or_fail("a folder"), states: Vec::new() };
        let raw = guest.path("disk.raw");
        let file = std::fs::File::create(&raw).or_fail("the disk of the guest");
        file.set_len(GUEST_BYTES).or_fail("the disk of the guest");
        tools::run("mkfs.ext4", ["-q".as_ref(), raw.as_os_str()]);
        guest
    }

    /// A guest that has written three times, each time before a snapshot of `vsphere`.
    pub(crate) fn with_three_states(vsphere: &Tracked) -> Self {
        let mut guest = Self::new();
        for (round, script) in ROUNDS.iter().enumerate() {
            guest.write(script);
            guest.take_snapshot(vsphere, round);
        }
        guest
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `script` in the file system of the disk.
    fn write(&self, script: &str) {
        let device = LoopDevice::of_file(&self.path("disk.raw"));
        let place = self.path("mounted");
        std::fs::create_dir_all(&place).or_fail("a place to mount");
        tools::run("mount", [device.path(), &place]);
        let script = format!("cd {}; set -e; {{ {script}; }} 2>/dev/null; sync", place.display());
        tools::run("sh", ["-c", &script]);
        tools::unmount(&place);
    }

    fn take_snapshot(&mut self, vsphere: &Tracked, number: usize) {
        let state = self.path(&format!("state-{number}.raw"));
        let disk = self.path("disk.raw");
        tools::run("cp", ["--sparse=always".as_ref(), disk.as_os_str(), state.as_os_str()]);
        self.states.push((vsphere.checkpoint(&state), state));
    }

    /// Configuration of the plugin: the file of each snapshot.
    pub(crate) fn config(&self) -> String {
        let lines = self
            .states
            .iter()
            .map(|(checkpoint, raw)| format!("disk.{}={}\n", checkpoint.object, raw.display()));
        lines.collect()
    }
}

/// The volume of a DataVolume with checkpoints, and the pods that fill it one after the other.
pub(crate) struct Import {
    pub(crate) pod: Pod,
    device: Option<LoopDevice>,
}

impl Import {
    pub(crate) fn new(vsphere: &Tracked, config: &str, on_device: bool) -> Self {
        let pod = Pod::new(&[
            ("IMPORTER_SOURCE", "vddk"),
            ("IMPORTER_ENDPOINT", &vsphere.url()),
            ("IMPORTER_UUID", UUID),
            ("IMPORTER_BACKING_FILE", DISK),
            ("IMPORTER_ACCESS_KEY_ID", "user"),
            ("IMPORTER_SECRET_KEY", "secret"),
            ("IMPORTER_IMAGE_SIZE", "200Mi"),
        ]);
        bring_library(pod.root.path(), config);
        let device = on_device.then(|| {
            let device = LoopDevice::new(pod.root.path(), GUEST_BYTES + MIB, 512);
            std::os::unix::fs::symlink(device.path(), pod.path("dev/cdi-block-volume"))
                .or_fail("a volume");
            device
        });
        Self { pod, device }
    }

    /// Prepares the pod for the stage from `previous` to `current`.
    pub(crate) fn stage(&mut self, current: &str, previous: &str) {
        for (name, value) in [
            ("IMPORTER_CURRENT_CHECKPOINT", current),
            ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
            ("IMPORTER_FINAL_CHECKPOINT", "false"),
        ] {
            self.pod.set(name, value);
        }
    }

    pub(crate) fn disk(&self) -> PathBuf {
        match &self.device {
            Some(device) => device.path().to_owned(),
            None => self.pod.disk(),
        }
    }

    #[track_caller]
    pub(crate) fn assert_succeeds(&self) -> Finished {
        let finished = self.pod.run();
        let message = self.pod.message().unwrap_or_default();
        assert_eq!(finished.code(), 0, "{message} {}", finished.stderr);
        assert!(message.contains("Import Complete"), "{message}");
        finished
    }

    /// Asserts that the stage is refused for `reason`, and that the disk has not changed.
    #[track_caller]
    pub(crate) fn assert_refused(&self, reason: &str) {
        let before = std::fs::read(self.disk()).or_fail("the disk");
        let finished = self.pod.run();
        let message = self.pod.message().unwrap_or_default();
        assert_eq!(finished.code(), 1, "{reason}: {}", finished.stderr);
        assert!(message.contains(reason), "{message}");
        assert!(!finished.crashed() && !finished.stderr.contains("secret"), "{}", finished.stderr);
        assert!(std::fs::read(self.disk()).or_fail("the disk") == before, "{reason}");
    }

    /// Folders that still exist with nbdkit's socket and, for a moment, the password.
    fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.pod.path("tmp")).or_fail("the pod's temporary folder");
        entries.map(|entry| entry.or_fail("an entry").path()).collect()
    }

    /// Processes of nbdkit that belong to this pod.
    fn nbdkits(&self) -> Vec<Pid> {
        let root = self.pod.root.path().to_string_lossy().into_owned();
        let processes = std::fs::read_dir("/proc").or_fail("/proc");
        processes
            .flatten()
            .filter_map(|process| {
                let line = std::fs::read(process.path().join("cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).into_owned();
                let is_nbdkit =
                    line.split('\0').next()?.ends_with("nbdkit") && line.contains(&root);
                let id = process.file_name().to_string_lossy().parse().ok();
                id.filter(|_| is_nbdkit).and_then(Pid::from_raw)
            })
            .collect()
    }
}

/// A way to disturb a stage.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Killed,
    Terminated,
    NbdkitKilled,
}

struct Kind {
    on_device: bool,
    seed: u64,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on a device: {}", self.on_device)
    }
}

#[test]
#[ignore = "slow: waits 15 s"]
fn three_stages_with_kills_at_any_moment_give_the_disk_of_the_guest() {
    let kinds = [(false, 1), (true, 2)].map(|(on_device, seed)| Kind { on_device, seed });
    check_all(kinds, |kind| {
        // One vSphere for each: its session expires once in each stage.
        let vsphere = Tracked::start();
        let guest = Guest::with_three_states(&vsphere);
        let config = format!("{}pause=30000\n", guest.config());
        let mut random = Random::new(kind.seed);
        let mut import = Import::new(&vsphere, &config, kind.on_device);
        let mut previous = String::new();
        for (number, (checkpoint, raw)) in guest.states.iter().enumerate() {
            // By its name or its object; the one before by its name or its change id.
            let current = if number == 1 { &checkpoint.object } else { &checkpoint.name };
            import.stage(current, &previous);
            let blows = [Blow::Killed, Blow::Terminated, Blow::NbdkitKilled, Blow::Killed];
            for blow in blows.into_iter().cycle().take(KILLS) {
                disturb(&import, blow, &mut random);
            }
            vsphere.habits(|habits| habits.expires = true);
            import.assert_succeeds();
            disk::assert_same(&import.disk(), raw, GUEST_BYTES, &format!("{kind}, stage {number}"));
            previous =
                if number == 0 { checkpoint.name.clone() } else { checkpoint.change_id.clone() };
        }
        tools::run("e2fsck", ["-fn".as_ref(), import.disk().as_os_str()]);
    });
}

/// Starts the stage repeatedly, until the blow has hit it while it runs.
fn disturb(import: &Import, blow: Blow, random: &mut Random) {
    for _ in 0..50 {
        let moment = random.below(u64::try_from(WINDOW.as_micros()).or_fail("a short window"));
        let running = import.pod.program().start();
        // The signal hits the processes wherever they are at that moment.
        std::thread::sleep(Duration::from_micros(moment));
        if hit(import, blow, running) {
            return;
        }
    }
    panic!("{blow:?} never hit a stage");
}

/// Delivers the blow. True if the stage was still running.
fn hit(import: &Import, blow: Blow, running: Running) -> bool {
    let us = i32::try_from(running.id()).ok().and_then(Pid::from_raw);
    let victims = match blow {
        Blow::NbdkitKilled => import.nbdkits(),
        Blow::Killed | Blow::Terminated => us.into_iter().collect(),
    };
    let signal = match blow {
        Blow::Terminated => Signal::TERM,
        Blow::Killed | Blow::NbdkitKilled => Signal::KILL,
    };
    // Only the process, not its group: nbdkit has to end by itself.
    let is_hit = victims.into_iter().any(|victim| kill_process(victim, signal).is_ok());
    let finished = running.wait();
    wait::until(|| "nbdkit is still there", || import.nbdkits().is_empty());
    for folder in import.folders() {
        assert_eq!(finished.code(), 137, "{} is still there", folder.display());
        std::fs::remove_dir_all(folder).or_fail("what a killed pod has left");
    }
    if finished.code() == 0 || !is_hit {
        return false;
    }
    match blow {
        Blow::Killed => assert_eq!(finished.code(), 137),
        Blow::Terminated => assert_eq!(finished.code(), 143, "{}", finished.stderr),
        Blow::NbdkitKilled => {
            let message = import.pod.message().unwrap_or_default();
            assert!(message.contains("nbdkit"), "{message}");
        }
    }
    true
}

#[test]
#[ignore = "server: nbdkit"]
fn a_delta_reads_only_what_changed_and_queries_it_once() {
    let vsphere = Tracked::start();
    let guest = Guest::with_three_states(&vsphere);
    let reads = guest.path("reads");
    let config = format!("{}reads={}\n", guest.config(), reads.display());
    let mut import = Import::new(&vsphere, &config, false);
    let [(first, before), (second, now), _] = &guest.states[..] else { panic!("three states") };
    import.stage(&first.name, "");
    import.assert_succeeds();
    let (length, inode) = identity(&import.disk());
    std::fs::remove_file(&reads).or_fail("the list of reads");
    import.stage(&second.name, &first.name);
    let finished = import.assert_succeeds();
    disk::assert_same(&import.disk(), now, GUEST_BYTES, "the second stage");
    assert_eq!(identity(&import.disk()), (length, inode), "the disk was replaced or resized");

    let changed = changed_bytes(before, now);
    let read: u64 = std::fs::read_to_string(&reads)
        .or_fail("the list of reads")
        .lines()
        .filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok())
        .sum();
    assert!(read <= changed + changed / 20, "{read} bytes were read, {changed} changed");
    let queries = vsphere.take_queries();
    assert_eq!(queries.len(), 1, "{queries:?}");
    assert_eq!(queries[0].change_id, first.change_id);
    assert!(
        finished.stderr.contains(&format!("{changed} bytes of {GUEST_BYTES} changed since")),
        "{}",
        finished.stderr
    );
    for phase in ["Info", "TransferDataFile", "Complete"] {
        assert!(finished.stderr.contains(&format!("New phase: {phase}")), "{}", finished.stderr);
    }
    assert!(!finished.stderr.contains("New phase: Resize"), "{}", finished.stderr);
    // Nothing has changed since then, so that nothing is read from the library.
    std::fs::remove_file(&reads).or_fail("the list of reads");
    import.stage(&second.name, &second.name);
    import.assert_succeeds();
    assert_eq!(std::fs::read_to_string(&reads).unwrap_or_default(), "");
}

fn identity(disk: &Path) -> (u64, u64) {
    let metadata = std::fs::metadata(disk).or_fail(disk.display());
    (metadata.len(), metadata.ino())
}

#[test]
#[ignore = "slow: 15 s of CPU time"]
fn ten_thousand_changed_areas_are_queried_page_by_page_and_once() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (before, now) = (folder.path().join("before"), folder.path().join("now"));
    let bytes = 4096 * MIB;
    for path in [&before, &now] {
        let file = std::fs::File::create(path).or_fail("a disk");
        file.set_len(bytes).or_fail("a disk");
    }
    let file = std::fs::File::options().write(true).open(&now).or_fail("a disk");
    for area in 0..10_000u64 {
        file.write_all_at(b"changed", area * 6 * BLOCK_BYTES + 4096).or_fail("a disk");
    }
    let vsphere = Tracked::start();
    let (first, second) = (vsphere.checkpoint(&before), vsphere.checkpoint(&now));
    let config = format!(
        "disk.{}={}\ndisk.{}={}\n",
        first.object,
        before.display(),
        second.object,
        now.display()
    );
    let mut import = Import::new(&vsphere, &config, false);
    import.pod.unset("IMPORTER_IMAGE_SIZE");
    import.stage(&first.name, "");
    import.assert_succeeds();
    import.stage(&second.name, &first.change_id);
    vsphere.habits(|habits| habits.expires = true);
    import.assert_succeeds();
    disk::assert_same(&import.disk(), &now, bytes, "ten thousand areas");
    let offsets: Vec<u64> = vsphere.take_queries().iter().map(|query| query.offset).collect();
    assert_eq!(offsets.len(), 5, "{offsets:?}");
    assert!(
        offsets.is_sorted() && offsets.windows(2).all(|pair| pair[0] != pair[1]),
        "{offsets:?}"
    );
}

#[test]
#[ignore = "server: nbdkit"]
fn a_vsphere_that_cannot_tell_what_changed_never_leads_to_an_incomplete_disk() {
    let vsphere = Tracked::start();
    let guest = Guest::with_three_states(&vsphere);
    let mut import = Import::new(&vsphere, &guest.config(), false);
    let [(first, _), (second, now), (third, _)] = &guest.states[..] else { panic!("three states") };
    import.stage(&second.name, &first.name);
    let finished = import.pod.run();
    assert_eq!(finished.code(), 1);
    let message = import.pod.message().unwrap_or_default();
    assert!(
        message.contains("Disk image does not exist, cannot apply deltas for warm migration"),
        "{message}"
    );

    import.stage(&first.name, "");
    import.assert_succeeds();
    import.stage("", &first.name);
    import.assert_refused("previous checkpoint set without current");
    import.stage(&second.name, "checkpoint 9");
    import.assert_refused("no snapshot \"checkpoint 9\"");
    import.stage(&second.name, "52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/ff");
    import.assert_refused(
        "set changeTrackingEnabled for the machine, take a new snapshot, and import the disk again from the start",
    );
    import.stage(&second.name, "52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 64/1");
    import.assert_refused("belongs to another disk");
    import.stage(&second.name, &first.name);
    vsphere.habits(|habits| habits.is_tracking = false);
    import.assert_refused("did not track what changed on the disk");
    vsphere.habits(|habits| {
        habits.is_tracking = true;
        habits.removed = vec![second.object.clone()];
    });
    import.assert_refused("no snapshot \"checkpoint 2\"");
    vsphere.habits(|habits| habits.removed.clear());
    import.assert_succeeds();
    disk::assert_same(&import.disk(), now, GUEST_BYTES, "after all that");

    // The snapshot disappears while the disk is changed in place: that is not a success.
    import.stage(&third.name, &second.name);
    let (object, removing) = (third.object.clone(), import.pod.program().start());
    removing.wait_for_line("found the disk in vSphere");
    vsphere.habits(|habits| habits.removed = vec![object]);
    let finished = removing.wait();
    let message = import.pod.message().unwrap_or_default();
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    assert!(message.contains("snapshot"), "{message}");
}

#[test]
#[ignore = "slow: waits 5 s"]
fn nbdkit_ends_with_a_killed_importer_even_if_the_library_hangs() {
    let vsphere = Tracked::start();
    let folder = tempfile::tempdir().or_fail("a folder");
    let (raw, reads) = (folder.path().join("raw"), folder.path().join("reads"));
    std::fs::write(&raw, disk::content(1, MIB)).or_fail("a disk");
    let first = vsphere.checkpoint(&raw);
    let config = format!("disk={}\nreads={}\npause=600000000\n", raw.display(), reads.display());
    let mut import = Import::new(&vsphere, &config, false);
    import.stage(&first.name, "");
    let running = import.pod.program().start();
    let is_reading = || std::fs::read(&reads).is_ok_and(|lines| !lines.is_empty());
    wait::until(|| "nothing is read", is_reading);
    let us = i32::try_from(running.id()).ok().and_then(Pid::from_raw).or_fail("a process");
    assert_eq!(import.nbdkits().len(), 1);
    kill_process(us, Signal::KILL).or_fail("kill it");
    assert_eq!(running.wait().code(), 137);
    wait::until(|| "nbdkit is still there", || import.nbdkits().is_empty());
}
