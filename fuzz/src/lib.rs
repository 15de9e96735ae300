//! What the fuzz targets share.
//!
//! `delegate`, `listener`, `node_pull`, `source` and `upload` are single files of other crates, which lie in folders of these names by links: the
//! crates themselves would bring a TLS stack into the build with sanitizers.

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

// Where the linked files look for them: at the root of their own crate.
#[allow(unused_imports)]
use source::{messages, retry, xml};

pub use array::Array;
pub use http::{runtime, serve};
pub use pieces::Pieces;
pub use script::Script;

/// Fails unless `text` may be repeated in logs: on one line, without characters that draw, and of bounded length.
#[track_caller]
pub fn assert_sentence(text: &str) {
    const MAX_CHARS: usize = 2100;
    assert_eq!(text, printable::escape_text(text));
    assert!(text.chars().count() <= MAX_CHARS, "{} bytes of sentence", text.len());
}
