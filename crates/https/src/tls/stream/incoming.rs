//! Bytes that have come: records in the memory that they were read into, and the data in them.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::{ContentType, Error};
use tokio::io::{AsyncRead, ReadBuf};

use super::cipher::{HEADER_BYTES, VERSION, unexpected};
use super::records::{Opener, RECORD_BYTES};
use super::rooms::Rooms;

/// Bytes that are read at once: sixteen records. Uploads through the proxy took 1.22 s of the processor for a GiB; with 128 KiB 1.27,
/// with 64 KiB 1.36.
const READ_BYTES: usize = 256 << 10;

/// Bytes of one read that are much, and reads that bring as much until what they bring is given in large pieces: a slow client may
/// begin with a burst.
const BULK_BYTES: usize = READ_BYTES / 2;
const BULK_READS: u8 = 4;

/// Bytes of one read that are little.
const LITTLE_BYTES: usize = 32 << 10;

/// Bytes that are given at once while it is not. Who is given all that it has asked for, as hyper, asks for twice as much, and keeps
/// the memory: 200 slow uploads held 0.29 MiB each in the proxy, with this bound 0.10.
const PIECE_BYTES: usize = (16 << 10) - 1;

static ROOMS: Rooms = Rooms::of(READ_BYTES);

/// The bytes of one connection.
pub(super) struct Incoming {
    room: Option<Box<[u8]>>,
    /// Data that was opened and is not taken yet.
    data: Range<usize>,
    /// Records behind it.
    sealed: Range<usize>,
    /// A part of a record, when there is no room.
    rest: Vec<u8>,
    /// Reads that brought much, since one brought little.
    bulk: u8,
}

impl Incoming {
    /// Begins with the part of a record.
    pub(super) fn new(rest: Vec<u8>) -> Self {
        Self {
            room: None,
            data: 0..0,
            sealed: 0..0,
            rest,
            bulk: 0,
        }
    }

    /// Bytes that may be given at once.
    pub(super) fn most(&self) -> usize {
        if self.bulk >= BULK_READS {
            READ_BYTES
        } else {
            PIECE_BYTES
        }
    }

    /// Copies data that was opened, up to the `end` of `buffer`.
    pub(super) fn give(&mut self, buffer: &mut ReadBuf<'_>, end: usize) {
        let length = self.data.len().min(end.saturating_sub(buffer.filled().len()));
        let data = self.data.start..self.data.start + length;
        let bytes = self.room.as_deref().and_then(|room| room.get(data));
        buffer.put_slice(bytes.unwrap_or_default());
        self.data.start += length;
    }

    /// True if there is data to give.
    pub(super) fn has_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// Opens the next record; `None` when it is not whole. Data that fits before the `end` of `buffer` goes there, other data is kept; of
    /// anything else the content is returned.
    pub(super) fn open<'a>(
        &'a mut self,
        opener: &mut Opener,
        buffer: &'a mut ReadBuf<'_>,
        end: usize,
    ) -> Result<Option<(ContentType, &'a [u8])>, Error> {
        let Some(room) = &mut self.room else {
            return Ok(None);
        };
        let sealed = room.get_mut(self.sealed.clone()).unwrap_or_default();
        let length = match record_length(sealed)? {
            Some(length) if length <= sealed.len() => length,
            _ => return Ok(None),
        };
        let (start, record) = (self.sealed.start, &mut sealed[..length]);
        self.sealed.start += length;
        let needed = opener.needs(record);
        if needed <= end.saturating_sub(buffer.filled().len()) {
            let (kind, length) = opener.open_into(record, buffer.initialize_unfilled_to(needed))?;
            if kind == ContentType::ApplicationData {
                buffer.advance(length);
                return Ok(Some((kind, &[])));
            }
            return Ok(Some((kind, buffer.initialize_unfilled_to(length))));
        }
        let (kind, content) = opener.open(record)?;
        let content = start + content.start..start + content.end;
        if kind == ContentType::ApplicationData {
            self.data = content;
            return Ok(Some((kind, &[])));
        }
        Ok(Some((kind, room.get(content).unwrap_or_default())))
    }

    /// Reads more, when no record is whole and all data was given. The number of bytes; 0 at the end.
    pub(super) fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut room = self.room.take().unwrap_or_else(|| ROOMS.take());
        if self.rest.is_empty() {
            room.copy_within(self.sealed.clone(), 0);
        } else {
            room[..self.rest.len()].copy_from_slice(&self.rest);
            self.sealed = 0..self.rest.len();
        }
        let waiting = self.sealed.len();
        let mut buffer = ReadBuf::new(&mut room[waiting..]);
        let polled = Pin::new(io).poll_read(cx, &mut buffer);
        let read = buffer.filled().len();
        self.sealed = 0..waiting + read;
        if polled.is_ready() {
            self.learn(read);
        }
        if read == 0 {
            // It may be long until more comes.
            if self.rest.is_empty() {
                self.rest = room[..waiting].to_vec();
            }
            self.sealed = 0..0;
            ROOMS.give_back(Some(room));
        } else {
            self.rest = Vec::new();
            self.room = Some(room);
        }
        ready!(polled)?;
        Poll::Ready(Ok(read))
    }

    /// Learns from a read of so many bytes.
    fn learn(&mut self, read: usize) {
        match read {
            BULK_BYTES.. => self.bulk = self.bulk.saturating_add(1),
            ..LITTLE_BYTES => self.bulk = 0,
            _ => {}
        }
    }

    /// True while bytes are kept in a room.
    #[cfg(test)]
    pub(super) fn has_room(&self) -> bool {
        self.room.is_some()
    }

    /// Gives the room back when there is nothing in it.
    pub(super) fn tidy(&mut self) {
        if self.data.is_empty() && self.sealed.is_empty() {
            ROOMS.give_back(self.room.take());
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        ROOMS.give_back(self.room.take());
    }
}

/// The length of the record that begins here, with its header; `None` until that has come.
fn record_length(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some([_, major, minor, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    if [*major, *minor] != VERSION {
        return Err(unexpected("a record of another version"));
    }
    if length > RECORD_BYTES {
        return Err(Error::PeerSentOversizedRecord);
    }
    Ok(Some(length))
}
