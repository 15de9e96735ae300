//! The one function that stacks the stages.

use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;

use diskimage::Format;
use tokio_util::sync::CancellationToken;

use crate::chunks::Chunks;
use crate::decode::{self, Codec};
use crate::digest::Checksum;
use crate::error::Error;
use crate::floor::SpeedLimit;
use crate::format::park::Park;
use crate::format::raw::{Copied, Ending};
use crate::format::{Input, mapped, raw};
use crate::memory;
use crate::meter::Readings;
use crate::observe::{Nobody, Observer, Phase};
use crate::recognize::{Image, Recognized, recognize};
use crate::source::Source;
use crate::target::{self, Disk, Writer, with_writer};

/// Which way an image with a map may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// Map first where the source has ranges, one pass elsewhere.
    #[default]
    Auto,
    /// Never ask the source for ranges.
    OnePass,
}

/// Which way an image took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteTaken {
    /// The stream is the disk.
    Raw,
    /// The map was read first.
    Ranged,
    /// The map was read as it passed.
    OnePass,
}

impl fmt::Display for RouteTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Ranged => "ranged",
            Self::OnePass => "one-pass",
        })
    }
}

/// What lies around the bytes of a disk or an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Envelope {
    /// Whatever the content shows.
    #[default]
    Sniffed,
    /// Nothing: the bytes are a disk that a guest has written, whatever its first ones look like.
    Bare,
    /// One layer of framed snappy and nothing else: below it is a raw disk, whatever its first bytes look like.
    Snappy,
    /// One layer of framed snappy, and in it a tar with the raw disk `disk.img`.
    SnappyTar,
    /// As `Snappy`, with [`crate::frames`] instead of snappy.
    Frames,
    /// As `SnappyTar`, with [`crate::frames`] instead of snappy.
    FramesTar,
    /// Whatever the content shows, and in it an OVA: a tar with one disk image of any format. It is read to its end, where
    /// its manifest may be.
    Ova,
}

impl Envelope {
    /// The one layer around a clone.
    pub(crate) fn clone_codec(self) -> Option<Codec> {
        match self {
            Self::Snappy | Self::SnappyTar => Some(Codec::Snappy),
            Self::Frames | Self::FramesTar => Some(Codec::Frames),
            Self::Sniffed | Self::Bare | Self::Ova => None,
        }
    }

    /// True if the disk is a file in a tar that is a clone of a directory.
    pub(crate) fn is_clone_of_files(self) -> bool {
        matches!(self, Self::SnappyTar | Self::FramesTar)
    }

    /// True if the bytes are those of a guest: they may look like anything.
    pub(crate) fn holds_a_guest(self) -> bool {
        self == Self::Bare || self.clone_codec().is_some()
    }
}

/// How to transfer.
#[derive(Clone)]
pub struct Options {
    /// What the whole object must digest to, over the bytes as transferred.
    pub checksum: Option<Checksum>,
    /// The format, if the content must not decide.
    pub format: Option<Format>,
    /// What lies around the image.
    pub envelope: Envelope,
    /// Refuse what ends before an image has its header, 512 bytes, packed or unpacked, as CDI does: it may be a page about an
    /// image. Otherwise that is a raw disk of one sector.
    pub full_header: bool,
    /// Read the source to its end, whether or not the image needs that: somebody waits for it, or wants to know that all of
    /// it came.
    pub read_all: bool,
    /// Which way to go.
    pub route: Route,
    /// Caps of the decoders; how many threads they may use is up to `workers` when an image is transferred.
    pub limits: decode::Limits,
    /// Most source bytes a second.
    pub limit_rate: Option<NonZeroU64>,
    /// Least source bytes a second.
    pub speed_limit: Option<SpeedLimit>,
    /// Threads that write, inflating clusters where the image has such; and as many that decode where the stream can be
    /// decoded by several.
    pub workers: NonZeroUsize,
    /// A directory for clusters that fit nowhere else; see [`crate::format::park`].
    pub scratch: Option<PathBuf>,
    /// Ends the transfer soon after it is cancelled.
    pub stop: CancellationToken,
    /// Who is told.
    pub observer: Arc<dyn Observer>,
}

impl Options {
    /// The caps of the decoders of an image, which may be decoded by several threads.
    pub(crate) fn decode_limits(&self) -> decode::Limits {
        decode::Limits {
            threads: self.workers,
            ..self.limits.clone()
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            checksum: None,
            format: None,
            envelope: Envelope::Sniffed,
            full_header: false,
            read_all: false,
            route: Route::Auto,
            limits: decode::Limits::default(),
            limit_rate: None,
            speed_limit: None,
            workers: NonZeroUsize::MIN.saturating_add(1),
            scratch: None,
            stop: CancellationToken::new(),
            observer: Nobody::shared(),
        }
    }
}

