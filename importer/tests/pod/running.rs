//! A running import: its metrics, and its reaction to a signal.

use std::cell::RefCell;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Fault, Script};
use testkit::process::Running;
use testkit::relay::Relay;
use testkit::wait;

use super::pod::{MIB, Pod, SUCCESS, free_address, serve};

/// Returns what the controller's pattern `kubevirt_cdi_import_progress_total\{ownerUID="uid"\}
/// (\d{1,3}\.?\d*)` would capture.
fn controller_reads(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("kubevirt_cdi_import_progress_total{ownerUID=\"uid\"} ")?;
    let digits = rest.chars().take(3).take_while(char::is_ascii_digit).count();
    let tail = rest.get(digits..)?;
    let point = usize::from(tail.starts_with('.'));
    let decimals = tail.get(point..)?.chars().take_while(char::is_ascii_digit).count();
    (digits > 0).then(|| rest.get(..digits + point + decimals)?.parse().ok())?
}

/// Returns a function that scrapes the metrics of `pod`: `None` while there are none.
fn scraper(pod: &Pod) -> impl Fn() -> Option<String> {
    let tls = https::tls::insecure_client_config().or_fail("TLS");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .or_fail("a client");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().or_fail("a runtime");
    let url = format!("https://{}/metrics", pod.metrics);
    move || {
        runtime.block_on(async {
            let answer = client.get(&url).send().await.ok()?;
            answer.text().await.ok()
        })
    }
}

/// Waits until the metrics of `pod` have `series`, and returns them.
fn wait_for(scrape: impl Fn() -> Option<String>, series: &str) -> String {
    let last = RefCell::new(String::new());
    let complaint = || format!("{series} is not in\n{}", last.borrow());
    wait::find(complaint, || {
        last.replace(scrape()?);
        last.borrow().lines().any(|line| line == series).then(|| last.borrow().clone())
    })
}

#[test]
#[ignore = "slow: waits 4 s"]
fn retries_are_counted_from_the_first_request_on_and_time_per_stage() {
    let origin = serve(Script {
        rate: Some(MIB),
        faults: vec![Fault::Status(503, None), Fault::CutAt(MIB), Fault::CutAt(2 * MIB)],
        ..Script::new(disk::content(5, 3 * MIB))
    });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    let retries = |kind: &str, count: u32| {
        let labels = format!("program=\"importer\",stage=\"source\",kind=\"{kind}\"");
        format!("cdi_transfer_retries_total{{{labels}}} {count}")
    };
    let text = wait_for(scraper(&pod), &retries("io", 2));
    for series in [retries("status", 1), retries("connect", 0)] {
        assert!(text.contains(&format!("{series}\n")), "{series}: {text}");
    }
    assert!(text.contains("cdi_importer_source_connections 1\n"), "{text}");
    for series in [
        "cdi_transfer_stage_seconds_total{program=\"importer\",stage=\"source\"} ",
        "cdi_transfer_limited_seconds_total{program=\"importer\",part=\"source\"} ",
    ] {
        let waited =
            text.split_once(series).and_then(|(_, rest)| rest.lines().next()?.parse::<f64>().ok());
        assert!(waited.is_some_and(|seconds| seconds > 0.5), "{series}: {text}");
    }
    let finished = running.wait();
    finished.assert_success("import");
    for words in ["limited by: source ", "the source gave "] {
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
    let at_start =
        "the source is not ready: retrying in 1 s (HTTP 503 Service Unavailable, attempt 2)";
    for words in [at_start, "the source failed at byte 1048576 of 3145728: retrying in "] {
        let line = finished.stderr.lines().find(|line| line.contains(words));
        let line = line.or_fail(words);
        assert!(line.ends_with(" host=127.0.0.1"), "{line}");
    }
}

/// A pod whose source closes connections at first, and where its connections lead.
fn early_pod() -> (Pod, Relay) {
    let relay = Relay::start(free_address().parse().or_fail("an address"));
    let url = format!("http://{}/disk", relay.address());
    (Pod::http(&url, &[("CDI_WORKERS_CONTACT_SECONDS", "60")]), relay)
}

#[test]
#[ignore = "slow: waits 7 s"]
fn a_pod_that_starts_before_its_server_succeeds_and_says_what_it_waits_for() {
    let (pod, relay) = early_pod();
    let running = pod.program().start();
    let line = running.wait_for_line("attempt 4)");
    assert!(line.contains("the source is not ready: retrying in 4 s ("), "{line}");
    assert!(line.contains("cause=\"HTTP request errored: http://"), "{line}");
    let origin = serve(Script::new(disk::content(5, 3 * MIB)));
    relay.lead_to(origin.address());
    running.wait().assert_success("import");
    assert_eq!(pod.message().as_deref(), Some(SUCCESS));
}

#[test]
fn a_pod_that_waits_for_its_server_ends_at_once_when_it_is_stopped() {
    let (pod, _relay) = early_pod();
    let running = pod.program().start();
    running.wait_for_line("attempt 4)");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 143);
    assert_eq!(pod.message().as_deref(), Some("Unable to process data: stopped by SIGTERM"));
}

