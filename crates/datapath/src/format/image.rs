//! The image in the middle of a transfer: opened, then copied.

use diskimage::{CompressedClusters, Format};

use super::head::{ImageHead, in_transfer, open_mapped};
use super::mapped::MappedImage;
use super::raw::{self, CopiedDisk, EndingKind, SECTOR};
use super::tables::ranged_length;
use crate::disk::Writer;
use crate::error::Error;
use crate::facts::{ImageFacts, RouteTaken};
use crate::input::TransferInput;
use crate::options::{PayloadKind, ReadOptions, ReadRoute, WriteOptions};
use crate::source::Source;

/// An image, ready to be copied.
pub(crate) enum PreparedImage {
    /// The stream is the disk.
    Raw {
        /// Bytes in whole sectors, if known.
        virtual_size: Option<u64>,
        /// The part that may follow the disk.
        ending: EndingKind,
    },
    /// An image with a map of its clusters.
    Mapped(MappedImage),
}

impl PreparedImage {
    /// Everything before the first data byte: the format, and where the source can be asked, the whole map or the footer.
    pub(crate) fn open(
        source: &dyn Source,
        input: &mut TransferInput,
        payload: PayloadKind,
        reading: &ReadOptions,
        route: ReadRoute,
    ) -> Result<Self, Error> {
        let ImageHead { format, ending } = ImageHead::read(input, payload, reading)?;
        if format != Format::Raw {
            let image = in_transfer(reading, open_mapped(format, input, &reading.limits.memory))?;
            let mapped = MappedImage::start(image, source, input, reading, route)?;
            return Ok(Self::Mapped(mapped));
        }
        // With the size known ahead the disk is checked for room, and made, before the first byte.
        let footer = match route {
            ReadRoute::Auto => look_ahead(ending, source, input)?,
            ReadRoute::OnePass => None,
        };
        let ending = if footer.is_some() { EndingKind::Footer } else { ending };
        let virtual_size = footer.or_else(|| input.total_bytes().map(whole_sectors));
        Ok(Self::Raw { virtual_size, ending })
    }

    /// Facts about the image, of which the source or the layers of `input` tell some.
    pub(crate) fn image_facts(&self, input: &TransferInput) -> ImageFacts {
        let layers = input.layer_names();
        match self {
            Self::Raw { virtual_size, ending } => ImageFacts {
                layers,
                format: match ending {
                    EndingKind::Footer => Format::Vhd,
                    EndingKind::Disk | EndingKind::Sniffed => Format::Raw,
                },
                virtual_size: *virtual_size,
                route: RouteTaken::Raw,
            },
            Self::Mapped(mapped) => mapped.image_facts(layers),
        }
    }

    /// The clusters of the image, where it has some that are compressed.
    pub(crate) fn compressed_clusters(&self) -> Option<CompressedClusters> {
        match self {
            Self::Raw { .. } => None,
            Self::Mapped(mapped) => mapped.facts.clusters,
        }
    }

    /// Copies the guest's bytes to `writer`, and makes the rest of the disk zero. `tick` is called now and then.
    pub(crate) fn copy_to_disk(
        self,
        input: &mut TransferInput,
        writer: &mut Writer<'_>,
        reading: &ReadOptions,
        writing: &WriteOptions,
        tick: impl FnMut(&Writer<'_>),
    ) -> Result<CopiedDisk, Error> {
        let copied = match self {
            Self::Raw { virtual_size, ending } => {
                // The size of a disk without a footer is what comes.
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

/// Bytes in whole sectors. An entry of a tar may claim any size.
fn whole_sectors(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX)
}

/// Bytes of the disk by the footer behind it, if the source can be asked for that before everything else.
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
    length.map_or(Ok(None), |length| ending.disk_size_ahead(source, length))
}
