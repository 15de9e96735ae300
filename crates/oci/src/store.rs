//! Stores of the parts of an image: a registry, or a layout on a disk.

use bytes::Bytes;
use fetch::verified::VerifiedBody;
use fetch::whole::read_whole;
use stream::error::{SourceError, SourceErrorKind};
use stream::source::SourceBody;
use stream::storage::StorageLocation;
use url::Url;

use super::digest::OciDigest;
use super::manifest::{MAX_MANIFEST_BYTES, OciDescriptor, ServedManifest};

/// A part of a list of referrers.
#[derive(Debug, Default)]
pub(super) struct ReferrersPage {
    /// The artifacts.
    pub(super) entries: Vec<OciDescriptor>,
    /// The address of the next page, if there is one.
    pub(super) next: Option<Url>,
}

/// A store that holds one image or several.
pub(super) trait ImageStore: Send + Sync {
    /// Returns the name of the image for logs.
    fn image_name(&self) -> String;

    /// Reads the manifest or index that the endpoint names.
    fn read_root(&self) -> Result<ServedManifest, SourceError>;

    /// Reads a manifest that an index names, and verifies its digest.
    fn read_manifest(&self, descriptor: &OciDescriptor) -> Result<ServedManifest, SourceError> {
        Ok(ServedManifest {
            digest: descriptor.digest.clone(),
            media_type: Some(descriptor.media_type.clone()),
            bytes: read_document(self, descriptor, MAX_MANIFEST_BYTES)?,
        })
    }

    /// Reads the manifest or index that `tag` names; `None` if there is none.
    fn read_tagged(&self, _tag: &str) -> Result<Option<ServedManifest>, SourceError> {
        Ok(None)
    }

    /// Reads a page of the list of artifacts that refer to the image `digest`, perhaps only
    /// artifacts of `artifact_type`. `next` is from the page before, `None` reads the first page.
    fn read_referrers(
        &self,
        _digest: &OciDigest,
        _artifact_type: &str,
        _next: Option<Url>,
    ) -> Result<ReferrersPage, SourceError> {
        Ok(ReferrersPage::default())
    }

    /// Returns the location of all images, if it is one file of this machine.
    fn storage_location(&self) -> Option<StorageLocation> {
        None
    }

    /// Opens the bytes of a blob, which are not verified yet.
    fn open_blob(&self, blob: &OciDescriptor) -> Result<Box<dyn SourceBody>, SourceError>;
}

/// Opens the bytes of a blob. They end without an error only if they have the length and the
/// digest that the manifest says.
pub(super) fn open_verified(
    store: &(impl ImageStore + ?Sized),
    blob: &OciDescriptor,
) -> Result<Box<dyn SourceBody>, SourceError> {
    let body = Box::new(MeasuredBody {
        body: store.open_blob(blob)?,
        left: blob.size,
        blob: blob.clone(),
    });
    let what = format!("blob {}", blob.digest);
    Ok(Box::new(VerifiedBody::new(body, blob.digest.to_checksum(), what)?))
}

/// Reads a whole blob that is a document of at most `limit` bytes.
pub(super) fn read_document(
    store: &(impl ImageStore + ?Sized),
    blob: &OciDescriptor,
    limit: usize,
) -> Result<Bytes, SourceError> {
    if usize::try_from(blob.size).map_or(true, |size| size > limit) {
        let message = format!(
            "blob {} has {} bytes, but a document may have at most {limit}",
            blob.digest, blob.size
        );
        return Err(SourceError::new(SourceErrorKind::Length, message));
    }
    read_whole(&mut *open_verified(store, blob)?, limit, &format!("blob {}", blob.digest))
}

/// A body that must have exactly the length that its manifest says. No more bytes are read.
struct MeasuredBody {
    body: Box<dyn SourceBody>,
    left: u64,
    blob: OciDescriptor,
}

impl MeasuredBody {
    fn mismatch_error(&self, how: &str) -> SourceError {
        let OciDescriptor { digest, size, .. } = &self.blob;
        let message = format!("blob {digest}: {how} the {size} bytes given in the manifest");
        SourceError::new(SourceErrorKind::Length, message)
    }
}

impl SourceBody for MeasuredBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = self.body.next_chunk()?;
        match &chunk {
            None if self.left > 0 => {
                Err(self.mismatch_error(&format!("it ends {} bytes short of", self.left)))
            }
            Some(bytes) if bytes.len() as u64 > self.left => {
                Err(self.mismatch_error("it has more than"))
            }
            _ => {
                self.left -= chunk.as_ref().map_or(0, |bytes| bytes.len() as u64);
                Ok(chunk)
            }
        }
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.body.skip_to(offset)
    }
}
