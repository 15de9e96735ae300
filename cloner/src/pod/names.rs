//! The flags and variables of the cloner's pod. In CDI, a start-up script turns the variables into
//! flags.

/// The volume mode, `block` or `filesystem`. If this variable is set and the program has no
/// arguments, it runs as a pod.
pub const MODE_VARIABLE: &str = "VOLUME_MODE";

/// The URL of the upload server.
pub(super) const URL_VARIABLE: &str = "UPLOAD_URL";

/// True if the target's space is fully allocated, so that holes need not be preserved.
pub(super) const PREALLOCATION_VARIABLE: &str = "PREALLOCATION";

pub(super) const CONTENT_TYPE_FLAG: &str = "content-type";
pub(super) const UPLOAD_BYTES_FLAG: &str = "upload-bytes";
pub(super) const MOUNT_FLAG: &str = "mount";
