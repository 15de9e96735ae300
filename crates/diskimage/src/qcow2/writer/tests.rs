//! Images are written into memory, read back by our own parser on both routes, and checked.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;

use super::*;
use crate::Findings;
use crate::stream::testing::{check, one_pass, ranged};

const CLUSTER: usize = 64 << 10;

/// A file that stores only what was written. Writing a byte twice is an error.
#[derive(Default)]
struct SparseFile(BTreeMap<u64, Bytes>);

impl ImageSink for SparseFile {
    type Error = Error;

    fn write_at(&mut self, host: Host, bytes: Bytes) -> Result<(), Error> {
        let end = host.0 + bytes.len() as u64;
        let before = self.0.range(..end).next_back();
        let is_free = before.is_none_or(|(at, bytes)| at + bytes.len() as u64 <= host.0);
        assert!(is_free && !bytes.is_empty(), "{host:#x}");
        self.0.insert(host.0, bytes);
        Ok(())
    }
}

impl SparseFile {
    fn read(&self, start: u64, length: u64) -> Vec<u8> {
        let mut read = vec![0; usize::try_from(length).unwrap()];
        let first = self.0.range(..=start).next_back().map_or(0, |(at, _)| *at);
        let end = start + length;
        for (at, bytes) in self.0.range(first..end) {
            let (from, to) = (start.max(*at), end.min(at + bytes.len() as u64));
            let range = |origin| {
                usize::try_from(from - origin).unwrap()..usize::try_from(to - origin).unwrap()
            };
            if from < to {
                read[range(start)].copy_from_slice(&bytes[range(*at)]);
            }
        }
        read
    }

    fn check(&self, file_bytes: u64) -> Findings {
        check(file_bytes, u64::MAX, |start, length| self.read(start, length)).unwrap()
    }
}

/// An image that ignores writes.
struct Unchanged<'a>(&'a mut SparseFile);

impl ImageSink for Unchanged<'_> {
    type Error = Error;

    fn write_at(&mut self, _: Host, _: Bytes) -> Result<(), Error> {
        Ok(())
    }
}

impl IncompleteImage for Unchanged<'_> {
    fn read_at(&mut self, host: Host, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.copy_from_slice(&self.0.read(host.0, bytes.len() as u64));
        Ok(())
    }
}

/// A file in memory that can be written again.
#[derive(Default)]
struct MemoryFile(Vec<u8>);

impl ImageSink for MemoryFile {
    type Error = Error;

    fn write_at(&mut self, host: Host, bytes: Bytes) -> Result<(), Error> {
        let start = usize::try_from(host.0).unwrap();
        self.0.resize(self.0.len().max(start + bytes.len()), 0);
        self.0[start..start + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }
}

impl IncompleteImage for MemoryFile {
    fn read_at(&mut self, host: Host, bytes: &mut [u8]) -> Result<(), Error> {
        let start = usize::try_from(host.0).unwrap();
        let read = start.checked_add(bytes.len()).and_then(|end| self.0.get(start..end));
        bytes.copy_from_slice(read.ok_or_else(|| misuse("read", host.0))?);
        Ok(())
    }
}

impl MemoryFile {
    /// Replays the image up to `end`, and cuts it there. Returns the data of the disk.
    fn replay(&mut self, size: u64, end: u64) -> Result<(Qcow2Writer, Vec<u8>), Error> {
        let mut disk = vec![0; usize::try_from(end).unwrap()];
        let compression = Qcow2Compression::Zlib;
        let mut writer = Qcow2Writer::new(compression, Some(size), &mut Self::default())?;
        writer.replay(end, self, |file, range| {
            let at = usize::try_from(range.guest.0).unwrap();
            let host = usize::try_from(range.host.0).unwrap();
            let end = usize::try_from(range.host.0 + range.stored_bytes).unwrap();
            let stored = &file.0[host..end.min(file.0.len())];
            let cluster = &mut disk[at..at + CLUSTER];
            match range.is_compressed {
                true => DeflateDecoder::new(stored).read_exact(cluster).unwrap(),
                false => cluster.copy_from_slice(stored),
            }
            Ok(())
        })?;
        self.0.truncate(usize::try_from(writer.image_bytes()).unwrap());
        Ok((writer, disk))
    }
}

/// A part of a disk.
#[derive(Debug, Clone)]
enum DiskPart {
    Zeros(u8),
    Stored(u8, u8),
    /// A cluster that is compressed: the number of bytes that are not zero.
    Compressed(u16),
}

impl DiskPart {
    /// Returns the bytes of the disk.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Zeros(count) => vec![0; usize::from(*count) * CLUSTER],
            Self::Stored(byte, count) => vec![*byte; usize::from(*count) * CLUSTER],
            Self::Compressed(length) => {
                let mut state = u32::from(*length) + 1;
                let mut random = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    state.to_be_bytes()[0]
                };
                let mut cluster: Vec<u8> = (0..*length).map(|_| random()).collect();
                cluster.resize(CLUSTER, 0);
                cluster
            }
        }
    }

    fn append(&self, writer: &mut Qcow2Writer, file: &mut impl ImageSink<Error = Error>) {
        match self {
            Self::Zeros(_) => writer.append_zeros(self.bytes().len() as u64),
            Self::Stored(..) => writer.append_stored(self.bytes().into(), file).unwrap(),
            Self::Compressed(_) => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&self.bytes()).unwrap();
                writer.append_compressed(encoder.finish().unwrap().into(), file).unwrap();
            }
        }
    }
}

