//! What can be seen of an import that runs.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::Script;

use super::pod::{MIB, Pod, serve};

/// What the controller's `kubevirt_cdi_import_progress_total\{ownerUID="uid"\} (\d{1,3}\.?\d*)` would capture.
fn controller_reads(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("kubevirt_cdi_import_progress_total{ownerUID=\"uid\"} ")?;
    let digits = rest.chars().take(3).take_while(char::is_ascii_digit).count();
    let tail = rest.get(digits..)?;
    let point = usize::from(tail.starts_with('.'));
    let decimals = tail
        .get(point..)?
        .chars()
        .take_while(char::is_ascii_digit)
        .count();
    (digits > 0).then(|| rest.get(..digits + point + decimals)?.parse().ok())?
}

#[test]
fn progress_can_be_scraped_while_a_slow_server_sends() {
    let origin = serve(Script {
        rate: Some(MIB),
        ..Script::new(disk::content(5, 3 * MIB))
    });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    let tls = daemon::tls::insecure_client_config().or_fail("TLS");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .or_fail("a client");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail("a runtime");
    let scrape = || {
        runtime.block_on(async {
            let answer = client
                .get(format!("https://{}/metrics", pod.metrics))
                .send()
                .await
                .ok()?;
            answer.text().await.ok()
        })
    };
    let mut seen = Vec::new();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        match scrape() {
            Some(text) => seen.extend(controller_reads(&text)),
            // The process came to its end.
            None if !seen.is_empty() => break,
            None => {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    running.wait().assert_success("import");
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(
        seen.iter().any(|&percent| percent > 1.0 && percent < 99.0),
        "{seen:?}"
    );
}

#[test]
fn sigterm_ends_an_import_without_a_trace_of_success() {
    let origin = serve(Script {
        rate: Some(200 << 10),
        ..Script::new(disk::content(5, 3 * MIB))
    });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    assert!(finished.wall < Duration::from_secs(6), "{:?}", finished.wall);
    assert!(!pod.disk().exists());
    assert_eq!(
        pod.message().as_deref(),
        Some("Unable to process data: stopped by SIGTERM")
    );
}
