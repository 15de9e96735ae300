//! An object of a store, and the checksum that the store keeps of it.

use std::ops::Range;

use bytes::Bytes;
use datapath::digest::Checksum;
use datapath::error::SourceError;
use datapath::source::{Body, Source};

use crate::source::http::HttpSource;
use crate::source::verified::Verified;

/// An object in a bucket. Methods block, as those of [`HttpSource`] do.
pub struct StoredObject {
    pub(in crate::source) http: HttpSource,
    /// What the store says that all bytes digest to.
    pub(in crate::source) checksum: Option<Checksum>,
    /// `"bucket/key"`, for errors.
    pub(in crate::source) what: String,
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
