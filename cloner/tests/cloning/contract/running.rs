//! What can be seen of a clone that runs.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::process::Program;
use testkit::upstream::{Reads, Script, Then};
use testkit::wait;

use super::{BINARY, MIB, Scene};

/// What the controller's `kubevirt_cdi_clone_progress_total\{ownerUID="uid"\} (\d{1,3}\.?\d*)` would capture.
fn controller_reads(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("\nkubevirt_cdi_clone_progress_total{ownerUID=\"uid\"} ")?;
    let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    assert!(number.split('.').next().is_some_and(|whole| whole.len() <= 3), "{number}");
    number.parse().ok()
}

#[test]
fn progress_is_scraped_while_a_server_waits_and_a_signal_ends_it() {
    let scene = Scene::of_cdi(Script::stop(Reads::Part(MIB), Then::Hang));
    scene.fill(64);
    let pod = scene.pod().block(&scene.disk());
    let running = pod.program().start();
    running.wait_for_line("Set header to");
    let complaint = || format!("no progress: {}", pod.scrape());
    let percent = wait::find(Duration::from_secs(20), complaint, || {
        controller_reads(&pod.scrape()).filter(|percent| *percent > 0.0)
    });
    assert!(percent < 90.0, "{percent}");
    let signalled = Instant::now();
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    // The server never answers: the signal, and not the other process's patience, ends it.
    assert!(signalled.elapsed() < Duration::from_secs(5));
    assert_eq!(pod.message(), None);
}

#[test]
fn a_clone_without_an_owner_has_no_series_and_works() {
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
fn a_signal_is_obeyed_before_the_first_byte_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing writes to it: to read it takes for ever.
    let pipe = folder.path().join("pipe");
    Program::new("mkfifo").arg(&pipe).run().assert_success("mkfifo");
    let mut program =
        Program::new(BINARY).arg("clone").arg(folder.path()).arg("https://localhost:1/v1beta1/upload");
    for option in ["--cert", "--key", "--ca"] {
        program = program.arg(option).arg(&pipe);
    }
    let running = program.start();
    running.wait_for_handlers();
    running.signal(Signal::TERM);
    running.wait().assert_failure(143, "stopped by SIGTERM");
}
