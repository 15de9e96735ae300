//! An object on an HTTP server: how it is requested and recognised.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use http::{HeaderName, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use reqwest::Response;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::cause::transport_failure;
use super::client::{ObjectClient, ObjectRange};
use super::config::{ContinuityProof, HttpConfig};
use super::identity::{ContentRange, ObjectIdentity, changed_error};
use super::sample::ReceivedSample;
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
    /// A sample of the received bytes, if perhaps only it can show that parts belong together.
    pub(super) sample: Option<ReceivedSample>,
    /// True if the server's answers to ranges contain no validator that proves them.
    pub(super) needs_sample: AtomicBool,
    /// True once the server has sent a part of the object that was requested.
    pub(super) has_served_ranges: AtomicBool,
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
        // A part must repeat an ETag, but need not repeat a date (RFC 9110 §15.3.7).
        let is_provable = identity.has_strong_etag()
            || config.is_checked
            || config.continuity == ContinuityProof::Immutable;
        // Without a length, a longer object could not be recognised.
        let is_sampled =
            !is_provable && config.continuity != ContinuityProof::Once && identity.length.is_some();
        let needs_sample = AtomicBool::new(identity.strong.is_none());
        Self {
            client,
            identity,
            location: Mutex::new(location),
            is_checked: config.is_checked,
            continuity: config.continuity,
            regions: config.regions,
            sample: is_sampled.then(ReceivedSample::new),
            needs_sample,
            has_served_ranges: AtomicBool::new(false),
        }
    }

    /// Returns the URL at which the redirects ended last time.
    pub(super) fn location(&self) -> Url {
        self.location.lock().clone()
    }

    /// Returns the limits for retries and timeouts.
    pub(super) fn retry_policy(&self) -> &RetryPolicy {
        &self.client.network().retry_policy
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
        let is_proven_later = self.is_checked || self.continuity == ContinuityProof::Immutable;
        if condition.is_none() && self.sample.is_none() && !is_proven_later {
            let message = format!(
                "the transfer broke after {start} bytes and cannot be resumed: the server gives neither a length nor a strong ETag or usable \
                 Last-Modified, so the rest might belong to another object. Start the import again, or give a checksum"
            );
            return Err(SourceError::new(SourceErrorKind::NotResumable, message));
        }
        Ok(ObjectRange { start, end, condition })
    }

    /// Reads a short range again, over a connection of its own.
    pub(super) async fn read_again(&self, range: Range<u64>) -> Result<BytesMut, AttemptError> {
        let part = ObjectRange { start: range.start, end: Some(range.end), condition: None };
        let mut response = self.get(Some(&part)).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => {
                return Err(Self::whole_object_error(range.start, "may be another version"));
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let was =
                    self.identity.length.map_or_else(String::new, |length| length.to_string());
                return Err(AttemptError::Final(changed_error("length", &was, "shorter")));
            }
            status => return Err(AttemptError::from_status(206, status, response.headers())),
        }
        self.check_part(&response, range.start, Some(range.end))?;
        let mut bytes = BytesMut::new();
        let failed = |error, url: &Url| transport_failure(error, &self.client.request_route(url));
        while let Some(chunk) =
            response.chunk().await.map_err(|error| failed(error, response.url()))?
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > range.end - range.start {
                break;
            }
        }
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        let message =
            format!("{} bytes came instead of {} to {}", bytes.len(), range.start, range.end);
        Err(AttemptError::new_transient(SourceErrorKind::Length, message))
    }

    /// Checks that a 206 contains bytes from `start` on, and none after `end` or the end of the
    /// object, of exactly this object. A server may send fewer bytes than it was asked for (RFC
    /// 9110 §15.3.7). Returns the offset after the last byte, and the length of the object.
    pub(super) fn check_part(
        &self,
        response: &Response,
        start: u64,
        end: Option<u64>,
    ) -> Result<(u64, Option<u64>), AttemptError> {
        let answered = ContentRange::from_headers(response.headers());
        let total = answered.as_ref().and_then(|range| range.total);
        let identity = ObjectIdentity::from_headers(response.headers(), total);
        self.check_identity(&identity).map_err(AttemptError::Final)?;
        self.check_proof(response)?;
        // A chunked response does not state its length. The length becomes known only when the
        // download is resumed, from the Content-Range of the new response.
        let end = end.or(total);
        // A sample proves nothing about the length.
        let is_known = self.sample.is_none() || total.is_some();
        match answered.and_then(|range| range.part) {
            Some(part)
                if is_known && part.start == start && end.is_none_or(|end| part.end <= end) =>
            {
                self.has_served_ranges.store(true, Ordering::Relaxed);
                Ok((part.end, total))
            }
            _ => {
                let end = end.map_or_else(|| "the end".to_owned(), |end| end.to_string());
                let range = response.headers().get(header::CONTENT_RANGE);
                let message = format!(
                    "the server was asked for bytes {start} to {end} and answered with Content-Range {:?}",
                    range
                        .map(|value| String::from_utf8_lossy(value.as_bytes()))
                        .unwrap_or_default(),
                );
                Err(AttemptError::new_final(SourceErrorKind::NotResumable, message))
            }
        }
    }

    /// True if a later response is certainly of the same object: it has the validator, the name of
    /// the object implies its content, or a checksum of the whole object will show it.
    pub(super) fn is_proven(&self, response: &Response) -> bool {
        self.identity.is_proven_by(response.headers())
            || self.is_checked
            || self.continuity == ContinuityProof::Immutable
    }

    /// Fails if a part may belong to another object: nothing proves it, and no sample of the
    /// received bytes was compared. The failure is transient if a sample can be compared.
    fn check_proof(&self, response: &Response) -> Result<(), AttemptError> {
        let is_sampled = self.sample.is_some();
        if self.is_proven(response) || (is_sampled && self.needs_sample.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let Some((name, value)) = &self.identity.strong else {
            // Then the request was not sent, unless the caller compares the bytes.
            return Ok(());
        };
        let message = format!(
            "the server sent a part of the object without its {name} {}, so the part may belong to another version. Start the import \
             again, or give a checksum",
            printable::escape_text(&String::from_utf8_lossy(value.as_bytes()))
        );
        if is_sampled {
            self.needs_sample.store(true, Ordering::Relaxed);
            return Err(AttemptError::new_transient(SourceErrorKind::NotResumable, message));
        }
        Err(AttemptError::new_final(SourceErrorKind::NotResumable, message))
    }

    /// True for a response with the whole object. Some caches answer a plain request with a part
    /// that is the whole.
    pub(super) fn is_whole(response: &Response) -> bool {
        match response.status() {
            StatusCode::OK => true,
            StatusCode::PARTIAL_CONTENT => ContentRange::from_headers(response.headers())
                .is_some_and(|range| range.part == range.total.map(|total| 0..total)),
            _ => false,
        }
    }

    /// Creates the failure for a 200 although a range from `start` on was requested.
    pub(super) fn whole_object_error(start: u64, what: &str) -> AttemptError {
        let message = format!(
            "the server sent the whole object instead of the range from byte {start}, which {what}"
        );
        AttemptError::new_final(SourceErrorKind::NotResumable, message)
    }

    /// Returns the header that makes the server send only parts of this version of the object.
    fn condition_header(&self) -> Option<(HeaderName, HeaderValue)> {
        // Otherwise a server with another validator would not send the part.
        if self.is_checked {
            return None;
        }
        let (validator, value) = self.identity.strong.clone()?;
        let name = match self.continuity {
            ContinuityProof::IfRange => header::IF_RANGE,
            ContinuityProof::IfMatch if validator == header::ETAG => header::IF_MATCH,
            ContinuityProof::IfMatch => header::IF_UNMODIFIED_SINCE,
            ContinuityProof::Immutable | ContinuityProof::Once => return None,
        };
        Some((name, value))
    }

    /// True if parts of this object can be distinguished from parts of another one.
    pub(super) fn is_recognizable(&self) -> bool {
        match self.continuity {
            ContinuityProof::Immutable => true,
            ContinuityProof::Once => false,
            _ => self.identity.strong.is_some(),
        }
    }

    /// Fails if a later response describes another object, or another version of it. If a checksum
    /// decides at the end, validators are not compared: several servers may send different ones.
    pub(super) fn check_identity(&self, later: &ObjectIdentity) -> Result<(), SourceError> {
        match self.continuity {
            ContinuityProof::Immutable => self.identity.check_length(later),
            _ if self.is_checked => self.identity.check_form(later),
            ContinuityProof::IfRange | ContinuityProof::IfMatch | ContinuityProof::Once => {
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
