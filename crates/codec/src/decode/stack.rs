//! Builds the stack of decoders, one for each layer that is found.

use stream::chunks::{ChunkStream, PeekStream};
use stream::codec::Codec;
use stream::error::{DecodeError, Error};
use stream::meter::Meter;
use stream::options::{CompressionLayers, DecodeLimits, HEADER_BYTES, ReadOptions};

use super::decoder::LayerDecoder;
use super::expansion_budget::ExpansionBudget;
use super::sniff::{SNIFF_BYTES, check_supported, sniff_codec};
use super::{bzip2, gzip, snappy, xz, zstd};
use crate::input::TransferInput;

/// Limit on nested compressed layers. Real images have one layer, rarely two. Each layer
/// multiplies the work that a few hostile bytes can cause.
pub const MAX_LAYERS: usize = 4;

/// Returns a decoder of `codec` for `inner`. Either [`sniff_codec`] has detected this codec in the
/// first bytes of `inner`, or the stream is otherwise known to use this codec.
///
/// Errors of the decoder are [`Error::Decode`]; errors of `inner` are returned unchanged. The
/// decoder must not be used after an error.
pub fn new_decoder(
    codec: Codec,
    inner: Box<dyn ChunkStream>,
    limits: &DecodeLimits,
) -> Box<dyn ChunkStream> {
    match codec {
        Codec::Gzip => Box::new(LayerDecoder::<gzip::GzipEngine>::new(inner, limits)),
        Codec::Xz => xz::new_decoder(inner, limits),
        Codec::Zstd => Box::new(LayerDecoder::<zstd::ZstdEngine>::new(inner, limits)),
        Codec::Bzip2 => Box::new(LayerDecoder::<bzip2::Bzip2Engine>::new(inner, limits)),
        Codec::Snappy => Box::new(LayerDecoder::<snappy::SnappyEngine>::new(inner, limits)),
    }
}

/// A decompressed stream.
pub struct DecodedStream {
    /// The detected layers, outermost first. Empty if the stream is not compressed.
    pub layers: Vec<Codec>,
    /// The decompressed stream. Its first [`SNIFF_BYTES`] were peeked at, but not consumed.
    pub stream: PeekStream<Box<dyn ChunkStream>>,
}

/// Detects the layers of `source` and adds a decoder for each.
///
/// An empty source is a stream without layers. The caller decides whether that is an error.
pub fn open_layers(
    source: Box<dyn ChunkStream>,
    limits: &DecodeLimits,
) -> Result<DecodedStream, Error> {
    let spent = ExpansionBudget::new(limits);
    let mut layers = Vec::new();
    let mut stream = PeekStream::new(source);
    loop {
        let head = stream.peek(SNIFF_BYTES)?;
        let Some(codec) = sniff_codec(&head) else {
            check_supported(&head)?;
            // Nothing was decoded, so the peeked bytes are counted as output of the stack as well.
            let stream = PeekStream::new(spent.wrap_output(Box::new(stream)));
            return Ok(DecodedStream { layers, stream });
        };
        if layers.len() == MAX_LAYERS {
            return Err(DecodeError::TooDeep { limit: MAX_LAYERS }.into());
        }
        layers.push(codec);
        stream =
            PeekStream::new(new_decoder(codec, spent.wrap_input(codec, Box::new(stream)), limits));
    }
}

/// Decodes the single layer that the two ends of a clone have agreed on.
pub(super) fn open_clone(
    codec: Codec,
    source: Box<dyn ChunkStream>,
    limits: &DecodeLimits,
) -> PeekStream<Box<dyn ChunkStream>> {
    let spent = ExpansionBudget::new(limits);
    let decoder = new_decoder(codec, spent.wrap_input(codec, source), limits);
    PeekStream::new(spent.wrap_output(decoder))
}

/// Decodes the layers around the stream of `meter`, as `reading` specifies, each within `limits`.
pub fn decode_input(
    meter: Meter,
    reading: &ReadOptions,
    limits: &DecodeLimits,
) -> Result<TransferInput, Error> {
    let readings = meter.readings();
    let mut stream = PeekStream::new(meter);
    // One peek serves two checks: the minimum length of an image, and the first bytes of a codec.
    // The length is checked first, so that a page of 300 bytes is reported as too short and not as
    // a damaged archive.
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
        // Without a decoder, the input keeps the meter itself and therefore still supports the
        // range requests and skipping of the source.
        CompressionLayers::Sniffed => {
            check_supported(&head)?;
            TransferInput::from_source(stream, limits.memory.empty_grant())
        }
        CompressionLayers::None => TransferInput::from_source(stream, limits.memory.empty_grant()),
    };
    reading.check_header(&input.peek(HEADER_BYTES)?)?;
    Ok(input)
}

/// Decodes the layers around a file of an archive.
pub fn decode_file(mut file: TransferInput, limits: &DecodeLimits) -> Result<TransferInput, Error> {
    if sniff_codec(&file.peek(SNIFF_BYTES)?).is_none() {
        return Ok(file);
    }
    let (mut names, readings) = (file.layer_names(), file.readings());
    let DecodedStream { layers, stream } = open_layers(Box::new(file), limits)?;
    names.extend(layers.iter().map(|codec| codec.name()));
    let mut decoded = TransferInput::from_decoded(stream, names, readings);
    // The archive's end and its manifest follow the file.
    decoded.read_to_end();
    Ok(decoded)
}
