//! One file of a tree: its header and its data.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use datapath::archive::write::{self, Kind, Meta, Region};
use datapath::encode::outlet::Outlet;
use rustix::fs::Stat;

use super::copy::Open;
use super::{SourceError, holes};

/// The unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Appends the open file `file`, whose name in the archive is `name` and whose metadata is `stat`; holes stay holes if
/// `sparse`.
pub(super) fn append(
    file: BorrowedFd<'_>,
    path: &Path,
    name: &[u8],
    meta: &Meta,
    stat: &Stat,
    sparse: bool,
    outlet: &mut Outlet<'_>,
) -> Result<(), SourceError> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let open = Open { file, path, size };
    if sparse && has_holes(stat, size) {
        let regions =
            holes::regions(file, size).map_err(|errno| SourceError::io("find the data of", path, errno))?;
        append_sparse(&open, name, meta, regions, outlet)?;
    } else {
        outlet.bytes(&write::header(name, meta, &Kind::File { size }))?;
        open.copy(outlet)?;
        outlet.zeros(write::padding(size) as u64)?;
    }
    check_unchanged(&open, stat)
}

/// True if the file has holes, by GNU tar's guess: it takes less space than its size.
fn has_holes(stat: &Stat, size: u64) -> bool {
    u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES < size
}

fn append_sparse(
    open: &Open<'_>,
    name: &[u8],
    meta: &Meta,
    mut regions: Vec<Region>,
    outlet: &mut Outlet<'_>,
) -> Result<(), SourceError> {
    // GNU tar ends each map with an empty region at the end of the file.
    regions.push(Region {
        offset: open.size,
        length: 0,
    });
    let kind = Kind::Sparse {
        size: open.size,
        regions: &regions,
    };
    outlet.bytes(&write::header(name, meta, &kind))?;
    for block in write::more_regions(&regions) {
        outlet.bytes(&block)?;
    }
    for region in &regions {
        open.copy_range(region.offset..region.offset + region.length, outlet)?;
        outlet.zeros(write::padding(region.length) as u64)?;
    }
    Ok(())
}

/// Fails if the file changed: bytes not yet read may be missing by now, and others may differ.
fn check_unchanged(open: &Open<'_>, before: &Stat) -> Result<(), SourceError> {
    let now =
        rustix::fs::fstat(open.file.as_fd()).map_err(|errno| SourceError::io("stat", open.path, errno))?;
    let (path, size) = (open.path.display(), open.size);
    let end = u64::try_from(now.st_size).unwrap_or(0);
    if end < size {
        return Err(open.shrank(end));
    }
    if end > size {
        tracing::warn!("{path} grew to {end} bytes while it was read: the clone has the first {size}");
    } else if (now.st_mtime, now.st_mtime_nsec) != (before.st_mtime, before.st_mtime_nsec) {
        tracing::warn!("{path} was written to while it was read: the clone may have some of the changes");
    }
    Ok(())
}
