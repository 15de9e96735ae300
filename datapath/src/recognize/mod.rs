//! The head of the source: which layers, which format, how large, which route.

mod mapped;

use std::sync::Arc;

use diskimage::vhd::COOKIE;
use diskimage::{Clusters, DETECT_BYTES, Facts, Format, Stream};

pub(crate) use self::mapped::{fetch_map, open_image, ranged_length, start};

use crate::archive::{Appliance, DiskImage};
use crate::chunks::Peek;
use crate::decode::{self, SNIFF_BYTES};
use crate::digest::Hashing;
use crate::error::{DecodeError, Error, FormatError};
use crate::format::Input;
use crate::format::raw::{Ending, SECTOR};
use crate::meter::{Meter, Readings};
use crate::observe::Phase;
use crate::source::Source;
use crate::transfer::{Envelope, Options, Route, RouteTaken};

/// Bytes that upstream takes for the header of an image, whichever its format (contract §1.9).
const HEADER_BYTES: usize = 512;

/// An image, ready to be converted.
pub(crate) enum Image {
    /// The stream is the disk.
    Raw {
        /// Bytes in whole sectors, if known.
        virtual_size: Option<u64>,
        /// What may follow the disk.
        ending: Ending,
    },
    /// One with a map.
    Mapped {
        /// What its head tells.
        facts: Facts,
        /// What converts it.
        stream: Box<Stream>,
        /// Whether the map is there already.
        route: RouteTaken,
    },
}

impl Image {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Raw {
                ending: Ending::Footer,
                ..
            } => Format::Vhd,
            Self::Raw { .. } => Format::Raw,
            Self::Mapped { facts, .. } => facts.format,
        }
    }

    pub(crate) fn clusters(&self) -> Option<Clusters> {
        match self {
            Self::Raw { .. } => None,
            Self::Mapped { facts, .. } => facts.clusters,
        }
    }

    pub(crate) fn is_marked_corrupt(&self) -> bool {
        matches!(self, Self::Mapped { facts, .. } if facts.is_marked_corrupt)
    }

    pub(crate) fn virtual_size(&self) -> Option<u64> {
        match self {
            Self::Raw { virtual_size, .. } => *virtual_size,
            Self::Mapped { facts, .. } => Some(facts.virtual_size),
        }
    }

    pub(crate) fn route(&self) -> RouteTaken {
        match self {
            Self::Raw { .. } => RouteTaken::Raw,
            Self::Mapped { route, .. } => *route,
        }
    }
}

/// A source of which everything is known that its head can tell.
pub(crate) struct Recognized {
    pub(crate) layers: Vec<&'static str>,
    pub(crate) image: Image,
    pub(crate) input: Input,
    pub(crate) readings: Arc<Readings>,
}

/// A source whose envelope is undone.
pub(crate) struct Unwrapped {
    pub(crate) layers: Vec<&'static str>,
    pub(crate) input: Input,
    pub(crate) readings: Arc<Readings>,
}

/// The undone layers of a source, and the first bytes below them.
pub(crate) struct Opened {
    pub(crate) layers: Vec<&'static str>,
    pub(crate) input: Input,
    pub(crate) readings: Arc<Readings>,
    pub(crate) format: Format,
    /// What may follow the disk of a raw image.
    pub(crate) ending: Ending,
    /// Bytes of the image, if what lies around it tells.
    pub(crate) image_bytes: Option<u64>,
}

/// Stacks meter and decoders, which keep to `limits`.
pub(crate) fn unwrap(
    source: &dyn Source,
    options: &Options,
    envelope: Envelope,
    limits: &decode::Limits,
) -> Result<Unwrapped, Error> {
    let digest = options
        .checksum
        .as_ref()
        .map(|checksum| Hashing::start(checksum.algorithm()));
    let meter = Meter::new(source, digest, options)?;
    let readings = meter.readings();
    let mut stream = Peek::new(meter);
    let head = stream.peek(SNIFF_BYTES.max(HEADER_BYTES))?;
    check_header(&head, options)?;
    let is_bare = envelope == Envelope::Bare;
    let (layers, mut input) = match (envelope.clone_codec(), decode::sniff(&head)) {
        (Some(codec), _) => {
            let decoded = decode::open_clone(codec, Box::new(stream), limits);
            (vec![codec], Input::decoded(decoded))
        }
        (None, Some(_)) if !is_bare => {
            let decoded = decode::open(Box::new(stream), limits)?;
            (decoded.layers, Input::decoded(decoded.stream))
        }
        (None, _) => {
            if !is_bare {
                decode::check_supported(&head)?;
            }
            (Vec::new(), Input::direct(stream, limits.memory.grant()))
        }
    };
    check_header(&input.peek(HEADER_BYTES)?, options)?;
    Ok(Unwrapped {
        layers: layers.iter().map(|codec| codec.name()).collect(),
        input,
        readings,
    })
}

