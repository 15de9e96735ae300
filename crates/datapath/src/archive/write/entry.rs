//! An entry that is to be written.

/// Bytes of a name, or of a link's target, that the header itself has room for.
pub(super) const NAME_BYTES: usize = 100;

/// A part of a sparse file that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataRegion {
    /// Its offset in the file. A multiple of 512.
    pub offset: u64,
    /// Bytes. A multiple of 512, unless the region ends where the file does.
    pub length: u64,
}

/// Attributes of every entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryAttributes {
    /// Permissions with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Seconds since 1970, rounded down.
    pub mtime: i64,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewEntryKind<'a> {
    /// A file whose bytes follow the header.
    File {
        /// Bytes of the file.
        size: u64,
    },
    /// A file of which only the data follows: [`more_regions`](super::more_regions), and then region by region. GNU tar ends the list with an
    /// empty region where the file ends.
    Sparse {
        /// Bytes of the file, holes included.
        size: u64,
        /// The parts with data.
        regions: &'a [DataRegion],
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
        /// The number of the device.
        minor: u32,
    },
    /// A block device.
    Block {
        /// The driver.
        major: u32,
        /// The number of the device.
        minor: u32,
    },
}

impl NewEntryKind<'_> {
    pub(super) fn type_flag(&self) -> u8 {
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
    pub(super) fn stored_bytes(&self) -> u64 {
        match self {
            Self::File { size } => *size,
            Self::Sparse { regions, .. } => regions.iter().map(|region| region.length).sum(),
            _ => 0,
        }
    }

    pub(super) fn link_target(&self) -> &[u8] {
        match self {
            Self::HardLink(target) | Self::Symlink(target) => target,
            _ => &[],
        }
    }
}
