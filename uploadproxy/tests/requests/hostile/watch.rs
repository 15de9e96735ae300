//! Hostile answers of the API server to the watch on CDI's configuration.

use std::time::{Duration, Instant};

use testkit::kube_api::{Answer, KubeApi};
use testkit::process::{cpu, memory};
use testkit::upload_proxy::UploadProxy;
use testkit::wait;

use crate::hostile::{BINARY, GROWTH_BYTES, Scene, endless, json};

/// How long each watch is observed.
const FOLLOWED: Duration = Duration::from_secs(5);

/// Limits on processor time and on requests meanwhile.
const CPU: Duration = Duration::from_secs(1);
const QUESTIONS: usize = 20;

/// A list with one CDIConfig, and a token that announces another page.
const PAGE: &str = r#"{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfigList","metadata":{"resourceVersion":"9","continue":"more"},"items":[{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfig","metadata":{"name":"config","resourceVersion":"5"},"spec":{}}]}"#;

fn gone() -> Answer {
    Answer::Status(410, "Expired", "too old resource version".to_owned())
}

fn questions(api: &KubeApi) -> usize {
    api.requests().iter().filter(|request| request.contains("/cdiconfigs")).count()
}

#[test]
#[ignore = "slow: waits 45 s"]
fn watches_that_end_lie_or_never_end_cost_little() {
    let now = Duration::ZERO;
    let event = r#"{"type":"MODIFIED","object":{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfig","metadata":{"name":"config","resourceVersion":"6"},"spec":{}}}"#;
    for (what, answer) in [
        ("an end at once", json("")),
        ("gone", gone()),
        (
            "gone, as an event",
            json(
                "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"status\":\"Failure\",\"message\":\"\",\"reason\":\"Expired\"}}\n",
            ),
        ),
        ("one event and an end", json(&format!("{event}\n"))),
        ("garbage", json("garbage\n")),
        ("a line without end", endless("{\"type\":\"", "x", now)),
        ("garbage without end", endless("", "garbage\n", Duration::from_millis(1))),
        ("no HTTP", Answer::Bytes(b"SSH-2.0\r\n\r\n".to_vec())),
        ("forbidden", Answer::Status(403, "Forbidden", "no".to_owned())),
    ] {
        let proxy = UploadProxy::new(BINARY);
        let api = KubeApi::start(&proxy.cluster().pem());
        api.set_watch(answer);
        let server = proxy.start_in_cluster(&api, None);
        let (began, computed, before) =
            (Instant::now(), cpu(server.id()), memory(server.id(), "VmRSS"));
        let asked = questions(&api);
        std::thread::sleep(FOLLOWED);
        let (asked, computed) = (questions(&api) - asked, cpu(server.id()) - computed);
        let grown = memory(server.id(), "VmHWM").saturating_sub(before);
        println!(
            "{what}: {asked} questions, {computed:?} computed in {:?}, {grown} bytes, {} of log",
            began.elapsed(),
            server.log().len()
        );
        assert!(asked <= QUESTIONS, "{what}: {asked} questions in {FOLLOWED:?}");
        assert!(computed < CPU, "{what}: {computed:?} computed in {FOLLOWED:?}");
        assert!(grown < GROWTH_BYTES, "{what}: {grown} bytes");
        assert!(server.log().len() < 64 << 10, "{what}: {} bytes of log", server.log().len());
    }
}

#[test]
#[ignore = "slow: waits 20 s"]
fn lists_that_never_end_cost_little() {
    for (what, answer) in [
        ("pages without end", json(PAGE)),
        ("blanks without end", endless("{", " \n", Duration::ZERO)),
        ("gone", gone()),
    ] {
        let scene = Scene::start();
        scene.api.set_list(answer);
        scene.api.set_watch(gone());
        let (asked, computed, before) =
            (questions(&scene.api), cpu(scene.server.id()), scene.rss());
        // The next watch is answered with 410 Gone, so the list is requested again.
        let complaint = || format!("{what}: the proxy sends no requests");
        wait::until(complaint, || {
            scene.api.end_watches();
            questions(&scene.api) > asked + 1
        });
        std::thread::sleep(FOLLOWED);
        let (asked, computed) = (questions(&scene.api) - asked, cpu(scene.server.id()) - computed);
        let grown = scene.peak().saturating_sub(before);
        println!("{what}: {asked} questions, {computed:?} computed, {grown} bytes");
        assert!(asked <= QUESTIONS, "{what}: {asked} questions in {FOLLOWED:?}");
        assert!(computed < CPU, "{what}: {computed:?} computed in {FOLLOWED:?}");
        assert!(grown < GROWTH_BYTES, "{what}: {grown} bytes");
        scene.assert_alive(what);
    }
}
