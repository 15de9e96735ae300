//! Names stored in an image, escaped so that they are safe to print.

/// Largest number of characters shown of a name.
const MAX_CHARS: usize = 1023;

/// Escapes the bytes up to the first zero, shortened to [`MAX_CHARS`] characters.
pub(crate) fn printable_name(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    printable::escape_prefix(name, MAX_CHARS)
}

/// Escapes the UTF-16 text up to the first zero, shortened to [`MAX_CHARS`] characters. Invalid
/// UTF-16 is replaced.
pub(crate) fn printable_utf16(units: impl IntoIterator<Item = u16>) -> String {
    let units = units.into_iter().take_while(|unit| *unit != 0);
    let name: String = char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .take(MAX_CHARS + 1)
        .collect();
    printable::escape_prefix(name.as_bytes(), MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let text = "a\u{1b}[2Jb\n\u{9b}\u{202e}ü";
        let shown = r"a\u{1b}[2Jb\n\u{9b}\u{202e}ü";
        assert_eq!(printable_name(format!("{text}\0d").as_bytes()), shown);
        let units = text.encode_utf16().chain([0xd800, u16::from(b'c'), 0, u16::from(b'd')]);
        assert_eq!(printable_utf16(units), format!("{shown}\u{fffd}c"));
    }

    #[test]
    fn names_are_shortened() {
        let cut = format!("{}…", "a".repeat(MAX_CHARS));
        assert_eq!(printable_utf16(std::iter::repeat(97)), cut);
        assert_eq!(printable_name(&[b'a'; 2000]), cut);
    }
}
