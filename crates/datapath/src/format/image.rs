//! The image in the middle of a transfer: first opened, then copied.

use codec::input::TransferInput;
use diskimage::{CompressedClusters, Format};
use inspect::ranged_length;
use inspect::raw::{EndingKind, SECTOR};
use inspect::{ImageHead, in_transfer, open_mapped};
use stream::error::Error;
use stream::facts::{ImageFacts, RouteTaken};
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

use super::mapped::MappedImage;
use super::raw::{self, CopiedDisk};
use crate::disk::Writer;
use crate::options::{ReadRoute, WriteOptions};

/// An image that is ready to be copied.
pub(crate) enum PreparedImage {
    /// A raw image: the stream is the disk.
    Raw {
        /// Size of the disk in bytes, rounded up to whole sectors, if known.
        virtual_size: Option<u64>,
        /// The kind of bytes that may follow the disk in the stream.
        ending: EndingKind,
        /// The warning about a stream that is probably not a disk.
        warning: Option<&'static str>,
    },
    /// An image with a map of its clusters.
    Mapped(MappedImage),
}

impl PreparedImage {
    /// Does everything that comes before the first data byte. Determines the format and, if the
    /// source supports ranges, reads the whole map or the footer.
    pub(crate) fn open(
        source: &dyn Source,
        input: &mut TransferInput,
        payload: PayloadKind,
        reading: &ReadOptions,
        route: ReadRoute,
    ) -> Result<Self, Error> {
        let ImageHead { format, ending, warning } = ImageHead::read(input, payload, reading)?;
        if format != Format::Raw {
            let image = in_transfer(reading, open_mapped(format, input, &reading.limits.memory))?;
            let mapped = MappedImage::start(image, source, input, reading, route)?;
            return Ok(Self::Mapped(mapped));
        }
        // If the size is known now, the disk is checked for space and created before the first
        // byte.
        let footer = match route {
            ReadRoute::Auto => look_ahead(ending, source, input)?,
            ReadRoute::OnePass => None,
        };
        let ending = if footer.is_some() { EndingKind::Footer } else { ending };
        let virtual_size = footer.or_else(|| input.total_bytes().map(whole_sectors));
        Ok(Self::Raw { virtual_size, ending, warning })
    }

    /// Facts about the image, including those that the source or the layers of `input` supply.
    pub(crate) fn image_facts(&self, input: &TransferInput) -> ImageFacts {
        let layers = input.layer_names();
        match self {
            Self::Raw { virtual_size, ending, warning } => ImageFacts {
                layers,
                format: match ending {
                    EndingKind::Footer => Format::Vhd,
                    EndingKind::Disk | EndingKind::Sniffed => Format::Raw,
                },
                virtual_size: *virtual_size,
                route: RouteTaken::Raw,
                warning: *warning,
            },
            Self::Mapped(mapped) => mapped.image_facts(layers),
        }
    }

    /// The codec and size of the image's compressed clusters, if it contains any.
    pub(crate) fn compressed_clusters(&self) -> Option<CompressedClusters> {
        match self {
            Self::Raw { .. } => None,
            Self::Mapped(mapped) => mapped.facts.clusters,
        }
    }

    /// Copies the guest's data to `writer` and makes the rest of the disk zero. Calls `tick`
    /// regularly to report progress.
    pub(crate) fn copy_to_disk(
        self,
        input: &mut TransferInput,
        writer: &mut Writer<'_>,
        reading: &ReadOptions,
        writing: &WriteOptions,
        tick: impl FnMut(&Writer<'_>),
    ) -> Result<CopiedDisk, Error> {
        let copied = match self {
            Self::Raw { virtual_size, ending, .. } => {
                // Without a footer the size of the disk is the length of the stream, so no limit
                // applies.
                let limit = virtual_size.filter(|_| ending == EndingKind::Footer);
                raw::copy_raw(input, writer, ending, limit, tick)?
            }
            Self::Mapped(mut mapped) => {
                mapped.copy_data(input, writer, reading, writing, tick)?;
                CopiedDisk { virtual_size: mapped.facts.virtual_size, format: mapped.facts.format }
            }
        };
        writer.zero_until(copied.virtual_size)?;
        Ok(copied)
    }
}

/// Rounds `bytes` up to whole sectors. Saturates, because a tar entry may claim any size.
fn whole_sectors(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX)
}

/// Size of the disk according to the footer at its end. `None` if the source cannot be read at
/// that offset first, or contains no footer.
fn look_ahead(
    ending: EndingKind,
    source: &dyn Source,
    input: &mut TransferInput,
) -> Result<Option<u64>, Error> {
    let is_worth_it = |length| ending.is_worth_a_look(length);
    if !source.total_bytes().is_some_and(is_worth_it) {
        return Ok(None);
    }
    let length = ranged_length(source, input);
    length.map_or(Ok(None), |length| ending.disk_size_ahead(source, input, length))
}
