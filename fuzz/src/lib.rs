//! All fuzz targets, for one program: a program for each would contain the same code 18 times.

#![forbid(unsafe_code)]
#![allow(missing_docs, unreachable_pub, reason = "a target is documented at the head of its file")]
// A target fails by a panic.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod array;
mod http;
pub mod image;
mod pieces;
mod script;
pub mod seal;
pub mod spread;
pub mod targets;
pub mod transfers;

pub use array::Array;
pub use http::{runtime, serve};
pub use pieces::Pieces;
pub use script::Script;

/// Fails unless `text` is safe in logs: one line, without control characters, and of bounded
/// length.
#[track_caller]
pub fn assert_sentence(text: &str) {
    const MAX_CHARS: usize = 2100;
    assert_eq!(text, printable::escape_text(text));
    assert!(text.chars().count() <= MAX_CHARS, "a message of {} bytes", text.len());
}
