//! Writes qcow2 images, version 3, from the data of a disk in the order of the disk (QEMU
//! `docs/interop/qcow2.rst`).
//!
//! Clusters follow each other in the image in the order of the disk. The cluster of an L2 table is
//! reserved before the data that it maps, and the cluster of a refcount block before the clusters
//! that it counts, as QEMU does. A table is written once, when its last entry is known, so only one
//! of each kind is in memory, and a reader can use the image in one pass. The header is written
//! last: without it, the file is not an image.
//!
//! An interrupted image can be completed by another process: [`Qcow2Writer::flush_tables`] writes
//! the known part of the tables, from which [`Qcow2Writer::replay`] makes an equal writer.
//!
//! The writer neither compresses nor does I/O: the caller passes compressed clusters, and an
//! [`ImageSink`] receives every byte once.

mod allocator;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use self::allocator::{ClusterAllocator, most_table_clusters, table_bytes};
pub use self::replay::IncompleteImage;
use super::header::{COMPRESSION_TYPE, MAX_L1_ENTRIES};
use super::table::{COMPRESSED, COPIED};
use crate::offsets::Host;
use crate::{Error, Format};

/// log2 of the cluster size. 64 KiB is QEMU's default.
const CLUSTER_BITS: u32 = 16;
/// Bytes of a cluster of a written image.
pub const WRITTEN_CLUSTER_BYTES: u64 = 1 << CLUSTER_BITS;
/// Entries of an L2 table, which fills a cluster ("Cluster mapping").
const L2_ENTRIES: u64 = WRITTEN_CLUSTER_BYTES / 8;
/// Bytes of the disk that an L2 table maps: 512 MiB.
const L2_SPAN_BYTES: u64 = L2_ENTRIES * WRITTEN_CLUSTER_BYTES;
/// Position of the number of sectors in a "Compressed Clusters Descriptor".
const SECTORS_SHIFT: u32 = 62 - (CLUSTER_BITS - 8);
/// Bytes of a sector. The size of a disk is a multiple of it.
const SECTOR_BYTES: u64 = 512;
/// Length of the header: the fields of version 3, and the compression type padded to 8 bytes.
const HEADER_BYTES: u32 = 112;

/// Receives the bytes of an image. Ranges that are not written must read as zeros.
pub trait ImageSink {
    /// The error type of the sink. Errors of the writer are converted into it.
    type Error: From<Error>;

    /// Writes `bytes` at `host`. No byte of the image is written twice, unless the caller uses
    /// [`Qcow2Writer::flush_tables`]. Most calls continue the last one; tables are written at lower
    /// offsets.
    fn write_at(&mut self, host: Host, bytes: Bytes) -> Result<(), Self::Error>;
}

/// How the clusters of a written image are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Qcow2Compression {
    /// All clusters are stored uncompressed.
    #[default]
    None,
    /// Raw deflate with a window of [`Qcow2Compression::DEFLATE_WINDOW_BITS`], which all versions
    /// of QEMU read.
    Zlib,
    /// Zstandard frames, which QEMU reads since version 5.1.
    Zstd,
}

impl Qcow2Compression {
    /// All values.
    pub const ALL: [Self; 3] = [Self::None, Self::Zlib, Self::Zstd];

    /// log2 of the deflate window. QEMU inflates with this window (`qcow2_zlib_decompress`), so a
    /// larger one could not be read.
    pub const DEFLATE_WINDOW_BITS: u8 = 12;

