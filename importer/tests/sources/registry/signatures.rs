//! Images that must be signed with cosign: layouts made by a script with openssl, good and bad.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::oci::archive_layout;
use testkit::tools;
use testkit::wire::Request;

use super::scene::{SOURCE_FAILED, Scene, UNTRUSTED, USAGE, archive, behind, directory};

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
        // Without the lines about progress, which appear after a second.
        let program = self.scene.import(reference).args(["--progress", "none"]);
        let program = program.arg("--verify-key").arg(key);
        let finished = self.scene.assert_refused(program, code, text);
        let lines = finished.stderr.lines().filter(|line| line.starts_with("cdi-importer: "));
        assert_eq!(lines.count(), 1, "{}", finished.stderr);
    }
}

/// One test, because the registry is filled in a second.
#[test]
#[ignore = "server: docker-registry"]
fn images_are_imported_only_if_the_key_has_signed_them() {
    let images = SignedImages::start();
    good_signatures(&images);
    lists_of_referrers(&images);
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
        ("bundle-listed-empty", "ecdsa"),
    ] {
        images.assert_imports(case, &images.reference(case), key);
    }
    // By digest, as a pipeline pins it.
    for (case, part) in [("simple-ecdsa", "index"), ("bundle-manifest", "manifest")] {
        let reference = format!("disks@{}", images.digest(case, part));
        images.assert_imports(case, &registry.reference(&reference), "ecdsa");
    }
}

/// An index without artifacts.
const NO_REFERRERS: &str = r#"{"schemaVersion":2,"manifests":[]}"#;

/// A page of a list of referrers.
fn page(body: &str, next: Option<&str>) -> Fault {
    let media_type = ("content-type", "application/vnd.oci.image.index.v1+json".to_owned());
    let link = next.map(|next| ("link", format!("<{next}>; rel=\"next\"")));
    Fault::Answer(200, [media_type].into_iter().chain(link).collect(), body.to_owned())
}

/// A registry that lists referrers itself, and its answers to requests for the list.
fn listing(images: &SignedImages, pages: Vec<Fault>) -> Gateway {
    let matching = |request: &Request| request.path().contains("/referrers/");
    let plan = Plan { matching, ..Plan::of(pages) };
    Gateway::start(images.registry.address(), plan).or_fail("a gateway")
}

/// The requests for the list of referrers.
fn list_requests(gateway: &Gateway) -> Vec<String> {
    let requests = gateway.requests().into_iter().map(|recorded| recorded.request.target);
    requests.filter(|target| target.contains("/referrers/")).collect()
}

