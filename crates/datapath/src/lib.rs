//! From arriving bytes to bytes on the disk: the stages of a transfer.
//!
//! ```
//! use datapath::options::{PayloadKind, ReadOptions};
//! use datapath::{Error, inspect::measure_image, source::Source};
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
//! One module per stage: [`source`], [`decode`], [`mod@format`] and [`disk`]. [`mod@transfer`]
//! stacks them; start reading there. The crate has no HTTP client, no TLS and no Kubernetes code,
//! and reads no environment variables.
//!
//! Without the feature `targets` the crate only reads: it inspects images and encodes streams, but
//! cannot write disks or unpack archives. Programs that run on a user's machine use it in this
//! way.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(
    not(feature = "targets"),
    expect(dead_code, reason = "helpers of the writers and of the readers share modules")
)]

pub mod archive;
pub mod bridge;
pub mod buffer;
pub mod changes;
#[cfg(feature = "targets")]
pub mod check;
pub mod checkpoints;
pub mod chunks;
mod codec;
mod cursor;
pub mod decode;
#[cfg(feature = "targets")]
pub mod delta;
pub mod digest;
#[cfg(feature = "targets")]
pub mod disk;
#[cfg(feature = "targets")]
pub mod disk_stream;
pub mod encode;
pub mod error;
pub mod facts;
pub mod format;
pub mod inflate;
mod input;
pub mod inspect;
pub mod local;
#[cfg(feature = "targets")]
mod lock;
pub mod marks;
pub mod memory;
pub mod meter;
pub mod min_speed;
pub mod observe;
pub mod options;
pub mod pack;
mod queue;
#[cfg(feature = "targets")]
pub mod restore;
pub mod source;
#[cfg_attr(not(target_os = "linux"), path = "storage_unknown.rs")]
pub mod storage;
#[cfg(feature = "targets")]
pub mod transfer;
#[cfg(feature = "targets")]
mod unnamed_file;
pub mod zeros;

pub use error::Error;
#[cfg(feature = "targets")]
pub use transfer::transfer_image;
