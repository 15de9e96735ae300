//! Pure parsers of disk image formats: bytes in, extents out.
//!
//! No I/O, no async, no `unsafe`, no C codec. The same state machine serves a body that arrives once, a source
//! with random ranges, a fuzzer and a unit test. Nothing here ever opens a second file: an image that refers to
//! one is refused with an [`Error`] that names it.
//!
//! An [`Image`] is opened by its head. [`ImageStream`] takes its bytes in file order and emits the guest's, in two ways:
//!
//! * **ranged**: [`MapBuilder`] is given the image's tables first; then every byte's place is known before it comes,
//!   and what nothing maps need not be fetched;
//! * **one pass**: the tables are used as they pass. What nothing maps yet is handed to [`GuestSink::park_unit`] until its
//!   mapping arrives, or no table is left that could ask for it.
//!
//! The particulars of each format stand in its `Layout`, a module each. Places on the disk and places in the image are two types,
//! [`Guest`] and [`Host`].

#![forbid(unsafe_code)]

pub mod bytes_at;
mod check;
mod clusters;
mod detect;
mod error;
mod findings;
mod format;
mod image;
mod last_block_end;
mod layout;
mod memory;
mod offsets;
mod open;
pub mod qcow2;
mod stream;
mod tables;
mod text;
mod trailer;
mod vdi;
pub mod vhd;
mod vhdx;
mod vmdk;
mod wanted_ranges;

pub use check::ImageChecker;
pub use clusters::{ClusterCompression, CompressedClusters};
pub use detect::DETECT_BYTES;
pub use error::Error;
pub use findings::Findings;
pub use format::Format;
pub use image::{HEAD_BYTES, HeadFacts, Image, MAX_HEAD_BYTES};
pub use memory::{ImageMemory, ImageMemoryLimit};
pub use offsets::{Guest, Host};
pub use stream::ImageStream;
pub use stream::builder::MapBuilder;
pub use stream::sink::GuestSink;
pub use tables::{TableConsumer, TableRange};
pub use trailer::{TRAILER_BYTES, TrailerKind};
