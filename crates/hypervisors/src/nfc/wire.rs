//! Messages of NFC, the protocol in which ESXi hosts serve disks: encoding and decoding without
//! I/O.
//!
//! A session begins with messages of 264 bytes, which frames ("AIO") follow. All numbers are
//! little-endian. VMware does not document the protocol; what public clients have not confirmed
//! with hosts is marked "not confirmed".

use std::fmt;
use std::ops::Range;

use fetch::messages::plain_line;

use crate::blocks::ProtocolViolation;

/// Size of a message of the first phase.
pub const CLASSIC_BYTES: usize = 264;

/// Messages of the first phase, by their numbers.
pub const SESSION_COMPLETE: u32 = 4;
pub const CLASSIC_ERROR: u32 = 20;
pub const FILE_COPY: u32 = 33;
pub const FILEOP_STATUS: u32 = 36;
pub const CLIENT_RANDOM: u32 = 43;
pub const VERSION: u32 = 51;
pub const BEGIN_AIO: u32 = 52;
pub const CLIENT_NAMES: u32 = 54;
pub const FEATURES: u32 = 55;

/// Kinds of frames.
pub const ERROR: u32 = 1;
pub const OPEN_SESSION: u32 = 2;
pub const CLOSE_SESSION: u32 = 3;
pub const OPEN_FILE: u32 = 4;
pub const CLOSE_FILE: u32 = 5;
pub const READ: u32 = 7;
pub const SOCKET_OPTIONS: u32 = 9;
pub const USED_BLOCKS: u32 = 13;
pub const RESOURCE_POOL: u32 = 22;

/// First bytes of every frame.
const MAGIC: u32 = 0xa100_da7a;

/// File type of a disk.
const DISK: u32 = 2;

/// Flags that open a disk with its parents, read-only. The meaning of 0x10 is not confirmed.
const OPEN_FLAGS: u32 = 0x1e;

/// Longest text of an error, and longest path of a disk.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Most chunks of which one reply says whether they are used.
pub const MAX_CHUNKS: u64 = 512 << 10;

/// A message of the first phase: its number, then fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassicMessage(pub [u8; CLASSIC_BYTES]);

impl ClassicMessage {
    /// Creates message number `kind`, whose other bytes are zeros.
    pub fn new(kind: u32) -> Self {
        Self([0; CLASSIC_BYTES]).with_bytes(0, &kind.to_le_bytes())
    }

    /// Sets the bytes at `at`.
    #[must_use]
    pub fn with_bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        put_bytes(&mut self.0, at, bytes);
        self
    }

    /// Sets the numbers from byte 4 on.
    #[must_use]
    pub fn with_numbers(self, first: u32, second: u32) -> Self {
        self.with_bytes(4, &first.to_le_bytes()).with_bytes(8, &second.to_le_bytes())
    }

    /// Returns the number at `at`; the message's own is at 0.
    pub fn number_at(&self, at: usize) -> u32 {
        read_u32(&self.0, at)
    }
}

/// Returns message 54 with what follows it: the names of the client and of its operation.
pub fn encode_names(names: [&str; 2]) -> Vec<u8> {
    let [client, operation] = names.map(length_of);
    let message = ClassicMessage::new(CLIENT_NAMES).with_numbers(client, operation);
    [&message.0[..], names.concat().as_bytes()].concat()
}

/// Encodes a frame: its header, its payload, and bytes that the header does not count.
pub fn encode_frame(kind: u32, operation: u32, payload: &[u8], extra: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes: Vec<u8> =
        [MAGIC, kind, size, operation].into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.extend(payload);
    bytes.extend(extra);
    bytes
}

/// Returns the payload of [`OPEN_FILE`], which the path follows.
pub fn open_payload(path: &str) -> [u8; OpenedFile::BYTES] {
    payload_of(&[(0, length_of(path)), (16, DISK), (20, OPEN_FLAGS)], &[])
}

/// Returns the payload of [`READ`] for `length` bytes at `offset`.
pub fn read_payload(
    handle: u64,
    compression: u32,
    offset: u64,
    length: u32,
) -> [u8; ReadFragment::BYTES] {
    // With 0 at 8, it would be a write.
    let numbers = [(8, 1), (12, compression), (24, length), (32, length), (36, length)];
    payload_of(&numbers, &[(0, handle), (16, offset)])
}

/// Returns the payload of [`USED_BLOCKS`] for `count` chunks from `start` on.
pub fn used_payload(handle: u64, chunk: u64, start: u64, count: u64) -> [u8; USED_BYTES] {
    payload_of(&[], &[(0, handle), (16, chunk), (24, start), (32, count)])
}

