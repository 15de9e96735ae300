//! What a shell and kubectl complete, by the real program and a real API server.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use testkit::fail::OrFail;
use testkit::process::Program;

use crate::upload::{BINARY, PATIENCE, api};

const SPACE: &str = "completed";

/// The volumes whose names are completed.
fn volumes() {
    let cluster = &api().cluster;
    cluster.create_namespace(SPACE);
    cluster.create_data_volume(SPACE, "fedora", &json!({"upload": {}}));
    cluster.create_upload_pvc(SPACE, "disk1", &[]);
}

/// What bash completes on a line that readline has broken into these words.
fn in_bash(words: &[&str]) -> Vec<String> {
    let script = "\
        source <(kubectl-cdi completions bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
        complete -p kubectl-cdi | grep -q _kubectl_cdi && _kubectl_cdi kubectl-cdi; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let folder = Path::new(BINARY).parent().or_fail("a folder");
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let finished = Program::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words.iter().copied())
        .env("PATH", path)
        .env("KUBECONFIG", api().cluster.administrator())
        .timeout(PATIENCE)
        .run();
    finished.assert_success("bash");
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_and_kubectl_complete_the_names_of_volumes() {
    volumes();
    let all = ["dv/fedora", "pvc/disk1"];
    assert_eq!(in_bash(&["kubectl-cdi", "status", "-n", SPACE, ""]), all);
    // bash breaks words at : and =.
    let url = ["https", ":", "//example.org/a"];
    let line = [&["kubectl-cdi", "import", "--namespace", "=", SPACE][..], &url, &["dv/"]].concat();
    assert_eq!(in_bash(&line), ["dv/fedora"]);
    assert_eq!(in_bash(&["kubectl-cdi", "upload", "a.raw", "--dry-run", "="]), ["client"]);
    assert_eq!(in_bash(&["kubectl-cdi", "st"]), ["status"]);

    // kubectl runs a program of this name with the words behind `kubectl cdi`.
    let folder = tempfile::tempdir().or_fail("a folder");
    let for_kubectl = folder.path().join("kubectl_complete-cdi");
    symlink(BINARY, &for_kubectl).or_fail("a link");
    let ask = |words: &[&str]| {
        let program = Program::new(&for_kubectl).args(words.iter().copied());
        let finished = program.env("KUBECONFIG", api().cluster.administrator()).run();
        finished.assert_success("a completion");
        assert_eq!(finished.stderr, "");
        finished.stdout
    };
    assert_eq!(ask(&["token", "-n", SPACE, ""]), "dv/fedora\npvc/disk1\n:4\n");
    assert_eq!(ask(&["upload", "./"]), ":0\n");
    assert_eq!(ask(&["status", "-n", "nowhere", ""]), ":4\n");
    assert!(ask(&["up"]).starts_with("upload\tSend an image from here\n"));
}

#[test]
fn without_a_cluster_a_completion_is_silent() {
    let asked = Program::new(BINARY).args(["complete", "status", "--kubeconfig", "/nowhere", ""]).run();
    asked.assert_success("a completion");
    assert_eq!((asked.stdout.as_str(), asked.stderr.as_str()), (":4\n", ""));
}
