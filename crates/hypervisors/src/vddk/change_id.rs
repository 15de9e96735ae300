//! Change IDs, which vSphere's changed block tracking uses to identify the states of a disk.

use std::fmt;

/// Advice for when vSphere cannot report what changed.
pub(super) const BEGIN_ANEW: &str = "set changeTrackingEnabled for the machine, take a new snapshot, and import the disk again from the start";

/// Longest change ID, in bytes; real ones have about 60 characters.
const MAX_BYTES: usize = 256;

/// A state of a disk, such as `52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/81`. The first part
/// identifies the run of tracking, and the last part is a counter. The state is meaningless to
/// another run, whether on another disk or restarted on this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangeId(String);

impl ChangeId {
    /// Returns the state before all others, in which nothing is used.
    pub(super) fn empty() -> Self {
        Self("*".to_owned())
    }

    /// Parses two groups of hexadecimal bytes, joined by `-`, and after `/` a hexadecimal number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_group = |text: &str| is_hex(&text.replace(' ', ""));
        let (tracking, count) = text.split_once('/')?;
        let (first, second) = tracking.split_once('-')?;
        let is_one =
            text.len() <= MAX_BYTES && is_group(first) && is_group(second) && is_hex(count);
        is_one.then(|| Self(text.to_owned()))
    }

    /// True if both are states of the same run of tracking.
    pub(super) fn is_related(&self, other: &Self) -> bool {
        self.tracking_id().eq_ignore_ascii_case(&other.tracking_id())
    }

    fn tracking_id(&self) -> String {
        let tracking = self.0.split('/').next().unwrap_or_default();
        tracking.replace([' ', '-'], "")
    }
}

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = "52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/81";

    #[test]
    fn change_ids_are_told_from_snapshot_names() {
        let of = |text: &str| ChangeId::parse(text);
        assert_eq!(of(REAL).unwrap().to_string(), REAL);
        assert!(of("52dec0d9b9439d10-61d54c1be97b6563/a").is_some());
        for name in
            ["", "*", "snapshot-12", "first/second", "52-61", "52-61/", "-/1", "52-61/x", "52 61/1"]
        {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(of(&format!("{}-1/1", "ab ".repeat(100))), None);
    }

    #[test]
    fn change_ids_of_one_disk_differ_only_in_their_number() {
        let real = ChangeId::parse(REAL).unwrap();
        let is_related = |text: &str| real.is_related(&ChangeId::parse(text).unwrap());
        assert!(is_related("52 DE c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/7"));
        assert!(!is_related("52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 64/81"));
    }
}