/// Undoes the envelope and decides the format.
pub(crate) fn open(source: &dyn Source, options: &Options, limits: &decode::Limits) -> Result<Opened, Error> {
    let Unwrapped {
        mut layers,
        mut input,
        readings,
    } = unwrap(source, options, options.envelope, limits)?;
    let mut image_bytes = if layers.is_empty() { source.length() } else { None };
    if options.envelope.is_clone_of_files() {
        let disk = DiskImage::find(Box::new(input))?;
        image_bytes = Some(disk.size());
        layers.push("tar");
        input = Input::decoded(Peek::new(Box::new(disk)));
    }
    let mut promised = None;
    if options.envelope == Envelope::Ova {
        let appliance = Appliance::find(Box::new(input))?;
        image_bytes = Some(appliance.size());
        promised = appliance.promised();
        layers.push("ova");
        input = Input::decoded(Peek::new(Box::new(appliance)));
    }
    check_header(&input.peek(HEADER_BYTES)?, options)?;
    let head = in_transfer(options, input.peek(DETECT_BYTES))?;
    let ending = ending(&head, options);
    let wanted = match ending {
        _ if options.envelope.holds_a_guest() => Some(Format::Raw),
        // What a footer makes an image begins like a raw disk.
        Ending::Footer => Some(Format::Raw),
        Ending::Disk | Ending::Sniffed => options.format,
    };
    let format = Format::decide(&head, wanted).map_err(FormatError::from)?;
    // Nobody calls a raw disk `disk.vmdk` but for one that a description in another file belongs to.
    if let (Format::Raw, None, Some(wanted)) = (format, options.format, promised) {
        let found = Format::Raw;
        return Err(FormatError::from(diskimage::Error::NotThatFormat { wanted, found }).into());
    }
    Ok(Opened {
        layers,
        input,
        readings,
        format,
        ending,
        image_bytes,
    })
}

/// Fails if a stream that begins with `head` has no bytes, or fewer than wanted.
fn check_header(head: &[u8], options: &Options) -> Result<(), DecodeError> {
    match head.len() {
        0 => Err(DecodeError::Empty),
        bytes if bytes < HEADER_BYTES && options.full_header => {
            tracing::warn!(
                "{bytes} bytes are no image: is the address that of a disk, and not of a folder or a page?"
            );
            Err(DecodeError::ShortHeader)
        }
        _ => Ok(()),
    }
}

/// A source that breaks behind the first bytes breaks in the transfer, as upstream has it, however much of the head we look at.
fn in_transfer<T>(options: &Options, result: Result<T, Error>) -> Result<T, Error> {
    result.inspect_err(|error| {
        if matches!(error, Error::Source(_)) {
            options.observer.phase(Phase::Transfer);
        }
    })
}

/// What may follow the disk, if the image is a raw one: nothing if that is known, and a footer if the user says so.
fn ending(head: &[u8], options: &Options) -> Ending {
    match options.format {
        _ if options.envelope.holds_a_guest() => Ending::Disk,
        Some(Format::Raw) => Ending::Disk,
        // A dynamic image begins with a copy of its footer.
        Some(Format::Vhd) if !head.starts_with(COOKIE) => Ending::Footer,
        _ => Ending::Sniffed,
    }
}

/// Everything before the first data byte: also whether a map has no holes, where the source can be asked.
pub(crate) fn recognize(source: &dyn Source, options: &Options) -> Result<Recognized, Error> {
    let Opened {
        layers,
        mut input,
        readings,
        format,
        ending,
        image_bytes,
    } = open(source, options, &options.decode_limits())?;
    let image = match format {
        Format::Raw => {
            let footer = if options.route == Route::Auto {
                look_ahead(ending, source, &mut input)?
            } else {
                None
            };
            let (virtual_size, ending) = match footer {
                Some(virtual_size) => (Some(virtual_size), Ending::Footer),
                None => (image_bytes.map(whole_sectors), ending),
            };
            Image::Raw { virtual_size, ending }
        }
        format => {
            let image = in_transfer(options, open_image(format, &mut input, &options.limits.memory))?;
            let facts = image.facts();
            let (stream, route) = start(image, source, &mut input, options)?;
            Image::Mapped {
                facts,
                stream: Box::new(stream),
                route,
            }
        }
    };
    Ok(Recognized {
        layers,
        image,
        input,
        readings,
    })
}

/// An entry of a tar may claim any size.
fn whole_sectors(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX)
}

/// Bytes of the disk by the footer behind it, if the source can be asked for that before everything else.
fn look_ahead(ending: Ending, source: &dyn Source, input: &mut Input) -> Result<Option<u64>, Error> {
    if !source
        .length()
        .is_some_and(|length| ending.is_worth_a_look(length))
    {
        return Ok(None);
    }
    match ranged_length(source, input) {
        Some(length) => ending.disk_size_ahead(source, length),
        None => Ok(None),
    }
}
