//! Reads a block device, or a disk image file, from its first byte to its last.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use codec::encode::PIECE_BYTES;
use codec::encode::outlet::PieceOutlet;
use rustix::fs::{FileType, Mode, OFlags};
use stream::local::{LocalExtent, LocalFile};
use stream::storage::StorageLocation;

use super::VolumeReadError;

/// An open disk.
pub(crate) struct DeviceSource {
    local: LocalFile,
    path: PathBuf,
}

impl DeviceSource {
    pub(crate) fn open(path: &Path) -> Result<Self, VolumeReadError> {
        let fail = |action| move |errno| VolumeReadError::from_errno(action, path, errno);
        // Without `NONBLOCK`, opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail("open"))?;
        let stat = rustix::fs::fstat(&file).map_err(fail("stat"))?;
        if !matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::BlockDevice | FileType::RegularFile
        ) {
            return Err(VolumeReadError::Unsupported { path: path.to_owned() });
        }
        let local = LocalFile::new(File::from(file));
        Ok(Self {
            local: local.map_err(|source| io_error("find the size of", path, source))?,
            path: path.to_owned(),
        })
    }

    /// Returns the size of the disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.local.size()
    }

    /// Returns where the disk's bytes are stored.
    pub(super) fn storage_location(&self) -> Option<StorageLocation> {
        StorageLocation::from_file(&self.local)
    }

    /// Returns the open disk.
    pub(crate) fn as_local(&self) -> &LocalFile {
        &self.local
    }

    /// Creates the error for a read that failed.
    pub(crate) fn read_error(&self, source: io::Error) -> VolumeReadError {
        io_error("read", &self.path, source)
    }

    /// Reads the disk from `offset` to its end into `outlet`. Calls `seen` with each part before
    /// the part is passed on.
    pub(crate) fn read_from(
        &self,
        offset: u64,
        outlet: &mut PieceOutlet<'_>,
        mut seen: impl FnMut(&LocalExtent),
    ) -> Result<(), VolumeReadError> {
        let mut reader = self.local.chunk_reader(PIECE_BYTES);
        reader.skip_to(offset);
        while let Some(part) = reader.next_part().map_err(|source| self.read_error(source))? {
            seen(&part);
            match part {
                LocalExtent::Hole(bytes) => outlet.append_zeros(bytes)?,
                LocalExtent::Data(bytes) => outlet.append_piece(bytes)?,
            }
        }
        outlet.flush()?;
        // Holes are not read, so a file that was truncated may look like one that ends with a
        // hole.
        let end = self.local.size_now();
        let end = end.map_err(|source| io_error("find the size of", &self.path, source))?;
        let (path, announced) = (&self.path, self.size());
        let at = end.min(reader.position());
        if at < announced {
            let path = path.clone();
            return Err(VolumeReadError::Shrank { path, announced, at });
        }
        if end > announced {
            let path = path.display();
            tracing::warn!(
                "{path} grew to {end} bytes while it was read: the clone contains only the first {announced}"
            );
        }
        Ok(())
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> VolumeReadError {
    VolumeReadError::Io { action, path: path.to_owned(), source }
}
