//! The sentences of the page after failures and successes.

use serde_json::json;
use testkit::browser::BrowserKind;
use testkit::fail::OrFail;
use testkit::upload_proxy::NAMESPACE;
use testkit::upstream::{Script, Upstream};
use testkit::{tokens, tools};

use crate::page::scene::{PVC, Scene};

const MIB: u64 = 1 << 20;

test_in_browsers!(
    the_reason_of_the_server_is_the_headline,
    an_invalid_token_and_a_missing_one_have_different_messages,
    a_volume_that_is_too_small_is_named_as_the_reason,
    a_tar_on_the_volume_of_a_disk_causes_a_warning,
);

fn the_reason_of_the_server_is_the_headline(browser: BrowserKind) {
    let mut upstream = None;
    let scene = Scene::with(
        browser,
        |proxy, _| {
            let scripted = Upstream::start(proxy.cluster(), &[], vec![Script::status(503, "")]);
            let proxy = proxy.route(PVC, scripted.address());
            upstream = Some(scripted);
            proxy
        },
        |pod| pod,
    );
    let upstream = upstream.or_fail("a scripted upload server");
    scene.choose(&scene.front.url("/"), &scene.image(MIB));
    scene.browser.find("#token").send_keys(&scene.token());
    for (status, said, headline) in [
        (503, "", "The volume takes no upload now. Try again later. (503)"),
        (400, "", "The upload was refused. (400)"),
        (503, "PVC &#39;a&#39; is not an upload target", "PVC 'a' is not an upload target (503)"),
        (
            400,
            "Saving stream failed: Unable to convert source data to target format: the file is damaged\n",
            "The file is damaged (400)",
        ),
        (
            415,
            "Saving stream failed: zip is not supported; to store the bytes as they are, add the header X-CDI-Workers-Format: verbatim",
            "Zip is not supported (415)",
        ),
        (
            502,
            "error in upload-proxy: http: proxy error: EOF",
            "The upload server does not answer: EOF (502)",
        ),
    ] {
        upstream.follow(Script::status(status, said));
        scene.browser.find("#start").click();
        assert_eq!(scene.wait_for_end("failed"), headline);
        assert_eq!(scene.browser.find("#answer").text(), "", "{headline}");
        // Nothing was sent.
        assert_eq!(scene.browser.find("#figures").text(), "", "{headline}");
    }
}

fn an_invalid_token_and_a_missing_one_have_different_messages(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let image = scene.image(MIB);
    let stranger = tokens::TokenKey::generate().token(PVC, NAMESPACE);
    scene.upload(&scene.front.url("/"), &stranger, &image);
    let status = scene.wait_for_end("failed");
    assert!(
        status.starts_with("The token has expired, or was not issued by this cluster"),
        "{status}"
    );
    assert!(status.ends_with(" (401)"), "{status}");
    let shown = scene.browser.find("body").text();
    assert_eq!(shown.matches("was not issued by this cluster").count(), 1, "{shown}");
    assert!(!shown.contains(" of 1.0 MiB"), "{shown}");
    // The fields are still filled, and another token is accepted at once.
    let focus = scene.browser.run("return document.activeElement.id;", &[]);
    assert_eq!(focus, "token");
    scene.browser.find("#token").clear();
    scene.browser.find("#start").click();
    let status = scene.wait_for_end("failed");
    assert!(status.contains("Paste the upload token"), "{status}");
    assert_eq!(scene.pod.data_names(), [""; 0]);
    // Enter works like the button.
    scene.browser.find("#token").send_keys(&format!(" Bearer {} \u{e007}", scene.token()));
    scene.browser.wait_for_text("#status", "Done.");
    scene.assert_uploaded(&image);
}

fn a_volume_that_is_too_small_is_named_as_the_reason(browser: BrowserKind) {
    let scene = Scene::with(
        browser,
        |proxy, server| proxy.route(PVC, server.address()),
        |pod| pod.env("UPLOAD_IMAGE_SIZE", "1Mi"),
    );
    let image = scene.image(2 * MIB);
    scene.upload(&scene.front.url("/"), &scene.token(), &image);
    let status = scene.wait_for_end("failed");
    let sentence = "Virtual image size 2097152 is larger than the reported available storage ";
    assert!(status.starts_with(sentence), "{status}");
    assert!(status.ends_with("A larger PVC is required (400)"), "{status}");
    assert_eq!(scene.browser.find("#answer").text(), "");
}

fn a_tar_on_the_volume_of_a_disk_causes_a_warning(browser: BrowserKind) {
    let scene = Scene::start(browser);
    let image = scene.image(4 * MIB);
    let archive = image.with_extension("tar");
    let folder = image.parent().or_fail("a folder").to_string_lossy();
    tools::run("tar", ["-C", &folder, "-cf", &archive.to_string_lossy(), "disk.raw"]);
    scene.upload(&scene.front.url("/"), &scene.token(), &archive);
    let status = scene.wait_for_end("warned");
    let begin = "Done. disk.tar is on the volume default/disk.\n\
                 Warning: this is a tar archive, stored unchanged as a disk";
    assert!(status.starts_with(begin), "{status}");
    let color = "return getComputedStyle(document.querySelector(arguments[0])).color;";
    let color = |css: &str| scene.browser.run(color, &[json!(css)]);
    assert_ne!(color("#status"), color("h1"));
    let answer = scene.browser.find("#answer").text();
    assert!(answer.starts_with("received 4.0 MiB (raw), a disk of 4.0 MiB\n"), "{answer}");
    scene.assert_uploaded(&archive);
}
