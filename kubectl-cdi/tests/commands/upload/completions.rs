//! Completions by a shell and by kubectl, with the real program and a real API server.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::shells::{Shell, assert_completion};

use crate::upload::{BINARY, api};

const SPACE: &str = "completed";

/// Creates the volumes whose names are completed.
fn volumes() {
    let cluster = &api().cluster;
    cluster.create_namespace(SPACE);
    cluster.create_data_volume(SPACE, "fedora", &json!({"upload": {}}));
    cluster.create_upload_pvc(SPACE, "disk1", &[]);
}

#[test]
#[ignore = "server: Kubernetes, fish, zsh"]
fn shells_and_kubectl_complete_the_names_of_volumes() {
    volumes();
    let administrator = api().cluster.administrator();
    let config = administrator.to_str().or_fail("a path of ASCII");
    let url = "https://example.org/a";
    for (words, expected) in [
        (&["status", "--kubeconfig", config, "-n", SPACE, ""][..], &["dv/fedora", "pvc/disk1"][..]),
        (&["upload", "--kubeconfig", config, "-n", SPACE, "a.raw", "pv"], &["pvc/disk1"]),
        (&["token", "--kubeconfig", config, "-n", SPACE, "dv/"], &["dv/fedora"]),
        (&["import", "--kubeconfig", config, "--namespace=completed", url, "dv/"], &["dv/fedora"]),
        (&["st"], &["status"]),
        (&["upload", "--dr"], &["--dry-run"]),
        (&["upload", "a.raw", "--dry-run", ""], &["client", "server"]),
        (&["upload", "Cargo"], &["Cargo.toml"]),
    ] {
        assert_completion(BINARY, words, expected);
    }
    // Readline completes what follows the equals sign.
    assert_eq!(
        Shell::Bash.candidates(Path::new(BINARY), &["upload", "a.raw", "--dry-run="]),
        ["client", "server"]
    );

    // kubectl runs a program of this name with the words after `kubectl cdi`.
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
    assert!(ask(&["up"]).starts_with("upload\tUpload an image from this machine\n"));
}

#[test]
fn without_a_cluster_a_completion_is_silent() {
    let asked =
        Program::new(BINARY).args(["complete", "status", "--kubeconfig", "/nowhere", ""]).run();
    asked.assert_success("a completion");
    assert_eq!((asked.stdout.as_str(), asked.stderr.as_str()), (":4\n", ""));
}
