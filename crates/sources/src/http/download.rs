//! Reads the bytes of one object in order. Each broken connection is replaced by a new one.

use std::ops::Range;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use http::StatusCode;
use reqwest::Response;
use tracing::Instrument;

use super::cause::transport_failure;
use super::config::ContinuityProof;
use super::identity::{ContentRange, ObjectIdentity, changed_error};
use super::object::HttpObject;
use crate::engine::RemoteObject;
use crate::retry::{AttemptError, RetryAttempts, with_time_limit};

/// Reads an object, or a range of it, once and in order. Dropping it closes its connection.
pub(super) struct HttpDownload<'a> {
    object: &'a HttpObject,
    position: u64,
    /// Offset after the last byte; `None` for a body of unknown length.
    end: Option<u64>,
    /// True if the caller requested a range, which sets the end.
    bounded: bool,
    connection: Option<DownloadConnection>,
    complete: bool,
}

struct DownloadConnection {
    response: Response,
    /// Bytes at the start of the response that had already been received.
    repeated: u64,
}

impl<'a> HttpDownload<'a> {
    /// Reads the object from `position` to its end. `response`, if given, is a fresh 200 with the
    /// whole object.
    pub(super) fn from_position(
        object: &'a HttpObject,
        position: u64,
        response: Option<Response>,
    ) -> Self {
        Self {
            object,
            position,
            end: object.identity.length,
            bounded: false,
            connection: response.map(|response| DownloadConnection { response, repeated: 0 }),
            complete: false,
        }
    }

    /// Reads only the bytes of `range`.
    pub(super) fn from_range(object: &'a HttpObject, range: Range<u64>) -> Self {
        Self {
            object,
            position: range.start,
            end: Some(range.end),
            bounded: true,
            connection: None,
            complete: false,
        }
    }

