//! The digest of an image, by which a caller notices that a reference names a new one.

use std::sync::Arc;
use std::time::Duration;

use sources::registry::resolve_digest;
use sources::{Network, RetryPolicy};
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::oci::{Compression, Image};
use testkit::tools;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::scene::MIB;

fn network(handle: Handle) -> Arc<Network> {
    let tls = Arc::new(https::tls::insecure_client_config().or_fail("TLS"));
    Arc::new(Network {
        insecure: true,
        patience: RetryPolicy {
            no_progress_limit: Duration::from_secs(60),
            contact_limit: Duration::from_secs(3),
            ..RetryPolicy::default()
        },
        ..Network::new(handle, CancellationToken::new(), tls)
    })
}

#[test]
#[ignore = "server: docker-registry"]
fn the_digest_is_that_of_the_manifest_or_index_as_served() {
    let registry = DockerRegistry::start(Setup::default());
    let images = ["amd64", "arm64"].map(|architecture| Image {
        architecture,
        ..Image::of_disk(&disk::content(1, MIB), Compression::Gzip)
    });
    registry.push("one", &images[..1], &[]);
    registry.push("index", &images, &["--all"]);
    registry.push("list", &images, &["--all", "--format", "v2s2"]);
    let runtime = tokio::runtime::Runtime::new().or_fail("a runtime");
    for name in ["one", "index", "list"] {
        let reference = registry.reference(name);
        let digest = resolve_digest(&reference, &network(runtime.handle().clone())).or_fail(name);
        let words = ["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &reference];
        assert_eq!(digest, tools::run("skopeo", words).trim(), "{name}");
    }
}
