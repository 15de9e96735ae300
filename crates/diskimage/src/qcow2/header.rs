//! The qcow2 header, in the first cluster of the image (QEMU `docs/interop/qcow2.rst`, sections
//! "Header", "Header extensions"). An image that can be refused by its header alone is refused
//! here, before any data is read.

use std::ops::Range;

use super::extensions::HeaderExtensions;
use crate::bytes_at::{be32, be64};
use crate::offsets::{Host, MAX_OFFSET};
use crate::{ClusterCompression, CompressedClusters, Error, Format, HeadFacts};

/// Length in bytes of a version 2 header.
const V2_LENGTH: usize = 72;
/// Length in bytes of the shortest version 3 header.
const V3_LENGTH: usize = 104;
/// Largest number of L1 entries, the same limit as in QEMU (`QCOW_MAX_L1_SIZE`, 32 MiB).
pub(super) const MAX_L1_ENTRIES: u64 = (32 << 20) / 8;
/// Largest refcount table in bytes, the same limit as in QEMU (`QCOW_MAX_REFTABLE_SIZE`).
const MAX_REFTABLE_BYTES: u64 = 8 << 20;
/// Largest number of snapshots, the same limit as in QEMU (`QCOW_MAX_SNAPSHOTS`), and the length
/// of the fixed part of a snapshot table entry.
const MAX_SNAPSHOTS: u64 = 65_536;
const SNAPSHOT_BYTES: u64 = 40;
/// Longest backing file name (qcow2.rst: "must not be longer than 1023 bytes").
const MAX_NAME: usize = 1023;
// Images with either of these two bits are opened, as in QEMU, which refuses only to write images
// with the second bit. Their refcounts cannot be trusted.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
pub(super) const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const KNOWN_INCOMPATIBLE: u64 = DIRTY | CORRUPT | DATA_FILE | COMPRESSION_TYPE | EXTENDED_L2;
/// Autoclear: the bitmaps are up to date. If it is not set, the bitmaps extension is ignored.
const BITMAPS_VALID: u64 = 1 << 0;
/// Autoclear: the external data file is the disk.
const DATA_FILE_RAW: u64 = 1 << 1;

/// The decoded and validated header of a readable image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qcow2Header {
    /// The version, 2 or 3.
    pub(crate) version: u32,
    /// Size of the virtual disk in bytes, rounded down to a sector of 512 bytes as QEMU does.
    pub virtual_size: u64,
    /// log2 of the cluster size, 9 to 21.
    pub(crate) cluster_bits: u32,
    /// The codec of compressed clusters.
    pub compression: ClusterCompression,
    /// True when L2 entries are 128 bits wide and map 32 subclusters each.
    pub(crate) extended_l2: bool,
    /// Number of L1 entries that map the virtual disk.
    pub l1_entries: u64,
    /// Number of all L1 entries. Entries beyond `l1_entries` may belong to the VM state of
    /// snapshots.
    pub(crate) l1_size: u64,
    /// Offset of the L1 table, aligned to a cluster.
    pub l1_offset: Host,
    /// Offset of the refcount table, aligned to a cluster.
    pub(crate) refcount_table_offset: Host,
    /// Size of the refcount table in bytes.
    pub(crate) refcount_table_bytes: u64,
    /// log2 of the width of a refcount in bits, 0 to 6.
    pub(crate) refcount_order: u32,
    /// Number of internal snapshots. Their data is ignored.
    pub snapshots: u32,
    /// Offset of the snapshot table.
    pub(crate) snapshot_table_offset: Host,
    /// Number of dirty bitmaps. A conversion ignores them.
    pub(crate) bitmap_count: u32,
    /// The bitmap directory, if the image contains bitmaps.
    pub bitmaps: Option<Range<Host>>,
    /// Refcounts may be out of date (bit 0). As in QEMU, such an image is read, but its refcounts
    /// are not trusted.
    pub(crate) dirty: bool,
    /// An earlier reader found the image inconsistent (bit 1). As in QEMU, such an image is still
    /// read, but with a warning.
    pub(crate) corrupt: bool,
    /// The image is a delta: the clusters that it does not map are in a base image.
    pub(crate) is_delta: bool,
}

