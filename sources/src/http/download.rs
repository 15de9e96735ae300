//! Bytes of one object in order, across as many connections as it takes.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use http::{HeaderName, HeaderValue, StatusCode, header};
use reqwest::Response;
use url::Url;

use super::cause::transport_failure;
use super::client::{Client, Part};
use super::config::Continuity;
use super::identity::{ContentRange, Identity, changed};
use crate::retry::{Attempts, Failure, Patience, within};

/// The object that an import reads: how to ask for it and how to recognize it.
pub(super) struct Object {
    pub(super) client: Client,
    pub(super) identity: Identity,
    /// Where the redirects ended last time.
    pub(super) location: Mutex<Url>,
    pub(super) patience: Patience,
    pub(super) is_checked: bool,
    pub(super) continuity: Continuity,
}

impl Object {
    fn location(&self) -> Url {
        self.location
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_location(&self, url: Url) {
        *self.location.lock().unwrap_or_else(PoisonError::into_inner) = url;
    }

    /// Asks where the redirects ended. A signed URL may have expired since: then once more from the start.
    pub(super) async fn get(&self, part: Option<&Part>) -> Result<Response, Failure> {
        let location = self.location();
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
            self.set_location(url);
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
        let (validator, value) = self.identity.strong()?.clone();
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
        self.continuity == Continuity::Immutable || self.identity.strong().is_some()
    }

    /// Fails when a later answer is about another object, or another version of it.
    pub(super) fn check(&self, later: &Identity) -> Result<(), SourceError> {
        match self.continuity {
            Continuity::Immutable => self.identity.check_length(later),
            Continuity::IfRange | Continuity::IfMatch => self.identity.check(later),
        }
    }

    /// 412: the validator that was sent is no longer that of the object.
    fn gone(&self) -> SourceError {
        match self.identity.strong() {
            Some((name, value)) => {
                let was = String::from_utf8_lossy(value.as_bytes());
                changed(name.as_str(), &was, "another")
            }
            None => changed("version", "another", "not known"),
        }
    }
}

/// Reads an object, or a part of it, once and in order. Dropping it closes its connection.
pub(super) struct Download<'a> {
    object: &'a Object,
    position: u64,
    /// Offset after the last byte; unknown for a body without a length.
    end: Option<u64>,
    /// The end is one that the caller chose.
    bounded: bool,
    connection: Option<Connection>,
    complete: bool,
}

struct Connection {
    response: Response,
    /// Bytes that come first although they were received before.
    repeated: u64,
}

impl<'a> Download<'a> {
    /// The object from `position` to its end. `response`, if given, is a fresh 200 for all of it.
    pub(super) fn from(object: &'a Object, position: u64, response: Option<Response>) -> Self {
        Self {
            object,
            position,
            end: object.identity.length(),
            bounded: false,
            connection: response.map(|response| Connection {
                response,
                repeated: 0,
            }),
            complete: false,
        }
    }

    /// Just the bytes of `range`.
    pub(super) fn within(object: &'a Object, range: Range<u64>) -> Self {
        Self {
            object,
            position: range.start,
            end: Some(range.end),
            bounded: true,
            connection: None,
            complete: false,
        }
    }

    /// The next bytes, or `None` at the verified end. Tries again, with pauses, until the patience ends.
    /// Dropping the future loses no byte that was returned, but the connection is in an unknown state.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut attempts = Attempts::new(&self.object.patience);
        loop {
            if self.complete || self.end == Some(self.position) {
                return Ok(None);
            }
            match self.attempt(&mut attempts).await {
                Ok(chunk) => return Ok(chunk),
                Err(failure) => {
                    self.connection = None;
                    let pause = attempts.failed(failure, &self.place())?;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn attempt(&mut self, attempts: &mut Attempts<'_>) -> Result<Option<Bytes>, Failure> {
        let client = &self.object.client;
        if self.connection.is_none() {
            let limit = attempts.wait_limit();
            let connecting = within(limit, self.connect()).await;
            self.connection = connecting.map_err(|failure| client.name_silence(failure))?;
        }
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(None);
            };
            let read = async { Ok(connection.response.chunk().await) };
            let read = within(attempts.wait_limit(), read).await;
            let chunk = read
                .map_err(|failure| client.name_silence(failure))?
                .map_err(|error| transport_failure(error, &client.route(connection.response.url())))?;
            let Some(mut chunk) = chunk else {
                return self.ended().map(|()| None);
            };
            if connection.repeated > 0 {
                let known = usize::try_from(connection.repeated)
                    .unwrap_or(usize::MAX)
                    .min(chunk.len());
                drop(chunk.split_to(known));
                connection.repeated -= known as u64;
                attempts.repeated(self.position - connection.repeated);
            }
            if !chunk.is_empty() {
                return self.accept(chunk).map(Some);
            }
        }
    }

    fn accept(&mut self, chunk: Bytes) -> Result<Bytes, Failure> {
        let position = self.position.saturating_add(chunk.len() as u64);
        if let Some(end) = self.end
            && position > end
        {
            let message = format!("the server sent at least {position} bytes where {end} were announced");
            return Err(Failure::Final(SourceError::new(SourceErrorKind::Length, message)));
        }
        self.position = position;
        Ok(chunk)
    }

    /// The server says that the body is over: true only if nothing is missing.
    fn ended(&mut self) -> Result<(), Failure> {
        match self.end {
            Some(end) if self.position < end => {
                let message = format!("the body ended after {} of {end} bytes", self.position);
                Err(Failure::transient(SourceErrorKind::Length, message))
            }
            _ => {
                self.complete = true;
                Ok(())
            }
        }
    }

    /// A connection whose next new byte is the one at the current position; `None` when there is none left.
    async fn connect(&mut self) -> Result<Option<Connection>, Failure> {
        if self.position == 0 && !self.bounded {
            return self.restart().await.map(Some);
        }
        let end = self.end.filter(|_| self.bounded);
        let part = self.object.part(self.position, end).map_err(Failure::Final)?;
        let response = self.object.get(Some(&part)).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => self.continued(response).map(Some),
            StatusCode::OK => self.repeated(response).map(Some),
            StatusCode::PRECONDITION_FAILED => Err(Failure::Final(self.object.gone())),
            StatusCode::RANGE_NOT_SATISFIABLE => self.beyond_the_end(&response).map(|()| None),
            status => Err(Failure::status(206, status, response.headers())),
        }
    }

