//! Finds and decodes the complete frames of a compressed disk that an earlier process has left.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

use bytes::Bytes;
use codec::decode::{Codec, DecodeLimits, new_decoder};
use stream::chunks::ChunkStream;
use stream::error::Error;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The magic number of a frame (RFC 8878 §3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Limit on the size of a frame. Those of a download have at most 258,048 bytes of data each, or a
/// few KiB for zeros.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// Reads the frames of a file in order.
pub(super) struct FrameReader(BufReader<File>);

impl FrameReader {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(READ_BYTES, file.try_clone()?);
        reader.rewind()?;
        Ok(Self(reader))
    }

    /// Returns the next frame. `None` if the file does not contain it completely, or contains
    /// something else.
    pub(super) fn next_frame(&mut self) -> io::Result<Option<Bytes>> {
        let mut frame = Vec::new();
        if !self.append(5, &mut frame)? || frame[..4] != MAGIC {
            return Ok(None);
        }
        let descriptor = frame[4];
        let is_single = descriptor & 0x20 != 0;
        // The window, the dictionary id and the size of the content (§3.1.1.1.2-4).
        let id_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size_bytes = match descriptor >> 6 {
            0 => usize::from(is_single),
            power => 1 << power,
        };
        let mut rest = usize::from(!is_single) + id_bytes + size_bytes;
        let mut is_last = false;
        while !is_last {
            let header = frame.len() + rest;
            if !self.append(rest + 3, &mut frame)? {
                return Ok(None);
            }
            let block =
                frame[header..].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte));
            is_last = block & 1 == 1;
            // A block of one repeated byte contains only that byte (§3.1.1.2.2).
            rest = if block >> 1 & 3 == 1 { 1 } else { block >> 3 };
        }
        let checksum = if descriptor & 4 == 0 { 0 } else { 4 };
        let is_complete = self.append(rest + checksum, &mut frame)?;
        Ok(is_complete.then(|| frame.into()))
    }

    /// Appends the next bytes of the file to `frame`. Returns false if the file ends first, or if
    /// the frame is too large.
    fn append(&mut self, count: usize, frame: &mut Vec<u8>) -> io::Result<bool> {
        let read = (&mut self.0).take(count as u64).read_to_end(frame)?;
        Ok(read == count && frame.len() <= MAX_FRAME_BYTES)
    }
}

/// Returns true if the file is empty, or may be the incomplete first frame of a download.
pub(super) fn may_begin(file: &File) -> io::Result<bool> {
    if file.metadata()?.len() > MAX_FRAME_BYTES as u64 {
        return Ok(false);
    }
    let mut head = Vec::new();
    let mut reader = file;
    reader.rewind()?;
    reader.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(MAGIC.starts_with(&head))
}

/// Decodes a frame.
pub(super) fn decode_frame(frame: Bytes) -> Box<dyn ChunkStream> {
    new_decoder(Codec::Zstd, Box::new(FrameBytes(Some(frame))), &DecodeLimits::default())
}

struct FrameBytes(Option<Bytes>);

impl ChunkStream for FrameBytes {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.take())
    }
}
