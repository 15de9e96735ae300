//! From arriving bytes to bytes on the disk: the stages of a transfer.
//!
//! ```
//! use inspect::measure_image;
//! use stream::options::{PayloadKind, ReadOptions};
//! use stream::{Error, source::Source};
//!
//! /// Returns the size of the disk in an image of any format and compression. Reads only the head
//! /// if that contains the size.
//! fn disk_bytes(source: &dyn Source) -> Result<u64, Error> {
//!     measure_image(source, PayloadKind::default(), &ReadOptions::default())
//! }
//! ```
//!
//! The example `write_source` implements a source and writes a disk.
//!
//! ```text
//! source ─► meter ─► digest ─► decode ───────► tar, OVA ─► format ──► target ─► verify ─► commit
//! (async)  bytes    sha256…   gzip xz zstd …  one file    raw qcow2  file | block device
//!          in/total           (stack, sniffed)            extents    sparse, aligned,
//!                                                                    first MiB last
//! ```
//!
//! [`mod@transfer`] stacks the stages; start reading there. `format` and [`disk`] are the
//! last two. The first ones are crates of their own, for programs that only read: `stream`,
//! `codec`, `tar` and `inspect`. None has an HTTP client, TLS or Kubernetes code, or reads
//! environment variables.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod check;
pub mod delta;
pub mod disk;
pub mod disk_stream;
mod format;
pub mod lock;
pub mod options;
pub mod restore;
pub mod transfer;
mod unnamed_file;
pub mod unpack;

pub use transfer::transfer_image;
