//! Pure parsers of disk image formats: image bytes in, guest extents out.
//!
//! ```
//! use diskimage::{Error, Format, HEAD_BYTES, Image};
//!
//! /// Returns the size of the disk in a qcow2 image, from the first bytes of the file.
//! fn disk_bytes(file: &[u8]) -> Result<u64, Error> {
//!     let head = &file[..file.len().min(HEAD_BYTES)];
//!     Ok(Image::open(Format::Qcow2, head)?.head_facts().virtual_size)
//! }
//! assert!(disk_bytes(b"QFI\xfb, but not the rest of a header").is_err());
//! ```
//!
//! The examples `convert_in_memory` and `write_layout` convert a whole image and add a format.
//!
//! There is no I/O, no async, no `unsafe` and no C codec here. The same state machine serves a
//! body that arrives once, a source with random access, a fuzzer and a unit test. The crate never
//! opens a second file: an image that refers to one is refused with an [`Error`] that names it.
//!
//! [`Image::open`] reads the head of an image. [`ImageStream`] then takes the image's bytes in
//! file order and emits the guest's bytes, in one of two modes:
//!
//! * **ranged**: [`MapBuilder`] gets the image's tables first. The guest offset of every byte is
//!   then known in advance, and unmapped bytes need not be fetched.
//! * **one pass**: tables are used as they arrive. Bytes that no table maps yet are handed to
//!   [`GuestSink::park_unit`] until their mapping arrives, or until no remaining table could refer
//!   to them.
//!
//! [`ImageChecker`] checks the consistency of an image without converting it.
//! [`qcow2::Qcow2Writer`] is the other direction: it writes a disk as an image.
//!
//! Each format is a module of its own that implements the trait [`layout::ImageLayout`]. Offsets on
//! the guest's disk and offsets in the image are two types, [`Guest`] and [`Host`].

#![forbid(unsafe_code)]

pub mod bytes_at;
mod check;
mod detect;
mod error;
mod findings;
mod format;
mod image;
mod last_block_end;
pub mod layout;
mod memory;
mod offsets;
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
pub use detect::DETECT_BYTES;
pub use error::Error;
pub use findings::Findings;
pub use format::Format;
pub use image::{ClusterCompression, CompressedClusters, HEAD_BYTES, HeadFacts, Image};
pub use memory::{ImageMemory, ImageMemoryLimit, MAX_HEAD_BYTES};
pub use offsets::{Guest, Host};
pub use stream::ImageStream;
pub use stream::builder::MapBuilder;
pub use stream::chain::{ChainMap, ClippedClusters};
pub use stream::guest_order::{GuestOrderMap, GuestRange};
pub use stream::sink::GuestSink;
pub use tables::{TableConsumer, TableRange};
pub use trailer::{TRAILER_BYTES, TrailerKind};
