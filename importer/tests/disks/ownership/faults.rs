//! System calls that fail or hang, by fault injection of strace.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::random::Random;
use testkit::wait;

use crate::ownership::gate::{self, Gate};
use crate::ownership::importer;
use crate::ownership::place::{DISK_BYTES, Disk, HELD_BYTES, Place, disks};
use crate::ownership::writer::put;

/// Runs `program` under strace with these faults; signals reach the program, not strace.
fn with_faults(program: Program, faults: &[&str], log: &Path) -> Program {
    // Otherwise the log of an earlier run could be read as that of this one.
    std::fs::remove_file(log).ok();
    let options = ["-DD", "-f", "-qq", "-y"].into_iter();
    let faults = faults.iter().flat_map(|fault| ["-e", fault]);
    let words = options.chain(faults).chain(["-o"]).map(OsString::from);
    let words: Vec<OsString> = words.chain([log.into()]).collect();
    program.under("strace", words)
}

/// The thread of the transfer calls fsync four times: after zeroing the first MiB, after
/// everything behind it, after all but the first block, and after everything.
#[test]
#[ignore = "root: loop devices"]
fn a_device_whose_last_sync_fails_is_hidden_again() {
    let place = Place::with_device();
    let source = disks(place.root(), 1).remove(0).raw;
    let log = place.root().join("log");
    for (when, said) in [
        ("4", "input/output error"),
        ("3", "input/output error"),
        ("2", "input/output error"),
        // The sync after hiding the disk again fails as well.
        (
            "4+",
            "its first MiB could not be zeroed again (input/output error), so it may look like a complete disk",
        ),
    ] {
        for options in [&["-q"][..], &["-q", "--preallocate"]] {
            let fault = format!("inject=fsync:error=EIO:when={when}");
            let program =
                importer(["import"]).args(options.iter().copied()).arg(&source).arg(place.target());
            let finished = with_faults(program, &["trace=fsync", &fault], &log).run();
            finished.assert_failure(7, said);
            let is_hidden = disk::begins_with_only(&[0], &place.target(), HELD_BYTES);
            assert!(is_hidden, "{when} {options:?}: the disk can be read");
        }
    }
    importer(["import", "-q"]).arg(&source).arg(place.target()).run().assert_success("no fault");
    disk::assert_same(&place.target(), &source, DISK_BYTES, "no fault");
}

#[test]
#[ignore = "tools: strace"]
fn the_folder_is_synced_after_the_disk_and_a_file_whose_sync_fails_is_removed() {
    let place = Place::with_file();
    let source = disks(place.root(), 1).remove(0).raw;
    let log = place.root().join("log");
    let import = |faults: &[&str]| {
        let program = importer(["import", "-q"]).arg(&source).arg(place.target());
        with_faults(program, faults, &log).run()
    };
    // The fourth sync is that of the folder.
    for when in 1..=4 {
        let fault = format!("inject=fsync:error=EIO:when={when}");
        import(&["trace=fsync", &fault]).assert_failure(7, "input/output error");
        assert!(!place.target().exists(), "{when}: a file is left");
    }
    import(&["trace=fsync"]).assert_success("import");
    let calls = std::fs::read_to_string(&log).or_fail("the log of strace");
    let is_folder = |call: &str| call.contains(&format!("<{}>)", place.data().display()));
    assert!(calls.lines().last().is_some_and(is_folder), "the folder is not synced last: {calls}");
}

/// Both writers get in, and the name then leads to the file of the second one.
#[test]
#[ignore = "tools: strace"]
fn without_locks_the_replaced_writer_fails_and_the_other_disk_stays() {
    let place = Place::with_file();
    let disks = disks(place.root(), 2);
    let log = |number: usize| place.root().join(format!("{number}.log"));
    let start = |number: usize| {
        let (program, gate, last) = gated(&place, &disks[number]);
        let faults = ["trace=flock", "inject=flock:error=ENOLCK"];
        let running = with_faults(program, &faults, &log(number)).start();
        running.wait_for_line("took the target");
        (running, gate, last)
    };
    for signal in [None, Some(Signal::TERM)] {
        let (replaced, replaced_gate, replaced_last) = start(0);
        let (other, gate, last) = start(1);
        gate.open(last);
        other.wait().assert_success("the second writer");
        match signal {
            None => {
                replaced_gate.open(replaced_last);
                replaced.wait().assert_failure(7, "it was removed or replaced in the meantime");
            }
            Some(signal) => {
                replaced.signal(signal);
                assert_eq!(replaced.wait().code(), 143);
            }
        }
        disk::assert_same(&place.target(), &disks[1].raw, DISK_BYTES, "the second disk");
    }
}

