//! The two files with which the containers of the pod signal their progress to each other.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval between two checks for the done file (contract, appendix B).
const POLL: Duration = Duration::from_secs(1);

/// The ready file, which exists while the disk is served.
pub(crate) struct ReadyFile {
    file: PathBuf,
}

impl ReadyFile {
    /// Writes the disk's name to `file`. The importer polls for this file, so it is renamed into
    /// place with its complete content.
    pub(crate) fn announce_disk(file: &Path, name: &[u8]) -> io::Result<Self> {
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?
            .write_all(name)?;
        fs::rename(&unfinished, file)?;
        Ok(Self { file: file.to_owned() })
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.file) {
            tracing::warn!("cannot remove {}: {error}", self.file.display());
        }
    }
}

/// Waits until `file` appears, and removes it.
pub(crate) async fn wait_for_done(file: &Path) {
    let mut polls = tokio::time::interval(POLL);
    loop {
        polls.tick().await;
        if file.exists() {
            break;
        }
    }
    if let Err(error) = fs::remove_file(file) {
        tracing::warn!("cannot remove {}: {error}", file.display());
    }
}
