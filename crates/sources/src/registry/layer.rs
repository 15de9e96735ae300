//! From the layers of an image to the bytes of its disk, in one pass over those that have to be looked at.

use bytes::Bytes;
use datapath::archive::{ArchiveErrorKind, FileInArchive, Found, find_file};
use datapath::chunks::Chunks;
use datapath::decode;
use datapath::error::{Error, FormatError, SourceError, SourceErrorKind};
use datapath::source::Body;

use super::lookup::Lookup;
use super::manifest::Descriptor;
use super::store::{Store, verified};
use super::wording::{pulled, unprefixed};
use crate::error::invalid;
use crate::network::stopped;

/// Layers without files, which builders make for steps that change none: 1024 zeros, as they are and gzipped by Docker.
const EMPTY: [&str; 2] = [
    "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "sha256:a3ed95caeb02ffe68cdd9fd84406680ae93d633cb16422d00e8a7c22955b46d4",
];

/// The disk of an image, at its first byte.
pub(super) struct Disk {
    file: Box<FileInArchive<Lookup>>,
    layer: Descriptor,
}

/// Finds the disk in the uppermost of `layers` (given from the lowest to the uppermost) that has one.
pub(super) fn find_disk(store: &dyn Store, layers: &[Descriptor]) -> Result<Disk, SourceError> {
    let mut lookup = Lookup::default();
    for layer in layers.iter().rev() {
        let is_empty = layer.size == 0 || EMPTY.contains(&layer.digest.to_string().as_str());
        if is_empty {
            continue;
        }
        tracing::debug!("Processing layer {}", layer.digest);
        match search(store, layer, lookup).map_err(|error| in_layer(error, layer))? {
            Found::File(file) => {
                let layer = layer.clone();
                return Ok(Disk { file, layer });
            }
            Found::Nothing { search } => lookup = search.descend(),
        }
    }
    let message = "Failed to find VM disk image file in the container image";
    Err(invalid(message))
}

fn search(store: &dyn Store, layer: &Descriptor, lookup: Lookup) -> Result<Found<Lookup>, Error> {
    let media_type = layer.media_type.as_str();
    if media_type.ends_with("+encrypted") {
        let message = format!("it is encrypted ({media_type}): push the image without encryption");
        return Err(pulled(invalid(message)).into());
    }
    let blob = Blob(verified(store, layer).map_err(pulled)?);
    // What the layer is compressed with is seen, not believed: media types are often wrong.
    let decoded = decode::open(Box::new(blob), &decode::Limits::default())?;
    find_file(Box::new(decoded.stream), lookup)
}

impl Disk {
    /// Bytes of the disk.
    pub(super) fn size(&self) -> u64 {
        self.file.size()
    }
}

impl Body for Disk {
    /// The end is reported when the whole layer was read and verified.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let failed = |error| unprefixed(&in_layer(error, &self.layer));
        self.file.next_chunk().map_err(failed)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let message = format!("cannot skip to byte {offset} of a file in a layer");
        Err(invalid(message))
    }
}

/// The bytes of a layer as they came.
struct Blob(Box<dyn Body>);

impl Chunks for Blob {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.next_chunk().map_err(pulled)?)
    }
}

/// Adds the layer to errors of decoders and of the archive; those of the source are worded already.
fn in_layer(error: Error, layer: &Descriptor) -> SourceError {
    let Descriptor {
        digest, media_type, ..
    } = layer;
    let reason = match error {
        Error::Source(error) => return error,
        Error::Stopped => return stopped(),
        Error::Format(FormatError::Archive(error)) if error.kind == ArchiveErrorKind::NotTar => {
            format!("it is called {media_type:?}, and is no archive of files")
        }
        other => other.to_string(),
    };
    pulled(SourceError::new(
        SourceErrorKind::Io,
        format!("layer {digest}: {reason}"),
    ))
}
