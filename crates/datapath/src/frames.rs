//! `frames-1`: how one of our programs sends the bytes of a volume to another one.
//!
//! A stream is the mark `cdifrm1\n`, a row of frames and an end. A frame is a header of 20 bytes and a payload:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | kind: 1 stored, 2 zstd, 3 zeros, 4 end |
//! | 1 | 3 | zero |
//! | 4 | 4 | bytes of the payload |
//! | 8 | 8 | bytes that it stands for; of the end: of the whole stream |
//! | 16 | 4 | CRC-32C of the 16 bytes before and the payload |
//!
//! Numbers are little-endian. *Stored* is the bytes themselves, *zstd* one frame of RFC 8878, *zeros* has no payload, and the payload of
//! the *end* is the CRC-32C of all headers before it: so neither a frame that is missing nor one too many goes unnoticed.
//! Unlike the snappy framing, a stream proves by itself that it is complete.

/// The first bytes of a stream.
pub(crate) const MAGIC: &[u8; 8] = b"cdifrm1\n";

/// Bytes of a frame's header.
pub(crate) const HEADER_BYTES: usize = 20;

/// Bytes of a header that its checksum is of.
const SUMMED_BYTES: usize = 16;

/// Most bytes that a frame with a payload stands for, and most bytes of a payload.
pub(crate) const MAX_DATA_BYTES: u64 = 1 << 20;

/// Most zeros that one frame stands for.
pub(crate) const MAX_ZEROS: u64 = 1 << 63;

/// Bytes of the payload of the end.
pub(crate) const END_BYTES: u32 = 4;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stored = 1,
    Zstd = 2,
    Zeros = 3,
    End = 4,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes of the payload.
    pub(crate) stored: u32,
    /// Bytes that the frame stands for.
    pub(crate) length: u64,
    checksum: u32,
}

impl Header {
    /// The header for `payload`, as bytes.
    pub(crate) fn seal(kind: Kind, length: u64, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0] = kind as u8;
        // No payload is larger than [`MAX_DATA_BYTES`].
        let stored = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        header[4..8].copy_from_slice(&stored.to_le_bytes());
        header[8..16].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[..SUMMED_BYTES]), payload);
        header[SUMMED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Reads a header; what is wrong with it, if its numbers do not go together.
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        // By pattern: no index and no conversion is left that could fail.
        let [kind, r0, r1, r2, s0, s1, s2, s3, rest @ ..] = *bytes;
        let [l0, l1, l2, l3, l4, l5, l6, l7, checksum @ ..] = rest;
        let kind = match kind {
            1 => Kind::Stored,
            2 => Kind::Zstd,
            3 => Kind::Zeros,
            4 => Kind::End,
            other => return Err(format!("a frame of the unknown kind {other}")),
        };
        if [r0, r1, r2] != [0; 3] {
            return Err("reserved bytes of a frame are not zero".to_owned());
        }
        let header = Self {
            kind,
            stored: u32::from_le_bytes([s0, s1, s2, s3]),
            length: u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            checksum: u32::from_le_bytes(checksum),
        };
        if header.is_plausible() {
            Ok(header)
        } else {
            let Self { stored, length, .. } = header;
            Err(format!("a {kind:?} frame of {stored} bytes for {length}"))
        }
    }

    fn is_plausible(&self) -> bool {
        let stored = u64::from(self.stored);
        match self.kind {
            Kind::Stored => stored == self.length && (1..=MAX_DATA_BYTES).contains(&stored),
            // What does not become smaller is stored.
            Kind::Zstd => (1..self.length).contains(&stored) && self.length <= MAX_DATA_BYTES,
            Kind::Zeros => stored == 0 && (1..=MAX_ZEROS).contains(&self.length),
            Kind::End => self.stored == END_BYTES,
        }
    }

    /// The beginning of what the checksum is of, before the payload: that of the header's `bytes`.
    pub(crate) fn checksum_of(bytes: &[u8; HEADER_BYTES]) -> u32 {
        crc32c::crc32c(&bytes[..SUMMED_BYTES])
    }

    /// Compares with the checksum of what came.
    pub(crate) fn verify(&self, calculated: u32) -> Result<(), String> {
        if self.checksum == calculated {
            return Ok(());
        }
        Err(format!(
            "the checksum of a frame is {:#010x}, its bytes have {calculated:#010x}",
            self.checksum
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_its_checksum_covers_all_of_it() {
        for (kind, length, payload) in [
            (Kind::Stored, 3, &b"abc"[..]),
            (Kind::Zstd, 1 << 20, b"abc"),
            (Kind::Zeros, MAX_ZEROS, b""),
            (Kind::End, u64::MAX, b"1234"),
        ] {
            let bytes = Header::seal(kind, length, payload);
            let header = Header::parse(&bytes).unwrap();
            assert_eq!((header.kind, header.length), (kind, length));
            assert_eq!(header.stored as usize, payload.len());
            let whole = crc32c::crc32c_append(Header::checksum_of(&bytes), payload);
            header.verify(whole).unwrap();
            for at in 0..SUMMED_BYTES {
                let mut damaged = bytes;
                damaged[at] ^= 1;
                let noticed = Header::parse(&damaged)
                    .and_then(|header| {
                        header.verify(crc32c::crc32c_append(Header::checksum_of(&damaged), payload))
                    })
                    .is_err();
                assert!(noticed, "{kind:?}, byte {at}");
            }
        }
    }

    #[test]
    fn numbers_that_do_not_go_together_are_refused() {
        let raw = |kind: u8, stored: u32, length: u64| {
            let mut bytes = [0; HEADER_BYTES];
            bytes[0] = kind;
            bytes[4..8].copy_from_slice(&stored.to_le_bytes());
            bytes[8..16].copy_from_slice(&length.to_le_bytes());
            Header::parse(&bytes)
        };
        for (kind, stored, length) in [
            (0, 1, 1),
            (5, 0, 1),
            (1, 0, 0),
            (1, 1, 2),
            (1, (1 << 20) + 1, (1 << 20) + 1),
            (2, 0, 5),
            (2, 5, 5),
            (2, 5, (1 << 20) + 1),
            (3, 0, 0),
            (3, 1, 1),
            (3, 0, MAX_ZEROS + 1),
            (4, 0, 1),
            (4, 8, 1),
        ] {
            raw(kind, stored, length).unwrap_err();
        }
        assert!(raw(2, 4, 5).is_ok());
    }
}
