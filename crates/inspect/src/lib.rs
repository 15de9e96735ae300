//! What is this image? Reads its head and its tables, but not its data.
//!
//! [`inspect_image`] reports the facts. The data path opens images with the same parts: the format
//! by [`ImageHead`], a map of clusters by [`fetch_map`], the end of a raw disk by [`raw`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod foreign;
mod head;
pub mod raw;
mod tables;

use diskimage::bytes_at::be64;
use diskimage::{Error as ImageError, Format, HEAD_BYTES};

use codec::decode;
use codec::input::TransferInput;
use stream::error::{Error, FormatError};
use stream::memory::MemoryBudget;
use stream::meter::Meter;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

pub use self::head::{ImageHead, detect_format, in_transfer, open_mapped};
use self::raw::{EndingKind, SECTOR};
pub use self::tables::{MetadataReader, fetch_map, fetch_tables, ranged_length};

/// Offset of the volume descriptor of ISO 9660: sector 16 of 2048 bytes (ECMA-119 §8.1).
const ISO_DESCRIPTOR: usize = 16 * 2048;

/// Offset of the virtual size in a qcow2 header (qcow2.rst, "Header").
const VIRTUAL_SIZE_AT: usize = 24;

/// Facts about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Names of the compressed layers, outermost first.
    pub layers: Vec<&'static str>,
    /// The image format inside the layers.
    pub format: Format,
    /// Size of the whole object in bytes.
    pub source_bytes: Option<u64>,
    /// Size of the virtual disk in bytes, if it can be determined without reading the whole
    /// source.
    pub virtual_size: Option<u64>,
    /// Number of image bytes that contain guest data, if the source supports ranges.
    pub allocated_bytes: Option<u64>,
    /// Size of a cluster in bytes.
    pub cluster_size: Option<u64>,
    /// Unusual features of the image.
    pub features: Vec<String>,
    /// Names of other files that the image refers to.
    pub references: Vec<String>,
    /// Number of internal snapshots.
    pub snapshots: u32,
    /// Why an import would refuse the image.
    pub refused: Option<String>,
    /// For a source that contains only changes: the number of bytes that changed since the earlier
    /// state, and the number of ranges that contain them.
    pub changed: Option<(u64, usize)>,
}

/// Reads the head of the source and, if it supports ranges, the tables of the image.
pub fn inspect_image(
    source: &dyn Source,
    payload: PayloadKind,
    reading: &ReadOptions,
) -> Result<Inspection, Error> {
    if let Some(changes) = source.changed_ranges() {
        return Ok(Inspection {
            virtual_size: Some(changes.disk_bytes()),
            changed: Some((changes.changed_bytes(), changes.ranges().len())),
            ..Inspection::from_source(source, Vec::new(), Format::Raw)
        });
    }
    let (payload, reading) = reading.for_payload(payload, source);
    let reading = &reading;
    let input = decode::decode_input(Meter::new(source, reading)?, reading, &reading.limits)?;
    let mut input = tar::open_payload(input, payload, reading)?;
    let ImageHead { format, ending, .. } = ImageHead::read(&mut input, payload, reading)?;
    let mut found = Inspection::from_source(source, input.layer_names(), format);
    match format {
        Format::Raw => {
            found.allocated_bytes = input.total_bytes();
            found.virtual_size =
                input.total_bytes().and_then(|bytes| bytes.checked_next_multiple_of(SECTOR));
            // An import treats an ISO as a raw disk, but users want to know that it is an ISO.
            let head = input.peek(ISO_DESCRIPTOR + 6)?;
            if head.get(ISO_DESCRIPTOR + 1..) == Some(b"CD001") {
                found.features.push("ISO 9660".into());
            }
            describe_end(&mut found, ending, source, &mut input)?;
        }
        _ => describe_mapped(&mut found, source, &mut input, &reading.limits.memory)?,
    }
    Ok(found)
}

