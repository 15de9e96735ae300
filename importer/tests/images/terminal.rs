//! An import on a terminal: the bar, what it leaves, and how each form of progress shows a wait.

use std::path::Path;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Fault, Origin, Script};
use testkit::process::Program;
use testkit::terminal::Terminal;

const MIB: u64 = 1 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().or_fail("a folder")
}

fn import(source: &str, target: &Path) -> Program {
    Program::new(crate::BINARY).args(["import", source]).arg(target)
}

/// An import of a file of 3 MiB in `folder`, limited to this rate.
fn slow(folder: &Path, rate: &str) -> Program {
    let source = folder.join("source.img");
    std::fs::write(&source, disk::content(7, 3 * MIB)).or_fail("write a source");
    import(&source.to_string_lossy(), &folder.join("disk.img")).args(["--limit-rate", rate])
}

#[test]
#[ignore = "slow: waits 5 s"]
fn the_bar_fits_its_terminal_and_leaves_only_the_summary() {
    for columns in [80, 60, 40] {
        let folder = folder();
        let terminal = Terminal::open(columns);
        let running = slow(folder.path(), "2M").start_on(&terminal);
        let drawn = terminal.wait_for(" left");
        assert_eq!(drawn.contains(" of 3.00 MiB"), columns == 80, "{columns}: {drawn}");
        assert!(drawn.contains('█') && drawn.lines().count() == 1, "{columns}: {drawn}");
        running.wait().assert_success("import");
        let left = terminal.screen();
        assert!(left.starts_with("imported raw: 3.00 MiB virtual, "), "{columns}: {left:?}");
        assert!(!left.contains('█'), "{columns}: {left:?}");
        let wrapped = terminal.wrapped_lines();
        let is_summary = |line: &String| {
            line.starts_with("imported ") || line.trim_start().starts_with("limited by: ")
        };
        assert!(wrapped.iter().all(is_summary), "{columns}: {wrapped:?}");
    }
}

#[test]
fn the_bar_follows_a_resize_and_ctrl_c_leaves_one_sentence() {
    let folder = folder();
    let terminal = Terminal::open(100);
    let running = slow(folder.path(), "50K").start_on(&terminal);
    terminal.wait_for(" of 3.00 MiB");
    terminal.resize(40);
    let narrow = || terminal.screen().chars().count() < 40;
    testkit::wait::until(|| terminal.screen(), narrow);
    terminal.resize(70);
    testkit::wait::until(|| terminal.screen(), || !narrow());
    // The echo of Ctrl-C on the terminal; the signal itself is sent separately.
    terminal.type_interrupt();
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), 130);
    assert_eq!(terminal.screen(), "cdi-importer: stopped by SIGINT");
    assert_eq!(terminal.wrapped_lines(), Vec::<String>::new());
    assert!(!folder.path().join("disk.img").exists());
}

#[test]
fn a_terminal_that_cannot_erase_gets_lines() {
    let folder = folder();
    for options in [&["--progress", "auto"], &["--progress", "bar"]] {
        let terminal = Terminal::open(80);
        let running =
            slow(folder.path(), "50K").args(*options).env("TERM", "dumb").start_on(&terminal);
        let drawn = terminal.wait_for(" of 3.00 MiB read, ");
        assert!(drawn.starts_with("cdi-importer: ") && !drawn.contains('█'), "{drawn}");
        running.signal(Signal::INT);
        let finished = running.wait();
        assert_eq!(finished.code(), 130);
        assert!(!finished.stdout.contains('\x1b'), "{}", finished.stdout);
    }
}

/// A server that answers the first two requests with 503.
fn busy_server() -> Origin {
    let faults = vec![Fault::Status(503, None), Fault::Status(503, None)];
    let script = Script { faults, ..Script::new(disk::content(1, MIB)) };
    Origin::start(script).or_fail("an origin")
}

