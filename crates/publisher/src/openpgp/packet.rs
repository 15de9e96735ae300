//! Packets (RFC 9580 §4.2) and the values in them.

use super::OpenPgpError;

/// A packet: its type and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'b> {
    pub(super) tag: u8,
    pub(super) body: &'b [u8],
}

/// Types of packets (RFC 9580 §5).
pub(super) const SIGNATURE: u8 = 2;
pub(super) const SECRET_KEY: u8 = 5;
pub(super) const PUBLIC_KEY: u8 = 6;
pub(super) const USER_ID: u8 = 13;
pub(super) const PUBLIC_SUBKEY: u8 = 14;
pub(super) const USER_ATTRIBUTE: u8 = 17;

/// The version of signatures and keys that is supported. GnuPG makes no other.
pub(super) const VERSION: u8 = 4;

const TRUNCATED: OpenPgpError = OpenPgpError::Malformed("it is truncated");

/// Splits `bytes` into packets. Packets of unknown length, which only messages have, are refused.
pub(super) fn split_packets(bytes: &[u8]) -> Result<Vec<Packet<'_>>, OpenPgpError> {
    let mut packets = Vec::new();
    let mut reader = ByteReader(bytes);
    while !reader.0.is_empty() {
        let first = reader.read_byte()?;
        let (tag, length) = match first {
            0xc0.. => (first & 0x3f, reader.read_length(true)?),
            0x80..=0xbf => {
                let length = match first & 3 {
                    0 => usize::from(reader.read_byte()?),
                    1 => usize::from(reader.read_u16()?),
                    2 => to_usize(reader.read_u32()?)?,
                    _ => return Err(OpenPgpError::Malformed("it has a packet without a length")),
                };
                ((first >> 2) & 0xf, length)
            }
            _ => return Err(OpenPgpError::Malformed("it is not made of OpenPGP packets")),
        };
        packets.push(Packet { tag, body: reader.read_slice(length)? });
    }
    Ok(packets)
}

/// Reads values from the start of a slice.
pub(super) struct ByteReader<'b>(pub(super) &'b [u8]);

impl<'b> ByteReader<'b> {
    pub(super) fn read_slice(&mut self, length: usize) -> Result<&'b [u8], OpenPgpError> {
        let (slice, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(slice)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], OpenPgpError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn read_byte(&mut self) -> Result<u8, OpenPgpError> {
        self.read_array().map(|[byte]| byte)
    }

    pub(super) fn read_u16(&mut self) -> Result<u16, OpenPgpError> {
        self.read_array().map(u16::from_be_bytes)
    }

    pub(super) fn read_u32(&mut self) -> Result<u32, OpenPgpError> {
        self.read_array().map(u32::from_be_bytes)
    }

    /// Reads the length of a packet or subpacket (RFC 9580 §4.2.1 and §5.2.3.7). A packet may
    /// have a partial length instead, which is refused.
    pub(super) fn read_length(&mut self, is_packet: bool) -> Result<usize, OpenPgpError> {
        let first = self.read_byte()?;
        match first {
            0..=191 => Ok(usize::from(first)),
            224..=254 if is_packet => {
                Err(OpenPgpError::Malformed("it has a packet of partial length"))
            }
            192..=254 => {
                let second = self.read_byte()?;
                Ok((usize::from(first) - 192) * 256 + usize::from(second) + 192)
            }
            255 => to_usize(self.read_u32()?),
        }
    }

    /// Reads a multiprecision integer (RFC 9580 §3.2) without leading zeros.
    pub(super) fn read_integer(&mut self) -> Result<&'b [u8], OpenPgpError> {
        let bits = usize::from(self.read_u16()?);
        let bytes = self.read_slice(bits.div_ceil(8))?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Ok(bytes.get(zeros..).unwrap_or_default())
    }
}

fn to_usize(length: u32) -> Result<usize, OpenPgpError> {
    usize::try_from(length).map_err(|_| TRUNCATED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_of_both_formats_are_read() {
        let body = vec![7; 300];
        for (header, length) in [
            (&[0x88, 5][..], 5),
            (&[0x89, 1, 44], 300),
            (&[0x8a, 0, 0, 0, 9], 9),
            (&[0xc2, 100], 100),
            (&[0xc2, 192, 8], 200),
            (&[0xc2, 255, 0, 0, 1, 44], 300),
        ] {
            let bytes = [header, &body[..length]].concat();
            let packet = Packet { tag: SIGNATURE, body: &body[..length] };
            assert_eq!(split_packets(&bytes), Ok(vec![packet]), "{header:?}");
            assert_eq!(split_packets(&[&bytes[..], &bytes].concat()).unwrap().len(), 2);
            assert!(split_packets(&bytes[..bytes.len() - 1]).is_err());
        }
        for malformed in [&[0x8b][..], &[0xc2, 224], &[0x0a], &[0xc2], b"text"] {
            assert!(split_packets(malformed).is_err(), "{malformed:?}");
        }
    }

    #[test]
    fn integers_have_no_leading_zeros() {
        let mut reader = ByteReader(&[0, 17, 1, 0, 2, 0, 8, 0, 0, 0, 0, 9]);
        assert_eq!(reader.read_integer(), Ok(&[1, 0, 2][..]));
        assert_eq!(reader.read_integer(), Ok(&[][..]));
        assert_eq!(reader.read_integer(), Ok(&[][..]));
        assert!(reader.read_integer().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_packets_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(packets) = split_packets(&bytes) {
                let whole: usize = packets.iter().map(|packet| packet.body.len()).sum();
                prop_assert!(whole <= bytes.len());
            }
            ByteReader(&bytes).read_integer().ok();
        }
    }
}
