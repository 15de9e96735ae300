//! ASCII armour (RFC 9580 §6.2). Its checksum is not verified, as the specification recommends:
//! signatures detect every change.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::OpenPgpError;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Armour of signatures.
pub(super) const SIGNATURE: &str = "PGP SIGNATURE";
/// Armour of public keys.
pub(super) const PUBLIC_KEY: &str = "PGP PUBLIC KEY BLOCK";

/// Returns the packets in `bytes`, which are binary, or all blocks of armour of this kind. Text
/// between blocks is ignored.
pub(super) fn read_packets(bytes: &[u8], kind: &str) -> Result<Vec<u8>, OpenPgpError> {
    // The first bit of a packet is set (RFC 9580 §4.2), and the first bit of ASCII never is.
    if bytes.first().is_some_and(|first| first & 0x80 != 0) {
        return Ok(bytes.to_vec());
    }
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let (begin, end) = (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"));
    let mut packets = Vec::new();
    let mut blocks = lines.split(|line| *line == begin);
    // The text before the first block.
    blocks.next();
    for block in blocks {
        let Some(length) = block.iter().position(|line| *line == end) else {
            return Err(OpenPgpError::Malformed("its armour has no end"));
        };
        let body = block.iter().take(length).skip_while(|line| line.contains(": "));
        // A line that begins with an equals sign is the checksum.
        let body: String = body.filter(|line| !line.starts_with('=')).copied().collect();
        let block = BASE64.decode(body);
        packets.extend(block.map_err(|_| OpenPgpError::Malformed("its armour is not base64"))?);
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_of_one_kind_are_joined() {
        let block = |kind: &str, body: &str| {
            format!("-----BEGIN {kind}-----\nVersion: x\n\n{body}\n-----END {kind}-----\r\n")
        };
        let other = block("PGP MESSAGE", "////");
        let text = format!(
            "about\n{}{other}{}",
            block(SIGNATURE, "iVBO\nRw0K\n=abcd"),
            block(SIGNATURE, "GgA=").replace('\n', "\r\n")
        );
        assert_eq!(read_packets(text.as_bytes(), SIGNATURE), Ok(b"\x89PNG\r\n\x1a\0".to_vec()));
        assert_eq!(read_packets(b"", SIGNATURE), Ok(Vec::new()));
        assert_eq!(read_packets(b"\x89PNG", SIGNATURE), Ok(b"\x89PNG".to_vec()));
        for malformed in [&text[..text.len() - 9], &block(SIGNATURE, "a%b=")] {
            assert!(read_packets(malformed.as_bytes(), SIGNATURE).is_err(), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_packets_or_an_error(text in "(-----(BEGIN|END) PGP SIGNATURE-----|\\PC{0,9}|\n){0,9}") {
            read_packets(text.as_bytes(), SIGNATURE).ok();
        }
    }
}
