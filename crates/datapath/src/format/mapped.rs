//! Images with a map, read by the ranged route (map first) or in one pass.
//!
//! On the ranged route the request for the body stays open while the tables are read by range. The
//! map is complete before the target is opened, so every error in it is found while the target is
//! still untouched. Then the same body is read in file order. Gaps of the map are skipped; small
//! ones are read and dropped. With a checksum nothing is skipped, because the checksum covers the
//! whole stream.

use std::ops::Range;

use bytes::Bytes;
use codec::input::TransferInput;
use diskimage::{Guest, GuestOrderMap, GuestSink, HeadFacts, Host, Image, ImageStream};
use inspect::{fetch_map, ranged_length};
use stream::chunks::ChunkStream;
use stream::error::Error;
use stream::facts::{ImageFacts, RouteTaken};
use stream::options::ReadOptions;
use stream::source::Source;

use super::chain::{ImageChain, next_needed_chunk};
use super::park::ParkedClusters;
use crate::disk::Writer;
use crate::options::{ReadRoute, WriteOptions};

/// An image with a map that is ready to be converted.
pub(crate) struct MappedImage {
    pub(crate) facts: HeadFacts,
    stream: Box<ImageStream>,
    route: RouteTaken,
    /// For a chain of images with one map.
    chain: Option<ImageChain>,
}

impl MappedImage {
    /// Reads the map of `image` first if the source supports ranges. Otherwise the map is read as
    /// it passes in the stream.
    pub(crate) fn start(
        image: Image,
        source: &dyn Source,
        input: &mut TransferInput,
        reading: &ReadOptions,
        route: ReadRoute,
    ) -> Result<Self, Error> {
        let memory = &reading.limits.memory;
        let facts = image.head_facts();
        if facts.is_marked_corrupt {
            tracing::warn!(
                "the image is marked as corrupt by an earlier writer; reading it as qemu-img would"
            );
        }
        input.expect_image_of(facts.virtual_size);
        // If the map is read first, errors are found before the target is touched, gaps need not
        // be read, and no cluster has to wait for its position.
        let length = match route {
            ReadRoute::Auto => ranged_length(source, input),
            ReadRoute::OnePass => None,
        };
        let (stream, route) = match length {
            Some(length) => {
                let map = fetch_map(image, length, source, input, memory)?;
                (map.into_stream(), RouteTaken::Ranged)
            }
            None => (ImageStream::one_pass(image, memory.empty_grant())?, RouteTaken::OnePass),
        };
        Ok(Self { facts, stream: Box::new(stream), route, chain: None })
    }

    /// Returns the newest image of a chain, whose merged map is complete.
    pub(crate) fn of_chain(stream: ImageStream, chain: ImageChain) -> Self {
        // The images differ: how clusters are compressed is announced when the first byte of an
        // image comes.
        let facts = HeadFacts { clusters: None, ..stream.head_facts() };
        let (stream, route) = (Box::new(stream), RouteTaken::Ranged);
        Self { facts, stream, route, chain: Some(chain) }
    }

    /// Facts about the image, which lies inside `layers`.
    pub(crate) fn image_facts(&self, layers: Vec<&'static str>) -> ImageFacts {
        ImageFacts {
            layers,
            format: self.facts.format,
            virtual_size: Some(self.facts.virtual_size),
            route: self.route,
            warning: None,
        }
    }

    /// The map in the order of the disk. The route must be the ranged one.
    pub(crate) fn into_guest_order(self) -> Result<GuestOrderMap, Error> {
        Ok(self.stream.into_guest_order()?)
    }

    /// The ranges that a delta sets to zero. Complete once the whole delta has passed.
    pub(crate) fn zero_ranges(&self) -> &[Range<Guest>] {
        self.stream.zero_ranges()
    }

    /// Copies the data of the image to `writer`.
    pub(crate) fn copy_data(
        &mut self,
        input: &mut TransferInput,
        writer: &mut Writer<'_>,
        reading: &ReadOptions,
        writing: &WriteOptions,
        mut tick: impl FnMut(&Writer<'_>),
    ) -> Result<(), Error> {
        if let Some(chain) = &self.chain {
            return chain.copy_data(&mut self.stream, input, writer, tick);
        }
        if self.route == RouteTaken::OnePass {
            let park = ParkedClusters::new(&self.facts, writer, writing, &reading.limits.memory);
            return copy_one_pass(&mut self.stream, input, OnePassSink { writer, park }, tick);
        }
        pass_mapped(&mut self.stream, input, writer, |writer| tick(writer))
    }
}

/// Passes an image whose map is known to `sink`. Bytes that no entry of the map refers to are
/// skipped if the source supports that. Calls `tick` before each chunk.
pub(crate) fn pass_mapped<S: GuestSink<Error = Error>>(
    stream: &mut ImageStream,
    input: &mut TransferInput,
    sink: &mut S,
    mut tick: impl FnMut(&S),
) -> Result<(), Error> {
    while let Some(chunk) = next_needed_chunk(stream, input)? {
        tick(sink);
        stream.push(chunk, sink)?;
    }
    stream.finish(sink)
}

/// Converts an image that is read once, in file order.
fn copy_one_pass(
    stream: &mut ImageStream,
    input: &mut TransferInput,
    mut sink: OnePassSink<'_, '_>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<(), Error> {
    while let Some(chunk) = input.next_chunk()? {
        stream.push(chunk, &mut sink)?;
        tick(sink.writer);
    }
    stream.finish(&mut sink)?;
    sink.park.finish_parking(sink.writer)
}

/// The sink for an image whose map is complete.
impl GuestSink for Writer<'_> {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.add_data(guest.0, bytes)
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.add_compressed(guest.0, bytes)
    }
}

/// The sink for an image whose map is still being read.
struct OnePassSink<'w, 's> {
    writer: &'w mut Writer<'s>,
    park: ParkedClusters,
}

impl GuestSink for OnePassSink<'_, '_> {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.park.claim_range(guest.0, bytes.len() as u64, self.writer)?;
        self.writer.add_data(guest.0, bytes)
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        // Slots are claimed in whole clusters, so claiming one byte claims the whole cluster.
        self.park.claim_range(guest.0, 1, self.writer)?;
        self.writer.add_compressed(guest.0, bytes)
    }

    fn park_unit(&mut self, host: Host, pieces: &[Bytes]) -> Result<(), Error> {
        self.park.park_cluster(host.0, pieces, self.writer)
    }

    fn read_parked(&mut self, host: Host) -> Result<Bytes, Error> {
        self.park.read_cluster(host.0, self.writer)
    }

    fn drop_parked(&mut self, host: Host) -> Result<(), Error> {
        self.park.remove_cluster(host.0, self.writer)
    }
}