fn lists_of_referrers(images: &SignedImages) {
    let case = "bundle-api";
    let referrers = images.pushed[case]["referrers"].to_string();
    let reference = |gateway: &Gateway| behind(gateway, &format!("disks:{case}"));
    let gateway = listing(images, vec![page(&referrers, None)]);
    images.assert_imports(case, &reference(&gateway), "ecdsa");
    let requests = list_requests(&gateway);
    let [target] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(target.contains("?artifactType=application%2Fvnd%2Edev%2Esigstore"), "{target}");

    // The signature is on the third page.
    let [second, third] = ["/v2/disks/referrers/x?last=2", "y?last=3"];
    let pages = vec![
        page(NO_REFERRERS, Some(second)),
        page(NO_REFERRERS, Some(third)),
        page(&referrers, None),
    ];
    let gateway = listing(images, pages);
    images.assert_imports(case, &reference(&gateway), "ecdsa");
    assert_eq!(list_requests(&gateway)[1..], [second, "/v2/disks/referrers/y?last=3"]);

    // Nothing after the signature is requested.
    let gateway = listing(images, vec![page(&referrers, Some("http://127.0.0.1:1/"))]);
    images.assert_refused(&reference(&gateway), &images.key("other"), UNTRUSTED, "another server");
    let gateway = listing(images, vec![page(&referrers, Some(second))]);
    images.assert_imports(case, &reference(&gateway), "ecdsa");
    assert_eq!(list_requests(&gateway).len(), 1);

    // A list without an end, and one that leads elsewhere.
    let endless = vec![page(NO_REFERRERS, Some(second)); 100];
    for (pages, count, text) in [
        (endless, 64, "none of the first 64 pages with signatures of sha256:"),
        (vec![page(NO_REFERRERS, Some("//127.0.0.1:1/v2/"))], 1, "another server, which is not"),
        (vec![page(NO_REFERRERS, Some("http://["))], 1, "another server, which is not"),
    ] {
        let gateway = listing(images, pages);
        images.assert_refused(&reference(&gateway), &images.key("ecdsa"), UNTRUSTED, text);
        assert_eq!(list_requests(&gateway).len(), count);
    }
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
        ("bundle-other-subject", "has no cosign signature"),
        ("simple-other-key", "none of its signatures is from this key; check --verify-key"),
        ("simple-flipped", "none of its signatures is from this key"),
        ("simple-other-image", "its signature is for sha256:0000000000000000"),
        ("simple-manifest-for-index", "its signature is for sha256:"),
        ("simple-other-type", "its signature is for a document of type \"atomic container"),
        ("simple-not-base64", "its signature is malformed: it is not base64; ask the publisher"),
        ("simple-not-json", "its signature is malformed: its payload cannot be read"),
        ("simple-too-large", "but a document may have at most 262144"),
        ("bundle-other-key", "none of its signatures is from this key"),
        ("bundle-bare", "none of its signatures is from this key"),
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

/// Layouts on a disk: the copy of an image and what refers to it, with the names in the registry,
/// and the same as `cosign save` lists it, without names.
fn layouts(images: &SignedImages) {
    let no_signature = "has no cosign signature";
    for (case, refusal) in [
        ("simple-ecdsa", None),
        ("simple-other-key", Some("none of its signatures is from this key")),
        ("simple-other-image", Some("its signature is for sha256:0000000000000000")),
        ("bundle-ecdsa", None),
        ("bundle-second", None),
        ("bundle-other-image", Some("its signature is for sha256:0000000000000000")),
        ("unsigned", Some(no_signature)),
    ] {
        let path = images.scene.path(case);
        let layout = directory(&path);
        let assert = |reference: &str| match refusal {
            Some(text) => images.assert_refused(reference, &images.key("ecdsa"), UNTRUSTED, text),
            None => images.assert_imports(case, reference, "ecdsa"),
        };
        let tag = images.digest(case, "index").replace(':', "-");
        let bundles = images.pushed[case]["referrers"]["manifests"].as_array();
        let bundles = bundles.into_iter().flatten().map(|bundle| {
            let digest = bundle["digest"].as_str().or_fail("a digest");
            format!("@{digest}")
        });
        let tagged = case.starts_with("simple").then(|| format!(":{tag}.sig"));
        for name in std::iter::once(format!(":{case}")).chain(tagged).chain(bundles) {
            let from = images.registry.reference(&format!("disks{name}"));
            let name = name[1..].replace(':', "-");
            let words =
                ["copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false"];
            let words = ["--insecure-policy"].into_iter().chain(words).map(str::to_owned);
            tools::run("skopeo", words.chain([from, format!("{layout}:{name}")]));
        }
        assert(&format!("{layout}:{case}"));
        if case == "bundle-second" {
            list_under_tag(&path, &tag);
            assert(&format!("{layout}:{case}"));
        }
        if case.starts_with("simple") {
            list_as_cosign(&path.join("index.json"));
            assert(&layout);
            let tar = images.scene.path("saved.tar");
            archive_layout(&path, &tar);
            assert(&archive(&tar));
        }
    }
}

/// Moves all artifacts from the index of a layout to a list with the tag for their image.
fn list_under_tag(layout: &Path, tag: &str) {
    let path = layout.join("index.json");
    let text = std::fs::read_to_string(&path).or_fail("an index");
    let mut document: Value = serde_json::from_str(&text).or_fail("JSON");
    let entries = document["manifests"].as_array_mut().or_fail("a list");
    let artifacts = entries.split_off(1);
    assert!(artifacts.len() > 1, "{artifacts:?}");
    let media_type = "application/vnd.oci.image.index.v1+json";
    let list = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": artifacts });
    let (list, file) = (list.to_string(), layout.join("list"));
    std::fs::write(&file, &list).or_fail("a list");
    let sum = tools::run("sha256sum", [&file]);
    let hex = sum.split(' ').next().or_fail("a digest");
    std::fs::rename(&file, layout.join("blobs/sha256").join(hex)).or_fail("a blob");
    entries.push(json!({
        "mediaType": media_type,
        "digest": format!("sha256:{hex}"),
        "size": list.len(),
        "annotations": { "org.opencontainers.image.ref.name": tag },
    }));
    std::fs::write(path, document.to_string()).or_fail("an index");
}

/// Replaces the names in the index of a layout by what `cosign save` writes.
fn list_as_cosign(index: &Path) {
    let text = std::fs::read_to_string(index).or_fail("an index");
    let mut document: Value = serde_json::from_str(&text).or_fail("JSON");
    for entry in document["manifests"].as_array_mut().or_fail("a list") {
        let name = entry["annotations"]["org.opencontainers.image.ref.name"].as_str();
        let is_signature = name.or_fail("a name").ends_with(".sig");
        let kind = if is_signature { "sigs" } else { "imageIndex" };
        entry["annotations"] = json!({ "kind": format!("dev.cosignproject.cosign/{kind}") });
    }
    std::fs::write(index, document.to_string()).or_fail("an index");
}
