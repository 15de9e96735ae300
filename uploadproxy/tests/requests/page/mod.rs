//! The upload page in browsers: what users do and see.

/// Defines a test of each function in each browser.
macro_rules! test_in_browsers {
    ($($test:ident),+ $(,)?) => {
        mod chromium {
            $(
                #[test]
                #[ignore = "server: Chromium"]
                fn $test() {
                    super::$test(testkit::browser::BrowserKind::Chromium);
                }
            )+
        }
        mod firefox {
            $(
                #[test]
                #[ignore = "server: Firefox"]
                fn $test() {
                    super::$test(testkit::browser::BrowserKind::Firefox);
                }
            )+
        }
    };
}

mod compressed;
mod looks;
mod messages;
mod scene;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::browser::{Browser, BrowserKind};
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::origin::{Origin, Script};
use testkit::upload_proxy::NAMESPACE;
use testkit::{disk, tokens, tools};

use crate::page::scene::{PVC, Scene, crc64nvme};
use testkit::relay::Relay;

const MIB: u64 = 1 << 20;

/// The page may only contact its own origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Tolerance for differences between clocks: tokens stay valid for so many seconds longer.
const LEEWAY: i64 = 10;

test_in_browsers!(
    an_upload_shows_its_progress_and_writes_the_disk,
    a_file_that_is_not_a_disk_is_refused_after_its_first_bytes,
    an_upload_resumes_after_the_page_is_reloaded,
    another_file_replaces_an_interrupted_upload,
    the_claim_of_a_token_is_shown_and_a_link_may_bring_the_token,
    a_link_opened_in_the_same_tab_brings_its_token,
    an_upload_resumes_after_a_cut,
    no_speed_is_shown_while_nothing_moves,
    an_upload_of_a_changed_file_is_not_resumed,
    a_file_may_be_dropped,
    an_expired_token_is_asked_for_again,
    a_cancelled_upload_is_removed_at_once,
    an_archive_is_sent_in_one_request,
    a_page_of_another_origin_may_upload_by_cors,
);

fn an_upload_shows_its_progress_and_writes_the_disk(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 8 * MIB);
    let image = scene.image(32 * MIB);
    let page = scene.front.exchange(&Request::new("GET", "/"), &[]);
    assert_eq!(page.header("content-security-policy"), Some(POLICY));
    scene.upload(&scene.front.url("/"), &scene.token(), &image);
    let bar = scene.browser.find("#bar");
    let mut values = Vec::new();
    let sample = |_: &_| {
        let value = bar.property("value").as_f64().or_fail("a number");
        values.push(value);
        (value >= 1.0).then_some(())
    };
    scene.browser.wait_for("all to be sent", sample);
    assert!(values.is_sorted(), "{values:?}");
    values.dedup();
    let between = values.iter().filter(|value| (0.01..0.99).contains(*value)).count();
    assert!(between >= 5, "progress was seen at {values:?}");
    let figures = scene.browser.find("#figures").text();
    assert!(figures.starts_with("32.0 MiB of 32.0 MiB · 100 % · "), "{figures}");
    assert_eq!(scene.wait_for_end("done"), "Done. disk.raw is on the volume default/disk.");
    let hint = scene.browser.find("#token-hint").text();
    assert_eq!(hint, "Another volume needs a token of its own.");
    let answer = scene.browser.find("#answer").text();
    let crc = crc64nvme(&std::fs::read(&image).or_fail("the image"));
    let expected = format!(
        "received 32.0 MiB (raw), a disk of 32.0 MiB\n\
         checksum of the file: crc64nvme {crc}, verified by the server"
    );
    assert_eq!(answer, expected);
    assert_eq!(scene.browser.find("#token").property("value"), "");
    // Neither the policy nor a missing file made the browser complain.
    assert_eq!(scene.browser.log(), [""; 0]);
    scene.assert_uploaded(&image);
}

