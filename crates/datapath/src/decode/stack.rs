//! The stack of decoders: one on each layer that is found.

use super::decoder::Decoder;
use super::sniff::{SNIFF_BYTES, check_supported, sniff};
use super::spent::Spent;
use super::{bzip2, gzip, snappy, xz, zstd};
use crate::chunks::{Chunks, Peek};
use crate::codec::Codec;
use crate::error::{DecodeError, Error};
use crate::input::Input;
use crate::meter::Meter;
use crate::options::Limits;
use crate::options::{HEADER_BYTES, Layers, Reading};

/// Compressed layers that may lie inside each other. Real images have one, now and then two; every
/// layer multiplies what a few hostile bytes cost.
pub const MAX_LAYERS: usize = 4;

impl Codec {
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
        }
    }
}

/// A stream with its compressed layers undone.
pub struct Decoded {
    /// The layers that were found, outermost first; empty when the stream is not compressed.
    pub layers: Vec<Codec>,
    /// The stream under them. Its first [`SNIFF_BYTES`] have been peeked at, none is consumed.
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
pub(super) fn open_clone(codec: Codec, source: Box<dyn Chunks>, limits: &Limits) -> Peek<Box<dyn Chunks>> {
    let spent = Spent::new(limits);
    let decoder = codec.decoder(spent.above(codec, source), limits);
    Peek::new(spent.below(decoder))
}

/// Undoes the layers around what `meter` passes: those of `reading`, each within `limits`.
pub(crate) fn undo(meter: Meter, reading: &Reading, limits: &Limits) -> Result<Input, Error> {
    let readings = meter.readings();
    let mut stream = Peek::new(meter);
    // One peek for both: the length that an image must have at least, and the first bytes of a codec. It is looked at before a
    // decoder is: a page of 300 bytes is called too short, and not a damaged archive.
    let head = stream.peek(SNIFF_BYTES.max(HEADER_BYTES))?;
    reading.check_header(&head)?;
    let names = |layers: &[Codec]| layers.iter().map(|codec| codec.name()).collect();
    let mut input = match reading.layers {
        Layers::Only(codec) => {
            let decoded = open_clone(codec, Box::new(stream), limits);
            Input::decoded(decoded, names(&[codec]), readings)
        }
        Layers::Sniffed if sniff(&head).is_some() => {
            let Decoded { layers, stream } = open(Box::new(stream), limits)?;
            Input::decoded(stream, names(&layers), readings)
        }
        // Without a decoder the input keeps the meter itself, and with it what only a source can do: ranges, and skipping.
        Layers::Sniffed => {
            check_supported(&head)?;
            Input::direct(stream, limits.memory.grant())
        }
        Layers::None => Input::direct(stream, limits.memory.grant()),
    };
    reading.check_header(&input.peek(HEADER_BYTES)?)?;
    Ok(input)
}