    /// Returns the next bytes, or `None` at the verified end. Failures are retried, with pauses,
    /// within the limits of the retry policy. Dropping the future loses no byte that was returned,
    /// but leaves the connection in an unknown state.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut attempts = self.object.network().retry_attempts();
        loop {
            if self.complete || self.end == Some(self.position) {
                return Ok(None);
            }
            let span = attempts.tracing_span();
            match self.try_next(&mut attempts).instrument(span).await {
                Ok(chunk) => return Ok(chunk),
                Err(failure) => {
                    self.connection = None;
                    let pause = attempts.record_failure(failure, &self.position_text())?;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn try_next(
        &mut self,
        attempts: &mut RetryAttempts<'_>,
    ) -> Result<Option<Bytes>, AttemptError> {
        let client = &self.object.client;
        if self.connection.is_none() {
            let limit = attempts.wait_limit();
            let connecting = with_time_limit(limit, self.connect()).await;
            self.connection = connecting.map_err(|failure| client.name_silence(failure))?;
        }
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(None);
            };
            let read = async { Ok(connection.response.chunk().await) };
            let read = with_time_limit(attempts.wait_limit(), read).await;
            let chunk = read.map_err(|failure| client.name_silence(failure))?.map_err(|error| {
                transport_failure(error, &client.request_route(connection.response.url()))
            })?;
            let Some(mut chunk) = chunk else {
                return self.check_end().map(|()| None);
            };
            if connection.repeated > 0 {
                let known =
                    usize::try_from(connection.repeated).unwrap_or(usize::MAX).min(chunk.len());
                // Drop the repeated bytes. Requesting a range cannot help: the server ignored the
                // range, which caused the repetition.
                drop(chunk.split_to(known));
                connection.repeated -= known as u64;
                attempts.record_repeated(self.position - connection.repeated);
            }
            if !chunk.is_empty() {
                return self.accept_chunk(chunk).map(Some);
            }
        }
    }

    fn accept_chunk(&mut self, chunk: Bytes) -> Result<Bytes, AttemptError> {
        let position = self.position.saturating_add(chunk.len() as u64);
        if let Some(end) = self.end
            && position > end
        {
            let message = format!("the server announced {end} bytes and sent at least {position}");
            return Err(AttemptError::new_final(SourceErrorKind::Length, message));
        }
        self.position = position;
        Ok(chunk)
    }

    /// Handles the end of the body, which is valid only if no byte is missing.
    fn check_end(&mut self) -> Result<(), AttemptError> {
        match self.end {
            Some(end) if self.position < end => {
                let message = format!("the body ended after {} of {end} bytes", self.position);
                Err(AttemptError::new_transient(SourceErrorKind::Length, message))
            }
            _ => {
                self.complete = true;
                Ok(())
            }
        }
    }

    /// Opens a connection whose next new byte is at the current position; `None` if no bytes are
    /// left.
    async fn connect(&mut self) -> Result<Option<DownloadConnection>, AttemptError> {
        if self.position == 0 && !self.bounded {
            return self.connect_at_start().await.map(Some);
        }
        let end = self.end.filter(|_| self.bounded);
        let part = self.object.range_request(self.position, end).map_err(AttemptError::Final)?;
        let response = self.object.get(Some(&part)).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => self.accept_partial_response(response).map(Some),
            StatusCode::OK => self.accept_full_response(response).map(Some),
            StatusCode::PRECONDITION_FAILED => {
                Err(AttemptError::Final(self.object.precondition_error()))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => self.beyond_the_end(&response).map(|()| None),
            status => Err(AttemptError::from_status(206, status, response.headers())),
        }
    }

    async fn connect_at_start(&mut self) -> Result<DownloadConnection, AttemptError> {
        let response = self.object.get(None).await?;
        if response.status() != StatusCode::OK {
            return Err(AttemptError::from_status(200, response.status(), response.headers()));
        }
        let identity = ObjectIdentity::from_headers(response.headers(), response.content_length());
        self.object.check_identity(&identity).map_err(AttemptError::Final)?;
        Ok(DownloadConnection { response, repeated: 0 })
    }

    /// Accepts a 206, which must contain exactly the requested bytes of exactly this object.
    fn accept_partial_response(
        &mut self,
        response: Response,
    ) -> Result<DownloadConnection, AttemptError> {
        let answered = ContentRange::from_headers(response.headers());
        let total = answered.as_ref().and_then(|range| range.total);
        let identity = ObjectIdentity::from_headers(response.headers(), total);
        self.object.check_identity(&identity).map_err(AttemptError::Final)?;
        // A chunked response does not state its length. The length becomes known only when the
        // download is resumed, from the Content-Range of the new response.
        let end = if self.bounded { self.end } else { self.end.or(total) };
        let part = answered.as_ref().and_then(|range| range.part.clone());
        match part {
            Some(part) if part.start == self.position && end.is_none_or(|end| part.end == end) => {
                self.end = end.or(Some(part.end));
                Ok(DownloadConnection { response, repeated: 0 })
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
                Err(AttemptError::new_final(SourceErrorKind::Io, message))
            }
        }
    }

    /// Handles a 200 although a range was requested: the object has changed, or the server does
    /// not support ranges.
    fn accept_full_response(
        &mut self,
        response: Response,
    ) -> Result<DownloadConnection, AttemptError> {
        let identity = ObjectIdentity::from_headers(response.headers(), response.content_length());
        self.object.check_identity(&identity).map_err(AttemptError::Final)?;
        // Without proof, the rest may belong to another version, and the disk would be made of two
        // halves that do not match.
        let proven = self.object.identity.is_proven_by(response.headers())
            || self.object.is_checked
            || self.object.continuity == ContinuityProof::Immutable;
        if self.bounded || !proven {
            let message = format!(
                "the server sent the whole object instead of the range from byte {}, which {}",
                self.position,
                if proven { "makes random access impossible" } else { "may be another version" },
            );
            return Err(AttemptError::new_final(SourceErrorKind::NotResumable, message));
        }
        tracing::info!(
            bytes = self.position,
            "the server ignores ranges: earlier bytes are read and discarded"
        );
        Ok(DownloadConnection { response, repeated: self.position })
    }

    /// Handles a 416. Either no byte is missing, because a body without a length broke just before
    /// its end marker, or the object has become shorter.
    fn beyond_the_end(&mut self, response: &Response) -> Result<(), AttemptError> {
        let total = ContentRange::from_headers(response.headers()).and_then(|range| range.total);
        if total == Some(self.position) && self.end.is_none() {
            self.complete = true;
            return Ok(());
        }
        let was =
            self.end.map_or_else(|| format!("at least {}", self.position), |end| end.to_string());
        let is = total.map_or_else(|| "shorter".to_owned(), |total| total.to_string());
        Err(AttemptError::Final(changed_error("length", &was, &is)))
    }

    fn position_text(&self) -> String {
        match self.end {
            Some(end) => format!("at byte {} of {end}", self.position),
            None => format!("at byte {}", self.position),
        }
    }
}
