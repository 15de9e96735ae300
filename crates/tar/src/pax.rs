//! Parses the records of extended headers (POSIX.1-2017, pax, "pax Extended Header").

use stream::error::ArchiveErrorKind;

use super::header::number_error;
use super::name::printable_name;
use super::number::{self, TarTimestamp};
use super::sparse::{StoredRanges, sparse_error};

/// The pax records of an entry that affect how it is unpacked.
#[derive(Debug, Default)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<TarTimestamp>,
    pub(super) sparse: SparseRecords,
}

/// The records `GNU.sparse.*` (GNU tar manual, "Storing Sparse Files").
#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    major: u64,
    minor: u64,
    /// The real name of a sparse file. The header then contains another name, for readers that do
    /// not support sparse files.
    pub(super) name: Option<Vec<u8>>,
    /// Size of the file in bytes, holes included.
    pub(super) size: Option<u64>,
    count: Option<u64>,
    /// Regions in versions 0.0 and 0.1. Version 1.0 stores them before the data.
    pub(super) regions: StoredRanges,
    offset: Option<u64>,
}

/// Where the map of a sparse file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SparseMapLocation {
    /// The file is not sparse.
    None,
    /// In the records (versions 0.0 and 0.1).
    Records,
    /// Before the data (version 1.0).
    Data,
}

impl PaxRecords {
    /// Reads the records of an extended header. A later record replaces an earlier one with the
    /// same key; an empty value removes it.
    pub(super) fn read_records(&mut self, mut records: &[u8]) -> Result<(), ArchiveErrorKind> {
        while !records.is_empty() {
            let (key, value, rest) = split_record(records).ok_or_else(|| {
                let what = "the pax header has a record that is not `length key=value`";
                ArchiveErrorKind::Damaged(what.to_owned())
            })?;
            self.set_record(key, value)?;
            records = rest;
        }
        Ok(())
    }

