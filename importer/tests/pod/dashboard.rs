//! The monitors, alerts and dashboard in `images/deploy/monitoring`, loaded by a real Prometheus
//! that finds all four programs with the labels of CDI's pods.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use crate::BINARY;
use serde_json::{Value, json};
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

/// Writes the configuration of a Prometheus in a cluster with these pods to `folder`. Returns the
/// dashboard and the rules of the alerts.
fn deploy(folder: &Path, pods: &[String]) -> (Value, Vec<Value>) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = package.join("tests/pod/prometheus_operator.py");
    let mut words = vec![script, package.join("../images/deploy/monitoring"), folder.into()];
    words.extend(pods.iter().map(Into::into));
    let mut deployed: Value = serde_json::from_str(&tools::run("python3", words)).or_fail("JSON");
    let rules = deployed["rules"].as_array().or_fail("rules").clone();
    (deployed["dashboard"].take(), rules)
}

fn text(value: &Value) -> &str {
    value.as_str().or_fail(value)
}

/// The expressions of the dashboard's panels; their legends name labels too.
fn of_the_dashboard(dashboard: &Value) -> Vec<Asked> {
    let panels = dashboard["panels"].as_array().or_fail("panels");
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (&panel["title"], target))
    });
    let asked = targets.map(|(title, target)| {
        let (expression, legend) = (text(&target["expr"]), text(&target["legendFormat"]));
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

/// The expressions of the alerts without their thresholds or `absent`, because no alert fires here.
fn of_the_alerts(rules: &[Value]) -> Vec<Asked> {
    let asked = rules.iter().map(|rule| {
        let (place, expression) = (text(&rule["alert"]), text(&rule["expr"]));
        let absent = expression.strip_prefix("absent(").and_then(|rest| rest.strip_suffix(')'));
        let compared = || {
            let (value, threshold) = expression.rsplit_once([')', '}']).or_fail(place);
            assert!(threshold.trim().starts_with(['>', '<', '=']), "{place}: {threshold}");
            format!("{value})")
        };
        let value = absent.map_or_else(compared, str::to_owned);
        let summary = text(&rule["annotations"]["summary"]);
        let labels = lists(&value, "by (", ")").chain(lists(summary, "$labels.", " "));
        Asked { place: format!("the alert {place}"), labels: owned(labels), expression: value }
    });
    asked.collect()
}

/// The addresses of the programs' metrics, with the ports that they have in pods. The hosts are for
/// this process alone.
fn addresses<const N: usize>(ports: [u16; N]) -> [SocketAddr; N] {
    let mut host = 0x7f80_0000 | (std::process::id() & 0xf_ffff) << 3;
    ports.map(|port| {
        host += 1;
        (Ipv4Addr::from_bits(host), port).into()
    })
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
    let [import_metrics, clone_metrics, upload_metrics, proxy_metrics] =
        addresses([8443, 8443, 8443, 8444]);
    // An import that stalls, a clone whose server stalls, an upload server and a proxy. All of
    // them run until they are dropped.
    let script =
        Script { faults: vec![Fault::StallAt(2 * MIB)], ..Script::new(disk::content(1, 8 * MIB)) };
    let origin = serve(script);
    let mut import = Pod::http(
        &format!("http://{}/disk.img", origin.address()),
        &[("IMPORTER_IMAGE_SIZE", "8Mi")],
    );
    import.set("CDI_WORKERS_TEST_METRICS_ADDR", import_metrics);
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
        .env("CDI_WORKERS_TEST_METRICS_ADDR", &clone_metrics.to_string())
        .block(&volume);
    let _cloner = clone.program().start();
    let upload = UploadPod::new(&beside(BINARY, "cdi-uploadserver"))
        .env("LISTEN_ADDRESS", &upload_metrics.ip().to_string())
        .env("LISTEN_PORT", "8443");
    let _upload_server = upload.start();
    let proxy = UploadProxy::new(&beside(BINARY, "cdi-uploadproxy"))
        .arg("--metrics")
        .arg(&proxy_metrics.to_string());
    let _proxy = proxy.start();

    // Pods as CDI makes them, with and without ports. A sidecar has the address of its pod, and
    // cdi-deployment is for CDI's own ServiceMonitor.
    let pods = [
        format!("default/importer-disk/importer/importer/{}/8443", import_metrics.ip()),
        format!(
            "default/1-source-pod/cdi-clone-source/cdi-clone-source/{}/8443",
            clone_metrics.ip()
        ),
        format!(
            "default/cdi-upload-disk/cdi-upload-server/cdi-upload-server/{}",
            upload_metrics.ip()
        ),
        format!("default/cdi-upload-disk/cdi-upload-server/istio-proxy/{}", upload_metrics.ip()),
        "default/cdi-upload-v6/cdi-upload-server/cdi-upload-server/2001:db8::1".to_owned(),
        format!("cdi/cdi-uploadproxy-1/cdi-uploadproxy/cdi-uploadproxy/{}", proxy_metrics.ip()),
        "cdi/cdi-deployment-1/cdi-deployment/cdi-deployment/127.0.0.1/8443".to_owned(),
    ];
    let (dashboard, rules) = deploy(folder.path(), &pods);
    let [prometheus] = ports::free();
    let _prometheus = Program::new(tools::find("prometheus"))
        .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={prometheus}"))
        .start();
    let instances = |query| {
        let series = ask(prometheus, query).unwrap_or_default();
        let mut all: Vec<_> = series.iter().map(|up| text(&up["instance"]).to_owned()).collect();
        all.sort();
        all
    };
    let mut up = [import_metrics, clone_metrics, upload_metrics, proxy_metrics]
        .map(|a| a.to_string())
        .to_vec();
    up.sort();
    wait::until(
        || format!("{up:?} are not up: {:?}", ask(prometheus, "up")),
        || instances("up == 1") == up,
    );

    let asked: Vec<_> =
        of_the_dashboard(&dashboard).into_iter().chain(of_the_alerts(&rules)).collect();
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
    // By now Prometheus knows all targets, so a pod that is found twice would show.
    up.push("[2001:db8::1]:8443".to_owned());
    wait::until(|| format!("other targets: {:?}", ask(prometheus, "up")), || instances("up") == up);
}

/// A series, its values in a cluster where alerts should fire, and those in a healthy cluster.
const SERIES: [[&str; 3]; 8] = [
    ["cdi_workers_build_info{container='cdi-uploadproxy'}", "_x120", "1x120"],
    ["cdi_transfer_source_bytes_total{program='importer'}", "5x120", "0+9x120"],
    ["cdi_transfer_target_bytes_total{program='importer'}", "5x120", "5x120"],
    ["cdi_transfer_retries_total{program='importer'}", "0+2x120", "0+1x120"],
    ["cdi_uploadproxy_requests_total{outcome='failed'}", "0+1x120", "0x120"],
    ["cdi_uploadserver_state{state='waiting'}", "1x120", "0x120"],
    ["cdi_uploadproxy_limited_requests_total", "0+2x120", "0+1x120"],
    ["cdi_uploadproxy_certificate_expiry_timestamp_seconds", "0x120", "99999x120"],
];

#[test]
#[ignore = "server: prometheus"]
fn every_alert_fires_when_it_should_and_links_to_a_section() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (_, rules) = deploy(folder.path(), &[]);
    let firing = rules
        .iter()
        .map(|rule| json!({"labels": format!("{{alertname={}}}", rule["alert"]), "value": 1}));
    let tests = [(1, firing.collect()), (2, Vec::new())].map(|(column, firing)| {
        let series = SERIES.map(|row| json!({"series": row[0], "values": row[column]}));
        let expression = "count by (alertname) (ALERTS{alertstate='firing'})";
        let expected = json!({"expr": expression, "eval_time": "100m", "exp_samples": firing});
        json!({"interval": "1m", "input_series": series, "promql_expr_test": [expected]})
    });
    let file = folder.path().join("test.json");
    let test = json!({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests});
    std::fs::write(&file, test.to_string()).or_fail("a test");
    tools::run("promtool", ["test", "rules", &file.to_string_lossy()]);

    for rule in rules {
        let url = text(&rule["annotations"]["runbook_url"]);
        let path = url.split("/blob/HEAD/").nth(1).and_then(|path| path.split_once('#'));
        let (page, section) = path.or_fail(url);
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
        let page = std::fs::read_to_string(&page).or_fail(page.display()).to_lowercase();
        assert!(page.contains(&format!("\n## {}\n", section.replace('-', " "))), "{url}");
    }
}
