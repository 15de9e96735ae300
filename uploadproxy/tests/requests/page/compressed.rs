//! Files that gzip shrinks.

use testkit::browser::BrowserKind;
use testkit::disk;
use testkit::relay::Relay;

use crate::page::scene::{Scene, crc64nvme};

const MIB: u64 = 1 << 20;

test_in_browsers!(zeros_are_not_sent, a_compressed_upload_resumes_after_a_cut_and_a_reload);

fn zeros_are_not_sent(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let relay = Relay::start(scene.front.address());
    let content = disk::sparse_content(1, 80 * MIB, 16);
    let image = scene.image_of(&content);
    scene.choose(&relay.url(), &image);
    let record = "window.statuses = [];
        const status = document.querySelector('#status');
        new MutationObserver(() => window.statuses.push(status.textContent)).observe(status, { childList: true });";
    scene.browser.run(record, &[]);
    scene.submit(&scene.token());
    scene.wait_for_end("done");
    let statuses = scene.browser.run("return window.statuses.join('|');", &[]);
    assert!(
        statuses.as_str().unwrap_or_default().contains("|Compressing…|Uploading…|"),
        "{statuses}"
    );
    assert!(relay.sent() < 8 * MIB, "{} bytes were sent", relay.sent());
    let figures = scene.browser.find("#figures").text();
    assert!(figures.starts_with("80.0 MiB of 80.0 MiB · 100 % · "), "{figures}");
    let answer = scene.browser.find("#answer").text();
    assert!(answer.contains(" MiB (gzip, raw), a disk of 80.0 MiB\n"), "{answer}");
    let crc = crc64nvme(&content);
    let verified = "the server has verified the CRC-32 of each compressed part";
    assert!(
        answer.ends_with(&format!("checksum of the file: crc64nvme {crc}; {verified}")),
        "{answer}"
    );
    assert_eq!(scene.browser.log(), [""; 0]);
    scene.assert_uploaded(&image);
}

/// Both happen in the middle of a gzip member.
fn a_compressed_upload_resumes_after_a_cut_and_a_reload(browser: BrowserKind) {
    let scene = Scene::throttled(browser, MIB);
    let relay = Relay::start(scene.front.address());
    let image = scene.image_of(&disk::content(1, 48 * MIB));
    scene.upload(&relay.url(), &scene.token(), &image);
    // 27 of 48 MiB, still in the first member of 32 MiB: the next member begins here, and after the
    // reload only this member is sent again.
    scene.wait_for_progress(0.56);
    relay.cut();
    let status = scene.browser.wait_for_text("#status", "continuing at");
    assert!(!status.contains(" 0 %"), "{status}");
    scene.wait_for_progress(0.85);
    let (before, again) = scene.resume_after_crash(&relay, &image);
    assert!(
        again < before,
        "{again} bytes were sent after the page was loaded again, {before} before"
    );
    let answer = scene.browser.find("#answer").text();
    assert!(answer.contains(" MiB (gzip, raw), a disk of 48.0 MiB\n"), "{answer}");
    scene.assert_uploaded(&image);
}
