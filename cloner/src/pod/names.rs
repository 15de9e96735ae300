//! The flags and variables of the cloner's pod, which its start-up script translates into each other.

/// `block` or `filesystem`. Its presence, without any argument, makes the process a pod.
pub const MODE_VARIABLE: &str = "VOLUME_MODE";

/// True if the target's space is allocated: then holes need not stay holes.
pub(super) const PREALLOCATION_VARIABLE: &str = "PREALLOCATION";

pub(super) const CONTENT_TYPE_FLAG: &str = "content-type";
pub(super) const UPLOAD_BYTES_FLAG: &str = "upload-bytes";
pub(super) const MOUNT_FLAG: &str = "mount";
