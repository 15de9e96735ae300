//! Pure parsers of disk image formats: bytes in, extents out.
//!
//! No I/O, no async, no `unsafe`, no C codec. The same state machine serves a body that arrives once, a source
//! with random ranges, a fuzzer and a unit test. Nothing here ever opens a second file: an image that refers to
//! one is refused with an [`Error`] that names it.

#![forbid(unsafe_code)]

pub mod bytes_at;
mod error;
mod format;
pub mod qcow2;

pub use error::Error;
pub use format::{DETECT_BYTES, Format};
