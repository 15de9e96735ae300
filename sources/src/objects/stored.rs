//! An object of a store, and the checksum that the store keeps of it.

use std::ops::Range;

use bytes::Bytes;
use datapath::digest::Checksum;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::http::{HttpConfig, HttpSource};
use crate::verified::Verified;

/// An object in a bucket. Methods block, as those of [`HttpSource`] do.
pub struct StoredObject {
    pub(crate) http: HttpSource,
    /// What the store says that all bytes digest to.
    pub(crate) checksum: Option<Checksum>,
    /// `"bucket/key"`, for errors.
    pub(crate) what: String,
}

/// Asks a store of this kind for `what`, in CDI's words when it refuses.
pub(crate) fn open_object(
    kind: &str,
    what: &str,
    config: HttpConfig,
    handle: Handle,
    stop: CancellationToken,
) -> Result<HttpSource, SourceError> {
    HttpSource::open(config, handle, stop).map_err(|error| match error.kind() {
        SourceErrorKind::Stopped => error,
        reason => SourceError::new(reason, format!("could not get {kind} object: {what}: {error}")),
    })
}

impl Source for StoredObject {
    fn name(&self) -> String {
        self.http.name()
    }

    fn length(&self) -> Option<u64> {
        self.http.length()
    }

    fn is_ranged(&self) -> bool {
        self.http.is_ranged()
    }

    fn verifies(&self) -> bool {
        self.checksum.is_some()
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        let body = self.http.body()?;
        Ok(match self.checksum.clone() {
            Some(checksum) => Box::new(Verified::new(body, checksum, self.what.clone())),
            None => body,
        })
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.http.read_range(range)
    }
}
