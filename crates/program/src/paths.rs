//! The fixed paths of a pod.
//!
//! The controllers mount volumes at these paths, and the process has no other way to find them.
//! Tests cannot write to these paths, so a variable, `TEST_ROOT_VARIABLE`, moves all of
//! them below one directory.

use std::path::{Path, PathBuf};

use crate::env::NamedStrings;

/// Variable with a directory below which every path of [`PodPaths`] is moved. For tests only; not
/// documented for users.
pub(crate) const TEST_ROOT_VARIABLE: &str = "CDI_WORKERS_TEST_ROOT";

/// The disk image on the target volume in filesystem mode.
pub const DISK_IMAGE: &str = "/data/disk.img";
/// The target device in block mode. The target is in block mode if this path exists.
pub const BLOCK_DEVICE: &str = "/dev/cdi-block-volume";

/// The fixed paths, either below `/` or below a test's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPaths {
    root: PathBuf,
}

impl PodPaths {
    /// Returns the paths below the directory `prefix`, or below `/` if it is `None`.
    pub fn from_prefix(prefix: Option<&str>) -> Self {
        let root = prefix.filter(|prefix| !prefix.is_empty()).unwrap_or("/");
        Self { root: PathBuf::from(root) }
    }

    /// Returns the paths below the directory in `TEST_ROOT_VARIABLE`, or below `/` if it is not
    /// set.
    pub fn from_env(strings: &dyn NamedStrings) -> Self {
        Self::from_prefix(strings.get(TEST_ROOT_VARIABLE).as_deref())
    }

    /// Returns the actual location of the absolute path `fixed`.
    pub fn resolve_path(&self, fixed: &str) -> PathBuf {
        self.root.join(Path::new(fixed).strip_prefix("/").unwrap_or(Path::new(fixed)))
    }

    /// Returns the path of the target volume in filesystem mode.
    pub fn data_path(&self) -> PathBuf {
        self.resolve_path("/data")
    }

    /// Returns the actual path of [`DISK_IMAGE`].
    pub fn disk_image(&self) -> PathBuf {
        self.resolve_path(DISK_IMAGE)
    }

    /// Returns the actual path of [`BLOCK_DEVICE`].
    pub fn block_device(&self) -> PathBuf {
        self.resolve_path(BLOCK_DEVICE)
    }

    /// Returns the path of the scratch volume, if one is mounted.
    pub fn scratch_path(&self) -> PathBuf {
        self.resolve_path("/scratch")
    }

    /// Returns the path of the CA certificates of the cluster's import proxy.
    pub fn proxy_certs(&self) -> PathBuf {
        self.resolve_path("/proxycerts/")
    }

    /// Returns the path of the CA certificates that the administrator of CDI wants every import to
    /// trust.
    pub fn trusted_certs(&self) -> PathBuf {
        self.resolve_path("/trustedcacerts/")
    }

    /// Returns the directory with the certificate and the key of the metrics endpoint.
    pub fn metrics_certs(&self) -> PathBuf {
        self.resolve_path("/etc/prometheus-certs")
    }

    /// Returns the directory of Secrets with extra HTTP headers, which has a directory for each.
    pub fn extra_headers(&self) -> PathBuf {
        self.resolve_path("/extraheaders")
    }

    /// Returns the file whose text the kubelet reports as the reason why a container ended.
    pub fn termination_log(&self) -> PathBuf {
        self.resolve_path("/dev/termination-log")
    }
}