/// Returns the size in bytes of the disk in the image. A raw disk is read to its end, where a
/// footer may follow.
pub fn measure_image(
    source: &dyn Source,
    payload: PayloadKind,
    reading: &ReadOptions,
) -> Result<u64, Error> {
    let (payload, reading) = reading.for_payload(payload, source);
    let reading = &reading;
    let input = decode::decode_input(Meter::new(source, reading)?, reading, &reading.limits)?;
    let mut input = tar::open_payload(input, payload, reading)?;
    let ImageHead { format, ending, .. } = ImageHead::read(&mut input, payload, reading)?;
    if format != Format::Raw {
        let image = open_mapped(format, &mut input, &reading.limits.memory)?;
        return Ok(image.head_facts().virtual_size);
    }
    let bytes = raw::measure_disk(&mut input, ending)?;
    input.finish_reading()?;
    Ok(bytes)
}

/// Reads the end of a raw disk, if the source supports ranges.
fn describe_end(
    found: &mut Inspection,
    ending: EndingKind,
    source: &dyn Source,
    input: &mut TransferInput,
) -> Result<(), Error> {
    let Some(length) = ranged_length(source, input).filter(|_| ending != EndingKind::Disk) else {
        return Ok(());
    };
    match ending.disk_size_ahead(source, input, length) {
        Ok(Some(virtual_size)) => {
            found.format = Format::Vhd;
            found.virtual_size = Some(virtual_size);
            found.allocated_bytes = Some(virtual_size);
            found.features.push("fixed".into());
        }
        Ok(None) => {}
        Err(Error::Format(FormatError::Image(refusal))) => {
            found.record_refusal(&refusal);
        }
        Err(other) => return Err(other),
    }
    Ok(())
}

/// Reads the head of an image with a map, and its tables.
fn describe_mapped(
    found: &mut Inspection,
    source: &dyn Source,
    input: &mut TransferInput,
    memory: &MemoryBudget,
) -> Result<(), Error> {
    let image = match open_mapped(found.format, input, memory) {
        Err(Error::Format(FormatError::Image(refusal))) => {
            if found.format == Format::Qcow2 {
                // The size in the header helps users who have to repair or flatten the image.
                found.virtual_size = be64(&input.peek(HEAD_BYTES)?, VIRTUAL_SIZE_AT);
            }
            found.record_refusal(&refusal);
            return Ok(());
        }
        opened => opened?,
    };
    let facts = image.head_facts();
    found.virtual_size = Some(facts.virtual_size);
    found.cluster_size = facts.cluster_size;
    found.features = facts.features;
    found.snapshots = facts.snapshots;
    let Some(length) = ranged_length(source, input) else {
        return Ok(());
    };
    match fetch_map(image, length, source, input, memory) {
        Ok(map) => found.allocated_bytes = Some(map.mapped_bytes()),
        Err(Error::Format(FormatError::Image(refusal))) => found.record_refusal(&refusal),
        Err(other) => return Err(other),
    }
    Ok(())
}

impl Inspection {
    /// Creates an inspection that contains only these facts.
    fn from_source(source: &dyn Source, layers: Vec<&'static str>, format: Format) -> Self {
        Self {
            layers,
            format,
            source_bytes: source.total_bytes(),
            virtual_size: None,
            allocated_bytes: None,
            cluster_size: None,
            features: Vec::new(),
            references: Vec::new(),
            snapshots: 0,
            refused: None,
            changed: None,
        }
    }

    fn record_refusal(&mut self, refusal: &ImageError) {
        match refusal {
            ImageError::BackingFile(name)
            | ImageError::DataFile(name)
            | ImageError::ExternalFile { name, .. }
            | ImageError::Parent { name, .. }
                if !name.is_empty() =>
            {
                self.references.push(name.clone());
            }
            // A trailer is only found once the image has passed as a raw disk.
            ImageError::UnsupportedFormat(format) => {
                self.format = *format;
                self.virtual_size = None;
            }
            _ => {}
        }
        self.refused = Some(refusal.to_string());
    }
}
