//! Checksums of the beginning of a disk ("marks"), without the first MiB. They allow a process that
//! has the image and a process that has the disk to compare their content.

use std::fs::File;
use std::io;

use tokio_util::sync::CancellationToken;

use crate::local::LocalFile;
use crate::prefix_crc::{PrefixCrc, PrefixCrcError, RunningCrc, split_extent};

/// Bytes at the beginning of a disk that are held back until everything else is verified and on
/// the disk. The partition tables, boot sectors and filesystem superblocks of all common layouts
/// begin within the first MiB.
pub const HELD_BYTES: u64 = 1 << 20;

/// Maximum number of marks that are checked for one disk. If each mark is an eighth further than
/// the previous one, they reach from 8 MiB to 10 TiB.
pub const MAX_MARKS: usize = 128;

/// The end of a mark is a multiple of this, so that any device can be zeroed from there on.
pub const MARK_BYTES: u64 = 1 << 20;

/// Parses a mark: a checksum whose end is a multiple of [`MARK_BYTES`] above [`HELD_BYTES`].
pub fn parse_mark(text: &str) -> Result<PrefixCrc, PrefixCrcError> {
    let mark: PrefixCrc = text.parse()?;
    if is_end(mark.end_offset()) { Ok(mark) } else { Err(PrefixCrcError::of(text)) }
}

fn is_end(end: u64) -> bool {
    end > HELD_BYTES && end.is_multiple_of(MARK_BYTES)
}

/// Computes the marks of the disk in `image` at `ends`, which must be in ascending order, in one
/// pass. Ends that are not valid for a mark, or lie beyond the end of the image, are left out.
pub fn marks_of(
    image: &File,
    ends: &[u64],
    stop: &CancellationToken,
) -> io::Result<Vec<PrefixCrc>> {
    let local = LocalFile::new(image.try_clone()?)?;
    let mut ends = ends.iter().copied().filter(|end| is_end(*end) && *end <= local.size());
    let mut marks = Vec::new();
    let Some(last) = ends.clone().next_back().filter(|_| !stop.is_cancelled()) else {
        return Ok(marks);
    };
    let mut next = ends.next();
    RunningCrc::start_at(HELD_BYTES).read_parts(&local, last, |crc, mut rest| {
        while let Some(end) = next {
            let now;
            (now, rest) = split_extent(rest, end - crc.position());
            crc.add_part(now, |_| ());
            if crc.position() < end {
                break;
            }
            marks.push(crc.checksum());
            next = ends.next();
        }
        !stop.is_cancelled()
    })?;
    Ok(marks)
}
