//! The bytes inside the compressed layers, which are an image or an archive.

mod ahead;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use stream::chunks::{ChunkStream, PeekStream};
use stream::error::{Error, FormatError};
use stream::memory::MemoryGrant;
use stream::meter::{Meter, MeterReadings};
use stream::observe::Stage;
use stream::source::Source;

use self::ahead::PrefetchedRanges;

/// Bytes that an image may contain in addition to its disk: tables, other files of an appliance,
/// remains of a crash.
const SPARE_BYTES: u64 = 1 << 30;

/// Maximum size of an image per byte of its disk. Leaves room for that many complete snapshots.
const WORTH: u64 = 16;

/// The bytes inside the layers, in order, with the facts that the layers and the source supply.
pub struct TransferInput {
    bytes: InputStream,
    /// Names of the layers around the bytes, outermost first.
    layers: Vec<&'static str>,
    /// Total number of bytes, if the source or an archive states it.
    length: Option<u64>,
    /// The readings of the source's meter.
    readings: Arc<MeterReadings>,
    /// True if the bytes after the image must be read as well.
    must_reach_end: bool,
    /// Number of bytes that have passed.
    passed: u64,
    /// Maximum number of bytes that may pass; `u64::MAX` until the size of the disk is known.
    most: u64,
    /// The memory of a long head, until the head passes.
    head: Option<MemoryGrant>,
}

/// Where the bytes come from.
enum InputStream {
    /// Directly from the source; a source with ranges can skip.
    Direct {
        /// The bytes of the source.
        stream: Box<PeekStream<Meter>>,
        /// Number of bytes taken so far.
        position: u64,
        /// True if the source supports ranges.
        ranged: bool,
        /// Tables that were fetched ahead and must be compared with the stream.
        ahead: PrefetchedRanges,
    },
    /// From a stack of decoders.
    Decoded(PeekStream<Box<dyn ChunkStream>>),
}

impl TransferInput {
    /// Wraps the bytes of the source itself. The list of tables that are fetched ahead is charged
    /// to `memory`.
    pub fn from_source(mut stream: PeekStream<Meter>, memory: MemoryGrant) -> Self {
        let meter = stream.inner_mut();
        let (length, readings) = (meter.total_bytes(), meter.readings());
        let bytes = InputStream::Direct {
            stream: Box::new(stream),
            position: 0,
            // This is determined only if the image has a map, because finding out costs a request.
            ranged: false,
            ahead: PrefetchedRanges::new(memory),
        };
        Self { length, ..Self::from_stream(bytes, Vec::new(), readings) }
    }

    /// Wraps the bytes that `stream` has decoded out of `layers`.
    pub(crate) fn from_decoded(
        stream: PeekStream<Box<dyn ChunkStream>>,
        layers: Vec<&'static str>,
        readings: Arc<MeterReadings>,
    ) -> Self {
        Self::from_stream(InputStream::Decoded(stream), layers, readings)
    }

    /// Replaces the bytes, which are an archive, with the bytes of a file in it. `find` finds the
    /// file, and `size` returns its length in bytes. The archive counts as one more layer.
    pub fn enter_archive<C: ChunkStream + 'static>(
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

    fn from_stream(
        bytes: InputStream,
        layers: Vec<&'static str>,
        readings: Arc<MeterReadings>,
    ) -> Self {
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

    /// Names of the layers around the bytes, outermost first.
    pub fn layer_names(&self) -> Vec<&'static str> {
        self.layers.clone()
    }

    /// Total number of bytes, if the source or an archive states it.
    pub fn total_bytes(&self) -> Option<u64> {
        self.length
    }

    /// Makes [`TransferInput::finish_reading`] read the bytes after the image too.
    pub fn read_to_end(&mut self) {
        self.must_reach_end = true;
    }

    /// The readings of the source's meter.
    pub fn readings(&self) -> Arc<MeterReadings> {
        Arc::clone(&self.readings)
    }

    /// Called at the end of every operation that produces a result. Reads the bytes that the image
    /// did not need, if that is required, and then compares the checksum, which covers the whole
    /// object. Returns the checksum if one was requested.
    pub fn finish_reading(&mut self) -> Result<Option<String>, Error> {
        if self.must_reach_end {
            while self.next_chunk()?.is_some() {}
        }
        self.readings.verify_digest()
    }

    /// Keeps the grant for the memory of a head that is larger than a buffer, while the head is
    /// peeked at.
    pub fn hold_head(&mut self, grant: MemoryGrant) {
        self.head = Some(grant);
    }

    /// Records that the bytes are an image with a map, of a disk of `virtual_size` bytes. A stream
    /// that is much longer cannot be such an image and may never end, so it will be rejected.
    pub fn expect_image_of(&mut self, virtual_size: u64) {
        self.most = virtual_size.saturating_mul(WORTH).saturating_add(SPARE_BYTES);
    }

    fn count_passed(&mut self, bytes: usize) -> Result<(), Error> {
        self.passed += bytes as u64;
        // The peeked head was the first chunk, which has been handed out now: release its memory.
        self.head = None;
        if self.passed <= self.most {
            return Ok(());
        }
        Err(FormatError::Endless { passed: self.passed, most: self.most }.into())
    }

    /// Checks whether the source supports ranges, if it delivers the bytes of the image directly.
    pub fn ask_ranged(&mut self, source: &dyn Source) -> bool {
        let InputStream::Direct { ranged, .. } = &mut self.bytes else {
            return false;
        };
        *ranged = source.is_ranged();
        *ranged
    }

    /// Returns the first `want` bytes without consuming them.
    pub fn peek(&mut self, want: usize) -> Result<Bytes, Error> {
        match &mut self.bytes {
            InputStream::Direct { stream, .. } => stream.peek(want),
            InputStream::Decoded(stream) => stream.peek(want),
        }
    }

    /// Reads a range of `source`, whose stream this is, before the stream reaches it. If the stream
    /// has a digest, the bytes are compared when it reaches them: the digest covers no other reads.
    pub fn read_ahead(&mut self, source: &dyn Source, range: Range<u64>) -> Result<Bytes, Error> {
        let start = range.start;
        let bytes = self.readings.time_stage(Stage::Source, || source.read_range(range))?;
        if let InputStream::Direct { stream, ahead, .. } = &mut self.bytes
            && stream.inner_mut().must_read_all()
        {
            ahead.add_range(start, &bytes)?;
        }
        Ok(bytes)
    }

    /// Skips to `offset` of the image if the source supports that. Otherwise nothing happens.
    /// Returns the new position of the stream.
    pub fn skip_towards(&mut self, offset: u64) -> Result<u64, Error> {
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
