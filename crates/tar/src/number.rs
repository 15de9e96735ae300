//! Numbers in the notations of tar headers.

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TarTimestamp {
    /// Seconds since 1970, negative before that.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

/// Parses a numeric field of a header: octal digits (POSIX.1-1988), or base 256 if bit 7 of the
/// first byte is set (GNU). An empty field is 0.
pub(super) fn parse_field(bytes: &[u8]) -> Option<i64> {
    match bytes.first() {
        Some(first) if first & 0x80 != 0 => base_256(*first, &bytes[1..]),
        _ => parse_octal(bytes),
    }
}

/// Parses a base-256 number: two's complement, big endian. In the first byte, bit 7 marks the
/// format and bit 6 is the sign.
fn base_256(first: u8, rest: &[u8]) -> Option<i64> {
    let sign = if first & 0x40 == 0 { 0 } else { -0x40 };
    let top = i128::from(first & 0x3f) + sign;
    // A field has at most 12 bytes, so an `i128` does not overflow.
    let value = rest
        .iter()
        .try_fold(top, |value, byte| value.checked_mul(256)?.checked_add(i128::from(*byte)))?;
    i64::try_from(value).ok()
}

/// Parses octal digits as GNU tar does (`from_header` in list.c): one NUL and then any spaces may
/// come before them, and the next NUL or space ends them. After two NULs the number is 0.
fn parse_octal(bytes: &[u8]) -> Option<i64> {
    let field = bytes.strip_prefix(b"\0").unwrap_or(bytes).trim_ascii_start();
    let digits = field.split(|byte| matches!(byte, b' ' | 0)).next().unwrap_or_default();
    i64::try_from(parse_digits(digits, 8)?).ok()
}

fn parse_digits(bytes: &[u8], radix: u32) -> Option<u64> {
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        value.checked_mul(radix.into())?.checked_add(digit.into())
    })
}

/// Fills a field as GNU tar does: octal digits and a NUL, or base 256 for numbers that are
/// negative or have too many digits.
pub(super) fn write_field(field: &mut [u8], value: i128) {
    let Some((last, digits)) = field.split_last_mut() else {
        return;
    };
    let mut rest = value;
    *last = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + low_byte(rest & 7);
        rest >>= 3;
    }
    if rest == 0 {
        return;
    }
    rest = value;
    for byte in field.iter_mut().rev() {
        *byte = low_byte(rest);
        rest >>= 8;
    }
    if let Some(first) = field.first_mut() {
        *first = if value < 0 { 0xff } else { 0x80 };
    }
}

fn low_byte(value: i128) -> u8 {
    value.to_le_bytes()[0]
}

/// Parses decimal digits. Signs, spaces and empty text are errors.
pub(super) fn parse_decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    parse_digits(bytes, 10)
}

/// Parses seconds in decimal, with an optional minus sign and an optional fraction (pax, "mtime").
/// Digits beyond nanoseconds are rounded down.
pub(super) fn parse_time(bytes: &[u8]) -> Option<TarTimestamp> {
    let (is_negative, digits) = match bytes.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, bytes),
    };
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(point) => (&digits[..point], &digits[point + 1..]),
        None => (digits, &[][..]),
    };
    let seconds = i64::try_from(parse_decimal(whole)?).ok()?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let shown = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = shown.fold(0u32, |value, digit| value * 10 + u32::from(digit - b'0'));
    if !is_negative {
        return Some(TarTimestamp { seconds, nanoseconds });
    }
    // Rounding down means away from zero here: cut-off digits make the time earlier.
    let has_more = fraction.iter().skip(9).any(|digit| *digit != b'0');
    let below = nanoseconds + u32::from(has_more);
    Some(match below {
        0 => TarTimestamp { seconds: -seconds, nanoseconds: 0 },
        below => TarTimestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - below },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_octal_or_base_256() {
        for (bytes, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644 junk", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\x02", Some(0x102)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0", Some(i64::MIN)),
            (b"\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"0000648\0", None),
            (b"-000001\0", None),
            (b"", Some(0)),
        ] {
            assert_eq!(parse_field(bytes), value, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn written_numbers_are_read_back() {
        let limits =
            [0, 1, 0o7_777_777, 0o10_000_000, 0o77_777_777_777, 0o100_000_000_000, i64::MAX];
        for value in limits.into_iter().chain([-1, -5_000_000_000, i64::MIN]) {
            let mut bytes = [b'x'; 12];
            write_field(&mut bytes, value.into());
            assert_eq!(parse_field(&bytes), Some(value), "{value}");
        }
        let mut bytes = [0; 8];
        write_field(&mut bytes, 0o644);
        assert_eq!(&bytes, b"0000644\0");
    }

    #[test]
    fn times_may_have_a_sign_and_a_fraction() {
        for (text, value) in [
            ("0", Some((0, 0))),
            ("1700000000", Some((1_700_000_000, 0))),
            ("1700000000.5", Some((1_700_000_000, 500_000_000))),
            ("1.0000000019", Some((1, 1))),
            ("1.", Some((1, 0))),
            ("-1", Some((-1, 0))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-1.0000000001", Some((-2, 999_999_999))),
            ("-0.9999999999", Some((-1, 0))),
            ("9223372036854775807", Some((i64::MAX, 0))),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            (".5", None),
            ("1.x", None),
            ("--1", None),
            ("1e3", None),
        ] {
            let value = value.map(|(seconds, nanoseconds)| TarTimestamp { seconds, nanoseconds });
            assert_eq!(parse_time(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn decimals_that_do_not_fit_are_refused() {
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", "18446744073709551616", "-1", "+1", " 1", "1 ", "0x1"] {
            assert_eq!(parse_decimal(text.as_bytes()), None, "{text}");
        }
    }
}
