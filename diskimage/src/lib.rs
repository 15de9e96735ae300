//! Pure parsers of disk image formats: bytes in, extents out.
//!
//! No I/O, no async, no `unsafe`, no C codec. The same state machine serves a body that arrives once, a source
//! with random ranges, a fuzzer and a unit test. Nothing here ever opens a second file: an image that refers to
//! one is refused with an [`Error`] that names it.
//!
//! An [`Image`] is opened by its head. [`Stream`] takes its bytes in file order and emits the guest's, in two ways:
//!
//! * **ranged**: [`MapBuilder`] is given the image's tables first; then every byte's place is known before it comes,
//!   and what nothing maps need not be fetched;
//! * **one pass**: the tables are used as they pass. What nothing maps yet is handed to [`Sink::park`] until its
//!   mapping arrives, or nobody can ask for it any more.
//!
//! What differs from format to format stands in its `Layout`, a module each.

#![forbid(unsafe_code)]

pub mod bytes_at;
mod check;
mod clusters;
mod detect;
mod error;
mod format;
mod image;
mod layout;
mod memory;
pub mod qcow2;
mod reach;
mod stream;
mod text;
mod trailer;
mod vdi;
pub mod vhd;
mod vhdx;
mod vmdk;
mod wants;

pub use check::{Checker, Findings, Tables};
pub use clusters::{Clusters, Compression};
pub use detect::DETECT_BYTES;
pub use error::Error;
pub use format::Format;
pub use image::{Facts, HEAD_BYTES, Image, MAX_HEAD_BYTES};
pub use memory::{AtMost, Memory};
pub use stream::{MapBuilder, Sink, Stream, TableRange};
pub use trailer::{TRAILER_BYTES, Trailer};

/// The largest length of a file, as QEMU has it (`BDRV_MAX_LENGTH`): 2^63 less a GiB.
const MAX_OFFSET: u64 = (1 << 63) - (1 << 30);
