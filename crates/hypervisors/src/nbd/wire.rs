//! Encoding and decoding of the NBD protocol, without I/O.
//!
//! Constants are named as in the specification, without the prefix `NBD_`:
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>. All numbers are
//! big-endian.

use bytes::Buf;
use fetch::messages::plain_line;

use crate::blocks::ProtocolViolation;

/// `NBDMAGIC`, the first bytes that every server sends.
pub(super) const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, which a newstyle server sends next. Each option of the client begins with it, too.
pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Second magic number of an oldstyle server.
pub(super) const CLISERV_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First bytes of every reply to an option.
pub(super) const REP_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Handshake flag: the server reports errors of options instead of closing the connection.
pub(super) const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag: the 124 bytes of padding are omitted.
pub(super) const FLAG_NO_ZEROES: u16 = 1 << 1;

pub(super) const OPT_STARTTLS: u32 = 5;
pub const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;

pub(super) const REP_ACK: u32 = 1;
pub(super) const REP_INFO: u32 = 3;
pub(super) const REP_META_CONTEXT: u32 = 4;
/// Bit that marks replies as errors.
pub(super) const REP_FLAG_ERROR: u32 = 1 << 31;
pub(super) const REP_ERR_UNSUP: u32 = REP_FLAG_ERROR + 1;
pub(super) const REP_ERR_POLICY: u32 = REP_FLAG_ERROR + 2;
pub(super) const REP_ERR_TLS_REQD: u32 = REP_FLAG_ERROR + 5;
pub(super) const REP_ERR_UNKNOWN: u32 = REP_FLAG_ERROR + 6;
pub(super) const REP_ERR_SHUTDOWN: u32 = REP_FLAG_ERROR + 7;

pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: several connections see the same bytes.
const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;

pub(super) const CMD_READ: u16 = 0;
pub(super) const CMD_DISC: u16 = 2;
pub(super) const CMD_BLOCK_STATUS: u16 = 7;

const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Chunk flag: this is the last chunk of a reply.
const REPLY_FLAG_DONE: u16 = 1;
pub(super) const REPLY_TYPE_NONE: u16 = 0;
pub(super) const REPLY_TYPE_OFFSET_DATA: u16 = 1;
pub(super) const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
pub(super) const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// Bit that marks chunk types as errors. Their payload begins like
/// [`REPLY_TYPE_ERROR`](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md).
pub(super) const REPLY_FLAG_ERROR: u16 = 1 << 15;

/// The context of block status that describes holes and zeros.
pub(super) const BASE_ALLOCATION: &str = "base:allocation";
/// Extent flag: the extent reads as zeros.
pub(super) const STATE_ZERO: u32 = 1 << 1;

/// Longest name or message, in bytes ("Values" in the specification).
pub(super) const MAX_STRING_BYTES: usize = 4096;

/// Largest request to a server that announces no block sizes ("Block sizes": 32 MiB).
const DEFAULT_MAX_BLOCK: u32 = 32 << 20;
/// Largest minimum block size that is allowed ("Block sizes": 64 KiB).
const MAX_MIN_BLOCK: u32 = 1 << 16;
/// Export sizes must be below this. Most servers use signed 64-bit numbers, and no real export is
/// larger.
const MAX_EXPORT_BYTES: u64 = 1 << 63;

/// Encodes an option with its data.
pub(super) fn encode_option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(length_of(data).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Encodes a string, preceded by its length.
fn encode_string(text: &str) -> Vec<u8> {
    let mut bytes = length_of(text.as_bytes()).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Returns the length of `data`, which always fits: strings are limited to [`MAX_STRING_BYTES`],
/// and other data is only slightly longer.
fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}

/// Encodes the data of [`OPT_GO`]: the export, and a request for its block sizes.
pub(super) fn encode_go(export: &str) -> Vec<u8> {
    let mut data = encode_string(export);
    data.extend(1u16.to_be_bytes());
    data.extend(INFO_BLOCK_SIZE.to_be_bytes());
    data
}

/// Encodes the data of [`OPT_SET_META_CONTEXT`]: [`BASE_ALLOCATION`] of the export.
pub(super) fn set_meta_context(export: &str) -> Vec<u8> {
    let mut data = encode_string(export);
    data.extend(1u32.to_be_bytes());
    data.extend(encode_string(BASE_ALLOCATION));
    data
}

/// The header of a reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReply {
    pub(super) kind: u32,
    pub(super) length: u32,
}

