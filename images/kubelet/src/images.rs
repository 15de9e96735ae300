//! The images' archives, loaded into podman's storage.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use testkit::fail::OrFail;
use testkit::tools;

use crate::podman;

/// One of our images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// `cdi-importer`.
    Importer,
    /// `cdi-uploadserver`.
    UploadServer,
    /// `cdi-uploadproxy`.
    UploadProxy,
    /// `cdi-cloner`.
    Cloner,
    /// `cdi-importer-vddk`: the importer with nbdkit.
    ImporterVddk,
}

impl Image {
    /// All images.
    pub const ALL: [Self; 5] =
        [Self::Importer, Self::UploadServer, Self::UploadProxy, Self::Cloner, Self::ImporterVddk];

    /// The image's name, also used in the name of its archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Importer => "cdi-importer",
            Self::UploadServer => "cdi-uploadserver",
            Self::UploadProxy => "cdi-uploadproxy",
            Self::Cloner => "cdi-cloner",
            Self::ImporterVddk => "cdi-importer-vddk",
        }
    }

    /// The program that its entry point runs.
    pub fn program(self) -> &'static str {
        match self {
            Self::ImporterVddk => Self::Importer.name(),
            image => image.name(),
        }
    }

    /// The archive that `images/build.sh` made for this machine's architecture. Fails the test if
    /// it is missing.
    pub fn archive(self) -> PathBuf {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/images");
        let archive = folder.join(format!("{}-{architecture}.oci.tar", self.name()));
        assert!(
            archive.exists(),
            "{} is not there: run images/build.sh --profile dev",
            archive.display()
        );
        archive
    }

    /// The image's ID in podman.
    pub fn id(self) -> &'static str {
        static IDS: [OnceLock<String>; Image::ALL.len()] =
            [const { OnceLock::new() }; Image::ALL.len()];
        let place = Self::ALL.iter().position(|image| *image == self).or_fail("an image");
        IDS[place].get_or_init(|| load(&self.archive()))
    }
}

/// Builds an image from the Containerfile in `folder`, which may be based on our images. Returns
/// the image's ID.
pub fn build(folder: &Path) -> String {
    let folder = folder.display().to_string();
    // With a fixed time stamp, the same files give the same image, which is stored only once.
    let words = ["build", "--quiet", "--pull-never", "--timestamp=0", &folder];
    let printed = tools::run("podman", podman::words(&words));
    printed.trim().to_owned()
}

/// Loads an OCI archive into podman's storage and returns the image's ID.
pub fn load(archive: &Path) -> String {
    let source = format!("oci-archive:{}", archive.display());
    let printed = tools::run("podman", podman::words(&["pull", "--quiet", &source]));
    printed.trim().to_owned()
}
