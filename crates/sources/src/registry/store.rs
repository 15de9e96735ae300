//! Stores of the parts of an image: a registry, or a layout on a disk.

use bytes::{Bytes, BytesMut};
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::Body;
use datapath::storage::Storage;

use super::manifest::{Descriptor, Served};
use crate::verified::Verified;

/// A place that holds one image or several.
pub(super) trait Store: Send + Sync {
    /// Name of the image in logs.
    fn name(&self) -> String;

    /// The manifest or index that the endpoint names.
    fn top(&self) -> Result<Served, SourceError>;

    /// A manifest that an index names; its digest is verified.
    fn manifest(&self, descriptor: &Descriptor) -> Result<Served, SourceError>;

    /// Place of all images, if that is one file of this machine.
    fn storage(&self) -> Option<Storage> {
        None
    }

    /// The bytes of a blob, not verified yet.
    fn open(&self, blob: &Descriptor) -> Result<Box<dyn Body>, SourceError>;
}

/// The bytes of a blob: they end well only when they have the length and the digest that the manifest says.
pub(super) fn verified(store: &dyn Store, blob: &Descriptor) -> Result<Box<dyn Body>, SourceError> {
    let body = Box::new(Measured {
        body: store.open(blob)?,
        left: blob.size,
        blob: blob.clone(),
    });
    let what = format!("blob {}", blob.digest);
    Ok(Box::new(Verified::new(body, blob.digest.checksum(), what)?))
}

/// A whole blob that is a document of at most `limit` bytes.
pub(super) fn document(store: &dyn Store, blob: &Descriptor, limit: usize) -> Result<Bytes, SourceError> {
    if usize::try_from(blob.size).map_or(true, |size| size > limit) {
        let message = format!(
            "blob {} has {} bytes, a document has at most {limit}",
            blob.digest, blob.size
        );
        return Err(SourceError::new(SourceErrorKind::Length, message));
    }
    let mut body = verified(store, blob)?;
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next_chunk()? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// A body that has as many bytes as its manifest says, and no more of them are read.
struct Measured {
    body: Box<dyn Body>,
    left: u64,
    blob: Descriptor,
}

impl Measured {
    fn wrong(&self, how: &str) -> SourceError {
        let Descriptor { digest, size, .. } = &self.blob;
        let message = format!("blob {digest}: {how} the {size} bytes that the manifest says");
        SourceError::new(SourceErrorKind::Length, message)
    }
}

impl Body for Measured {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = self.body.next_chunk()?;
        match &chunk {
            None if self.left > 0 => Err(self.wrong(&format!("it ends {} bytes before", self.left))),
            Some(bytes) if bytes.len() as u64 > self.left => Err(self.wrong("it goes on after")),
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