impl OptionReply {
    pub const BYTES: usize = 20;

    /// Parses the header of a reply to `option`.
    pub fn parse(option: u32, bytes: &[u8; Self::BYTES]) -> Result<Self, ProtocolViolation> {
        let mut fields = &bytes[..];
        if (fields.get_u64(), fields.get_u32()) != (REP_MAGIC, option) {
            return Err(ProtocolViolation(format!(
                "the reply to option {option} begins with {bytes:02x?}, which is not valid"
            )));
        }
        Ok(Self { kind: fields.get_u32(), length: fields.get_u32() })
    }
}

/// Parses the data of `INFO_EXPORT` after its type: export size and transmission flags.
pub fn parse_export(mut fields: &[u8]) -> Result<(u64, bool), ProtocolViolation> {
    let (Ok(size), Ok(flags), true) =
        (fields.try_get_u64(), fields.try_get_u16(), fields.is_empty())
    else {
        return Err(ProtocolViolation("the export description has the wrong length".into()));
    };
    if size >= MAX_EXPORT_BYTES {
        return Err(ProtocolViolation(format!(
            "the export announces {size} bytes, expected less than {MAX_EXPORT_BYTES}"
        )));
    }
    Ok((size, flags & FLAG_CAN_MULTI_CONN != 0))
}

/// Limits that requests have to respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this power of two.
    pub minimum: u32,
    /// Longest request for data; a multiple of `minimum`.
    pub maximum: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 1, maximum: DEFAULT_MAX_BLOCK }
    }
}

impl BlockSizes {
    /// Parses the data of [`INFO_BLOCK_SIZE`] after its type. The preferred size is not needed.
    pub fn parse(mut fields: &[u8]) -> Result<Self, ProtocolViolation> {
        let sizes = [(); 3].map(|()| fields.try_get_u32());
        let ([Ok(minimum), Ok(_preferred), Ok(maximum)], true) = (sizes, fields.is_empty()) else {
            return Err(ProtocolViolation(
                "the block size description has the wrong length".into(),
            ));
        };
        if !minimum.is_power_of_two() || minimum > MAX_MIN_BLOCK || maximum < minimum {
            return Err(ProtocolViolation(format!(
                "minimum block size {minimum}, maximum {maximum}: expected a power of two up to {MAX_MIN_BLOCK}, and a maximum that is \
                 not lower"
            )));
        }
        Ok(Self { minimum, maximum: maximum - maximum % minimum })
    }
}

/// Encodes a request for `length` bytes at `offset`.
pub(super) fn encode_request(command: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Parses the header of a simple reply after its magic: error and cookie.
pub(super) fn parse_simple(bytes: &[u8; 12]) -> (u32, u64) {
    let mut fields = &bytes[..];
    (fields.get_u32(), fields.get_u64())
}

/// The header of a chunk of a structured reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyChunkHeader {
    pub(super) done: bool,
    pub(super) kind: u16,
    pub(super) cookie: u64,
    pub(super) length: u32,
}

impl ReplyChunkHeader {
    /// Parses the header after its magic.
    pub(super) fn parse(bytes: &[u8; 16]) -> Self {
        let mut fields = &bytes[..];
        Self {
            done: fields.get_u16() & REPLY_FLAG_DONE != 0,
            kind: fields.get_u16(),
            cookie: fields.get_u64(),
            length: fields.get_u32(),
        }
    }
}

/// A server's error about a request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    pub(super) errno: u32,
    pub(super) message: String,
}

