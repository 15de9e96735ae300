//! Finds the data in a sparse file by asking its filesystem (`SEEK_DATA`, `SEEK_HOLE`; lseek(2)).

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Returns the next range of data at or after `offset` and before `end`. If only a hole follows,
/// the range is empty and lies at `end`.
pub fn next_data(file: impl AsFd, offset: u64, end: u64) -> Result<Range<u64>, Errno> {
    let start = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        // Only a hole follows.
        Err(Errno::NXIO) => return Ok(end..end),
        // A device, or a filesystem that does not report holes: treat everything as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(offset..end),
        Err(errno) => return Err(errno),
    };
    let hole = match rustix::fs::seek(&file, SeekFrom::Hole(start)) {
        Ok(hole) => hole,
        Err(Errno::NXIO) => end,
        Err(errno) => return Err(errno),
    };
    let start = start.clamp(offset, end);
    // If the file changes at the same time, the hole may be at or before the start: treat
    // everything as data.
    let stop = if hole > start { hole.min(end) } else { end };
    Ok(start..stop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_device_is_all_data() {
        let file = File::open("/dev/zero").unwrap();
        assert_eq!(next_data(&file, 3, 10), Ok(3..10));
    }
}
