//! An object of a server: how it is asked for and recognized.

use parking_lot::Mutex;

use datapath::error::{SourceError, SourceErrorKind};
use http::{HeaderName, HeaderValue, header};
use reqwest::Response;
use url::Url;

use super::client::{Client, Part};
use super::config::{Continuity, HttpConfig};
use super::identity::{Identity, changed};
use crate::engine::Regions;
use crate::retry::{AttemptFailed, Patience};

/// The object that an import reads: how to ask for it and how to recognize it.
pub(super) struct Object {
    pub(super) client: Client,
    pub(super) identity: Identity,
    /// Place at which the redirects ended last time.
    location: Mutex<Url>,
    pub(super) is_checked: bool,
    pub(super) continuity: Continuity,
    pub(super) regions: Option<Regions>,
}

impl Object {
    /// The object that `config` names, as its first answer, which came from `location`, showed it.
    pub(super) fn new(config: HttpConfig, client: Client, identity: Identity, location: Url) -> Self {
        Self {
            client,
            identity,
            location: Mutex::new(location),
            is_checked: config.is_checked,
            continuity: config.continuity,
            regions: config.regions,
        }
    }

    /// Limits of trying again and of waiting.
    pub(super) fn patience(&self) -> &Patience {
        &self.client.network().patience
    }

    /// Asks where the redirects ended. A signed URL may have expired since: then once more from the start.
    pub(super) async fn get(&self, part: Option<&Part>) -> Result<Response, AttemptFailed> {
        let location = self.location.lock().clone();
        let (response, url) = self.client.get(&location, part).await?;
        let expired = matches!(response.status().as_u16(), 401 | 403 | 404 | 410);
        let (response, url) = if expired && location != *self.client.start() {
            tracing::info!(
                "{} where the redirect led, asking the endpoint again",
                response.status()
            );
            self.client.get(self.client.start(), part).await?
        } else {
            (response, url)
        };
        if response.status().is_success() {
            *self.location.lock() = url;
        }
        Ok(response)
    }

    /// The request for the bytes from `start` on, or the reason why parts of this object cannot be joined.
    pub(super) fn part(&self, start: u64, end: Option<u64>) -> Result<Part, SourceError> {
        let condition = self.condition();
        if condition.is_none() && !self.is_checked && self.continuity != Continuity::Immutable {
            let message = format!(
                "the transfer broke after {start} bytes and cannot be continued: the server gives neither a \
                 strong ETag nor a usable Last-Modified, so the rest might be that of another object. \
                 Start the import again, or give a checksum"
            );
            return Err(SourceError::new(SourceErrorKind::NotResumable, message));
        }
        Ok(Part {
            start,
            end,
            condition,
        })
    }

    /// The header under which the server sends a part: of this object only.
    fn condition(&self) -> Option<(HeaderName, HeaderValue)> {
        let (validator, value) = self.identity.strong.clone()?;
        let name = match self.continuity {
            Continuity::IfRange => header::IF_RANGE,
            Continuity::IfMatch if validator == header::ETAG => header::IF_MATCH,
            Continuity::IfMatch => header::IF_UNMODIFIED_SINCE,
            Continuity::Immutable => return None,
        };
        Some((name, value))
    }

    /// True if parts of the object can be told from those of another.
    pub(super) fn is_recognizable(&self) -> bool {
        self.continuity == Continuity::Immutable || self.identity.strong.is_some()
    }

    /// Fails when a later answer is about another object, or another version of it.
    pub(super) fn check(&self, later: &Identity) -> Result<(), SourceError> {
        match self.continuity {
            Continuity::Immutable => self.identity.check_length(later),
            Continuity::IfRange | Continuity::IfMatch => self.identity.check(later),
        }
    }

    /// 412: the validator that was sent is no longer that of the object.
    pub(super) fn gone(&self) -> SourceError {
        match &self.identity.strong {
            Some((name, value)) => {
                let was = String::from_utf8_lossy(value.as_bytes());
                changed(name.as_str(), &was, "another")
            }
            None => changed("version", "another", "not known"),
        }
    }
}