/// The base of a delta, as the header of the delta names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingFile {
    /// The name of the file, escaped.
    pub name: String,
    /// The name of its format in QEMU's terms, escaped, if it is stated.
    pub format: Option<String>,
}

impl Qcow2Header {
    /// Reads the header from the beginning of the image: the first
    /// [`HEAD_BYTES`](crate::HEAD_BYTES), or all of a shorter image. Refuses an image with a
    /// backing file.
    pub fn parse(head: &[u8]) -> Result<Self, Error> {
        match Self::parse_any(head)? {
            (header, None) => Ok(header),
            (_, Some(base)) => Err(Error::BackingFile(base.name)),
        }
    }

    /// Reads the header of a delta, an image that stores only the differences to a base image.
    /// Also returns what the header says about the base, if it names one.
    pub(crate) fn parse_delta(head: &[u8]) -> Result<(Self, Option<BackingFile>), Error> {
        let (mut header, backing_file) = Self::parse_any(head)?;
        header.is_delta = true;
        Ok((header, backing_file))
    }

    fn parse_any(head: &[u8]) -> Result<(Self, Option<BackingFile>), Error> {
        let short = |needed: usize| Format::Qcow2.short_header_error(needed as u64, head);
        let word = |offset: usize| be32(head, offset).ok_or_else(|| short(offset + 4));
        let long = |offset: usize| be64(head, offset).ok_or_else(|| short(offset + 8));

        let version = word(4)?;
        if !(2..=3).contains(&version) {
            return Err(Format::Qcow2.header_error(format!("unsupported version {version}")));
        }
        let cluster_bits = word(20)?;
        if !(9..=21).contains(&cluster_bits) {
            return Err(Format::Qcow2.header_error(format!(
                "unsupported cluster size: 2^{cluster_bits}, must be 2^9 to 2^21"
            )));
        }
        let cluster_size = 1u64 << cluster_bits;
        let header_length =
            if version == 2 { V2_LENGTH } else { header_length(word(100)?, cluster_size)? };
        if head.len() < header_length {
            return Err(short(header_length));
        }
        let (incompatible, autoclear, refcount_order) =
            if version == 2 { (0, 0, 4) } else { (long(72)?, long(88)?, word(96)?) };
        let compression_byte =
            (version == 3 && header_length > V3_LENGTH).then(|| head.get(V3_LENGTH)).flatten();
        let backing_file_at = long(8)?;
        // The extensions end where the backing file's name begins. Otherwise its letters would be
        // parsed as an extension.
        let end =
            if backing_file_at == 0 { cluster_size } else { backing_file_at.min(cluster_size) };
        let extensions = HeaderExtensions::parse(head, header_length, end)?;

        // Call this after the extensions are parsed: they name the unknown features for the error.
        refuse_features(incompatible, autoclear, &extensions)?;
        let backing_file = backing_file(head, backing_file_at, word(16)?, cluster_size)?;
        match word(32)? {
            0 if extensions.has_crypto => {
                return Err(Format::Qcow2
                    .header_error("an encryption header in an image that is not encrypted"));
            }
            0 => {}
            1 => return Err(Error::Encrypted("AES")),
            2 => return Err(Error::Encrypted("LUKS")),
            other => {
                return Err(
                    Format::Qcow2.header_error(format!("unsupported encryption method {other}"))
                );
            }
        }
        let compression = parse_compression(compression_byte.copied().unwrap_or(0), incompatible)?;
        let extended_l2 = incompatible & EXTENDED_L2 != 0;
        if extended_l2 && cluster_bits < 14 {
            return Err(Format::Qcow2.header_error(format!(
                "extended L2 entries need clusters of 16 KiB, this image has {cluster_size}"
            )));
        }
        if refcount_order > 6 {
            return Err(Format::Qcow2.header_error(format!(
                "refcounts of 2^{refcount_order} bits, at most 64 bits are allowed"
            )));
        }

        // If the bit is clear, the bitmaps are out of date: a writer that does not support them
        // has cleared it.
        let bitmaps = match autoclear & BITMAPS_VALID {
            0 => None,
            _ => extensions.bitmap_directory(cluster_size)?,
        };
        let size = long(24)?;
        let header = Self {
            version,
            virtual_size: size & !511,
            cluster_bits,
            compression,
            extended_l2,
            l1_entries: 0,
            l1_size: 0,
            l1_offset: Host(long(40)?),
            refcount_table_offset: Host(long(48)?),
            refcount_table_bytes: u64::from(word(56)?) << cluster_bits,
            refcount_order,
            snapshots: word(60)?,
            snapshot_table_offset: Host(long(64)?),
            bitmap_count: bitmaps.as_ref().map_or(0, |(count, _)| *count),
            bitmaps: bitmaps.map(|(_, directory)| directory),
            dirty: incompatible & DIRTY != 0,
            corrupt: incompatible & CORRUPT != 0,
            is_delta: false,
        };
        let header = header.with_l1_checked(size, u64::from(word(36)?))?;
        header.check_tables()?;
        let base = backing_file
            .map(|name| BackingFile { name, format: extensions.backing_format.clone() });
        Ok((header, base))
    }

