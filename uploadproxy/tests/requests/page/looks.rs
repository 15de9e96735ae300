//! The looks of the page, and whether everybody can use it.

use serde_json::json;
use testkit::browser::BrowserKind;
use testkit::fail::OrFail;
use testkit::tools;

use crate::page::scene::Scene;

const MIB: u64 = 1 << 20;

test_in_browsers!(
    the_size_of_the_file_is_shown_and_a_failure_is_red,
    the_page_names_its_server_and_offers_help,
    every_state_of_the_page_is_accessible
);

fn the_size_of_the_file_is_shown_and_a_failure_is_red(browser: BrowserKind) {
    let scene = Scene::start(browser);
    scene.choose(&scene.front.url("/"), &scene.image(3 * MIB));
    assert_eq!(scene.browser.find("#file-size").text(), "Size: 3.0 MiB");
    // The list of formats has served its purpose.
    assert_eq!(scene.browser.find("#file-hint").text(), "");
    let style = |css: &str, name: &str| {
        let script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]];";
        scene.browser.run(script, &[json!(css), json!(name)])
    };
    assert_eq!(style("#token", "webkitTextSecurity"), "disc");
    let usual = style("#bar", "accentColor");
    scene.submit("nonsense");
    scene.wait_for_end("failed");
    let failed = style("#bar", "accentColor");
    assert_ne!(failed, usual);
    assert_eq!(failed, style("#status", "color"));
}

fn the_page_names_its_server_and_offers_help(browser: BrowserKind) {
    let scene = Scene::start(browser);
    scene.browser.open(&scene.front.url("/"));
    let formats = scene.browser.find("#file-hint").text();
    assert!(formats.starts_with("Raw, ISO, qcow2"), "{formats}");
    let address = scene.front.address();
    let body = scene.browser.find("body").text();
    assert!(body.contains(&format!("Server: {address}\n")), "{body}");
    assert!(!body.contains("kubectl cdi"), "{body}");
    // Enter opens what the keyboard has reached.
    scene.browser.find("summary").send_keys("\u{e007}");
    let help = scene.browser.find("details").text();
    assert!(help.contains("kubectl cdi token dv/NAME -o name\n"), "{help}");
    assert!(help.contains("kubectl cdi upload disk.qcow2 dv/NAME\n"), "{help}");
    let curl = format!("-T disk.qcow2 https://{address}/v1beta1/upload");
    assert!(help.ends_with(&curl), "{help}");
}

/// Checks the page with axe-core, which implements the rules of WCAG.
fn every_state_of_the_page_is_accessible(browser: BrowserKind) {
    let scene = Scene::throttled(browser, 4 * MIB);
    let axe = std::fs::read_to_string(tools::built("axe")).or_fail("axe-core");
    // Chromium gives it to the page, Firefox to a sandbox around the page.
    let script = format!(
        "{axe}\nreturn (window.axe ?? axe).run(document).then(({{ violations, passes }}) => [passes.length, \
         violations.map(({{ id, nodes }}) => `${{id}}: ${{nodes.map((node) => node.html)}}`)]);"
    );
    let look = |state: &str| {
        let found = scene.browser.run(&script, &[]);
        assert!(found[0].as_u64().is_some_and(|rules| rules > 15), "{state}: {found}");
        assert_eq!(found[1], json!([]), "{state}");
    };
    scene.choose(&scene.front.url("/"), &scene.image(40 * MIB));
    look("start");
    scene.browser.find("summary").click();
    look("help");
    scene.submit("nonsense");
    scene.wait_for_end("failed");
    look("failed");
    scene.browser.find("#token").clear();
    scene.submit(&scene.token());
    scene.wait_for_progress(0.05);
    look("during");
    assert!(
        scene.browser.find("#cancel").attribute("hidden").is_none(),
        "the upload has ended too early"
    );
    scene.wait_for_end("done");
    look("done");
}