/// Imports from standard input, up to a gate near the end of the object.
fn gated<'d>(place: &Place, disk: &'d Disk) -> (Program, Gate, &'d [u8]) {
    let (first, last) = disk.object.split_at(disk.object.len() - 1000);
    let (gate, feed) = gate::pipe(first.to_vec());
    let program = importer(["import", "-vv", "--progress=none", "--force", "-"]);
    (program.arg(place.target()).stdin(feed), gate, last)
}

/// Delays one writer at its lock, while another one takes the target.
fn overtaken(place: &Place, disks: &[Disk]) {
    let log = place.root().join("log");
    let slow =
        importer(["import", "--progress=none", "--force"]).arg(&disks[0].raw).arg(place.target());
    let slow =
        with_faults(slow, &["trace=flock", "inject=flock:delay_enter=4s:when=1"], &log).start();
    wait_for_call(&log, "flock(");
    let (quick, gate, last) = gated(place, &disks[1]);
    let quick = quick.start();
    quick.wait_for_line("took the target");
    slow.wait().assert_failure(7, "another import or upload is writing to it");
    gate.open(last);
    quick.wait().assert_success("the one that was faster");
    disk::assert_same(&place.target(), &disks[1].raw, DISK_BYTES, "the one that was faster");
}

#[test]
#[ignore = "slow: waits 9 s"]
fn a_writer_that_was_overtaken_before_it_had_the_lock_is_refused() {
    let place = Place::with_file();
    let disks = disks(place.root(), 2);
    // This time the new file of the slow writer is replaced before it is locked.
    overtaken(&place, &disks);
    // This time the old file is replaced before it is locked, and the name leads to a new one.
    overtaken(&place, &disks);
}

/// Waits until strace has logged the beginning of this call.
fn wait_for_call(log: &Path, call: &str) {
    let is_called = || std::fs::read_to_string(log).is_ok_and(|calls| calls.contains(call));
    wait::until(|| format!("{call} is not called"), is_called);
}

/// The thread of the transfer hangs in the kernel, and the process ends without it.
#[test]
#[ignore = "slow: waits 11 s"]
fn a_signal_removes_the_file_of_a_hung_transfer_and_no_other_file() {
    let place = Place::with_file();
    let mut noise = vec![0; 80 << 20];
    Random::new(1).fill(&mut noise);
    let source = place.root().join("noise");
    std::fs::write(&source, &noise).or_fail("an object");
    let log = place.root().join("log");
    for is_replaced in [false, true] {
        let program = importer(["import", "-vv", "--progress=none", "--cached"])
            .arg(&source)
            .arg(place.target());
        let faults = ["trace=fdatasync", "inject=fdatasync:delay_enter=5s"];
        let running = with_faults(program, &faults, &log).start();
        running.wait_for_line("took the target");
        wait_for_call(&log, "fdatasync(");
        if is_replaced {
            put(&place.target(), b"not ours");
        }
        running.signal(Signal::TERM);
        let finished = running.wait();
        assert_eq!(finished.code(), 143, "{}", finished.stderr);
        if is_replaced {
            assert_eq!(std::fs::read(place.target()).or_fail("the other file"), b"not ours");
        } else {
            assert!(!place.target().exists(), "a partial file is left");
        }
    }
}

/// If the name were looked up twice, it could lead to another file the second time.
#[test]
#[ignore = "root: loop devices"]
fn the_target_is_opened_by_its_name_once() {
    for place in [Place::with_file(), Place::with_device()] {
        let source = disks(place.root(), 1).remove(0).raw;
        let log = place.root().join("log");
        let program = importer(["import", "-q"]).arg(&source).arg(place.target());
        with_faults(program, &["trace=openat"], &log).run().assert_success("import");
        let calls = std::fs::read_to_string(&log).or_fail("the log of strace");
        let count = |name: &str, flag| {
            calls.lines().filter(|call| call.contains(name) && call.contains(flag)).count()
        };
        let name = format!("{:?}", place.target());
        assert_eq!((count(&name, "O_RDWR"), count(&name, "O_WRONLY")), (1, 0), "{calls}");
        // The second open, for direct I/O, goes through the descriptor.
        assert!(count("/proc/self/fd/", "O_DIRECT") > 0, "{calls}");
    }
}
