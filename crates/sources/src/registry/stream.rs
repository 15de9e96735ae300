//! Reads the tar of an OCI layout in one pass, such as KubeVirt's `export.oci.tar` on a web server.
//!
//! Its files have to be in the order in which KubeVirt writes them: index, manifest, layers. A tar
//! from Skopeo begins with the layers, so it can only be read from a local file.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datapath::archive::{self, ArchiveFiles};
use datapath::changes::ChangedRanges;
use datapath::chunks::{ChunkStream, PeekStream};
use datapath::decode::SNIFF_BYTES;
use datapath::error::{Error, SourceError, SourceErrorKind};
use datapath::source::{Source, SourceBody};
use datapath::storage::StorageLocation;
use parking_lot::Mutex;

use super::choice::{DiskChoice, ImageManifest};
use super::digest::OciDigest;
use super::image::{check_config, choose_image, parse_manifest};
use super::layer::open_disk;
use super::layout::{INDEX, without_dot};
use super::manifest::{
    ImageConfig, MAX_MANIFEST_BYTES, OciDescriptor, ParsedManifest, ServedManifest,
};
use super::messages::without_prefix;
use super::selector::LayerSelector;
use super::store::{ImageStore, read_document};
use super::{RegistryOptions, RegistrySource};
use crate::error::invalid_error;
use crate::network::stopped_error;

/// Maximum number of files up to the layer. Each blob is one file.
const MAX_FILES: usize = 4096;

/// Returns the disk in `source` if it is the tar of an OCI layout, otherwise all of `source`.
/// `is_checked` is true if a checksum of the whole object will be verified.
///
/// A failure to read the first bytes is reported when they are read again.
pub fn open_layout(
    source: Box<dyn Source>,
    options: &RegistryOptions,
    is_checked: bool,
) -> Result<Box<dyn Source>, SourceError> {
    let mut stream = PeekStream::new(BodyChunks(source.open_body()?));
    let head = stream.peek(SNIFF_BYTES);
    let name = source.name();
    let is_layout = head.as_ref().is_ok_and(|head| begins_layout(head));
    if !is_layout && let Some(selector) = &options.layer {
        head.map_err(into_source_error)?;
        let message =
            format!("{name} is not the tar of an OCI layout, so it has no layer {selector}");
        return Err(invalid_error(message));
    }
    if !is_layout {
        let body = PeekedBody { failure: head.err(), stream, position: 0 };
        return Ok(Box::new(PeekedSource { source, body: Mutex::new(Some(Box::new(body))) }));
    }
    if is_checked {
        let message = format!(
            "{name} is the tar of an OCI layout, whose digests are verified; a checksum of the whole tar is \
             not supported: remove the checksum"
        );
        return Err(invalid_error(message));
    }
    let files = Arc::new(Mutex::new(ArchiveFiles::new(Box::new(stream))));
    let opened = StreamedLayout { name, files }.open_disk(options);
    // The prefix is only for images that are pulled from a registry.
    Ok(Box::new(opened.map_err(without_prefix)?))
}

/// True if `head` is the header of a file that comes first only in the tar of a layout.
fn begins_layout(head: &[u8]) -> bool {
    archive::first_name(head).is_some_and(|name| {
        let name = without_dot(&name);
        name == b"oci-layout" || name == INDEX.as_bytes() || name.starts_with(b"blobs/")
    })
}

/// A layout whose files are read once, in the order of the tar.
struct StreamedLayout {
    name: String,
    files: Arc<Mutex<ArchiveFiles>>,
}

/// The file that is needed next. Other files are skipped.
enum AwaitedFile {
    Index,
    Manifest(OciDescriptor),
    Config(ImageManifest),
    Layer(Box<AwaitedLayer>),
}

/// The layer that is needed next.
struct AwaitedLayer {
    config: ImageConfig,
    choice: DiskChoice,
    layer: OciDescriptor,
    /// Names and sizes of all layers of the image, which may come before this one.
    all: BTreeSet<(Vec<u8>, u64)>,
}

