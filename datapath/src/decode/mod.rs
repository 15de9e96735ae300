//! Undoes compression: a stack of pull decoders that is found by looking at the bytes.
//!
//! ```text
//!  source ──► Peek ─ sniff: gzip ─► Decoder ──► Peek ─ sniff: xz ─► Decoder ──► Peek ─ sniff: none
//! ```
//!
//! Names, suffixes and content types are never trusted; [`sniff`] decides from the first bytes, and a
//! stream that begins like no known codec is handed on as it is. Each layer holds its window and a few
//! output chunks of 256 KiB, whatever the stream expands to (xz with several threads: up to two windows and
//! 20 MiB), and reports its end only when every checksum in it matched and nothing foreign follows.
//!
//! A file per codec says what is particular to it (the trait `Engine`); the loop that they share, with the
//! checks of what follows a member, is in `decoder.rs`.

mod bzip2;
mod decoder;
mod frames;
mod gzip;
pub(crate) mod input;
pub(crate) mod snappy;
mod sniff;
mod spent;
#[cfg(test)]
mod tests;
mod xz;
mod zstd;

use std::fmt;
use std::num::NonZeroUsize;

use crate::chunks::{Chunks, Peek};
use crate::error::{DecodeError, Error};
use crate::memory::Budget;

use self::decoder::Decoder;
pub use self::sniff::{SNIFF_BYTES, check_supported, sniff};
use self::spent::Spent;

/// How many compressed layers may lie inside each other. Real images have one, now and then two; every
/// layer multiplies what a few hostile bytes cost.
pub const MAX_LAYERS: usize = 4;

/// A compression format that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 1952, any number of members, zero padding at the end.
    Gzip,
    /// The .xz file format 1.2, any number of streams with stream padding.
    Xz,
    /// RFC 8878, any number of frames and skippable frames.
    Zstd,
    /// bzip2, any number of streams.
    Bzip2,
    /// The snappy framing format. Never sniffed: clones of CDI come in it, and say so.
    Snappy,
    /// [`crate::frames`]. Never sniffed either: the two programs agree on it.
    Frames,
}

/// What HTTP calls codecs (`Content-Encoding`), as far as [`sniff`] recognises them: they need not be undone on the way.
pub const CONTENT_CODINGS: [&str; 5] = ["gzip", "x-gzip", "zstd", "bzip2", "xz"];

impl Codec {
    /// The name that messages, logs and metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Snappy => "snappy",
            Self::Frames => "frames",
        }
    }

    /// Decodes `inner`, which should begin with what [`sniff`] recognised as this codec, or be known to be in it.
    ///
    /// The decoder's errors are [`Error::Decode`]; those of `inner` pass through unchanged. After an error
    /// the decoder must not be pulled again.
    pub fn decoder(self, inner: Box<dyn Chunks>, limits: &Limits) -> Box<dyn Chunks> {
        match self {
            Self::Gzip => Box::new(Decoder::<gzip::Gzip>::new(inner, limits)),
            Self::Xz => xz::decoder(inner, limits),
            Self::Zstd => Box::new(Decoder::<zstd::Zstd>::new(inner, limits)),
            Self::Bzip2 => Box::new(Decoder::<bzip2::Bzip2>::new(inner, limits)),
            Self::Snappy => Box::new(Decoder::<snappy::Snappy>::new(inner, limits)),
            Self::Frames => Box::new(frames::Frames::new(inner)),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What all layers of a stack may cost together.
#[derive(Debug, Clone)]
pub struct Limits {
    /// What windows (zstd) and dictionaries (xz) are taken from. Asked for by the stream's own header, before the memory
    /// is taken.
    pub memory: Budget,
    /// Bytes that a layer may read before something comes out below all of them; see `spent.rs`.
    pub spare_bytes: u64,
    /// Threads that a layer may decode with, where its format and its encoder allow that (xz). With one, the thread
    /// that reads decodes.
    pub threads: NonZeroUsize,
}

impl Default for Limits {
    /// The budget of the process, what real streams need, and one thread.
    fn default() -> Self {
        Self {
            memory: Budget::default(),
            spare_bytes: spent::SPARE_BYTES,
            threads: NonZeroUsize::MIN,
        }
    }
}

/// A stream with its compressed layers undone.
pub struct Decoded {
    /// The layers that were found, outermost first; empty when the stream is not compressed.
    pub layers: Vec<Codec>,
    /// What lies under them. Its first [`SNIFF_BYTES`] have been peeked at, none is consumed.
    pub stream: Peek<Box<dyn Chunks>>,
}

/// Finds the layers of `source` and stacks a decoder on each.
///
/// A source without any bytes is a stream without layers: whether that is an error is the caller's choice.
pub fn open(source: Box<dyn Chunks>, limits: &Limits) -> Result<Decoded, Error> {
    let spent = Spent::new(limits);
    let mut layers = Vec::new();
    let mut stream = Peek::new(source);
    loop {
        let head = stream.peek(SNIFF_BYTES)?;
        let Some(codec) = sniff(&head) else {
            check_supported(&head)?;
            // What was peeked at counts as delivered.
            let stream = Peek::new(spent.below(Box::new(stream)));
            return Ok(Decoded { layers, stream });
        };
        if layers.len() == MAX_LAYERS {
            return Err(DecodeError::TooDeep { limit: MAX_LAYERS }.into());
        }
        layers.push(codec);
        stream = Peek::new(codec.decoder(spent.above(codec, Box::new(stream)), limits));
    }
}

/// Undoes the one layer that the two ends of a clone have agreed upon.
pub(crate) fn open_clone(codec: Codec, source: Box<dyn Chunks>, limits: &Limits) -> Peek<Box<dyn Chunks>> {
    let spent = Spent::new(limits);
    let decoder = codec.decoder(spent.above(codec, source), limits);
    Peek::new(spent.below(decoder))
}
