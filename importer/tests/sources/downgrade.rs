//! Servers with TLS that lead to one without: refused, unless a given digest verifies the image.

use std::net::SocketAddr;

use stream::digest::{DigestAlgorithm, RunningDigest};
use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::oci::{Compression, Image};
use testkit::origin::{Origin, Script};
use testkit::ovirt::{self, Contents, DISK_ID, Engine};
use testkit::process::Program;

use crate::place::{MIB, Place, SOURCE_FAILED};
use crate::pod::Pod;

/// Part of the error of every refusal.
const REFUSED: &str = "without TLS, where anybody on the path could replace the image";

/// Part of the warning where a digest verifies the image.
const WARNED: &str = "without TLS: only the checksum protects the image";

struct Scene {
    place: Place,
    authority: Authority,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new().or_fail("an authority");
        Self { place: Place::new(), authority, content: disk::content(1, MIB) }
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

    /// A server that redirects `path` to `target`, and has the image elsewhere.
    fn redirecting(&self, path: &str, target: String) -> Script {
        let redirects = [(path.to_owned(), vec![target])].into();
        Script { redirects, ..Script::new(self.content.clone()) }
    }

    /// The same with TLS.
    fn leading(&self, path: &str, target: String) -> Origin {
        let tls = self.authority.server_config().or_fail("TLS");
        Origin::start_tls(self.redirecting(path, target), tls).or_fail("a server")
    }

    /// A gateway with TLS.
    fn gateway(&self, upstream: SocketAddr, plan: Plan) -> Gateway {
        let tls = self.authority.server_config().or_fail("TLS");
        Gateway::start_tls(upstream, plan, tls).or_fail("a gateway")
    }

    fn import(&self, source: &str) -> Program {
        self.place.import(source).args(self.place.trusting(&self.authority))
    }

    fn checked(&self, source: &str) -> Program {
        self.import(source).args(["--checksum", &self.checksum()])
    }

    #[track_caller]
    fn assert_warned(&self, program: Program) {
        let finished = self.place.assert_imports(program, &self.content, "with a digest");
        assert_eq!(finished.stderr.matches(WARNED).count(), 1, "{}", finished.stderr);
    }

    /// Asserts that the import is refused without a checksum, before anything is requested from
    /// `plain`, and that it succeeds with one, under a warning.
    #[track_caller]
    fn check(&self, source: &str, plain: &Origin) {
        let finished = self.place.assert_refused(self.import(source), SOURCE_FAILED, REFUSED);
        for server in [source, &plain.url("")] {
            let (_, rest) = server.split_once("://").or_fail("a URL");
            let host = rest.split('/').next().unwrap_or_default();
            assert!(finished.stderr.contains(host), "{host}: {}", finished.stderr);
        }
        assert!(plain.requests().is_empty());
        self.assert_warned(self.checked(source));
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

    // One hop without TLS suffices, even if the last one has it again.
    let end = scene.leading("/nowhere", String::new());
    let plain = Origin::start(scene.redirecting("/middle", end.url("/disk"))).or_fail("a server");
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
    let import = scene.import(&gateway.url("/disk"));
    scene.place.assert_refused(import, SOURCE_FAILED, REFUSED);
    assert!(plain.requests().is_empty());

    let gateway = scene.gateway(served.address(), Plan::of(faults));
    scene.assert_warned(scene.checked(&gateway.url("/disk")));
    assert_eq!(plain.requests().len(), 1);
}

#[test]
fn an_import_that_begins_without_tls_has_no_warning() {
    let scene = Scene::new();
    let plain = scene.plain();
    let upgraded = scene.leading("/disk", plain.url("/there"));
    let first = scene.redirecting("/disk", upgraded.url("/disk"));
    let first = Origin::start(first).or_fail("a server");
    let import = scene.import(&first.url("/disk"));
    let finished = scene.place.assert_imports(import, &scene.content, "http from the beginning");
    assert!(!finished.stderr.contains("without TLS"), "{}", finished.stderr);
}

#[test]
fn the_pod_refuses_too_unless_the_datavolume_has_a_checksum() {
    let scene = Scene::new();
    let [_, certificates] = scene.place.trusting(&scene.authority);
    for source in ["http", "s3"] {
        let plain = scene.plain();
        let direct = scene.leading("/bucket/disk", plain.url("/there"));
        let mut pod = Pod::new(&[
            ("IMPORTER_SOURCE", source),
            ("IMPORTER_ENDPOINT", &direct.url("/bucket/disk")),
            ("IMPORTER_ACCESS_KEY_ID", "key"),
            ("IMPORTER_SECRET_KEY", "secret"),
            ("IMPORTER_CERT_DIR", &certificates),
        ]);
        assert_eq!(pod.run().code(), 1);
        let message = pod.message().or_fail("a message");
        let prefix = format!("Unable to connect to {source} data source: ");
        assert!(message.starts_with(&prefix) && message.contains(REFUSED), "{message}");
        assert!(plain.requests().is_empty());

        pod.set("IMPORTER_CHECKSUM", scene.checksum());
        let finished = pod.run();
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
    let amd64 = ["--architecture", "amd64"];

    let (_gateway, tagged) = behind(Plan {
        matching: |request| request.path().contains("/manifests/"),
        ..Plan::of(vec![leading("manifests/1"); 2])
    });
    // A checksum of the disk does not help, because a manifest decides more than the disk.
    for import in [scene.import(&tagged), scene.checked(&tagged)] {
        scene.place.assert_refused(import.args(amd64), SOURCE_FAILED, REFUSED);
    }

    let blobs = blobs_of(&registry);
    let (_gateway, verified) = behind(Plan {
        matching: |request| request.path().contains("/blobs/"),
        ..Plan::of(blobs.iter().map(|digest| leading(&format!("blobs/{digest}"))).collect())
    });
    let import = scene.import(&verified).args(amd64);
    let finished = scene.place.assert_imports(import, &scene.content, "blobs have a digest");
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
    let source = format!("ovirt+{}/disks/{DISK_ID}", engine.api_url());
    let user = scene.place.as_user(ovirt::USER, ovirt::PASSWORD);
    let import = scene.import(&source).args(user.clone());
    let finished = scene.place.assert_refused(import, SOURCE_FAILED, REFUSED);
    assert!(!finished.stderr.contains(ticket), "a ticket opens the disk: {}", finished.stderr);
    assert!(plain.requests().is_empty() && engine.is_logged_out());
    scene.assert_warned(scene.checked(&source).args(user));
}
