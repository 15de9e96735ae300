//! An OCI image layout on a disk: a directory, or a tar archive (OCI image layout specification
//! 1.1).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use fetch::error::{invalid_error, stopped_error};
use stream::buffer::ChunkBuffer;
use stream::error::{SourceAdvice, SourceError, SourceErrorKind, errno_text};
use stream::local::{open_seekable, read_at};
use stream::source::SourceBody;
use stream::storage::StorageLocation;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::cosign::SIGNATURE_TAG;
use super::digest::OciDigest;
use super::manifest::{MAX_MANIFEST_BYTES, OciDescriptor, ParsedManifest, ServedManifest};
use super::referrers::read_tagged_referrers;
use super::store::{ImageStore, ReferrersPage};

/// The file that lists the images of a layout.
pub(super) const INDEX: &str = "index.json";

/// Name of the manifest in an archive of `docker save`.
const DOCKER: &str = "manifest.json";

/// Prefix of the annotation `kind` by which `cosign save` distinguishes an `image` or `imageIndex`
/// from its signatures (`sigs`) and attestations (`atts`). It gives them no names.
const COSIGN_KINDS: &str = "dev.cosignproject.cosign/";

/// A layout, and the image in it that is wanted.
pub(super) struct OciLayout {
    path: PathBuf,
    files: LayoutFiles,
    /// Name of the wanted image. Without a name, the layout must hold a single image.
    image: Option<String>,
    stop: CancellationToken,
}

enum LayoutFiles {
    Directory,
    /// The archive, with the offset and size of each of its files.
    Archive(File, BTreeMap<String, (u64, u64)>),
}

impl OciLayout {
    /// Returns the layout in the directory `path`.
    pub(super) fn from_directory(
        path: PathBuf,
        image: Option<String>,
        stop: CancellationToken,
    ) -> Self {
        Self { path, files: LayoutFiles::Directory, image, stop }
    }

    /// Opens the layout in the tar archive `path`. Only the headers are read here.
    pub(super) fn from_archive(
        path: PathBuf,
        image: Option<String>,
        stop: CancellationToken,
    ) -> Result<Self, SourceError> {
        let file = open_seekable(&path).map_err(|error| open_error(&path, &error))?;
        let wanted = |name: &[u8]| {
            let name = without_dot(name);
            [INDEX.as_bytes(), DOCKER.as_bytes()].contains(&name) || name.starts_with(b"blobs/")
        };
        let places = tar::index_archive(&file, wanted).map_err(|error| {
            SourceError::with_context(SourceErrorKind::Invalid, path.display(), error)
                .with_advice(SourceAdvice::NameTar)
        })?;
        let places = places.into_iter().map(|place| {
            let name = String::from_utf8_lossy(without_dot(&place.name)).into_owned();
            (name, (place.offset, place.size))
        });
        Ok(Self { files: LayoutFiles::Archive(file, places.collect()), path, image, stop })
    }

