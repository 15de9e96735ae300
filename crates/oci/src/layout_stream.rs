//! Reads the tar of an OCI layout in one pass, such as KubeVirt's `export.oci.tar` on a web server.
//!
//! Its files have to be in the order in which KubeVirt writes them: index, manifest, layers. A tar
//! from Skopeo begins with the layers, so it can only be read from a local file.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use codec::decode::SNIFF_BYTES;
use fetch::error::{invalid_error, stopped_error};
use fetch::wrapped::WrappedSource;
use parking_lot::Mutex;
use stream::chunks::{ChunkStream, PeekStream};
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::source::{Source, SourceBody};
use tar::{self, ArchiveFiles};

use super::image::{check_config, choose_image, parse_manifest};
use super::layer::open_disk;
use super::layout::{INDEX, read_index, without_dot};
use super::manifest::{
    ImageIndex, MAX_MANIFEST_BYTES, OciDescriptor, ParsedManifest, ServedManifest,
};
use super::messages::without_prefix;
use super::selector::LayerSelector;
use super::store::ImageStore;
use super::{RegistryOptions, RegistrySource};

/// Maximum number of files up to the layer. Each blob is one file.
const MAX_FILES: usize = 4096;

/// Maximum number of bytes of layers before the one with the disk. These are the other disks of an
/// export. A server can claim any size, and would hold the import for as long as it sends.
const MAX_PASSED_BYTES: u64 = 1 << 40;

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
        let peeked = Mutex::new(Some(body));
        let open = move |source: &dyn Source| match peeked.lock().take() {
            Some(body) => Ok(Box::new(body) as _),
            None => source.open_body(),
        };
        let (is_verified, stated_disk) = (false, None);
        return Ok(Box::new(WrappedSource { inner: source, is_verified, stated_disk, open }));
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
    tar::first_name(head).is_some_and(|name| {
        let name = without_dot(&name);
        name == b"oci-layout" || name == INDEX.as_bytes() || name.starts_with(b"blobs/")
    })
}

/// A layout whose files are read once, in the order of the tar.
struct StreamedLayout {
    name: String,
    files: Arc<Mutex<ArchiveFiles>>,
}

impl StreamedLayout {
    /// Reads the documents in the order in which they name each other, and opens the layer.
    fn open_disk(&self, options: &RegistryOptions) -> Result<RegistrySource, SourceError> {
        let mut files_left = MAX_FILES;
        self.find_file(INDEX, None, &mut files_left)?;
        let mut served = self.read_root()?;
        let mut selector = options.layer.as_ref();
        let manifest = loop {
            match parse_manifest(&served)? {
                ParsedManifest::Image(manifest) => break manifest,
                ParsedManifest::Index(index) => {
                    let chosen = choose_only_image(index, options, selector)?;
                    // A selector that matched the image does not apply to its layers too.
                    selector = selector.filter(|wanted| !wanted.selects_image(&chosen));
                    self.find_file(&chosen.digest.blob_path(), None, &mut files_left)?;
                    served = self.read_manifest(&chosen)?;
                }
            }
        };
        if manifest.needs_config(options) {
            self.find_file(&manifest.config.digest.blob_path(), None, &mut files_left)?;
            check_config(self, &manifest, options)?;
        }
        let name_of = |layer: &OciDescriptor| (layer.digest.blob_path().into_bytes(), layer.size);
        let layers = manifest.layers.iter().map(name_of).collect();
        let choice = manifest.choose_disk(selector)?;
        let Some(layer) = choice.only_layer() else {
            // Layers are searched from the top down, but the tar has them from the bottom up.
            return Err(self.pass_error("it is a container image with several layers"));
        };
        self.find_file(&layer.digest.blob_path(), Some(&layers), &mut files_left)?;
        // The caller gets a `Source`, which tells neither digest nor environment.
        Ok(RegistrySource::from_disk(self.name.clone(), open_disk(self, &choice)?))
    }

