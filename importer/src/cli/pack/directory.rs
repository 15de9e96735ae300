//! Writes a layout as a directory: `oci:DIR`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use datapath::disk::folder_of;
use rustix::io::Errno;
use stream::error::TargetError;

use super::LayoutWriter;
use super::documents::{BLOBS, INDEX, LAYOUT, LayoutDocuments};
use super::leftover::{BlobList, LIST_NAME, blob_directory, is_layout, named_blobs, remove_unused};
use super::staged_file::{StagedFile, lock, refuse_existing, sync_directory};

/// Name of the file that is being written. It becomes a blob or the index.
const STAGED_NAME: &str = ".cdi-importer-pack";

/// A layout in a directory. The index comes last: without it, there is no layout.
pub(super) struct DirectoryWriter {
    directory: PathBuf,
    replace: bool,
    /// Names of the blobs of this layout.
    blobs: BTreeSet<String>,
    /// Names of the blobs of the layout that is replaced.
    replaced: BTreeSet<String>,
    list: BlobList,
    /// Dropped before `created`, which then finds its directory empty.
    staged: Option<StagedFile>,
    position: u64,
    created: CreatedPaths,
}

/// Files and directories that this job created, outermost first. Dropping it removes them.
struct CreatedPaths {
    paths: Vec<PathBuf>,
    /// The open directory of the layout. It is locked until the paths are removed.
    _lock: File,
}

impl DirectoryWriter {
    pub(super) fn open(directory: &Path, replace: bool) -> Result<Self, TargetError> {
        refuse_existing(&directory.join(INDEX), replace)?;
        let mut paths = Vec::new();
        // The directory itself may be reached by a symbolic link.
        if !directory.is_dir() {
            create_directory(directory, &mut paths)?;
        }
        let opened =
            File::open(directory).map_err(|source| TargetError::new("open", directory, source))?;
        lock(&opened, directory)?;
        // Only now: without the lock, another job may already use the new directory.
        let mut created = CreatedPaths { paths, _lock: opened };
        // Another job may have completed its layout before the lock was taken.
        refuse_existing(&directory.join(INDEX), replace)?;
        let content = check_content(directory, replace)?;
        let (list, listed) = BlobList::open(directory)?;
        created.paths.push(list.path().to_owned());
        let mut writer = Self {
            directory: directory.to_owned(),
            replace,
            blobs: BTreeSet::new(),
            replaced: BTreeSet::new(),
            list,
            staged: None,
            position: 0,
            created,
        };
        let blobs = blob_directory(directory);
        for path in [directory.join(BLOBS), blobs.clone()] {
            create_directory(&path, &mut writer.created.paths)?;
            if content == DirectoryContent::Unfinished {
                writer.created.paths.push(path);
            }
        }
        match content {
            DirectoryContent::Nothing => {}
            DirectoryContent::Unfinished => {
                let names = [LAYOUT, STAGED_NAME];
                writer.created.paths.extend(names.map(|name| directory.join(name)));
            }
            DirectoryContent::Layout => writer.replaced = named_blobs(directory),
        }
        for name in listed.difference(&writer.replaced) {
            remove_unused(&blobs.join(name));
        }
        writer.list.clear_list()?;
        Ok(writer)
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
        let existed = fs::symlink_metadata(path).is_ok();
        staged.publish(path, true)?;
        if !existed {
            self.created.paths.push(path.to_owned());
        }
        Ok(())
    }

    fn write_blob(&mut self, digest: &str, bytes: &[u8]) -> Result<(), TargetError> {
        self.append_bytes(bytes)?;
        self.end_blob(digest)
    }
}