#[test]
#[ignore = "slow: waits 9 s"]
fn a_wait_says_why_and_when_the_next_attempt_comes() {
    const CAUSE: &str = "HTTP 503 Service Unavailable";
    let folder = folder();
    let target = folder.path().join("disk.img");

    let terminal = Terminal::open(80);
    let server = busy_server();
    let running = import(&server.url("/disk"), &target).arg("--force").start_on(&terminal);
    terminal.wait_for(&format!("retrying in 1 s ({CAUSE}, attempt 2)"));
    running.wait().assert_success("bar");

    let with = |progress: &str| {
        let options = ["--force", "--progress", progress];
        let finished = import(&busy_server().url("/disk"), &target).args(options).run();
        finished.assert_success(progress);
        finished
    };
    let plain = with("plain");
    let waits: Vec<_> = plain.stderr.lines().filter(|line| line.contains("retrying")).collect();
    assert!((1..=2).contains(&waits.len()), "one line for each attempt: {}", plain.stderr);
    for wait in waits {
        let is_wait = wait.starts_with("cdi-importer: retrying ");
        assert!(is_wait && wait.contains(&format!("({CAUSE}, attempt ")), "{wait}");
    }
    let json = with("json");
    let events = crate::events(&json);
    let waiting = events.iter().map(|event| &event["waiting"]).find(|waiting| waiting.is_object());
    let waiting = waiting.or_fail(&json.stdout);
    assert_eq!(waiting["cause"], CAUSE);
    let is_again = waiting["attempt"].as_u64() >= Some(2);
    assert!(is_again && waiting["retry_seconds"].is_u64(), "{waiting}");
    let done = events.last().or_fail("events");
    assert_eq!((&done["retries"], &done["warnings"]), (&2.into(), &serde_json::json!([])));
}

#[test]
#[ignore = "slow: waits 3 s"]
fn a_mistyped_host_is_named_at_once_and_ends_after_three_tries_on_a_terminal() {
    let folder = folder();
    let terminal = Terminal::open(120);
    let url = "http://no-such-host.invalid/disk.qcow2";
    let finished = import(url, &folder.path().join("disk.img")).start_on(&terminal).wait();
    assert_eq!(finished.code(), 3);
    let screen = terminal.screen();
    let first = screen.lines().next().or_fail(&screen);
    assert!(
        first.starts_with(&format!("cdi-importer: {url}: cannot find no-such-host.invalid")),
        "{screen}"
    );
    let whole = screen.replace('\n', "");
    assert!(
        whole.contains("trying again up to 2 more times (--retries 0: not at all)"),
        "{screen}"
    );
}

#[test]
#[ignore = "slow: waits 4 s"]
fn the_part_that_limits_an_import_is_named_at_the_end() {
    let folder = folder();
    let script = Script { rate: Some(MIB / 2), ..Script::new(disk::content(1, MIB)) };
    let server = Origin::start(script).or_fail("an origin");
    let target = folder.path().join("disk.img");
    let finished = import(&server.url("/disk"), &target).arg("-v").run();
    finished.assert_success("import");
    let line = finished.stdout.lines().nth(1).or_fail(&finished.stdout);
    let source = line.strip_prefix("limited by: source ").or_fail(line);
    assert!(!source.starts_with('0') && source.contains(" s, decoder 0."), "{line}");
    let reason = finished.stderr.lines().find(|line| line.contains("the source gave "));
    let reason = reason.or_fail(&finished.stderr);
    assert!(reason.contains(" KiB/s on 1 connection; the target could take at least "), "{reason}");

    let json = import(&server.url("/disk"), &target).args(["--force", "--progress", "json"]).run();
    let events = crate::events(&json);
    let seconds = |event: &serde_json::Value, part: &str| {
        event["limited_seconds"][part].as_f64().or_fail(&json.stdout)
    };
    let done = events.last().or_fail("events");
    let whole = done["seconds"].as_f64().or_fail("seconds");
    assert!(seconds(done, "source") > 1.0, "{done}");
    let sum: f64 = ["source", "decoder", "target"].map(|part| seconds(done, part)).iter().sum();
    assert!(sum <= whole && sum > 0.5 * whole, "{done}");
    let is_progress = |event: &&serde_json::Value| event["event"] == "progress";
    let last = events.iter().rfind(is_progress).or_fail(&json.stdout);
    assert!(seconds(last, "source") > 0.5, "{last}");
}

