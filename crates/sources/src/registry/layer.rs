//! Finds the disk of an image in its layers and reads it, in one pass over the layers that have to
//! be searched.

use bytes::Bytes;
use datapath::archive::{ArchiveErrorKind, ArchivedFile, SearchResult, find_file};
use datapath::chunks::ChunkStream;
use datapath::decode;
use datapath::error::{Error, FormatError, SourceError, SourceErrorKind};
use datapath::source::SourceBody;

use super::lookup::LayerLookup;
use super::manifest::OciDescriptor;
use super::messages::{pull_error, without_prefix};
use super::store::{ImageStore, open_verified};
use crate::error::invalid_error;
use crate::network::stopped_error;

/// Digests of layers without files, which builders create for steps that change none: 1024 zeros,
/// uncompressed and as gzipped by Docker.
const EMPTY: [&str; 2] = [
    "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "sha256:a3ed95caeb02ffe68cdd9fd84406680ae93d633cb16422d00e8a7c22955b46d4",
];

/// The disk of an image, positioned at its first byte.
pub(super) struct ContainerDisk {
    file: Box<ArchivedFile<LayerLookup>>,
    layer: OciDescriptor,
}

/// Finds the disk in the uppermost layer that has one. `layers` are ordered from the lowest to the
/// uppermost.
pub(super) fn find_disk(
    store: &dyn ImageStore,
    layers: &[OciDescriptor],
) -> Result<ContainerDisk, SourceError> {
    let mut lookup = LayerLookup::default();
    for layer in layers.iter().rev() {
        let is_empty = layer.size == 0 || EMPTY.contains(&layer.digest.to_string().as_str());
        if is_empty {
            continue;
        }
        tracing::debug!("Processing layer {}", layer.digest);
        match search_layer(store, layer, lookup).map_err(|error| in_layer(error, layer))? {
            SearchResult::File(file) => {
                let layer = layer.clone();
                return Ok(ContainerDisk { file, layer });
            }
            SearchResult::Nothing { search } => lookup = search.into_lower_layer(),
        }
    }
    let message = "Failed to find VM disk image file in the container image";
    let name = store.image_name();
    let words = format!(
        "{name} has no file in its folder `disk`, where a container disk has its image: is it another image?"
    );
    Err(invalid_error(message).with_plain_words(&words))
}

fn search_layer(
    store: &dyn ImageStore,
    layer: &OciDescriptor,
    lookup: LayerLookup,
) -> Result<SearchResult<LayerLookup>, Error> {
    let media_type = layer.media_type.as_str();
    if media_type.ends_with("+encrypted") {
        let message = format!("it is encrypted ({media_type}): push the image without encryption");
        return Err(pull_error(invalid_error(message)).into());
    }
    let blob = LayerBlob(open_verified(store, layer).map_err(pull_error)?);
    // The compression is detected from the content, because media types are often wrong.
    let decoded = decode::open_layers(Box::new(blob), &decode::DecodeLimits::default())?;
    find_file(Box::new(decoded.stream), lookup)
}

impl ContainerDisk {
    /// Returns the size of the disk in bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        self.file.size()
    }
}

impl SourceBody for ContainerDisk {
    /// Reports the end only after the whole layer was read and verified.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let failed = |error| without_prefix(&in_layer(error, &self.layer));
        self.file.next_chunk().map_err(failed)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let message = format!("cannot skip to byte {offset} of a file in a layer");
        Err(invalid_error(message))
    }
}

/// The bytes of a layer as they arrive.
struct LayerBlob(Box<dyn SourceBody>);

impl ChunkStream for LayerBlob {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.next_chunk().map_err(pull_error)?)
    }
}

/// Adds the layer to errors of decoders and of the archive. Errors of the source have their final
/// wording already.
fn in_layer(error: Error, layer: &OciDescriptor) -> SourceError {
    let OciDescriptor { digest, media_type, .. } = layer;
    let reason = match error {
        Error::Source(error) => return error,
        Error::Stopped => return stopped_error(),
        Error::Format(FormatError::Archive(error)) if error.kind == ArchiveErrorKind::NotTar => {
            format!("its media type is {media_type:?}, but it is not a tar archive")
        }
        other => other.to_string(),
    };
    pull_error(SourceError::new(SourceErrorKind::Io, format!("layer {digest}: {reason}")))
}
