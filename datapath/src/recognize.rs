//! The head of the source: which layers, which format, how large, which route.

use std::sync::Arc;

use diskimage::qcow2::{HEADER_BYTES, Header, MapBuilder};
use diskimage::{DETECT_BYTES, Format};

use crate::archive::DiskImage;
use crate::chunks::Peek;
use crate::decode::{self, Codec, SNIFF_BYTES};
use crate::digest::Hashing;
use crate::error::{DecodeError, Error, FormatError};
use crate::format::Input;
use crate::format::qcow2::{HEAD_BYTES, Metadata, read_map};
use crate::format::raw::SECTOR;
use crate::meter::{Meter, Readings};
use crate::source::Source;
use crate::transfer::{Envelope, Options, Route, RouteTaken};

/// An image, ready to be converted.
pub(crate) enum Image {
    /// The stream is the disk.
    Raw {
        /// Bytes in whole sectors, if known.
        virtual_size: Option<u64>,
    },
    /// qcow2.
    Qcow2 {
        /// Its header.
        header: Header,
        /// Its map, on the ranged route.
        map: Option<Box<MapBuilder>>,
    },
}

impl Image {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Raw { .. } => Format::Raw,
            Self::Qcow2 { .. } => Format::Qcow2,
        }
    }

    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Raw { .. } => None,
            Self::Qcow2 { header, .. } => Some(header),
        }
    }

    pub(crate) fn virtual_size(&self) -> Option<u64> {
        match self {
            Self::Raw { virtual_size } => *virtual_size,
            Self::Qcow2 { header, .. } => Some(header.virtual_size),
        }
    }

    pub(crate) fn route(&self) -> RouteTaken {
        match self {
            Self::Raw { .. } => RouteTaken::Raw,
            Self::Qcow2 { map: Some(_), .. } => RouteTaken::Ranged,
            Self::Qcow2 { map: None, .. } => RouteTaken::OnePass,
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
    let meter = Meter::new(
        source,
        digest,
        options.limit_rate,
        Arc::clone(&options.observer),
        options.stop.clone(),
    )?;
    let readings = meter.readings();
    let mut stream = Peek::new(meter);
    let head = stream.peek(SNIFF_BYTES)?;
    if head.is_empty() {
        return Err(DecodeError::Empty.into());
    }
    let (layers, input) = match (envelope, decode::sniff(&head)) {
        (Envelope::Snappy | Envelope::SnappyTar, _) => {
            let decoded = Codec::Snappy.decoder(Box::new(stream), limits);
            (vec![Codec::Snappy], Input::Decoded(Peek::new(decoded)))
        }
        (Envelope::Sniffed, Some(_)) => {
            let decoded = decode::open(Box::new(stream), limits)?;
            (decoded.layers, Input::Decoded(decoded.stream))
        }
        (Envelope::Sniffed | Envelope::Bare, _) => {
            if envelope == Envelope::Sniffed {
                decode::check_supported(&head)?;
            }
            (
                Vec::new(),
                Input::Direct {
                    stream,
                    position: 0,
                    // Found out when an image turns up that has a map: it costs a request.
                    ranged: false,
                },
            )
        }
    };
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
    if options.envelope == Envelope::SnappyTar {
        let disk = DiskImage::find(Box::new(input))?;
        image_bytes = Some(disk.size());
        layers.push("tar");
        input = Input::Decoded(Peek::new(Box::new(disk)));
    }
    let head = input.peek(DETECT_BYTES)?;
    if head.is_empty() {
        return Err(DecodeError::Empty.into());
    }
    let found = match options.envelope {
        Envelope::Sniffed => Format::detect(&head),
        // The bytes are a guest's: they may look like anything.
        Envelope::Bare | Envelope::Snappy | Envelope::SnappyTar => Format::Raw,
    };
    Ok(Opened {
        layers,
        input,
        readings,
        format: decide(found, options.format)?,
        image_bytes,
    })
}

/// A forced format: raw is always true, the others must be what the content says.
fn decide(found: Format, wanted: Option<Format>) -> Result<Format, Error> {
    match wanted {
        Some(Format::Raw) => Ok(Format::Raw),
        Some(wanted) if wanted != found => {
            Err(FormatError::from(diskimage::Error::NotThatFormat { wanted, found }).into())
        }
        _ => Ok(found),
    }
}

/// Everything before the first data byte: also whether a map has no holes, where the source can be asked.
pub(crate) fn recognize(source: &dyn Source, options: &Options) -> Result<Recognized, Error> {
    let Opened {
        layers,
        mut input,
        readings,
        format,
        image_bytes,
    } = open(source, options, &options.decode_limits())?;
    let image = match format {
        Format::Raw => Image::Raw {
            // An entry of a tar may claim any size.
            virtual_size: image_bytes.map(|bytes| bytes.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX)),
        },
        Format::Qcow2 => {
            let header = Header::parse(&input.peek(HEADER_BYTES)?).map_err(FormatError::from)?;
            let map = match options.route {
                Route::Auto => fetch_map(&header, source, &mut input)?.map(Box::new),
                Route::OnePass => None,
            };
            Image::Qcow2 { header, map }
        }
        other => return Err(FormatError::from(diskimage::Error::UnsupportedFormat(other)).into()),
    };
    Ok(Recognized {
        layers,
        image,
        input,
        readings,
    })
}

/// The map of the image, if the source can be asked for ranges. It is asked only here: finding out costs a request.
pub(crate) fn fetch_map(
    header: &Header,
    source: &dyn Source,
    input: &mut Input,
) -> Result<Option<MapBuilder>, Error> {
    let Some(length) = source.length() else {
        return Ok(None);
    };
    let Input::Direct { ranged, .. } = input else {
        return Ok(None);
    };
    *ranged = source.is_ranged();
    if !*ranged {
        return Ok(None);
    }
    let head = input.peek(HEAD_BYTES)?;
    read_map(header.clone(), length, &Metadata { head, source }).map(Some)
}
