//! The expressions of the dashboard and the alerts in `images/deploy`, evaluated by a real
//! Prometheus that scrapes all four programs.

use std::cell::RefCell;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::BINARY;
use serde_json::Value;
use testkit::certs::{Authority, KeyKind};
use testkit::clone_pod::ClonePod;
use testkit::fail::OrFail;
use testkit::origin::{Fault, Script};
use testkit::process::Program;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::{UploadProxy, beside};
use testkit::upstream::{Reads, Then, Upstream};
use testkit::{disk, ports, tools, upstream, wait};

use super::pod::{MIB, Pod, serve};

/// An expression, where it stands, and the labels that its series must have.
struct Asked {
    place: String,
    expression: String,
    labels: Vec<String>,
}

/// The words between each `before` and `after`, without commas: the labels of `by (a, b)`.
fn lists<'a>(text: &'a str, before: &str, after: &'a str) -> impl Iterator<Item = &'a str> {
    let inside =
        text.split(before).skip(1).map(move |rest| rest.split(after).next().unwrap_or_default());
    inside.flat_map(|list| list.split(',')).map(str::trim)
}

fn owned<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    words.map(str::to_owned).collect()
}

fn deployed(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images/deploy").join(name);
    std::fs::read_to_string(&file).or_fail(file.display())
}

/// The expressions of the dashboard's panels; their legends name labels too.
fn of_the_dashboard() -> Vec<Asked> {
    let dashboard: Value = serde_json::from_str(&deployed("dashboard.json")).or_fail("JSON");
    let panels = dashboard["panels"].as_array().or_fail("panels");
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (&panel["title"], target))
    });
    let asked = targets.map(|(title, target)| {
        let expression = target["expr"].as_str().or_fail("an expression");
        let legend = target["legendFormat"].as_str().or_fail("a legend");
        Asked {
            place: format!("the panel {title}"),
            // Variables that Grafana replaces: at least four scrapes, and the user's choices.
            expression: expression
                .replace("$__rate_interval", "10s")
                .replace("$namespace", "(default|other)")
                .replace("$claim", "(disk|other)"),
            // A quantile combines all buckets, so that the label `le` disappears.
            labels: owned(
                lists(expression, "by (", ")")
                    .chain(lists(legend, "{{", "}}"))
                    .filter(|label| *label != "le"),
            ),
        }
    });
    asked.collect()
}

/// The expressions of the alerts without their thresholds, because no alert fires here.
fn of_the_alerts() -> Vec<Asked> {
    let text = deployed("alerts.yaml");
    let alerts = text.split("- alert: ").skip(1);
    let asked = alerts.map(|alert| {
        let place = alert.lines().next().or_fail("a name");
        let expression = alert.split("expr: ").nth(1).and_then(|rest| rest.lines().next());
        let (value, threshold) =
            expression.and_then(|expression| expression.rsplit_once([')', '}'])).or_fail(place);
        assert!(threshold.trim().starts_with(['>', '<', '=']), "{place}: {threshold}");
        Asked {
            place: format!("the alert {place}"),
            expression: format!("{value})"),
            labels: owned(lists(value, "by (", ")").chain(lists(alert, "$labels.", " "))),
        }
    });
    asked.collect()
}

/// A configuration like the one that a cluster's Prometheus has for pods.
fn configuration(pods: &[(&str, SocketAddr)]) -> String {
    let mut text = "global:\n  scrape_interval: 1s\nscrape_configs:\n".to_owned();
    for (name, address) in pods {
        write!(
            text,
            "- job_name: {name}\n  scheme: https\n  tls_config: {{insecure_skip_verify: true}}\n  static_configs:\n  \
             - targets: ['{address}']\n    labels: {{namespace: default, pod: {name}-disk}}\n"
        )
        .or_fail("text");
    }
    text
}

/// Evaluates an expression. Returns the labels of each series in the answer.
fn ask(prometheus: SocketAddr, expression: &str) -> Result<Vec<Value>, String> {
    let query = format!("query={expression}");
    let url = format!("http://{prometheus}/api/v1/query");
    let answer =
        Program::new(tools::find("curl")).args(["-sS", "--data-urlencode", &query, &url]).run();
    let answer: Value = serde_json::from_str(&answer.stdout).map_err(|_| answer.stderr.clone())?;
    let series = answer["data"]["result"].as_array().ok_or_else(|| answer.to_string())?;
    Ok(series.iter().map(|series| series["metric"].clone()).collect())
}

#[test]
#[ignore = "server: prometheus"]
fn every_expression_of_the_dashboard_and_the_alerts_has_an_answer() {
    // An import that stalls, a clone whose server stalls, an upload server and a proxy. All of
    // them run until they are dropped.
    let script =
        Script { faults: vec![Fault::StallAt(2 * MIB)], ..Script::new(disk::content(1, 8 * MIB)) };
    let origin = serve(script);
    let import = Pod::http(
        &format!("http://{}/disk.img", origin.address()),
        &[("IMPORTER_IMAGE_SIZE", "8Mi")],
    );
    let _importer = import.program().start();
    let authority = Arc::new(Authority::new().or_fail("an authority"));
    let hangs = upstream::Script::stop(Reads::Part(1 << 20), Then::Hang);
    let server = Upstream::start(&authority, &[], vec![hangs]);
    let client = authority.client("client", KeyKind::Ecdsa).or_fail("a client");
    let folder = tempfile::tempdir().or_fail("a folder");
    let volume = folder.path().join("volume");
    std::fs::write(&volume, disk::content(2, 8 * MIB)).or_fail("a volume");
    let url = format!("https://{}/v1beta1/upload", server.address());
    let clone = ClonePod::new(&beside(BINARY, "cdi-cloner"), &authority, &client, &url)
        .env("UPLOAD_BYTES", "8388608")
        .block(&volume);
    let _cloner = clone.program().start();
    let upload = UploadPod::new(&beside(BINARY, "cdi-uploadserver"));
    let upload_server = upload.start();
    let [metrics, prometheus] = ports::free();
    let proxy = UploadProxy::new(&beside(BINARY, "cdi-uploadproxy"))
        .arg("--metrics")
        .arg(&metrics.to_string());
    let _proxy = proxy.start();

    let pods = [
        ("importer", import.metrics.parse().or_fail("an address")),
        ("cloner", clone.metrics()),
        ("uploadserver", upload_server.address()),
        ("uploadproxy", metrics),
    ];
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, configuration(&pods)).or_fail("a configuration");
    let _prometheus = Program::new(tools::find("prometheus"))
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={prometheus}"))
        .start();

    let asked: Vec<_> = of_the_dashboard().into_iter().chain(of_the_alerts()).collect();
    assert!(asked.len() > 20, "{} expressions", asked.len());
    for asked in asked {
        let last = RefCell::new(String::new());
        let complaint = || format!("{}, {}: {}", asked.place, asked.expression, last.borrow());
        wait::until(complaint, || match ask(prometheus, &asked.expression) {
            Ok(series) => {
                last.replace(format!("no series with the labels {:?}: {series:?}", asked.labels));
                let has_labels =
                    |series: &Value| asked.labels.iter().all(|label| series[label].is_string());
                !series.is_empty() && series.iter().all(has_labels)
            }
            Err(error) => {
                last.replace(error);
                false
            }
        });
    }
}
