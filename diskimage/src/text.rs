//! Names out of an image, safe to print.

/// UTF-16 up to the first zero; control characters and what is not UTF-16 are replaced.
pub(crate) fn printable_utf16(units: impl IntoIterator<Item = u16>) -> String {
    let units = units.into_iter().take_while(|unit| *unit != 0);
    char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
