//! Images that must be signed with cosign: layouts made by a script with openssl, good and bad.

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::tools;

use super::scene::{SOURCE_FAILED, Scene, USAGE, behind};

/// Exit code of an image whose checksum or signature is wrong.
const UNTRUSTED: i32 = 6;

/// A registry that the script has filled, and the keys.
struct SignedImages {
    registry: DockerRegistry,
    scene: Scene,
    pushed: Value,
}

impl SignedImages {
    fn start() -> Self {
        let (registry, scene) = (DockerRegistry::start(Setup::default()), Scene::new());
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources/registry/cosign_layouts.py");
        let words = [script, registry.address().to_string().into(), scene.path("")];
        let pushed = serde_json::from_str(&tools::run("python3", words)).or_fail("JSON");
        Self { registry, scene, pushed }
    }

    fn key(&self, name: &str) -> PathBuf {
        self.scene.path(&format!("{name}.pub"))
    }

    fn reference(&self, case: &str) -> String {
        self.registry.reference(&format!("disks:{case}"))
    }

    /// A digest of the image of this case: `index`, `manifest` or `layer`.
    fn digest(&self, case: &str, part: &str) -> &str {
        self.pushed[case][part].as_str().or_fail("a digest")
    }

    /// Removes the file of a blob, so that the registry can no longer send it.
    fn remove_blob(&self, digest: &str) {
        let hex = digest.trim_start_matches("sha256:");
        let folder = format!("docker/registry/v2/blobs/sha256/{}/{hex}", &hex[..2]);
        std::fs::remove_dir_all(self.registry.storage().join(folder)).or_fail("a blob");
    }

    /// Imports the image of `case`, whose signature must be by `key`.
    fn assert_imports(&self, case: &str, reference: &str, key: &str) {
        let content: Vec<u8> = (0..=255).cycle().take(256 * 256).collect();
        let program = self.scene.import(reference).arg("--verify-key").arg(self.key(key));
        self.scene.assert_imports(program, &content, case);
    }

    fn assert_refused(&self, reference: &str, key: &Path, code: i32, text: &str) {
        let program = self.scene.import(reference).arg("--verify-key").arg(key);
        let finished = self.scene.assert_refused(program, code, text);
        let lines = finished.stderr.lines().filter(|line| line.starts_with("cdi-importer: "));
        assert_eq!(lines.count(), 1, "{}", finished.stderr);
    }
}

/// One test, because the registry is filled in a second.
#[test]
fn images_are_imported_only_if_the_key_has_signed_them() {
    let images = SignedImages::start();
    good_signatures(&images);
    layouts(&images);
    bad_signatures(&images);
}

fn good_signatures(images: &SignedImages) {
    let registry = &images.registry;
    for (case, key) in [
        ("simple-ecdsa", "ecdsa"),
        ("simple-rsa", "rsa"),
        ("simple-ed25519", "ed25519"),
        ("simple-manifest", "ecdsa"),
        ("simple-second", "ecdsa"),
        ("bundle-ecdsa", "ecdsa"),
        ("bundle-rsa", "rsa"),
        ("bundle-ed25519", "ed25519"),
        ("bundle-manifest", "ecdsa"),
        ("bundle-second", "ecdsa"),
    ] {
        images.assert_imports(case, &images.reference(case), key);
    }
    // By digest, as a pipeline pins it.
    for (case, part) in [("simple-ecdsa", "index"), ("bundle-manifest", "manifest")] {
        let reference = format!("disks@{}", images.digest(case, part));
        images.assert_imports(case, &registry.reference(&reference), "ecdsa");
    }
    // A registry that lists referrers itself.
    let referrers = images.pushed["bundle-api"]["referrers"].to_string();
    let headers = vec![("content-type", "application/vnd.oci.image.index.v1+json".to_owned())];
    let plan = Plan {
        matching: |request| request.path().contains("/referrers/"),
        ..Plan::of(vec![Fault::Answer(200, headers, referrers)])
    };
    let gateway = Gateway::start(registry.address(), plan).or_fail("a gateway");
    images.assert_imports("bundle-api", &behind(&gateway, "disks:bundle-api"), "ecdsa");
    let asked = gateway.requests();
    let asked = asked.iter().find(|recorded| recorded.request.path().contains("/referrers/"));
    let target = &asked.or_fail("a request").request.target;
    assert!(target.contains("?artifactType=application%2Fvnd%2Edev%2Esigstore"), "{target}");
}

