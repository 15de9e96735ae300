//! Reads maps of KubeVirt backups: JSON pages of extents, which the `map` endpoint of a pull-mode
//! backup returns.
//!
//! The types of extents have opposite meanings in full and in incremental backups, and a map does
//! not state which kind of backup it describes, so the caller has to. Gaps between extents count as
//! changed, because a server may drop the rest of a reply (QEMU limits the extents of one reply).

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use datapath::changes::ChangedRanges;
use datapath::error::{SourceError, errno_text};
use datapath::memory::{MemoryBudget, MemoryGrant};
use serde::Deserialize;

use crate::error::invalid_error;

/// Bytes of memory to reserve for each byte of a map, for the text, its extents and its ranges. The
/// shortest extent has 32 bytes of text, takes 24 bytes in memory, and becomes a range of 16 bytes.
/// Lists double in size when they grow.
const PARSING_FACTOR: u64 = 4;

/// The kind of backup that a map belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupType {
    /// The map lists data, holes and zeros of the whole disk.
    Full,
    /// The map lists the ranges that have changed.
    Incremental,
}

/// A reply of the `map` endpoint. The descriptions of extents are ignored.
#[derive(Deserialize)]
struct MapPage {
    extents: Option<Vec<MapExtent>>,
    next_offset: Option<u64>,
}

#[derive(Deserialize)]
struct MapExtent {
    offset: u64,
    length: u64,
    #[serde(rename = "type")]
    kind: u64,
}

/// How to fill the bytes of an extent.
enum ExtentUse {
    /// Read them from the backup.
    Data,
    /// Set them to zero.
    Zero,
    /// Keep their content on the base disk.
    Unchanged,
}

impl BackupType {
    /// Returns the use of an extent of type `kind`, or `None` for an unknown type. Bit 0 marks a
    /// hole in a full backup, whose content is undefined, and a change in an incremental backup.
    /// Bit 1 marks zeros.
    fn extent_use(self, kind: u64) -> Option<ExtentUse> {
        Some(match (self, kind) {
            (Self::Full, 0 | 1) | (Self::Incremental, 1) => ExtentUse::Data,
            (Self::Full, 2 | 3) | (Self::Incremental, 3) => ExtentUse::Zero,
            (Self::Incremental, 0 | 2) => ExtentUse::Unchanged,
            _ => return None,
        })
    }
}

/// Reads a map whose pages are in `files`, in order, and returns the ranges that have to be written.
/// `source_bytes` is the size of the backup's disk, if it is known.
pub fn read_backup_map(
    files: &[PathBuf],
    backup: BackupType,
    source_bytes: Option<u64>,
    memory: &MemoryBudget,
) -> Result<ChangedRanges, SourceError> {
    let mut grant = memory.empty_grant();
    let mut map = BackupMap::new(backup);
    for path in files {
        let text = read_file(path, &mut grant)?;
        let pages = parse_pages(&text)
            .map_err(|error| map_error(path, &format!("not a backup map: {error}")))?;
        for page in pages {
            map.add_page(page).map_err(|what| map_error(path, &what))?;
        }
    }
    map.finish(source_bytes)
        .map_err(|what| map_error(files.last().map_or(Path::new(""), PathBuf::as_path), &what))
}

fn map_error(path: &Path, what: &str) -> SourceError {
    invalid_error(format!("cannot use the map {}: {what}", path.display()))
}

