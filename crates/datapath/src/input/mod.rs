//! The bytes below the layers: those of an image, or of an archive.

mod ahead;

use std::sync::Arc;

use bytes::Bytes;

use self::ahead::PrefetchedRanges;
use crate::chunks::{ChunkStream, PeekStream};
use crate::error::{Error, FormatError};
use crate::memory::MemoryGrant;
use crate::meter::{Meter, MeterReadings};
use crate::observe::Stage;
use crate::source::Source;

/// Bytes that an image may have beside its disk: tables, an appliance's other files, what a crash has left behind.
const SPARE_BYTES: u64 = 1 << 30;

/// Bytes of an image for each byte of its disk: that many snapshots of all of it.
const WORTH: u64 = 16;

/// The bytes below the layers, in order, and what the layers and the source tell of them.
pub(crate) struct TransferInput {
    bytes: InputStream,
    /// Names of the layers above, outermost first.
    layers: Vec<&'static str>,
    /// Bytes in all, if the source or an archive tells.
    length: Option<u64>,
    /// The figures of the source.
    readings: Arc<MeterReadings>,
    /// True if what comes behind the image has to be read as well.
    must_reach_end: bool,
    /// Bytes that have passed.
    passed: u64,
    /// Bytes that may pass, once that is known.
    most: u64,
    /// The memory of a long head, until it passes.
    head: Option<MemoryGrant>,
}

/// Origin of the bytes.
enum InputStream {
    /// As the source gives them; a ranged source can skip.
    Direct {
        /// The stream.
        stream: Box<PeekStream<Meter>>,
        /// Bytes taken so far.
        position: u64,
        /// True if the source has ranges.
        ranged: bool,
        /// Tables that were fetched ahead, where they must be compared.
        ahead: PrefetchedRanges,
    },
    /// Out of a stack of decoders.
    Decoded(PeekStream<Box<dyn ChunkStream>>),
}

impl TransferInput {
    /// The bytes of the source itself. Tables that are fetched ahead are remembered in `memory`.
    pub(crate) fn from_source(mut stream: PeekStream<Meter>, memory: MemoryGrant) -> Self {
        let meter = stream.inner_mut();
        let (length, readings) = (meter.total_bytes(), meter.readings());
        let bytes = InputStream::Direct {
            stream: Box::new(stream),
            position: 0,
            // Found out when an image turns up that has a map: it costs a request.
            ranged: false,
            ahead: PrefetchedRanges::new(memory),
        };
        Self { length, ..Self::from_stream(bytes, Vec::new(), readings) }
    }

    /// The image is below `layers`, which are undone.
    pub(crate) fn from_decoded(
        stream: PeekStream<Box<dyn ChunkStream>>,
        layers: Vec<&'static str>,
        readings: Arc<MeterReadings>,
    ) -> Self {
        Self::from_stream(InputStream::Decoded(stream), layers, readings)
    }

