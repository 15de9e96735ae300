//! Kinds of object stores, and the options of an import from one.

use std::path::PathBuf;

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