impl StreamedLayout {
    fn open_disk(&self, options: &RegistryOptions) -> Result<RegistrySource, SourceError> {
        let mut selector = options.layer.as_ref();
        let mut awaited = AwaitedFile::Index;
        let mut root = None;
        for _ in 0..MAX_FILES {
            let next = self.files.lock().next_file().map_err(into_source_error)?;
            let Some((file, size)) = next else {
                return Err(self.order_error());
            };
            let file = without_dot(&file).to_vec();
            if !awaited.is_file(&file) {
                // All files except layers are small. Without this check, a tar in another order
                // would be downloaded to its end before it is refused.
                match &awaited {
                    AwaitedFile::Layer(awaited) if awaited.all.contains(&(file, size)) => {
                        self.pass_layer()?
                    }
                    AwaitedFile::Layer(_) => {}
                    _ if size > MAX_MANIFEST_BYTES as u64 => return Err(self.order_error()),
                    _ => {}
                }
                continue;
            }
            awaited = match awaited {
                AwaitedFile::Index => {
                    let served = self.read_index()?;
                    root = Some(served.digest.clone());
                    self.after_manifest(&served, options, &mut selector)?
                }
                AwaitedFile::Manifest(descriptor) => {
                    let served = self.read_manifest(&descriptor)?;
                    self.after_manifest(&served, options, &mut selector)?
                }
                AwaitedFile::Config(manifest) => {
                    let config = check_config(self, &manifest, options)?;
                    self.await_layer(config, manifest, selector)?
                }
                AwaitedFile::Layer(awaited) => {
                    let AwaitedLayer { config, choice, .. } = *awaited;
                    let disk = open_disk(self, &choice)?;
                    let digest = root.map(|root: OciDigest| root.to_string()).unwrap_or_default();
                    return Ok(RegistrySource::from_disk(self.name.clone(), digest, &config, disk));
                }
            };
        }
        Err(invalid_error(format!(
            "{}: the layer is not among the first {MAX_FILES} files",
            self.name
        )))
    }

    fn after_manifest(
        &self,
        served: &ServedManifest,
        options: &RegistryOptions,
        selector: &mut Option<&LayerSelector>,
    ) -> Result<AwaitedFile, SourceError> {
        match parse_manifest(served)? {
            ParsedManifest::Index(index) => {
                // The disk of a virtual machine does not depend on the platform of this machine. A
                // digest selects without a platform too, but one pass can read only one manifest.
                let is_decided = options.architecture.is_none()
                    || selector.is_some_and(LayerSelector::is_digest);
                let chosen = match index.manifests.as_slice() {
                    [only] if is_decided => only.clone(),
                    _ => choose_image(index, options.architecture.as_deref(), selector)?,
                };
                Ok(AwaitedFile::Manifest(chosen))
            }
            ParsedManifest::Image { artifact_type, config, layers } => {
                let manifest = ImageManifest { artifact_type, config, layers };
                if manifest.needs_config(options) {
                    return Ok(AwaitedFile::Config(manifest));
                }
                self.await_layer(ImageConfig::default(), manifest, *selector)
            }
        }
    }

    fn await_layer(
        &self,
        config: ImageConfig,
        manifest: ImageManifest,
        selector: Option<&LayerSelector>,
    ) -> Result<AwaitedFile, SourceError> {
        let name_of = |layer: &OciDescriptor| (layer.digest.blob_path().into_bytes(), layer.size);
        let all = manifest.layers.iter().map(name_of).collect();
        let choice = manifest.choose_disk(selector)?;
        match choice.only_layer().cloned() {
            Some(layer) => {
                Ok(AwaitedFile::Layer(Box::new(AwaitedLayer { config, choice, layer, all })))
            }
            // Layers are searched from the top down, but the tar has them from the bottom up.
            None => Err(self.pass_error("it is a container image with several layers")),
        }
    }