/// What was recognised before the first data byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Names of the layers around the image, outermost first.
    pub layers: Vec<&'static str>,
    /// The image format below them.
    pub format: Format,
    /// Bytes of the virtual disk; `None` for raw images whose length only their end tells.
    pub virtual_size: Option<u64>,
    /// Which way the image takes.
    pub route: RouteTaken,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What the image was.
    pub facts: ImageFacts,
    /// Bytes of the virtual disk.
    pub virtual_size: u64,
    /// Bytes of the target: more than the virtual size if it was grown.
    pub disk_size: u64,
    /// Source bytes that were consumed (or skipped, on the ranged route).
    pub source_bytes: u64,
    /// Bytes that were written to the target.
    pub written_bytes: u64,
    /// The digest of the whole object, if one was asked for.
    pub checksum: Option<String>,
    /// True if every block of the target is allocated.
    pub preallocated: bool,
    /// The most memory that data took at once, since the process began; see [`memory`].
    pub peak_held_bytes: usize,
}

/// Moves an image from `source` onto the target. Returns when it is complete, verified and on the disk; after a
/// failure nothing is left that looks complete.
pub fn transfer(source: &dyn Source, target: &target::Options, options: &Options) -> Result<Report, Error> {
    options.observer.phase(Phase::Info);
    target::refuse_source(&target.path, source)?;
    let Recognized {
        layers,
        image,
        mut input,
        readings,
    } = recognize(source, options)?;
    let mut facts = ImageFacts {
        layers,
        format: image.format(),
        virtual_size: image.virtual_size(),
        route: image.route(),
    };
    options.observer.image(&facts);
    if image.is_marked_corrupt() {
        tracing::warn!("the image is marked as corrupt by an earlier writer; reading it as qemu-img would");
    }

    options.observer.phase(Phase::Transfer);
    let disk = Disk::open(target, facts.virtual_size)?;
    let Copied { virtual_size, format } = run(image, &mut input, &disk, options)?;
    facts.format = format;
    let is_appliance = options.envelope == Envelope::Ova;
    if options.checksum.is_some() || options.read_all || source.verifies() || is_appliance {
        drain(&mut input)?;
    }
    let checksum = verify_checksum(options, &readings)?;
    let source_bytes = readings.position();

    options.observer.phase(Phase::Resize);
    let disk_size = disk.resize(virtual_size, target.size)?;
    // The last look: what follows makes the disk complete.
    if options.stop.is_cancelled() {
        return Err(Error::Stopped);
    }
    let written_bytes = disk.commit(virtual_size, target.mode)?;
    options.observer.target_written(written_bytes);
    options.observer.phase(Phase::Complete);
    Ok(Report {
        facts,
        virtual_size,
        disk_size,
        source_bytes,
        written_bytes,
        checksum,
        preallocated: target.preallocate,
        peak_held_bytes: memory::peak(),
    })
}

/// The middle of the stack: from the image's bytes to a written disk that only lacks its first MiB.
fn run(image: Image, input: &mut Input, disk: &Disk, options: &Options) -> Result<Copied, Error> {
    let virtual_size = image.virtual_size();
    let clusters = image.clusters();
    let tick = |writer: &Writer<'_>| options.observer.target_written(writer.disk().written_bytes());
    with_writer(
        disk,
        clusters,
        virtual_size,
        options.workers,
        &options.stop,
        |writer| match image {
            Image::Raw { ending, .. } => {
                // The size of a disk without a footer is what comes.
                let limit = virtual_size.filter(|_| ending == Ending::Footer);
                let copied = raw::copy(input, writer, ending, limit, tick)?;
                writer.zero_until(copied.virtual_size)?;
                Ok(copied)
            }
            Image::Mapped {
                facts,
                mut stream,
                route,
            } => {
                match route {
                    RouteTaken::OnePass => {
                        let park = Park::new(&facts, writer, options);
                        mapped::copy_one_pass(&mut stream, input, writer, park, tick)?;
                    }
                    RouteTaken::Ranged | RouteTaken::Raw => {
                        mapped::copy_mapped(&mut stream, input, writer, tick)?;
                    }
                }
                writer.zero_until(facts.virtual_size)?;
                Ok(Copied {
                    virtual_size: facts.virtual_size,
                    format: facts.format,
                })
            }
        },
    )
}

/// What the image did not need is read now: a checksum is of the whole object.
pub(crate) fn drain(input: &mut Input) -> Result<(), Error> {
    while input.next_chunk()?.is_some() {}
    Ok(())
}

/// Compares the digest of all that was read with what it should be.
pub(crate) fn verify_checksum(options: &Options, readings: &Readings) -> Result<Option<String>, Error> {
    let Some(expected) = &options.checksum else {
        return Ok(None);
    };
    let calculated = readings.digest().unwrap_or_default();
    expected.verify(&calculated)?;
    Ok(Some(calculated))
}
