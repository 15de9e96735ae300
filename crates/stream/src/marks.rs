//! Checksums of the beginning of a disk ("marks"). They allow a process that has the image and a
//! process that has the disk to compare their content.

use std::fmt;
use std::fs::File;
use std::iter::successors;
use std::str::FromStr;
use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, Digest};
use tokio_util::sync::CancellationToken;

use crate::buffer::CHUNK_BYTES;
use crate::local::{LocalExtent, LocalFile};

/// Bytes at the beginning of a disk that are held back until everything else is verified and on
/// the disk. The partition tables, boot sectors and filesystem superblocks of all common layouts
/// begin within the first MiB.
pub const HELD_BYTES: u64 = 1 << 20;

/// Maximum number of marks that are checked for one disk. If each mark is an eighth further than
/// the previous one, they reach from 8 MiB to 10 TiB.
pub const MAX_MARKS: usize = 128;

/// The end of a mark is a multiple of this, so that any device can be zeroed from there on.
pub const MARK_BYTES: u64 = 1 << 20;

/// The checksum of marks. A CRC is enough: it detects damage, and protection against forgery is
/// not needed because a client may write arbitrary data anyway.
pub(crate) const CRC: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// A checksum of the part of a disk between its first [`HELD_BYTES`] and `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixCrc {
    /// Offset of the end of the part: a multiple of [`MARK_BYTES`], greater than [`HELD_BYTES`].
    end: u64,
    /// The [`CRC`] of the part.
    crc: u64,
}

impl PrefixCrc {
    /// Offset of the end of the part that the checksum covers.
    pub fn end_offset(self) -> u64 {
        self.end
    }
}

/// Formats a mark as `END:CRC`, with END in decimal and CRC as 16 hexadecimal digits.
impl fmt::Display for PrefixCrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.end, self.crc)
    }
}

/// A text that is not a valid mark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not END:CRC, where END is a multiple of {MARK_BYTES} above {HELD_BYTES} and CRC has 16 hexadecimal digits"
)]
pub struct PrefixCrcError(String);

impl FromStr for PrefixCrc {
    type Err = PrefixCrcError;

    fn from_str(text: &str) -> Result<Self, PrefixCrcError> {
        let parse = || {
            let (end, crc) = text.split_once(':')?;
            let end = end.parse().ok().filter(|end| is_end(*end))?;
            let digits = Some(crc)
                .filter(|crc| crc.len() == 16 && crc.bytes().all(|b| b.is_ascii_hexdigit()))?;
            Some(Self { end, crc: u64::from_str_radix(digits, 16).ok()? })
        };
        parse().ok_or_else(|| PrefixCrcError(text.chars().take(64).collect()))
    }
}

fn is_end(end: u64) -> bool {
    end > HELD_BYTES && end.is_multiple_of(MARK_BYTES)
}

/// Computes the marks of the disk in `image` at `ends`, which must be in ascending order. Ends
/// that are not valid for a mark, or lie beyond the end of the image, are left out.
pub fn marks_of(
    image: &File,
    ends: &[u64],
    stop: &CancellationToken,
) -> std::io::Result<Vec<PrefixCrc>> {
    let mut marks = Vec::new();
    let local = LocalFile::new(image.try_clone()?)?;
    let mut reader = local.chunk_reader(CHUNK_BYTES);
    reader.skip_to(HELD_BYTES);
    let mut crc = Digest::new(CRC);
    let mut ends = ends.iter().copied().filter(|end| is_end(*end));
    let Some(mut end) = ends.next() else {
        return Ok(marks);
    };
    let mut at = HELD_BYTES;
    while !stop.is_cancelled()
        && let Some(mut rest) = reader.next_part()?
    {
        loop {
            let now;
            (now, rest) = split_extent(rest, end.saturating_sub(at));
            at += update_crc(&mut crc, &now);
            if at < end {
                break;
            }
            let crc = crc.finalize();
            marks.push(PrefixCrc { end, crc });
            let Some(next) = ends.next() else {
                return Ok(marks);
            };
            end = next;
        }
    }
    Ok(marks)
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

/// Adds a part to the checksum and returns the length of the part.
pub(crate) fn update_crc(crc: &mut Digest, part: &LocalExtent) -> u64 {
    match part {
        LocalExtent::Data(bytes) => {
            crc.update(bytes);
            bytes.len() as u64
        }
        LocalExtent::Hole(bytes) => {
            add_zeros(crc, *bytes);
            *bytes
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
    }
}