fn part() -> impl Strategy<Value = DiskPart> {
    prop_oneof![
        (0u8..5).prop_map(DiskPart::Zeros),
        (1u8..=255, 0u8..4).prop_map(|(byte, count)| DiskPart::Stored(byte, count)),
        (0u16..60_000).prop_map(DiskPart::Compressed),
        (0u16..200).prop_map(DiskPart::Compressed),
    ]
}

/// Returns the file, its length, and the disk, whose last `cut` bytes are left out.
fn write(parts: &[DiskPart], cut: usize, is_known: bool) -> (SparseFile, u64, Vec<u8>) {
    let mut disk: Vec<u8> = parts.iter().flat_map(DiskPart::bytes).collect();
    disk.truncate(disk.len().saturating_sub(cut));
    let size = disk.len() as u64;
    let mut file = SparseFile::default();
    let mut writer =
        Qcow2Writer::new(Qcow2Compression::Zlib, is_known.then_some(size), &mut file).unwrap();
    for part in parts {
        part.append(&mut writer, &mut file);
    }
    let length = writer.finish(size, &mut file).unwrap();
    disk.resize(disk.len().next_multiple_of(512), 0);
    (file, length, disk)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_disk_is_read_back_and_its_image_is_clean(
        parts in prop::collection::vec(part(), 0..24),
        cut in 0usize..CLUSTER,
        is_known in any::<bool>(),
        chunk in 1000usize..300_000,
    ) {
        let (file, length, mut disk) = write(&parts, cut, is_known);
        let image = file.read(0, length);
        // What the last cluster holds beyond the end of the disk is not read.
        let read = ranged(Format::Qcow2, &image, chunk).unwrap();
        disk.truncate(read.disk.len());
        prop_assert!(read.disk.len() == disk.len() && compare(&read.disk, &disk, cut));
        prop_assert!(compare(&one_pass(Format::Qcow2, &image, chunk).unwrap().disk, &disk, cut));
        let findings = file.check(length);
        prop_assert_eq!((findings.errors, findings.leaked_clusters), (vec![], 0));
    }

    #[test]
    fn an_interrupted_image_is_completed(
        parts in prop::collection::vec((part(), any::<bool>(), 0u64..6), 1..24),
    ) {
        const SIZE: u64 = 8 << 20;
        let (mut file, mut disk, mut flushed) = (MemoryFile::default(), Vec::new(), 0);
        let create = |file: &mut MemoryFile| {
            Qcow2Writer::new(Qcow2Compression::Zlib, Some(SIZE), file).unwrap()
        };
        let mut writer = create(&mut file);
        for (part, is_flushed, kept) in parts {
            part.append(&mut writer, &mut file);
            disk.extend(part.bytes());
            if is_flushed {
                writer.flush_tables(&mut file).unwrap();
                flushed = writer.position();
            }
            if kept < 3 {
                // Everything since the last flush is lost, and perhaps more.
                let end = flushed.saturating_sub(kept * WRITTEN_CLUSTER_BYTES);
                disk.truncate(usize::try_from(end).unwrap());
                let replayed;
                (writer, replayed) = file.replay(SIZE, end).unwrap();
                prop_assert!(replayed == disk);
                writer.flush_tables(&mut file).unwrap();
                flushed = end;
            }
        }
        let length = writer.finish(SIZE, &mut file).unwrap();
        file.0.resize(usize::try_from(length).unwrap(), 0);
        let read = one_pass(Format::Qcow2, &file.0, 100_000).unwrap().disk;
        prop_assert!(read[..disk.len()] == disk && read[disk.len()..].iter().all(|byte| *byte == 0));
        let findings = check(length, u64::MAX, |start, length| {
            let end = usize::try_from(start + length).unwrap().min(file.0.len());
            let mut bytes = file.0[usize::try_from(start).unwrap()..end].to_vec();
            bytes.resize(usize::try_from(length).unwrap(), 0);
            bytes
        });
        let findings = findings.unwrap();
        prop_assert_eq!((findings.errors, findings.leaked_clusters), (vec![], 0));
    }

    #[test]
    fn damaged_tables_of_an_interrupted_image_are_refused(
        parts in prop::collection::vec(part(), 1..8),
        at in any::<prop::sample::Index>(),
        value in 1u8..,
    ) {
        const SIZE: u64 = 8 << 20;
        let mut file = MemoryFile::default();
        let mut writer =
            Qcow2Writer::new(Qcow2Compression::Zlib, Some(SIZE), &mut file).unwrap();
        DiskPart::Stored(1, 1).append(&mut writer, &mut file);
        for part in &parts {
            part.append(&mut writer, &mut file);
        }
        writer.flush_tables(&mut file).unwrap();
        let end = writer.position();
        // The L1 table has the second cluster, and the L2 table the fifth one: before it are the
        // refcount table and its block.
        let l2 = usize::try_from(writer.l2.as_ref().unwrap().1.0).unwrap();
        let entries = usize::try_from(end).unwrap() / CLUSTER;
        let at = at.index(8 + 8 * entries);
        let at = if at < 8 { CLUSTER + at } else { l2 + at - 8 };
        let length = file.0.len();
        file.0[at] ^= value;
        let mut writer =
            Qcow2Writer::new(Qcow2Compression::Zlib, Some(SIZE), &mut MemoryFile::default()).unwrap();
        // A cluster that lacks its entry reads as zeros, which its checksum shows.
        if writer.replay(end, &mut file, |_, _| Ok(())).is_ok() {
            prop_assert!(writer.image_bytes() <= length as u64 + 2 * WRITTEN_CLUSTER_BYTES);
        }
    }
}

