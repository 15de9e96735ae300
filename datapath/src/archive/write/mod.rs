//! Headers of a tar, as GNU tar writes them with `--format=gnu --numeric-owner`, to the byte. No files are touched here.

mod fields;

use self::fields::Fields;
use super::header::BLOCK_BYTES;

/// Most data regions of a sparse file: what our reader takes, the empty one at the end included.
pub const MAX_REGIONS: u64 = super::sparse::MAX_REGIONS - 1;

/// A tar is made of records of 20 blocks, the last of which is filled up (GNU tar, `--blocking-factor`).
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES as u64;

/// Bytes of a name, or of a link's target, that the header itself has room for.
const NAME_BYTES: usize = 100;

/// What entries with names that are too long for a header are called.
const LONG_LINK: &[u8] = b"././@LongLink";

/// Regions of a sparse file in its header, and in each of the blocks that continue it.
const HEADER_REGIONS: usize = 4;
const BLOCK_REGIONS: usize = 21;

/// A part of a sparse file that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it begins. A multiple of 512.
    pub offset: u64,
    /// Bytes. A multiple of 512, unless the region ends where the file does.
    pub length: u64,
}

/// What every entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Permissions with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Seconds since 1970, rounded down.
    pub mtime: i64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A file whose bytes follow the header.
    File {
        /// Bytes of the file.
        size: u64,
    },
    /// A file of which only the data follows: [`more_regions`], and then region by region. GNU tar ends the list with an
    /// empty region where the file ends.
    Sparse {
        /// Bytes of the file, holes included.
        size: u64,
        /// Where its data is.
        regions: &'a [Region],
    },
    /// Another name of the file with this one.
    HardLink(&'a [u8]),
    /// A link to this target.
    Symlink(&'a [u8]),
    /// A directory; its name ends with a slash.
    Directory,
    /// A named pipe.
    Fifo,
    /// A character device.
    Character {
        /// The driver.
        major: u32,
        /// Which of its devices.
        minor: u32,
    },
    /// A block device.
    Block {
        /// The driver.
        major: u32,
        /// Which of its devices.
        minor: u32,
    },
}

impl Kind<'_> {
    fn typeflag(&self) -> u8 {
        match self {
            Self::File { .. } => b'0',
            Self::HardLink(_) => b'1',
            Self::Symlink(_) => b'2',
            Self::Character { .. } => b'3',
            Self::Block { .. } => b'4',
            Self::Directory => b'5',
            Self::Fifo => b'6',
            Self::Sparse { .. } => b'S',
        }
    }

    /// Bytes of data in the archive.
    fn stored_bytes(&self) -> u64 {
        match self {
            Self::File { size } => *size,
            Self::Sparse { regions, .. } => regions.iter().map(|region| region.length).sum(),
            _ => 0,
        }
    }

    fn target(&self) -> &[u8] {
        match self {
            Self::HardLink(target) | Self::Symlink(target) => target,
            _ => &[],
        }
    }
}

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
    use super::super::header::{Header, more_regions as read_more};
    use super::super::sparse::Regions;
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
