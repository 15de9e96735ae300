//! A running clone: its metrics and its reaction to signals.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::process::Program;
use testkit::upstream::{Reads, Script, Then};
use testkit::wait;

use super::{BINARY, MIB, Scene};

/// Returns what the controller's pattern `kubevirt_cdi_clone_progress_total\{ownerUID="uid"\}
/// (\d{1,3}\.?\d*)` would capture.
fn controller_reads(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("\nkubevirt_cdi_clone_progress_total{ownerUID=\"uid\"} ")?;
    let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    assert!(number.split('.').next().is_some_and(|whole| whole.len() <= 3), "{number}");
    number.parse().ok()
}

#[test]
fn progress_can_be_scraped_during_a_stall_and_a_signal_ends_the_clone() {
    let scene = Scene::of_cdi(Script::stop(Reads::Part(MIB), Then::Hang));
    scene.fill(64);
    let pod = scene.pod().block(&scene.disk());
    let running = pod.program().start();
    running.wait_for_line("Set header to");
    let complaint = || format!("no progress: {}", pod.scrape());
    let percent =
        wait::find(complaint, || controller_reads(&pod.scrape()).filter(|percent| *percent > 0.0));
    assert!(percent < 90.0, "{percent}");
    let signalled = Instant::now();
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    // The server never answers, so that only the signal can have ended the clone this early.
    assert!(signalled.elapsed() < Duration::from_secs(5));
    assert_eq!(pod.message(), None);
}

#[test]
#[ignore = "slow: waits 5 s"]
fn a_clone_without_an_owner_works_and_exports_no_progress() {
    let scene = Scene::of_cdi(Script::stop(Reads::Part(MIB), Then::Hang));
    scene.fill(64);
    let pod = scene.pod().env("OWNER_UID", "").block(&scene.disk());
    let running = pod.program().start();
    running.wait_for_line("Set header to");
    assert!(!pod.scrape().contains("kubevirt_cdi_clone_progress_total{"));
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), 130);
}

#[test]
fn a_signal_stops_a_clone_that_has_sent_nothing_yet() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing writes to this pipe, so that reading it blocks for ever.
    let pipe = folder.path().join("pipe");
    Program::new("mkfifo").arg(&pipe).run().assert_success("mkfifo");
    let mut program = Program::new(BINARY)
        .arg("clone")
        .arg(folder.path())
        .arg("https://localhost:1/v1beta1/upload");
    for option in ["--cert", "--key", "--cacert"] {
        program = program.arg(option).arg(&pipe);
    }
    let running = program.start();
    running.wait_for_handlers();
    running.signal(Signal::TERM);
    running.wait().assert_failure(143, "stopped by SIGTERM");
}
