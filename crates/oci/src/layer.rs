//! Finds the disk of an image in its layers and reads it, in one pass over the layers that have to
//! be searched.

use bytes::Bytes;
use codec::decode;
use fetch::error::{invalid_error, stopped_error};
use program::quantity::parse_bytes;
use stream::chunks::{ChunkStream, PeekStream};
use stream::error::{ArchiveErrorKind, Error, FormatError, SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::SourceBody;
use tar::{self, ArchivedFile, SearchResult, find_file};

use super::choice::{DISK_SIZE, DiskChoice};
use super::lookup::LayerLookup;
use super::manifest::OciDescriptor;
use super::messages::{pull_error, without_prefix};
use super::store::{ImageStore, open_verified};
use super::tap::tap_blob;

/// The bytes of a disk, which is a file in a layer or the layer itself.
pub(super) struct OpenedDisk {
    /// The bytes, from the first one.
    pub(super) body: Box<dyn SourceBody>,
    /// The number of bytes.
    pub(super) size: u64,
    /// Format and size that the manifest states.
    pub(super) stated_disk: Option<StatedDisk>,
}

/// A file in a layer, positioned at its first byte.
struct ContainerDisk {
    file: Box<ArchivedFile<LayerLookup>>,
    layer: OciDescriptor,
}

/// Opens the disk that was chosen. The layers above the layer with the disk are read here.
pub(super) fn open_disk(
    store: &dyn ImageStore,
    choice: &DiskChoice,
) -> Result<OpenedDisk, SourceError> {
    match choice {
        DiskChoice::Container(layers) => match choice.only_layer() {
            Some(layer) => open_by_content(store, layer, true),
            None => find_disk(store, layers),
        },
        DiskChoice::Layer(layer) => open_by_content(store, layer, false),
        DiskChoice::Disk(layer) => {
            refuse_encrypted(layer)?;
            let body = open_verified(store, layer).map_err(pull_error)?;
            let stated_disk = Some(StatedDisk {
                bytes: layer.annotation(DISK_SIZE).and_then(|size| parse_bytes(size).ok()),
                ..StatedDisk::ZSTD
            });
            Ok(OpenedDisk { stated_disk, ..OpenedDisk::from_layer(body, layer) })
        }
    }
}

/// Finds the disk in the uppermost layer that has one. `layers` are ordered from the lowest to the
/// uppermost.
fn find_disk(store: &dyn ImageStore, layers: &[OciDescriptor]) -> Result<OpenedDisk, SourceError> {
    let mut lookup = LayerLookup::default();
    for layer in layers.iter().rev().filter(|layer| !layer.is_empty_layer()) {
        tracing::debug!("Processing layer {}", layer.digest);
        match search_layer(store, layer, lookup).map_err(|error| in_layer(error, layer))? {
            SearchResult::File(file) => return Ok(OpenedDisk::from_file(file, layer)),
            SearchResult::Nothing { search, .. } => lookup = search.into_lower_layer(),
        }
    }
    Err(no_disk_error(store))
}

fn no_disk_error(store: &dyn ImageStore) -> SourceError {
    let message = "Failed to find VM disk image file in the container image";
    let name = store.image_name();
    let words = format!(
        "{name} has no file in its folder `disk`, where a container disk has its image: is it another image?"
    );
    invalid_error(message).with_plain_words(&words)
}

fn search_layer(
    store: &dyn ImageStore,
    layer: &OciDescriptor,
    lookup: LayerLookup,
) -> Result<SearchResult<LayerLookup>, Error> {
    refuse_encrypted(layer)?;
    let blob = LayerBlob(open_verified(store, layer).map_err(pull_error)?);
    // The compression is detected from the content, because media types are often wrong.
    let decoded = decode::open_layers(Box::new(blob), &decode::DecodeLimits::default())?;
    find_file(Box::new(decoded.stream), lookup)
}

/// Opens the disk in the only layer that can hold it: a file in it if the layer is a tar, otherwise
/// the layer itself. With `is_container`, a layer of zeros counts as an empty tar.
fn open_by_content(
    store: &dyn ImageStore,
    layer: &OciDescriptor,
    is_container: bool,
) -> Result<OpenedDisk, SourceError> {
    refuse_encrypted(layer)?;
    tracing::debug!("Processing layer {}", layer.digest);
    let (tap, blob) = tap_blob(open_verified(store, layer).map_err(pull_error)?);
    let in_layer = |error| in_layer(error, layer);
    // A damaged layer of an artifact is reported where its content is decoded, as for a file.
    let stream = match open_tar(Box::new(tap), is_container) {
        Ok(stream) => stream,
        Err(error @ (Error::Source(_) | Error::Stopped)) => return Err(in_layer(error)),
        Err(error) if is_container => return Err(in_layer(error)),
        Err(_) => None,
    };
    let Some(stream) = stream else {
        return Ok(OpenedDisk::from_layer(Box::new(blob), layer));
    };
    blob.forget();
    match find_file(Box::new(stream), LayerLookup::default()).map_err(in_layer)? {
        SearchResult::File(file) => Ok(OpenedDisk::from_file(file, layer)),
        SearchResult::Nothing { .. } => Err(no_disk_error(store)),
    }
}

/// Returns the decoded bytes of a layer if they are a tar. A layer of zeros may be an empty tar or
/// an empty disk; in a container image it counts as a tar.
fn open_tar(
    blob: Box<dyn ChunkStream>,
    is_container: bool,
) -> Result<Option<PeekStream<Box<dyn ChunkStream>>>, Error> {
    let mut stream = decode::open_layers(blob, &decode::DecodeLimits::default())?.stream;
    let head = stream.peek(decode::SNIFF_BYTES)?;
    let is_tar =
        tar::first_name(&head).is_some() || is_container && head.iter().all(|byte| *byte == 0);
    Ok(is_tar.then_some(stream))
}

fn refuse_encrypted(layer: &OciDescriptor) -> Result<(), SourceError> {
    let media_type = layer.media_type.as_str();
    if media_type.ends_with("+encrypted") {
        let message =
            format!("the layer is encrypted ({media_type}); push the image without encryption");
        return Err(pull_error(invalid_error(message)));
    }
    Ok(())
}

impl OpenedDisk {
    fn from_layer(body: Box<dyn SourceBody>, layer: &OciDescriptor) -> Self {
        // This is upstream's message.
        tracing::info!("Layer detected as raw disk image, streaming to disk");
        Self { body, size: layer.size, stated_disk: None }
    }

    fn from_file(file: Box<ArchivedFile<LayerLookup>>, layer: &OciDescriptor) -> Self {
        let size = file.size();
        let body = Box::new(ContainerDisk { file, layer: layer.clone() });
        Self { body, size, stated_disk: None }
    }
}

impl SourceBody for ContainerDisk {
    /// Reports the end only after the whole layer was read and verified.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let failed = |error| without_prefix(in_layer(error, &self.layer));
        self.file.next_chunk().map_err(failed)
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
