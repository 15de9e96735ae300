//! Evidence of publishers, which the client verifies: volumes get a checksum or a digest.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::gateway::{Gateway, Plan};
use testkit::nginx::Nginx;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::{disk, tools};

use crate::BINARY;

/// A folder for keys and lists, which also trusts an authority.
struct Scene {
    folder: TempDir,
    authority: Authority,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let authority = Authority::new().or_fail("an authority");
        std::fs::write(folder.path().join("roots"), authority.pem()).or_fail("roots");
        Self { folder, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).or_fail(name);
        self.path(name).display().to_string()
    }

    fn import(&self, url: &str, options: &[&str]) -> Finished {
        Program::new(BINARY)
            .args(["import", url, "dv/x", "--dry-run", "client", "--size", "8Mi"])
            .args(options)
            .env("SSL_CERT_FILE", self.path("roots"))
            .run()
    }
}

/// The path of a script that the importer's tests also use.
fn importer_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../importer/tests/sources").join(name)
}

#[test]
fn a_list_becomes_the_checksum_of_the_volume() {
    let scene = Scene::new();
    let content = disk::content(3, 64 << 10);
    std::fs::write(scene.path("disk.img"), &content).or_fail("an image");
    let origin = Origin::start(Script::new(content)).or_fail("a server");
    let url = origin.url("/disk.img");
    let sum = tools::run("sha256sum", [scene.path("disk.img")]);
    let digest = sum.split(' ').next().or_fail("a digest");
    let list = scene.write("list", &format!("{digest}  disk.img\n"));
    let finished = scene.import(&url, &["--verify-sums", &list]);
    finished.assert_success("a dry run");
    let line = format!("checksum: sha256:{digest}");
    assert!(finished.stdout.contains(&line), "{}", finished.stdout);

    let other = scene.write("other", &format!("{digest}  other.img\n"));
    let weak = scene.write("weak", "d41d8cd98f00b204e9800998ecf8427e  disk.img\n");
    let keyring = scene.write("keyring", "text");
    for (url, options, code, text) in [
        (url.as_str(), &["--verify-sums", &other][..], 6, "it does not list disk.img"),
        (&url, &["--verify-sums", &weak], 6, "only with md5"),
        (&url, &["--verify-sums", "none"], 2, "check --verify-sums"),
        (&url, &["--verify-sums", &list, "--keyring", &keyring], 2, "it has no public key"),
        (&url, &["--keyring", &keyring], 2, "--verify-sums"),
        (
            &url,
            &["--verify-key", &keyring],
            2,
            "--verify-key and --certificate-identity are only for docker://",
        ),
        ("docker://h/d", &["--verify-sums", &list], 2, "--verify-sums is only for http://"),
        ("docker://h/d", &["--verify-key", &keyring], 2, "it has no public key in PEM"),
    ] {
        scene.import(url, options).assert_failure(code, text);
    }
}

#[test]
#[ignore = "server: gpg, nginx"]
fn a_list_that_gnupg_has_signed_becomes_the_checksum_of_the_volume() {
    let scene = Scene::new();
    let content = disk::content(4, 64 << 10);
    for name in ["disk.img", "other.img"] {
        std::fs::write(scene.path(name), &content).or_fail(name);
    }
    let sum = tools::run("sha256sum", [scene.path("disk.img")]);
    let digest = sum.split(' ').next().or_fail("a digest");
    scene.write("sums", &format!("{digest}  disk.img\n"));
    let script = importer_script("openpgp_layouts.sh");
    tools::find("gpg");
    tools::run("bash", [script, scene.path("")]);
    let root = scene.path("").display().to_string();
    let nginx = Nginx::start(&scene.path(""), false, &format!("root {root};"));
    let url = |name: &str| format!("http://{}/{name}", nginx.address());
    let keyring = scene.path("trusted.gpg").display().to_string();
    let signature = url("ubuntu.gpg");
    let disk = url("disk.img");
    for (list, more) in [("ubuntu", &[][..]), ("unsigned", &["--signature", &signature])] {
        let list = url(list);
        let options = [&["--verify-sums", &list, "--keyring", &keyring], more].concat();
        let finished = scene.import(&disk, &options);
        finished.assert_success(&list);
        let line = format!("checksum: sha256:{digest}");
        assert!(finished.stdout.contains(&line), "{list}: {}", finished.stdout);
    }
    // importer/tests/sources/openpgp.rs has all other lists.
    let list = url("fedora-changed");
    // Without the lines about progress, which appear after a second.
    let options = ["--verify-sums", &list, "--keyring", &keyring, "--quiet"];
    let finished = scene.import(&disk, &options);
    finished.assert_failure(6, "it does not match: what it signs has been changed");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
}

/// A registry with images that a script has signed.
struct SignedImages {
    scene: Scene,
    repository: String,
    pushed: Value,
    _servers: (DockerRegistry, Gateway),
}

impl SignedImages {
    fn start(script: &Path) -> Self {
        let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
        let words = [script.into(), registry.address().to_string().into(), scene.path("")];
        let pushed = serde_json::from_str(&tools::run("python3", words)).or_fail("JSON");
        let tls = scene.authority.server_config().or_fail("TLS");
        let gateway =
            Gateway::start_tls(registry.address(), Plan::default(), tls).or_fail("a gateway");
        let repository = format!("docker://{}/disks", gateway.address());
        Self { scene, repository, pushed, _servers: (registry, gateway) }
    }

