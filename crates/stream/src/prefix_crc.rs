//! Checksums of a disk up to several offsets. Two processes that have copies of a disk use them to
//! find the longest prefix that is equal, and to prove that the copies are.

use std::fmt;
use std::io;
use std::iter::successors;
use std::str::FromStr;
use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, Digest};

use crate::buffer::CHUNK_BYTES;
use crate::local::{LocalExtent, LocalFile};

/// The checksum. A CRC is enough: it detects damage, and protection against forgery is not needed
/// because a client may write arbitrary data anyway.
const CRC: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// The difference between the state of [`CRC`] and its result (CRC-64/NVME, "xorout").
const FINAL_MASK: u64 = u64::MAX;

/// Distance between the ends of two prefixes. A disk of 10 TiB has 160,000, which take 2.5 MB.
/// After an interruption, at most this part of the disk is read again.
pub const PREFIX_STEP_BYTES: u64 = 64 << 20;

/// The CRC-64/NVME of a disk up to an offset, from its first byte or from the end of what is held
/// back ([`marks`](crate::marks)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixCrc {
    end: u64,
    crc: u64,
}

impl PrefixCrc {
    /// Offset of the end of the part that the checksum covers.
    pub fn end_offset(self) -> u64 {
        self.end
    }
}

/// Formats a checksum as `END:CRC`, with END in decimal and CRC as 16 hexadecimal digits.
impl fmt::Display for PrefixCrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.end, self.crc)
    }
}

/// A text that is not a valid checksum of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not END:CRC with whole MiB above one and 16 hexadecimal digits")]
pub struct PrefixCrcError(String);

impl PrefixCrcError {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.chars().take(64).collect())
    }
}

impl FromStr for PrefixCrc {
    type Err = PrefixCrcError;

    fn from_str(text: &str) -> Result<Self, PrefixCrcError> {
        let parse = || {
            let (end, crc) = text.split_once(':')?;
            let is_valid = !end.is_empty()
                && end.bytes().all(|b| b.is_ascii_digit())
                && crc.len() == 16
                && crc.bytes().all(|b| b.is_ascii_hexdigit());
            let crc = is_valid.then(|| u64::from_str_radix(crc, 16))?.ok()?;
            Some(Self { end: end.parse().ok()?, crc })
        };
        parse().ok_or_else(|| PrefixCrcError::of(text))
    }
}

/// The checksum of a disk that is read or written from its beginning.
#[derive(Debug, Clone)]
pub struct RunningCrc {
    crc: Digest,
    position: u64,
}

impl Default for RunningCrc {
    fn default() -> Self {
        Self::start_at(0)
    }
}

impl RunningCrc {
    /// Begins at `position` of the disk.
    pub(crate) fn start_at(position: u64) -> Self {
        Self { crc: Digest::new(CRC), position }
    }

    /// Continues after the bytes that `prefix` covers.
    pub fn resume_at(prefix: PrefixCrc) -> Self {
        let PrefixCrc { end, crc } = prefix;
        Self { crc: Digest::new_with_init_state(CRC, crc ^ FINAL_MASK), position: end }
    }

    /// The number of bytes so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The checksum of the bytes so far.
    pub fn checksum(&self) -> PrefixCrc {
        PrefixCrc { end: self.position, crc: self.crc.finalize() }
    }

    /// Adds the next part of the disk. Calls `passed` at each multiple of [`PREFIX_STEP_BYTES`].
    pub fn add_part(&mut self, part: LocalExtent, mut passed: impl FnMut(PrefixCrc)) {
        let mut rest = part;
        while rest.byte_count() > 0 {
            let now;
            let left = PREFIX_STEP_BYTES - self.position % PREFIX_STEP_BYTES;
            (now, rest) = split_extent(rest, left);
            self.position += now.byte_count();
            match now {
                LocalExtent::Data(bytes) => self.crc.update(&bytes),
                LocalExtent::Hole(bytes) => add_zeros(&mut self.crc, bytes),
            }
            if self.position.is_multiple_of(PREFIX_STEP_BYTES) {
                passed(self.checksum());
            }
        }
    }