/// Returns a payload with these numbers at these places.
fn payload_of<const N: usize>(short: &[(usize, u32)], long: &[(usize, u64)]) -> [u8; N] {
    let mut payload = [0; N];
    for (at, number) in short {
        put_bytes(&mut payload, *at, &number.to_le_bytes());
    }
    for (at, number) in long {
        put_bytes(&mut payload, *at, &number.to_le_bytes());
    }
    payload
}

/// Size of the payload of [`USED_BLOCKS`], in both directions.
pub const USED_BYTES: usize = 48;

/// Returns how many chunks a reply describes, which must be `asked`, and the length of its bitmap.
pub fn parse_used(payload: &[u8; USED_BYTES], asked: u64) -> Result<usize, ProtocolViolation> {
    let count = read_u64(payload, 32);
    if count != asked || count > MAX_CHUNKS {
        let text = format!("it describes {count} chunks of the disk, {asked} were asked for");
        return Err(ProtocolViolation(text));
    }
    Ok(usize::try_from(count.div_ceil(32) * 4).unwrap_or(usize::MAX))
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind, which may be unknown.
    pub kind: u32,
    /// Size of the payload.
    pub size: u32,
    /// The operation, which a reply repeats.
    pub operation: u32,
}

impl FrameHeader {
    pub const BYTES: usize = 16;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, ProtocolViolation> {
        let magic = read_u32(bytes, 0);
        if magic != MAGIC {
            return Err(ProtocolViolation(format!("a frame begins with {magic:#010x}")));
        }
        let [kind, size, operation] = [4, 8, 12].map(|at| read_u32(bytes, at));
        Ok(Self { kind, size, operation })
    }

    /// Fails unless the payload has `size` bytes.
    pub fn check_size(&self, size: usize) -> Result<(), ProtocolViolation> {
        if usize::try_from(self.size) == Ok(size) {
            return Ok(());
        }
        let Self { kind, size: found, .. } = self;
        Err(ProtocolViolation(format!(
            "a frame of type {kind} has a payload of {found} bytes, expected {size}"
        )))
    }
}

/// A disk that the host has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedFile {
    /// The host's name for the open disk.
    pub handle: u64,
    /// Size of the disk in bytes.
    pub capacity: u64,
    /// Unit of reads in bytes.
    pub sector_bytes: u32,
}

/// Largest size of a sector that is supported.
const MAX_SECTOR_BYTES: u32 = 64 << 10;

impl OpenedFile {
    pub const BYTES: usize = 60;

    /// Parses the reply to [`OPEN_FILE`]; `Err` inside is the host's own error.
    pub fn parse(
        payload: &[u8; Self::BYTES],
    ) -> Result<Result<Self, HostError>, ProtocolViolation> {
        if let Err(error) = HostError::check_status(payload) {
            return Ok(Err(error));
        }
        let capacity = read_u64(payload, 28);
        let sector_bytes = match read_u32(payload, 36) {
            0 => 512,
            bytes => bytes,
        };
        let is_usual =
            sector_bytes.is_power_of_two() && (512..=MAX_SECTOR_BYTES).contains(&sector_bytes);
        if !is_usual || !capacity.is_multiple_of(sector_bytes.into()) {
            let text =
                format!("it opens a disk of {capacity} bytes with sectors of {sector_bytes} bytes");
            return Err(ProtocolViolation(text));
        }
        Ok(Ok(Self { handle: read_u64(payload, 8), capacity, sector_bytes }))
    }
}

/// A part of the reply to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFragment {
    /// Where it lies on the disk.
    pub part: Range<u64>,
    /// Compression of the bytes that follow.
    pub compression: u32,
    /// Number of bytes that follow, at most as many as the part has.
    pub data_bytes: usize,
}

impl ReadFragment {
    pub const BYTES: usize = 44;

