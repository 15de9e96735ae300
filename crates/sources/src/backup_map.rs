//! Reads maps of KubeVirt backups: JSON pages of extents, which the `map` endpoint of a pull-mode
//! backup returns.
//!
//! The types of extents have opposite meanings in full and in incremental backups, and a map does
//! not state which kind of backup it describes, so the caller has to. Gaps between extents count as
//! changed, because a server may drop the rest of a reply (QEMU limits the extents of one reply).

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use stream::changes::ChangedRanges;
use stream::error::{SourceAdvice, SourceError, errno_text};
use stream::memory::{MemoryBudget, MemoryGrant};

use fetch::error::invalid_error;

/// Bytes of memory that a range takes in the finished list.
const RANGE_BYTES: u64 = 16;

/// Bytes of memory to reserve for each range while the map is read. Lists double in size when they
/// grow, and the finished list is made from a copy.
const PARSING_BYTES: u64 = 4 * RANGE_BYTES;

/// Bytes by which the reserved memory grows.
const GRANT_STEP: u64 = 64 << 10;

/// Maximum number of bytes of text between two extents. The parser may hold all of it.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The kind of backup that a map belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupType {
    /// The map lists data, holes and zeros of the whole disk.
    Full,
    /// The map lists the ranges that have changed.
    Incremental,
}

/// An extent of a map. Its description is ignored.
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

/// Reads a map whose pages are in `files`, in order. Returns the ranges that have to be written,
/// and the memory that they take. `source_bytes` is the size of the backup's disk, if it is known.
pub fn read_backup_map(
    files: &[PathBuf],
    backup: BackupType,
    source_bytes: Option<u64>,
    memory: &MemoryBudget,
) -> Result<(ChangedRanges, MemoryGrant), SourceError> {
    let mut map = BackupMap::new(backup, memory.empty_grant());
    for path in files {
        read_file(path, &mut map)?;
    }
    map.finish(source_bytes)
        .map_err(|what| map_error(files.last().map_or(Path::new(""), PathBuf::as_path), &what))
}

fn map_error(path: &Path, what: &str) -> SourceError {
    invalid_error(format!("cannot use the map {}: {what}", path.display()))
}

/// Adds the pages in the file `path`, which may be a pipe, to `map`.
fn read_file(path: &Path, map: &mut BackupMap) -> Result<(), SourceError> {
    let unreadable =
        |error: &io::Error| map_error(path, &format!("cannot read it: {}", errno_text(error)));
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    map.text_left.set(MAX_TEXT_BYTES);
    let text = LimitedText { file, left: Rc::clone(&map.text_left) };
    let mut pages = serde_json::Deserializer::from_reader(BufReader::new(text));
    while pages.end().is_err() {
        let Err(error) = Pages(map).deserialize(&mut pages) else { continue };
        return Err(match map.fault.take() {
            Some(what) => map_error(path, &what),
            None if error.is_io() => unreadable(&error.into()),
            None => map_error(path, &format!("not a backup map: {error}"))
                .with_advice(SourceAdvice::FetchMap),
        });
    }
    Ok(())
}

/// The text of a map. Reading fails if too much of it comes without an extent.
struct LimitedText {
    file: File,
    /// Bytes that may still come before the next extent.
    left: Rc<Cell<usize>>,
}

impl Read for LimitedText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other(format!(
                "more than {MAX_TEXT_BYTES} bytes of text without an extent; is it a backup map?"
            )));
        }
        let read = self.file.read(buffer)?;
        self.left.set(left.saturating_sub(read));
        Ok(read)
    }
}

/// Adds a page, or an array of pages, to a map. Each extent is added as soon as it is parsed, so
/// no page takes memory.
struct Pages<'m>(&'m mut BackupMap);