    /// Reads `disk` from the current position to `end`, and calls `passed` at each multiple of
    /// [`PREFIX_STEP_BYTES`]. Stops early, without an error, if `passed` returns false. Fails if
    /// the disk ends before `end`.
    pub fn read_until(
        &mut self,
        disk: &LocalFile,
        end: u64,
        mut passed: impl FnMut(PrefixCrc) -> bool,
    ) -> io::Result<()> {
        self.read_parts(disk, end, |crc, part| {
            let mut is_wanted = true;
            crc.add_part(part, |prefix| is_wanted &= passed(prefix));
            is_wanted
        })
    }

    /// Passes the parts of `disk` from the current position to `end` to `add`, which adds each
    /// and returns whether another one is wanted.
    pub(crate) fn read_parts(
        &mut self,
        disk: &LocalFile,
        end: u64,
        mut add: impl FnMut(&mut Self, LocalExtent) -> bool,
    ) -> io::Result<()> {
        let mut reader = disk.chunk_reader(CHUNK_BYTES);
        reader.skip_to(self.position);
        let mut is_wanted = true;
        while is_wanted && self.position < end {
            let part = reader.next_part()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (part, _) = split_extent(part, end - self.position);
            is_wanted = add(self, part);
        }
        Ok(())
    }
}

/// Splits a part into its first `length` bytes and the rest.
pub(crate) fn split_extent(part: LocalExtent, length: u64) -> (LocalExtent, LocalExtent) {
    match part {
        LocalExtent::Hole(bytes) => {
            let first = bytes.min(length);
            (LocalExtent::Hole(first), LocalExtent::Hole(bytes - first))
        }
        LocalExtent::Data(mut bytes) => {
            let first = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
            let first = bytes.split_to(first);
            (LocalExtent::Data(first), LocalExtent::Data(bytes))
        }
    }
}

/// A linear map of the states of a CRC: the image of each bit of the state.
type StateMap = [u64; 64];

fn apply_map(map: &StateMap, state: u64) -> u64 {
    let bits = map.iter().enumerate();
    bits.filter(|(bit, _)| state >> bit & 1 == 1).fold(0, |sum, (_, image)| sum ^ image)
}

/// The effect of 1, 2, 4, 8 … zero bytes on the state of a CRC. Each map is the previous one
/// applied twice.
static ZERO_MAPS: LazyLock<Vec<StateMap>> = LazyLock::new(|| {
    let one = std::array::from_fn(|bit| {
        let mut crc = Digest::new_with_init_state(CRC, 1 << bit);
        crc.update(&[0]);
        crc.get_state()
    });
    let twice = |map: &StateMap| Some(map.map(|image| apply_map(map, image)));
    successors(Some(one), twice).take(64).collect()
});

