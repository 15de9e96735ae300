//! Reads the bytes of one object in order. Each broken connection is replaced by a new one.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::StatusCode;
use reqwest::Response;
use stream::error::{SourceError, SourceErrorKind};
use tracing::Instrument;

use super::cause::transport_failure;
use super::config::ContinuityProof;
use super::identity::{ContentRange, ObjectIdentity, changed_error};
use super::object::HttpObject;
use super::sample::DownloadSampler;
use crate::engine::RemoteObject;
use crate::retry::{AttemptError, RetryAttempts, with_time_limit};

/// Number of times that a range is requested again from a server that ignored it, but had served
/// others. Reading the object from its beginning instead could take long.
const MAX_IGNORED_RANGES: u32 = 3;

/// Part of the usual time limits after which a silent connection is given up that the transfer can
/// do without.
const HASTE: u32 = 4;

/// Reads an object, or a range of it, once and in order. Dropping it closes its connection.
pub(super) struct HttpDownload<'a> {
    object: &'a HttpObject,
    position: u64,
    /// Offset after the last byte; `None` for a body of unknown length.
    end: Option<u64>,
    /// True if the caller requested a range, which sets the end.
    bounded: bool,
    connection: Option<DownloadConnection>,
    sampler: Option<DownloadSampler<'a>>,
    /// The position up to which the last response only repeated bytes, which were compared. The
    /// next response continues there without a comparison, so that it brings new bytes.
    compared: Option<u64>,
    complete: bool,
    /// True if the first failure is returned.
    is_hasty: bool,
    /// Number of ranges that the server ignored although it had served others.
    ignored_ranges: u32,
}

struct DownloadConnection {
    response: Response,
    /// Bytes at the start of the response that had already been received.
    repeated: u64,
    /// Offset after the last byte of a part; `None` for the whole object.
    end: Option<u64>,
    /// Offset of the first new byte.
    begin: u64,
}

