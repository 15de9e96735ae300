//! The last resort for parked clusters (rung D of the ladder in `park`): a file in a directory
//! that the user chose. It disappears as soon as it is closed.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stream::error::TargetError;

use crate::unnamed_file::create_unnamed;

/// Stores parked clusters one after the other.
pub(super) struct ScratchFile {
    dir: PathBuf,
    file: File,
    end: u64,
    clusters: HashMap<u64, (u64, usize)>,
}

impl ScratchFile {
    pub(super) fn open(dir: &Path) -> Result<Self, TargetError> {
        let file = create_unnamed(dir)?;
        Ok(Self { dir: dir.to_owned(), file, end: 0, clusters: HashMap::new() })
    }

    pub(super) fn write_cluster(&mut self, host: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.file
            .write_all_at(bytes, self.end)
            .map_err(|source| TargetError::new("write scratch file in", &self.dir, source))?;
        self.clusters.insert(host, (self.end, bytes.len()));
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn read_cluster(&self, host: u64) -> Result<Bytes, TargetError> {
        let (offset, length) = self.clusters.get(&host).copied().unwrap_or_default();
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| TargetError::new("read scratch file in", &self.dir, source))?;
        Ok(bytes.into())
    }
}
