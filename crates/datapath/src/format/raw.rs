//! Copies raw images: the stream is the disk, except for a footer at its end. A part of the disk
//! may exist already.

use bytes::Bytes;
use diskimage::Format;
use inspect::raw::{EndingKind, SECTOR, pass_disk};
use stream::chunks::ChunkStream;
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::marks::HELD_BYTES;

use crate::disk::Writer;

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopiedDisk {
    /// Bytes of the disk: the stream's length rounded up to whole sectors, or the size in its
    /// footer.
    pub(crate) virtual_size: u64,
    /// The format that the stream turned out to have.
    pub(crate) format: Format,
}

/// Copies the stream to the disk, in whatever order it arrives. If `limit` is known, only the
/// first `limit` bytes are written. The stream does not contain the part of the disk that is kept
/// from an earlier attempt.
pub(crate) fn copy_raw(
    input: &mut impl ChunkStream,
    writer: &mut Writer<'_>,
    ending: EndingKind,
    limit: Option<u64>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<CopiedDisk, Error> {
    let mut output = LimitedOutput { writer, limit: limit.unwrap_or(u64::MAX) };
    let (received, footer) = pass_disk(input, ending, |offset, bytes| {
        output.write_bytes(offset, bytes)?;
        tick(output.writer);
        Ok(())
    })?;
    let kept = output.writer.disk().kept_bytes();
    if kept > 0 && received < HELD_BYTES {
        let message = "the stream ends before the part of the disk that was already written";
        return Err(SourceError::new(SourceErrorKind::Invalid, message).into());
    }
    if let Some(virtual_size) = footer {
        return Ok(CopiedDisk { virtual_size, format: Format::Vhd });
    }
    let virtual_size = received.saturating_add(kept).next_multiple_of(SECTOR);
    let padding = usize::try_from(virtual_size - kept - received).unwrap_or(0);
    output.write_bytes(received, Bytes::from_static(&[0; 512]).slice(..padding))?;
    Ok(CopiedDisk { virtual_size, format: Format::Raw })
}

/// Passes the disk in the stream to `write`, in order. A partial last sector is not completed.
pub(crate) fn pass_in_order(
    input: &mut impl ChunkStream,
    ending: EndingKind,
    mut write: impl FnMut(Bytes) -> Result<(), Error>,
) -> Result<CopiedDisk, Error> {
    let (received, footer) = pass_disk(&mut OrderedStream(input), ending, |_, bytes| write(bytes))?;
    let virtual_size = footer.unwrap_or_else(|| received.next_multiple_of(SECTOR));
    let format = if footer.is_some() { Format::Vhd } else { Format::Raw };
    Ok(CopiedDisk { virtual_size, format })
}

/// A stream that is read in order, even if it could be read in any order.
struct OrderedStream<'i, I>(&'i mut I);

impl<I: ChunkStream> ChunkStream for OrderedStream<'_, I> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.next_chunk()
    }
}

/// Writes the stream to the disk up to `limit`.
struct LimitedOutput<'w, 's> {
    writer: &'w mut Writer<'s>,
    limit: u64,
}

impl LimitedOutput<'_, '_> {
    /// Writes bytes at `offset` of the stream. The kept part lies directly after the held first
    /// MiB, so later bytes of the stream go after the kept part.
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
        // This limits a stream of unknown length, however much it would expand to.
        self.writer.disk().check_fits(end.next_multiple_of(SECTOR))?;
        self.writer.add_data(offset, bytes)
    }
}