    async fn restart(&mut self) -> Result<Connection, Failure> {
        let response = self.object.get(None).await?;
        if response.status() != StatusCode::OK {
            return Err(Failure::status(200, response.status(), response.headers()));
        }
        let identity = Identity::of(response.headers(), response.content_length());
        self.object.check(&identity).map_err(Failure::Final)?;
        Ok(Connection {
            response,
            repeated: 0,
        })
    }

    /// 206: exactly the bytes that were asked for, of exactly this object.
    fn continued(&mut self, response: Response) -> Result<Connection, Failure> {
        let answered = ContentRange::of(response.headers());
        let total = answered.as_ref().and_then(|range| range.total);
        let identity = Identity::of(response.headers(), total);
        self.object.check(&identity).map_err(Failure::Final)?;
        let end = if self.bounded {
            self.end
        } else {
            self.end.or(total)
        };
        let part = answered.as_ref().and_then(|range| range.part.clone());
        match part {
            Some(part) if part.start == self.position && end.is_none_or(|end| part.end == end) => {
                self.end = end.or(Some(part.end));
                Ok(Connection {
                    response,
                    repeated: 0,
                })
            }
            _ => {
                let end = end.map_or_else(|| "the end".to_owned(), |end| end.to_string());
                let range = response.headers().get(http::header::CONTENT_RANGE);
                let message = format!(
                    "the server was asked for bytes {} to {end} and answered with Content-Range {:?}",
                    self.position,
                    range
                        .map(|value| String::from_utf8_lossy(value.as_bytes()))
                        .unwrap_or_default(),
                );
                Err(Failure::Final(SourceError::new(SourceErrorKind::Io, message)))
            }
        }
    }

    /// 200 although a range was asked for: another version of the object, or a server without ranges.
    fn repeated(&mut self, response: Response) -> Result<Connection, Failure> {
        let identity = Identity::of(response.headers(), response.content_length());
        self.object.check(&identity).map_err(Failure::Final)?;
        let proven = self.object.identity.is_proven_by(response.headers())
            || self.object.is_checked
            || self.object.continuity == Continuity::Immutable;
        if self.bounded || !proven {
            let message = format!(
                "the server sent the whole object instead of its bytes from {} on, which {}",
                self.position,
                if proven {
                    "makes random access impossible"
                } else {
                    "may be those of another version"
                },
            );
            return Err(Failure::Final(SourceError::new(
                SourceErrorKind::NotResumable,
                message,
            )));
        }
        tracing::info!(
            bytes = self.position,
            "the server ignores ranges: what came before is read and dropped"
        );
        Ok(Connection {
            response,
            repeated: self.position,
        })
    }

    /// 416: either nothing was missing (a body without a length that broke just before its end mark), or
    /// the object is shorter than it was.
    fn beyond_the_end(&mut self, response: &Response) -> Result<(), Failure> {
        let total = ContentRange::of(response.headers()).and_then(|range| range.total);
        if total == Some(self.position) && self.end.is_none() {
            self.complete = true;
            return Ok(());
        }
        let was = self
            .end
            .map_or_else(|| format!("at least {}", self.position), |end| end.to_string());
        let is = total.map_or_else(|| "shorter".to_owned(), |total| total.to_string());
        Err(Failure::Final(changed("length", &was, &is)))
    }

    fn place(&self) -> String {
        match self.end {
            Some(end) => format!("at byte {} of {end}", self.position),
            None => format!("at byte {}", self.position),
        }
    }
}
