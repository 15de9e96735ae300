//! Collects pages of changed areas: checks the areas and merges neighbours.

use std::ops::Range;

use fetch::messages::plain_line;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};

use crate::xml::XmlElement;

/// Maximum number of areas that are kept. If there are more, neighbours are merged, and the bytes
/// between them are read as well.
const MAX_AREAS: usize = 1 << 18;

/// Changed areas in order, without overlaps.
#[derive(Default)]
pub struct ChangedAreas {
    list: Vec<Range<u64>>,
    /// Areas with at most this many unchanged bytes between them are merged, because there are too
    /// many areas.
    gap: u64,
}

impl ChangedAreas {
    /// Adds the areas of `page`, which contains the changes from `offset` on. Returns the offset
    /// for the next page.
    pub fn add_page(
        &mut self,
        page: &XmlElement,
        offset: u64,
        disk_bytes: u64,
    ) -> Result<u64, SourceError> {
        let begin = parse_number(page, "startOffset")?;
        let end = begin.saturating_add(parse_number(page, "length")?);
        if begin != offset || end <= offset {
            return Err(impossible_error(format!(
                "it covers bytes {begin} to {end}, expected those from byte {offset} on"
            )));
        }
        let mut areas: Vec<Range<u64>> = Vec::new();
        for area in page.children_named("changedArea") {
            let start = parse_number(area, "start")?;
            let end = start.saturating_add(parse_number(area, "length")?);
            if start < offset || end > disk_bytes || start == end {
                return Err(impossible_error(format!(
                    "a change of bytes {start} to {end}, expected a range within bytes {offset} to {disk_bytes}"
                )));
            }
            areas.push(start..end);
        }
        areas.sort_unstable_by_key(|area| area.start);
        for area in areas {
            self.push_area(area);
        }
        Ok(end)
    }

    /// Returns all areas, as changes of a disk of `disk_bytes`.
    pub fn into_changes(self, disk_bytes: u64) -> Result<ChangedRanges, SourceError> {
        ChangedRanges::new(disk_bytes, self.list)
            .ok_or_else(|| impossible_error("areas outside the disk"))
    }

    /// Adds an area after all others.
    pub(crate) fn push_area(&mut self, area: Range<u64>) {
        match self.list.last_mut() {
            // An area that extends beyond its page is repeated in the next one. Areas that
            // overlap are read once.
            Some(last) if area.start <= last.end.saturating_add(self.gap) => {
                last.end = last.end.max(area.end)
            }
            _ => self.list.push(area),
        }
        if self.list.len() > MAX_AREAS {
            // The gap starts at the granularity of change tracking (64 KiB) and doubles until few
            // enough areas remain.
            self.gap = (self.gap * 2).max(64 << 10);
            for area in std::mem::take(&mut self.list) {
                self.push_area(area);
            }
        }
    }
}

/// Parses the text of the child `name` as a number, which must not be negative.
fn parse_number(element: &XmlElement, name: &str) -> Result<u64, SourceError> {
    let text = element.text_of(name).unwrap_or_default();
    text.parse().map_err(|_| impossible_error(format!("a {name} of {:?}", plain_line(text))))
}

pub(super) fn impossible_error(what: impl std::fmt::Display) -> SourceError {
    let message = format!(
        "vSphere's list of changes is not valid: {what}; import the disk again from the start"
    );
    SourceError::new(SourceErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn page(begin: &str, length: &str, areas: &[(i64, i64)]) -> XmlElement {
        let areas: String = areas
            .iter()
            .map(|(start, length)| {
                format!(
                    "<changedArea><start>{start}</start><length>{length}</length></changedArea>"
                )
            })
            .collect();
        let xml =
            format!("<x><startOffset>{begin}</startOffset><length>{length}</length>{areas}</x>");
        XmlElement::parse(xml.as_bytes()).unwrap()
    }

    #[test]
    fn areas_of_several_pages_are_sorted_and_joined() {
        let mut areas = ChangedAreas::default();
        let first = page("0", "100", &[(50, 10), (0, 10), (55, 10), (90, 20)]);
        assert_eq!(areas.add_page(&first, 0, 200).unwrap(), 100);
        assert_eq!(areas.add_page(&page("100", "50", &[]), 100, 200).unwrap(), 150);
        assert_eq!(areas.add_page(&page("150", "50", &[(199, 1)]), 150, 200).unwrap(), 200);
        let changes = areas.into_changes(200).unwrap();
        assert_eq!(changes.ranges()[..], [0..10, 50..65, 90..110, 199..200]);
    }

    #[test]
    fn impossible_areas_are_refused() {
        for (wrong, reason) in [
            (page("0", "0", &[]), "it covers bytes 0 to 0,"),
            (page("0", "-1", &[]), "a length of \"-1\""),
            (page("1", "9", &[]), "bytes 1 to 10, expected those from byte 0 on"),
            (page("", "9", &[]), "a startOffset of \"\""),
            (page("0", "100", &[(-5, 5)]), "a start of \"-5\""),
            (page("0", "100", &[(5, -5)]), "a length of \"-5\""),
            (page("0", "100", &[(5, 0)]), "bytes 5 to 5"),
            (page("0", "100", &[(90, 11)]), "bytes 90 to 101"),
            (page("0", "100", &[(9, i64::MAX)]), "expected a range within bytes 0 to 100"),
        ] {
            let message = ChangedAreas::default().add_page(&wrong, 0, 100).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
            assert!(message.ends_with("import the disk again from the start"), "{message}");
        }
    }

    #[test]
    fn any_number_of_areas_takes_limited_memory_and_none_is_lost() {
        let mut areas = ChangedAreas::default();
        let count = 4 * MAX_AREAS as u64;
        for index in 0..count {
            areas.push_area(index * MIB..index * MIB + 512);
        }
        assert!(areas.list.len() <= MAX_AREAS);
        let mut at = areas.list.iter();
        let mut current = at.next().unwrap();
        for index in 0..count {
            while current.end < index * MIB + 512 {
                current = at.next().unwrap();
            }
            assert!(current.start <= index * MIB);
        }
    }
}
