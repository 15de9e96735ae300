//! Checksums of a disk from its first byte up to several offsets. Two processes that have copies
//! of a disk use them to find the longest prefix that is equal, and to prove that the copies are.

use std::fmt;
use std::io;
use std::str::FromStr;

use crc_fast::Digest;

use crate::buffer::CHUNK_BYTES;
use crate::local::{LocalExtent, LocalFile};
use crate::marks::{CRC, split_extent, update_crc};

/// Distance between two checkpoints. A disk of 10 TiB has 160,000, which take 2.5 MB. After an
/// interruption, at most this part of the disk is read again.
pub const CHECKPOINT_BYTES: u64 = 64 << 20;

/// The state of the CRC-64/NVME after the first `end` bytes of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskCheckpoint {
    end: u64,
    state: u64,
}

impl DiskCheckpoint {
    /// The number of bytes that the checksum covers.
    pub fn end_offset(self) -> u64 {
        self.end
    }
}

/// Formats a checkpoint as `END:STATE`, with END in decimal and STATE as 16 hexadecimal digits.
impl fmt::Display for DiskCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.end, self.state)
    }
}

/// A text that is not a valid checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not END:STATE with decimal digits and 16 hexadecimal digits")]
pub struct DiskCheckpointError(String);

impl FromStr for DiskCheckpoint {
    type Err = DiskCheckpointError;

    fn from_str(text: &str) -> Result<Self, DiskCheckpointError> {
        let parse = || {
            let (end, state) = text.split_once(':')?;
            let is_valid = !end.is_empty()
                && end.bytes().all(|b| b.is_ascii_digit())
                && state.len() == 16
                && state.bytes().all(|b| b.is_ascii_hexdigit());
            let state = is_valid.then(|| u64::from_str_radix(state, 16))?.ok()?;
            Some(Self { end: end.parse().ok()?, state })
        };
        parse().ok_or_else(|| DiskCheckpointError(text.chars().take(64).collect()))
    }
}

/// The checksum of a disk that is read or written from its beginning.
#[derive(Debug, Clone)]
pub struct DiskCrc {
    crc: Digest,
    position: u64,
}

impl Default for DiskCrc {
    fn default() -> Self {
        Self { crc: Digest::new(CRC), position: 0 }
    }
}

impl DiskCrc {
    /// Continues after the bytes that `checkpoint` covers.
    pub fn resume_at(checkpoint: DiskCheckpoint) -> Self {
        let DiskCheckpoint { end, state } = checkpoint;
        Self { crc: Digest::new_with_init_state(CRC, state), position: end }
    }

    /// The number of bytes so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The checkpoint after the bytes so far.
    pub fn checkpoint(&self) -> DiskCheckpoint {
        DiskCheckpoint { end: self.position, state: self.crc.get_state() }
    }

    /// Adds the next part of the disk. Calls `passed` at each multiple of [`CHECKPOINT_BYTES`].
    pub fn add_part(&mut self, part: LocalExtent, mut passed: impl FnMut(DiskCheckpoint)) {
        let mut rest = part;
        while extent_bytes(&rest) > 0 {
            let now;
            let left = CHECKPOINT_BYTES - self.position % CHECKPOINT_BYTES;
            (now, rest) = split_extent(rest, left);
            self.position += update_crc(&mut self.crc, &now);
            if self.position.is_multiple_of(CHECKPOINT_BYTES) {
                passed(self.checkpoint());
            }
        }
    }

    /// Reads `disk` from the current position to `end`, and calls `passed` at each multiple of
    /// [`CHECKPOINT_BYTES`]. Stops early, without an error, if `passed` returns false. Fails if
    /// the disk ends before `end`.
    pub fn read_until(
        &mut self,
        disk: &LocalFile,
        end: u64,
        mut passed: impl FnMut(DiskCheckpoint) -> bool,
    ) -> io::Result<()> {
        let mut reader = disk.chunk_reader(CHUNK_BYTES);
        reader.skip_to(self.position);
        let mut is_wanted = true;
        while is_wanted && self.position < end {
            let part = reader.next_part()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (part, _) = split_extent(part, end - self.position);
            self.add_part(part, |checkpoint| is_wanted &= passed(checkpoint));
        }
        Ok(())
    }
}

fn extent_bytes(part: &LocalExtent) -> u64 {
    match part {
        LocalExtent::Hole(bytes) => *bytes,
        LocalExtent::Data(bytes) => bytes.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_checkpoint_is_the_same_however_the_disk_is_read(
            parts in prop::collection::vec((any::<bool>(), 0_u64..3_000_000), 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let cut = cut.index(parts.len() + 1);
            let (mut whole, mut resumed) = (DiskCrc::default(), DiskCrc::default());
            let (mut ends, mut other) = (Vec::new(), Vec::new());
            for (number, (is_hole, length)) in parts.iter().copied().enumerate() {
                if number == cut {
                    resumed = DiskCrc::resume_at(resumed.checkpoint().to_string().parse().unwrap());
                }
                let zeros = Bytes::from(vec![0; usize::try_from(length).unwrap()]);
                let hole = if is_hole { LocalExtent::Hole(length) } else { LocalExtent::Data(zeros.clone()) };
                whole.add_part(hole, |passed| ends.push(passed));
                resumed.add_part(LocalExtent::Data(zeros), |passed| other.push(passed));
            }
            prop_assert_eq!(whole.checkpoint(), resumed.checkpoint());
            prop_assert_eq!(ends.len() as u64, whole.position() / CHECKPOINT_BYTES);
            prop_assert_eq!(ends, other);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            if let Ok(checkpoint) = text.parse::<DiskCheckpoint>() {
                prop_assert_eq!(checkpoint.to_string().parse(), Ok(checkpoint));
            }
        }
    }

    #[test]
    fn a_disk_is_read_up_to_an_offset() {
        let file = tempfile::tempfile().unwrap();
        let size = 2 * CHECKPOINT_BYTES + 777;
        file.set_len(size).unwrap();
        file.write_all_at(b"data", CHECKPOINT_BYTES + 5).unwrap();
        let disk = LocalFile::new(file).unwrap();
        let read = |from: DiskCrc, end| {
            let (mut crc, mut ends) = (from, Vec::new());
            crc.read_until(&disk, end, |passed| {
                ends.push(passed.end_offset());
                true
            })
            .map(|()| (crc, ends))
        };
        let (half, ends) = read(DiskCrc::default(), CHECKPOINT_BYTES + 7).unwrap();
        assert_eq!(ends, [CHECKPOINT_BYTES]);
        let (rest, ends) = read(half, size).unwrap();
        assert_eq!((rest.position(), ends), (size, vec![2 * CHECKPOINT_BYTES]));
        let (whole, _) = read(DiskCrc::default(), size).unwrap();
        assert_eq!(whole.checkpoint(), rest.checkpoint());
        assert!(read(DiskCrc::default(), size + 1).is_err());
        let mut stopped = DiskCrc::default();
        stopped.read_until(&disk, size, |_| false).unwrap();
        assert_eq!(stopped.position(), CHECKPOINT_BYTES);
    }

    #[test]
    fn a_malformed_checkpoint_is_refused() {
        for text in [
            "",
            ":",
            "1:",
            "1:12",
            "-1:0123456789abcdef",
            "+1:0123456789abcdef",
            "1:+123456789abcdef",
        ] {
            assert!(text.parse::<DiskCheckpoint>().is_err(), "{text}");
        }
        assert!("18446744073709551616:0123456789abcdef".parse::<DiskCheckpoint>().is_err());
    }
}
