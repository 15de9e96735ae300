//! Everything between "bytes arrive" and "bytes are on the disk".
//!
//! ```text
//!  source ──► meter ─► digest ─► decode ────────► (tar, OVA) ─► format ───► target ─► verify ─► commit
//!  (async)    bytes    sha256…   gzip xz zstd …   one file      raw qcow2   file | block device
//!             in/total           (stack, sniffed)               extents     sparse, aligned, first MiB last
//! ```
//!
//! One noun per stage: [`source`], [`decode`], [`mod@format`], [`disk`]. [`mod@transfer`] stacks them.
//! The crate knows no HTTP client, no TLS, no Kubernetes and no environment variable.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod archive;
pub mod bridge;
pub mod buffer;
pub mod changes;
pub mod check;
pub mod chunks;
mod codec;
mod cursor;
pub mod decode;
pub mod delta;
pub mod digest;
pub mod disk;
pub mod encode;
pub mod error;
pub mod facts;
pub mod floor;
pub mod format;
mod input;
pub mod inspect;
pub mod local;
mod lock;
pub mod memory;
pub mod meter;
pub mod observe;
pub mod options;
pub mod pack;
mod queue;
pub mod source;
pub mod storage;
pub mod transfer;
pub mod zeros;

pub use error::Error;
pub use transfer::transfer_image;
