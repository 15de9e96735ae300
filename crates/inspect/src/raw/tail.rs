//! Handles the end of a stream before it is known to be the end.
//!
//! A last sector that begins like a footer is held back: the disk may fill its device, so the
//! footer might not fit, and xz blocks may arrive in any order. A ranged source is asked for its
//! last sector first only if it has an odd number of sectors. For most other disks the request
//! would find nothing.

use bytes::Bytes;
use diskimage::TRAILER_BYTES;
use diskimage::vhd::COOKIE;
use stream::chunks::ChunkStream;
use stream::error::Error;

use super::footer::{EndingKind, SECTOR};

/// Passes a stream on, but holds back the last sector received so far while it may be a footer,
/// since a footer may not fit on the disk. A sector that does not begin like a footer is passed on
/// at once.
struct TailBuffer {
    /// End offset of the bytes received so far.
    end: u64,
    /// The bytes before `end`, preceded by zeros if the stream is shorter. If the stream comes in
    /// any order, bytes that are still missing are filled in later.
    last: [u8; TRAILER_BYTES],
    /// Offset of the sector that contains the last byte.
    sector: u64,
    /// True if that sector cannot be a footer.
    is_plain: bool,
    /// The received parts of that sector, unless it is plain. They are copies, because the chunks
    /// are much larger.
    held: Vec<(u64, Bytes)>,
}

impl Default for TailBuffer {
    fn default() -> Self {
        Self { end: 0, last: [0; TRAILER_BYTES], sector: 0, is_plain: false, held: Vec::new() }
    }
}