    fn path(&self, name: &str) -> String {
        self.scene.path(name).display().to_string()
    }

    fn import(&self, case: &str, options: &[&str]) -> Finished {
        self.scene.import(&format!("{}:{case}", self.repository), options)
    }

    /// Imports the image of `case` by the digest of `part`, which is signed.
    fn assert_pinned(&self, case: &str, part: &str, options: &[&str]) {
        // An image for another machine than this one is not chosen.
        if part == "manifest" && !cfg!(target_arch = "x86_64") {
            return;
        }
        let finished = self.import(case, options);
        finished.assert_success(case);
        let digest = self.pushed[case][part].as_str().or_fail("a digest");
        let line = format!("{}@{digest}", self.repository);
        assert!(finished.stdout.contains(&line), "{case}: {}", finished.stdout);
    }

    fn assert_refused(&self, case: &str, options: &[&str], text: &str) {
        // Without progress, as above.
        let finished = self.import(case, &[options, &["--quiet"]].concat());
        finished.assert_failure(6, text);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert_eq!(finished.stdout, "");
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn a_signed_container_image_is_pinned_by_its_digest() {
    let images = SignedImages::start(&importer_script("registry/cosign_layouts.py"));
    let key = images.path("ecdsa.pub");
    let options = ["--verify-key", &key];
    images.assert_pinned("bundle-ecdsa", "index", &options);
    images.assert_pinned("simple-manifest", "manifest", &options);
    images.assert_refused("bundle-other-key", &options, "none of its signatures is from this key");
    images.assert_refused("unsigned", &options, "has no cosign signature");
}

/// The identities in the script, and who has authenticated them.
const WORKFLOW: &str = "https://forge.example.org/vm/.github/workflows/release.yml@refs/tags/v1";
const EMAIL: &str = "release@example.org";
const ISSUER: &str = "https://issuer.example.org";

#[test]
#[ignore = "server: docker-registry"]
fn an_image_that_was_signed_without_a_key_is_pinned_by_its_digest() {
    let script = "tests/commands/upload/keyless_layouts.py";
    let images = SignedImages::start(&Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
    let root = images.path("trusted_root.json");
    let trust = ["--certificate-oidc-issuer", ISSUER, "--trusted-root", &root];
    let of = |identity| [&["--certificate-identity", identity], &trust[..]].concat();
    let matching = |pattern| [&["--certificate-identity-regexp", pattern], &trust[..]].concat();
    let (workflow, email) = (of(WORKFLOW), of(EMAIL));
    for (case, part, options) in [
        ("bundle-workflow", "index", &workflow),
        ("bundle-email", "index", &email),
        ("bundle-manifest", "manifest", &workflow),
        ("second-workflow", "index", &workflow),
        ("simple-workflow", "index", &workflow),
        ("simple-email", "index", &email),
        (
            "bundle-workflow",
            "index",
            &matching("https://forge.example.org/vm/.*@refs/tags/v[0-9]+"),
        ),
    ] {
        images.assert_pinned(case, part, options);
    }
    for (case, text) in [
        ("other-identity", "refs/tags/v10, not by https://forge.example.org/vm/"),
        ("other-issuer", "was authenticated by https://other.example.org, not https://issuer."),
        ("other-authority", "certificate chain validation failed: UnknownIssuer"),
        ("other-purpose", "certificate chain validation failed: RequiredEkuNotFound"),
        ("other-key", "DSSE signature verification failed"),
        ("other-image", "artifact hash does not match any subject"),
        ("other-entry", "DSSE payload hash mismatch"),
        ("other-log", "No log key valid at integrated time"),
        ("attestation", "has no cosign signature"),
        ("no-certificate-log", "certificate is missing SCT extension"),
        ("other-certificate-log", "SCT signature verification failed"),
        ("too-late", "certificate chain validation failed: CertExpired"),
        ("too-early", "certificate chain validation failed: CertNotValidYet"),
        ("changed-time", "SET verification failed"),
        ("changed-proof", "inclusion proof verification failed"),
        ("no-proof", "inclusion proof"),
        ("no-entry", "inclusion proof"),
        ("second-no-time", "no verified timestamp"),
        ("second-other-time", "invalid RFC 3161 timestamp"),
        ("second-too-late", "certificate chain validation failed: CertExpired"),
        ("second-changed-proof", "inclusion proof verification failed"),
        ("key", "its signature is from a key, without a certificate"),
        ("simple-no-certificate", "its signature is from a key, without a certificate"),
        ("simple-no-entry", "its signature is from a key, without a certificate"),
        ("simple-other-identity", "it was signed by release@example.orgx, not by"),
        ("simple-other-image", "its signature is for sha256:0000"),
        ("simple-too-late", "certificate chain validation failed: CertExpired"),
        ("unsigned", "has no cosign signature"),
    ] {
        images.assert_refused(case, &workflow, text);
    }
    images.assert_refused("no-identity", &matching(".*"), "its certificate states no identity");
    let part_of_it = matching("https://forge.example.org/vm/");
    images.assert_refused("bundle-workflow", &part_of_it, "it was signed by https://forge.");
}
