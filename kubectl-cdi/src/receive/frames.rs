//! Finds and decodes the complete frames of a compressed disk that an earlier process has left.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use datapath::chunks::ChunkStream;
use datapath::decode::{Codec, DecodeLimits};
use datapath::error::Error;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The magic number of a frame (RFC 8878 §3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Returns the end of the last frame that the file contains completely. The rest of the file may
/// be an incomplete frame.
pub(super) fn complete_frames(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file.try_clone()?);
    reader.rewind()?;
    let mut complete = 0;
    while let Some(end) = frame_end(&mut reader, complete)?.filter(|end| *end <= length) {
        complete = end;
    }
    Ok(complete)
}

/// Returns true if the file is empty, or if it begins like a frame.
pub(super) fn may_begin(file: &File) -> io::Result<bool> {
    let mut head = Vec::new();
    let mut reader = file;
    reader.rewind()?;
    reader.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(MAGIC.starts_with(&head))
}

/// Returns the end of the frame at `start`, which may be after the end of the file. `None` if no
/// frame begins there, or if one of its headers is incomplete.
fn frame_end(reader: &mut BufReader<File>, start: u64) -> io::Result<Option<u64>> {
    let mut head = [0; 5];
    if !fill(reader, &mut head)? || head[..4] != MAGIC {
        return Ok(None);
    }
    let descriptor = head[4];
    let is_single = descriptor & 0x20 != 0;
    // The window, the dictionary id and the size of the content (§3.1.1.1.2-4).
    let id_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = match descriptor >> 6 {
        0 => u8::from(is_single),
        power => 1 << power,
    };
    let mut skipped = i64::from(!is_single) + id_bytes + i64::from(size_bytes);
    let mut end = start + 5 + skipped.unsigned_abs();
    loop {
        reader.seek_relative(skipped)?;
        let mut block = [0; 4];
        if !fill(reader, &mut block[..3])? {
            return Ok(None);
        }
        let block = u32::from_le_bytes(block);
        // A block of one repeated byte contains only that byte (§3.1.1.2.2).
        let length = if block >> 1 & 3 == 1 { 1 } else { block >> 3 };
        skipped = length.into();
        end += 3 + u64::from(length);
        if block & 1 == 1 {
            break;
        }
    }
    let checksum = if descriptor & 4 == 0 { 0 } else { 4 };
    reader.seek_relative(skipped + checksum)?;
    Ok(Some(end + checksum.unsigned_abs()))
}

/// Fills `bytes`; returns false if the file ends first.
fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Decodes the first `end` bytes of the file.
pub(super) fn decode_frames(file: &File, end: u64) -> io::Result<Box<dyn ChunkStream>> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(0))?;
    Ok(Codec::Zstd.new_decoder(Box::new(FrameBytes(file.take(end))), &DecodeLimits::default()))
}

struct FrameBytes(io::Take<File>);

impl ChunkStream for FrameBytes {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let mut bytes = Vec::with_capacity(READ_BYTES);
        // A file that cannot be read ends early, which the decoder reports.
        (&mut self.0).take(READ_BYTES as u64).read_to_end(&mut bytes).ok();
        Ok(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }
}
