//! The file in a form (multipart/form-data, RFC 7578).

use std::sync::Arc;

use bytes::Bytes;
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

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error("this is not a form: {0}")]
    Boundary(multer::Error),
    #[error("malformed form: {0}")]
    Malformed(multer::Error),
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

/// The file, in chunks.
pub(crate) struct FileField {
    field: Field<'static>,
    body: Shared,
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
pub(crate) async fn file(body: Incoming, boundary: String) -> Result<FileField, FormError> {
    let body = Arc::new(Mutex::new(body));
    let found = find_file(Multipart::new(data(Arc::clone(&body)), boundary)).await;
    match found {
        Ok(field) => Ok(FileField { field, body }),
        Err(error) => {
            drain(body);
            Err(error)
        }
    }
}

async fn find_file(mut parts: Multipart<'static>) -> Result<Field<'static>, FormError> {
    while let Some(field) = parts.next_field().await.map_err(FormError::Malformed)? {
        if field.name() == Some(FILE) {
            return Ok(field);
        }
        tracing::info!("Ignoring part {}", field.name().unwrap_or_default());
    }
    Err(FormError::NoFile)
}

/// The bytes of a body, without trailers.
fn data(body: Shared) -> impl Stream<Item = Result<Bytes, hyper::Error>> + Send {
    stream::unfold(body, |body| async {
        loop {
            // The parser takes all that is ready at once: one frame at a time, or else a fast client fills the memory.
            tokio::task::yield_now().await;
            let frame = body.lock().await.frame().await?;
            match frame {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some((Ok(data), body));
                    }
                }
                Err(error) => return Some((Err(error), body)),
            }
        }
    })
}

fn drain(body: Shared) {
    tokio::spawn(timeout(reply::LINGER, async move {
        while let Some(Ok(_)) = body.lock().await.frame().await {}
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
        drain(self.body);
    }
}
