//! Failures that users meet, with the real program: the exit code, the message, and that nothing
//! is left behind.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::cluster::Cluster;
use testkit::cluster::users::Right;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};

use crate::upload::{BINARY, api};

const DATA_VOLUMES: &str = "datavolumes.cdi.kubevirt.io";
const CLAIMS: &str = "persistentvolumeclaims";
const TOKENS: &str = "uploadtokenrequests.upload.cdi.kubevirt.io";

/// All rights that an upload to a new volume needs.
const ALL: [(&str, &[&str]); 3] = [
    (DATA_VOLUMES, &["get", "list", "create", "delete"]),
    (CLAIMS, &["get", "list", "create", "delete"]),
    (TOKENS, &["create"]),
];

/// A user with a namespace of their own.
struct Person {
    cluster: &'static Cluster,
    kubeconfig: PathBuf,
    space: String,
    folder: TempDir,
}

impl Person {
    fn administrator(space: &str) -> Self {
        let cluster = &api().cluster;
        Self::new(cluster, space, cluster.administrator())
    }

    /// Creates a user with the rights [`ALL`] except these verbs.
    fn without(space: &str, missing: &[(&str, &str)]) -> Self {
        let is_left = |name: &str, verb: &&str| !missing.contains(&(*verb, name));
        let rights = ALL.iter().map(|(name, verbs)| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            let verbs: Vec<_> = verbs.iter().copied().filter(|verb| is_left(name, verb)).collect();
            (group, resource, verbs)
        });
        let rights: Vec<_> = rights.filter(|(.., verbs)| !verbs.is_empty()).collect();
        let rights: Vec<Right<'_>> = rights
            .iter()
            .map(|(group, resource, verbs)| (*group, *resource, verbs.as_slice()))
            .collect();
        let cluster = &api().cluster;
        Self::new(cluster, space, cluster.user(space, &rights))
    }

    fn new(cluster: &'static Cluster, space: &str, kubeconfig: PathBuf) -> Self {
        cluster.create_namespace(space);
        let folder = tempfile::tempdir().or_fail("a folder");
        std::fs::write(folder.path().join("image"), disk::content(1, 1 << 20)).or_fail("an image");
        Self { cluster, kubeconfig, space: space.to_owned(), folder }
    }

    /// Returns a command, in which `IMAGE` stands for a file, and `PROXY` for a proxy that is not
    /// contacted.
    fn program(&self, line: &str) -> Program {
        let image = self.folder.path().join("image");
        let words = line.split(' ').map(|word| match word {
            "IMAGE" => image.clone().into_os_string(),
            "PROXY" => "--uploadproxy-url=https://localhost:1".into(),
            word => word.into(),
        });
        Program::new(BINARY)
            .args(words)
            .args(["--namespace", &self.space, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
    }

    /// Runs a command that must fail and leave the volumes unchanged.
    #[track_caller]
    fn fails(&self, line: &str, code: i32, sentence: &str) -> Finished {
        let before = self.volumes();
        let finished = self.program(line).run();
        let ledgers = std::fs::read_dir(self.folder.path().join("state/kubectl-cdi"));
        assert_eq!(ledgers.map_or(0, Iterator::count), 0, "{line}: a ledger remains");
        self.failed(&finished, code, sentence, &before);
        finished
    }

    #[track_caller]
    fn failed(&self, finished: &Finished, code: i32, sentence: &str, before: &[String]) {
        finished.assert_failure(code, sentence);
        assert_eq!(self.volumes(), before, "left behind: {}", finished.stderr);
    }

    /// Returns the DataVolumes and claims that are not being deleted.
    fn volumes(&self) -> Vec<String> {
        let space = &self.space;
        let mut names = Vec::new();
        for (kind, path) in [
            ("dv", format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{space}/datavolumes")),
            ("pvc", format!("/api/v1/namespaces/{space}/persistentvolumeclaims")),
        ] {
            let list = self.cluster.get(&path);
            let objects = list["items"].as_array().or_fail("a list").iter();
            let stays = |object: &&Value| object["metadata"]["deletionTimestamp"].is_null();
            names.extend(objects.filter(stays).map(|object| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                format!("{kind}/{name}")
            }));
        }
        names
    }

    /// Creates a claim that is ready for an upload.
    fn ready_claim(&self, name: &str) {
        let ready = [("storage.pod.ready", "true")];
        self.cluster.create_upload_pvc(&self.space, name, &ready);
    }
}

/// Returns the URL of a proxy that does not run.
fn nowhere() -> String {
    let [nobody] = testkit::ports::free();
    format!("https://{nobody}")
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_missing_right_is_named() {
    let upload_into_ready =
        format!("upload IMAGE pvc/ready --no-create --uploadproxy-url {}", nowhere());
    for (number, (verb, resource, lines)) in [
        (
            "create",
            DATA_VOLUMES,
            &["upload IMAGE PROXY dv/disk", "import https://example.org/a dv/disk --size 1Gi"][..],
        ),
        (
            "get",
            DATA_VOLUMES,
            // The first one creates the DataVolume, and deletes it again.
            &[
                "upload IMAGE PROXY dv/disk",
                "upload IMAGE PROXY dv/disk --no-create",
                "status dv/disk",
            ],
        ),
        ("list", DATA_VOLUMES, &["status"]),
        ("create", CLAIMS, &["upload IMAGE PROXY pvc/disk"]),
        (
            "get",
            CLAIMS,
            &[
                "upload IMAGE PROXY pvc/disk --no-create",
                "upload IMAGE PROXY dv/disk",
                "status pvc/disk",
            ],
        ),
        ("list", CLAIMS, &["status"]),
        ("create", TOKENS, &["token pvc/ready", &upload_into_ready]),
    ]
    .into_iter()
    .enumerate()
    {
        let person = Person::without(&format!("right-{number}"), &[(verb, resource)]);
        person.ready_claim("ready");
        for line in lines {
            let space = &person.space;
            let sentence = format!(
                "you may not {verb} {resource} in namespace {space}: ask an administrator for a role with the verb \"{verb}\" on it"
            );
            person.fails(line, 7, &sentence);
        }
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_volume_that_may_not_be_deleted_again_is_reported() {
    let person = Person::without("undeletable", &[("get", DATA_VOLUMES), ("delete", DATA_VOLUMES)]);
    let finished = person.program("upload IMAGE PROXY dv/disk").run();
    finished
        .assert_failure(7, "you may not get datavolumes.cdi.kubevirt.io in namespace undeletable");
    let stays = "dv/disk, which was created for this upload, is still there: you may not delete datavolumes.cdi.kubevirt.io";
    assert!(finished.stderr.contains(stays), "{}", finished.stderr);
    assert_eq!(person.volumes(), ["dv/disk"]);
}

#[test]
#[ignore = "server: Kubernetes"]
fn everything_works_without_rights_on_pods_and_events() {
    let person = Person::without("no-pods", &[]);
    person.ready_claim("ready");
    let finished = person.program("status").run();
    finished.assert_success("the status");
    assert!(finished.stdout.contains("pvc/ready  Running"), "{}", finished.stdout);
    person
        .program("token pvc/ready")
        .run()
        .assert_failure(7, "an external address of its upload proxy");
    // Nobody tells what the pod waits for.
    person.cluster.create_upload_pvc(&person.space, "waiting", &[]);
    person.cluster.bind_pvc(&person.space, "waiting", "1Gi");
    let line = "upload IMAGE PROXY pvc/waiting --no-create --timeout 1s";
    person.fails(line, 7, "pvc/waiting is not ready after 1 s: waiting for CDI to start the pod");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_cluster_without_cdi_is_recognised() {
    let bare: &'static Cluster = Box::leak(Box::new(Cluster::start()));
    let rightless = bare.user("rightless", &[("", CLAIMS, &["get", "list", "create"])]);
    let lines = [
        "upload IMAGE PROXY dv/disk",
        "upload IMAGE PROXY pvc/disk",
        "import https://example.org/a dv/disk --size 1Gi",
        "status",
        "token pvc/disk",
    ];
    for kubeconfig in [bare.administrator(), rightless.clone()] {
        let person = Person::new(bare, "bare", kubeconfig);
        for line in lines {
            let finished = person.program(line).run();
            finished.assert_failure(
                7,
                "CDI is not installed in this cluster: install it, or choose another cluster with --context",
            );
        }
        let claims = bare.get("/api/v1/namespaces/bare/persistentvolumeclaims");
        assert_eq!(claims["items"], json!([]));
    }
    // With CDI, whose configuration only the administrator may read here.
    bare.install_data_volumes();
    let person = Person::new(bare, "bare", rightless);
    let sentence =
        "you may not get cdiconfigs.cdi.kubevirt.io in the cluster: ask an administrator";
    person.fails("upload IMAGE PROXY pvc/disk", 7, sentence);
    // With an API of tokens that does not run.
    drop(bare.serve_upload_tokens());
    let person = Person::new(bare, "bare", bare.administrator());
    person.fails("token pvc/disk", 7, "cannot answer now: ");
}

#[test]
#[ignore = "server: Kubernetes"]
fn an_exceeded_quota_is_reported_in_the_words_of_the_cluster() {
    let person = Person::administrator("quota");
    let quotas = "/api/v1/namespaces/quota/resourcequotas";
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.storage": "512Mi"}},
    });
    let made = person.cluster.create(quotas, &quota);
    // The controller of quotas does this after it has counted.
    let status =
        json!({"status": {"hard": made["spec"]["hard"], "used": {"requests.storage": "0"}}});
    person.cluster.patch(&format!("{quotas}/small/status"), &status);
    // A new quota takes effect in the API server after a moment.
    let line =
        |number| format!("import https://example.org/a pvc/early-{number} --size 1Gi --no-wait");
    (0..1000).find(|number| person.program(&line(*number)).run().code() != 0);
    let words = "requested: requests.storage=1Gi, used: requests.storage=0, limited: requests.storage=512Mi; request less with --size";
    let object = "persistentvolumeclaims \"disk\" is forbidden: exceeded quota: small";
    let words = format!("the quota of the namespace is exceeded: {object}, {words}");
    person.fails("upload IMAGE PROXY pvc/disk --size 1Gi", 5, &words);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_quota_that_cdi_exceeds_ends_the_wait() {
    let person = Person::administrator("quota-of-cdi");
    let running = person.program("upload IMAGE PROXY dv/disk --progress plain").start();
    running.wait_for_line("waiting for CDI to create the claim");
    let full = json!({"conditions": [
        {"type": "Bound", "status": "Unknown", "reason": "ErrExceededQuota", "message": "exceeded quota: small"},
    ]});
    person.cluster.set_data_volume_status(&person.space, "disk", &full);
    let finished = running.wait();
    person.failed(
        &finished,
        5,
        "the quota of the namespace is exceeded: exceeded quota: small",
        &[],
    );
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_volume_is_deleted_if_the_proxy_is_not_reached() {
    let person = Person::administrator("unreachable");
    person.ready_claim("disk");
    let url = nowhere();
    let line = format!("upload IMAGE dv/disk --uploadproxy-url {url} --timeout 2s");
    let sentence = format!("the upload proxy at {url} was not reached for 2 s: ");
    let finished = person.fails(&line, 7, &sentence);
    let removed = "dv/disk, which was created for this upload, was deleted";
    assert!(finished.stderr.contains(removed), "{}", finished.stderr);
}
