//! Kinds of stores, and what an import tells one besides the object's address.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use datapath::error::SourceError;

use super::StoredObject;
use crate::network::Network;
use crate::scheme::SourceKind;

/// A kind of object store.
pub struct ObjectStoreKind {
    /// The kind of source.
    pub kind: SourceKind,
    /// Asks for the object at an address.
    pub(crate) open: fn(&str, &Arc<Network>, &ObjectOptions) -> Result<StoredObject, SourceError>,
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

/// Particulars of an import from an object store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Requests are not signed, whatever keys there are.
    pub anonymous: bool,
    /// Spelling of endpoints.
    pub addressing: AddressingStyle,
    /// The region that requests are signed for first; otherwise it follows from the host or the environment. For S3.
    pub region: Option<String>,
    /// The key file, of a service account or of a user, that came with the import. For Google.
    pub key_file: Option<PathBuf>,
}

/// Spelling of endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressingStyle {
    /// `SCHEME://HOST/BUCKET/KEY`, as CDI does. HTTPS is spoken unless the scheme is `http`.
    #[default]
    Host,
    /// `s3://BUCKET/KEY`, at Amazon or the server that `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` names.
    Bucket,
}
