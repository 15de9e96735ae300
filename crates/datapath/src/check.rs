//! Checks that an image is consistent, without converting it.

use bytes::Bytes;
use diskimage::{Error as ImageError, Findings, Format, Guest, GuestSink, HeadFacts, ImageChecker};

use codec::decode;
use codec::inflate::Inflater;
use inspect::{ImageHead, open_mapped};
use inspect::{fetch_map, fetch_tables, ranged_length};
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::meter::Meter;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

use crate::format::pass_mapped;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The format of the image.
    pub format: Format,
    /// Size of the virtual disk in bytes.
    pub virtual_size: u64,
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Contradictions between the tables of the image, and totals of what they refer to.
    pub findings: Findings,
    /// Number of compressed clusters that were inflated. `None` if that was not requested, or if
    /// the map is too damaged to find them.
    pub inflated_clusters: Option<u64>,
}

/// Reads all tables of the image in `source` and checks their references against each other. The
/// source must support ranges. With `data`, all compressed clusters are inflated as well. An image
/// that cannot even be opened is an error.
pub fn check_image(
    source: &dyn Source,
    payload: PayloadKind,
    reading: &ReadOptions,
    data: bool,
) -> Result<CheckReport, Error> {
    let (payload, reading) = reading.for_payload(payload, source);
    let reading = &reading;
    let input = decode::decode_input(Meter::new(source, reading)?, reading, &reading.limits)?;
    let mut input = tar::open_payload(input, payload, reading)?;
    let ImageHead { format, .. } = ImageHead::read(&mut input, payload, reading)?;
    if format == Format::Raw {
        return Err(ImageError::NothingToCheck.into());
    }
    let memory = &reading.limits.memory;
    let image = open_mapped(format, &mut input, memory)?;
    let facts = image.head_facts();
    let Some(image_bytes) = ranged_length(source, &mut input) else {
        let reason = "images are checked in place: the image must not be compressed as a whole, and its source must support ranges";
        return Err(SourceError::new(SourceErrorKind::Invalid, reason).into());
    };
    let mut checker = ImageChecker::new(image, image_bytes, memory.empty_grant());
    fetch_tables(&mut checker, source, &mut input, memory)?;
    let findings = checker.finish_check();

    let mut inflated_clusters = None;
    if data {
        let image = open_mapped(format, &mut input, memory)?;
        match fetch_map(image, image_bytes, source, &mut input, memory) {
            Ok(map) => {
                let mut sink =
                    InflatingSink { facts: &facts, inflater: Inflater::default(), count: 0 };
                pass_mapped(&mut map.into_stream(), &mut input, &mut sink, |_| ())?;
                inflated_clusters = Some(sink.count);
            }
            // The findings already report the damage that makes the map unreadable.
            Err(Error::Format(_)) if findings.error_count > 0 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(CheckReport {
        format,
        virtual_size: facts.virtual_size,
        image_bytes,
        findings,
        inflated_clusters,
    })
}

/// A sink that inflates compressed clusters and discards the result.
struct InflatingSink<'f> {
    facts: &'f HeadFacts,
    inflater: Inflater,
    count: u64,
}

impl GuestSink for InflatingSink<'_> {
    type Error = Error;

    fn write_data(&mut self, _guest: Guest, _bytes: Bytes) -> Result<(), Error> {
        Ok(())
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let HeadFacts { clusters, virtual_size, .. } = *self.facts;
        self.inflater.inflate_to_buffer(clusters, guest, &bytes, virtual_size)?;
        self.count += 1;
        Ok(())
    }
}
