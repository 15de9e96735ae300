//! The image in the middle of a transfer: opened, then copied.

use diskimage::{Clusters, Format};

use super::head::{Head, in_transfer, open_mapped};
use super::mapped::Mapped;
use super::raw::{self, Copied, Ending, SECTOR};
use super::tables::ranged_length;
use crate::disk::Writer;
use crate::error::Error;
use crate::facts::{ImageFacts, RouteTaken};
use crate::input::Input;
use crate::options::{Payload, Reading, Route, Writing};
use crate::source::Source;

/// An image, ready to be copied.
pub(crate) enum Image {
    /// The stream is the disk.
    Raw {
        /// Bytes in whole sectors, if known.
        virtual_size: Option<u64>,
        /// The part that may follow the disk.
        ending: Ending,
    },
    /// An image with a map of its clusters.
    Mapped(Mapped),
}

impl Image {
    /// Everything before the first data byte: the format, and where the source can be asked, the whole map or the footer.
    pub(crate) fn open(
        source: &dyn Source,
        input: &mut Input,
        payload: Payload,
        reading: &Reading,
        route: Route,
    ) -> Result<Self, Error> {
        let Head { format, ending } = Head::read(input, payload, reading)?;
        if format != Format::Raw {
            let image = in_transfer(reading, open_mapped(format, input, &reading.limits.memory))?;
            let mapped = Mapped::start(image, source, input, reading, route)?;
            return Ok(Self::Mapped(mapped));
        }
        // With the size known ahead the disk is checked for room, and made, before the first byte.
        let footer = match route {
            Route::Auto => look_ahead(ending, source, input)?,
            Route::OnePass => None,
        };
        let ending = if footer.is_some() { Ending::Footer } else { ending };
        let virtual_size = footer.or_else(|| input.length().map(whole_sectors));
        Ok(Self::Raw { virtual_size, ending })
    }

    /// Facts about the image, of which the source or the layers of `input` tell some.
    pub(crate) fn facts(&self, input: &Input) -> ImageFacts {
        let layers = input.layers();
        match self {
            Self::Raw { virtual_size, ending } => ImageFacts {
                layers,
                format: match ending {
                    Ending::Footer => Format::Vhd,
                    Ending::Disk | Ending::Sniffed => Format::Raw,
                },
                virtual_size: *virtual_size,
                route: RouteTaken::Raw,
            },
            Self::Mapped(mapped) => mapped.image_facts(layers),
        }
    }

    /// The clusters of the image, where it has some that are compressed.
    pub(crate) fn clusters(&self) -> Option<Clusters> {
        match self {
            Self::Raw { .. } => None,
            Self::Mapped(mapped) => mapped.facts.clusters,
        }
    }

    /// Copies the guest's bytes to `writer`, and makes the rest of the disk zero. `tick` is called now and then.
    pub(crate) fn copy(
        self,
        input: &mut Input,
        writer: &mut Writer<'_>,
        reading: &Reading,
        writing: &Writing,
        tick: impl FnMut(&Writer<'_>),
    ) -> Result<Copied, Error> {
        let copied = match self {
            Self::Raw { virtual_size, ending } => {
                // The size of a disk without a footer is what comes.
                let limit = virtual_size.filter(|_| ending == Ending::Footer);
                raw::copy(input, writer, ending, limit, tick)?
            }
            Self::Mapped(mut mapped) => {
                mapped.copy(input, writer, reading, writing, tick)?;
                Copied {
                    virtual_size: mapped.facts.virtual_size,
                    format: mapped.facts.format,
                }
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
fn look_ahead(ending: Ending, source: &dyn Source, input: &mut Input) -> Result<Option<u64>, Error> {
    let is_worth_it = |length| ending.is_worth_a_look(length);
    if !source.length().is_some_and(is_worth_it) {
        return Ok(None);
    }
    let length = ranged_length(source, input);
    length.map_or(Ok(None), |length| ending.disk_size_ahead(source, length))
}