    /// Reads to the beginning of the file `wanted`, at most `files_left` files further. `layers`
    /// are the names and sizes of all layers of the image, which may come before a layer.
    fn find_file(
        &self,
        wanted: &str,
        layers: Option<&BTreeSet<(Vec<u8>, u64)>>,
        files_left: &mut usize,
    ) -> Result<(), SourceError> {
        let mut files = self.files.lock();
        let mut passed = 0u64;
        while *files_left > 0 {
            *files_left -= 1;
            let next = files.next_file().map_err(into_source_error)?;
            let Some((name, size)) = next else { return Err(self.order_error()) };
            let name = without_dot(&name).to_vec();
            if name == wanted.as_bytes() {
                return Ok(());
            }
            match layers {
                // All files except layers are small. Without this check, a tar in another order
                // would be downloaded to its end before it is refused.
                None if size > MAX_MANIFEST_BYTES as u64 => return Err(self.order_error()),
                Some(layers) if layers.contains(&(name, size)) => {
                    passed = passed.saturating_add(size);
                    if passed > MAX_PASSED_BYTES {
                        let reason = format!(
                            "the layers before the one with the disk have {passed} bytes, at most \
                             {MAX_PASSED_BYTES} are supported"
                        );
                        return Err(self.pass_error(&reason));
                    }
                    // The layer is read and not skipped, because the archive reader has a lower
                    // limit for the bytes that it skips by itself.
                    while files.next_chunk().map_err(into_source_error)?.is_some() {}
                }
                _ => {}
            }
        }
        Err(invalid_error(format!(
            "{}: the layer is not among the first {MAX_FILES} files",
            self.name
        )))
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

/// Chooses the image of `index`. One pass can read only one manifest.
fn choose_only_image(
    index: ImageIndex,
    options: &RegistryOptions,
    selector: Option<&LayerSelector>,
) -> Result<OciDescriptor, SourceError> {
    // The disk of a virtual machine does not depend on the platform of this machine. A digest
    // selects without a platform too.
    let is_decided =
        options.architecture.is_none() || selector.is_some_and(LayerSelector::is_digest);
    match index.manifests.as_slice() {
        [only] if is_decided => Ok(only.clone()),
        _ => choose_image(index, options.architecture.as_deref(), selector),
    }
}

impl ImageStore for StreamedLayout {
    fn image_name(&self) -> String {
        self.name.clone()
    }

    fn read_root(&self) -> Result<ServedManifest, SourceError> {
        read_index(&mut FileBody(Arc::clone(&self.files)), &self.name)
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
}

/// The body of a source as a stream.
struct BodyChunks(Box<dyn SourceBody>);

impl ChunkStream for BodyChunks {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.next_chunk()?)
    }
}

/// A body whose first bytes were peeked at, and are returned again.
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

fn into_source_error(error: Error) -> SourceError {
    match error {
        Error::Source(error) => error,
        Error::Stopped => stopped_error(),
        other => SourceError::from_cause(SourceErrorKind::Invalid, other),
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::digest::OciDigest;

    /// A stream of one chunk.
    struct OneChunk(Option<Bytes>);

    impl ChunkStream for OneChunk {
        fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
            Ok(self.0.take())
        }
    }

    /// A file of a tar: a header with this size, and `content`.
    fn tar_file(name: &str, size: u64, content: &str) -> Vec<u8> {
        let mut file = vec![0; 512];
        file[..name.len()].copy_from_slice(name.as_bytes());
        // Base 256.
        file[124] = 0x80;
        file[128..136].copy_from_slice(&size.to_be_bytes());
        file[148..156].fill(b' ');
        let sum: u64 = file.iter().map(|byte| u64::from(*byte)).sum();
        file[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        file.extend(content.bytes());
        file.resize(file.len().next_multiple_of(512), 0);
        file
    }

    #[test]
    fn layers_before_the_disk_have_a_limit() {
        let [other, disk] = [b"other", b"disk_"].map(|bytes| OciDigest::sha256_of(bytes).unwrap());
        let open = |sizes: &[u64]| {
            let layers =
                sizes.iter().map(|size| format!(r#"{{"digest":"{other}","size":{size}}}"#));
            let last = format!(r#"{{"digest":"{disk}","size":1}}"#);
            let layers: Vec<_> = layers.chain(iter::once(last.clone())).collect();
            let manifest = format!(r#"{{"config":{last},"layers":[{}]}}"#, layers.join(","));
            let digest = OciDigest::sha256_of(manifest.as_bytes()).unwrap();
            let length = manifest.len() as u64;
            let index = format!(r#"{{"manifests":[{{"digest":"{digest}","size":{length}}}]}}"#);
            let mut tar = tar_file(INDEX, index.len() as u64, &index);
            tar.extend(tar_file(&digest.blob_path(), length, &manifest));
            tar.extend(sizes.iter().flat_map(|size| tar_file(&other.blob_path(), *size, "")));
            let stream = OneChunk(Some(tar.into()));
            let files = Arc::new(Mutex::new(ArchiveFiles::new(Box::new(stream))));
            let layer = Some(disk.to_string().parse().unwrap());
            let options = RegistryOptions { layer, ..RegistryOptions::default() };
            let layout = StreamedLayout { name: "x".to_owned(), files };
            layout.open_disk(&options).err().unwrap().to_string()
        };
        for sizes in [&[MAX_PASSED_BYTES + 1][..], &[0, MAX_PASSED_BYTES + 1], &[1 << 60]] {
            let error = open(sizes);
            assert!(error.contains("bytes, at most 1099511627776 are supported;"), "{error}");
        }
        let error = open(&[MAX_PASSED_BYTES]);
        assert!(error.contains("the archive is truncated"), "{error}");
    }
}
