//! Settings of the operations: [`ReadOptions`] for everything that reads a source, [`WriteOptions`] for what writes a disk besides, and
//! [`PayloadKind`] where the source holds one image.

use std::num::{NonZeroU64, NonZeroUsize};
#[cfg(feature = "targets")]
use std::path::PathBuf;
use std::sync::Arc;

use diskimage::Format;
use tokio_util::sync::CancellationToken;

use crate::codec::Codec;
use crate::digest::Checksum;
#[cfg(feature = "targets")]
use crate::disk::VerifiedPrefix;
use crate::error::{DecodeError, Error};
use crate::memory::MemoryBudget;
use crate::min_speed::SpeedLimit;
use crate::observe::{NoObserver, Observer};
use crate::source::Source;

/// Bytes that upstream takes for the header of an image, whichever its format (contract §1.9).
pub(crate) const HEADER_BYTES: usize = 512;

/// Compressed layers around what a source holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionLayers {
    /// Layers that are recognized by their first bytes.
    #[default]
    Sniffed,
    /// No layer: a guest has written the first bytes, whatever they look like.
    None,
    /// One layer of this codec, as both ends have agreed, and none below it.
    Only(Codec),
}

/// The thing below the layers that becomes a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadKind {
    /// A disk image of this format, or of the one that its first bytes show.
    Image(Option<Format>),
    /// A tar that is a clone of a directory, in which `disk.img` is a raw disk.
    CloneOfFiles,
    /// An OVA: a tar with one disk image of this format, or of the one that its first bytes show. It is read to its end, where
    /// its manifest may be.
    Appliance(Option<Format>),
}

impl Default for PayloadKind {
    fn default() -> Self {
        Self::Image(None)
    }
}

impl PayloadKind {
    /// A raw disk that a guest has written, whatever its first and last bytes look like.
    pub const RAW: Self = Self::Image(Some(Format::Raw));

    /// The payload of `source`: a guest's disk is one, whatever else it is said to be.
    pub(crate) fn for_source(self, source: &dyn Source) -> Self {
        if source.is_disk() { Self::RAW } else { self }
    }

    /// The format that is known before the first byte. That of a clone is: a raw disk that a guest has written may begin like any
    /// image.
    pub(crate) fn known_format(self) -> Option<Format> {
        match self {
            Self::Image(format) | Self::Appliance(format) => format,
            Self::CloneOfFiles => Some(Format::Raw),
        }
    }
}

/// Default of [`DecodeLimits::spare_bytes`]: headers, indexes, seek tables and padding take less.
const SPARE_BYTES: u64 = 64 << 20;

/// Costs that all layers of a stack may have together.
#[derive(Debug, Clone)]
pub struct DecodeLimits {
    /// Memory that windows (zstd) and dictionaries (xz) are taken from. Asked for by the stream's own header, before the memory
    /// is taken.
    pub memory: MemoryBudget,
    /// Bytes that a layer may read before something comes out below all of them; see `decode/spent.rs`.
    pub spare_bytes: u64,
    /// Threads that a layer may decode with, where its format and its encoder allow that (xz). With one, the thread
    /// that reads decodes.
    pub threads: NonZeroUsize,
}

impl Default for DecodeLimits {
    /// The budget of the process, what real streams need, and one thread.
    fn default() -> Self {
        Self { memory: MemoryBudget::default(), spare_bytes: SPARE_BYTES, threads: NonZeroUsize::MIN }
    }
}

/// Order in which the parts of an image with a map may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadRoute {
    /// Map first where the source has ranges, one pass elsewhere.
    #[default]
    Auto,
    /// Never ask the source for ranges.
    OnePass,
}

/// Settings of everything that reads a source.
#[derive(Clone)]
pub struct ReadOptions {
    /// The digest of the whole object, over the bytes as transferred.
    pub checksum: Option<Checksum>,
    /// The compression around the payload.
    pub layers: CompressionLayers,
    /// Refuse what ends before an image has its header, 512 bytes, packed or unpacked, as CDI does: it may be a page about an
    /// image. Otherwise that is a raw disk of one sector.
    pub full_header: bool,
    /// Read the source to its end, even if the image does not need that: somebody waits for it, or wants to know that all of
    /// it came.
    pub read_all: bool,
    /// Caps of the decoders. Where a disk is written, as many threads decode as write it.
    pub limits: DecodeLimits,
    /// Most source bytes a second.
    pub limit_rate: Option<NonZeroU64>,
    /// Least source bytes a second.
    pub speed_limit: Option<SpeedLimit>,
    /// Ends the operation soon after it is cancelled.
    pub stop: CancellationToken,
    /// Observer that is told of the progress.
    pub observer: Arc<dyn Observer>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            checksum: None,
            layers: CompressionLayers::Sniffed,
            full_header: false,
            read_all: false,
            limits: DecodeLimits::default(),
            limit_rate: None,
            speed_limit: None,
            stop: CancellationToken::new(),
            observer: NoObserver::new_shared(),
        }
    }
}

impl ReadOptions {
    /// The default settings, with the token that ends the operation.
    pub fn with_stop(stop: CancellationToken) -> Self {
        Self { stop, ..Self::default() }
    }

    /// The settings for `source`: in a guest's disk nothing is looked for.
    pub(crate) fn for_source(&self, source: &dyn Source) -> Self {
        let mut reading = self.clone();
        if source.is_disk() {
            (reading.layers, reading.full_header) = (CompressionLayers::None, false);
        }
        reading
    }

    /// Fails if a stream that begins with `head` has no bytes, or fewer than wanted.
    pub(crate) fn check_header(&self, head: &[u8]) -> Result<(), DecodeError> {
        match head.len() {
            0 => Err(DecodeError::Empty),
            bytes if bytes < HEADER_BYTES && self.full_header => Err(DecodeError::ShortHeader { bytes }),
            _ => Ok(()),
        }
    }

    /// Fails if the operation is to stop. The last look is before the step that makes the result complete: after it, a request
    /// to stop comes too late.
    pub(crate) fn check_stop(&self) -> Result<(), Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}

/// Settings of what writes a disk.
#[cfg(feature = "targets")]
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Threads that write, inflating clusters where the image has such; and as many that decode where the stream can be
    /// decoded by several.
    pub workers: NonZeroUsize,
    /// The order in which an image with a map may be read.
    pub route: ReadRoute,
    /// A directory for clusters that fit nowhere else; see [`crate::format::park`].
    pub scratch: Option<PathBuf>,
    /// The part of a raw disk that is there already: the stream is the disk without it.
    pub kept: Option<Arc<VerifiedPrefix>>,
}

#[cfg(feature = "targets")]
impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            workers: NonZeroUsize::MIN.saturating_add(1),
            route: ReadRoute::Auto,
            scratch: None,
            kept: None,
        }
    }
}

#[cfg(feature = "targets")]
impl WriteOptions {
    /// The caps of decoders that feed these writers: as many threads as write.
    pub(crate) fn decode_limits(&self, limits: &DecodeLimits) -> DecodeLimits {
        DecodeLimits { threads: self.workers, ..limits.clone() }
    }
}
