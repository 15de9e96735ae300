//! The stack of decoders: one on each layer that is found.

use super::decoder::LayerDecoder;
use super::expansion_budget::ExpansionBudget;
use super::sniff::{SNIFF_BYTES, check_supported, sniff_codec};
use super::{bzip2, gzip, snappy, xz, zstd};
use crate::chunks::{ChunkStream, PeekStream};
use crate::codec::Codec;
use crate::error::{DecodeError, Error};
use crate::input::TransferInput;
use crate::meter::Meter;
use crate::options::DecodeLimits;
use crate::options::{CompressionLayers, HEADER_BYTES, ReadOptions};

/// Compressed layers that may lie inside each other. Real images have one, now and then two; every
/// layer multiplies what a few hostile bytes cost.
pub const MAX_LAYERS: usize = 4;

impl Codec {
    /// Decodes `inner`, which should begin with what [`sniff_codec`] recognised as this codec, or be known to be in it.
    ///
    /// The decoder's errors are [`Error::Decode`]; those of `inner` pass through unchanged. After an error
    /// the decoder must not be pulled again.
    pub fn new_decoder(self, inner: Box<dyn ChunkStream>, limits: &DecodeLimits) -> Box<dyn ChunkStream> {
        match self {
            Self::Gzip => Box::new(LayerDecoder::<gzip::GzipEngine>::new(inner, limits)),
            Self::Xz => xz::new_decoder(inner, limits),
            Self::Zstd => Box::new(LayerDecoder::<zstd::ZstdEngine>::new(inner, limits)),
            Self::Bzip2 => Box::new(LayerDecoder::<bzip2::Bzip2Engine>::new(inner, limits)),
            Self::Snappy => Box::new(LayerDecoder::<snappy::SnappyEngine>::new(inner, limits)),
        }
    }
}

/// A stream with its compressed layers undone.
pub struct DecodedStream {
    /// The layers that were found, outermost first; empty when the stream is not compressed.
    pub layers: Vec<Codec>,
    /// The stream under them. Its first [`SNIFF_BYTES`] have been peeked at, none is consumed.
    pub stream: PeekStream<Box<dyn ChunkStream>>,
}

/// Finds the layers of `source` and stacks a decoder on each.
///
/// A source without any bytes is a stream without layers: whether that is an error is the caller's choice.
pub fn open_layers(source: Box<dyn ChunkStream>, limits: &DecodeLimits) -> Result<DecodedStream, Error> {
    let spent = ExpansionBudget::new(limits);
    let mut layers = Vec::new();
    let mut stream = PeekStream::new(source);
    loop {
        let head = stream.peek(SNIFF_BYTES)?;
        let Some(codec) = sniff_codec(&head) else {
            check_supported(&head)?;
            // What was peeked at counts as delivered.
            let stream = PeekStream::new(spent.wrap_output(Box::new(stream)));
            return Ok(DecodedStream { layers, stream });
        };
        if layers.len() == MAX_LAYERS {
            return Err(DecodeError::TooDeep { limit: MAX_LAYERS }.into());
        }
        layers.push(codec);
        stream = PeekStream::new(codec.new_decoder(spent.wrap_input(codec, Box::new(stream)), limits));
    }
}

/// Undoes the one layer that the two ends of a clone have agreed upon.
pub(super) fn open_clone(
    codec: Codec,
    source: Box<dyn ChunkStream>,
    limits: &DecodeLimits,
) -> PeekStream<Box<dyn ChunkStream>> {
    let spent = ExpansionBudget::new(limits);
    let decoder = codec.new_decoder(spent.wrap_input(codec, source), limits);
    PeekStream::new(spent.wrap_output(decoder))
}

/// Undoes the layers around what `meter` passes: those of `reading`, each within `limits`.
pub(crate) fn decode_input(
    meter: Meter,
    reading: &ReadOptions,
    limits: &DecodeLimits,
) -> Result<TransferInput, Error> {
    let readings = meter.readings();
    let mut stream = PeekStream::new(meter);
    // One peek for both: the length that an image must have at least, and the first bytes of a codec. It is looked at before a
    // decoder is: a page of 300 bytes is called too short, and not a damaged archive.
    let head = stream.peek(SNIFF_BYTES.max(HEADER_BYTES))?;
    reading.check_header(&head)?;
    let names = |layers: &[Codec]| layers.iter().map(|codec| codec.name()).collect();
    let mut input = match reading.layers {
        CompressionLayers::Only(codec) => {
            let decoded = open_clone(codec, Box::new(stream), limits);
            TransferInput::from_decoded(decoded, names(&[codec]), readings)
        }
        CompressionLayers::Sniffed if sniff_codec(&head).is_some() => {
            let DecodedStream { layers, stream } = open_layers(Box::new(stream), limits)?;
            TransferInput::from_decoded(stream, names(&layers), readings)
        }
        // Without a decoder the input keeps the meter itself, and with it what only a source can do: ranges, and skipping.
        CompressionLayers::Sniffed => {
            check_supported(&head)?;
            TransferInput::from_source(stream, limits.memory.empty_grant())
        }
        CompressionLayers::None => TransferInput::from_source(stream, limits.memory.empty_grant()),
    };
    reading.check_header(&input.peek(HEADER_BYTES)?)?;
    Ok(input)
}