impl<'de> DeserializeSeed<'de> for Pages<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Pages<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page with extents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pages: A) -> Result<(), A::Error> {
        while pages.next_element_seed(Pages(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut page: A) -> Result<(), A::Error> {
        self.0.begin_page();
        while let Some(key) = page.next_key::<String>()? {
            match key.as_str() {
                "extents" => page.next_value_seed(Extents(self.0))?,
                "next_offset" => self.0.next_offset = page.next_value()?,
                _ => {
                    page.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Adds the extents of a page, which may be `null`, to a map.
struct Extents<'m>(&'m mut BackupMap);

impl<'de> DeserializeSeed<'de> for Extents<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Extents<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of extents")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut extents: A) -> Result<(), A::Error> {
        while let Some(extent) = extents.next_element::<MapExtent>()? {
            if let Err(what) = self.0.add_extent(&extent) {
                self.0.fault = Some(what);
                return Err(A::Error::custom("an extent is wrong"));
            }
        }
        Ok(())
    }
}

/// The ranges of the pages so far.
struct BackupMap {
    backup: BackupType,
    data: Vec<Range<u64>>,
    zeros: Vec<Range<u64>>,
    /// The memory of both lists.
    grant: MemoryGrant,
    /// End of the last extent.
    end: u64,
    /// Offset at which the next page begins, according to the last one.
    next_offset: Option<u64>,
    /// Bytes of text that may still come before the next extent.
    text_left: Rc<Cell<usize>>,
    /// Why an extent was refused.
    fault: Option<String>,
}

impl BackupMap {
    fn new(backup: BackupType, grant: MemoryGrant) -> Self {
        Self {
            backup,
            data: Vec::new(),
            zeros: Vec::new(),
            grant,
            end: 0,
            next_offset: None,
            text_left: Rc::default(),
            fault: None,
        }
    }

    fn begin_page(&mut self) {
        self.text_left.set(MAX_TEXT_BYTES);
        self.next_offset = None;
    }

    fn add_extent(&mut self, extent: &MapExtent) -> Result<(), String> {
        let MapExtent { offset, length, kind } = *extent;
        self.text_left.set(MAX_TEXT_BYTES);
        self.charge_extent()?;
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
        Ok(())
    }

    /// Reserves the memory of the ranges so far and of those that one more extent can add: itself,
    /// the gap before it, and the gap between it and the end of the disk.
    fn charge_extent(&mut self) -> Result<(), String> {
        let wanted = (self.data.len() as u64 + self.zeros.len() as u64 + 3) * PARSING_BYTES;
        if wanted <= self.grant.granted_bytes() {
            return Ok(());
        }
        self.grant
            .resize(wanted + GRANT_STEP)
            .map_err(|error| format!("it {error}; give the process more memory (--memory)"))
    }

    fn finish(mut self, source_bytes: Option<u64>) -> Result<(ChangedRanges, MemoryGrant), String> {
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
        let Self { mut data, mut zeros, mut grant, end, .. } = self;
        data.shrink_to_fit();
        zeros.shrink_to_fit();
        let changes = ChangedRanges::new(end, data)
            .and_then(|changes| changes.with_zeros(zeros))
            .ok_or_else(|| "the extents are out of order".to_owned())?;
        let ranges = changes.ranges().len() as u64 + changes.zero_ranges().len() as u64;
        grant.resize(ranges * RANGE_BYTES).map_err(|error| format!("it {error}"))?;
        Ok((changes, grant))
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
            .map(|(changes, _)| changes)
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
        let of = |extents: &[(u64, u64, u64)], next| {
            let extents: Vec<_> = extents
                .iter()
                .map(|(offset, length, kind)| extent(*offset, *length, *kind))
                .collect();
            page(&extents, next)
        };
        let negative = r#"{"extents":[{"offset":-1,"length":1,"type":1}]}"#;
        for (map, sentence) in [
            (of(&[(0, 10, 1), (9, 10, 1)], "null"), "one ends at 10, the next begins at 9"),
            (of(&[(0, 0, 1)], "null"), "invalid extent of 0 bytes at 0"),
            (of(&[(5, u64::MAX, 1)], "null"), "bytes at 5"),
            (of(&[(0, 10, 4)], "null"), "unknown extent type 4 at 0"),
            (of(&[(0, 10, 1)], "10"), "the next page begins at offset 10"),
            (of(&[(0, 101, 1)], "null"), "it ends at 101, but the backup's disk has 100 bytes"),
            (of(&[], "null"), "has no extents"),
            (r#"{"extents":null,"next_offset":null}"#.to_owned(), "has no extents"),
            ("<html>".to_owned(), "not a backup map"),
            (negative.to_owned(), "not a backup map"),
            (" ".repeat(2 * MAX_TEXT_BYTES), "bytes of text without an extent"),
        ] {
            let error = read(BackupType::Incremental, &[&map], Some(100)).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        }
        let words = format!(r#"{{"extents":[],"words":"{}"}}"#, " ".repeat(2 * MAX_TEXT_BYTES));
        let error = read(BackupType::Full, &[&words], None).unwrap_err();
        assert!(error.contains("bytes of text without an extent"), "{error}");
    }

    #[test]
    fn a_map_that_takes_too_much_memory_is_refused() {
        let extents: Vec<String> = (0..40_000).map(|at| extent(at * 10, 10, at % 2)).collect();
        let error = read(BackupType::Incremental, &[&page(&extents, "null")], None).unwrap_err();
        assert!(error.contains("give the process more memory"), "{error}");
        // The unchanged extents take none, and neither do pages.
        let extents: Vec<String> = (0..40_000).map(|at| extent(at * 10, 10, 0)).collect();
        let map = format!("{}{}", "{}".repeat(1 << 20), page(&extents, "null"));
        let changes = read(BackupType::Incremental, &[&map], None).unwrap();
        assert_eq!(changes.changed_bytes(), 0);
    }

    #[test]
    fn a_map_may_come_through_a_pipe_and_its_memory_stays_charged() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let map = page(&[extent(0, 10, 1), extent(20, 10, 3)], "null");
        writer.write_all(map.as_bytes()).unwrap();
        drop(writer);
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let paths = [PathBuf::from(format!("/proc/self/fd/{number}"))];
        let memory = MemoryBudget::new(1 << 20);
        let (changes, grant) =
            read_backup_map(&paths, BackupType::Incremental, None, &memory).unwrap();
        assert_eq!((changes.ranges().len(), changes.zero_ranges().len()), (1, 1));
        assert_eq!(grant.granted_bytes(), 2 * RANGE_BYTES);
        assert_eq!(memory.empty_grant().available_bytes(), (1 << 20) - 2 * RANGE_BYTES);
    }
}
