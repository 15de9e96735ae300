//! The bytes that a request asks for (RFC 9110, section 14).
//!
//! Not the crate `http-range-header`: to it, a header that makes no sense, which a server ignores, and a range that the file does not
//! have, which it refuses, are one error.

use std::ops::Range;

/// The meaning of a `Range` header for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// All of it: there is no header, it makes no sense, or it names several ranges, which a server need not heed (§14.2).
    Whole,
    /// These bytes, at least one.
    Part(Range<u64>),
    /// Bytes that the file does not have (§15.5.17).
    Unsatisfiable,
}

impl RequestedRange {
    /// The bytes that `header` asks for of a file of `length` bytes.
    pub(crate) fn from_header(header: &str, length: u64) -> Self {
        let Some((unit, range)) = header.split_once('=') else {
            return Self::Whole;
        };
        let Some((first, last)) = range.trim().split_once('-') else {
            return Self::Whole;
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        }
        let range = match (parse_digits(first), parse_digits(last)) {
            (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(length),
            (Some(first), None) if last.is_empty() => first..length,
            // The number of bytes at the end.
            (None, Some(count)) if first.is_empty() => length.saturating_sub(count)..length,
            _ => return Self::Whole,
        };
        if range.is_empty() { Self::Unsatisfiable } else { Self::Part(range) }
    }
}

/// Digits and nothing else; more of them than a file can have bytes are as good as the most that it can have.
fn parse_digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_has_them() {
        use RequestedRange::{Part, Unsatisfiable, Whole};
        for (header, wanted) in [
            ("bytes=0-0", Part(0..1)),
            ("bytes=0-999", Part(0..10)),
            ("bytes=3-", Part(3..10)),
            ("bytes=9-9", Part(9..10)),
            ("bytes=-3", Part(7..10)),
            ("bytes=-99", Part(0..10)),
            ("Bytes= 2-4 ", Part(2..5)),
            ("bytes=0-99999999999999999999999", Part(0..10)),
            ("bytes=10-", Unsatisfiable),
            ("bytes=10-11", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=4-2", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=a-b", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=-", Whole),
            ("bytes=--1", Whole),
            ("bytes", Whole),
            ("lines=0-1", Whole),
            ("", Whole),
        ] {
            assert_eq!(RequestedRange::from_header(header, 10), wanted, "{header:?}");
        }
    }

    #[test]
    fn an_empty_file_has_no_range() {
        for header in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
            assert_eq!(RequestedRange::from_header(header, 0), RequestedRange::Unsatisfiable, "{header}");
        }
    }
}
