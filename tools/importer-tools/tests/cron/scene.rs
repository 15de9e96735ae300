//! A cluster, a registry, and the pod of a cron job.

use std::sync::OnceLock;

use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::cluster::Cluster;
use testkit::cluster::cdi::CDI_NAMESPACE;
use testkit::cluster::crons::CRON_ACCOUNT;
use testkit::disk;
use testkit::docker_registry::DockerRegistry;
use testkit::fail::OrFail;
use testkit::oci::{Compression, Image};
use testkit::process::{Finished, Program};
use testkit::tools;

/// The poller, without arguments.
pub(crate) fn program() -> Program {
    let binary = env!("CARGO_BIN_EXE_cdi-importer-tools");
    Program::new(binary).named("cdi-source-update-poller")
}

/// Namespace of the DataImportCrons of these tests.
pub(crate) const NAMESPACE: &str = "default";

pub(crate) const DIGEST: &str = "storage.import.sourceDesiredDigest";
pub(crate) const TIME: &str = "storage.import.lastCronTime";

/// The cluster that all tests share. Each test has its own DataImportCron.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::start();
        cluster.install_data_import_crons();
        cluster
    })
}

/// A small image that differs by `seed`.
pub(crate) fn image(seed: u64) -> Image {
    Image::of_disk(&disk::content(seed, 10_000), Compression::Gzip)
}

/// A DataImportCron, and the pod that polls the registry for it.
pub(crate) struct Scene {
    name: &'static str,
    root: TempDir,
}

impl Scene {
    /// A DataImportCron without annotations.
    pub(crate) fn new(name: &'static str) -> Self {
        Self::annotated(name, None)
    }

    pub(crate) fn annotated(name: &'static str, annotations: Option<&serde_json::Value>) -> Self {
        cluster().create_data_import_cron(NAMESPACE, name, annotations);
        let root = tempfile::tempdir().or_fail("a folder");
        Self { name, root }
    }

    /// The poller as the cron job runs it, with only the permissions of its account.
    pub(crate) fn program(&self, url: &str) -> Program {
        std::fs::create_dir_all(self.root.path().join("dev")).or_fail("a folder");
        let kubeconfig = cluster().service_account(CDI_NAMESPACE, CRON_ACCOUNT);
        program()
            .args(["-ns", NAMESPACE, "-cron", self.name, "-url", url])
            .env("KUBECONFIG", kubeconfig)
            .env("CDI_WORKERS_CONTACT_SECONDS", "3")
            .env("CDI_WORKERS_TEST_ROOT", self.root.path())
    }

    /// Like `program`, for a registry without TLS or with a certificate that is not trusted.
    pub(crate) fn insecure(&self, url: &str) -> Program {
        self.program(url).env("INSECURE_TLS", "true")
    }

    /// A folder with the certificate of `authority`.
    pub(crate) fn certificates(&self, authority: &Authority) -> String {
        let folder = self.root.path().join("certs");
        std::fs::create_dir_all(&folder).or_fail("a folder");
        std::fs::write(folder.join("ca.crt"), authority.pem()).or_fail("a certificate");
        folder.display().to_string()
    }

    pub(crate) fn annotation(&self, annotation: &str) -> Option<String> {
        cluster().cron_annotation(NAMESPACE, self.name, annotation)
    }

    /// Asserts that `program` succeeds, and records `digest` and the current time.
    #[track_caller]
    pub(crate) fn assert_finds(&self, program: Program, digest: &str, case: &str) -> Finished {
        let before = now();
        let finished = program.run();
        finished.assert_success(case);
        assert_eq!(self.annotation(DIGEST).as_deref(), Some(digest), "{case}");
        let time = self.annotation(TIME).or_fail(case);
        assert!(before <= time && time <= now(), "{case}: {before} {time}");
        assert!(finished.stdout.contains(&format!("Digest is {digest}\n")), "{}", finished.stdout);
        finished
    }

    /// Asserts that `program` fails with this sentence, and changes nothing.
    #[track_caller]
    pub(crate) fn assert_refused(&self, program: Program, sentence: &str) -> Finished {
        let finished = program.run();
        finished.assert_failure(1, sentence);
        assert_eq!((self.annotation(DIGEST), self.annotation(TIME)), (None, None), "{sentence}");
        finished
    }
}

/// The current time in RFC 3339.
fn now() -> String {
    tools::run("date", ["--utc", "+%Y-%m-%dT%H:%M:%SZ"]).trim().to_owned()
}

/// The digest that skopeo reports; the registry must not require a password.
pub(crate) fn digest(registry: &DockerRegistry, name: &str) -> String {
    let reference = registry.reference(name);
    let words = ["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &reference];
    tools::run("skopeo", words).trim().to_owned()
}
