//! Undoes [`crate::frames`].

use crate::cursor::Cursor;
use bytes::{Bytes, BytesMut};
use zstd::bulk::Decompressor;

use super::decoder::Fault;
use crate::buffer::Filling;
use crate::chunks::Chunks;
use crate::codec::Codec;
use crate::error::{DecodeError, Error};
use crate::frames::{HEADER_BYTES, Header, Kind, MAGIC};
use crate::zeros::ZEROS;

/// The next part of the stream.
#[derive(Clone, Copy)]
enum Next {
    Magic,
    Header,
    Stored(Payload),
    Zstd(Payload),
    /// The rest of `unpacked`, from this index on.
    Unpacked(usize),
    Zeros(u64),
    Ended,
}

/// The payload of a frame.
#[derive(Clone, Copy)]
struct Payload {
    header: Header,
    /// Bytes of it that are left.
    left: usize,
    /// The checksum of what came before them.
    checksum: u32,
}

/// Reads frames.
pub(super) struct Frames {
    input: Cursor,
    next: Next,
    /// Bytes that the frames so far stand for, and that were handed out.
    announced: u64,
    decoded: u64,
    /// CRC-32C of the headers so far.
    headers: u32,
    /// A frame that was decompressed and did not fit: 1 MiB at most.
    unpacked: Vec<u8>,
    zstd: Decompressor<'static>,
}

impl Frames {
    pub(super) fn new(inner: Box<dyn Chunks>) -> Self {
        Self {
            input: Cursor::new(inner),
            next: Next::Magic,
            announced: 0,
            decoded: 0,
            headers: 0,
            unpacked: Vec::new(),
            zstd: Decompressor::default(),
        }
    }

    fn magic(&mut self) -> Result<Next, Error> {
        let bytes: [u8; MAGIC.len()] = self.array()?;
        if bytes == *MAGIC {
            Ok(Next::Header)
        } else {
            Err(self.corrupt("it does not begin with the mark of a stream of frames"))
        }
    }

    fn header(&mut self) -> Result<Next, Error> {
        let bytes: [u8; HEADER_BYTES] = self.array()?;
        let header = Header::parse(&bytes).map_err(|reason| self.corrupt(reason))?;
        let checksum = Header::checksum_of(&bytes);
        if header.kind == Kind::End {
            return self.end(&header, checksum);
        }
        self.headers = crc32c::crc32c_append(self.headers, &bytes);
        // The length of a frame of zeros costs its sender nothing: the sum may go beyond 64 bits.
        self.announced = self
            .announced
            .checked_add(header.length)
            .ok_or_else(|| self.corrupt("its frames stand for more than 2^64 bytes"))?;
        let payload = Payload {
            left: usize::try_from(header.stored).unwrap_or(usize::MAX),
            header,
            checksum,
        };
        match header.kind {
            Kind::Zeros => {
                self.verify(&header, checksum)?;
                Ok(Next::Zeros(header.length))
            }
            Kind::Zstd => Ok(Next::Zstd(payload)),
            _ => Ok(Next::Stored(payload)),
        }
    }

    /// The end proves that everything came, and nothing may follow it.
    fn end(&mut self, header: &Header, checksum: u32) -> Result<Next, Error> {
        let payload: [u8; 4] = self.array()?;
        self.verify(header, crc32c::crc32c_append(checksum, &payload))?;
        if header.length != self.announced {
            let (stated, came) = (header.length, self.announced);
            return Err(self.corrupt(format!("its end speaks of {stated} bytes, {came} came")));
        }
        if u32::from_le_bytes(payload) != self.headers {
            return Err(self.corrupt("its frames are not those that its end speaks of"));
        }
        if !self.input.fill()?.is_empty() {
            return Err(DecodeError::TrailingGarbage {
                codec: Codec::Frames.name(),
                offset: self.input.offset(),
            }
            .into());
        }
        Ok(Next::Ended)
    }

    /// Copied, so that it lies in memory as it will lie on the disk.
    fn stored(&mut self, mut payload: Payload, output: &mut Filling) -> Result<Next, Error> {
        let part = self.some(payload.left.min(output.room().len()))?;
        output.fill_from(&mut &part[..]);
        payload.checksum = crc32c::crc32c_append(payload.checksum, &part);
        payload.left -= part.len();
        if payload.left > 0 {
            return Ok(Next::Stored(payload));
        }
        self.verify(&payload.header, payload.checksum)?;
        Ok(Next::Header)
    }

