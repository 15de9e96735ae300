//! Output of `token` and `status` for programs.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;

use crate::upload::{BINARY, NAMESPACE, Scene, api};

#[test]
#[ignore = "server: Kubernetes"]
fn a_token_is_printed_in_forms_for_programs() {
    let scene = Scene::new();
    let target = format!("pvc/{}", scene.claim);
    let url = scene.wire.url();
    let ca = scene.proxy.path("front-ca.crt").to_string_lossy().into_owned();
    let print = |more: &[&str]| {
        let finished = scene.program(&[&["token", &target], more].concat()).run();
        finished.assert_success("a token");
        finished.stdout
    };
    // Without the URL of the proxy.
    let name = print(&["-o", "name"]);
    let token = name.trim_end();
    assert!(token.split('.').count() == 3 && name.lines().count() == 1, "{name}");
    let printed: Value = serde_json::from_str(&print(&["-o", "json"])).or_fail("JSON");
    assert_eq!((&printed["url"], &printed["namespace"]), (&Value::Null, &json!(NAMESPACE)));
    assert_eq!(printed["name"], scene.claim);
    assert!(printed["expires"].as_str().or_fail("a time").ends_with('Z'), "{printed}");
    let printed = print(&["-o", "json", "--uploadproxy-url", &url]);
    let printed: Value = serde_json::from_str(&printed).or_fail("JSON");
    assert_eq!(printed["url"], format!("{}/v1beta1/upload", url.trim_end_matches('/')));
    let refused = scene.program(&["token", &target, "--uploadproxy-url", "https://h/$(a)"]).run();
    refused.assert_failure(2, "is not a host and a path of plain letters");

    // The printed command must work.
    let flags = ["--uploadproxy-url", &url, "--cacert", &ca];
    let all = print(&flags);
    let command = print(&[&flags[..], &["-o", "curl"]].concat());
    assert!(
        command.starts_with("curl --fail-with-body") && command.lines().count() == 1,
        "{command}"
    );
    assert!(all.contains("\n# Valid for five minutes:\ncurl --fail-with-body"), "{all}");
    let content = disk::content(3, 1 << 20);
    let image = scene.image(&content).to_string_lossy().into_owned();
    let curl = Program::new("sh").args(["-c", &command.replace("IMAGE", &image)]).run();
    curl.assert_success(&command);
    scene.upload_server.wait().assert_success("the upload server");
    assert!(std::fs::read(scene.pod.disk()).or_fail("the disk") == content, "the disk differs");
}

/// Returns `kubectl cdi status` with these words.
fn status(words: &[&str]) -> Program {
    Program::new(BINARY)
        .arg("status")
        .args(words.iter().copied())
        .arg("--kubeconfig")
        .arg(api().cluster.administrator())
}

#[test]
#[ignore = "server: Kubernetes"]
fn the_status_is_printed_in_forms_for_programs() {
    let cluster = &api().cluster;
    for space in ["shown-1", "shown-2"] {
        cluster.create_namespace(space);
        cluster.create_data_volume(
            space,
            "disk",
            &json!({"http": {"url": "https://example.org/d"}}),
        );
    }
    let running = json!({
        "phase": "ImportInProgress", "progress": "45.20%",
        "conditions": [
            {"type": "Running", "status": "True", "message": "Pod is running",
             "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        ],
    });
    cluster.set_data_volume_status("shown-2", "disk", &running);
    let finished = status(&["dv/disk", "-n", "shown-2", "-o", "json"]).run();
    finished.assert_success("a status");
    let rows: Value = serde_json::from_str(&finished.stdout).or_fail(&finished.stdout);
    let row = &rows[0];
    assert_eq!((&row["namespace"], &row["target"]), (&json!("shown-2"), &json!("dv/disk")));
    assert_eq!((&row["source"], &row["percent"]), (&json!("http"), &json!(45.2)));
    assert_eq!(row["message"], "Pod is running");
    assert!(
        row["seconds_left"].as_u64().is_some() && row["age_seconds"].as_u64().is_some(),
        "{row}"
    );

    let finished = status(&["-A"]).run();
    finished.assert_success("a status of all");
    let lines: Vec<Vec<&str>> =
        finished.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["NAMESPACE", "NAME", "PHASE"]);
    for (space, phase) in [("shown-1", "Pending"), ("shown-2", "ImportInProgress")] {
        let is_shown = lines.iter().any(|line| line.starts_with(&[space, "dv/disk", phase]));
        assert!(is_shown, "{}", finished.stdout);
    }
    status(&["-A", "-n", "shown-1"]).run().assert_failure(2, "cannot be used with");
    let nobody = cluster.user("nobody-of-all", &[]);
    let words = ["status", "-A", "--kubeconfig"];
    let denied = Program::new(BINARY).args(words).arg(nobody).run();
    denied.assert_failure(7, "you may not list datavolumes.cdi.kubevirt.io in the cluster");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_watched_status_is_printed_at_each_change() {
    let (space, cluster) = ("watched", &api().cluster);
    cluster.create_namespace(space);
    cluster.create_data_volume(space, "disk", &json!({"http": {"url": "https://example.org/d"}}));
    let output = tempfile::NamedTempFile::new().or_fail("a file");
    let path = output.path().to_string_lossy().into_owned();
    let line = format!("exec \"$0\" status -w -o json -n {space} --kubeconfig \"$1\" >{path}");
    let watching =
        Program::new("sh").args(["-c", &line, BINARY]).arg(cluster.administrator()).start();
    let states = || {
        let printed = std::fs::read_to_string(&path).or_fail("the output");
        let complete = printed.lines().filter(|line| line.ends_with(']'));
        complete.map(|line| serde_json::from_str::<Value>(line).or_fail(line)).collect::<Vec<_>>()
    };
    let wait_for = |count: usize| testkit::wait::until(|| count, || states().len() >= count);
    wait_for(1);
    // Nothing may be printed while nothing changes; the cluster is queried every two seconds.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(states().len(), 1);
    cluster.set_data_volume_status(
        space,
        "disk",
        &json!({"phase": "Succeeded", "progress": "100.0%"}),
    );
    wait_for(2);
    watching.signal(Signal::INT);
    watching.wait().assert_failure(130, "stopped by SIGINT");
    let phases: Vec<_> = states().iter().map(|rows| rows[0]["phase"].clone()).collect();
    assert_eq!(phases, ["Pending", "Succeeded"]);
}
