//! Container images, as CDI's controllers request them.

use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{Auth, DockerRegistry, Setup, TokenIssuer};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::oci::{Compression, Image};
use testkit::origin::Script;

use super::pod::{MIB, Pod, serve};

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

#[test]
fn the_disk_and_the_labels_of_an_image_arrive() {
    let registry = DockerRegistry::start(Setup::default());
    let content = disk::content(1, MIB);
    let image = Image {
        env: vec!["PATH=/bin", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small"],
        ..Image::of_disk(&content, Compression::Gzip)
    };
    registry.push("fedora:40", &[image], &[]);
    let pod = pod(&registry.reference("fedora:40"), "amd64");
    let finished = pod.assert_succeeds_with(
        r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#,
    );
    assert_eq!(std::fs::read(pod.disk()).ok(), Some(content));
    let line = "File 'disk/disk.img' found in the layer";
    assert!(finished.stderr.contains(line), "{}", finished.stderr);
}

#[test]
fn failed_pulls_have_upstreams_messages() {
    let registry = DockerRegistry::start(Setup::default());
    let images = ["amd64", "arm64"].map(|architecture| Image {
        architecture,
        ..Image::of_disk(&disk::content(1, MIB), Compression::Gzip)
    });
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
fn a_password_goes_to_a_foreign_token_service_only_if_it_is_named() {
    let issuer = TokenIssuer::new();
    let service = serve(Script::new(issuer.grant("a/b")));
    let realm = service.url("/token").replace("127.0.0.1", "localhost");
    let images = [Image::of_disk(&disk::content(1, MIB), Compression::None)];
    let setup = Setup { auth: Auth::Token(&issuer, &realm), ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("a/b:1", &images)]);
    let mut pod = pod(&registry.reference("a/b:1"), "amd64");
    for (name, value) in [("IMPORTER_ACCESS_KEY_ID", "joe"), ("IMPORTER_SECRET_KEY", "hidden")] {
        pod.env.push((name.to_owned(), value.to_owned()));
    }
    pod.assert_fails_with(&format!(
        "{PREFIX}failed to pull image: reading manifest 1 in {}/a/b: the registry 127.0.0.1 wants its password to be sent to \
         the token service localhost, which is not known to belong to it: name it in IMPORTER_TOKEN_SERVICES if it does",
        registry.address()
    ));
    assert!(service.requests().is_empty(), "{:?}", service.requests());
    let services = "auth.example.org, localhost".to_owned();
    pod.env.push(("IMPORTER_TOKEN_SERVICES".to_owned(), services));
    pod.run().assert_success("named");
}

#[test]
fn a_corrupted_layer_is_reported_as_a_failed_pull() {
    let registry = DockerRegistry::start(Setup::default());
    let images = [Image::of_disk(&disk::content(1, 4 * MIB), Compression::None)];
    registry.push("a", &images, &["--preserve-digests"]);
    let plan = Plan {
        matching: |request| request.path().contains("/blobs/"),
        // The configuration is the first blob.
        faults: vec![Fault::None, Fault::Corrupt(2 * MIB)],
        ..Plan::default()
    };
    let tls = Authority::new().and_then(|authority| authority.server_config());
    let gateway = Gateway::start_tls(registry.address(), plan, tls.or_fail("TLS")).or_fail("a gateway");
    let pod = pod(&format!("docker://{}/a", gateway.address()), "amd64");
    pod.run().assert_failure(1, "the source announced sha256:");
    let message = pod.message().or_fail("a message");
    assert!(message.starts_with("Unable to process data: "), "{message}");
    assert_eq!(message.matches("failed to pull image: ").count(), 1, "{message}");
    assert!(!pod.disk().exists(), "a disk was left behind");
}
