//! The copy of a raw disk, which may be there in part.

use bytes::Bytes;
use diskimage::Format;

use super::footer::{Ending, SECTOR};
use super::tail::Tail;
use crate::chunks::Chunks;
use crate::disk::{HELD_BYTES, Writer};
use crate::error::{Error, SourceError, SourceErrorKind};

/// A disk that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of the disk: the stream's length in whole sectors, or what its footer says.
    pub virtual_size: u64,
    /// The format that the stream turned out to have.
    pub format: Format,
}

/// Copies the stream to the disk, in whatever order it comes; only its first `limit` bytes, if that is known already. What of the disk
/// is kept is no part of the stream.
pub fn copy(
    input: &mut impl Chunks,
    writer: &mut Writer<'_>,
    ending: Ending,
    limit: Option<u64>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<Copied, Error> {
    let mut output = Output {
        writer,
        limit: limit.unwrap_or(u64::MAX),
    };
    let mut tail = Tail::default();
    let mut received = 0u64;
    while let Some((offset, chunk)) = input.next_placed(received)? {
        received += chunk.len() as u64;
        if ending == Ending::Disk {
            output.write(offset, chunk)?;
        } else {
            tail.pass(offset, chunk, |offset, bytes| output.write(offset, bytes))?;
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
        return Ok(Copied {
            virtual_size,
            format: Format::Vhd,
        });
    }
    tail.release(|offset, bytes| output.write(offset, bytes))?;
    let virtual_size = received.saturating_add(kept).next_multiple_of(SECTOR);
    let padding = usize::try_from(virtual_size - kept - received).unwrap_or(0);
    output.write(received, Bytes::from_static(&[0; 512]).slice(..padding))?;
    Ok(Copied {
        virtual_size,
        format: Format::Raw,
    })
}

/// Reads the stream to its end: bytes of the disk in it.
pub fn length(input: &mut impl Chunks, ending: Ending) -> Result<u64, Error> {
    let mut tail = Tail::default();
    let mut received = 0u64;
    while let Some((offset, chunk)) = input.next_placed(received)? {
        received += chunk.len() as u64;
        tail.pass(offset, chunk, |_, _| Ok(()))?;
    }
    let footer = ending.disk_size(&tail.last, received)?;
    Ok(footer.unwrap_or_else(|| received.next_multiple_of(SECTOR)))
}

/// The part of the disk before `limit`.
struct Output<'w, 's> {
    writer: &'w mut Writer<'s>,
    limit: u64,
}

impl Output<'_, '_> {
    /// Writes bytes of the stream; those that follow on what is kept, behind that.
    fn write(&mut self, offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        let kept = self.writer.disk().kept_bytes();
        if kept == 0 || offset.saturating_add(bytes.len() as u64) <= HELD_BYTES {
            return self.put(offset, bytes);
        }
        let before = usize::try_from(HELD_BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        let first = bytes.split_to(before);
        if !first.is_empty() {
            self.put(offset, first)?;
        }
        self.put(offset.max(HELD_BYTES).saturating_add(kept), bytes)
    }

    fn put(&mut self, offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        let room = self.limit.saturating_sub(offset);
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let end = offset.saturating_add(bytes.len() as u64);
        // A stream of unknown length ends here at the latest, however much it would expand to.
        self.writer.disk().check_fits(end.next_multiple_of(SECTOR))?;
        self.writer.data(offset, bytes)
    }
}
