//! Finds and decodes the complete frames of a compressed disk that an earlier process has left.

use std::fs::File;
use std::io::{self, Read, Seek};

use bytes::{BufMut, Bytes, BytesMut};
use codec::decode::{Codec, DecodeLimits, new_decoder};
use stream::chunks::ChunkStream;
use stream::error::Error;
use zstd::zstd_safe::find_frame_compressed_size;

/// The magic number of a frame (RFC 8878 §3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Limit on the size of a frame. Those of a download have at most 258,048 bytes of data each, or a
/// few KiB for zeros.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// Reads the frames of a file in order.
pub(super) struct FrameReader {
    file: File,
    /// Bytes of the file after the last frame that was returned.
    ahead: BytesMut,
}

impl FrameReader {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let mut file = file.try_clone()?;
        file.rewind()?;
        Ok(Self { file, ahead: BytesMut::new() })
    }

    /// Returns the next frame. `None` if the file does not contain it completely, or contains
    /// something else.
    pub(super) fn next_frame(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.ahead.starts_with(&MAGIC)
                && let Ok(length) = find_frame_compressed_size(&self.ahead)
            {
                return Ok(Some(self.ahead.split_to(length).freeze()));
            }
            let room = MAX_FRAME_BYTES - self.ahead.len();
            let mut more = (&mut self.file).take(room as u64);
            if io::copy(&mut more, &mut (&mut self.ahead).writer())? == 0 {
                return Ok(None);
            }
        }
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
