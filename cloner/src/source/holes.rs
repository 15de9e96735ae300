//! Finds the data regions of a file for a tar archive.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use stream::local::next_data;
use tar::write::{DataRegion, MAX_REGIONS};

/// Size of the blocks to which the regions in a tar archive are aligned.
const BLOCK_BYTES: u64 = 512;

/// Returns all data regions of a file of `size` bytes, in whole blocks. If there are more regions
/// than a tar archive may contain, small holes are treated as data.
pub(super) fn data_regions(file: BorrowedFd<'_>, size: u64) -> Result<Vec<DataRegion>, Errno> {
    let mut least_hole = 1;
    loop {
        match regions_between(file, size, least_hole, MAX_REGIONS)? {
            Some(regions) => return Ok(regions),
            None => least_hole = (least_hole * 2).max(8 * BLOCK_BYTES),
        }
    }
}

/// Returns the data regions between holes of at least `least_hole` bytes, or `None` if there are
/// more than `most`.
fn regions_between(
    file: BorrowedFd<'_>,
    size: u64,
    least_hole: u64,
    most: u64,
) -> Result<Option<Vec<DataRegion>>, Errno> {
    let mut regions: Vec<DataRegion> = Vec::new();
    let mut offset = 0;
    while offset < size {
        let data = next_data(file, offset, size)?;
        offset = data.end;
        if data.is_empty() {
            break;
        }
        // Regions are rounded outwards to whole blocks. A region that includes part of a hole does
        // no harm, because holes read as zeros.
        let start = data.start - data.start % BLOCK_BYTES;
        let end = data.end.next_multiple_of(BLOCK_BYTES).min(size);
        let count = regions.len() as u64;
        match regions.last_mut() {
            Some(last) if start < last.offset + last.length + least_hole => {
                last.length = end.max(last.offset + last.length) - last.offset;
            }
            _ if count == most => return Ok(None),
            _ => regions.push(DataRegion { offset: start, length: end - start }),
        }
    }
    Ok(Some(regions))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn small_holes_count_as_data_where_a_map_would_be_too_long() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        for offset in (0..1 << 20).step_by(64 << 10) {
            file.write_all_at(b"x", offset).unwrap();
        }
        let regions = |least, most| regions_between(file.as_fd(), 1 << 20, least, most).unwrap();
        let all = regions(1, 100).unwrap();
        assert_eq!(all.len(), 16);
        assert!(all.iter().all(|region| region.offset % (64 << 10) == 0));
        assert_eq!(regions(1, 15), None);
        assert_eq!(regions(64 << 10, 15).unwrap().len(), 1);
    }
}
