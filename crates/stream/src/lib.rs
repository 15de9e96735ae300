//! Bytes on their way from a source to a disk, and what every stage of a transfer needs.
//!
//! ```text
//! Source ─► SourceBody ─► meter ─► digest ─► ChunkStream
//! (async)   bridge        bytes    sha256…   chunks of 256 KiB
//! ```
//!
//! A source implements the traits in [`source`]. [`meter`] counts, hashes and limits its bytes,
//! and [`observe`] reports them. [`error`] has the errors of all stages, and [`memory`] the budget
//! that they share. The crate knows no codec, no format and no protocol, and reads no environment
//! variables.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bridge;
pub mod buffer;
pub mod changes;
pub mod chunks;
pub mod codec;
pub mod copier;
pub mod cursor;
pub mod digest;
pub mod error;
pub mod facts;
pub mod local;
pub mod marks;
pub mod memory;
pub mod meter;
pub mod min_speed;
pub mod observe;
pub mod options;
pub mod prefix_crc;
pub mod queue;
pub mod source;
mod stage;
#[cfg_attr(not(target_os = "linux"), path = "storage_unknown.rs")]
pub mod storage;
pub mod zeros;

pub use error::Error;
