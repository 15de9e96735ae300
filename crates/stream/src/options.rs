//! Settings of everything that reads a source: [`ReadOptions`], and [`PayloadKind`] where the
//! source holds one image.

use std::num::{NonZeroU64, NonZeroUsize};
use std::str::FromStr;
use std::sync::Arc;

use diskimage::Format;
use tokio_util::sync::CancellationToken;

use crate::digest::Checksum;
use crate::error::{DecodeError, Error, FormatError};
use crate::memory::MemoryBudget;
use crate::min_speed::SpeedLimit;
use crate::observe::{NoObserver, Observer};
use crate::source::Source;
pub use crate::source::{CompressionLayers, StatedDisk};

/// Bytes that upstream reads as the header of an image, whatever its format (contract §1.9).
pub const HEADER_BYTES: usize = 512;

/// The content inside the layers that becomes a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadKind {
    /// A raw disk in which nothing is detected.
    Disk(StatedDisk),
    /// A disk image of this format; `None` recognises the format by the first bytes.
    Image(Option<Format>),
    /// A tar that is a clone of a directory and contains the raw disk `disk.img`.
    CloneOfFiles,
    /// An OVA: a tar with one disk image of this format; `None` recognises the format by its first
    /// bytes. The tar is read to its end, where its manifest may be.
    Appliance(Option<Format>),
}

/// Ours, not CDI's: the header with the [`ChosenFormat`] of an uploaded image. In a DataVolume's
/// `extraHeaders`, it is for the importer's pod and not sent to the server.
pub const FORMAT_HEADER: &str = "x-cdi-workers-format";

/// Advice after an error for which [`crate::Error::can_be_kept`] is true, on a command line.
pub const KEEP_BY_OPTION: &str = "; to store the bytes as they are, give --format verbatim";

/// The same for uploads, and for authors of a DataVolume, whose `extraHeaders` have this effect.
pub const KEEP_BY_HEADER: &str =
    "; to store the bytes as they are, add the header X-CDI-Workers-Format: verbatim";

/// A format that somebody chose instead of having it detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenFormat {
    /// All bytes as they are. `raw`, in contrast, still removes compression.
    Verbatim,
    /// All bytes inside one zstd stream. For our own programs, which compress what they send.
    VerbatimInZstd,
    /// An image of this format.
    Image(Format),
}

impl ChosenFormat {
    /// The name of [`ChosenFormat::Verbatim`].
    pub const VERBATIM: &str = "verbatim";

    const VERBATIM_IN_ZSTD: &str = "verbatim+zstd";

    /// Returns the name by which the format is chosen.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbatim => Self::VERBATIM,
            Self::VerbatimInZstd => Self::VERBATIM_IN_ZSTD,
            Self::Image(format) => format.flag_name(),
        }
    }

    /// Returns the content that becomes a disk.
    pub fn payload_kind(self) -> PayloadKind {
        match self {
            Self::Verbatim => PayloadKind::Disk(StatedDisk::PLAIN),
            Self::VerbatimInZstd => PayloadKind::Disk(StatedDisk::ZSTD),
            Self::Image(format) => PayloadKind::Image(Some(format)),
        }
    }
}

impl From<Option<ChosenFormat>> for PayloadKind {
    fn from(chosen: Option<ChosenFormat>) -> Self {
        chosen.map_or_else(Self::default, ChosenFormat::payload_kind)
    }
}

impl FromStr for ChosenFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            Self::VERBATIM => Ok(Self::Verbatim),
            Self::VERBATIM_IN_ZSTD => Ok(Self::VerbatimInZstd),
            name => {
                let listed = |error| format!("{error}, or {}", Self::VERBATIM);
                name.parse().map(Self::Image).map_err(listed)
            }
        }
    }
}

impl Default for PayloadKind {
    fn default() -> Self {
        Self::Image(None)
    }
}

impl PayloadKind {
    /// A raw disk written by a guest, whatever its first and last bytes look like.
    pub const RAW: Self = Self::Image(Some(Format::Raw));

    /// The format, if it is known before the first byte. A clone is always raw, because the disk
    /// of a guest may begin like any image.
    pub fn known_format(self) -> Option<Format> {
        match self {
            Self::Image(format) | Self::Appliance(format) => format,
            Self::CloneOfFiles | Self::Disk(_) => Some(Format::Raw),
        }
    }
}

