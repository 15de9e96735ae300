//! An object in a store, and the checksum that the store keeps for it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use stream::digest::Checksum;
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};

use url::Url;

use fetch::Network;
use fetch::http::{ContinuityProof, HttpConfig, HttpSource, ServerDialect};
use fetch::verified::VerifiedBody;

/// An object in a bucket. Its methods block, like the methods of [`HttpSource`].
pub struct StoredObject {
    pub(crate) http: HttpSource,
    /// Digest of all bytes, as the store announces it.
    pub(crate) checksum: Option<Checksum>,
    /// The raw disk that the object is, if the store states that.
    pub(crate) stated_disk: Option<StatedDisk>,
    /// `"bucket/key"`, for error messages.
    pub(crate) what: String,
}

/// Requests the object `what` at `url` from a store of this kind. Errors are worded as in CDI.
pub(crate) fn open_object(
    kind: &str,
    what: &str,
    url: Url,
    dialect: Arc<dyn ServerDialect>,
    network: &Arc<Network>,
) -> Result<HttpSource, SourceError> {
    let config = HttpConfig {
        dialect: Some(dialect),
        continuity: ContinuityProof::IfMatch,
        ..HttpConfig::from_url(url, network)
    };
    HttpSource::open(config).map_err(|error| match error.kind() {
        SourceErrorKind::Stopped => error,
        reason => SourceError::with_context(
            reason,
            format_args!("could not get {kind} object: {what}"),
            error,
        ),
    })
}

impl Source for StoredObject {
    fn name(&self) -> String {
        self.http.name()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.http.total_bytes()
    }

    fn content_type(&self) -> Option<&str> {
        self.http.content_type()
    }

    fn is_ranged(&self) -> bool {
        self.http.is_ranged()
    }

    fn has_own_digest(&self) -> bool {
        self.checksum.is_some()
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        self.stated_disk
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let body = self.http.open_body()?;
        Ok(match self.checksum.clone() {
            Some(checksum) => Box::new(VerifiedBody::new(body, checksum, self.what.clone())?),
            None => body,
        })
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.http.read_range(range)
    }
}
