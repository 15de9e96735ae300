//! Images with a map, by the ranged route (map first) or in one pass.
//!
//! By the ranged route the body's GET is held open while tables are read by range, and the map is complete before the
//! target is opened: whatever is wrong with it is found while nothing was touched. Then the same body is read in file
//! order. Gaps of the map are skipped, small ones by reading on, unless there is a checksum: that is of the whole
//! stream.

use std::ops::Range;

use bytes::Bytes;
use diskimage::{Facts, Guest, Host, Image, Sink, Stream};

use super::park::Park;
use super::tables::{fetch_map, ranged_length};
use crate::chunks::Chunks;
use crate::disk::Writer;
use crate::error::Error;
use crate::facts::{ImageFacts, RouteTaken};
use crate::input::Input;
use crate::options::{Reading, Route, Writing};
use crate::source::Source;

/// An image with a map, ready to be converted.
pub(crate) struct Mapped {
    pub(crate) facts: Facts,
    stream: Box<Stream>,
    route: RouteTaken,
}

impl Mapped {
    /// With the map of `image`, if the source can be asked for ranges, else one that learns it as it passes.
    pub(crate) fn start(
        image: Image,
        source: &dyn Source,
        input: &mut Input,
        reading: &Reading,
        route: Route,
    ) -> Result<Self, Error> {
        let memory = &reading.limits.memory;
        let facts = image.facts();
        if facts.is_marked_corrupt {
            tracing::warn!(
                "the image is marked as corrupt by an earlier writer; reading it as qemu-img would"
            );
        }
        input.expect_image_of(facts.virtual_size);
        // With the map everything that is wrong with it is found before the target is touched, gaps need not be read, and
        // nothing has to wait for its place.
        let length = match route {
            Route::Auto => ranged_length(source, input),
            Route::OnePass => None,
        };
        let (stream, route) = match length {
            Some(length) => {
                let map = fetch_map(image, length, source, input, memory)?;
                (map.into_stream(), RouteTaken::Ranged)
            }
            None => (Stream::one_pass(image, memory.grant())?, RouteTaken::OnePass),
        };
        Ok(Self {
            facts,
            stream: Box::new(stream),
            route,
        })
    }

    /// Facts about the image, which lies below `layers`.
    pub(crate) fn image_facts(&self, layers: Vec<&'static str>) -> ImageFacts {
        ImageFacts {
            layers,
            format: self.facts.format,
            virtual_size: Some(self.facts.virtual_size),
            route: self.route,
        }
    }

    /// The ranges that a delta makes zero, when all of it has passed.
    pub(crate) fn zeros(&self) -> &[Range<Guest>] {
        self.stream.zeros()
    }

    /// Copies the data of the image to `writer`.
    pub(crate) fn copy(
        &mut self,
        input: &mut Input,
        writer: &mut Writer<'_>,
        reading: &Reading,
        writing: &Writing,
        mut tick: impl FnMut(&Writer<'_>),
    ) -> Result<(), Error> {
        if self.route == RouteTaken::OnePass {
            let park = Park::new(&self.facts, writer, writing, &reading.limits.memory);
            return copy_one_pass(&mut self.stream, input, OnePass { writer, park }, tick);
        }
        let mut sink = KnownMap { writer };
        pass_mapped(&mut self.stream, input, &mut sink, |sink| tick(sink.writer))
    }
}

/// Passes an image whose map is known to `sink`. Bytes that nothing maps are skipped where the source can.
pub(crate) fn pass_mapped<S: Sink<Error = Error>>(
    stream: &mut Stream,
    input: &mut Input,
    sink: &mut S,
    mut tick: impl FnMut(&S),
) -> Result<(), Error> {
    while let Some(needed) = stream.next_needed() {
        let position = Host(input.skip_towards(needed.0)?);
        if position > stream.position() {
            stream.skip_to(position);
        }
        let Some(chunk) = input.next_chunk()? else { break };
        stream.push(chunk, sink)?;
        tick(sink);
    }
    stream.finish(sink)
}

/// Converts an image that comes once, in file order.
fn copy_one_pass(
    stream: &mut Stream,
    input: &mut Input,
    mut sink: OnePass<'_, '_>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<(), Error> {
    while let Some(chunk) = input.next_chunk()? {
        stream.push(chunk, &mut sink)?;
        tick(sink.writer);
    }
    stream.finish(&mut sink)?;
    sink.park.finish(sink.writer)
}

/// The sink of an image with a complete map.
struct KnownMap<'w, 's> {
    writer: &'w mut Writer<'s>,
}

impl Sink for KnownMap<'_, '_> {
    type Error = Error;

    fn data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.writer.data(guest.0, bytes)
    }

    fn compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.writer.compressed(guest.0, bytes)
    }

    fn park(&mut self, _host: Host, _pieces: &[Bytes]) -> Result<(), Error> {
        Ok(())
    }

    fn parked(&mut self, offset: Host) -> Result<Bytes, Error> {
        Err(diskimage::Error::RefcountContradiction {
            what: "a cluster",
            offset,
        }
        .into())
    }

    fn forget(&mut self, _host: Host) -> Result<(), Error> {
        Ok(())
    }
}

/// The sink of an image whose map is still coming.
struct OnePass<'w, 's> {
    writer: &'w mut Writer<'s>,
    park: Park,
}

impl Sink for OnePass<'_, '_> {
    type Error = Error;

    fn data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.park.claim(guest.0, bytes.len() as u64, self.writer)?;
        self.writer.data(guest.0, bytes)
    }

    fn compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.park.claim(guest.0, 1, self.writer)?;
        self.writer.compressed(guest.0, bytes)
    }

    fn park(&mut self, host: Host, pieces: &[Bytes]) -> Result<(), Error> {
        self.park.put(host.0, pieces, self.writer)
    }

    fn parked(&mut self, host: Host) -> Result<Bytes, Error> {
        self.park.get(host.0, self.writer)
    }

    fn forget(&mut self, host: Host) -> Result<(), Error> {
        self.park.remove(host.0, self.writer)
    }
}