    /// Parses the payload. Fails unless the fragment belongs to a read of `requested`.
    pub fn parse(
        payload: &[u8; Self::BYTES],
        requested: &Range<u64>,
    ) -> Result<Self, ProtocolViolation> {
        let request_offset = read_u64(payload, 16);
        let [compression, request_bytes, offset, length, data_bytes] =
            [12, 24, 28, 32, 36].map(|at| read_u32(payload, at));
        let start = request_offset.saturating_add(offset.into());
        let end = start.saturating_add(length.into());
        let is_repeated = request_offset == requested.start
            && u64::from(request_bytes) == requested.end - requested.start;
        let is_inside = length > 0 && end <= requested.end;
        // Data that does not shrink is sent as it is.
        let fits = match compression {
            0 => data_bytes == length,
            _ => data_bytes > 0 && data_bytes <= length,
        };
        if is_repeated && is_inside && fits {
            let data_bytes = usize::try_from(data_bytes).unwrap_or(usize::MAX);
            return Ok(Self { part: start..end, compression, data_bytes });
        }
        Err(ProtocolViolation(format!(
            "a fragment of {length} bytes at {offset}, sent as {data_bytes} bytes, of a read of {request_bytes} bytes at {request_offset} \
             answers a read of bytes {} to {}",
            requested.start, requested.end
        )))
    }
}

/// An error that a host reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostError {
    /// The host's number.
    pub code: u64,
    /// The host's words.
    pub text: String,
}

impl HostError {
    pub const BYTES: usize = 16;

    /// Parses the payload of [`ERROR`]; the text, whose length is returned, follows.
    pub fn parse(payload: &[u8; Self::BYTES]) -> Result<(u64, usize), ProtocolViolation> {
        let length = usize::try_from(read_u32(payload, 12)).unwrap_or(usize::MAX);
        if length > MAX_TEXT_BYTES {
            return Err(ProtocolViolation(format!("an error with a text of {length} bytes")));
        }
        Ok((read_u64(payload, 0), length))
    }

    /// Returns the error of a reply that begins with its status, which no text follows.
    pub fn check_status(payload: &[u8]) -> Result<(), Self> {
        match read_u64(payload, 0) {
            0 => Ok(()),
            code => Err(Self { code, text: String::new() }),
        }
    }

    /// Creates the error from its code and its text.
    pub fn from_text(code: u64, text: &[u8]) -> Self {
        Self { code, text: plain_line(&String::from_utf8_lossy(text)) }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.code)?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

/// Returns the length of `text`, which always fits: all text that is sent is short.
fn length_of(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

fn put_bytes(message: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = message.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |eight| u64::from_le_bytes(*eight))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fragment_must_answer_its_request() {
        // Of 512 bytes at 1024, of a read of 4096 bytes at 8192.
        let parse = |changes: &[(usize, u32)]| {
            let usual = [(16, 8192), (24, 4096), (28, 1024), (32, 512), (36, 512)];
            let payload = payload_of(&[&usual, changes].concat(), &[]);
            ReadFragment::parse(&payload, &(8192..12288))
        };
        assert_eq!(parse(&[]).unwrap().part, 9216..9728);
        assert!(parse(&[(12, 3), (36, 8)]).is_ok());
        for wrong in [
            &[(16, 8191)][..],
            &[(24, 4095)],
            &[(28, 3585)],
            &[(28, u32::MAX)],
            &[(32, 0), (36, 0)],
            &[(36, 511)],
            &[(12, 3), (36, 513)],
            &[(12, 3), (36, 0)],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let header = |size: u32| FrameHeader { kind: READ, size, operation: 0 };
        assert!(header(44).check_size(44).is_ok() && header(45).check_size(44).is_err());
        let used = |count: u64| parse_used(&used_payload(0, 0, 0, count), 33);
        assert_eq!(used(33), Ok(8));
        assert!(used(32).is_err());
        assert!(parse_used(&used_payload(0, 0, 0, MAX_CHUNKS + 1), MAX_CHUNKS + 1).is_err());
        let text = |bytes: u32| HostError::parse(&payload_of(&[(12, bytes)], &[]));
        assert_eq!(text(4096), Ok((0, 4096)));
        assert!(text(4097).is_err());
        for (capacity, sector, is_right) in
            [(1024u64, 0u32, true), (8192, 4096, true), (1025, 512, false), (8192, 520, false)]
        {
            let payload = payload_of(&[(36, sector)], &[(28, capacity)]);
            assert_eq!(OpenedFile::parse(&payload).is_ok(), is_right, "{capacity} {sector}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(
            bytes in any::<[u8; 44]>(), header in any::<[u8; 16]>(), start in 0u64..1 << 40, length in 1u64..1 << 20,
        ) {
            if let Ok(fragment) = ReadFragment::parse(&bytes, &(start..start + length)) {
                prop_assert!(fragment.part.start >= start && fragment.part.end <= start + length);
            }
            prop_assert!(FrameHeader::parse(&header).is_err());
            prop_assert!(!matches!(HostError::parse(&header), Ok((_, length)) if length > MAX_TEXT_BYTES));
        }
    }
}
