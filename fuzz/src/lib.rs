//! Code that the fuzz targets share.
//!
//! `delegate`, `listener`, `node_pull`, `source` and `upload` contain single files of other
//! crates, as symbolic links in folders of these names. Depending on the crates themselves would
//! add a TLS stack to the build with sanitizers.

mod array;
mod delegate;
mod http;
pub mod image;
#[allow(dead_code)]
pub mod listener;
#[allow(dead_code)]
pub mod node_pull;
mod pieces;
mod script;
pub mod seal;
#[allow(dead_code)]
pub mod source;
pub mod spread;
#[allow(dead_code)]
pub mod upload;

// The linked files expect these names at the root of their crate.
#[allow(unused_imports)]
use source::{error, messages, retry, xml};

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