    /// The name, which is also its value on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Qcow2Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Qcow2Compression {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|compression| compression.name() == name);
        known.ok_or_else(|| format!("use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Writes an image. The data is appended in the order of the disk.
pub struct Qcow2Writer {
    compression: Qcow2Compression,
    /// The size of the disk, if it is known in advance.
    expected_bytes: Option<u64>,
    /// Bytes of the disk that were appended.
    position: u64,
    allocator: ClusterAllocator,
    /// Place that is reserved for the L1 table, if the size is known.
    l1_host: Option<Host>,
    /// The L1 table, up to the last entry that was needed.
    l1: PartialTable,
    /// The L2 table that is being filled, its index in the L1 table, and its place.
    l2: Option<(u64, Host, PartialTable)>,
    /// Where the next compressed cluster begins, if it continues the last one.
    packed_end: Option<Host>,
}

/// A table that is being filled.
#[derive(Default)]
struct PartialTable {
    entries: Vec<u64>,
    /// Number of entries that are already written.
    flushed: usize,
}

impl PartialTable {
    /// Writes the entries before `end` of the table at `host`, except those that are already
    /// written.
    fn flush<S: ImageSink>(&mut self, host: Host, end: u64, sink: &mut S) -> Result<(), S::Error> {
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.entries.len());
        let start = std::mem::replace(&mut self.flushed, end);
        match self.entries.get(start..end) {
            Some(entries) if !entries.is_empty() => {
                sink.write_at(host + start as u64 * 8, table_bytes(entries))
            }
            _ => Ok(()),
        }
    }
}

impl Qcow2Writer {
    /// Creates a writer. If the size of the disk is known, pass it as `expected_bytes`: the L1
    /// table is then placed before the data, where readers without random access need it.
    pub fn new<S: ImageSink>(
        compression: Qcow2Compression,
        expected_bytes: Option<u64>,
        sink: &mut S,
    ) -> Result<Self, S::Error> {
        let mut allocator = ClusterAllocator::default();
        let (l1_clusters, table_clusters) = match expected_bytes {
            Some(bytes) => (table_clusters(l1_entries(bytes)?), most_table_clusters(bytes)),
            None => (0, 0),
        };
        // Allocate the header and the tables at once, so that no refcount block precedes the table
        // that refers to it.
        let header = allocator.allocate(1 + l1_clusters + table_clusters, sink)?;
        let l1_host = header + WRITTEN_CLUSTER_BYTES;
        if expected_bytes.is_some() {
            allocator.reserve_table(l1_host + l1_clusters * WRITTEN_CLUSTER_BYTES, table_clusters);
        }
        Ok(Self {
            compression,
            expected_bytes,
            position: 0,
            allocator,
            l1_host: expected_bytes.map(|_| l1_host),
            l1: PartialTable::default(),
            l2: None,
            packed_end: None,
        })
    }

    /// Returns the number of bytes of the disk that were appended, rounded up to a cluster.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends zeros, which are not stored. Only the last call may append a part of a cluster.
    pub fn append_zeros(&mut self, bytes: u64) {
        self.position = self.position.saturating_add(bytes);
    }

    /// Appends one or more whole clusters uncompressed. Pad the last cluster of a disk with zeros.
    pub fn append_stored<S: ImageSink>(
        &mut self,
        mut bytes: Bytes,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if !(bytes.len() as u64).is_multiple_of(WRITTEN_CLUSTER_BYTES) {
            return Err(misuse("append a part of a cluster", bytes.len() as u64).into());
        }
        while !bytes.is_empty() {
            let entry = self.open_l2(sink)?;
            let count = (bytes.len() as u64 / WRITTEN_CLUSTER_BYTES).min(L2_ENTRIES - entry);
            let host = self.allocator.allocate(count, sink)?;
            for index in 0..count {
                self.set_entry(entry + index, COPIED | (host.0 + index * WRITTEN_CLUSTER_BYTES));
            }
            let length = count * WRITTEN_CLUSTER_BYTES;
            self.position += length;
            let now = bytes.split_to(usize::try_from(length).unwrap_or(usize::MAX));
            sink.write_at(host, now)?;
        }
        Ok(())
    }

    /// Appends one cluster, which is compressed to `bytes`. They must be fewer than a cluster, and
    /// inflate to a whole one.
    pub fn append_compressed<S: ImageSink>(
        &mut self,
        bytes: Bytes,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let length = bytes.len() as u64;
        if length == 0 || length >= WRITTEN_CLUSTER_BYTES {
            return Err(misuse("append a compressed cluster", length).into());
        }
        let entry = self.open_l2(sink)?;
        let host = self.allocator.allocate_packed(self.packed_end, length, sink)?;
        let end = host + length;
        self.packed_end = (!end.is_multiple_of(WRITTEN_CLUSTER_BYTES)).then_some(end);
        let more_sectors = (end.0 - 1) / SECTOR_BYTES - host.0 / SECTOR_BYTES;
        self.set_entry(entry, COMPRESSED | more_sectors << SECTORS_SHIFT | host.0);
        self.position += WRITTEN_CLUSTER_BYTES;
        sink.write_at(host, bytes)
    }

    /// Returns the index of the next cluster in the L2 table, which is made ready for it.
    fn open_l2<S: ImageSink>(&mut self, sink: &mut S) -> Result<u64, S::Error> {
        if !self.position.is_multiple_of(WRITTEN_CLUSTER_BYTES) {
            return Err(misuse("append data", self.position).into());
        }
        let index = self.position / L2_SPAN_BYTES;
        if self.l2.as_ref().is_none_or(|(open, ..)| *open != index) {
            self.close_l2(sink)?;
            self.resize_l1(index + 1)?;
            let host = self.allocator.allocate(1, sink)?;
            if let Some(last) = self.l1.entries.last_mut() {
                *last = COPIED | host.0;
            }
            // The entry may have been written while the disk had only zeros there.
            self.l1.flushed = self.l1.flushed.min(self.l1.entries.len() - 1);
            let entries = vec![0; usize::try_from(L2_ENTRIES).unwrap_or(0)];
            self.l2 = Some((index, host, PartialTable { entries, flushed: 0 }));
        }
        Ok(self.position / WRITTEN_CLUSTER_BYTES % L2_ENTRIES)
    }

    fn set_entry(&mut self, index: u64, value: u64) {
        let slot = self.l2.as_mut().zip(usize::try_from(index).ok());
        if let Some(entry) = slot.and_then(|((.., table), index)| table.entries.get_mut(index)) {
            *entry = value;
        }
    }

    fn close_l2<S: ImageSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        match self.l2.take() {
            Some((_, host, mut table)) => table.flush(host, L2_ENTRIES, sink),
            None => Ok(()),
        }
    }

    /// Returns the length of the image so far, in bytes.
    pub fn image_bytes(&self) -> u64 {
        self.allocator.image_bytes()
    }

    /// Writes the entries of the L1 table and the L2 table that are known and not written yet, so
    /// that [`Qcow2Writer::replay`] finds everything that was appended. The size of the disk must
    /// be known.
    pub fn flush_tables<S: ImageSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let l1_host = self.known_l1()?;
        if let Some((index, host, table)) = &mut self.l2 {
            let mapped = self.position.saturating_sub(*index * L2_SPAN_BYTES);
            table.flush(*host, mapped / WRITTEN_CLUSTER_BYTES, sink)?;
        }
        // An earlier attempt may have written entries where the disk has only zeros now.
        self.resize_l1(self.position.div_ceil(L2_SPAN_BYTES))?;
        self.l1.flush(l1_host, u64::MAX, sink)
    }

