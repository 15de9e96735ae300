//! Imports of container images and artifacts, in a place of their own.

use std::ops::Deref;
use std::path::Path;

use testkit::docker_registry::{PASSWORD, USER};
use testkit::gateway::Gateway;
use testkit::oci::{Image, write_layout};
use testkit::process::Program;

use crate::place::Place;
pub(crate) use crate::place::{IMAGE_REFUSED, MIB, SOURCE_FAILED, UNTRUSTED, USAGE};

/// A place for imports for amd64, so that the tests do not depend on the machine.
pub(crate) struct Scene(Place);

impl Deref for Scene {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self(Place::new())
    }

    /// `import` of `reference`, without verified certificates; plain HTTP is allowed too.
    pub(crate) fn import(&self, reference: &str) -> Program {
        self.import_for(reference, "amd64")
    }

    /// Like `import`, for another architecture.
    pub(crate) fn import_for(&self, reference: &str, architecture: &str) -> Program {
        let program = self.0.import(reference).args(["--architecture", architecture]);
        // The option is refused for local files, such as a layout and its tar.
        if reference.starts_with("oci") { program } else { program.arg("--insecure") }
    }

    /// `import` of `reference` over verified TLS.
    pub(crate) fn strict_import(&self, reference: &str) -> Program {
        self.0.import(reference).args(["--architecture", "amd64"])
    }

    /// The options with name and password of the registry's user.
    pub(crate) fn as_registry_user(&self) -> [String; 4] {
        self.as_user(USER, PASSWORD)
    }

    /// A layout of these images, and its reference.
    pub(crate) fn layout(&self, name: &str, images: &[Image]) -> String {
        write_layout(&self.path(name), images);
        directory(&self.path(name))
    }
}

/// The reference of the image `name` behind a gateway.
pub(crate) fn behind(gateway: &Gateway, name: &str) -> String {
    format!("docker://{}/{name}", gateway.address())
}

/// The reference of a layout.
pub(crate) fn directory(path: &Path) -> String {
    format!("oci:{}", path.display())
}

/// The reference of an archive.
pub(crate) fn archive(path: &Path) -> String {
    format!("oci-archive:{}", path.display())
}
