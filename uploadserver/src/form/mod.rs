//! The file in a form (multipart/form-data, RFC 7578).
//!
//! The parser `multer` reads all data that is ready at once, and keeps the header of a part in
//! memory until that header ends. It is therefore given one frame at a time, and a limited number
//! of bytes before the file.

pub mod parts;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use https::listener::ActiveGuard;
use hyper::body::Incoming;
use multer::Field;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Mutex;
use tokio::time::timeout;

pub(crate) use self::parts::{FormError, form_boundary};
use self::parts::{Shared, find_file};
use crate::intake::client_gone_error;
use crate::reply;

impl From<FormError> for SourceError {
    fn from(error: FormError) -> Self {
        Self::new(SourceErrorKind::Invalid, error.to_string())
    }
}

/// The file of a form, read in chunks.
pub(crate) struct FileField {
    field: Field<'static>,
    body: Shared<Incoming>,
    engagement: ActiveGuard,
}

/// Reads a form up to its file part, and skips the parts before it.
pub(crate) async fn open_file_field(
    body: Incoming,
    boundary: String,
    engagement: ActiveGuard,
) -> Result<FileField, FormError> {
    let body = Arc::new(Mutex::new(body));
    match find_file(&body, boundary).await {
        Ok(field) => Ok(FileField { field, body, engagement }),
        Err(error) => {
            drain_body(body, engagement);
            Err(error)
        }
    }
}

fn drain_body(body: Shared<Incoming>, engagement: ActiveGuard) {
    tokio::spawn(timeout(reply::LINGER, async move {
        while let Some(Ok(_)) = body.lock().await.frame().await {}
        drop(engagement);
    }));
}

impl FileField {
    /// Returns the next bytes of the file, or `None` at its end.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            match self.field.chunk().await {
                Ok(Some(chunk)) if chunk.is_empty() => {}
                Ok(chunk) => return Ok(chunk),
                Err(error @ multer::Error::StreamReadFailed(_)) => {
                    return Err(client_gone_error(&error));
                }
                Err(error) => {
                    let what = "malformed form";
                    return Err(SourceError::with_context(SourceErrorKind::Invalid, what, error));
                }
            }
        }
    }

    /// Reads and discards the rest of the request for a limited time.
    pub(crate) fn drain_rest(self) {
        drain_body(self.body, self.engagement);
    }
}