    /// The file that `find` finds in the archive that these bytes are; the archive counts as one more layer. `size` tells the
    /// bytes of the file.
    pub(crate) fn enter_archive<C: ChunkStream + 'static>(
        self,
        layer: &'static str,
        find: impl FnOnce(Box<dyn ChunkStream>) -> Result<C, Error>,
        size: impl FnOnce(&C) -> u64,
    ) -> Result<Self, Error> {
        let mut layers = self.layers.clone();
        layers.push(layer);
        let readings = self.readings();
        let found = find(Box::new(self))?;
        Ok(Self {
            length: Some(size(&found)),
            ..Self::from_decoded(PeekStream::new(Box::new(found)), layers, readings)
        })
    }

    fn from_stream(bytes: InputStream, layers: Vec<&'static str>, readings: Arc<MeterReadings>) -> Self {
        Self {
            bytes,
            layers,
            length: None,
            must_reach_end: readings.must_reach_end(),
            readings,
            passed: 0,
            most: u64::MAX,
            head: None,
        }
    }

    /// Names of the layers above, outermost first.
    pub(crate) fn layer_names(&self) -> Vec<&'static str> {
        self.layers.clone()
    }

    /// Bytes in all, if the source or an archive tells.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.length
    }

    /// Has [`TransferInput::finish_reading`] read what comes behind the image.
    pub(crate) fn read_to_end(&mut self) {
        self.must_reach_end = true;
    }

    /// The figures of the source.
    pub(crate) fn readings(&self) -> Arc<MeterReadings> {
        Arc::clone(&self.readings)
    }

    /// The end of every operation that makes something: what the image did not need is read where that matters, and then the
    /// checksum, which is of the whole object, is compared. Returns it, if one was asked for.
    pub(crate) fn finish_reading(&mut self) -> Result<Option<String>, Error> {
        if self.must_reach_end {
            while self.next_chunk()?.is_some() {}
        }
        self.readings.verify_digest()
    }

    /// Keeps the memory of a head that is larger than a buffer, while it is peeked at.
    pub(crate) fn hold_head(&mut self, grant: MemoryGrant) {
        self.head = Some(grant);
    }

    /// The bytes are an image with a map, of a disk of `virtual_size`. A stream that goes on long after that is none, and may
    /// never end.
    pub(crate) fn expect_image_of(&mut self, virtual_size: u64) {
        self.most = virtual_size.saturating_mul(WORTH).saturating_add(SPARE_BYTES);
    }

    fn count_passed(&mut self, bytes: usize) -> Result<(), Error> {
        self.passed += bytes as u64;
        // What was peeked at is one chunk, and it is the first.
        self.head = None;
        if self.passed <= self.most {
            return Ok(());
        }
        Err(FormatError::Endless { passed: self.passed, most: self.most }.into())
    }

    /// Asks the source for ranges, if its bytes are those of the image.
    pub(crate) fn ask_ranged(&mut self, source: &dyn Source) -> bool {
        let InputStream::Direct { ranged, .. } = &mut self.bytes else {
            return false;
        };
        *ranged = source.is_ranged();
        *ranged
    }

    /// The first `want` bytes, not consumed.
    pub(crate) fn peek(&mut self, want: usize) -> Result<Bytes, Error> {
        match &mut self.bytes {
            InputStream::Direct { stream, .. } => stream.peek(want),
            InputStream::Decoded(stream) => stream.peek(want),
        }
    }

    /// Remembers what was fetched from `start` on, if all of the stream is going to pass under a digest.
    pub(crate) fn fetched_ahead(&mut self, start: u64, bytes: &[u8]) -> Result<(), Error> {
        if let InputStream::Direct { stream, ahead, .. } = &mut self.bytes
            && stream.inner_mut().must_read_all()
        {
            ahead.add_range(start, bytes)?;
        }
        Ok(())
    }

    /// Continues at `offset` of the image without passing what lies between, if the source can; otherwise nothing
    /// happens. Returns where the stream is now.
    pub(crate) fn skip_towards(&mut self, offset: u64) -> Result<u64, Error> {
        let InputStream::Direct { stream, position, ranged: true, .. } = &mut self.bytes else {
            return Ok(0);
        };
        if stream.inner_mut().must_read_all() {
            return Ok(*position);
        }
        *position += stream.drop_peeked(offset - *position);
        if *position < offset {
            stream.inner_mut().skip_to(offset)?;
            *position = offset;
        }
        Ok(*position)
    }
}

impl ChunkStream for InputStream {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Direct { stream, position, ahead, .. } => {
                let chunk = stream.next_chunk()?;
                if let Some(chunk) = &chunk {
                    ahead.verify_chunk(*position, chunk)?;
                    *position += chunk.len() as u64;
                }
                Ok(chunk)
            }
            Self::Decoded(stream) => stream.next_chunk(),
        }
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        match self {
            Self::Direct { .. } => Ok(self.next_chunk()?.map(|bytes| (received, bytes))),
            Self::Decoded(stream) => stream.next_placed(received),
        }
    }
}

impl ChunkStream for TransferInput {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let Self { readings, bytes, .. } = self;
        let chunk = readings.time_stage(Stage::Decode, || bytes.next_chunk())?;
        self.count_passed(chunk.as_ref().map_or(0, Bytes::len))?;
        Ok(chunk)
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        let Self { readings, bytes, .. } = self;
        let placed = readings.time_stage(Stage::Decode, || bytes.next_placed(received))?;
        self.count_passed(placed.as_ref().map_or(0, |(_, bytes)| bytes.len()))?;
        Ok(placed)
    }
}
