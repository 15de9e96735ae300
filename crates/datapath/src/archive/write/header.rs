//! Headers of entries, and the zeros between and behind them.

use super::super::header::BLOCK_BYTES;
use super::super::sparse;
use super::entry::{Kind, Meta, NAME_BYTES, Region};
use super::fields::{self, Fields};

/// Most data regions of a sparse file: what our reader takes, the empty one at the end included.
pub const MAX_REGIONS: u64 = sparse::MAX_REGIONS - 1;

/// A tar is made of records of 20 blocks, the last of which is filled up (GNU tar, `--blocking-factor`).
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES as u64;

/// Name of the entry before one whose name is too long for a header.
const LONG_LINK: &[u8] = b"././@LongLink";

/// Regions of a sparse file in its header, and in each of the blocks that continue it.
const HEADER_REGIONS: usize = 4;
const BLOCK_REGIONS: usize = 21;

/// The header of an entry, with what goes before it if its names are long.
pub fn header(name: &[u8], meta: &Meta, kind: &Kind<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    let target = kind.target();
    if target.len() > NAME_BYTES {
        long_name(b'K', target, &mut bytes);
    }
    if name.len() > NAME_BYTES {
        long_name(b'L', name, &mut bytes);
    }
    let mut fields = Fields::new(name, kind.typeflag(), meta, kind.stored_bytes());
    fields.target(target);
    match *kind {
        Kind::Character { major, minor } | Kind::Block { major, minor } => fields.device(major, minor),
        Kind::Sparse { size, regions } => {
            let here = regions.len().min(HEADER_REGIONS);
            fields.sparse(size, &regions[..here], regions.len() > here);
        }
        _ => {}
    }
    bytes.extend_from_slice(&fields.seal());
    bytes
}

/// An entry whose data is the name of the next one.
fn long_name(typeflag: u8, name: &[u8], bytes: &mut Vec<u8>) {
    let meta = Meta {
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: 0,
    };
    // With the NUL behind it.
    let length = name.len() + 1;
    bytes.extend_from_slice(&Fields::new(LONG_LINK, typeflag, &meta, length as u64).seal());
    bytes.extend_from_slice(name);
    bytes.resize(bytes.len() + 1 + padding(length as u64), 0);
}

/// The blocks with the regions of a sparse file that its header has no room for.
pub fn more_regions(regions: &[Region]) -> impl Iterator<Item = [u8; BLOCK_BYTES]> + '_ {
    let rest = regions.get(HEADER_REGIONS..).unwrap_or_default();
    let blocks = rest.chunks(BLOCK_REGIONS);
    let last = blocks.len().saturating_sub(1);
    blocks
        .enumerate()
        .map(move |(index, regions)| fields::continuation(regions, index < last))
}

/// Zero bytes that follow `length` bytes of data: blocks are filled up.
pub fn padding(length: u64) -> usize {
    let beyond = usize::try_from(length % BLOCK_BYTES as u64).unwrap_or(0);
    (BLOCK_BYTES - beyond) % BLOCK_BYTES
}

/// Zero bytes that end an archive of `length` bytes: two blocks, and what fills up the record.
pub fn end_bytes(length: u64) -> u64 {
    let least = length + 2 * BLOCK_BYTES as u64;
    least.next_multiple_of(RECORD_BYTES) - length
}

#[cfg(test)]
mod tests {
    use super::super::super::header::{Header, more_regions as read_more};
    use super::super::super::sparse::Regions;
    use super::*;

    const META: Meta = Meta {
        mode: 0o4755,
        uid: 107,
        gid: 3_000_000,
        mtime: -5,
    };

    fn parsed(bytes: &[u8]) -> Header<'_> {
        let block = bytes.last_chunk::<BLOCK_BYTES>().unwrap();
        Header::parse(block).unwrap()
    }

    #[test]
    fn our_reader_reads_it() {
        let bytes = header(b"name", &META, &Kind::File { size: 1 << 40 });
        let header = parsed(&bytes);
        assert!(header.is_old_gnu());
        assert_eq!(header.name(), b"name");
        assert_eq!(header.mode().unwrap(), 0o4755);
        assert_eq!(header.mtime().unwrap(), -5);
        assert_eq!(header.size().unwrap(), 1 << 40);
    }

    #[test]
    fn the_map_of_a_sparse_file_goes_on_behind_its_header() {
        for count in [1_u64, 4, 5, 25, 26, 100] {
            let regions: Vec<Region> = (0..count)
                .map(|index| Region {
                    offset: index << 33,
                    length: 512,
                })
                .collect();
            let size = count << 33;
            let bytes = header(
                b"disk.img",
                &META,
                &Kind::Sparse {
                    size,
                    regions: &regions,
                },
            );
            let header = parsed(&bytes);
            assert_eq!(header.typeflag(), b'S');
            assert_eq!(header.real_size().unwrap(), size);
            assert_eq!(header.size().unwrap(), count * 512);
            let mut read = Regions::default();
            let mut is_more = header.sparse_regions(&mut read).unwrap();
            for block in more_regions(&regions) {
                assert!(is_more, "a block that nobody announced");
                is_more = read_more(&block, &mut read).unwrap();
            }
            assert!(!is_more && read.count() == count);
        }
    }

    #[test]
    fn an_archive_is_made_of_whole_records() {
        assert_eq!(end_bytes(0), 10_240);
        assert_eq!(end_bytes(10_240 - 1024), 1024);
        assert_eq!(end_bytes(10_240 - 512), 10_240 + 512);
        assert_eq!((padding(0), padding(1), padding(512)), (0, 511, 0));
    }
}