impl TailBuffer {
    /// Takes the bytes at `offset` of the stream. `write` receives everything that is not held
    /// back, including earlier parts that turn out not to be a footer.
    fn pass_through(
        &mut self,
        offset: u64,
        mut bytes: Bytes,
        mut write: impl FnMut(u64, Bytes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.record_last_bytes(offset, &bytes);
        let sector = self.end.saturating_sub(1) / SECTOR * SECTOR;
        if sector > self.sector {
            // A later sector has arrived, so the held one is not the last.
            self.release_held(&mut write)?;
            self.sector = sector;
            self.is_plain = false;
        }
        let before = usize::try_from(sector.saturating_sub(offset)).unwrap_or(usize::MAX);
        let part = bytes.get(before..).unwrap_or_default();
        if part.is_empty() {
            return write(offset, bytes);
        }
        let at = offset.max(sector);
        self.is_plain |= !may_be_footer(at - sector, part);
        if self.is_plain {
            self.release_held(&mut write)?;
            return write(offset, bytes);
        }
        self.held.push((at, Bytes::copy_from_slice(part)));
        bytes.truncate(before);
        if bytes.is_empty() { Ok(()) } else { write(offset, bytes) }
    }

    /// Passes on the held bytes, which have turned out to belong to the disk.
    fn release_held(
        &mut self,
        mut write: impl FnMut(u64, Bytes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut held = std::mem::take(&mut self.held).into_iter();
        held.try_for_each(|(offset, bytes)| write(offset, bytes))
    }

    /// Updates `last` with the bytes that are among the last ones received so far.
    fn record_last_bytes(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.end {
            let moved = usize::try_from(end - self.end).unwrap_or(usize::MAX);
            self.last.copy_within(moved.min(TRAILER_BYTES).., 0);
            self.end = end;
        }
        // `bytes` and `last` are aligned at their ends, but `bytes` may end before the window
        // does.
        let behind = usize::try_from(self.end - end).unwrap_or(usize::MAX);
        let Some(room) = TRAILER_BYTES.checked_sub(behind) else {
            return;
        };
        let length = room.min(bytes.len());
        self.last[room - length..room].copy_from_slice(&bytes[bytes.len() - length..]);
    }
}

/// False if `bytes`, which lie `skip` bytes into a sector, differ from the beginning of a footer.
fn may_be_footer(skip: u64, bytes: &[u8]) -> bool {
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let cookie = COOKIE.iter().skip(skip);
    cookie.zip(bytes).all(|(expected, found)| expected == found)
}

/// Passes the disk in the stream to `write`, in the order in which it arrives, but not a footer
/// after it. Returns the length of the stream, and the size of the disk if a footer states it.
pub fn pass_disk(
    input: &mut impl ChunkStream,
    ending: EndingKind,
    mut write: impl FnMut(u64, Bytes) -> Result<(), Error>,
) -> Result<(u64, Option<u64>), Error> {
    let mut tail = TailBuffer::default();
    // Every byte comes exactly once, so their number is also the end of the stream.
    let mut received = 0u64;
    while let Some((offset, chunk)) = input.next_placed(received)? {
        received += chunk.len() as u64;
        if ending == EndingKind::Disk {
            write(offset, chunk)?;
        } else {
            tail.pass_through(offset, chunk, &mut write)?;
        }
    }
    let footer = ending.disk_size(&tail.last, received)?;
    if footer.is_none() {
        tail.release_held(write)?;
    }
    Ok((received, footer))
}

/// Reads the stream to its end and returns the size of its disk in bytes.
pub(crate) fn measure_disk(input: &mut impl ChunkStream, ending: EndingKind) -> Result<u64, Error> {
    let (received, footer) = pass_disk(input, ending, |_, _| Ok(()))?;
    Ok(footer.unwrap_or_else(|| received.next_multiple_of(SECTOR)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Passes `pieces` of `stream` through the buffer. Returns the bytes written, and the tail.
    fn pass(stream: &[u8], pieces: &[(usize, usize)]) -> (Vec<Option<u8>>, TailBuffer) {
        let mut written = vec![None; stream.len()];
        let mut tail = TailBuffer::default();
        for (start, end) in pieces {
            let bytes = Bytes::copy_from_slice(&stream[*start..*end]);
            tail.pass_through(*start as u64, bytes, |offset, bytes| {
                let at = usize::try_from(offset).unwrap();
                for (place, byte) in written[at..].iter_mut().zip(bytes) {
                    assert_eq!(place.replace(byte), None, "written twice");
                }
                Ok(())
            })
            .unwrap();
        }
        (written, tail)
    }

    prop_compose! {
        /// Generates streams of sectors, some of which look like footers, and the pieces in which
        /// a stream arrives.
        fn stream()(
            sectors in prop::collection::vec(any::<bool>(), 1..5),
            odd in prop_oneof![Just(0usize), 0usize..512],
        )(
            cuts in prop::collection::vec(0..=sectors.len() * 512 + odd, 0..12),
            sectors in Just(sectors),
            odd in Just(odd),
        ) -> (Vec<u8>, Vec<(usize, usize)>) {
            let mut stream = Vec::new();
            for is_footer in sectors {
                let sector = stream.len();
                stream.extend((0..512).map(|at| u8::try_from((sector + at * 7) % 251).unwrap()));
                if is_footer {
                    stream[sector..sector + 8].copy_from_slice(COOKIE);
                }
            }
            stream.extend(COOKIE.iter().cycle().take(odd));
            let mut cuts = [cuts, vec![0, stream.len()]].concat();
            cuts.sort_unstable();
            cuts.dedup();
            let pieces = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
            (stream, pieces)
        }
    }

    proptest! {
        #[test]
        fn only_a_last_sector_that_looks_like_a_footer_is_held_back(
            (stream, pieces) in stream(),
            is_shuffled in any::<bool>(),
            keys in prop::collection::vec(any::<u32>(), 16),
        ) {
            let mut order: Vec<_> = pieces.into_iter().zip(keys).collect();
            if is_shuffled {
                order.sort_unstable_by_key(|(_, key)| *key);
            }
            let pieces: Vec<_> = order.into_iter().map(|(piece, _)| piece).collect();
            let (mut written, mut tail) = pass(&stream, &pieces);

            let sector = (stream.len() - 1) / 512 * 512;
            let is_held = may_be_footer(0, &stream[sector..]);
            let kept = if is_held { sector } else { stream.len() };
            prop_assert!(written[..kept].iter().zip(&stream).all(|(place, byte)| *place == Some(*byte)));
            prop_assert!(written[kept..].iter().all(Option::is_none));
            let last = &stream[stream.len().saturating_sub(512)..];
            prop_assert!(tail.last.ends_with(last));

            tail.release_held(|offset, bytes| {
                let at = usize::try_from(offset).unwrap();
                written[at..at + bytes.len()].copy_from_slice(&bytes.iter().map(|byte| Some(*byte)).collect::<Vec<_>>());
                Ok(())
            }).unwrap();
            prop_assert!(written.into_iter().flatten().eq(stream));
        }
    }

    #[test]
    fn ordinary_bytes_pass_without_a_copy() {
        let chunk = Bytes::from(vec![7; 100_000]);
        let mut places = Vec::new();
        TailBuffer::default()
            .pass_through(0, chunk.clone(), |_, bytes| {
                places.push((bytes.as_ptr(), bytes.len()));
                Ok(())
            })
            .unwrap();
        assert_eq!(places, [(chunk.as_ptr(), chunk.len())]);
    }
}