#[test]
fn warnings_stand_out_on_a_terminal_and_are_counted_in_json() {
    const SENTENCE: &str =
        "Unexpected content type 'text/plain'. Content might not be a KubeVirt image.";
    let folder = folder();
    let headers = vec![("Content-Type".to_owned(), "text/plain".to_owned())];
    let script = Script { headers, ..Script::new(disk::content(1, MIB)) };
    let server = Origin::start(script).or_fail("an origin");
    let target = folder.path().join("disk.img");
    let program = || import(&server.url("/disk"), &target).arg("--force");

    let piped = program().run();
    piped.assert_success("pipe");
    let sentence = format!("cdi-importer: warning: {SENTENCE}");
    assert!(piped.stderr.contains(&sentence), "{}", piped.stderr);
    for (no_color, colored) in [("", true), ("1", false)] {
        let terminal = Terminal::open(200);
        let finished = program().env("NO_COLOR", no_color).start_on(&terminal).wait();
        finished.assert_success("terminal");
        let sentence = format!("cdi-importer: \x1b[1;33mwarning:\x1b[0m {SENTENCE}");
        assert_eq!(finished.stdout.contains(&sentence), colored, "{}", finished.stdout);
        let screen = terminal.screen();
        assert!(screen.contains(&format!("warning: {SENTENCE}")), "{screen}");
    }
    let json = program().args(["--progress", "json"]).run();
    let events = crate::events(&json);
    let done = events.last().or_fail("events");
    assert_eq!(done["warnings"], serde_json::json!([format!("{SENTENCE} host=127.0.0.1")]));

    let terminal = Terminal::open(200);
    let failed = import("/does/not/exist", &target).start_on(&terminal).wait();
    let name = "\x1b[1;31mcdi-importer:\x1b[0m open /does/not/exist: ";
    assert!(failed.stdout.contains(name), "{}", failed.stdout);
}

#[test]
#[ignore = "slow: waits 7 s"]
fn each_v_logs_more_and_never_a_secret() {
    let folder = folder();
    let redirects = [("/latest".to_owned(), vec!["/disk?signature=hidden".to_owned()])].into();
    let script = Script { redirects, ..Script::new(disk::content(1, MIB)) };
    let server = Origin::start(script).or_fail("an origin");
    let target = folder.path().join("disk.img");
    let said = |verbosity: &[&str]| {
        let finished = import(&server.url("/latest?token=hidden"), &target)
            .arg("--force")
            .args(verbosity.to_vec())
            .run();
        finished.assert_success("import");
        assert!(!finished.stderr.contains("hidden"), "{}", finished.stderr);
        finished.stderr
    };
    assert_eq!(said(&[]), "");
    let (once, twice) = (said(&["-v"]), said(&["-vv"]));
    for part in [
        "/latest status=\"302 Found\" address=127.0.0.1:",
        "/disk status=\"200 OK\"",
        "the image is raw route=raw",
    ] {
        assert!(once.contains(part), "{part} in {once}");
    }
    assert!(twice.lines().count() > once.lines().count(), "{twice}");

    // This import lasts long enough for a line with rates.
    let script = Script { rate: Some(160 << 10), ..Script::new(disk::content(1, MIB)) };
    let server = Origin::start(script).or_fail("an origin");
    let finished = import(&server.url("/disk"), &target).args(["--force", "-vv"]).run();
    finished.assert_success("rates");
    let rates = finished.stderr.lines().find(|line| line.contains("; busy: source "));
    assert!(rates.is_some_and(|line| line.contains("KiB/s, wrote ")), "{}", finished.stderr);
}
