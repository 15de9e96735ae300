//! Undoes compression: a stack of pull decoders that is found by looking at the bytes.
//!
//! ```text
//!  source ──► Peek ─ sniff: gzip ─► Decoder ──► Peek ─ sniff: xz ─► Decoder ──► Peek ─ sniff: none
//! ```
//!
//! Names, suffixes and content types are never trusted; [`sniff_codec`] decides from the first bytes, and a
//! stream that begins like no known codec is handed on as it is. Each layer holds its window and a few
//! output chunks of 256 KiB, whatever the stream expands to (xz with several threads: up to two windows and
//! 20 MiB), and reports its end only when every checksum in it matched and nothing foreign follows.
//!
//! A file per codec says what is particular to it (the trait `DecoderEngine`); the loop that they share, with the
//! checks of what follows a member, is in `decoder.rs`.

mod bzip2;
mod decoder;
mod expansion_budget;
mod gzip;
pub(crate) mod snappy;
mod sniff;
mod stack;
#[cfg(test)]
mod tests;
mod xz;
pub(crate) mod zstd;

pub use self::sniff::{SNIFF_BYTES, check_supported, sniff_codec};
pub(crate) use self::stack::decode_input;
pub use self::stack::{DecodedStream, MAX_LAYERS, open_layers};
pub use crate::codec::{CONTENT_CODINGS, Codec};
pub use crate::options::DecodeLimits;