/// Compares two disks. In the last sector, bytes beyond the end of the disk may differ.
fn compare(read: &[u8], disk: &[u8], cut: usize) -> bool {
    let sure = disk.len() - if cut.is_multiple_of(512) { 0 } else { 512.min(disk.len()) };
    read.len() == disk.len() && read[..sure] == disk[..sure]
}

#[test]
fn a_disk_of_known_size_is_read_in_one_pass_without_waiting_clusters() {
    let parts = [DiskPart::Stored(7, 9), DiskPart::Zeros(3), DiskPart::Stored(8, 2)];
    for (is_known, is_parked) in [(true, false), (false, true)] {
        let (file, length, disk) = write(&parts, 0, is_known);
        let read = one_pass(Format::Qcow2, &file.read(0, length), 100_000).unwrap();
        assert!(read.disk == disk);
        assert_eq!(read.most_parked > 0, is_parked, "{}", read.most_parked);
    }
}

#[test]
fn an_image_with_several_refcount_blocks_is_clean() {
    for is_known in [false, true] {
        let clusters = Bytes::from(vec![5; 64 * CLUSTER]);
        // 5 GiB of data in two parts, with 3 TiB of zeros between them.
        let disk_bytes = (3 << 40) + (5 << 30);
        let mut file = SparseFile::default();
        let expected = is_known.then_some(disk_bytes);
        let mut writer = Qcow2Writer::new(Qcow2Compression::Zstd, expected, &mut file).unwrap();
        for number in 0..5 * 256 {
            if number == 500 {
                writer.append_zeros(3 << 40);
            }
            // Compressed clusters continue over the borders of tables and blocks.
            for _ in 0..number % 5 {
                let compressed = Bytes::from(vec![6; 40_000]);
                writer.append_compressed(compressed, &mut file).unwrap();
            }
            let rest = 64 - number % 5;
            writer.append_stored(clusters.slice(..rest * CLUSTER), &mut file).unwrap();
            if is_known && number % 250 == 249 {
                writer.flush_tables(&mut file).unwrap();
                let mut unchanged = Unchanged(&mut file);
                let mut replayed =
                    Qcow2Writer::new(Qcow2Compression::Zstd, expected, &mut unchanged).unwrap();
                replayed.replay(writer.position(), &mut unchanged, |_, _| Ok(())).unwrap();
                assert!(
                    replayed.allocator == writer.allocator
                        && replayed.l1.entries == writer.l1.entries
                );
            }
        }
        assert_eq!(writer.position(), disk_bytes);
        let length = writer.finish(disk_bytes, &mut file).unwrap();
        assert!(length < (5 << 30) + (4 << 20), "{length}");
        let findings = file.check(length);
        assert_eq!((findings.errors, findings.leaked_clusters), (vec![], 0));
    }
}