    /// Validates the number of L1 entries. `size` is not rounded to sectors: QEMU requires an L1
    /// entry for a partial last sector as well.
    fn with_l1_checked(mut self, size: u64, l1_size: u64) -> Result<Self, Error> {
        if l1_size > MAX_L1_ENTRIES {
            return Err(Format::Qcow2.large_l1_error(l1_size, MAX_L1_ENTRIES));
        }
        let needed = size.div_ceil(self.bytes_per_l2());
        if l1_size < needed {
            return Err(Format::Qcow2.header_error(format!(
                "L1 table is too small: {l1_size} entries, a virtual size of {size} needs {needed}"
            )));
        }
        self.l1_size = l1_size;
        self.l1_entries = self.virtual_size.div_ceil(self.bytes_per_l2());
        self.check_table("L1 table", self.l1_offset, l1_size * 8)?;
        Ok(self)
    }

    fn check_tables(&self) -> Result<(), Error> {
        if self.refcount_table_bytes > MAX_REFTABLE_BYTES {
            return Err(Format::Qcow2.header_error(format!(
                "the refcount table has {} bytes, the limit is {MAX_REFTABLE_BYTES}",
                self.refcount_table_bytes
            )));
        }
        if self.refcount_table_bytes == 0 {
            return Err(Format::Qcow2.header_error("the image does not contain a refcount table"));
        }
        self.check_table("refcount table", self.refcount_table_offset, self.refcount_table_bytes)?;
        // The contents of the snapshot table are not validated.
        let snapshots = u64::from(self.snapshots);
        if snapshots > MAX_SNAPSHOTS {
            return Err(Format::Qcow2.header_error(format!(
                "the snapshot table has {snapshots} entries, the limit is {MAX_SNAPSHOTS}"
            )));
        }
        self.check_table("snapshot table", self.snapshot_table_offset, snapshots * SNAPSHOT_BYTES)
    }

    /// Checks that a table begins at a cluster and ends within the largest file, as QEMU does.
    fn check_table(&self, name: &str, offset: Host, bytes: u64) -> Result<(), Error> {
        let end = offset.checked_add(bytes).filter(|end| end.0 <= MAX_OFFSET);
        if !offset.is_multiple_of(self.cluster_size()) || end.is_none() {
            return Err(Format::Qcow2.header_error(format!("{name} offset {offset:#x} is invalid")));
        }
        Ok(())
    }

    /// Returns true if the refcounts can be trusted. They may be wrong if the image was not closed
    /// properly or was found inconsistent.
    pub(crate) fn has_refcounts(&self) -> bool {
        !self.dirty && !self.corrupt
    }

