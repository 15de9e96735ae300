//! All fuzz targets, for one program: a program for each would contain the same code 17 times.
//!
//! `delegate`, `listener`, `node_pull`, `program`, `publisher`, `source` and `upload` contain
//! single files of other crates, as symbolic links in folders of these names. Depending on the
//! crates themselves would add a TLS stack to the build with sanitizers.

#![forbid(unsafe_code)]
// The unit tests of those files belong to their own crates.
#![cfg(not(test))]
// Many functions of those files are not fuzzed, and they are documented for their own crates.
#![allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
// A target fails by a panic.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod array;
mod delegate;
mod http;
pub mod image;
pub mod listener;
pub mod node_pull;
mod pieces;
mod script;
pub mod seal;
pub mod signatures;
pub mod source;
pub mod spread;
pub mod targets;
pub mod transfers;
pub mod upload;

// The linked files expect these names at the root of their crate.
use {
    source::{error, messages, registry, retry, xml},
    targets::publisher,
};

// They also expect these crates, of which they use little.
extern crate self as aws_lc_rs;
extern crate self as program;
extern crate self as rustls;
pub use rustls_pki_types as pki_types;
pub use signatures as signature;
pub use signatures::digest;
#[path = "program/cdi.rs"]
pub mod cdi;
#[path = "program/panics.rs"]
pub mod panics;
#[path = "program/quantity.rs"]
pub mod quantity;
#[path = "program/sockets.rs"]
pub mod sockets;
#[path = "program/threads.rs"]
pub mod threads;

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