/// Adds `count` zeros, in time proportional to the logarithm of their number. A hole of 7 TiB took
/// 100 s of CPU time byte by byte, and takes 4 µs with this method. `checksum_combine` of the
/// library computes the maps in each call and took 1 to 4 ms per hole, which is too slow for a
/// file with many.
fn add_zeros(crc: &mut Digest, count: u64) {
    let maps = ZERO_MAPS.iter().enumerate();
    let maps = maps.filter(|(power, _)| count >> power & 1 == 1);
    let state = maps.fold(crc.get_state(), |state, (_, map)| apply_map(map, state));
    *crc = Digest::new_with_init_state(CRC, state);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use bytes::Bytes;
    use crc_fast::checksum_combine;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counted_zeros_give_the_same_crc_as_real_zeros(
            before in prop::collection::vec(any::<u8>(), 0..100),
            count in 0..3_000_000_usize,
            after in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let [mut fed, mut counted] = [Digest::new(CRC); 2];
            fed.update(&[&before[..], &vec![0; count], &after].concat());
            counted.update(&before);
            add_zeros(&mut counted, count as u64);
            counted.update(&after);
            prop_assert_eq!(fed.finalize(), counted.finalize());
        }

        #[test]
        fn adding_zeros_gives_the_crc_that_the_library_computes(count in any::<u64>(), state in any::<u64>()) {
            let mut crc = Digest::new_with_init_state(CRC, state);
            add_zeros(&mut crc, count);
            // Combining removes the masks of the first checksum and applies the masks of the
            // second. Both are the same here, so they cancel out.
            prop_assert_eq!(crc.get_state(), checksum_combine(CRC, state, 0, count));
        }

        #[test]
        fn a_checksum_is_the_same_however_the_disk_is_read(
            parts in prop::collection::vec((any::<bool>(), 0_u64..3_000_000), 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let cut = cut.index(parts.len() + 1);
            let (mut whole, mut resumed) = (RunningCrc::default(), RunningCrc::default());
            let (mut ends, mut other) = (Vec::new(), Vec::new());
            for (number, (is_hole, length)) in parts.iter().copied().enumerate() {
                if number == cut {
                    resumed = RunningCrc::resume_at(resumed.checksum().to_string().parse().unwrap());
                }
                let zeros = Bytes::from(vec![0; usize::try_from(length).unwrap()]);
                let hole = if is_hole { LocalExtent::Hole(length) } else { LocalExtent::Data(zeros.clone()) };
                whole.add_part(hole, |passed| ends.push(passed));
                resumed.add_part(LocalExtent::Data(zeros), |passed| other.push(passed));
            }
            prop_assert_eq!(whole.checksum(), resumed.checksum());
            prop_assert_eq!(ends.len() as u64, whole.position() / PREFIX_STEP_BYTES);
            prop_assert_eq!(ends, other);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            if let Ok(prefix) = text.parse::<PrefixCrc>() {
                prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            }
        }
    }

    #[test]
    fn a_disk_is_read_up_to_an_offset() {
        let file = tempfile::tempfile().unwrap();
        let size = 2 * PREFIX_STEP_BYTES + 777;
        file.set_len(size).unwrap();
        file.write_all_at(b"data", PREFIX_STEP_BYTES + 5).unwrap();
        let disk = LocalFile::new(file).unwrap();
        let read = |from: RunningCrc, end| {
            let (mut crc, mut ends) = (from, Vec::new());
            crc.read_until(&disk, end, |passed| {
                ends.push(passed.end_offset());
                true
            })
            .map(|()| (crc, ends))
        };
        let (half, ends) = read(RunningCrc::default(), PREFIX_STEP_BYTES + 7).unwrap();
        assert_eq!(ends, [PREFIX_STEP_BYTES]);
        let (rest, ends) = read(half, size).unwrap();
        assert_eq!((rest.position(), ends), (size, vec![2 * PREFIX_STEP_BYTES]));
        let (whole, _) = read(RunningCrc::default(), size).unwrap();
        assert_eq!(whole.checksum(), rest.checksum());
        assert!(read(RunningCrc::default(), size + 1).is_err());
        let mut stopped = RunningCrc::default();
        stopped.read_until(&disk, size, |_| false).unwrap();
        assert_eq!(stopped.position(), PREFIX_STEP_BYTES);
    }

    #[test]
    fn malformed_checksums_and_marks_of_other_parts_are_refused() {
        for text in [
            "",
            ":",
            "4194304",
            "4194304:",
            "4194304:1",
            "-1:0123456789abcdef",
            "+1:0123456789abcdef",
            "4194304:+123456789abcdef",
            "18446744073709551616:0123456789abcdef",
        ] {
            assert!(text.parse::<PrefixCrc>().is_err(), "{text}");
        }
        for (end, is_mark) in [(0, false), (1, false), (1 << 20, false), (4 << 20, true)] {
            let text = format!("{end}:0123456789abcdef");
            assert_eq!(text.parse::<PrefixCrc>().unwrap().to_string(), text);
            assert_eq!(crate::marks::parse_mark(&text).is_ok(), is_mark, "{text}");
        }
    }
}