    /// Returns the place of the L1 table, or an error if it is not reserved.
    fn known_l1(&self) -> Result<Host, Error> {
        self.l1_host.ok_or_else(|| misuse("resume without a size", self.position))
    }

    fn resize_l1(&mut self, entries: u64) -> Result<(), Error> {
        check_l1(entries)?;
        self.l1.entries.resize(usize::try_from(entries).unwrap_or(usize::MAX), 0);
        Ok(())
    }

    /// Writes the remaining tables and, last, the header of an image of a disk of `disk_bytes`
    /// bytes, rounded up to sectors of 512. Returns the length of the file, which the caller must
    /// set: its end may not have been written.
    pub fn finish<S: ImageSink>(mut self, disk_bytes: u64, sink: &mut S) -> Result<u64, S::Error> {
        let most = disk_bytes.checked_next_multiple_of(WRITTEN_CLUSTER_BYTES).unwrap_or(u64::MAX);
        if self.position > most || self.expected_bytes.is_some_and(|bytes| bytes < disk_bytes) {
            let expected = self.expected_bytes.unwrap_or(most);
            let what = format!(
                "the disk has {disk_bytes} bytes, but {expected} were expected and {} written",
                self.position
            );
            return Err(Format::Qcow2.header_error(what).into());
        }
        let entries = l1_entries(disk_bytes)?;
        self.close_l2(sink)?;
        let l1_host = match self.l1_host {
            Some(host) => host,
            None => self.allocator.allocate(table_clusters(entries), sink)?,
        };
        // See `flush_tables`.
        self.resize_l1(entries)?;
        let (file_bytes, refcount_table) = self.allocator.finish(sink)?;
        self.l1.flush(l1_host, u64::MAX, sink)?;
        let (table_host, table_clusters) = refcount_table;
        let mut header = Vec::with_capacity(HEADER_BYTES as usize);
        let is_zstd = self.compression == Qcow2Compression::Zstd;
        header.extend_from_slice(b"QFI\xfb");
        header.extend_from_slice(&3u32.to_be_bytes());
        // No backing file.
        header.extend_from_slice(&[0; 12]);
        header.extend_from_slice(&CLUSTER_BITS.to_be_bytes());
        let size = disk_bytes.checked_next_multiple_of(SECTOR_BYTES).unwrap_or(disk_bytes);
        header.extend_from_slice(&size.to_be_bytes());
        // Not encrypted.
        header.extend_from_slice(&0u32.to_be_bytes());
        header.extend_from_slice(&u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
        let l1_host = if entries == 0 { Host(0) } else { l1_host };
        header.extend_from_slice(&l1_host.0.to_be_bytes());
        header.extend_from_slice(&table_host.0.to_be_bytes());
        header.extend_from_slice(&u32::try_from(table_clusters).unwrap_or(u32::MAX).to_be_bytes());
        // No snapshots.
        header.extend_from_slice(&[0; 12]);
        let incompatible = if is_zstd { COMPRESSION_TYPE } else { 0 };
        header.extend_from_slice(&incompatible.to_be_bytes());
        // Compatible and autoclear features.
        header.extend_from_slice(&[0; 16]);
        header.extend_from_slice(&allocator::REFCOUNT_ORDER.to_be_bytes());
        header.extend_from_slice(&HEADER_BYTES.to_be_bytes());
        // The compression type, padding, and the end of the header extensions.
        header.extend_from_slice(&[u8::from(is_zstd), 0, 0, 0, 0, 0, 0, 0]);
        header.extend_from_slice(&[0; 8]);
        sink.write_at(Host(0), header.into())?;
        Ok(file_bytes)
    }
}

/// Returns the number of L1 entries for a disk, or an error if QEMU does not read as many.
fn l1_entries(disk_bytes: u64) -> Result<u64, Error> {
    let entries = disk_bytes.div_ceil(L2_SPAN_BYTES);
    check_l1(entries)?;
    Ok(entries)
}

fn check_l1(entries: u64) -> Result<(), Error> {
    if entries <= MAX_L1_ENTRIES {
        return Ok(());
    }
    Err(Format::Qcow2.large_l1_error(entries, MAX_L1_ENTRIES))
}

/// Returns the number of clusters that a table with so many entries takes.
const fn table_clusters(entries: u64) -> u64 {
    (entries * 8).div_ceil(WRITTEN_CLUSTER_BYTES)
}

/// The error for a caller that breaks the rules of [`Qcow2Writer`].
fn misuse(what: &str, number: u64) -> Error {
    Format::Qcow2.header_error(format!("cannot {what}: {number} does not end at a cluster"))
}
