//! The digest of what a reference names, for whoever wants to know whether there is something new.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sources::access::Access;
use sources::policy::Policy;
use sources::proxy::ProxyConfig;
use sources::registry::resolve_digest;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::oci::{Compression, Image};
use testkit::tools;
use tokio_util::sync::CancellationToken;

use super::scene::MIB;

fn access() -> Access {
    Access {
        credentials: None,
        tls: Arc::new(daemon::tls::insecure_client_config().or_fail("TLS")),
        insecure: true,
        proxy: ProxyConfig::default(),
        connections: NonZeroUsize::MIN,
        no_progress_limit: Duration::from_secs(60),
        retries: None,
        policy: Policy::default(),
        is_checked: false,
    }
}

#[test]
fn it_is_that_of_the_manifest_or_index_as_served() {
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
        let handle = runtime.handle().clone();
        let digest = resolve_digest(&reference, &access(), handle, CancellationToken::new()).or_fail(name);
        let words = [
            "inspect",
            "--tls-verify=false",
            "--format",
            "{{.Digest}}",
            &reference,
        ];
        assert_eq!(digest, tools::run("skopeo", words).trim(), "{name}");
    }
}
