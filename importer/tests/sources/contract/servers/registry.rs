//! docker-registry, filled by skopeo: the object is the disk of an image with one layer.

use testkit::docker_registry::{Auth, DockerRegistry, PASSWORD, Setup, USER};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::oci::{Compression, Image};
use testkit::tools;

use super::Server;
use crate::place::Place;

/// A plan with faults for the layer of an image. Its configuration, the first blob, arrives well.
pub(super) fn of_blobs(faults: Vec<Fault>) -> Plan {
    Plan {
        matching: |request| request.method == "GET" && request.target.contains("/blobs/"),
        faults: std::iter::once(Fault::None).chain(faults).collect(),
        bytes_per_second: None,
    }
}

/// A registry behind a gateway.
pub(crate) struct Registry {
    gateway: Gateway,
    registry: DockerRegistry,
    is_guarded: bool,
}

impl Registry {
    fn serve(object: &[u8], faults: Vec<Fault>, setup: Setup<'_>, is_guarded: bool) -> Self {
        // Not compressed, so that only the digest reveals a flipped bit.
        let image = Image::of_disk(object, Compression::None);
        let registry = DockerRegistry::start_with(setup, &[("disks/vm:1", &[image])]);
        let gateway = Gateway::start(registry.address(), of_blobs(faults));
        Self { gateway: gateway.or_fail("a gateway"), registry, is_guarded }
    }

    fn reference(&self, name: &str) -> Vec<String> {
        vec![format!("docker://{}/{name}", self.gateway.address())]
    }
}

impl Server for Registry {
    const NAME: &'static str = "registry";
    const CORRUPTION: Option<&'static str> = Some("the source announced sha256:");
    const RANGED: bool = false;

    fn start(object: &[u8], faults: Vec<Fault>) -> Self {
        Self::serve(object, faults, Setup::default(), false)
    }

    fn source(&self) -> Vec<String> {
        self.reference("disks/vm:1")
    }

    fn options(&self, place: &Place) -> Vec<String> {
        let mut options =
            vec!["--insecure".to_owned(), "--architecture".to_owned(), "amd64".to_owned()];
        if self.is_guarded {
            options.extend(place.as_user(USER, PASSWORD));
        }
        options
    }

    fn sent_bytes(&self) -> u64 {
        self.gateway.body_bytes()
    }

    fn missing(&self) -> (Vec<String>, &'static str) {
        (self.reference("disks/vm:2"), "failed to pull image: ")
    }

    fn start_guarded(object: &[u8]) -> Self {
        let setup = Setup { auth: Auth::Basic, ..Setup::default() };
        Self::serve(object, Vec::new(), setup, true)
    }

    fn lock_out(&self) -> (&'static str, &'static str) {
        let line = tools::run("htpasswd", ["-nbB", "-C", "4", USER, "another"]);
        let passwords = self.registry.storage().with_file_name("passwords");
        std::fs::write(passwords, line).or_fail("another password");
        (PASSWORD, "failed to pull image: ")
    }
}