/// Default of [`DecodeLimits::spare_bytes`]. Headers, indexes, seek tables and padding take less.
const SPARE_BYTES: u64 = 64 << 20;

/// Limits that all layers of a stack share.
#[derive(Debug, Clone)]
pub struct DecodeLimits {
    /// Memory for windows (zstd) and dictionaries (xz). The size in the stream's header is
    /// requested from this budget before the memory is allocated.
    pub memory: MemoryBudget,
    /// Bytes that a layer may read before the innermost layer produces any output; see
    /// `decode/expansion_budget.rs`.
    pub spare_bytes: u64,
    /// Threads that a layer may decode with, if its format and the way it was encoded allow that
    /// (xz). With one thread, the reading thread decodes.
    pub threads: NonZeroUsize,
}

impl Default for DecodeLimits {
    /// The budget of the process, the spare bytes that real streams need, and one thread.
    fn default() -> Self {
        Self {
            memory: MemoryBudget::default(),
            spare_bytes: SPARE_BYTES,
            threads: NonZeroUsize::MIN,
        }
    }
}

/// Settings of everything that reads a source.
#[derive(Clone)]
pub struct ReadOptions {
    /// The expected digest of the whole object, computed over the bytes as transferred.
    pub checksum: Option<Checksum>,
    /// The compression around the payload.
    pub layers: CompressionLayers,
    /// Reject, as CDI does, a source that ends before an image header of 512 bytes is complete,
    /// compressed or not. It may be a web page about an image. Otherwise such a source is a raw
    /// disk of one sector.
    pub full_header: bool,
    /// The size in bytes that the disk must have, if the source states it.
    pub disk_bytes: Option<u64>,
    /// Read the source to its end even if the image does not need all of it: another process may
    /// be waiting to send the rest, or the caller wants to confirm that everything arrived.
    pub read_all: bool,
    /// Limits of the decoders. Where a disk is written, the number of decoding threads equals the
    /// number of writing threads.
    pub limits: DecodeLimits,
    /// Maximum number of source bytes per second.
    pub limit_rate: Option<NonZeroU64>,
    /// Minimum number of source bytes per second.
    pub speed_limit: Option<SpeedLimit>,
    /// Cancelling this token ends the operation soon afterwards.
    pub stop: CancellationToken,
    /// The observer that receives the progress.
    pub observer: Arc<dyn Observer>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            checksum: None,
            layers: CompressionLayers::Sniffed,
            full_header: false,
            disk_bytes: None,
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
    /// The default settings with a token that ends the operation.
    pub fn with_stop(stop: CancellationToken) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Returns the payload of `source` and the settings for reading it. The format that the
    /// source states counts unless the user chose another one.
    pub fn for_payload(&self, payload: PayloadKind, source: &dyn Source) -> (PayloadKind, Self) {
        let stated = match payload {
            PayloadKind::Disk(stated) => Some(stated),
            PayloadKind::Image(None) => source.stated_disk(),
            _ => None,
        };
        match stated {
            Some(StatedDisk { layers, bytes }) => {
                let reading =
                    Self { layers, disk_bytes: bytes, full_header: false, ..self.clone() };
                (PayloadKind::RAW, reading)
            }
            None => (payload, self.clone()),
        }
    }

    /// Returns an error if the disk has another size than its source states.
    pub fn check_disk_size(&self, found: u64) -> Result<(), FormatError> {
        match self.disk_bytes {
            Some(stated) if stated != found => Err(FormatError::StatedSize { stated, found }),
            _ => Ok(()),
        }
    }

    /// Returns an error if a stream that begins with `head` is empty, or shorter than required.
    pub fn check_header(&self, head: &[u8]) -> Result<(), DecodeError> {
        match head.len() {
            0 => Err(DecodeError::Empty),
            bytes if bytes < HEADER_BYTES && self.full_header => {
                Err(DecodeError::ShortHeader { bytes })
            }
            _ => Ok(()),
        }
    }

    /// Returns an error if the operation should stop. The last call comes before the step that
    /// completes the result: a later request to stop has no effect.
    pub fn check_stop(&self) -> Result<(), Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}
