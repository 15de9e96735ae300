//! Decompresses streams with a stack of pull decoders. The layers are detected from the content.
//!
//! ```text
//! source ──► Peek ─ sniff: gzip ─► Decoder ──► Peek ─ sniff: xz ─► Decoder ──► Peek ─ sniff: none
//! ```
//!
//! Names, suffixes and content types are never trusted. [`sniff_codec`] decides from the first
//! bytes, and a stream that begins like none of the supported codecs is passed through unchanged.
//! Each layer holds its window and a few output chunks of 256 KiB, regardless of the decompressed
//! size (xz with several threads: up to two windows and 20 MiB). A layer reports the end of its
//! stream only if all checksums match and no foreign data follows.
//!
//! Each codec has a file with its specifics, as an implementation of the trait `DecoderEngine`.
//! The loop that all codecs share, including the checks of the data after a member, is in
//! `decoder.rs`.

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

pub use stream::codec::{CONTENT_CODINGS, Codec};
pub use stream::options::DecodeLimits;

pub use self::sniff::{SNIFF_BYTES, check_supported, sniff_codec};
pub use self::stack::{DecodedStream, MAX_LAYERS, new_decoder, open_layers};
pub use self::stack::{decode_file, decode_input};
