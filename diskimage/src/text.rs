//! Names out of an image, safe to print.

/// Characters of a name that are shown, at most.
const MAX_CHARS: usize = 1023;

/// Bytes up to the first zero, of limited length; control characters and what is not UTF-8 are replaced.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(MAX_CHARS)
        .collect()
}

/// UTF-16 up to the first zero, of limited length; control characters and what is not UTF-16 are replaced.
pub(crate) fn printable_utf16(units: impl IntoIterator<Item = u16>) -> String {
    let units = units.into_iter().take_while(|unit| *unit != 0);
    char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .map(|c| if c.is_control() { '?' } else { c })
        .take(MAX_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_write_to_terminals() {
        let text = "a\u{1b}[2Jb\n\u{9b}ü";
        let units = text
            .encode_utf16()
            .chain([0xd800, u16::from(b'c'), 0, u16::from(b'd')]);
        assert_eq!(printable_utf16(units), "a?[2Jb??ü\u{fffd}c");
    }

    #[test]
    fn names_are_short() {
        assert_eq!(printable_utf16(std::iter::repeat(97)).len(), MAX_CHARS);
    }
}