impl ServerError {
    /// Parses the payload of an error chunk.
    pub fn parse(payload: &[u8]) -> Result<Self, ProtocolViolation> {
        let mut fields = payload;
        let (errno, length) = (fields.try_get_u32(), fields.try_get_u16());
        let message = length.ok().and_then(|length| fields.get(..length.into()));
        let (Ok(errno), Some(message)) = (errno, message) else {
            return Err(ProtocolViolation(format!(
                "a chunk of {} bytes cannot hold the error that it announces",
                payload.len()
            )));
        };
        if errno == 0 {
            return Err(ProtocolViolation("an error without an error number".into()));
        }
        Ok(Self { errno, message: printable_text(message) })
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match errno_name(self.errno) {
            Some(name) => write!(f, "{name} ({})", self.errno)?,
            None => write!(f, "error {}", self.errno)?,
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// Returns the name of an error number of the specification ("Error values").
fn errno_name(errno: u32) -> Option<&'static str> {
    Some(match errno {
        1 => "EPERM",
        5 => "EIO",
        12 => "ENOMEM",
        22 => "EINVAL",
        28 => "ENOSPC",
        75 => "EOVERFLOW",
        95 => "ENOTSUP",
        108 => "ESHUTDOWN",
        _ => return None,
    })
}

/// Converts a server's text to a form that may be printed.
pub(super) fn printable_text(text: &[u8]) -> String {
    plain_line(&String::from_utf8_lossy(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_laid_out_as_specified() {
        assert_eq!(
            encode_option(OPT_GO, &encode_go("ab")),
            b"IHAVEOPT\0\0\0\x07\0\0\0\x0a\0\0\0\x02ab\0\x01\0\x03"
        );
        assert_eq!(set_meta_context("x"), b"\0\0\0\x01x\0\0\0\x01\0\0\0\x0fbase:allocation");
        assert_eq!(
            encode_request(CMD_BLOCK_STATUS, 0x0102, 0x0304, 0x0506),
            *b"\x25\x60\x95\x13\0\0\0\x07\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x03\x04\0\0\x05\x06"
        );
        assert_eq!(parse_simple(b"\0\0\0\x05\0\0\0\0\0\0\0\x09"), (5, 9));
        let chunk = ReplyChunkHeader::parse(b"\0\x01\x80\x01\0\0\0\0\0\0\0\x09\0\0\0\x06");
        let expected =
            ReplyChunkHeader { done: true, kind: REPLY_FLAG_ERROR + 1, cookie: 9, length: 6 };
        assert_eq!(chunk, expected);
        let error = ServerError::parse(b"\0\0\0\x05\0\x02no and an offset").unwrap();
        assert_eq!(error.to_string(), "EIO (5): no");
    }

    #[test]
    fn an_option_reply_must_answer_its_option() {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&REP_MAGIC.to_be_bytes());
        bytes[11] = 7;
        bytes[15] = 1;
        let reply = OptionReply::parse(OPT_GO, &bytes).unwrap();
        assert_eq!((reply.kind, reply.length), (REP_ACK, 0));
        assert!(OptionReply::parse(OPT_STARTTLS, &bytes).is_err());
        bytes[0] = 1;
        assert!(OptionReply::parse(OPT_GO, &bytes).is_err());
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let sizes = |minimum: u32, maximum: u32| {
            let numbers = [minimum, 4096, maximum];
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
            BlockSizes::parse(&bytes)
        };
        assert_eq!(sizes(512, 1_000_000).unwrap(), BlockSizes { minimum: 512, maximum: 999_936 });
        for (minimum, maximum) in [(0, 4096), (3, 4096), (1 << 17, u32::MAX), (512, 0), (512, 511)]
        {
            assert!(sizes(minimum, maximum).is_err(), "{minimum} {maximum}");
        }
        let export = |size: u64| {
            let mut bytes = size.to_be_bytes().to_vec();
            bytes.extend([1, 1]);
            parse_export(&bytes)
        };
        assert_eq!(export(5).unwrap(), (5, true));
        assert!(export(u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(error) = ServerError::parse(&bytes) {
                prop_assert!(error.message.len() <= 3 * bytes.len());
            }
            if let Ok(sizes) = BlockSizes::parse(&bytes) {
                prop_assert!(sizes.minimum > 0 && sizes.maximum % sizes.minimum == 0);
            }
            if let Ok((size, _)) = parse_export(&bytes) {
                prop_assert!(size < MAX_EXPORT_BYTES);
            }
        }
    }
}
