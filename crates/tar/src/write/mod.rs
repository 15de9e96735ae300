//! Encodes the headers of a tar. The bytes are identical to the output of GNU tar with
//! `--format=gnu --numeric-owner`. This module does no I/O.

mod entry;

use self::entry::NAME_BYTES;
pub use self::entry::{DataRegion, EntryAttributes, NewEntryKind};
use super::header::{BLOCK_BYTES, Block, SPARSE_ENTRY_BYTES};
use super::{number, sparse};

/// Largest number of data regions of a sparse file. Our reader accepts one more, which is the
/// empty region at the end.
pub const MAX_REGIONS: u64 = sparse::MAX_REGIONS - 1;

/// Size of a record. A tar consists of records of 20 blocks; the last one is padded (GNU tar,
/// `--blocking-factor`).
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES as u64;

/// Name of the extra entry that comes before an entry whose name or link target is too long for
/// its header.
const LONG_LINK: &[u8] = b"././@LongLink";

/// Number of regions of a sparse file that fit into its header, and into each block that continues
/// it.
const HEADER_REGIONS: usize = 4;
const BLOCK_REGIONS: usize = 21;

/// Encodes the header of an entry, including the extra entries before it if its names are long.
pub fn encode_header(name: &[u8], meta: &EntryAttributes, kind: &NewEntryKind<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    let target = kind.link_target();
    if target.len() > NAME_BYTES {
        long_name(b'K', target, &mut bytes);
    }
    if name.len() > NAME_BYTES {
        long_name(b'L', name, &mut bytes);
    }
    let mut fields = TarHeaderBuilder::new(name, kind.type_flag(), meta, kind.stored_bytes());
    fields.set_link_target(target);
    match *kind {
        NewEntryKind::Character { major, minor } | NewEntryKind::Block { major, minor } => {
            fields.set_device(major, minor)
        }
        NewEntryKind::Sparse { size, regions } => {
            let here = regions.len().min(HEADER_REGIONS);
            fields.set_sparse_map(size, &regions[..here], regions.len() > here);
        }
        _ => {}
    }
    bytes.extend_from_slice(&fields.into_block());
    bytes
}

/// Appends an entry whose data is the long name of the next entry.
fn long_name(typeflag: u8, name: &[u8], bytes: &mut Vec<u8>) {
    let meta = EntryAttributes { mode: 0o644, uid: 0, gid: 0, mtime: 0 };
    // The length includes the NUL after the name.
    let length = name.len() + 1;
    bytes.extend_from_slice(
        &TarHeaderBuilder::new(LONG_LINK, typeflag, &meta, length as u64).into_block(),
    );
    bytes.extend_from_slice(name);
    bytes.resize(bytes.len() + 1 + padding_bytes(length as u64), 0);
}

/// Returns the blocks with those regions of a sparse file that do not fit into its header.
pub fn more_regions(regions: &[DataRegion]) -> impl Iterator<Item = [u8; BLOCK_BYTES]> + '_ {
    let rest = regions.get(HEADER_REGIONS..).unwrap_or_default();
    let blocks = rest.chunks(BLOCK_REGIONS);
    let last = blocks.len().saturating_sub(1);
    blocks.enumerate().map(move |(index, regions)| continuation_block(regions, index < last))
}

/// Returns the number of zero bytes that pad `length` bytes of data to whole blocks.
pub fn padding_bytes(length: u64) -> usize {
    let beyond = usize::try_from(length % BLOCK_BYTES as u64).unwrap_or(0);
    (BLOCK_BYTES - beyond) % BLOCK_BYTES
}

/// Returns the number of zero bytes that end an archive of `length` bytes: two blocks, and the
/// padding of the last record.
pub fn end_bytes(length: u64) -> u64 {
    let least = length + 2 * BLOCK_BYTES as u64;
    least.next_multiple_of(RECORD_BYTES) - length
}

/// A header under construction. Offsets are from POSIX.1-1988 (ustar); from 345 on they are from
/// the old GNU format.
struct TarHeaderBuilder(Block);

