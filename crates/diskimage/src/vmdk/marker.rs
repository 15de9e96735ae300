//! Markers: a few bytes before each grain and each table of a stream ("Virtual Disk Format 5.0",
//! section "Stream-Optimized Compressed Sparse Extents"). A marker begins at a sector.

use std::ops::Range;

use super::header::{SECTOR, VmdkHeader};
use crate::bytes_at::{le32, le64};
use crate::offsets::{Guest, Host};
use crate::{Error, Format};

/// Size in bytes of the part that all markers share. After a grain's marker, the data follows at
/// once.
pub(super) const MARKER_BYTES: u64 = 12;
/// Size in bytes of the type field. Only markers that do not precede a grain have one.
pub(super) const TYPE_BYTES: u64 = 4;

/// The first bytes of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VmdkMarker {
    /// For a grain, its first sector on the disk. For a table, its length in sectors.
    pub(super) value: u64,
    /// Bytes of the compressed grain; 0 if the marker does not precede a grain.
    pub(super) size: u32,
}

/// Kind of a marker that does not precede a grain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkerKind {
    EndOfStream,
    GrainTable,
    Directory,
    Footer,
}

impl VmdkMarker {
    /// Reads a marker. Returns `None` if there are too few bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self { value: le64(bytes, 0)?, size: le32(bytes, 8)? })
    }

    /// Validates the marker at `host` of a compressed grain. Returns the offset of the grain's
    /// first byte on the virtual disk.
    pub(super) fn grain_start(self, header: &VmdkHeader, host: Host) -> Result<Guest, Error> {
        let longest = longest_grain(header) - MARKER_BYTES;
        if u64::from(self.size) > longest {
            let what = format!(
                "the marker of a compressed grain states {} bytes, the limit is {longest}",
                self.size
            );
            return Err(Format::Vmdk.corrupt_error(what, host));
        }
        match self.value.checked_mul(SECTOR).map(Guest) {
            Some(guest)
                if guest.remaining_bytes(header.capacity) > 0
                    && guest.is_multiple_of(header.grain) =>
            {
                Ok(guest)
            }
            _ => {
                let what = format!(
                    "a marker refers to sector {}, which is not the start of a grain",
                    self.value
                );
                Err(Format::Vmdk.corrupt_error(what, host))
            }
        }
    }
}

impl MarkerKind {
    /// Returns the marker kind with this number.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::EndOfStream),
            1 => Some(Self::GrainTable),
            2 => Some(Self::Directory),
            3 => Some(Self::Footer),
            _ => None,
        }
    }
}

/// Returns the largest size in bytes of a compressed grain with its marker. QEMU reads no more.
pub(super) fn longest_grain(header: &VmdkHeader) -> u64 {
    header.grain * 2
}

/// Returns the range of the compressed bytes in `stored`, which begins with the marker of the
/// grain at `guest`.
pub(super) fn grain_range(
    header: &VmdkHeader,
    guest: Guest,
    stored: &[u8],
) -> Result<Range<usize>, Error> {
    let broken =
        |what: String| Error::CompressedCluster { guest, cluster_size: header.grain, reason: what };
    let Some(marker) = VmdkMarker::parse(stored) else {
        return Err(broken("the image ends inside its marker".into()));
    };
    // QEMU does not check this. If a marker and a table placed a grain at different offsets, two
    // readers would see different disks.
    if marker.value.checked_mul(SECTOR).map(Guest) != Some(guest) {
        return Err(broken(format!(
            "its marker states that it belongs to sector {}, a grain table to sector {}",
            marker.value,
            guest.0 / SECTOR
        )));
    }
    let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (start, end) = (to_usize(MARKER_BYTES), to_usize(MARKER_BYTES + u64::from(marker.size)));
    if marker.size == 0 || end > stored.len() {
        return Err(broken(format!(
            "its marker states {} bytes, there are {}",
            marker.size,
            stored.len().saturating_sub(start)
        )));
    }
    Ok(start..end)
}
