//! Leftovers of earlier jobs in the directory of a layout: the layout that is replaced, and the
//! blobs of a job that was killed. No other blob is removed, because it may be somebody else's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use program::limited::read_limited;
use serde::Deserialize;
use serde_json::Value;
use stream::error::TargetError;

use super::documents::{BLOBS, INDEX, LAYOUT};
use super::staged_file::open_regular;

/// Name of the list of blobs in an unfinished layout.
pub(super) const LIST_NAME: &str = ".cdi-importer-pack.blobs";

/// Largest document or list that is read.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

/// The list of the blobs that a job has created, in the directory of its layout. It exists until
/// the layout is complete, so that the next job can remove what a killed one left.
pub(super) struct BlobList {
    path: PathBuf,
    file: File,
}

impl BlobList {
    /// Opens or creates the list. Also returns the blobs in it.
    pub(super) fn open(directory: &Path) -> Result<(Self, BTreeSet<String>), TargetError> {
        let path = directory.join(LIST_NAME);
        let opened = match open_regular(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut options = fs::OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o644).open(&path)
            }
            opened => opened,
        };
        let read = opened.and_then(|file| Ok((read_limited(&file, MAX_DOCUMENT_BYTES)?, file)));
        let (bytes, file) = read.map_err(|source| TargetError::new("open", &path, source))?;
        // A kill may have cut the last line, but its blob did not exist yet then.
        let listed = String::from_utf8_lossy(&bytes)
            .lines()
            .filter(|name| is_blob_name(name))
            .map(str::to_owned)
            .collect();
        Ok((Self { path, file }, listed))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a blob that is about to be created, or will have no use any more.
    pub(super) fn add_blob(&mut self, name: &str) -> Result<(), TargetError> {
        let written = writeln!(self.file, "{name}");
        written.map_err(|source| TargetError::new("write", &self.path, source))
    }

    /// Removes all blobs from the list.
    pub(super) fn clear_list(&mut self) -> Result<(), TargetError> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        cleared.map_err(|source| TargetError::new("write", &self.path, source))
    }
}

/// The parts of an index or a manifest that name blobs.
#[derive(Deserialize)]
struct ReplacedDocument {
    manifests: Option<Vec<ReplacedBlob>>,
    layers: Option<Vec<ReplacedBlob>>,
    config: Option<ReplacedBlob>,
}

#[derive(Deserialize)]
struct ReplacedBlob {
    digest: String,
}

impl ReplacedBlob {
    /// The name of the blob's file. `None` for a digest of another kind.
    fn name(&self) -> Option<String> {
        self.digest.strip_prefix("sha256:").filter(|name| is_blob_name(name)).map(str::to_owned)
    }
}

/// Returns true if `directory` holds a complete OCI layout.
pub(super) fn is_layout(directory: &Path) -> bool {
    let version = read_json::<Value>(&directory.join(LAYOUT));
    let index = read_json::<ReplacedDocument>(&directory.join(INDEX));
    version.is_some_and(|found| found.get("imageLayoutVersion").is_some_and(Value::is_string))
        && index.is_some_and(|found| found.manifests.is_some())
}

/// Returns the names of the blobs that the layout in `directory` uses.
pub(super) fn named_blobs(directory: &Path) -> BTreeSet<String> {
    let blobs = blob_directory(directory);
    let mut named = BTreeSet::new();
    let mut waiting = vec![directory.join(INDEX)];
    while let Some(path) = waiting.pop() {
        let Some(document) = read_json::<ReplacedDocument>(&path) else {
            continue;
        };
        for name in document.manifests.iter().flatten().filter_map(ReplacedBlob::name) {
            let manifest = blobs.join(&name);
            if named.insert(name) {
                waiting.push(manifest);
            }
        }
        let content = document.layers.iter().flatten().chain(&document.config);
        named.extend(content.filter_map(ReplacedBlob::name));
    }
    named
}

/// Returns the directory of the blobs in the layout `directory`.
pub(super) fn blob_directory(directory: &Path) -> PathBuf {
    directory.join(BLOBS).join("sha256")
}

/// Removes a blob, or the list of blobs, that has no use any more.
pub(super) fn remove_unused(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "could not remove an unused file");
    }
}

fn is_blob_name(name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.len() == 64 && name.bytes().all(is_hex)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = open_regular(path).and_then(|file| read_limited(file, MAX_DOCUMENT_BYTES)).ok()?;
    serde_json::from_slice(&bytes).ok()
}