    fn set_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArchiveErrorKind> {
        let text = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.link_path = text(),
            b"size" => self.size = parse_value(value, "size", number::parse_decimal)?,
            b"mtime" => self.mtime = parse_value(value, "modification time", number::parse_time)?,
            b"GNU.sparse.name" => self.sparse.name = text(),
            _ => {
                if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.set_record(key, value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the records of a global header, which apply to each entry after it.
    pub(super) fn inherited_records(&self) -> Self {
        Self {
            path: self.path.clone(),
            link_path: self.link_path.clone(),
            size: self.size,
            mtime: self.mtime,
            // A sparse map describes one file, so the entries after a global header do not inherit
            // it.
            sparse: SparseRecords::default(),
        }
    }
}

impl SparseRecords {
    fn set_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArchiveErrorKind> {
        let number = |field| parse_value(value, field, number::parse_decimal);
        match key {
            b"major" => self.major = number("sparse version")?.unwrap_or(0),
            b"minor" => self.minor = number("sparse version")?.unwrap_or(0),
            b"size" | b"realsize" => self.size = number("real size")?,
            b"numblocks" => self.count = number("number of sparse regions")?,
            b"offset" => self.offset = number("offset of a sparse region")?,
            b"numbytes" => {
                // Version 0.0 repeats `offset` and `numbytes` for each region, although POSIX lets
                // a later record replace an earlier one.
                let length = number("length of a sparse region")?;
                self.push_region(self.offset, length)?;
                self.offset = None;
            }
            b"map" => self.read_map(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Parses `offset,length,offset,length…` (version 0.1).
    fn read_map(&mut self, value: &[u8]) -> Result<(), ArchiveErrorKind> {
        self.regions.clear();
        if value.is_empty() {
            return Ok(());
        }
        let mut numbers = value.split(|byte| *byte == b',').map(number::parse_decimal);
        while let Some(offset) = numbers.next() {
            self.push_region(offset, numbers.next().flatten())?;
        }
        Ok(())
    }

    fn push_region(
        &mut self,
        offset: Option<u64>,
        length: Option<u64>,
    ) -> Result<(), ArchiveErrorKind> {
        let (Some(offset), Some(length)) = (offset, length) else {
            return Err(sparse_error("has a region without an offset or a length"));
        };
        self.regions.push(offset, length)
    }

    /// Returns where the map is stored. Call this after all records were read.
    pub(super) fn map_location(&self) -> Result<SparseMapLocation, ArchiveErrorKind> {
        let is_sparse = self.size.is_some() || self.count.is_some() || self.regions.count() > 0;
        match (self.major, self.minor) {
            (1, 0) => Ok(SparseMapLocation::Data),
            (0, 0 | 1) if !is_sparse => Ok(SparseMapLocation::None),
            (0, 0 | 1) => match self.count {
                Some(count) if count != self.regions.count() => Err(sparse_error(&format!(
                    "has {} regions, but should have {count}",
                    self.regions.count()
                ))),
                _ => Ok(SparseMapLocation::Records),
            },
            (major, minor) => Err(sparse_error(&format!(
                "is of version {major}.{minor}: 0.0, 0.1 and 1.0 are supported"
            ))),
        }
    }
}

/// Parses a value with `parse`. `None` if the value is empty.
fn parse_value<T>(
    value: &[u8],
    field: &'static str,
    parse: fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, ArchiveErrorKind> {
    if value.is_empty() {
        return Ok(None);
    }
    let parsed = parse(value).ok_or_else(|| number_error(field, &printable_name(value)))?;
    Ok(Some(parsed))
}

/// Splits off the first record. Returns its key, its value and the remaining records. A record is
/// `"%d %s=%s\n"`; the number is the length of the whole record, including the number itself.
fn split_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(number::parse_decimal(records.get(..space)?)?).ok()?;
    let (record, rest) = records.split_at_checked(length)?;
    let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=')?;
    let (key, value) = text.split_at(equals);
    (!key.is_empty()).then_some((key, &value[1..], rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sparse::SparseLayout;
    use super::*;

    fn record(key: &str, value: &str) -> Vec<u8> {
        let body = format!(" {key}={value}\n");
        let mut length = body.len() + 1;
        while length != body.len() + length.to_string().len() {
            length += 1;
        }
        format!("{length}{body}").into_bytes()
    }

    fn read(records: &[(&str, &str)]) -> Result<PaxRecords, ArchiveErrorKind> {
        let mut pax = PaxRecords::default();
        let bytes: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        pax.read_records(&bytes).map(|()| pax)
    }

    #[test]
    fn known_pax_records_are_kept_and_others_ignored() {
        let pax = read(&[
            ("path", "a=b\nc"),
            ("SCHILY.xattr.user.x", "\0\0"),
            ("LIBARCHIVE.creationtime", "1"),
            ("size", "12"),
            ("mtime", "-1.5"),
            ("size", "13"),
        ])
        .unwrap();
        assert_eq!(pax.path.unwrap(), b"a=b\nc");
        assert_eq!(pax.size, Some(13));
        assert_eq!(pax.mtime.unwrap().seconds, -2);
    }

    #[test]
    fn an_empty_record_removes_an_earlier_value() {
        let pax = read(&[("path", "a"), ("size", "1"), ("path", ""), ("size", "")]).unwrap();
        assert_eq!((pax.path, pax.size), (None, None));
    }

    #[test]
    fn malformed_pax_records_are_refused() {
        for bad in [
            "x",
            "9",
            "0 a=b\n",
            "5 a=b\n",
            "7 a=b\n",
            "6 a=b ",
            "6 ab=\n\n",
            "6  a=b\n",
            "5 =b\n",
            "4 ab\n",
            "-6 a=b\n",
            "99999999999999999999 a=b\n",
            "3 a=b\n",
            "1 a=b\n",
        ] {
            assert!(PaxRecords::default().read_records(bad.as_bytes()).is_err(), "{bad:?}");
        }
        PaxRecords::default().read_records(b"6 a=b\n").unwrap();
    }

    #[test]
    fn sparse_maps_of_all_versions_are_read() {
        let old = read(&[
            ("GNU.sparse.size", "9"),
            ("GNU.sparse.numblocks", "2"),
            ("GNU.sparse.offset", "0"),
            ("GNU.sparse.numbytes", "5"),
            ("GNU.sparse.offset", "9"),
            ("GNU.sparse.numbytes", "0"),
        ]);
        let newer = read(&[
            ("GNU.sparse.size", "9"),
            ("GNU.sparse.numblocks", "2"),
            ("GNU.sparse.map", "0,5,9,0"),
        ]);
        for pax in [old.unwrap(), newer.unwrap()] {
            assert_eq!(pax.sparse.map_location(), Ok(SparseMapLocation::Records));
            assert_eq!(pax.sparse.regions.count(), 2);
            SparseLayout::with_holes(pax.sparse.regions, 9, 5).unwrap();
        }
        let newest = read(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.realsize", "9"),
        ]);
        assert_eq!(newest.unwrap().sparse.map_location(), Ok(SparseMapLocation::Data));
        assert_eq!(
            read(&[("mtime", "1")]).unwrap().sparse.map_location(),
            Ok(SparseMapLocation::None)
        );
        assert!(read(&[("GNU.sparse.major", "2")]).unwrap().sparse.map_location().is_err());
    }

    #[test]
    fn broken_sparse_maps_are_refused() {
        for records in [
            &[("GNU.sparse.numbytes", "1")][..],
            &[("GNU.sparse.offset", "1"), ("GNU.sparse.numbytes", "")],
            &[("GNU.sparse.map", "1")],
            &[("GNU.sparse.map", "1,2,")],
            &[("GNU.sparse.map", "1,-2")],
        ] {
            assert!(read(records).is_err(), "{records:?}");
        }
        let miscounted = read(&[("GNU.sparse.numblocks", "2"), ("GNU.sparse.map", "1,2")]).unwrap();
        assert!(miscounted.sparse.map_location().is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            // Arbitrary bytes must not make the parser panic or loop; the result itself hardly
            // matters.
            let read = PaxRecords::default().read_records(&bytes);
            prop_assert!(read.is_err() || bytes.is_empty() || bytes.ends_with(b"\n"));
        }
    }
}
