//! `images try` by the real program, with a real API server. A stand-in acts as CDI's controller
//! and as the node; it runs the real importer in all pods.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::cluster::Cluster;
use testkit::cluster::imports::{IMPORTER_IMAGE, ImportScript, ImportSite};
use testkit::cluster::users::Right;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::upload_proxy::beside;
use testkit::wait;

use crate::BINARY;
use crate::upload::api;

/// The image of our importer, and the beginning of the sentence about a failure of it.
const OURS: &str = "registry.example/cdi-workers/cdi-importer:0.1.0";

/// A namespace in which an image can be imported.
struct Scene {
    namespace: String,
    origin: Origin,
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("try{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster().create_namespace(&namespace);
        let mut script = Script::new(disk::sparse_content(31, 8 << 20, 2));
        script.expires.insert("/image/gone".to_owned(), (0, 404));
        let origin = Origin::start(script).or_fail("an HTTP server");
        Self { namespace, origin, folder: tempfile::tempdir().or_fail("a folder") }
    }

    fn site(&self, script: ImportScript) -> ImportSite {
        ImportSite::start(cluster(), &self.namespace, &beside(BINARY, "cdi-importer"), script)
    }

    fn program(&self) -> Program {
        self.program_as(cluster().administrator())
    }

    fn program_as(&self, kubeconfig: std::path::PathBuf) -> Program {
        Program::new(BINARY)
            .args(["images", "try", &self.origin.url("/image"), "--image", OURS, "-o", "json"])
            .args(["--namespace", &self.namespace, "--timeout", "1m", "--kubeconfig"])
            .arg(kubeconfig)
            .env("XDG_STATE_HOME", self.folder.path())
    }

    /// Runs a trial, and checks that nothing is left of it.
    fn run(&self, script: ImportScript) -> Finished {
        let site = self.site(script);
        let finished = self.program().start().wait();
        assert_gone(&site, &[]);
        finished
    }
}

fn cluster() -> &'static Cluster {
    &api().cluster
}

/// Returns the names of all objects that a trial makes.
fn names(site: &ImportSite) -> Vec<String> {
    let plurals = ["datavolumes", "persistentvolumeclaims", "pods"];
    plurals.into_iter().flat_map(|plural| site.names(plural)).collect()
}

/// Checks that only these objects are left, once they were deleted.
#[track_caller]
fn assert_gone(site: &ImportSite, kept: &[&str]) {
    wait::until(|| names(site).join(", "), || names(site) == kept);
}

fn report(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).or_fail(&finished.stderr)
}

#[test]
#[ignore = "server: Kubernetes"]
fn both_imports_are_compared_and_removed() {
    let finished = Scene::new().run(ImportScript::default());
    finished.assert_success("a trial");
    let report = report(&finished);
    assert_eq!(report["equal"], true, "{report}");
    let cost = |image: &str, seconds: u64, scratch: Value| {
        json!({"image": image, "seconds": seconds, "restarts": 0, "killed_for_memory": false, "scratch": scratch,
               "cpu_seconds": null, "memory_bytes": null, "error": null})
    };
    assert_eq!(report["theirs"], cost(IMPORTER_IMAGE, 63, json!("2Gi")));
    assert_eq!(report["ours"], cost(OURS, 8, Value::Null));
    for step in ["CDI imports http://", "imports the same", "the disks are compared"] {
        assert!(finished.stderr.contains(step), "{step}: {}", finished.stderr);
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn disks_that_differ_are_reported_with_the_first_offset() {
    let script = ImportScript { damaged: Some(5_000_001), ..ImportScript::default() };
    let finished = Scene::new().run(script);
    finished.assert_failure(4, "the disks differ at byte 5000001");
    assert_eq!(report(&finished)["first_difference"], 5_000_001);
}

#[test]
#[ignore = "server: Kubernetes"]
fn the_failure_of_either_import_is_reported_by_its_pod() {
    for (failing, image, other) in
        [("importer-", IMPORTER_IMAGE, "ours"), ("-ours", OURS, "theirs")]
    {
        let script = ImportScript { failing: Some(failing), ..ImportScript::default() };
        let finished = Scene::new().run(script);
        let sentence =
            format!("the import with {image} failed: Unable to connect to http data source: ");
        finished.assert_failure(3, &sentence);
        assert!(finished.stderr.contains("got 404"), "{}", finished.stderr);
        let report = report(&finished);
        assert_eq!((&report["equal"], &report[other]["error"]), (&Value::Null, &Value::Null));
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_trial_that_was_killed_is_removed_by_the_next_one() {
    let scene = Scene::new();
    let mark = |owner: &str| json!({"kubectl-cdi/try-owner": owner});
    for (name, labels, annotations) in [
        ("try-others", json!({"kubectl-cdi/try": "try-others"}), mark("somebody")),
        ("try-unlabelled", json!({"app": "mine"}), json!({})),
    ] {
        cluster().create(
            &format!("/api/v1/namespaces/{}/persistentvolumeclaims", scene.namespace),
            &json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "labels": labels, "annotations": annotations},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }),
        );
    }
    let kept = ["try-others", "try-unlabelled"];
    let held = |held| ImportScript { held: Some(held), ..ImportScript::default() };
    for (end, signal) in [("-ours", Signal::KILL), ("-compare", Signal::INT)] {
        let site = scene.site(held(end));
        let running = scene.program().start();
        wait::until(
            || format!("{}: {}", names(&site).join(", "), running.stderr_so_far()),
            || site.names("pods").iter().any(|name| name.ends_with(end)),
        );
        if signal == Signal::KILL {
            let second = scene.program().start().wait();
            second.assert_failure(7, "another `kubectl cdi images try` is running");
        }
        running.signal(signal);
        let finished = running.wait();
        if signal == Signal::INT {
            finished.assert_failure(130, "stopped by SIGINT");
            assert_gone(&site, &kept);
        } else {
            assert!(names(&site).len() > kept.len(), "nothing to remove");
        }
    }
    let site = scene.site(ImportScript::default());
    scene.program().start().wait().assert_success("the next trial");
    assert_gone(&site, &kept);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_missing_right_is_named_before_anything_is_created() {
    let scene = Scene::new();
    let site = scene.site(ImportScript::default());
    let all = ["create", "delete", "get", "list"];
    let rights: [Right<'_>; 3] = [
        ("cdi.kubevirt.io", "datavolumes", &all),
        ("", "persistentvolumeclaims", &all),
        ("", "pods", &all),
    ];
    for (number, (missing, sentence)) in [
        ("datavolumes", "you may not create datavolumes.cdi.kubevirt.io in namespace"),
        ("persistentvolumeclaims", "you may not create persistentvolumeclaims in namespace"),
        ("pods", "you may not create pods in namespace"),
    ]
    .into_iter()
    .enumerate()
    {
        let rights: Vec<_> =
            rights.into_iter().filter(|(_, resource, _)| *resource != missing).collect();
        let user = cluster().user(&format!("{}-{number}", scene.namespace), &rights);
        scene.program_as(user).start().wait().assert_failure(7, sentence);
        assert_gone(&site, &[]);
    }
    let user = cluster().user(&format!("{}-all", scene.namespace), &rights);
    scene.program_as(user).start().wait().assert_success("with the documented rights");
    assert_gone(&site, &[]);
}
