//! Small documents on a web server or on this machine: lists of checksums, signatures.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use fetch::Network;
use fetch::address::url_origin;
use fetch::http::{ExtraHeader, HttpConfig, HttpSource};
use fetch::whole::read_whole;
use program::limited::read_limited;
use stream::error::{SourceError, errno_text};
use stream::source::Source;
use url::Url;

use super::EvidenceError;

/// A document, and how it came here.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// The content.
    pub(super) bytes: Vec<u8>,
    /// True if nobody on the way can have changed it: it is a file, or came over HTTPS. Its server
    /// still may have.
    pub(super) is_protected: bool,
}

/// Where documents are read from, and the secrets of the image's own server.
#[derive(Clone)]
pub struct DocumentReader {
    /// Settings for reaching servers.
    pub network: Arc<Network>,
    /// The address of the image. Only its origin receives credentials and headers.
    pub image: Option<Url>,
    /// Headers that are sent with the request for the image.
    pub headers: Vec<ExtraHeader>,
}

impl DocumentReader {
    /// Reads the document at `place`, a URL or a path, which may have at most `limit` bytes.
    /// `option` names it.
    pub(super) fn read(
        &self,
        option: &str,
        place: &str,
        limit: u64,
    ) -> Result<Document, EvidenceError> {
        if is_url(place) {
            return Ok(self.download(place, limit)?);
        }
        let bytes = read_file(option, Path::new(place), limit)?;
        Ok(Document { bytes, is_protected: true })
    }

    fn download(&self, place: &str, limit: u64) -> Result<Document, SourceError> {
        let source = HttpSource::open(self.config(place)?)?;
        let is_protected = source.location().scheme() == "https" && !has_scheme(place, "http");
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let bytes = read_whole(&mut *source.open_body()?, limit, &source.name())?;
        Ok(Document { bytes: bytes.into(), is_protected })
    }

    fn config(&self, place: &str) -> Result<HttpConfig, SourceError> {
        let mut config = HttpConfig::new(place, &self.network)?;
        let origin = url_origin(&config.url);
        if self.image.as_ref().is_some_and(|image| url_origin(image) == origin) {
            config.headers = self.headers.clone();
            config.credentials = self.network.credentials.clone();
        }
        // The digest of the document is not known, whatever is known about the image.
        config.is_checked = false;
        config.is_image = false;
        Ok(config)
    }
}

/// Reads a file of at most `limit` bytes that `option` names.
pub fn read_file(option: &str, path: &Path, limit: u64) -> Result<Vec<u8>, EvidenceError> {
    File::open(path).and_then(|file| read_limited(file, limit)).map_err(|error| {
        let (path, reason) = (path.display(), errno_text(&error));
        EvidenceError::Usage(format!("cannot read {path}: {reason}; check {option}"))
    })
}

/// True if `place` is the URL of a web server.
pub fn is_url(place: &str) -> bool {
    has_scheme(place, "http") || has_scheme(place, "https")
}

fn has_scheme(place: &str, wanted: &str) -> bool {
    place.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(wanted))
}
