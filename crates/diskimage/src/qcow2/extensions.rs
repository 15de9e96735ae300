//! Header extensions (qcow2.rst, "Header extensions"). Few of them matter for reading, but QEMU
//! refuses to open an image with a damaged extension.

use std::ops::Range;

use crate::bytes_at::{be32, be64};
use crate::offsets::{Host, MAX_OFFSET};
use crate::{Error, Format};

const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;
const BITMAPS: u32 = 0x2385_2875;
const CRYPTO: u32 = 0x0537_be77;
const DATA_FILE: u32 = 0x4441_5441;

/// Longest name of a backing file's format, the same limit as in QEMU.
const MAX_FORMAT_NAME: usize = 15;
/// Length in bytes of the bitmaps extension.
const BITMAPS_BYTES: usize = 24;
/// Largest number of bitmaps and largest directory in bytes, the same limits as in QEMU
/// (`QCOW2_MAX_BITMAPS`, `QCOW2_MAX_BITMAP_DIRECTORY_SIZE`).
const MAX_BITMAPS: u32 = 65_535;
const MAX_DIRECTORY_BYTES: u64 = 1024 * 65_535;

/// Facts stated by the header extensions.
#[derive(Default)]
pub(super) struct HeaderExtensions {
    pub(super) data_file: Option<String>,
    /// The format of the backing file.
    pub(super) backing_format: Option<String>,
    /// The extension that points to an encryption header is present.
    pub(super) has_crypto: bool,
    bitmaps: Option<BitmapsExtension>,
    feature_names: Vec<(u8, u8, String)>,
}

/// The position of the bitmaps.
struct BitmapsExtension {
    count: u32,
    reserved: u32,
    directory_bytes: u64,
    directory_offset: Host,
}

impl HeaderExtensions {
    /// Parses the type, length and data of each extension from `start` to the end marker, or to
    /// `limit`. No extension may reach beyond `limit`.
    pub(super) fn parse(head: &[u8], start: usize, limit: u64) -> Result<Self, Error> {
        let short = |end: usize| Format::Qcow2.short_header_error(end as u64, head);
        let mut found = Self::default();
        let mut at = start;
        while (at as u64) < limit {
            let data = at.saturating_add(8);
            let (Some(kind), Some(length)) = (be32(head, at), be32(head, at + 4)) else {
                return Err(short(data));
            };
            let end = data.saturating_add(length as usize);
            if end as u64 > limit {
                return Err(Format::Qcow2.header_error(format!(
                    "the header extension {kind:#x} at {at:#x} has {length} bytes, and extensions end at {limit:#x}"
                )));
            }
            if kind == 0 {
                break;
            }
            found.add_extension(kind, head.get(data..end).ok_or_else(|| short(end))?)?;
            at = end.next_multiple_of(8);
        }
        Ok(found)
    }

    fn add_extension(&mut self, kind: u32, bytes: &[u8]) -> Result<(), Error> {
        match kind {
            DATA_FILE => self.data_file = Some(crate::text::printable_name(bytes)),
            CRYPTO => self.has_crypto = true,
            BITMAPS => self.bitmaps = Some(BitmapsExtension::parse(bytes)?),
            FEATURE_NAMES => self.add_feature_names(bytes),
            BACKING_FORMAT if bytes.len() > MAX_FORMAT_NAME => {
                return Err(Format::Qcow2.header_error(format!(
                    "the name of the backing file's format has {} bytes, the limit is {MAX_FORMAT_NAME}",
                    bytes.len()
                )));
            }
            BACKING_FORMAT => self.backing_format = Some(crate::text::printable_name(bytes)),
            _ => {}
        }
        Ok(())
    }

    /// Returns the number of bitmaps and the range of their directory. A conversion does not read
    /// it.
    pub(super) fn bitmap_directory(
        &self,
        cluster_size: u64,
    ) -> Result<Option<(u32, Range<Host>)>, Error> {
        let Some(bitmaps) = &self.bitmaps else {
            return Ok(None);
        };
        let BitmapsExtension { count, reserved, directory_bytes, directory_offset } = *bitmaps;
        if !(1..=MAX_BITMAPS).contains(&count) {
            return Err(
                Format::Qcow2.header_error(format!("{count} bitmaps, expected 1 to {MAX_BITMAPS}"))
            );
        }
        if !(1..=MAX_DIRECTORY_BYTES).contains(&directory_bytes) {
            return Err(Format::Qcow2.header_error(format!(
                "the bitmap directory has {directory_bytes} bytes, expected 1 to {MAX_DIRECTORY_BYTES}"
            )));
        }
        // The position is validated although the directory is not read: QEMU does not open an
        // image whose directory has an impossible position.
        let end = directory_offset.checked_add(directory_bytes);
        match end.filter(|end| end.0 <= MAX_OFFSET) {
            Some(end) if reserved == 0 && directory_offset.is_multiple_of(cluster_size) => {
                Ok(Some((count, directory_offset..end)))
            }
            _ => Err(Format::Qcow2.header_error(format!(
                "the bitmap directory at {directory_offset:#x} (reserved: {reserved:#x})"
            ))),
        }
    }

    /// Parses records of 48 bytes: type, bit number, name padded with zeros.
    fn add_feature_names(&mut self, table: &[u8]) {
        for record in table.chunks_exact(48) {
            if let [kind, bit, name @ ..] = record {
                self.feature_names.push((*kind, *bit, crate::text::printable_name(name)));
            }
        }
    }

    /// Returns the image's own name for an incompatible feature.
    pub(super) fn incompatible_name(&self, bit: u8) -> Option<String> {
        self.feature_names
            .iter()
            .find(|(kind, b, _)| *kind == 0 && *b == bit)
            .map(|(_, _, name)| name.clone())
    }
}

impl BitmapsExtension {
    /// Parses the extension (qcow2.rst, "Bitmaps extension").
    fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() != BITMAPS_BYTES {
            return Err(Format::Qcow2.header_error(format!(
                "the bitmaps extension has {} bytes, expected {BITMAPS_BYTES}",
                bytes.len()
            )));
        }
        Ok(Self {
            count: be32(bytes, 0).unwrap_or_default(),
            reserved: be32(bytes, 4).unwrap_or_default(),
            directory_bytes: be64(bytes, 8).unwrap_or_default(),
            directory_offset: Host(be64(bytes, 16).unwrap_or_default()),
        })
    }
}