fn a_file_that_is_not_a_disk_is_refused_after_its_first_bytes(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let relay = Relay::start(scene.front.address());
    let image = scene.image(64 * MIB);
    let mut zip = std::fs::read(&image).or_fail("the image");
    zip[..disk::ZIP_HEADER.len()].copy_from_slice(&disk::ZIP_HEADER);
    std::fs::write(&image, zip).or_fail("the image");
    scene.upload(&relay.url(), &scene.token(), &image);
    let status = scene.wait_for_end("failed");
    let sentence =
        "Zip compression is not supported: recompress the image with gzip, xz, zstd or bzip2 (415)";
    assert_eq!(status, sentence);
    assert!(relay.sent() < 2 * MIB, "{} bytes were sent", relay.sent());
}

fn an_upload_resumes_after_the_page_is_reloaded(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 8 * MIB);
    let relay = Relay::start(scene.front.address());
    let image = scene.image(48 * MIB);
    scene.upload(&relay.url(), &scene.token(), &image);
    scene.wait_for_progress(0.5);
    let title = scene.browser.run("return document.title;", &[]);
    assert!(
        title.as_str().is_some_and(|title| title.contains(" % · Upload a disk image")),
        "{title}"
    );
    // The bar counts what the browser and the sockets took, which on a busy machine is far more
    // than what the server has: once it had 3 of 48 MiB when the bar was at the half.
    scene.upload_server.wait_for_received(16 * MIB);
    let (_, again) = scene.resume_after_crash(&relay, &image);
    assert!(again < 42 * MIB, "{again} bytes were sent after the page was loaded again");
    scene.assert_uploaded(&image);
}

fn another_file_replaces_an_interrupted_upload(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 8 * MIB);
    scene.upload(&scene.front.url("/"), &scene.token(), &scene.image(48 * MIB));
    scene.wait_for_progress(0.3);
    scene.let_page_crash();
    let image = scene.image(4 * MIB);
    scene.choose(&scene.front.url("/"), &image);
    scene.browser.wait_for_text("#status", "another file replaces it");
    scene.submit(&scene.token());
    scene.wait_for_end("done");
    scene.assert_uploaded(&image);
}

fn the_claim_of_a_token_is_shown_and_a_link_may_bring_the_token(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let hint = |scene: &Scene| scene.browser.find("#token-hint").text();
    scene.browser.open(&format!("{}#token={}", scene.front.url("/"), scene.token()));
    let text = hint(&scene);
    assert!(text.starts_with(&format!("For the claim {NAMESPACE}/{PVC}, until ")), "{text}");
    assert_eq!(scene.browser.run("return location.href;", &[]), json!(scene.front.url("/")));
    let token = scene.browser.find("#token");
    token.clear();
    token.send_keys("x");
    assert!(hint(&scene).starts_with("It is valid for five minutes"), "{}", hint(&scene));
    let mut claims = tokens::claims(PVC, NAMESPACE);
    claims["exp"] = json!(tokens::now() - 60);
    token.clear();
    token.send_keys(&scene.proxy.key().sign("PS256", &claims));
    assert!(hint(&scene).contains("has expired at "), "{}", hint(&scene));
}

fn a_link_opened_in_the_same_tab_brings_its_token(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let page = scene.front.url("/");
    scene.browser.open(&page);
    let follow = |token: &str| {
        scene.browser.run("location.hash = `token=${arguments[0]}`;", &[json!(token)]);
        let address = |browser: &Browser| {
            let address = browser.run("return location.href;", &[]);
            (address == page.as_str()).then_some(())
        };
        scene.browser.wait_for("a clear address", address);
        scene.browser.find("#token").property("value")
    };
    assert_eq!(follow("%"), "%");
    let token = scene.token();
    assert_eq!(follow(&token), token.as_str());
    let hint = scene.browser.find("#token-hint").text();
    assert!(hint.starts_with("For the claim default/disk, until "), "{hint}");
    scene.browser.run("history.back();", &[]);
    scene.browser.run("return new Promise((resolve) => setTimeout(resolve, 200));", &[]);
    assert_eq!(scene.browser.run("return location.href;", &[]), page.as_str());
}

