//! An object on an HTTP server: how it is requested and recognised.

use parking_lot::Mutex;

use datapath::error::{SourceError, SourceErrorKind};
use http::{HeaderName, HeaderValue, header};
use reqwest::Response;
use url::Url;

use super::client::{ObjectClient, ObjectRange};
use super::config::{ContinuityProof, HttpConfig};
use super::identity::{ObjectIdentity, changed_error};
use crate::engine::ObjectRegions;
use crate::retry::{AttemptError, RetryPolicy};

/// The object that an import reads, with the means to request and to recognise it.
pub(super) struct HttpObject {
    pub(super) client: ObjectClient,
    pub(super) identity: ObjectIdentity,
    /// The URL at which the redirects ended last time.
    location: Mutex<Url>,
    pub(super) is_checked: bool,
    pub(super) continuity: ContinuityProof,
    pub(super) regions: Option<ObjectRegions>,
}

impl HttpObject {
    /// Creates the object that `config` describes. `identity` is taken from its first response,
    /// which came from `location`.
    pub(super) fn new(
        config: HttpConfig,
        client: ObjectClient,
        identity: ObjectIdentity,
        location: Url,
    ) -> Self {
        Self {
            client,
            identity,
            location: Mutex::new(location),
            is_checked: config.is_checked,
            continuity: config.continuity,
            regions: config.regions,
        }
    }

    /// Returns the limits for retries and timeouts.
    pub(super) fn retry_policy(&self) -> &RetryPolicy {
        &self.client.network().patience
    }

    /// Sends a request to the URL at which the redirects ended. If a signed URL has expired since,
    /// the request is sent once more from the start.
    pub(super) async fn get(&self, part: Option<&ObjectRange>) -> Result<Response, AttemptError> {
        let location = self.location.lock().clone();
        let (response, url) = self.client.follow_redirects(&location, part).await?;
        let expired = matches!(response.status().as_u16(), 401 | 403 | 404 | 410);
        let (response, url) = if expired && location != *self.client.start_url() {
            tracing::info!(
                "{} from the redirect's target, asking the endpoint again",
                response.status()
            );
            self.client.follow_redirects(self.client.start_url(), part).await?
        } else {
            (response, url)
        };
        if response.status().is_success() {
            // Store the URL only after a success: later requests must not go to an error page.
            *self.location.lock() = url;
        }
        Ok(response)
    }

    /// Creates the request for the bytes from `start` on. Fails if parts of this object cannot be
    /// joined safely.
    pub(super) fn range_request(
        &self,
        start: u64,
        end: Option<u64>,
    ) -> Result<ObjectRange, SourceError> {
        let condition = self.condition_header();
        if condition.is_none() && !self.is_checked && self.continuity != ContinuityProof::Immutable
        {
            let message = format!(
                "the transfer broke after {start} bytes and cannot be resumed: the server gives neither a strong ETag nor a usable \
                 Last-Modified, so the rest might belong to another object. Start the import again, or give a checksum"
            );
            return Err(SourceError::new(SourceErrorKind::NotResumable, message));
        }
        Ok(ObjectRange { start, end, condition })
    }

    /// Returns the header that makes the server send only parts of this version of the object.
    fn condition_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let (validator, value) = self.identity.strong.clone()?;
        let name = match self.continuity {
            ContinuityProof::IfRange => header::IF_RANGE,
            ContinuityProof::IfMatch if validator == header::ETAG => header::IF_MATCH,
            ContinuityProof::IfMatch => header::IF_UNMODIFIED_SINCE,
            ContinuityProof::Immutable => return None,
        };
        Some((name, value))
    }

    /// True if parts of this object can be distinguished from parts of another one.
    pub(super) fn is_recognizable(&self) -> bool {
        self.continuity == ContinuityProof::Immutable || self.identity.strong.is_some()
    }

    /// Fails if a later response describes another object, or another version of it.
    pub(super) fn check_identity(&self, later: &ObjectIdentity) -> Result<(), SourceError> {
        match self.continuity {
            ContinuityProof::Immutable => self.identity.check_length(later),
            ContinuityProof::IfRange | ContinuityProof::IfMatch => {
                self.identity.check_unchanged(later)
            }
        }
    }

    /// Creates the error for a 412: the object no longer has the validator that was sent.
    pub(super) fn precondition_error(&self) -> SourceError {
        match &self.identity.strong {
            Some((name, value)) => {
                let was = String::from_utf8_lossy(value.as_bytes());
                changed_error(name.as_str(), &was, "another")
            }
            None => changed_error("version", "another", "not known"),
        }
    }
}