/// Starts a pod that cannot end before its message is read.
fn start_until_read(pod: &Pod) -> Running {
    testkit::tools::run("mkfifo", [pod.path("dev/termination-log")]);
    pod.program().start()
}

#[test]
fn zeros_that_are_not_written_are_counted() {
    let mut image = disk::content(5, 3 * MIB);
    image.resize(8 << 20, 0);
    let origin = serve(Script::new(image));
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = start_until_read(&pod);
    let series = |count| format!("cdi_transfer_{count}_bytes_total{{program=\"importer\"}}");
    let text = wait_for(scraper(&pod), &format!("{} {}", series("skipped"), 5 * MIB));
    for (name, bytes) in [("source", 8), ("target", 3)] {
        let line = format!("{} {}\n", series(name), bytes * MIB);
        assert!(text.contains(&line), "{line} in {text}");
    }
    pod.message().or_fail("a message");
    running.wait().assert_success("import");
}

#[test]
fn an_error_is_counted_and_can_be_scraped_until_the_process_ends() {
    let mut image = b"QFI\xfb\0\0\0\x09".to_vec();
    image.resize(64 << 10, 0);
    let origin = serve(Script::new(image));
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = start_until_read(&pod);
    let family = "cdi_transfer_errors_total{program=\"importer\"";
    let series = format!("{family},stage=\"format\",kind=\"image\"}} 1");
    let text = wait_for(scraper(&pod), &series);
    let all: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with(family))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert_eq!(all.len(), 1, "{text}");
    let message = pod.message().or_fail("a message");
    assert!(message.starts_with("Unable to process data: "), "{message}");
    assert_eq!(running.wait().code(), 1);
}

#[test]
fn progress_can_be_scraped_while_a_slow_server_sends() {
    let origin = serve(Script { rate: Some(MIB), ..Script::new(disk::content(5, 3 * MIB)) });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    let scrape = scraper(&pod);
    let mut seen = Vec::new();
    wait::until(
        || "no progress",
        || {
            seen.extend(scrape().as_deref().and_then(controller_reads));
            running.has_ended()
        },
    );
    running.wait().assert_success("import");
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.iter().any(|&percent| percent > 1.0 && percent < 99.0), "{seen:?}");
}

#[test]
fn sigterm_stops_an_import_and_leaves_no_disk() {
    // At its rate, the server would send for 5 minutes.
    let origin = serve(Script { rate: Some(10 << 10), ..Script::new(disk::content(5, 3 * MIB)) });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    wait::until(|| "no disk", || pod.disk().exists());
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    assert!(!pod.disk().exists());
    assert_eq!(pod.message().as_deref(), Some("Unable to process data: stopped by SIGTERM"));
}