/// Reads the text of a map. The memory for it and for all its ranges is charged to `grant`.
fn read_file(path: &Path, grant: &mut MemoryGrant) -> Result<Vec<u8>, SourceError> {
    let failed =
        |error: std::io::Error| map_error(path, &format!("cannot read it: {}", errno_text(&error)));
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let wanted = grant.granted_bytes().saturating_add(length.saturating_mul(PARSING_FACTOR));
    let exceeded =
        |error| map_error(path, &format!("it {error}; give the process more memory (--memory)"));
    grant.resize(wanted).map_err(exceeded)?;
    let mut text = Vec::new();
    // Reads no more than was charged for, even if the file grows in the meantime.
    file.take(length).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

/// Parses pages that follow each other, or an array of pages.
fn parse_pages(text: &[u8]) -> Result<Vec<MapPage>, serde_json::Error> {
    if text.trim_ascii_start().starts_with(b"[") {
        return serde_json::from_slice(text);
    }
    serde_json::Deserializer::from_slice(text).into_iter().collect()
}

/// The ranges of the pages so far.
struct BackupMap {
    backup: BackupType,
    data: Vec<Range<u64>>,
    zeros: Vec<Range<u64>>,
    /// End of the last extent.
    end: u64,
    /// Offset at which the next page begins, according to the last one.
    next_offset: Option<u64>,
}

impl BackupMap {
    fn new(backup: BackupType) -> Self {
        Self { backup, data: Vec::new(), zeros: Vec::new(), end: 0, next_offset: None }
    }

    fn add_page(&mut self, page: MapPage) -> Result<(), String> {
        for extent in page.extents.unwrap_or_default() {
            let MapExtent { offset, length, kind } = extent;
            let end = offset.checked_add(length).filter(|end| *end > offset);
            let end = end.ok_or_else(|| format!("invalid extent of {length} bytes at {offset}"))?;
            if offset < self.end {
                return Err(format!(
                    "overlapping extents: one ends at {}, the next begins at {offset}",
                    self.end
                ));
            }
            add_range(&mut self.data, self.end..offset);
            match self.backup.extent_use(kind) {
                Some(ExtentUse::Data) => add_range(&mut self.data, offset..end),
                Some(ExtentUse::Zero) => add_range(&mut self.zeros, offset..end),
                Some(ExtentUse::Unchanged) => {}
                None => return Err(format!("unknown extent type {kind} at {offset}")),
            }
            self.end = end;
        }
        self.next_offset = page.next_offset;
        Ok(())
    }

    fn finish(mut self, source_bytes: Option<u64>) -> Result<ChangedRanges, String> {
        if let Some(next) = self.next_offset {
            return Err(format!(
                "the next page begins at offset {next}; pass it with another --ranges"
            ));
        }
        if self.end == 0 {
            return Err("it has no extents; fetch the map of the whole disk".to_owned());
        }
        match source_bytes {
            Some(bytes) if bytes < self.end => {
                return Err(format!(
                    "it ends at {}, but the backup's disk has {bytes} bytes",
                    self.end
                ));
            }
            Some(bytes) => {
                add_range(&mut self.data, self.end..bytes);
                self.end = bytes;
            }
            None => {}
        }
        ChangedRanges::new(self.end, self.data)
            .and_then(|changes| changes.with_zeros(self.zeros))
            .ok_or_else(|| "the extents are out of order".to_owned())
    }
}

/// Adds `range`, which follows all others, to `list`.
fn add_range(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    match list.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => list.push(range),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(
        backup: BackupType,
        pages: &[&str],
        source_bytes: Option<u64>,
    ) -> Result<ChangedRanges, String> {
        let files: Vec<_> = pages
            .iter()
            .map(|page| {
                let mut file = tempfile::NamedTempFile::new().unwrap();
                file.write_all(page.as_bytes()).unwrap();
                file
            })
            .collect();
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
        read_backup_map(&paths, backup, source_bytes, &MemoryBudget::new(1 << 20))
            .map_err(|error| error.to_string())
    }

    fn extent(offset: u64, length: u64, kind: u64) -> String {
        format!(r#"{{"offset":{offset},"length":{length},"type":{kind},"description":"x"}}"#)
    }

    fn page(extents: &[String], next: &str) -> String {
        format!(r#"{{"extents":[{}],"next_offset":{next}}}"#, extents.join(","))
    }

    #[test]
    fn the_types_mean_opposite_things() {
        let extents = [extent(0, 10, 0), extent(10, 10, 1), extent(20, 10, 2), extent(30, 10, 3)];
        let map = page(&extents, "null");
        let full = read(BackupType::Full, &[&map], None).unwrap();
        assert_eq!(full.ranges().first(), Some(&(0..20)));
        assert_eq!(full.zero_ranges().first(), Some(&(20..40)));
        assert_eq!((full.ranges().len(), full.zero_ranges().len()), (1, 1));
        let changed = read(BackupType::Incremental, &[&map], None).unwrap();
        assert_eq!(changed.ranges().first(), Some(&(10..20)));
        assert_eq!(changed.zero_ranges().first(), Some(&(30..40)));
        assert_eq!((changed.ranges().len(), changed.zero_ranges().len()), (1, 1));
        assert_eq!(changed.disk_bytes(), 40);
    }

    #[test]
    fn gaps_and_missing_ends_count_as_changed() {
        let first = page(&[extent(10, 10, 0)], "30");
        let second = page(&[extent(30, 10, 0)], "null");
        let expected = [0..10, 20..30, 40..50];
        for pages in [
            vec![first.clone(), second.clone()],
            vec![format!("{first}\n{second}")],
            vec![format!(" [{first},{second}]")],
        ] {
            let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
            let changes = read(BackupType::Incremental, &pages, Some(50)).unwrap();
            assert_eq!(changes.ranges()[..], expected);
        }
    }

    #[test]
    fn wrong_maps_are_refused_with_both_numbers() {
        for (map, source_bytes, sentence) in [
            (
                page(&[extent(0, 10, 1), extent(9, 10, 1)], "null"),
                None,
                "one ends at 10, the next begins at 9",
            ),
            (page(&[extent(0, 0, 1)], "null"), None, "invalid extent of 0 bytes at 0"),
            (page(&[extent(5, u64::MAX, 1)], "null"), None, "bytes at 5"),
            (page(&[extent(0, 10, 4)], "null"), None, "unknown extent type 4 at 0"),
            (page(&[extent(0, 10, 1)], "10"), None, "the next page begins at offset 10"),
            (
                page(&[extent(0, 10, 1)], "null"),
                Some(9),
                "it ends at 10, but the backup's disk has 9 bytes",
            ),
            (page(&[], "null"), None, "has no extents"),
            (r#"{"extents":null,"next_offset":null}"#.to_owned(), None, "has no extents"),
            ("<html>".to_owned(), None, "not a backup map"),
            (
                r#"{"extents":[{"offset":-1,"length":1,"type":1}]}"#.to_owned(),
                None,
                "not a backup map",
            ),
        ] {
            let error = read(BackupType::Incremental, &[&map], source_bytes).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        }
    }

    #[test]
    fn a_map_that_takes_too_much_memory_is_refused_unread() {
        let extents: Vec<String> = (0..10_000).map(|at| extent(at * 10, 10, at % 2)).collect();
        let error = read(BackupType::Incremental, &[&page(&extents, "null")], None).unwrap_err();
        assert!(error.contains("give the process more memory"), "{error}");
    }
}