fn bad_signatures(images: &SignedImages) {
    // The layer would be missed if it was asked for: signatures are checked first.
    images.remove_blob(images.digest("unsigned", "layer"));
    let key = images.key("ecdsa");
    for (case, text) in [
        ("unsigned", "has no cosign signature; ask its publisher for a signed image"),
        ("bundle-api", "has no cosign signature"),
        ("bundle-attestation", "has no cosign signature"),
        ("bundle-hidden", "has no cosign signature"),
        ("simple-other-key", "none of its 2 signature(s) is from this key; check --verify-key"),
        ("simple-flipped", "none of its 1 signature(s) is from this key"),
        ("simple-other-image", "its signature is for sha256:0000000000000000"),
        ("simple-manifest-for-index", "its signature is for sha256:"),
        ("simple-other-type", "its signature is for a document of type \"atomic container"),
        ("simple-not-base64", "its signature is malformed: it is not base64; ask the publisher"),
        ("simple-not-json", "its signature is malformed: its payload cannot be read"),
        ("simple-too-large", "but a document may have at most 262144"),
        ("bundle-other-key", "none of its 1 signature(s) is from this key"),
        ("bundle-bare", "none of its 1 signature(s) is from this key"),
        ("bundle-other-image", "its signature is for sha256:0000000000000000"),
        ("bundle-text", "its signature is for a document of type \"text/plain\""),
        ("bundle-two", "its signature is malformed: the bundle has 2 signatures, expected 1"),
        ("bundle-old", "bundles of type \"application/vnd.dev.sigstore.bundle+json;version=0.1\""),
        ("bundle-cut", "its signature is malformed: the bundle cannot be read"),
    ] {
        images.assert_refused(&images.reference(case), &key, UNTRUSTED, text);
    }

    let signed = images.reference("simple-ecdsa");
    let p384 = images.key("p384");
    images.assert_refused(&signed, &p384, UNTRUSTED, "its algorithm is not supported; use ECDSA");
    let secret = images.scene.path("ecdsa.pem");
    images.assert_refused(&signed, &secret, USAGE, "it has no public key in PEM");
    images.assert_refused(&signed, &images.scene.path("none"), USAGE, "check --verify-key");

    // The signature covers the layers too.
    images.remove_blob(images.digest("simple-rsa", "layer"));
    let signed = images.reference("simple-rsa");
    images.assert_refused(&signed, &images.key("rsa"), SOURCE_FAILED, "reading blob sha256:");
}

fn layouts(images: &SignedImages) {
    for case in ["simple-ecdsa", "bundle-ecdsa", "unsigned"] {
        let layout = format!("oci:{}", images.scene.path(case).display());
        let mut names = vec![case.to_owned()];
        let tag = images.digest(case, "index").replace(':', "-");
        names.extend((case == "simple-ecdsa").then(|| format!("{tag}.sig")));
        if case == "bundle-ecdsa" {
            let bundle = &images.pushed[case]["referrers"]["manifests"][0]["digest"];
            names.push(bundle.as_str().or_fail("a digest").to_owned());
        }
        for name in names {
            let at = if name.starts_with("sha256:") { '@' } else { ':' };
            let from = images.registry.reference(&format!("disks{at}{name}"));
            let name = name.replace(':', "-");
            let words =
                ["copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false"];
            let words = ["--insecure-policy"].into_iter().chain(words).map(str::to_owned);
            tools::run("skopeo", words.chain([from, format!("{layout}:{name}")]));
        }
        let reference = format!("{layout}:{case}");
        match case {
            "unsigned" => images.assert_refused(
                &reference,
                &images.key("ecdsa"),
                UNTRUSTED,
                "has no cosign signature",
            ),
            _ => images.assert_imports(case, &reference, "ecdsa"),
        }
    }
}
