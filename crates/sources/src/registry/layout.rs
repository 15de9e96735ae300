//! An OCI image layout on a disk: a directory, or a tar of one (OCI image layout specification 1.1).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use datapath::archive;
use datapath::buffer::Filling;
use datapath::error::{SourceError, SourceErrorKind, errno_text};
use datapath::source::Body;
use datapath::storage::Storage;
use tokio_util::sync::CancellationToken;

use super::digest::Digest;
use super::manifest::{Descriptor, MAX_MANIFEST_BYTES, Manifest, Served};
use super::store::{Store, document};
use crate::error::invalid;
use crate::network::stopped;

/// The file that lists the images.
const INDEX: &str = "index.json";

/// A layout and the image of it that is wanted.
pub(super) struct Layout {
    path: PathBuf,
    files: Files,
    /// Name of the wanted image; without one, there must be a single image.
    image: Option<String>,
    stop: CancellationToken,
}

enum Files {
    Directory,
    /// The archive, and where its files lie.
    Archive(File, BTreeMap<String, (u64, u64)>),
}

impl Layout {
    /// The layout in the directory `path`.
    pub(super) fn directory(path: PathBuf, image: Option<String>, stop: CancellationToken) -> Self {
        Self {
            path,
            files: Files::Directory,
            image,
            stop,
        }
    }

    /// The layout in the tar `path`, of which only headers are read now.
    pub(super) fn archive(
        path: PathBuf,
        image: Option<String>,
        stop: CancellationToken,
    ) -> Result<Self, SourceError> {
        let file = File::open(&path).map_err(|error| failed(&path, &error))?;
        let wanted = |name: &[u8]| {
            let name = without_dot(name);
            name == INDEX.as_bytes() || name.starts_with(b"blobs/")
        };
        let places = archive::index(&file, wanted)
            .map_err(|error| SourceError::caused(SourceErrorKind::Invalid, path.display(), error))?;
        let places = places.into_iter().map(|place| {
            let name = String::from_utf8_lossy(without_dot(&place.name)).into_owned();
            (name, (place.offset, place.size))
        });
        Ok(Self {
            files: Files::Archive(file, places.collect()),
            path,
            image,
            stop,
        })
    }

    /// The bytes of the file `name` of the layout.
    fn file(&self, name: &str) -> Result<FilePart, SourceError> {
        let (file, offset, length) = match &self.files {
            Files::Directory => {
                let path = self.path.join(name);
                let file = File::open(&path).map_err(|error| failed(&path, &error))?;
                let length = file.metadata().map_err(|error| failed(&path, &error))?.len();
                (file, 0, length)
            }
            Files::Archive(file, places) => {
                let Some((offset, length)) = places.get(name) else {
                    return Err(invalid(format!("{} has no file {name}", self.path.display())));
                };
                let file = file.try_clone().map_err(|error| failed(&self.path, &error))?;
                (file, *offset, *length)
            }
        };
        Ok(FilePart {
            path: self.path.clone(),
            file,
            offset,
            end: offset.saturating_add(length),
            stop: self.stop.clone(),
        })
    }

    fn images(&self) -> Result<Vec<Descriptor>, SourceError> {
        let mut file = self.file(INDEX)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = file.next_chunk()? {
            if bytes.len() + chunk.len() > MAX_MANIFEST_BYTES {
                return Err(self.refused(&format!("{INDEX} has more than {MAX_MANIFEST_BYTES} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        let served = Served {
            digest: Digest::of(&bytes)?,
            media_type: None,
            bytes: bytes.into(),
        };
        match Manifest::parse(&served) {
            Ok(Manifest::Index(index)) => Ok(index.manifests),
            Ok(Manifest::Image { .. }) => Err(self.refused(&format!("{INDEX} is no index"))),
            Err(reason) => Err(self.refused(&reason)),
        }
    }

    fn refused(&self, reason: &str) -> SourceError {
        invalid(format!("{}: {reason}", self.path.display()))
    }
}

impl Store for Layout {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn top(&self) -> Result<Served, SourceError> {
        let mut images = self.images()?;
        if let Some(name) = &self.image {
            images.retain(|image| image.ref_name() == Some(name));
        }
        match (images.as_slice(), &self.image) {
            ([image], _) => self.manifest(image),
            ([], None) => Err(self.refused("there is no image in it")),
            ([], Some(name)) => Err(self.refused(&format!("there is no image {name} in it"))),
            (several, _) => Err(self.refused(&format!(
                "there are {} images in it: name one of them, as in PATH:NAME",
                several.len()
            ))),
        }
    }

    fn manifest(&self, descriptor: &Descriptor) -> Result<Served, SourceError> {
        Ok(Served {
            digest: descriptor.digest.clone(),
            media_type: Some(descriptor.media_type.clone()),
            bytes: document(self, descriptor, MAX_MANIFEST_BYTES)?,
        })
    }

    fn storage(&self) -> Option<Storage> {
        match &self.files {
            Files::Archive(file, _) => Storage::of(file),
            Files::Directory => None,
        }
    }

    fn open(&self, blob: &Descriptor) -> Result<Box<dyn Body>, SourceError> {
        Ok(Box::new(self.file(&blob.digest.path())?))
    }
}

/// Bytes of a file, from one place to another.
struct FilePart {
    path: PathBuf,
    file: File,
    offset: u64,
    end: u64,
    stop: CancellationToken,
}

impl Body for FilePart {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.stop.is_cancelled() {
            return Err(stopped());
        }
        let mut chunk = Filling::new(0);
        let room = chunk.room();
        let wanted = usize::try_from(self.end - self.offset).map_or(room.len(), |left| left.min(room.len()));
        let read = loop {
            // By offset: the descriptor is a duplicate, and all files of an archive share its position.
            match self.file.read_at(&mut room[..wanted], self.offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|error| failed(&self.path, &error))?,
            }
        };
        if read == 0 && wanted > 0 {
            let message = format!(
                "{} is shorter than it says: it ends at byte {}",
                self.path.display(),
                self.offset
            );
            return Err(SourceError::new(SourceErrorKind::Length, message));
        }
        chunk.filled(read as u64);
        self.offset += read as u64;
        Ok((read > 0).then(|| chunk.freeze()))
    }

    /// Not for this body: what is not read cannot be verified.
    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let message = format!("{}: cannot skip to byte {offset}", self.path.display());
        Err(invalid(message))
    }
}

fn without_dot(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"./").unwrap_or(name)
}

fn failed(path: &Path, error: &io::Error) -> SourceError {
    let message = format!("open {}: {}", path.display(), errno_text(error));
    SourceError::new(SourceErrorKind::Io, message)
}