    /// Opens the file `name` of the layout.
    fn open_file(&self, name: &str) -> Result<FilePart, SourceError> {
        let (file, offset, length) = match &self.files {
            LayoutFiles::Directory => {
                let path = self.path.join(name);
                let file = open_seekable(&path).map_err(|error| open_error(&path, &error))?;
                let length = file.metadata().map_err(|error| open_error(&path, &error))?.len();
                (file, 0, length)
            }
            LayoutFiles::Archive(file, places) => {
                if name == INDEX && !places.contains_key(name) && places.contains_key(DOCKER) {
                    let path = self.path.display();
                    return Err(invalid_error(format!(
                        "{path} is an archive of `docker save`: convert it with `skopeo copy docker-archive:{path} oci-archive:FILE`"
                    ))
                    .with_advice(SourceAdvice::InMessage));
                }
                let Some((offset, length)) = places.get(name) else {
                    return Err(invalid_error(format!(
                        "{} has no file {name}",
                        self.path.display()
                    )));
                };
                let file = file.try_clone().map_err(|error| open_error(&self.path, &error))?;
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

    fn read_index(&self) -> Result<(ServedManifest, Vec<OciDescriptor>), SourceError> {
        let index = self.open_file(INDEX);
        let mut index = index.map_err(|error| match error.advice() {
            Some(_) => error,
            None => error.with_advice(SourceAdvice::NameDirectory),
        })?;
        let served = read_index(&mut index, &self.image_name())?;
        match ParsedManifest::parse(&served) {
            Ok(ParsedManifest::Index(index)) => Ok((served, index.manifests)),
            Ok(ParsedManifest::Image(_)) => {
                Err(self
                    .layout_error(&format!("{INDEX} describes one image, expected an image index")))
            }
            Err(reason) => Err(self.layout_error(&reason)),
        }
    }

    fn layout_error(&self, reason: &str) -> SourceError {
        invalid_error(format!("{}: {reason}", self.path.display()))
    }
}

impl ImageStore for OciLayout {
    fn image_name(&self) -> String {
        self.path.display().to_string()
    }

    fn read_root(&self) -> Result<ServedManifest, SourceError> {
        let (index, mut images) = self.read_index()?;
        images.retain(|image| {
            let kind = image.annotation("kind").and_then(|kind| kind.strip_prefix(COSIGN_KINDS));
            kind.is_none_or(|kind| kind.starts_with("image"))
        });
        let names: Vec<_> =
            images.iter().filter_map(|image| image.ref_name().map(ToString::to_string)).collect();
        if let Some(name) = &self.image {
            images.retain(|image| image.ref_name() == Some(name));
        }
        match (images.as_slice(), &self.image) {
            ([image], _) => self.read_manifest(image),
            ([], None) => Err(self.layout_error("it contains no image")),
            ([], Some(name)) => {
                let names = names.join(", ");
                Err(self.layout_error(&format!("it has no image {name}; there are: {names}")))
            }
            // One image for several platforms, or disks for several purposes.
            (several, None) if several.iter().all(is_unnamed_choice) => Ok(index),
            (several, _) => Err(self.layout_error(&format!(
                "it contains {} images: name one of them, as in PATH:NAME",
                several.len()
            ))),
        }
    }

    /// Signatures in a layout have the names that are their tags in a registry.
    fn read_tagged(&self, tag: &str) -> Result<Option<ServedManifest>, SourceError> {
        let (_, images) = self.read_index()?;
        let found = images.iter().find(|image| image.ref_name() == Some(tag));
        found.map(|image| self.read_manifest(image)).transpose()
    }

    /// Tools list the artifacts that refer to an image beside it, some without their type. Those
    /// with the name of a signature are found by it.
    fn read_referrers(
        &self,
        digest: &OciDigest,
        _artifact_type: &str,
        _next: Option<Url>,
    ) -> Result<ReferrersPage, SourceError> {
        let mut page = read_tagged_referrers(self, digest)?;
        let (_, mut images) = self.read_index()?;
        images.retain(|image| {
            image.platform.is_none()
                && image.digest != *digest
                && image.ref_name().is_none_or(|name| !name.ends_with(SIGNATURE_TAG))
        });
        page.entries.extend(images);
        Ok(page)
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        match &self.files {
            LayoutFiles::Archive(file, _) => StorageLocation::from_file(file),
            LayoutFiles::Directory => None,
        }
    }

    fn open_blob(&self, blob: &OciDescriptor) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(self.open_file(&blob.digest.blob_path())?))
    }
}

/// The bytes of a file between two offsets.
struct FilePart {
    path: PathBuf,
    file: File,
    offset: u64,
    end: u64,
    stop: CancellationToken,
}

impl SourceBody for FilePart {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.stop.is_cancelled() {
            return Err(stopped_error());
        }
        let mut chunk = ChunkBuffer::new(0);
        let room = chunk.spare_capacity();
        let wanted =
            usize::try_from(self.end - self.offset).map_or(room.len(), |left| left.min(room.len()));
        // Read by offset: the descriptor is a duplicate, and all files of an archive share its
        // position.
        let read = read_at(&self.file, &mut room[..wanted], self.offset)
            .map_err(|error| open_error(&self.path, &error))?;
        if read == 0 && wanted > 0 {
            let message =
                format!("{} is truncated: it ends at byte {}", self.path.display(), self.offset);
            return Err(SourceError::new(SourceErrorKind::Length, message));
        }
        chunk.mark_filled(read as u64);
        self.offset += read as u64;
        Ok((read > 0).then(|| chunk.freeze()))
    }
}

/// True if `image` is distinguished from others in a layout by a platform or type, not by a name.
fn is_unnamed_choice(image: &OciDescriptor) -> bool {
    image.ref_name().is_none() && (image.platform.is_some() || image.artifact_type.is_some())
}

/// Reads the index of the layout `name` from `file`.
pub(super) fn read_index(
    file: &mut dyn SourceBody,
    name: &str,
) -> Result<ServedManifest, SourceError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = file.next_chunk()? {
        if bytes.len() + chunk.len() > MAX_MANIFEST_BYTES {
            let message = format!("{name}: {INDEX} has more than {MAX_MANIFEST_BYTES} bytes");
            return Err(invalid_error(message));
        }
        bytes.extend_from_slice(&chunk);
    }
    let digest = OciDigest::sha256_of(&bytes)?;
    Ok(ServedManifest { digest, media_type: None, bytes: bytes.freeze() })
}

/// Returns the name of a file in a tar without the leading `./` that some tools write.
pub(super) fn without_dot(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"./").unwrap_or(name)
}

fn open_error(path: &Path, error: &io::Error) -> SourceError {
    let message = format!("open {}: {}", path.display(), errno_text(error));
    SourceError::new(SourceErrorKind::Io, message)
}
