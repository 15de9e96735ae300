//! The headers by which a cloner and an upload server understand each other.

/// What the body of an upload is: [`DEVICE`], [`FILES`], or without it an image.
pub const CONTENT_HEADER: &str = "x-cdi-content-type";

/// The bytes of a volume's device.
pub const DEVICE: &str = "blockdevice-clone";

/// A tar of a volume's files.
pub const FILES: &str = "filesystem-clone";

/// Ours: in a HEAD and in the answer to it the encodings that a clone may come in beside CDI's, and in a request the one that it
/// comes in. No program of CDI sends it.
pub const ENCODING_HEADER: &str = "x-cdi-workers-clone";

/// [`datapath::frames`].
pub const FRAMES: &str = "frames-1";
