//! Kinds of object stores, and the options of an import from one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use fetch::Network;
use fetch::scheme::SourceKind;
use stream::error::SourceError;

use super::StoredObject;

/// A kind of object store.
pub struct ObjectStoreKind {
    /// The store's kind of source.
    pub kind: SourceKind,
    /// Requests the object at an address.
    pub open: fn(&str, &Arc<Network>, &ObjectOptions) -> Result<StoredObject, SourceError>,
}

impl fmt::Debug for ObjectStoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())
    }
}

impl PartialEq for ObjectStoreKind {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for ObjectStoreKind {}

/// Options of an import from an object store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectOptions {
    /// True if requests are not signed, even if keys are available.
    pub anonymous: bool,
    /// Form of the object's address.
    pub addressing: AddressingStyle,
    /// For Google: the key file, of a service account or of a user, that came with the import.
    pub key_file: Option<PathBuf>,
}

/// Form of the address of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressingStyle {
    /// `SCHEME://HOST/BUCKET/KEY`, as in CDI. HTTPS is used unless the scheme is `http`.
    #[default]
    Host,
    /// `s3://BUCKET/KEY`, at Amazon or at the server in `AWS_ENDPOINT_URL_S3` or
    /// `AWS_ENDPOINT_URL`.
    Bucket,
}
