//! Copies a chain of images, whose bytes follow each other in the input, by its merged map.

use bytes::Bytes;
use codec::inflate::Inflater;
use codec::input::TransferInput;
use diskimage::{ClippedClusters, CompressedClusters, Guest, GuestSink, Host, ImageStream};
use stream::chunks::ChunkStream;
use stream::error::Error;

use crate::disk::Writer;

/// One image of a chain.
pub(crate) struct ChainedFile {
    /// Offset of its first byte in the input.
    pub(crate) start: Host,
    /// How its clusters are compressed.
    pub(crate) clusters: Option<CompressedClusters>,
}

/// The images of a chain, whose merged map is complete.
pub(crate) struct ImageChain {
    pub(crate) clipped: ClippedClusters,
    /// The images in the order of the input, oldest first.
    pub(crate) files: Vec<ChainedFile>,
}

impl ImageChain {
    /// Copies the visible data of all images to `writer`.
    pub(super) fn copy_data(
        &self,
        stream: &mut ImageStream,
        input: &mut TransferInput,
        writer: &mut Writer<'_>,
        mut tick: impl FnMut(&Writer<'_>),
    ) -> Result<(), Error> {
        let Self { clipped, files } = self;
        let mut sink = ChainSink { writer, clipped, start: Host(0), inflater: Inflater::default() };
        while let Some(mut chunk) = next_needed_chunk(stream, input)? {
            tick(sink.writer);
            while !chunk.is_empty() {
                let own = sink.enter_image(files, stream.position(), chunk.len());
                stream.push(chunk.split_to(own), &mut sink)?;
            }
        }
        stream.finish(&mut sink)
    }
}

/// The sink of a chain. Chunks are split, so that all bytes of a push belong to one image.
struct ChainSink<'c, 'w, 's> {
    writer: &'w mut Writer<'s>,
    clipped: &'c ClippedClusters,
    /// Offset of the image that is being read.
    start: Host,
    inflater: Inflater,
}

impl ChainSink<'_, '_, '_> {
    /// Enters the image that contains `position`, the offset of the next `bytes` bytes. Returns
    /// how many of them belong to it: a chunk holds bytes of several images if one is short.
    fn enter_image(&mut self, files: &[ChainedFile], position: Host, bytes: usize) -> usize {
        let next = files.partition_point(|file| file.start <= position);
        if let Some(file) = next.checked_sub(1).and_then(|index| files.get(index)) {
            (self.start, self.writer.clusters) = (file.start, file.clusters);
        }
        let left = files.get(next).map_or(u64::MAX, |file| file.start - position);
        usize::try_from(left).map_or(bytes, |left| left.min(bytes))
    }
}

impl GuestSink for ChainSink<'_, '_, '_> {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.writer.add_data(guest.0, bytes)
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let Some(parts) = self.clipped.visible_parts(self.start, guest) else {
            return self.writer.add_compressed(guest.0, bytes);
        };
        // Rare: only where newer images have smaller clusters, or at the end of a disk that has
        // grown. So it is not worth a second kind of work for the writing threads.
        let clusters = self.writer.clusters;
        let inflated = self.inflater.inflate_to_buffer(clusters, guest, &bytes, u64::MAX)?;
        let inflated = Bytes::copy_from_slice(inflated);
        for part in parts {
            let at = |offset: Guest| {
                usize::try_from(offset - guest).map_or(inflated.len(), |at| at.min(inflated.len()))
            };
            self.writer.add_data(part.start.0, inflated.slice(at(part.start)..at(part.end)))?;
        }
        Ok(())
    }
}

/// Skips what `stream` does not need, if the source supports that, and returns the next chunk.
/// `None` if nothing more is needed, or at the end of the input.
pub(super) fn next_needed_chunk(
    stream: &mut ImageStream,
    input: &mut TransferInput,
) -> Result<Option<Bytes>, Error> {
    let Some(needed) = stream.next_needed() else {
        return Ok(None);
    };
    let position = Host(input.skip_towards(needed.0)?);
    if position > stream.position() {
        stream.skip_to(position);
    }
    input.next_chunk()
}
