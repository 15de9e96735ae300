//! Container images, as CDI's controllers request them.

use testkit::docker_registry::{Auth, DockerRegistry, Setup, TokenIssuer};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::layout_registry::LayoutRegistry;
use testkit::oci::{
    Artifact, ArtifactLayer, Compression, Image, archive_layout, tar_layout, wrap_index,
    write_artifacts, write_layout,
};
use testkit::origin::Script;
use testkit::{disk, tools};

use super::pod::{MIB, Pod, SUCCESS, serve};

/// Beginning of upstream's messages about container images.
const PREFIX: &str = "Unable to process data: Unable to transfer source data to scratch space: Failed to read registry image: ";

fn pod(reference: &str, architecture: &str) -> Pod {
    Pod::new(&[
        ("IMPORTER_SOURCE", "registry"),
        ("IMPORTER_ENDPOINT", reference),
        ("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", architecture),
        ("INSECURE_TLS", "true"),
    ])
}

/// A container image with these variables, and its disk.
fn image(env: Vec<&'static str>) -> (Image, Vec<u8>) {
    let content = disk::content(1, MIB);
    (Image { env, ..Image::of_disk(&content, Compression::Gzip) }, content)
}

#[test]
fn the_disk_and_the_labels_of_an_image_arrive() {
    let label = "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small";
    let (image, content) = image(vec!["PATH=/bin", label]);
    let registry = LayoutRegistry::of_images(&[image]);
    let pod = pod(&registry.reference(), "amd64");
    let finished = pod.assert_succeeds_with(
        r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#,
    );
    assert_eq!(std::fs::read(pod.disk()).ok(), Some(content));
    let line = "File 'disk/disk.img' found in the layer";
    assert!(finished.stderr.contains(line), "{}", finished.stderr);
}

/// Upstream accepts this scheme in pods.
#[test]
fn an_archive_in_the_pod_can_be_read_inside_the_sandbox() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (layout, archive) = (folder.path().join("layout"), folder.path().join("image.tar"));
    let (image, content) = image(vec![]);
    write_layout(&layout, &[image]);
    archive_layout(&layout, &archive);
    let pod = pod(&format!("oci-archive:{}", archive.display()), "amd64");
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(std::fs::read(pod.disk()).ok(), Some(content));
}

/// Runs a pod that imports an image with the variables `env`, which must succeed. Returns the
/// labels of its message, and its log.
fn labels_from(env: Vec<&'static str>) -> (serde_json::Map<String, serde_json::Value>, String) {
    let registry = LayoutRegistry::of_images(&[image(env).0]);
    let pod = pod(&registry.reference(), "amd64");
    let finished = pod.run();
    finished.assert_success("an image with labels");
    let message = pod.message().or_fail("a message");
    assert!(message.len() <= 4096, "{} bytes", message.len());
    let parsed: serde_json::Value = serde_json::from_str(&message).or_fail(&message);
    assert_eq!(parsed["message"], "Import Complete", "{message}");
    let labels = parsed.get("labels").and_then(|labels| labels.as_object()).cloned();
    (labels.unwrap_or_default(), finished.stderr)
}

/// Asserts that the log has a warning about each of the labels that were dropped.
#[track_caller]
fn assert_dropped(log: &str, label: &str, is_dropped: bool) {
    let is_warned = log.lines().any(|line| line.starts_with('W') && line.contains(label));
    assert_eq!(is_warned, is_dropped, "{label}\n{log}");
}

