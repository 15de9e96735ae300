//! Writes a layout as a directory: `oci:DIR`.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use datapath::disk::folder_of;
use datapath::error::TargetError;
use rustix::io::Errno;

use super::LayoutWriter;
use super::documents::LayoutDocuments;
use super::staged_file::{StagedFile, lock, refuse_existing, sync_directory};

/// Name of the file that is being written. It becomes a blob or the index.
const STAGED_NAME: &str = ".cdi-importer-pack";

/// The names in a layout.
const INDEX: &str = "index.json";
const LAYOUT: &str = "oci-layout";
const BLOBS: &str = "blobs";

/// A layout in a directory. The index comes last: without it, there is no layout.
pub(super) struct DirectoryWriter {
    directory: PathBuf,
    replace: bool,
    /// Blobs of this layout.
    blobs: Vec<PathBuf>,
    /// Files and directories that this job created, outermost first. They are removed after a
    /// failure.
    created: Vec<PathBuf>,
    staged: Option<StagedFile>,
    position: u64,
    /// The open directory, which holds the lock.
    _lock: File,
}

impl DirectoryWriter {
    pub(super) fn open(directory: &Path, replace: bool) -> Result<Self, TargetError> {
        refuse_existing(&directory.join(INDEX), replace)?;
        let mut created = Vec::new();
        create_directory(directory, &mut created)?;
        let failed =
            |action: &'static str| move |source| TargetError::new(action, directory, source);
        let opened = File::open(directory).map_err(failed("open"))?;
        lock(&opened, directory)?;
        for entry in fs::read_dir(directory).map_err(failed("list"))? {
            let name = entry.map_err(failed("list"))?.file_name();
            if ![INDEX, LAYOUT, BLOBS, STAGED_NAME].iter().any(|known| name == *known) {
                let foreign = format!(
                    "it contains {}, which does not belong to an OCI layout; pass an empty or a new directory",
                    printable::escape_prefix(name.as_encoded_bytes(), 64)
                );
                return Err(failed("write to")(io::Error::other(foreign)));
            }
        }
        let mut writer = Self {
            directory: directory.to_owned(),
            replace,
            blobs: Vec::new(),
            created,
            staged: None,
            position: 0,
            _lock: opened,
        };
        let blobs = writer.blob_directory();
        create_directory(&directory.join(BLOBS), &mut writer.created)?;
        create_directory(&blobs, &mut writer.created)?;
        Ok(writer)
    }

    fn blob_directory(&self) -> PathBuf {
        self.directory.join(BLOBS).join("sha256")
    }

    fn stage(&self, shown: &Path) -> Result<StagedFile, TargetError> {
        StagedFile::create(self.directory.join(STAGED_NAME), shown)
    }

    fn write_file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), TargetError> {
        let staged = self.stage(path)?;
        staged.write_at(0, bytes)?;
        self.publish(staged, path)
    }

    fn publish(&mut self, staged: StagedFile, path: &Path) -> Result<(), TargetError> {
        let existed = path.exists();
        staged.publish(path, true)?;
        if !existed {
            self.created.push(path.to_owned());
        }
        Ok(())
    }

    fn write_blob(&mut self, digest: &str, bytes: &[u8]) -> Result<(), TargetError> {
        self.begin_blob()?;
        self.append_bytes(bytes)?;
        self.end_blob(digest)
    }

    /// Removes all blobs that this layout does not use. A replaced layout or an attempt that was
    /// killed has left them.
    fn remove_other_blobs(&self) {
        for entry in fs::read_dir(self.blob_directory()).into_iter().flatten().flatten() {
            let path = entry.path();
            if !self.blobs.contains(&path)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), %error, "could not remove an unused blob");
            }
        }
    }
}

impl LayoutWriter for DirectoryWriter {
    fn begin_blob(&mut self) -> Result<(), TargetError> {
        self.staged = Some(self.stage(&self.directory)?);
        self.position = 0;
        Ok(())
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), TargetError> {
        if let Some(staged) = &self.staged {
            staged.write_at(self.position, bytes)?;
            self.position += bytes.len() as u64;
        }
        Ok(())
    }

    fn end_blob(&mut self, digest: &str) -> Result<(), TargetError> {
        let path = self.blob_directory().join(digest.trim_start_matches("sha256:"));
        if let Some(staged) = self.staged.take() {
            self.publish(staged, &path)?;
        }
        self.blobs.push(path);
        Ok(())
    }

    fn finish_layout(mut self: Box<Self>, documents: &LayoutDocuments) -> Result<(), TargetError> {
        for blob in [&documents.config, &documents.manifest] {
            self.write_blob(&blob.digest, &blob.bytes)?;
        }
        let directory = self.directory.clone();
        self.write_file(&directory.join(LAYOUT), &documents.oci_layout)?;
        sync_directory(&self.blob_directory())?;
        sync_directory(&directory)?;
        let index = directory.join(INDEX);
        let staged = self.stage(&index)?;
        staged.write_at(0, &documents.index)?;
        staged.publish(&index, self.replace)?;
        // The layout is complete now, so a later failure must not remove it.
        let is_new = self.created.contains(&directory);
        self.created.clear();
        self.remove_other_blobs();
        sync_directory(&directory)?;
        if is_new { sync_directory(folder_of(&directory)) } else { Ok(()) }
    }
}

impl Drop for DirectoryWriter {
    fn drop(&mut self) {
        self.staged = None;
        for path in self.created.iter().rev() {
            // A directory stays if another program has created files in it.
            if fs::remove_file(path).is_err() {
                fs::remove_dir(path).ok();
            }
        }
    }
}

/// Creates `path` unless it is a directory already.
fn create_directory(path: &Path, created: &mut Vec<PathBuf>) -> Result<(), TargetError> {
    match fs::create_dir(path) {
        Ok(()) => created.push(path.to_owned()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if !path.is_dir() {
                return Err(TargetError::new("create", path, Errno::NOTDIR.into()));
            }
        }
        Err(error) => return Err(TargetError::new("create", path, error)),
    }
    Ok(())
}
