//! The copy of a raw disk, which may be there in part.

use bytes::Bytes;
use diskimage::Format;

use super::footer::{EndingKind, SECTOR};
use super::tail::TailBuffer;
use crate::chunks::ChunkStream;
use crate::disk::Writer;
use crate::error::{Error, SourceError, SourceErrorKind};
use crate::marks::HELD_BYTES;

/// A disk that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedDisk {
    /// Bytes of the disk: the stream's length in whole sectors, or what its footer says.
    pub virtual_size: u64,
    /// The format that the stream turned out to have.
    pub format: Format,
}

/// Copies the stream to the disk, in whatever order it comes; only its first `limit` bytes, if that is known already. What of the disk
/// is kept is no part of the stream.
pub fn copy_raw(
    input: &mut impl ChunkStream,
    writer: &mut Writer<'_>,
    ending: EndingKind,
    limit: Option<u64>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<CopiedDisk, Error> {
    let mut output = LimitedOutput { writer, limit: limit.unwrap_or(u64::MAX) };
    let mut tail = TailBuffer::default();
    let mut received = 0u64;
    while let Some((offset, chunk)) = input.next_placed(received)? {
        received += chunk.len() as u64;
        if ending == EndingKind::Disk {
            output.write_bytes(offset, chunk)?;
        } else {
            tail.pass_through(offset, chunk, |offset, bytes| output.write_bytes(offset, bytes))?;
        }
        tick(output.writer);
    }
    let kept = output.writer.disk().kept_bytes();
    if kept > 0 && received < HELD_BYTES {
        let message = "the stream ends before the part of the disk that is there already";
        return Err(SourceError::new(SourceErrorKind::Invalid, message).into());
    }
    // Every byte came once, so their number is where the last one ends.
    if let Some(virtual_size) = ending.disk_size(&tail.last, received)? {
        return Ok(CopiedDisk { virtual_size, format: Format::Vhd });
    }
    tail.release_held(|offset, bytes| output.write_bytes(offset, bytes))?;
    let virtual_size = received.saturating_add(kept).next_multiple_of(SECTOR);
    let padding = usize::try_from(virtual_size - kept - received).unwrap_or(0);
    output.write_bytes(received, Bytes::from_static(&[0; 512]).slice(..padding))?;
    Ok(CopiedDisk { virtual_size, format: Format::Raw })
}

/// The part of the disk before `limit`.
struct LimitedOutput<'w, 's> {
    writer: &'w mut Writer<'s>,
    limit: u64,
}

impl LimitedOutput<'_, '_> {
    /// Writes bytes of the stream; those that follow on what is kept, behind that.
    fn write_bytes(&mut self, offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        let kept = self.writer.disk().kept_bytes();
        if kept == 0 || offset.saturating_add(bytes.len() as u64) <= HELD_BYTES {
            return self.write_limited(offset, bytes);
        }
        let before = usize::try_from(HELD_BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        let first = bytes.split_to(before);
        if !first.is_empty() {
            self.write_limited(offset, first)?;
        }
        self.write_limited(offset.max(HELD_BYTES).saturating_add(kept), bytes)
    }

    fn write_limited(&mut self, offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        let room = self.limit.saturating_sub(offset);
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let end = offset.saturating_add(bytes.len() as u64);
        // A stream of unknown length ends here at the latest, however much it would expand to.
        self.writer.disk().check_fits(end.next_multiple_of(SECTOR))?;
        self.writer.add_data(offset, bytes)
    }
}
