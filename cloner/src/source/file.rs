//! Appends one file of a tree to the archive: its header and its data.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use codec::encode::outlet::PieceOutlet;
use rustix::fs::Stat;
use tar::write::{self, DataRegion, EntryAttributes, NewEntryKind};

use super::copy::AnnouncedFile;
use super::{VolumeReadError, holes};

/// The unit of `st_blocks` (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

/// Returns the attributes of an entry with the metadata `stat`.
pub(super) fn entry_attributes(stat: &Stat) -> EntryAttributes {
    EntryAttributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: stat.st_mtime,
    }
}

/// Appends the open file `file` to the archive under `name`. `stat` is the metadata of the file.
/// If `sparse` is true, holes are preserved.
pub(super) fn append_file(
    file: BorrowedFd<'_>,
    path: &Path,
    name: &[u8],
    stat: &Stat,
    sparse: bool,
    outlet: &mut PieceOutlet<'_>,
) -> Result<(), VolumeReadError> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let meta = &entry_attributes(stat);
    let open = AnnouncedFile { file, path, size };
    if sparse && has_holes(stat, size) {
        let regions = holes::data_regions(file, size)
            .map_err(|errno| VolumeReadError::from_errno("find the data of", path, errno))?;
        append_sparse(&open, name, meta, regions, outlet)?;
    } else {
        outlet.append_bytes(&write::encode_header(name, meta, &NewEntryKind::File { size }))?;
        open.copy_contents(outlet)?;
        outlet.append_zeros(write::padding_bytes(size) as u64)?;
    }
    check_unchanged(&open, stat)
}

/// Returns true if the file has holes. This is GNU tar's heuristic: the file occupies less space
/// than its size.
fn has_holes(stat: &Stat, size: u64) -> bool {
    u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES < size
}

fn append_sparse(
    open: &AnnouncedFile<'_>,
    name: &[u8],
    meta: &EntryAttributes,
    mut regions: Vec<DataRegion>,
    outlet: &mut PieceOutlet<'_>,
) -> Result<(), VolumeReadError> {
    // GNU tar ends each map with an empty region at the end of the file.
    regions.push(DataRegion { offset: open.size, length: 0 });
    let kind = NewEntryKind::Sparse { size: open.size, regions: &regions };
    outlet.append_bytes(&write::encode_header(name, meta, &kind))?;
    for block in write::more_regions(&regions) {
        outlet.append_bytes(&block)?;
    }
    for region in &regions {
        open.copy_range(region.offset..region.offset + region.length, outlet)?;
        outlet.append_zeros(write::padding_bytes(region.length) as u64)?;
    }
    Ok(())
}

/// Fails if the file was truncated, because bytes that were not read yet may be missing. Logs a
/// warning if it grew or was modified.
fn check_unchanged(open: &AnnouncedFile<'_>, before: &Stat) -> Result<(), VolumeReadError> {
    let now = rustix::fs::fstat(open.file.as_fd())
        .map_err(|errno| VolumeReadError::from_errno("stat", open.path, errno))?;
    let (path, size) = (open.path.display(), open.size);
    let end = u64::try_from(now.st_size).unwrap_or(0);
    if end < size {
        return Err(open.shrunk_error(end));
    }
    if end > size {
        tracing::warn!(
            "{path} grew to {end} bytes while it was read: the clone contains only the first {size}"
        );
    } else if (now.st_mtime, now.st_mtime_nsec) != (before.st_mtime, before.st_mtime_nsec) {
        tracing::warn!(
            "{path} was written to while it was read: the clone may contain some of the changes"
        );
    }
    Ok(())
}
