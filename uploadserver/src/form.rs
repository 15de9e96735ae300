//! The file in a form (multipart/form-data, RFC 7578).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use daemon::listener::Engagement;
use datapath::error::{SourceError, SourceErrorKind};
use futures_util::stream::{self, Stream};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use multer::{Field, Multipart};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::intake::gone;
use crate::reply;

/// The part with the image.
const FILE: &str = "file";

/// Bytes that may come before the file: fields of a form are small, and the parser keeps the header of a part in memory
/// until it ends.
const MAX_PREAMBLE_BYTES: u64 = 4 << 20;

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error("this is not a form: {0}")]
    Boundary(multer::Error),
    #[error("malformed form: {0}")]
    Malformed(multer::Error),
    #[error("{0}")]
    Unread(Box<dyn std::error::Error + Send + Sync>),
    #[error("the form has no part named {FILE:?}")]
    NoFile,
}

impl From<FormError> for SourceError {
    fn from(error: FormError) -> Self {
        Self::new(SourceErrorKind::Invalid, error.to_string())
    }
}

/// The body of a request, for the parser and for what comes after it.
type Shared = Arc<Mutex<Incoming>>;

/// Why the parser gets no more.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error(transparent)]
    Gone(#[from] hyper::Error),
    #[error("more than {MAX_PREAMBLE_BYTES} bytes before the part named {FILE:?}")]
    Preamble,
}

/// The file, in chunks.
pub(crate) struct FileField {
    field: Field<'static>,
    body: Shared,
    engagement: Engagement,
}

/// The boundary between the parts, as the header of a request has it.
pub(crate) fn boundary(headers: &HeaderMap) -> Result<String, FormError> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    multer::parse_boundary(content_type).map_err(FormError::Boundary)
}

/// Reads up to the file; what comes before is skipped.
pub(crate) async fn file(
    body: Incoming,
    boundary: String,
    engagement: Engagement,
) -> Result<FileField, FormError> {
    let body = Arc::new(Mutex::new(body));
    let in_file = Arc::new(AtomicBool::new(false));
    let parts = Multipart::new(data(Arc::clone(&body), Arc::clone(&in_file)), boundary);
    match find_file(parts).await {
        Ok(field) => {
            in_file.store(true, Ordering::Relaxed);
            Ok(FileField {
                field,
                body,
                engagement,
            })
        }
        Err(error) => {
            drain(body, engagement);
            Err(error)
        }
    }
}

async fn find_file(mut parts: Multipart<'static>) -> Result<Field<'static>, FormError> {
    while let Some(field) = parts.next_field().await.map_err(malformed)? {
        if field.name() == Some(FILE) {
            return Ok(field);
        }
        tracing::info!("Ignoring part {}", field.name().unwrap_or_default());
    }
    Err(FormError::NoFile)
}

/// The parser does not say why it got no more.
fn malformed(error: multer::Error) -> FormError {
    match error {
        multer::Error::StreamReadFailed(cause) => FormError::Unread(cause),
        other => FormError::Malformed(other),
    }
}

/// The bytes of a body, without trailers; not many before the file.
fn data(body: Shared, in_file: Arc<AtomicBool>) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
    stream::unfold((body, in_file, 0u64), |(body, in_file, before)| async move {
        loop {
            // The parser takes all that is ready at once: one frame at a time, or else a fast client fills the memory.
            tokio::task::yield_now().await;
            let frame = body.lock().await.frame().await?;
            let data = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(error) => return Some((Err(error.into()), (body, in_file, before))),
            };
            let seen = before.saturating_add(data.len() as u64);
            let item = if seen > MAX_PREAMBLE_BYTES && !in_file.load(Ordering::Relaxed) {
                Err(BodyError::Preamble)
            } else {
                Ok(data)
            };
            return Some((item, (body, in_file, seen)));
        }
    })
}

fn drain(body: Shared, engagement: Engagement) {
    tokio::spawn(timeout(reply::LINGER, async move {
        while let Some(Ok(_)) = body.lock().await.frame().await {}
        drop(engagement);
    }));
}

impl FileField {
    /// The next bytes of the file.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            match self.field.chunk().await {
                Ok(Some(chunk)) if chunk.is_empty() => {}
                Ok(chunk) => return Ok(chunk),
                Err(error @ multer::Error::StreamReadFailed(_)) => return Err(gone(&error)),
                Err(error) => {
                    let message = format!("malformed form: {error}");
                    return Err(SourceError::new(SourceErrorKind::Invalid, message));
                }
            }
        }
    }

    /// Reads what a client still sends, for a while, and drops it.
    pub(crate) fn drain(self) {
        drain(self.body, self.engagement);
    }
}