    fn read_index(&self) -> Result<ServedManifest, SourceError> {
        let mut bytes = BytesMut::new();
        while let Some(chunk) = self.files.lock().next_chunk().map_err(into_source_error)? {
            if bytes.len() + chunk.len() > MAX_MANIFEST_BYTES {
                let message =
                    format!("{}: {INDEX} has more than {MAX_MANIFEST_BYTES} bytes", self.name);
                return Err(invalid_error(message));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(ServedManifest {
            digest: OciDigest::sha256_of(&bytes)?,
            media_type: None,
            bytes: bytes.freeze(),
        })
    }

    /// Reads and drops a layer that is not needed. It is read and not skipped, because the archive
    /// reader limits the bytes that it skips by itself.
    fn pass_layer(&self) -> Result<(), SourceError> {
        while self.files.lock().next_chunk().map_err(into_source_error)?.is_some() {}
        Ok(())
    }

    fn order_error(&self) -> SourceError {
        self.pass_error("its files are not in the order index, manifest, layers")
    }

    fn pass_error(&self, reason: &str) -> SourceError {
        invalid_error(format!(
            "{}: the OCI layout cannot be read in one pass: {reason}; download it and import \
             oci-archive:FILE, or copy it to a registry with `skopeo copy --multi-arch=all`",
            self.name
        ))
    }
}

impl AwaitedFile {
    /// True if `name` is the name of the file.
    fn is_file(&self, name: &[u8]) -> bool {
        let blob = match self {
            Self::Index => return name == INDEX.as_bytes(),
            Self::Manifest(descriptor) => descriptor,
            Self::Layer(awaited) => &awaited.layer,
            Self::Config(manifest) => &manifest.config,
        };
        name == blob.digest.blob_path().as_bytes()
    }
}

impl ImageStore for StreamedLayout {
    fn image_name(&self) -> String {
        self.name.clone()
    }

    fn read_root(&self) -> Result<ServedManifest, SourceError> {
        self.read_index()
    }

    fn read_manifest(&self, descriptor: &OciDescriptor) -> Result<ServedManifest, SourceError> {
        Ok(ServedManifest {
            digest: descriptor.digest.clone(),
            media_type: Some(descriptor.media_type.clone()),
            bytes: read_document(self, descriptor, MAX_MANIFEST_BYTES)?,
        })
    }

    /// Opens the current file, which must be `blob`.
    fn open_blob(&self, _blob: &OciDescriptor) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(FileBody(Arc::clone(&self.files))))
    }
}

/// The current file of a layout.
struct FileBody(Arc<Mutex<ArchiveFiles>>);

impl SourceBody for FileBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.0.lock().next_chunk().map_err(into_source_error)
    }

    /// Always fails: bytes that are not read cannot be verified.
    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        Err(invalid_error(format!("cannot skip to byte {offset} of a layer")))
    }
}

/// The body of a source as a stream.
struct BodyChunks(Box<dyn SourceBody>);

impl ChunkStream for BodyChunks {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.next_chunk()?)
    }
}

/// A source whose first bytes were peeked at. Its body returns them again.
struct PeekedSource {
    source: Box<dyn Source>,
    body: Mutex<Option<Box<dyn SourceBody>>>,
}

struct PeekedBody {
    /// The failure to read the first bytes.
    failure: Option<Error>,
    stream: PeekStream<BodyChunks>,
    position: u64,
}

impl SourceBody for PeekedBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let Some(failure) = self.failure.take() {
            return Err(into_source_error(failure));
        }
        let chunk = self.stream.next_chunk().map_err(into_source_error)?;
        self.position += chunk.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.position += self.stream.drop_peeked(offset.saturating_sub(self.position));
        if self.position < offset {
            self.stream.inner_mut().0.skip_to(offset)?;
            self.position = offset;
        }
        Ok(())
    }
}

impl Source for PeekedSource {
    fn name(&self) -> String {
        self.source.name()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.source.total_bytes()
    }

    fn content_type(&self) -> Option<&str> {
        self.source.content_type()
    }

    fn is_ranged(&self) -> bool {
        self.source.is_ranged()
    }

    fn has_own_digest(&self) -> bool {
        self.source.has_own_digest()
    }

    fn is_disk(&self) -> bool {
        self.source.is_disk()
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        self.source.changed_ranges()
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        self.source.storage_location()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        match self.body.lock().take() {
            Some(body) => Ok(body),
            None => self.source.open_body(),
        }
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.source.read_range(range)
    }
}

fn into_source_error(error: Error) -> SourceError {
    match error {
        Error::Source(error) => error,
        Error::Stopped => stopped_error(),
        other => SourceError::from_cause(SourceErrorKind::Invalid, other),
    }
}