impl TarHeaderBuilder {
    fn new(name: &[u8], typeflag: u8, meta: &EntryAttributes, size: u64) -> Self {
        let mut block = [0; BLOCK_BYTES];
        let length = name.len().min(NAME_BYTES);
        block[..length].copy_from_slice(&name[..length]);
        number::write_field(&mut block[100..108], meta.mode.into());
        number::write_field(&mut block[108..116], meta.uid.into());
        number::write_field(&mut block[116..124], meta.gid.into());
        number::write_field(&mut block[124..136], size.into());
        number::write_field(&mut block[136..148], meta.mtime.into());
        block[156] = typeflag;
        block[257..265].copy_from_slice(b"ustar  \0");
        Self(block)
    }

    fn set_link_target(&mut self, target: &[u8]) {
        let length = target.len().min(NAME_BYTES);
        self.0[157..157 + length].copy_from_slice(&target[..length]);
    }

    fn set_device(&mut self, major: u32, minor: u32) {
        number::write_field(&mut self.0[329..337], major.into());
        number::write_field(&mut self.0[337..345], minor.into());
    }

    fn set_sparse_map(&mut self, size: u64, regions: &[DataRegion], is_continued: bool) {
        write_regions(&mut self.0[386..482], regions);
        self.0[482] = is_continued.into();
        number::write_field(&mut self.0[483..495], size.into());
    }

    /// Returns the block with its checksum: six digits, NUL, space. The checksum is calculated as
    /// if its field held spaces.
    fn into_block(mut self) -> Block {
        self.0[148..156].fill(b' ');
        let sum: i128 = self.0.iter().map(|byte| i128::from(*byte)).sum();
        number::write_field(&mut self.0[148..155], sum);
        self.0
    }
}

/// Returns a block that continues a sparse map.
fn continuation_block(regions: &[DataRegion], is_continued: bool) -> Block {
    let mut block = [0; BLOCK_BYTES];
    write_regions(&mut block[..504], regions);
    block[504] = is_continued.into();
    block
}

fn write_regions(bytes: &mut [u8], regions: &[DataRegion]) {
    for (entry, region) in bytes.chunks_exact_mut(SPARSE_ENTRY_BYTES).zip(regions) {
        let (offset, length) = entry.split_at_mut(SPARSE_ENTRY_BYTES / 2);
        number::write_field(offset, region.offset.into());
        number::write_field(length, region.length.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{TarHeader, more_regions as read_more};
    use super::super::sparse::StoredRanges;
    use super::*;

    const META: EntryAttributes =
        EntryAttributes { mode: 0o4755, uid: 107, gid: 3_000_000, mtime: -5 };

    fn parsed(bytes: &[u8]) -> TarHeader<'_> {
        let block = bytes.last_chunk::<BLOCK_BYTES>().unwrap();
        TarHeader::parse(block).unwrap()
    }

    #[test]
    fn our_reader_accepts_our_headers() {
        let bytes = encode_header(b"name", &META, &NewEntryKind::File { size: 1 << 40 });
        let header = parsed(&bytes);
        assert!(header.is_old_gnu());
        assert_eq!(header.name(), b"name");
        assert_eq!(header.mode().unwrap(), 0o4755);
        assert_eq!(header.mtime().unwrap(), -5);
        assert_eq!(header.size().unwrap(), 1 << 40);
    }

    #[test]
    fn a_long_sparse_map_continues_after_its_header() {
        for count in [1_u64, 4, 5, 25, 26, 100] {
            let regions: Vec<DataRegion> =
                (0..count).map(|index| DataRegion { offset: index << 33, length: 512 }).collect();
            let size = count << 33;
            let bytes = encode_header(
                b"disk.img",
                &META,
                &NewEntryKind::Sparse { size, regions: &regions },
            );
            let header = parsed(&bytes);
            assert_eq!(header.type_flag(), b'S');
            assert_eq!(header.real_size().unwrap(), size);
            assert_eq!(header.size().unwrap(), count * 512);
            let mut read = StoredRanges::default();
            let mut is_more = header.sparse_regions(&mut read).unwrap();
            for block in more_regions(&regions) {
                assert!(is_more, "a map block that the previous block did not announce");
                is_more = read_more(&block, &mut read).unwrap();
            }
            assert!(!is_more && read.count() == count);
        }
    }

    #[test]
    fn an_archive_is_padded_to_whole_records() {
        assert_eq!(end_bytes(0), 10_240);
        assert_eq!(end_bytes(10_240 - 1024), 1024);
        assert_eq!(end_bytes(10_240 - 512), 10_240 + 512);
        assert_eq!((padding_bytes(0), padding_bytes(1), padding_bytes(512)), (0, 511, 0));
    }
}
