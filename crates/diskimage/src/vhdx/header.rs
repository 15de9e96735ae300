//! The file identifier and the two headers (2.2.1, 2.2.2).

use std::ops::Range;

use super::head::{ALIGNMENT, Guid, NONE, bytes_of, is_intact};
use crate::bytes_at::{le16, le32, le64};
use crate::offsets::Host;
use crate::{Error, Format};

/// The first bytes of the image.
const IDENTIFIER: &[u8; 8] = b"vhdxfile";
/// Offsets of the two headers.
const HEADERS_AT: [Host; 2] = [Host(64 << 10), Host(128 << 10)];
const HEADER_BYTES: u64 = 4 << 10;

/// The current header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VhdxHeader {
    /// The range of the log.
    pub(super) log: Range<Host>,
}

impl VhdxHeader {
    /// Reads the newer of the two headers. Fails if its log is not empty.
    pub(super) fn parse_current(head: &[u8]) -> Result<Self, Error> {
        let [first, second] = HEADERS_AT;
        let identifier = bytes_of(head, Host(0)..second + HEADER_BYTES)?;
        if !identifier.starts_with(IDENTIFIER) {
            return Err(Format::Vhdx.header_error("no file identifier at its start"));
        }
        let current = newer_header(
            bytes_of(head, first..first + HEADER_BYTES)?,
            bytes_of(head, second..second + HEADER_BYTES)?,
        )?;
        Self::parse(current)
    }

    fn parse(header: &[u8]) -> Result<Self, Error> {
        // A log can be replayed only by writing. QEMU also refuses such an image when it is opened
        // read-only.
        let log_guid: Guid =
            header.get(48..64).and_then(|guid| guid.try_into().ok()).unwrap_or(NONE);
        if log_guid != NONE {
            return Err(Format::Vhdx.unsupported_error(
                "it was not closed properly, and its log contains changes that are not in the disk yet: replay the log \
                 with `qemu-img check -r all`, or attach and detach it once in Hyper-V",
            ));
        }
        let log_version = le16(header, 64).unwrap_or(0);
        if log_version != 0 {
            return Err(Format::Vhdx.header_error(format!("log version {log_version}, must be 0")));
        }
        let length = le32(header, 68).map_or(0, u64::from);
        let start = Host(le64(header, 72).unwrap_or(0));
        if start < Host(ALIGNMENT) || !start.is_multiple_of(ALIGNMENT) {
            return Err(Format::Vhdx.header_error(format!(
                "the log begins at {start:#x}, which is not a multiple of 1 MiB"
            )));
        }
        Ok(Self { log: start..start.saturating_add(length) })
    }
}

/// Returns the valid header with the higher sequence number. The same number in both headers is an
/// error (2.2.2.1), unless the headers are identical: some writers leave them like this, and QEMU
/// accepts it.
fn newer_header<'h>(first: &'h [u8], second: &'h [u8]) -> Result<&'h [u8], Error> {
    let sequence = |header: &[u8]| is_valid(header).then(|| le64(header, 8)).flatten();
    match (sequence(first), sequence(second)) {
        (None, None) => Err(Format::Vhdx.header_error("it has no intact header of version 1")),
        (Some(one), Some(other)) if one == other && first != second => Err(Format::Vhdx
            .header_error(format!("its headers differ and have the same sequence number {one}"))),
        // `None` compares as less than any number.
        (one, other) if one < other => Ok(second),
        _ => Ok(first),
    }
}

/// Checks the signature, the checksum and the version, which must be 1.
fn is_valid(header: &[u8]) -> bool {
    header.starts_with(b"head") && is_intact(header) && le16(header, 66) == Some(1)
}
