//! Hostile answers of the API server to the watch on CDI's configuration.

use std::fmt;
use std::time::Duration;

use testkit::cases::check_all_by;
use testkit::kube_api::{Answer, KubeApi};
use testkit::process::cpu;
use testkit::wait;

use crate::hostile::Scene;

/// How long each watch is observed.
const FOLLOWED: Duration = Duration::from_secs(5);

/// Limits on processor time and on requests meanwhile.
const CPU: Duration = Duration::from_secs(1);
const QUESTIONS: usize = 20;

/// A list with one CDIConfig, and a token that announces another page.
const PAGE: &str = r#"{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfigList","metadata":{"resourceVersion":"9","continue":"more"},"items":[{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfig","metadata":{"name":"config","resourceVersion":"5"},"spec":{}}]}"#;

const EVENT: &str = r#"{"type":"MODIFIED","object":{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfig","metadata":{"name":"config","resourceVersion":"6"},"spec":{}}}"#;

const GONE_EVENT: &str =
    r#"{"type":"ERROR","object":{"code":410,"status":"Failure","message":"","reason":"Expired"}}"#;

fn questions(api: &KubeApi) -> usize {
    api.requests().iter().filter(|request| request.contains("/cdiconfigs")).count()
}

/// The answer to a watch, and to the list that follows if there is another one than usual.
struct Case(&'static str, Answer, Option<Answer>);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[test]
#[ignore = "slow: waits 6 s"]
fn watches_and_lists_that_end_lie_or_never_end_cost_little() {
    let now = Duration::ZERO;
    let gone = || Answer::Status(410, "Expired", "too old resource version".to_owned());
    let garbage = Answer::endless("", "garbage\n", Duration::from_millis(1));
    let cases = [
        Case("an end at once", Answer::json(""), None),
        Case("gone", gone(), None),
        Case("gone, as an event", Answer::json(&format!("{GONE_EVENT}\n")), None),
        Case("one event and an end", Answer::json(&format!("{EVENT}\n")), None),
        Case("garbage", Answer::json("garbage\n"), None),
        Case("a line without end", Answer::endless("{\"type\":\"", "x", now), None),
        Case("garbage without end", garbage, None),
        Case("no HTTP", Answer::Bytes(b"SSH-2.0\r\n\r\n".to_vec()), None),
        Case("forbidden", Answer::Status(403, "Forbidden", "no".to_owned()), None),
        Case("pages without end", gone(), Some(Answer::json(PAGE))),
        Case("blanks without end", gone(), Some(Answer::endless("{", " \n", now))),
        Case("always gone", gone(), Some(gone())),
    ];
    check_all_by(cases.len(), cases, |Case(what, watch, list)| {
        let scene = Scene::start();
        let (asked, computed) = (questions(&scene.api), cpu(scene.server.id()));
        scene.api.set_watch(watch.clone());
        if let Some(list) = list {
            scene.api.set_list(list.clone());
        }
        wait::until(
            || "the proxy sends no requests",
            || {
                scene.api.end_watches();
                questions(&scene.api) > asked
            },
        );
        std::thread::sleep(FOLLOWED);
        let (asked, computed) = (questions(&scene.api) - asked, cpu(scene.server.id()) - computed);
        println!("{what}: {asked} questions, {computed:?} computed in {FOLLOWED:?}");
        assert!(asked <= QUESTIONS, "{asked} questions in {FOLLOWED:?}");
        assert!(computed < CPU, "{computed:?} computed in {FOLLOWED:?}");
        assert!(scene.server.log().len() < 64 << 10, "{} bytes of log", scene.server.log().len());
        scene.assert_alive(what);
    });
}
