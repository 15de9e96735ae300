//! The places of a file's data, as its filesystem tells them (`SEEK_DATA`, `SEEK_HOLE`; lseek(2)).

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The next data at or after `offset` and before `end`; empty, at `end`, if only a hole follows.
pub fn next_data(file: impl AsFd, offset: u64, end: u64) -> Result<Range<u64>, Errno> {
    let start = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        // Nothing but a hole.
        Err(Errno::NXIO) => return Ok(end..end),
        // Devices, and filesystems that cannot tell: all is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(offset..end),
        Err(errno) => return Err(errno),
    };
    let hole = match rustix::fs::seek(&file, SeekFrom::Hole(start)) {
        Ok(hole) => hole,
        Err(Errno::NXIO) => end,
        Err(errno) => return Err(errno),
    };
    let start = start.clamp(offset, end);
    // A file that changes meanwhile may have its hole where its data was: then all is data.
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
