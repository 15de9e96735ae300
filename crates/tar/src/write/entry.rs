//! Description of an entry to be written.

/// Largest size of a name or a link target, in bytes, that fits into the header itself.
pub(super) const NAME_BYTES: usize = 100;

/// A part of a sparse file that contains data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataRegion {
    /// Offset in the file, a multiple of 512.
    pub offset: u64,
    /// Size in bytes, a multiple of 512 unless the region ends at the end of the file.
    pub length: u64,
}

/// Attributes that every entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryAttributes {
    /// Permissions with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// ID of the group.
    pub gid: u32,
    /// Modification time in seconds since 1970, rounded down.
    pub mtime: i64,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewEntryKind<'a> {
    /// A file whose bytes follow the header.
    File {
        /// Size of the file in bytes.
        size: u64,
    },
    /// A sparse file. The header is followed by [`more_regions`](super::more_regions) and then by
    /// the data of each region. GNU tar ends the list with an empty region at the end of the file.
    Sparse {
        /// Size of the file in bytes, holes included.
        size: u64,
        /// The regions with data.
        regions: &'a [DataRegion],
    },
    /// A hard link to the file with this name.
    HardLink(&'a [u8]),
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A directory; its name ends with a slash.
    Directory,
    /// A named pipe.
    Fifo,
    /// A character device.
    Character {
        /// The major number, which selects the driver.
        major: u32,
        /// The minor number, which selects the device.
        minor: u32,
    },
    /// A block device.
    Block {
        /// The major number, which selects the driver.
        major: u32,
        /// The minor number, which selects the device.
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

    /// Size of the entry's data in the archive, in bytes.
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