#[test]
fn labels_that_kubernetes_would_refuse_or_do_not_fit_are_dropped_with_a_warning() {
    let (labels, log) = labels_from(vec![
        "KUBEVIRT_IO_X=a=B",
        "KUBEVIRT_IO_EMPTY=",
        "KUBEVIRT_IO_=no-name",
        "BAD-_KUBEVIRT_IO_DOMAIN=v",
        "KUBEVIRT_IO_END=v-",
        "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
    ]);
    assert_eq!(
        serde_json::Value::from(labels).to_string(),
        r#"{"instancetype.kubevirt.io/default-instancetype":"u1.small","kubevirt.io/empty":""}"#
    );
    for label in ["kubevirt.io/x", "kubevirt.io/ ", "bad-.kubevirt.io/domain", "kubevirt.io/end"] {
        assert_dropped(&log, label, true);
    }

    let variable = |number: u32| format!("KUBEVIRT_IO_LABEL_{number:02}={}", "v".repeat(60));
    let (labels, log) = labels_from((0..60).map(|number| &*variable(number).leak()).collect());
    let kept = labels.len();
    assert!((40..60).contains(&kept), "{kept} labels");
    for number in 0..60 {
        let key = format!("kubevirt.io/label-{number:02}");
        assert_eq!(labels.contains_key(&key), number < kept, "{key}");
        assert_dropped(&log, &key, number >= kept);
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn failed_pulls_have_upstreams_messages() {
    let registry = DockerRegistry::start(Setup::default());
    let images = ["amd64", "arm64"].map(|architecture| Image { architecture, ..image(vec![]).0 });
    registry.push("multi:oci", &images, &["--all"]);
    registry.push("multi:list", &images, &["--all", "--format", "v2s2"]);
    for (name, kind) in [("multi:oci", "image index"), ("multi:list", "manifest list")] {
        pod(&registry.reference(name), "absent").assert_fails_with(&format!(
            "{PREFIX}Error retrieving image: choosing image instance: no image found in {kind} for architecture \
             \"absent\", variant \"\", OS \"linux\""
        ));
    }
    pod(&registry.reference("multi:gone"), "amd64").assert_fails_with(&format!(
        "{PREFIX}failed to pull image: reading manifest gone in {}/multi: 404 Not Found: MANIFEST_UNKNOWN: manifest unknown",
        registry.address()
    ));
    pod("fedora", "amd64").assert_fails_with(&format!(
        "{PREFIX}Could not parse image: Invalid image name \"fedora\", expected colon-separated transport:reference"
    ));
}

#[test]
#[ignore = "server: docker-registry"]
fn a_password_goes_to_a_foreign_token_service_only_if_it_is_named() {
    let issuer = TokenIssuer::new();
    let service = serve(Script::new(issuer.grant("a/b")));
    let realm = service.url("/token").replace("127.0.0.1", "localhost");
    let setup = Setup { auth: Auth::Token(&issuer, &realm), ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("a/b:1", &[image(vec![]).0])]);
    let mut pod = pod(&registry.reference("a/b:1"), "amd64");
    pod.set("IMPORTER_ACCESS_KEY_ID", "joe");
    pod.set("IMPORTER_SECRET_KEY", "hidden");
    pod.assert_fails_with(&format!(
        "{PREFIX}failed to pull image: reading manifest 1 in {}/a/b: the registry 127.0.0.1 wants its password to be sent to \
         the token service localhost, which is not known to belong to it: name it in IMPORTER_TOKEN_SERVICES if it does",
        registry.address()
    ));
    assert!(service.requests().is_empty(), "{:?}", service.requests());
    pod.set("IMPORTER_TOKEN_SERVICES", "auth.example.org, localhost");
    pod.run().assert_success("named");
}

#[test]
fn a_corrupted_layer_is_reported_as_a_failed_pull() {
    let image = Image::of_disk(&disk::content(1, 4 * MIB), Compression::None);
    let registry = LayoutRegistry::of_images(&[image]);
    let plan = Plan {
        matching: |request| request.path().contains("/blobs/"),
        // The configuration is the first blob.
        ..Plan::of(vec![Fault::None, Fault::Corrupt(2 * MIB)])
    };
    let gateway = Gateway::start(registry.address(), plan).or_fail("a gateway");
    let pod = pod(&format!("docker://{}/disks/vm:1", gateway.address()), "amd64");
    pod.run().assert_failure(1, "the source announced sha256:");
    let message = pod.message().or_fail("a message");
    assert!(message.starts_with("Unable to process data: "), "{message}");
    assert_eq!(message.matches("failed to pull image: ").count(), 1, "{message}");
    assert!(!pod.disk().exists(), "a disk was left behind");
}

const LAYER_DIGEST: &str = "IMPORTER_REGISTRY_IMAGE_LAYER_DIGEST";
const ANNOTATION_KEY: &str = "IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_KEY";
const ANNOTATION_VALUE: &str = "IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_VALUE";

#[test]
#[ignore = "tools: zstd"]
fn a_layer_is_selected_by_digest_or_annotation() {
    // A machine with two disks.
    let disks = [disk::content(1, MIB), disk::content(2, 2 * MIB)];
    let names = ["rootdisk", "data"];
    let layers = names.iter().zip(&disks);
    let layers: Vec<_> =
        layers.map(|(name, disk)| ArtifactLayer::kubevirt_disk(name, disk)).collect();
    let digests = layers.iter().map(|layer| digest_of(&layer.content)).collect::<Vec<_>>();
    let folder = tempfile::tempdir().or_fail("a folder");
    write_artifacts(folder.path(), &[Artifact::kubevirt_export(layers)]);
    wrap_index(folder.path());
    let registry = LayoutRegistry::start(folder.path());
    let pod = || pod(&registry.reference(), "amd64");
    for ((content, name), digest) in disks.iter().zip(names).zip(&digests) {
        // A digest that is empty is not set, as upstream sets it.
        let by_name = [
            (LAYER_DIGEST, ""),
            (ANNOTATION_KEY, "io.kubevirt.disk.name"),
            (ANNOTATION_VALUE, name),
        ];
        for variables in [&[(LAYER_DIGEST, digest.as_str())][..], &by_name] {
            let mut pod = pod();
            variables.iter().for_each(|(name, value)| pod.set(name, value));
            let finished = pod.assert_succeeds_with(SUCCESS);
            assert!(std::fs::read(pod.disk()).ok().as_ref() == Some(content), "{finished:?}");
        }
    }
    pod().assert_fails_with(&format!("{PREFIX}the artifact has several disks: rootdisk, data"));
    let mut other = pod();
    let digest = format!("sha256:{}", "0".repeat(64));
    other.set(LAYER_DIGEST, &digest);
    other.assert_fails_with(&format!(
        "{PREFIX}no layer matches {digest}; available layers: rootdisk, data"
    ));
}

#[test]
fn a_layer_by_digest_needs_no_platform_and_brings_no_labels() {
    let (image, content) = image(vec!["INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small"]);
    let image = Image {
        architecture: "arm64",
        labels: vec![("containers.bootc", "1")],
        ..Image { layers: vec![(image.layers[0].0.clone(), Compression::None)], ..image }
    };
    let layer = digest_of(&image.layers[0].0);
    for images in [vec![image.clone()], vec![image.clone(), image]] {
        let registry = LayoutRegistry::of_images(&images);
        let mut pod = pod(&registry.reference(), "amd64");
        pod.set(LAYER_DIGEST, &layer);
        pod.assert_succeeds_with(SUCCESS);
        assert_eq!(std::fs::read(pod.disk()).ok().as_ref(), Some(&content));
    }
}

#[test]
fn a_selector_that_cannot_be_read_ends_the_pod() {
    let digest = format!("sha256:{}", "0".repeat(64));
    for (variables, text) in [
        (&[(LAYER_DIGEST, "sha256:0")][..], "is not a SHA-256 or SHA-512 digest"),
        (
            &[(ANNOTATION_KEY, "k")],
            "IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_VALUE is not set or empty",
        ),
        (
            &[(ANNOTATION_VALUE, "v")],
            "IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_KEY is not set or empty",
        ),
        (
            &[(LAYER_DIGEST, digest.as_str()), (ANNOTATION_KEY, "k"), (ANNOTATION_VALUE, "v")],
            "cannot be used together with IMPORTER_REGISTRY_IMAGE_LAYER_ANNOTATION_KEY",
        ),
    ] {
        let mut pod = pod("docker://localhost:1/a", "amd64");
        variables.iter().for_each(|(name, value)| pod.set(name, value));
        pod.run().assert_failure(1, text);
        assert!(pod.message().is_some_and(|message| message.contains(text)), "{:?}", pod.message());
    }
}

fn digest_of(bytes: &[u8]) -> String {
    let sum = String::from_utf8_lossy(&tools::filter("sha256sum", ["-"], bytes)).into_owned();
    format!("sha256:{}", sum.split_whitespace().next().or_fail("a digest"))
}

#[test]
#[ignore = "tools: zstd"]
fn an_export_on_a_web_server_is_imported() {
    let content = disk::content(1, MIB);
    let folder = tempfile::tempdir().or_fail("a folder");
    let layers = vec![ArtifactLayer::kubevirt_disk("rootdisk", &content)];
    let names = write_artifacts(folder.path(), &[Artifact::kubevirt_export(layers)]);
    let tar = tar_layout(folder.path(), &names);
    let server = serve(Script::new(tar.clone()));
    let mut pod = Pod::http(&server.url("/export.oci.tar"), &[]);
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(std::fs::read(pod.disk()).ok(), Some(content));
    // As an archive it is unpacked like any other.
    pod.set("IMPORTER_CONTENTTYPE", "archive");
    pod.assert_succeeds_with(SUCCESS);
    assert!(pod.path("data/index.json").exists());
    let server = serve(Script::new(tar[..tar.len() - 20 * 1024].to_vec()));
    let pod = Pod::http(&server.url("/export.oci.tar"), &[]);
    pod.run().assert_failure(1, "the archive is truncated");
}
