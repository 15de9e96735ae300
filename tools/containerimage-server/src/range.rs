//! Parses the range in a request (RFC 9110, section 14).
//!
//! The crate `http-range-header` is not used, because it reports the same error for two cases that
//! a server has to distinguish: a malformed header, which is ignored, and a range outside the
//! file, which is rejected.

use std::ops::Range;

/// The range of a file that a `Range` header selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedRange {
    /// The whole file. The header is missing or malformed, or contains several ranges, which a
    /// server may ignore (§14.2).
    Whole,
    /// A range of at least one byte.
    Part(Range<u64>),
    /// A range outside the file (§15.5.17).
    Unsatisfiable,
}

impl RequestedRange {
    /// Parses the range that `header` selects in a file of `length` bytes.
    pub fn from_header(header: &str, length: u64) -> Self {
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
            // In a suffix range, the number is a count of bytes at the end of the file.
            (None, Some(count)) if first.is_empty() => length.saturating_sub(count)..length,
            _ => return Self::Whole,
        };
        if range.is_empty() { Self::Unsatisfiable } else { Self::Part(range) }
    }
}

/// Parses decimal digits and nothing else. Overflow saturates at `u64::MAX`.
fn parse_digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_in_rfc_9110() {
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
            assert_eq!(
                RequestedRange::from_header(header, 0),
                RequestedRange::Unsatisfiable,
                "{header}"
            );
        }
    }
}
