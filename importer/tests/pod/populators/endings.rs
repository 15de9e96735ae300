//! Populators that are stopped by signals: progress, what is left, and the next attempt.

use rustix::process::Signal;
use testkit::ovirt::{Engine, Script};
use testkit::process::Running;
use testkit::wait;

use super::ovirt;
use super::pod::{HIDDEN, Pod, dense};

const OVIRT: &str = "kubevirt_cdi_ovirt_progress_total";

/// Bytes per second of a download that takes some seconds.
const SLOW: u64 = 8 << 20;

/// Starts the program, and waits until a third of the disk is there.
fn start(pod: &Pod) -> Running {
    let running = pod.program().start();
    let complaint = || format!("no progress: {}", running.stderr_so_far());
    wait::until(complaint, || pod.progress(OVIRT).is_some_and(|percent| percent > 33.0));
    running
}

/// Stops the program in the middle by each signal; what is left must not look like a disk.
fn stop(pod: &Pod) {
    for (signal, code) in [(Signal::TERM, 143), (Signal::KILL, 137)] {
        let running = start(pod);
        let line = std::fs::read(format!("/proc/{}/cmdline", running.id())).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains(HIDDEN));
        running.signal(signal);
        let finished = running.wait();
        assert_eq!(finished.code(), code, "{}", finished.stderr);
        assert!(!finished.stderr.contains(HIDDEN), "{}", finished.stderr);
        match std::fs::read(pod.disk()) {
            Ok(left) => assert!(
                signal == Signal::KILL && left.iter().take(1 << 20).all(|byte| *byte == 0),
                "what is left looks like a disk"
            ),
            Err(_) => assert_eq!(signal, Signal::TERM, "the file is gone"),
        }
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_ovirt_populator_succeeds_after_it_was_stopped_or_killed() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let script = ovirt::holding(std::fs::read(&image.raw).unwrap());
    let slow = Engine::start(Script { rate: Some(SLOW), ..script.clone() });
    let pod = ovirt::pod(&slow);
    let other = pod.folder().join("disk.img.old");
    std::fs::write(&other, "of somebody else").unwrap();
    stop(&pod);
    // The killed attempt left its transfer, which locks the disk for one minute.
    let engine = Engine::start(script);
    let pod = pod.with(format!("--engine-url={}", engine.api_url()));
    pod.assert_fills(&image.raw, "the next attempt");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "of somebody else");
}
