//! Archives of images, in podman's storage.

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
    /// `cdi-importer-vddk`: the importer's, with nbdkit.
    ImporterVddk,
}

impl Image {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Importer, Self::UploadServer, Self::UploadProxy, Self::Cloner, Self::ImporterVddk];

    /// As in the name of its archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Importer => "cdi-importer",
            Self::UploadServer => "cdi-uploadserver",
            Self::UploadProxy => "cdi-uploadproxy",
            Self::Cloner => "cdi-cloner",
            Self::ImporterVddk => "cdi-importer-vddk",
        }
    }

    /// The program behind its entry point.
    pub fn program(self) -> &'static str {
        match self {
            Self::ImporterVddk => Self::Importer.name(),
            image => image.name(),
        }
    }

    /// The archive that `images/build.sh` made for this machine. Fails the test if there is none.
    pub fn archive(self) -> PathBuf {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/images");
        let archive = folder.join(format!("{}-{architecture}.oci.tar", self.name()));
        assert!(archive.exists(), "{} is not there: run images/build.sh --profile dev", archive.display());
        archive
    }

    /// The name that podman has for it.
    pub fn id(self) -> &'static str {
        static IDS: [OnceLock<String>; Image::ALL.len()] = [const { OnceLock::new() }; Image::ALL.len()];
        let place = Self::ALL.iter().position(|image| *image == self).or_fail("an image");
        IDS[place].get_or_init(|| load(&self.archive()))
    }
}

/// Builds an image from the Containerfile in `folder`, which may name ours; returns what podman calls it.
pub fn build(folder: &Path) -> String {
    let folder = folder.display().to_string();
    // The same files are the same image, which is kept once.
    let words = ["build", "--quiet", "--pull-never", "--timestamp=0", &folder];
    let printed = tools::run("podman", podman::words(&words));
    printed.trim().to_owned()
}

/// Takes an OCI archive into podman's storage; returns what podman calls the image.
pub fn load(archive: &Path) -> String {
    let source = format!("oci-archive:{}", archive.display());
    let printed = tools::run("podman", podman::words(&["pull", "--quiet", &source]));
    printed.trim().to_owned()
}
