//! Servers with TLS that lead to one without: refused, unless a given digest verifies the image.

use std::net::SocketAddr;
use std::path::PathBuf;

use datapath::digest::{DigestAlgorithm, RunningDigest};
use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::oci::{Compression, Image};
use testkit::origin::{Origin, Script};
use testkit::ovirt::{self, Contents, DISK_ID, Engine};
use testkit::process::{Finished, Program};

const MIB: u64 = 1 << 20;

/// Part of the error of every refusal.
const REFUSED: &str = "without TLS, where anybody on the path could replace the image";

/// Part of the warning where a digest verifies the image.
const WARNED: &str = "without TLS: only the checksum protects the image";

struct Scene {
    folder: tempfile::TempDir,
    authority: Authority,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let (folder, authority) = (tempfile::tempdir().or_fail("a folder"), Authority::new());
        let authority = authority.or_fail("an authority");
        let certificates = folder.path().join("certs");
        std::fs::create_dir(&certificates).or_fail("a folder");
        std::fs::write(certificates.join("ca.crt"), authority.pem()).or_fail("a certificate");
        Self { folder, authority, content: disk::content(1, MIB) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn checksum(&self) -> String {
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        digest.update(&self.content);
        digest.finish_digest()
    }

    /// A server without TLS that has the image.
    fn plain(&self) -> Origin {
        Origin::start(Script::new(self.content.clone())).or_fail("a server")
    }

    /// A server with TLS that redirects `path` to `target`.
    fn leading(&self, path: &str, target: String) -> Origin {
        let script = Script {
            redirects: [(path.to_owned(), vec![target])].into(),
            ..Script::new(self.content.clone())
        };
        Origin::start_tls(script, self.authority.server_config().or_fail("TLS")).or_fail("a server")
    }

    /// A gateway with TLS.
    fn gateway(&self, upstream: SocketAddr, plan: Plan) -> Gateway {
        let tls = self.authority.server_config().or_fail("TLS");
        Gateway::start_tls(upstream, plan, tls).or_fail("a gateway")
    }

    fn import(&self, source: &str, arguments: &[&str]) -> Finished {
        Program::new(crate::BINARY)
            .args(["import", "--force", "--ca-dir"])
            .arg(self.path("certs"))
            .args(arguments)
            .arg(source)
            .arg(self.path("disk.img"))
            .start()
            .wait()
    }

    /// Asserts that the import is refused without a checksum, before anything is requested from
    /// `plain`, and that it succeeds with one, under a warning.
    #[track_caller]
    fn check(&self, source: &str, plain: &Origin) {
        let finished = self.import(source, &[]);
        finished.assert_failure(3, REFUSED);
        for server in [source, &plain.url("")] {
            let (_, rest) = server.split_once("://").or_fail("a URL");
            let host = rest.split('/').next().unwrap_or_default();
            assert!(finished.stderr.contains(host), "{host}: {}", finished.stderr);
        }
        assert!(plain.requests().is_empty() && !self.path("disk.img").exists());
        let finished = self.import(source, &["--checksum", &self.checksum()]);
        finished.assert_success(source);
        assert_eq!(finished.stderr.matches(WARNED).count(), 1, "{}", finished.stderr);
        let disk = std::fs::read(self.path("disk.img")).or_fail("the disk");
        assert!(disk == self.content, "{source}");
        std::fs::remove_file(self.path("disk.img")).or_fail("remove the disk");
    }
}

#[test]
fn a_redirect_to_plain_http_needs_a_checksum() {
    let scene = Scene::new();
    let plain = scene.plain();
    let direct = scene.leading("/disk", plain.url("/there?secret"));
    scene.check(&direct.url("/disk"), &plain);

    let plain = scene.plain();
    let second = scene.leading("/second", plain.url("/there"));
    let first = scene.leading("/disk", second.url("/second"));
    scene.check(&first.url("/disk"), &plain);
}

#[test]
fn a_redirect_chain_with_a_plain_http_hop_needs_a_checksum_even_if_it_ends_with_tls() {
    let scene = Scene::new();
    let end = scene.leading("/nowhere", String::new());
    let plain = Origin::start(Script {
        redirects: [("/middle".to_owned(), vec![end.url("/disk")])].into(),
        ..Script::new("")
    })
    .or_fail("a server");
    let first = scene.leading("/disk", plain.url("/middle"));
    scene.check(&first.url("/disk"), &plain);
}

#[test]
fn a_resumed_transfer_that_leads_to_plain_http_needs_a_checksum() {
    let scene = Scene::new();
    let (served, plain) = (scene.plain(), scene.plain());
    let faults =
        vec![Fault::Cut(MIB / 2), Fault::Status(302, vec![("location", plain.url("/rest"))])];
    let gateway = scene.gateway(served.address(), Plan::of(faults.clone()));
    let finished = scene.import(&gateway.url("/disk"), &[]);
    finished.assert_failure(3, REFUSED);
    assert!(plain.requests().is_empty() && !scene.path("disk.img").exists());

    let gateway = scene.gateway(served.address(), Plan::of(faults));
    let finished = scene.import(&gateway.url("/disk"), &["--checksum", &scene.checksum()]);
    finished.assert_success("with a checksum");
    assert!(finished.stderr.contains(WARNED), "{}", finished.stderr);
    assert_eq!(plain.requests().len(), 1);
}

#[test]
fn an_import_that_begins_without_tls_has_no_warning() {
    let scene = Scene::new();
    let plain = scene.plain();
    let upgraded = scene.leading("/disk", plain.url("/there"));
    let first = Origin::start(Script {
        redirects: [("/disk".to_owned(), vec![upgraded.url("/disk")])].into(),
        ..Script::new("")
    })
    .or_fail("a server");
    let finished = scene.import(&first.url("/disk"), &[]);
    finished.assert_success("http from the beginning");
    assert!(!finished.stderr.contains("without TLS"), "{}", finished.stderr);
}

/// Runs a pod in the scene's folder. Returns how it ended, and its termination message.
fn pod(scene: &Scene, env: &[(&str, &str)]) -> (Finished, String) {
    let root = scene.path("pod");
    for folder in ["data", "dev"] {
        std::fs::create_dir_all(root.join(folder)).or_fail(folder);
    }
    let ([metrics], certificates) = (testkit::ports::free(), scene.path("certs"));
    let program = Program::new(crate::BINARY)
        .args(["-alsologtostderr", "-v=3"])
        .env("CDI_WORKERS_TEST_ROOT", &root)
        .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
        .env("IMPORTER_CERT_DIR", certificates)
        .env("PREALLOCATION", "false");
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
    let finished = program.start().wait();
    let message = std::fs::read_to_string(root.join("dev/termination-log")).or_fail("a message");
    (finished, message)
}

#[test]
fn the_pod_refuses_too_unless_the_datavolume_has_a_checksum() {
    let scene = Scene::new();
    for source in ["http", "s3"] {
        let plain = scene.plain();
        let direct = scene.leading("/bucket/disk", plain.url("/there"));
        let endpoint = direct.url("/bucket/disk");
        let keys = [
            ("IMPORTER_SOURCE", source),
            ("IMPORTER_ENDPOINT", endpoint.as_str()),
            ("IMPORTER_ACCESS_KEY_ID", "key"),
            ("IMPORTER_SECRET_KEY", "secret"),
        ];
        let (finished, message) = pod(&scene, &keys);
        assert_eq!(finished.code(), 1, "{}", finished.stderr);
        let prefix = format!("Unable to connect to {source} data source: ");
        assert!(message.starts_with(&prefix) && message.contains(REFUSED), "{message}");
        assert!(plain.requests().is_empty());

        let checksum = scene.checksum();
        let checked = [keys.as_slice(), &[("IMPORTER_CHECKSUM", checksum.as_str())]].concat();
        let (finished, _) = pod(&scene, &checked);
        finished.assert_success(source);
        assert!(finished.stderr.contains(WARNED), "{}", finished.stderr);
        for seen in plain.requests() {
            assert_eq!(seen.request.header("authorization"), None, "{seen:?}");
        }
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn blobs_may_come_without_tls_but_the_manifest_of_a_tag_may_not() {
    let scene = Scene::new();
    let images = [Image::of_disk(&scene.content, Compression::Gzip)];
    let registry = DockerRegistry::start_with(Setup::default(), &[("a/b:1", &images)]);
    let behind = |plan| {
        let gateway = scene.gateway(registry.address(), plan);
        let reference = format!("docker://{}/a/b:1", gateway.address());
        (gateway, reference)
    };
    let leading = |what: &str| {
        let location = format!("http://{}/v2/a/b/{what}", registry.address());
        Fault::Status(307, vec![("location", location)])
    };
    let architecture = ["--architecture", "amd64"];

    let (_gateway, tagged) = behind(Plan {
        matching: |request| request.path().contains("/manifests/"),
        ..Plan::of(vec![leading("manifests/1"); 2])
    });
    scene.import(&tagged, &architecture).assert_failure(3, REFUSED);
    // A checksum of the disk does not help, because a manifest decides more than the disk.
    let checksum = scene.checksum();
    let checked = [&architecture[..], &["--checksum", &checksum]].concat();
    scene.import(&tagged, &checked).assert_failure(3, REFUSED);

    let blobs = blobs_of(&registry);
    let (_gateway, verified) = behind(Plan {
        matching: |request| request.path().contains("/blobs/"),
        ..Plan::of(blobs.iter().map(|digest| leading(&format!("blobs/{digest}"))).collect())
    });
    let finished = scene.import(&verified, &architecture);
    finished.assert_success("blobs have a digest");
    assert!(finished.stderr.contains(WARNED), "{}", finished.stderr);
}

/// Digests of the configuration and the layer of the image, in the order in which they are read.
fn blobs_of(registry: &DockerRegistry) -> Vec<String> {
    let arguments = ["inspect", "--raw", "--tls-verify=false", &registry.reference("a/b:1")];
    let manifest = testkit::tools::run("skopeo", arguments);
    let manifest: serde_json::Value = serde_json::from_str(&manifest).or_fail("a manifest");
    let digests = [&manifest["config"]["digest"], &manifest["layers"][0]["digest"]];
    digests.map(|digest| digest.as_str().or_fail("a digest").to_owned()).into()
}

#[test]
fn an_engine_with_tls_cannot_name_an_image_server_without_tls() {
    let scene = Scene::new();
    let plain = scene.plain();
    let ticket = "11111111-2222-3333-4444-555555555555";
    let transfer = format!(
        "<image_transfer id=\"t\"><phase>transferring</phase><transfer_url>{}</transfer_url></image_transfer>",
        plain.url(&format!("/images/{ticket}"))
    );
    let script = ovirt::Script {
        documents: [("POST /ovirt-engine/api/imagetransfers".to_owned(), transfer.into())].into(),
        ..ovirt::Script::new(Contents { raw: scene.content.clone().into(), ..Contents::default() })
    };
    let engine = Engine::start_tls(script, scene.authority.server_config().or_fail("TLS"));
    std::fs::write(scene.path("password"), ovirt::PASSWORD).or_fail("a password");
    let password = scene.path("password").display().to_string();
    let arguments = ["--user", ovirt::USER, "--password-file", &password];
    let source = format!("ovirt+{}/disks/{DISK_ID}", engine.api_url());
    let finished = scene.import(&source, &arguments);
    finished.assert_failure(3, REFUSED);
    assert!(!finished.stderr.contains(ticket), "a ticket opens the disk: {}", finished.stderr);
    assert!(plain.requests().is_empty() && engine.is_logged_out());

    let checksum = scene.checksum();
    let checked = [&arguments[..], &["--checksum", &checksum]].concat();
    let finished = scene.import(&source, &checked);
    finished.assert_success("with a checksum");
    assert!(finished.stderr.contains(WARNED), "{}", finished.stderr);
}