fn an_upload_resumes_after_a_cut(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 8 * MIB);
    let relay = Relay::start(scene.front.address());
    let image = scene.image(32 * MIB);
    scene.upload(&relay.url(), &scene.token(), &image);
    scene.wait_for_progress(0.5);
    relay.cut();
    let status = scene.browser.wait_for_text("#status", "continuing at");
    assert!(!status.contains(" 0 %"), "{status}");
    scene.wait_for_end("done");
    // Only bytes in flight at the cut are sent twice, not those that the server has. But Firefox
    // itself repeats a request that was cut on a reused connection, and on this fast network sends
    // all of it before it reads that the offset is refused.
    let again = relay.sent() - 32 * MIB;
    let limit = if browser == BrowserKind::Firefox { 40 * MIB } else { 8 * MIB };
    assert!(again < limit, "{again} bytes were sent again");
    scene.assert_uploaded(&image);
}

fn no_speed_is_shown_while_nothing_moves(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 4 * MIB);
    let relay = Relay::start(scene.front.address());
    let image = scene.image(64 * MIB);
    scene.upload(&relay.url(), &scene.token(), &image);
    scene.wait_for_progress(0.2);
    scene.browser.wait_for_text("#figures", " MiB/s · ");
    let wait_for_rest = || {
        let figures = scene.browser.find("#figures");
        scene.browser.wait_for("figures without a speed", |_| {
            let text = figures.text();
            (text.contains(" MiB of 64.0 MiB · ") && text.ends_with(" %")).then_some(())
        });
    };
    // Ten seconds of silence end the speed's window.
    std::thread::scope(|scope| {
        scope.spawn(|| relay.be_silent(Duration::from_secs(20)));
        let begun = Instant::now();
        wait_for_rest();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
    scene.browser.wait_for_text("#figures", " MiB/s · ");
    // No server listens at port 9 of this address.
    relay.lead_to(SocketAddr::from(([127, 0, 0, 1], 9)));
    relay.cut();
    scene.browser.wait_for_text("#status", "Connection lost");
    let figures = scene.browser.find("#figures").text();
    assert!(figures.ends_with(" %"), "{figures}");
    relay.lead_to(scene.front.address());
    scene.wait_for_end("done");
    scene.assert_uploaded(&image);
}

fn an_upload_of_a_changed_file_is_not_resumed(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 8 * MIB);
    let relay = Relay::start(scene.front.address());
    let image = scene.image(32 * MIB);
    scene.upload(&relay.url(), &scene.token(), &image);
    scene.wait_for_progress(0.3);
    std::fs::write(&image, "something else").or_fail("the image");
    relay.cut();
    let status = scene.wait_for_end("failed");
    assert!(status.starts_with("The file cannot be read"), "{status}");
    // The partial disk is removed, and the server does not wait for the rest.
    scene.upload_server.wait_until_idle();
    assert_eq!(scene.pod.data_names(), [""; 0]);
}

fn a_file_may_be_dropped(browser: BrowserKind) {
    let scene = Scene::start(browser);
    scene.browser.open(&scene.front.url("/"));
    scene.browser.find("#token").send_keys(&scene.token());
    let drop = "const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(3 << 20).fill(7)], 'dropped.raw'));
        document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));";
    let twice = drop.replace(
        "document.body",
        "dataTransfer.items.add(new File(['x'], 'another.raw')); document.body",
    );
    scene.browser.run(&twice, &[]);
    let status = scene.wait_for_end("failed");
    assert_eq!(status, "One volume takes one image: drop one file.");
    let drag = "document.body.dispatchEvent(new DragEvent('dragover', { bubbles: true, cancelable: true }));
        return document.body.className;";
    assert_eq!(scene.browser.run(drag, &[]), "dragging");
    scene.browser.run(drop, &[]);
    assert_eq!(scene.browser.run("return document.body.className;", &[]), "");
    scene.browser.find("#start").click();
    assert_eq!(scene.wait_for_end("done"), "Done. dropped.raw is on the volume default/disk.");
    scene.upload_server.wait().assert_success("a dropped file");
    assert!(std::fs::read(scene.pod.disk()).or_fail("the disk") == vec![7; 3 << 20]);
}

