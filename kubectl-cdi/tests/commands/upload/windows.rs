//! The program for Windows under Wine, started by `ci/windows`. Wine shows the root of this machine
//! as drive Z.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;

use crate::upload::{BINARY, Scene, api};

const MIB: u64 = 1 << 20;

/// Returns the path as Windows names it.
fn on_drive(path: &Path) -> String {
    format!("Z:{}", path.display()).replace('/', r"\")
}

fn run(words: &[&str]) -> testkit::process::Finished {
    Program::new(BINARY).args(words.iter().copied()).run()
}

#[test]
#[ignore = "wine: ci/windows runs this"]
fn an_upload_is_stopped_by_ctrl_c_and_resumed() {
    let scene = Scene::new();
    let content = disk::sparse_content(21, 128 * MIB, 4);
    let path = scene.folder.path().join("my disk.raw");
    fs::write(&path, &content).or_fail("an image");
    let image = on_drive(&path);
    let running = scene.upload(Path::new(&image)).start();
    scene.wait_until_sent(8 * MIB);
    running.signal(Signal::INT);
    let command = format!("kubectl cdi upload \"{image}\" pvc/{}", scene.claim);
    running.wait().assert_failure(130, &command);
    let running = scene.upload(Path::new(&image)).start();
    let [sent, stream] = scene.finish_counting(running, &content);
    // The second process sends only what was missing.
    assert!(sent < stream + 16 * MIB, "{sent} for {stream}");
}

#[test]
#[ignore = "wine: ci/windows runs this"]
fn a_drive_letter_is_not_a_scheme() {
    let missing = r"C:\no such\disk.raw";
    let finished = run(&["upload", missing, "dv/a", "--dry-run=client"]);
    finished.assert_failure(3, &format!("cannot read {missing}: "));
    assert!(finished.stderr.contains("; check the path"), "{}", finished.stderr);
    let finished = run(&["import", missing, "dv/a", "--dry-run=client"]);
    finished.assert_failure(2, "or `kubectl cdi upload` for a file");
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = folder.path().join("a disk.raw");
    fs::write(&path, disk::content(1, 3 * MIB)).or_fail("an image");
    let words = ["upload", &on_drive(&path), "dv/a", "--dry-run=client", "-o", "json"];
    let finished = run(&[&words[..], &["--volume-mode", "Block"]].concat());
    finished.assert_success("a dry run");
    let shown: Value = serde_json::from_str(&finished.stdout).or_fail(&finished.stdout);
    assert_eq!(shown["spec"]["storage"]["resources"]["requests"]["storage"], "3Mi");
}

#[test]
#[ignore = "wine: ci/windows runs this"]
fn the_kubeconfig_in_the_profile_is_used() {
    let profile = std::env::var_os("CDI_TEST_PROFILE").or_fail("ci/windows sets CDI_TEST_PROFILE");
    let folder = PathBuf::from(profile).join(".kube");
    fs::create_dir_all(&folder).or_fail("a folder");
    let cluster = &api().cluster;
    // Paths without a drive are on the drive of the kubeconfig.
    let config = fs::read_to_string(cluster.administrator()).or_fail("a kubeconfig");
    let place = cluster.administrator().parent().or_fail("a folder").display().to_string();
    let config = config.replace(&place, &format!("Z:{place}"));
    fs::write(folder.join("config"), config).or_fail("a kubeconfig");
    cluster.create_namespace("profile");
    let source = json!({"http": {"url": "https://example.org/d"}});
    cluster.create_data_volume("profile", "disk", &source);
    let finished = run(&["status", "-n", "profile", "-o", "json"]);
    finished.assert_success("a status");
    let rows: Value = serde_json::from_str(&finished.stdout).or_fail(&finished.stdout);
    assert_eq!(rows[0]["target"], "dv/disk");
    let finished = run(&["complete", "status", "-n", "profile", ""]);
    finished.assert_success("a completion");
    assert_eq!(finished.stdout, "dv/disk\n:4\n");
    let finished = run(&["completions", "powershell"]);
    finished.assert_success("completions");
    assert!(finished.stdout.contains("Register-ArgumentCompleter"), "{}", finished.stdout);
}