    /// Returns the size of a cluster in bytes: 512 B to 2 MiB.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the size of one L2 entry in bytes: 8, or 16 with extended L2.
    pub(crate) fn l2_entry_bytes(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// Returns the number of guest bytes that one L2 table maps, at most 2^39 (2 MiB clusters,
    /// 8-byte entries).
    pub fn bytes_per_l2(&self) -> u64 {
        (self.cluster_size() / self.l2_entry_bytes()) << self.cluster_bits
    }

    /// Returns the facts that follow from the header.
    pub(super) fn head_facts(&self) -> HeadFacts {
        let cluster_size = self.cluster_size();
        HeadFacts {
            clusters: Some(CompressedClusters {
                compression: self.compression,
                size: cluster_size,
            }),
            cluster_size: Some(cluster_size),
            parking_unit: Some(cluster_size),
            features: self.feature_names(),
            snapshots: self.snapshots,
            is_marked_corrupt: self.corrupt,
            ..HeadFacts::new(Format::Qcow2, self.virtual_size)
        }
    }

    /// Returns the names of notable features of the image, for display.
    pub fn feature_names(&self) -> Vec<String> {
        let mut names = vec![format!("version {}", self.version)];
        if self.compression == ClusterCompression::Zstd {
            names.push("zstd clusters".into());
        }
        for (set, name) in [
            (self.extended_l2, "extended L2"),
            (self.dirty, "dirty"),
            (self.corrupt, "corrupt"),
            (self.bitmaps.is_some(), "bitmaps"),
        ] {
            if set {
                names.push(name.into());
            }
        }
        names
    }
}

fn header_length(stated: u32, cluster_size: u64) -> Result<usize, Error> {
    let length = stated as usize;
    if length < V3_LENGTH || u64::from(stated) > cluster_size {
        return Err(Format::Qcow2.header_error(format!(
            "header length {stated}, must be {V3_LENGTH} to the cluster size {cluster_size}"
        )));
    }
    Ok(length)
}

fn parse_compression(kind: u8, incompatible: u64) -> Result<ClusterCompression, Error> {
    // The feature bit and the byte must agree (qcow2.rst, "compression type").
    match (kind, incompatible & COMPRESSION_TYPE != 0) {
        (0, false) => Ok(ClusterCompression::Deflate),
        (1, true) => Ok(ClusterCompression::Zstd),
        (other, bit) => Err(Format::Qcow2.header_error(format!(
            "compression type {other} with its feature bit {}",
            if bit { "set" } else { "clear" }
        ))),
    }
}

fn refuse_features(
    incompatible: u64,
    autoclear: u64,
    extensions: &HeaderExtensions,
) -> Result<(), Error> {
    // Check unknown bits first, because they may change the meaning of the others.
    let unknown = incompatible & !KNOWN_INCOMPATIBLE;
    if unknown != 0 {
        let names: Vec<String> = (0..64u8)
            .filter(|bit| unknown & (1 << bit) != 0)
            .map(|bit| extensions.incompatible_name(bit).unwrap_or_else(|| format!("bit {bit}")))
            .collect();
        return Err(Error::UnknownFeatures(names.join(", ")));
    }
    if incompatible & DATA_FILE != 0 {
        return Err(Error::DataFile(
            extensions.data_file.clone().unwrap_or_else(|| "(unnamed)".into()),
        ));
    }
    if autoclear & DATA_FILE_RAW != 0 {
        return Err(Format::Qcow2.header_error(
            "autoclear feature bit 1 is set, but the image has no external data file",
        ));
    }
    Ok(())
}

fn backing_file(
    head: &[u8],
    offset: u64,
    length: u32,
    cluster_size: u64,
) -> Result<Option<String>, Error> {
    if offset == 0 {
        return Ok(None);
    }
    let length = length as usize;
    // The name must lie in the rest of the first cluster (qcow2.rst).
    if offset > cluster_size || length > MAX_NAME {
        return Err(Format::Qcow2
            .header_error(format!("backing file name of {length} bytes at offset {offset}")));
    }
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let name = head.get(start..start.saturating_add(length)).unwrap_or_default();
    Ok(Some(crate::text::printable_name(name)))
}