fn an_expired_token_is_asked_for_again(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 4 * MIB);
    let relay = Relay::start(scene.front.address());
    let image = scene.image(160 * MIB);
    scene.choose(&relay.url(), &image);
    let mut claims = tokens::claims(PVC, NAMESPACE);
    // Long enough for a browser on a busy machine, but shorter than the upload, which takes 40 s.
    let expiry = tokens::now() + 28;
    claims["exp"] = json!(expiry - LEEWAY);
    scene.submit(&scene.proxy.key().sign("PS256", &claims));
    // More than the network buffers, so the proxy has accepted the token.
    scene.wait_for_progress(0.3);
    while tokens::now() <= expiry + 1 {
        std::thread::sleep(Duration::from_millis(100));
    }
    relay.cut();
    scene.browser.wait_for_text("#status", "Paste a new one");
    scene.submit(&scene.token());
    scene.browser.wait_for_text("#status", "continuing at");
    scene.wait_for_end("done");
    scene.assert_uploaded(&image);
}

fn a_cancelled_upload_is_removed_at_once(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 4 * MIB);
    let image = scene.image(32 * MIB);
    scene.upload(&scene.front.url("/"), &scene.token(), &image);
    scene.wait_for_progress(0.3);
    scene.browser.find("#cancel").click();
    assert_eq!(scene.wait_for_end("failed"), "Cancelled.");
    let cancelled = Instant::now();
    scene.upload_server.wait_until_idle();
    // The browser and the server are other processes with clocks of their own.
    assert!(cancelled.elapsed() < Duration::from_secs(10), "{:?}", cancelled.elapsed());
    assert_eq!(scene.pod.data_names(), [""; 0]);
}

fn an_archive_is_sent_in_one_request(browser: BrowserKind) {
    let scene = Scene::with(
        browser,
        |proxy, server| proxy.route_with(PVC, server.address(), "archive"),
        |pod| pod,
    );
    let image = scene.image(4 * MIB);
    let archive = image.with_extension("tar");
    let folder = image.parent().or_fail("a folder").to_string_lossy();
    tools::run("tar", ["-C", &folder, "-cf", &archive.to_string_lossy(), "disk.raw"]);
    scene.upload(&scene.front.url("/"), &scene.token(), &archive);
    assert_eq!(scene.wait_for_end("done"), "Done. disk.tar is on the volume default/disk.");
    scene.upload_server.wait().assert_success("an archive");
    let unpacked = std::fs::read(scene.pod.path("data/disk.raw")).or_fail("the file");
    assert!(unpacked == std::fs::read(&image).or_fail("the image"));
}

fn a_page_of_another_origin_may_upload_by_cors(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let mut script = Script::new("<!doctype html><title>elsewhere</title>");
    script.headers = vec![("Content-Type".to_owned(), "text/html".to_owned())];
    let elsewhere = Origin::start(script).or_fail("another origin");
    scene.browser.open(&elsewhere.url("/"));
    // The Authorization header requires a preflight, which a simple request would not.
    let fetch = "const [url, token] = arguments;
        const headers = { Authorization: `Bearer ${token}` };
        return fetch(url, { method: 'POST', headers, body: new Uint8Array(3 << 20).fill(7) })
            .then((answer) => answer.status, (error) => String(error));";
    let url = scene.front.url("/v1beta1/upload");
    let upload = |token: &str| scene.browser.run(fetch, &[json!(url), json!(token)]);
    assert_eq!(upload("nonsense"), 401);
    assert_eq!(upload(&scene.token()), 200, "{}", scene.upload_server.log());
    scene.upload_server.wait().assert_success("CORS");
    assert!(std::fs::read(scene.pod.disk()).or_fail("the disk") == vec![7; 3 << 20]);
}