#[test]
fn disks_that_qemu_cannot_map_are_refused() {
    let largest = MAX_L1_ENTRIES * L2_SPAN_BYTES;
    let mut file = SparseFile::default();
    let create = |size, file: &mut SparseFile| {
        Qcow2Writer::new(Qcow2Compression::None, Some(size), file).map(drop)
    };
    create(largest, &mut file).unwrap();
    let refused = create(largest + 1, &mut file).unwrap_err().to_string();
    assert!(refused.contains("L1 size too big"), "{refused}");
    let mut writer = Qcow2Writer::new(Qcow2Compression::None, None, &mut file).unwrap();
    writer.append_zeros(largest);
    let cluster = Bytes::from(vec![1; CLUSTER]);
    let refused = writer.append_stored(cluster, &mut file).unwrap_err().to_string();
    assert!(refused.contains("L1 size too big"), "{refused}");
}

#[test]
fn a_caller_that_breaks_the_rules_gets_an_error() {
    let cluster = Bytes::from(vec![1; CLUSTER]);
    let mut file = SparseFile::default();
    let mut writer = Qcow2Writer::new(Qcow2Compression::Zlib, Some(1 << 20), &mut file).unwrap();
    for length in [0, CLUSTER] {
        writer.append_compressed(cluster.slice(..length), &mut file).unwrap_err();
    }
    writer.append_stored(cluster.slice(1..), &mut file).unwrap_err();
    writer.append_zeros(5);
    writer.append_stored(cluster.clone(), &mut file).unwrap_err();
    writer.append_compressed(cluster.slice(1..), &mut file).unwrap_err();
    writer.finish((1 << 20) + 1, &mut file).unwrap_err();

    let mut file = SparseFile::default();
    let mut writer = Qcow2Writer::new(Qcow2Compression::None, None, &mut file).unwrap();
    writer.append_stored(cluster, &mut file).unwrap();
    writer.append_zeros(1);
    assert!(writer.finish(CLUSTER as u64, &mut file).unwrap_err().to_string().contains("65537"));
}

#[test]
fn names_of_compressions_are_parsed() {
    for compression in Qcow2Compression::ALL {
        assert_eq!(compression.to_string().parse(), Ok(compression));
    }
    assert_eq!("lz4".parse::<Qcow2Compression>(), Err("use none, zlib, zstd".to_owned()));
}
