//! The parent locator (\[MS-VHDX\] 2.6.2.6): key-value pairs that name the parent of a differencing
//! image.

use crate::bytes_at::{le16, le32};
use crate::text::printable_utf16;

/// Offset of the entries, and the length of each.
const ENTRIES_AT: usize = 20;
const ENTRY_BYTES: usize = 12;

/// Keys whose values are paths, the most informative one first (2.6.2.6.3).
const PATHS: [&str; 3] = ["absolute_win32_path", "relative_path", "volume_path"];

/// Largest number of pairs that are read. Writers store five. Each could be 128 KiB of text.
const MAX_PAIRS: u16 = 16;

/// Returns the path of the parent, or an empty string if the locator is malformed.
pub(super) fn parent_path(locator: &[u8]) -> String {
    let count = le16(locator, 18).unwrap_or(0).min(MAX_PAIRS);
    let entries = locator.get(ENTRIES_AT..).unwrap_or_default();
    let pairs: Vec<(String, String)> = entries
        .chunks_exact(ENTRY_BYTES)
        .take(count.into())
        .filter_map(|entry| read_pair(locator, entry))
        .collect();
    let path = PATHS.iter().find_map(|path| pairs.iter().find(|(key, _)| key == path));
    path.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// Reads a key-value pair. The entry contains the offsets of key and value, then their lengths.
/// Both are UTF-16, little-endian.
fn read_pair(locator: &[u8], entry: &[u8]) -> Option<(String, String)> {
    let text = |offset: u32, length: u16| {
        let start = usize::try_from(offset).ok()?;
        let bytes = locator.get(start..start.checked_add(length.into())?)?;
        let units = bytes.as_chunks().0.iter();
        Some(printable_utf16(units.map(|unit| u16::from_le_bytes(*unit))))
    };
    let key = text(le32(entry, 0)?, le16(entry, 8)?)?;
    let value = text(le32(entry, 4)?, le16(entry, 10)?)?;
    Some((key, value))
}