impl DownloadConnection {
    fn to_whole_object(response: Response) -> Self {
        Self { response, repeated: 0, end: None, begin: 0 }
    }
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
            connection: response.map(DownloadConnection::to_whole_object),
            sampler: object.sample.as_ref().map(|sample| DownloadSampler::new(sample, position)),
            compared: None,
            complete: false,
            is_hasty: false,
            ignored_ranges: 0,
        }
    }

    /// Returns the first failure instead of retrying, if `is_hasty`.
    pub(super) fn without_retries(self, is_hasty: bool) -> Self {
        Self { is_hasty, ..self }
    }

    /// Reads only the bytes of `range`.
    pub(super) fn from_range(object: &'a HttpObject, range: Range<u64>) -> Self {
        let end = Some(range.end);
        Self { end, bounded: true, ..Self::from_position(object, range.start, None) }
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
                // A part has ended before the range did.
                Ok(Some(chunk)) if chunk.is_empty() => {}
                Ok(chunk) => return Ok(chunk),
                Err(failure)
                    if self.is_hasty || self.object.continuity == ContinuityProof::Once =>
                {
                    return Err(failure.into_error());
                }
                Err(failure) => {
                    self.connection = None;
                    let pause = attempts.record_failure(failure, &self.position_text())?;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Returns the next bytes, which are empty at the end of a short part.
    async fn try_next(
        &mut self,
        attempts: &mut RetryAttempts<'_>,
    ) -> Result<Option<Bytes>, AttemptError> {
        let client = &self.object.client;
        let share = if self.is_hasty { HASTE } else { 1 };
        if self.connection.is_none() {
            let overlap = self.check_sample(attempts).await?;
            let limit = attempts.wait_limit() / share;
            let connecting = with_time_limit(limit, self.connect(overlap)).await;
            self.connection = connecting.map_err(|failure| client.name_silence(failure))?;
        }
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(None);
            };
            let read = async { Ok(connection.response.chunk().await) };
            let limit = if self.object.continuity == ContinuityProof::Once {
                // Another connection would not help.
                attempts.remaining_time()
            } else {
                attempts.wait_limit() / share
            };
            let read = with_time_limit(limit, read).await;
            let chunk = read.map_err(|failure| client.name_silence(failure))?.map_err(|error| {
                transport_failure(error, &client.request_route(connection.response.url()))
            })?;
            let Some(mut chunk) = chunk else {
                // The server may have sent less than it was asked for.
                if connection.end == Some(self.position) && self.end != Some(self.position) {
                    self.compared = (connection.begin == self.position).then_some(self.position);
                    self.connection = None;
                    return Ok(Some(Bytes::new()));
                }
                return self.check_end().map(|()| None);
            };
            if connection.repeated > 0 {
                let known =
                    usize::try_from(connection.repeated).unwrap_or(usize::MAX).min(chunk.len());
                // Drop the repeated bytes. They were requested for the comparison, or the server
                // ignored the range.
                let repeated = chunk.split_to(known);
                if let Some(sampler) = &self.sampler {
                    let checked = sampler.check_tail(connection.repeated, &repeated);
                    checked.map_err(AttemptError::Final)?;
                }
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
        let part_end = self.connection.as_ref().and_then(|connection| connection.end);
        if let Some(end) = part_end.or(self.end)
            && position > end
        {
            let message = format!("the server announced {end} bytes and sent at least {position}");
            return Err(AttemptError::new_final(SourceErrorKind::Length, message));
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.record(&chunk);
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
    /// left. A part of the object begins `overlap` bytes earlier.
    async fn connect(&mut self, overlap: u64) -> Result<Option<DownloadConnection>, AttemptError> {
        if self.position == 0 && !self.bounded {
            return self.connect_at_start().await.map(Some);
        }
        let end = self.end.filter(|_| self.bounded);
        let start = self.position - overlap;
        let part = self.object.range_request(start, end).map_err(AttemptError::Final)?;
        let response = self.object.get(Some(&part)).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let (end, total) = self.object.check_part(&response, start, self.end)?;
                self.end = self.end.or(total);
                let (end, begin) = (Some(end), self.position);
                Ok(Some(DownloadConnection { response, repeated: overlap, end, begin }))
            }
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
        if !HttpObject::is_whole(&response) {
            return Err(AttemptError::from_status(200, response.status(), response.headers()));
        }
        let identity = ObjectIdentity::from_headers(response.headers(), response.content_length());
        self.object.check_identity(&identity).map_err(AttemptError::Final)?;
        // Other connections may have read parts already.
        let has_parts = self.object.has_served_ranges.load(Ordering::Relaxed);
        if has_parts && !self.object.is_proven(&response) {
            return Err(HttpObject::whole_object_error(0, "may be another version"));
        }
        Ok(DownloadConnection::to_whole_object(response))
    }

    /// Compares a sample of the received bytes with the server's object, if nothing else can show
    /// that it is still the same. Returns the number of bytes before the current position that the
    /// next response has to repeat, so that they are compared too.
    // The mutable reference makes the future `Send`, although a running digest is not `Sync`.
    async fn check_sample(&mut self, attempts: &RetryAttempts<'_>) -> Result<u64, AttemptError> {
        let object = self.object;
        let is_needed = object.needs_sample.load(Ordering::Relaxed)
            && self.compared.take() != Some(self.position);
        let sampler = self.sampler.as_ref().filter(|_| is_needed);
        let check = sampler.and_then(DownloadSampler::plan_check);
        let (Some(sample), Some(check)) = (&object.sample, check) else {
            return Ok(0);
        };
        let (blocks, tail_bytes) = (check.blocks.len(), check.tail_bytes);
        tracing::info!(
            blocks,
            tail_bytes,
            "the server sends no validator: comparing with what was received"
        );
        for block in check.blocks {
            let reading = object.read_again(block.range());
            let read = with_time_limit(attempts.wait_limit(), reading).await;
            let bytes = read.map_err(|failure| object.client.name_silence(failure))?;
            sample.check_block(&block, &bytes).map_err(AttemptError::Final)?;
        }
        Ok(tail_bytes)
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
        let proven = self.object.is_proven(&response);
        // A server that has served ranges may be one of several, not all of which do.
        if proven
            && self.object.has_served_ranges.load(Ordering::Relaxed)
            && self.ignored_ranges < MAX_IGNORED_RANGES
        {
            self.ignored_ranges += 1;
            let message = format!("the server ignored the range from byte {}", self.position);
            return Err(AttemptError::new_transient(SourceErrorKind::NotResumable, message));
        }
        if self.bounded || !proven {
            let what =
                if proven { "makes random access impossible" } else { "may be another version" };
            return Err(HttpObject::whole_object_error(self.position, what));
        }
        tracing::info!(
            bytes = self.position,
            "the server ignores ranges: earlier bytes are read and discarded"
        );
        Ok(DownloadConnection {
            repeated: self.position,
            ..DownloadConnection::to_whole_object(response)
        })
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
