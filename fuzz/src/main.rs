//! All fuzz targets in one program: a program for each would contain the same code 17 times. The
//! variable `FUZZ_TARGET` names the target.
//!
//! `delegate`, `listener`, `node_pull`, `program`, `publisher`, `source` and `upload` contain single
//! files of other crates, as symbolic links in folders of these names. Depending on the crates
//! themselves would add a TLS stack to the build with sanitizers.

#![no_main]
// Many functions of those files are not fuzzed.
#![allow(dead_code)]

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
mod targets;
pub mod transfers;
pub mod upload;

// The linked files expect these names at the root of their crate.
#[allow(unused_imports)]
use source::{error, messages, registry, retry, xml};

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

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

pub use array::Array;
pub use http::{runtime, serve};
pub use pieces::Pieces;
pub use script::Script;

/// The parsers of the crate `sources` for evidence of publishers.
#[allow(unused_imports)]
pub mod publisher {
    mod key;
    mod openpgp;
    mod signer;
    mod sums;

    use datapath::digest::Checksum;

    pub use self::key::PublisherKey;
    pub use self::openpgp::Keyring;
    use self::openpgp::{ClearSigned, DetachedSignature, is_clear_signed};
    pub use self::signer::{ImageSigner, SignatureForm, SignedDocument};

    /// Returns the checksum of the image `name` in a list.
    pub fn checksum(list: &str, name: &str) -> Result<Checksum, String> {
        sums::find_checksum(list, &[name]).map_err(|error| error.to_string())
    }

    /// Returns the fingerprint of the key that has signed `document`.
    pub fn signer(signature: &[u8], document: &[u8], keyring: &Keyring) -> Result<String, String> {
        DetachedSignature::parse(signature)
            .and_then(|signature| signature.verify(document, keyring))
            .map_err(|error| error.to_string())
    }

    /// Returns the text of a clear-signed document, and the fingerprint of the key that signed it.
    /// `None` for other documents.
    pub fn clear_signed(
        document: &str,
        keyring: &Keyring,
    ) -> Option<Result<(String, String), String>> {
        let read = || {
            let signed = ClearSigned::parse(document)?;
            let signer = signed.verify(keyring)?;
            Ok((signed.text(), signer))
        };
        is_clear_signed(document)
            .then(|| read().map_err(|error: openpgp::OpenPgpError| error.to_string()))
    }
}

/// Fails unless `text` is safe in logs: one line, without control characters, and of bounded
/// length.
#[track_caller]
pub fn assert_sentence(text: &str) {
    const MAX_CHARS: usize = 2100;
    assert_eq!(text, printable::escape_text(text));
    assert!(text.chars().count() <= MAX_CHARS, "a message of {} bytes", text.len());
}

/// The target that the environment names.
static TARGET: LazyLock<targets::FuzzTarget> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").expect("the variable FUZZ_TARGET");
    let found = targets::TARGETS.iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("no fuzz target {wanted}")).1
});

fuzz_target!(|data: &[u8]| TARGET(data));
