//! The file that is sent: what it is, how large its disk is, and whether it changed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use datapath::encode::PIECE_BYTES;
use datapath::encode::outlet::{Gone, Outlet};
use datapath::inspect::{Inspection, inspect};
use datapath::local::{Local, Part};
use datapath::options::{Payload, Reading};
use serde::{Deserialize, Serialize};
use sources::file::FileSource;
use tokio_util::sync::CancellationToken;

/// The facts by which a file is known to be the same one, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970 at which it was changed last.
    pub(crate) changed: i64,
    pub(crate) inode: u64,
}

/// An image file, or an archive.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) file: File,
    pub(crate) identity: Identity,
    /// None of an archive.
    facts: Option<Inspection>,
}

/// A file that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoImage {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} is no file: an upload reads it from any place, so pipes and folders cannot be sent", .0.display())]
    NoFile(PathBuf),
    #[error("{0}")]
    Refused(#[from] datapath::Error),
    #[error("{}: {reason}", path.display())]
    Useless { path: PathBuf, reason: String },
    #[error("{} was changed while it was sent: upload it again", .0.display())]
    Changed(PathBuf),
    /// The receiver of the bytes is gone.
    #[error("the upload was stopped")]
    Gone(#[from] Gone),
}

impl Image {
    /// Opens a file; of an image its head and tables are looked at.
    pub(crate) fn open(path: &Path, is_archive: bool) -> Result<Self, NoImage> {
        let unreadable = |error| NoImage::Unreadable {
            path: path.to_owned(),
            error,
        };
        let absolute = fs::canonicalize(path).map_err(unreadable)?;
        let file = File::open(&absolute).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(NoImage::NoFile(path.to_owned()));
        }
        let identity = identity(absolute, &file).map_err(unreadable)?;
        if is_archive {
            return Ok(Self {
                file,
                identity,
                facts: None,
            });
        }
        let source =
            FileSource::open(&identity.path, CancellationToken::new()).map_err(datapath::Error::from)?;
        let facts = inspect(&source, Payload::Image(None), &Reading::default())?;
        match facts.refused {
            Some(reason) => Err(NoImage::Useless {
                path: path.to_owned(),
                reason,
            }),
            None => Ok(Self {
                file,
                identity,
                facts: Some(facts),
            }),
        }
    }

    /// Bytes of the disk in it, if that can be known without reading everything.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        self.facts.as_ref()?.virtual_size
    }

    /// True if it is worth to be compressed on the way: it is not, as a whole.
    pub(crate) fn is_plain(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.layers.is_empty())
    }

    /// Reads it from `offset` on, without its holes.
    pub(crate) fn read(&self, offset: u64, outlet: &mut Outlet<'_>) -> Result<(), NoImage> {
        let unreadable = |error| NoImage::Unreadable {
            path: self.identity.path.clone(),
            error,
        };
        let local = self.file.try_clone().and_then(Local::new).map_err(unreadable)?;
        let mut reader = local.reader(PIECE_BYTES);
        reader.skip_to(offset);
        while let Some(part) = reader.next_part().map_err(unreadable)? {
            match part {
                Part::Hole(bytes) => outlet.zeros(bytes)?,
                Part::Data(bytes) => outlet.piece(bytes)?,
            }
        }
        outlet.flush()?;
        self.check_unchanged()
    }

    /// An error if the file is another one by now.
    pub(crate) fn check_unchanged(&self) -> Result<(), NoImage> {
        match identity(self.identity.path.clone(), &self.file) {
            Ok(now) if now == self.identity => Ok(()),
            _ => Err(NoImage::Changed(self.identity.path.clone())),
        }
    }
}

fn identity(path: PathBuf, file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    let changed = metadata.mtime().saturating_mul(1_000_000_000);
    Ok(Identity {
        path,
        bytes: metadata.len(),
        changed: changed.saturating_add(metadata.mtime_nsec()),
        inode: metadata.ino(),
    })
}
