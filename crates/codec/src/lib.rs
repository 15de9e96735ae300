//! Compression: [`decode`] removes the layers around an image, and [`encode`] compresses what
//! programs send to each other.
//!
//! ```text
//! Source ─► decode ──────────► TransferInput        disk ─► encode ─► pieces of a request
//!           gzip xz zstd …     (stream, ranges)             zstd, snappy, qcow2
//!           (stack, sniffed)
//! ```
//!
//! The crate does not know what the bytes mean: archives are in `tar`, images in `inspect`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod decode;
pub mod encode;
pub mod inflate;
pub mod input;