impl LayoutWriter for DirectoryWriter {
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), TargetError> {
        let staged = match self.staged.take() {
            Some(staged) => staged,
            None => {
                self.position = 0;
                self.stage(&self.directory)?
            }
        };
        self.staged.insert(staged).write_at(self.position, bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn end_blob(&mut self, digest: &str) -> Result<(), TargetError> {
        let name = digest.trim_start_matches("sha256:");
        let path = blob_directory(&self.directory).join(name);
        let staged = match self.staged.take() {
            Some(staged) => staged,
            None => self.stage(&self.directory)?,
        };
        // The blob is listed first, so that it is known after a kill.
        if fs::symlink_metadata(&path).is_err() {
            self.list.add_blob(name)?;
        }
        self.publish(staged, &path)?;
        self.blobs.insert(name.to_owned());
        Ok(())
    }

    fn finish_layout(mut self: Box<Self>, documents: &LayoutDocuments) -> Result<(), TargetError> {
        for blob in [&documents.config, &documents.manifest] {
            self.write_blob(&blob.digest, &blob.bytes)?;
        }
        let directory = self.directory.clone();
        self.write_file(&directory.join(LAYOUT), &documents.oci_layout)?;
        let blobs = blob_directory(&directory);
        sync_directory(&blobs)?;
        sync_directory(&directory)?;
        let index = directory.join(INDEX);
        let staged = self.stage(&index)?;
        staged.write_at(0, &documents.index)?;
        // Replaced blobs are listed before they lose their use, so that none stays after a kill.
        let unused: Vec<String> = self.replaced.difference(&self.blobs).cloned().collect();
        for name in &unused {
            self.list.add_blob(name)?;
        }
        staged.publish(&index, self.replace)?;
        // The layout is complete now, so a later failure must not remove it.
        let is_new = self.created.paths.contains(&directory);
        self.created.paths.clear();
        for name in &unused {
            remove_unused(&blobs.join(name));
        }
        remove_unused(self.list.path());
        sync_directory(&directory)?;
        if is_new { sync_directory(folder_of(&directory)) } else { Ok(()) }
    }
}

impl Drop for CreatedPaths {
    fn drop(&mut self) {
        for path in self.paths.iter().rev() {
            // A directory stays if another program has created files in it.
            if fs::remove_file(path).is_err() {
                fs::remove_dir(path).ok();
            }
        }
    }
}

/// The content of a directory before a layout is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryContent {
    Nothing,
    /// The remains of a killed job.
    Unfinished,
    /// A layout that may be replaced.
    Layout,
}

/// Determines what `directory` holds. Fails if that must not be changed.
fn check_content(directory: &Path, replace: bool) -> Result<DirectoryContent, TargetError> {
    let list_failed = |source| TargetError::new("list", directory, source);
    let refused = |why: String| Err(TargetError::new("write to", directory, io::Error::other(why)));
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(list_failed)? {
        let name = entry.map_err(list_failed)?.file_name();
        if ![INDEX, LAYOUT, BLOBS, STAGED_NAME, LIST_NAME].iter().any(|known| name == *known) {
            return refused(format!(
                "it contains {}, which does not belong to an OCI layout; pass an empty or a new directory",
                printable::escape_prefix(name.as_encoded_bytes(), 64)
            ));
        }
        names.push(name);
    }
    let contains = |wanted: &str| names.iter().any(|name| name == wanted);
    if names.is_empty() {
        return Ok(DirectoryContent::Nothing);
    }
    if contains(LIST_NAME) && !contains(INDEX) {
        return Ok(DirectoryContent::Unfinished);
    }
    if replace && is_layout(directory) {
        return Ok(DirectoryContent::Layout);
    }
    refused(
        "it is neither empty nor a complete OCI layout; pass an empty or a new directory"
            .to_owned(),
    )
}

/// Creates `path` unless it is a directory already. A symbolic link to one is refused, because it
/// may lead to files that do not belong to the layout.
fn create_directory(path: &Path, created: &mut Vec<PathBuf>) -> Result<(), TargetError> {
    let failed = |source| TargetError::new("create", path, source);
    match fs::create_dir(path) {
        Ok(()) => created.push(path.to_owned()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let kind = fs::symlink_metadata(path).map_err(failed)?.file_type();
            if kind.is_symlink() {
                let why = "it is a symbolic link; pass an empty or a new directory";
                return Err(failed(io::Error::other(why)));
            }
            if !kind.is_dir() {
                return Err(failed(Errno::NOTDIR.into()));
            }
        }
        Err(error) => return Err(failed(error)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_does_not_stay_if_its_list_cannot_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let mut parent = folder.path().to_owned();
        while parent.as_os_str().len() < 3900 {
            parent.push("x".repeat(100));
        }
        fs::create_dir_all(&parent).unwrap();
        // Linux has a limit of 4095 bytes, which the path of the list exceeds.
        let directory = parent.join("x".repeat(4079 - parent.as_os_str().len()));
        let error = DirectoryWriter::open(&directory, false).err().unwrap().to_string();
        assert!(error.contains(LIST_NAME), "{error}");
        assert!(!directory.exists());
    }

    #[test]
    fn a_dropped_layout_leaves_neither_blobs_nor_their_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = DirectoryWriter::open(folder.path(), false).unwrap();
        writer.write_blob("sha256:1", b"whole").unwrap();
        writer.append_bytes(b"begun").unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