    /// `None` if there is no room for it in what is being filled, which has to be handed out before.
    fn zstd(&mut self, payload: Payload, output: &mut Filling) -> Result<Option<Next>, Error> {
        let Payload {
            header,
            left,
            checksum,
        } = payload;
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let fits = output.room().len() >= length;
        if !fits && !output.is_empty() {
            return Ok(None);
        }
        // The checksum first: zstd never sees bytes that were damaged on the way.
        let payload = self.joined(left)?;
        self.verify(&header, crc32c::crc32c_append(checksum, &payload))?;
        let room = if fits {
            &mut output.room()[..length]
        } else {
            self.unpacked.resize(length, 0);
            &mut self.unpacked[..]
        };
        match self.zstd.decompress_to_buffer(&payload[..], room) {
            Ok(count) if count == length => {}
            Ok(count) => {
                return Err(self.corrupt(format!("a frame of {count} bytes that should have {length}")));
            }
            Err(error) => return Err(self.corrupt(format!("a frame that is no zstd: {error}"))),
        }
        if fits {
            output.filled(header.length);
            return Ok(Some(Next::Header));
        }
        Ok(Some(Next::Unpacked(0)))
    }

    /// The next `want` bytes in one piece: as they came, or joined.
    fn joined(&mut self, want: usize) -> Result<Bytes, Error> {
        let first = self.some(want)?;
        if first.len() == want {
            return Ok(first);
        }
        let mut joined = BytesMut::with_capacity(want);
        joined.extend_from_slice(&first);
        while joined.len() < want {
            joined.extend_from_slice(&self.some(want - joined.len())?);
        }
        Ok(joined.freeze())
    }

    fn deliver(&mut self, from: usize, output: &mut Filling) -> Next {
        let mut rest = self.unpacked.get(from..).unwrap_or_default();
        output.fill_from(&mut rest);
        if rest.is_empty() {
            Next::Header
        } else {
            Next::Unpacked(self.unpacked.len() - rest.len())
        }
    }

    /// The next `N` bytes.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.input.head(N)?.first_chunk().copied();
        let bytes = bytes.ok_or_else(|| self.truncated())?;
        self.input.consume(N);
        Ok(bytes)
    }

    /// The bytes at hand, at least one and `most` at most.
    fn some(&mut self, most: usize) -> Result<Bytes, Error> {
        let bytes = self.input.take(most as u64)?;
        if bytes.is_empty() {
            return Err(self.truncated());
        }
        Ok(bytes)
    }

    fn verify(&self, header: &Header, calculated: u32) -> Result<(), Error> {
        header.verify(calculated).map_err(|reason| self.corrupt(reason))
    }

    fn corrupt(&self, reason: impl Into<String>) -> Error {
        Fault::Corrupt(reason.into())
            .at(Codec::Frames, self.input.offset())
            .into()
    }

    fn truncated(&self) -> Error {
        DecodeError::Truncated {
            codec: Codec::Frames.name(),
            offset: self.input.seen(),
        }
        .into()
    }
}

impl Chunks for Frames {
    /// Zeros are parts of one static block, so that terabytes of them cost next to nothing.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let mut output = None;
        loop {
            self.next = match self.next {
                Next::Magic => self.magic()?,
                Next::Header => self.header()?,
                Next::Zeros(0) => Next::Header,
                Next::Ended => break,
                // Data that came before goes out first: a chunk is either data or a part of the static block.
                Next::Zeros(_) if output.is_some() => break,
                Next::Zeros(count) => {
                    let part = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
                    self.next = Next::Zeros(count - part as u64);
                    self.decoded += part as u64;
                    return Ok(Some(Bytes::from_static(&ZEROS[..part])));
                }
                payload => {
                    let decoded = self.decoded;
                    let output = output.get_or_insert_with(|| Filling::new(decoded));
                    if output.is_full() {
                        break;
                    }
                    match payload {
                        Next::Stored(payload) => self.stored(payload, output)?,
                        Next::Zstd(payload) => match self.zstd(payload, output)? {
                            Some(next) => next,
                            None => break,
                        },
                        Next::Unpacked(from) => self.deliver(from, output),
                        other => other,
                    }
                }
            };
        }
        let bytes = output.filter(|output| !output.is_empty()).map(Filling::freeze);
        self.decoded += bytes.as_ref().map_or(0, Bytes::len) as u64;
        Ok(bytes)
    }
}
