//! Data and holes of a disk.

use serde::Deserialize;
use stream::error::{SourceError, SourceErrorKind};

use fetch::messages::plain_line;

/// A run of bytes that are all data or all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ImageIoExtent {
    /// Offset of the first byte on the disk.
    pub start: u64,
    /// Number of bytes, at least one.
    pub(super) length: u64,
    /// True if the bytes read as zeros.
    #[serde(default)]
    pub zero: bool,
}

impl ImageIoExtent {
    /// Returns the offset after the last byte, which is checked for overflow when the list is
    /// parsed.
    pub fn end_offset(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Returns how many bytes of the disk the extents describe.
pub(super) fn described_bytes(extents: &[ImageIoExtent]) -> u64 {
    extents.last().map_or(0, ImageIoExtent::end_offset)
}

/// Parses the list in `text`. Neighbours of the same kind are merged.
pub fn parse_extents(text: &[u8]) -> Result<Vec<ImageIoExtent>, SourceError> {
    let wrong = |reason: String| {
        let message = format!("the extents of the disk are invalid: {reason}");
        SourceError::new(SourceErrorKind::Invalid, message)
    };
    let extents: Vec<ImageIoExtent> =
        serde_json::from_slice(text).map_err(|error| wrong(plain_line(&error.to_string())))?;
    let mut merged: Vec<ImageIoExtent> = Vec::new();
    for extent in extents {
        let ImageIoExtent { start, length, zero } = extent;
        let end = described_bytes(&merged);
        if start != end || length == 0 || start.checked_add(length).is_none() {
            return Err(wrong(format!(
                "one of {length} bytes begins at byte {start}, expected {end}"
            )));
        }
        // Join neighbours, because the server splits extents at cluster boundaries.
        match merged.last_mut() {
            Some(last) if last.zero == zero => last.length += length,
            _ => merged.push(extent),
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_extents_of_a_kind_are_merged() {
        let text = br#"[{"start":0,"length":5,"zero":false,"hole":false},{"start":5,"length":5,"zero":false},
                        {"start":10,"length":90,"zero":true,"hole":true}]"#;
        let extents = parse_extents(text).unwrap();
        assert_eq!(extents.len(), 2);
        assert_eq!((extents[0].end_offset(), described_bytes(&extents)), (10, 100));
        assert_eq!(described_bytes(&[]), 0);
    }

    #[test]
    fn lists_that_do_not_describe_a_disk_are_refused() {
        for text in [
            "{}",
            "[",
            r#"[{"start":1,"length":5}]"#,
            r#"[{"start":0,"length":0}]"#,
            r#"[{"start":0,"length":5},{"start":4,"length":5}]"#,
            r#"[{"start":0,"length":-5}]"#,
            r#"[{"start":0,"length":18446744073709551615},{"start":18446744073709551615,"length":1}]"#,
        ] {
            assert!(parse_extents(text.as_bytes()).is_err(), "{text}");
        }
    }
}
