//! The file in a form (multipart/form-data, RFC 7578).
//!
//! The parser `multer` reads all data that is ready at once, and keeps the header of a part in
//! memory until that header ends. It is therefore given one frame at a time, and a limited number
//! of bytes before and after the file.

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
use self::parts::{FormParts, Shared};
use crate::intake::client_gone_error;
use crate::reply;

impl From<FormError> for SourceError {
    fn from(error: FormError) -> Self {
        Self::new(SourceErrorKind::Invalid, error.to_string())
    }
}

/// The file of a form, read in chunks.
pub(crate) struct FileField {
    /// The file's part, until it ends.
    field: Option<Field<'static>>,
    parts: FormParts,
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
    let mut parts = FormParts::new(&body, boundary);
    match parts.find_file().await {
        Ok(field) => Ok(FileField { field: Some(field), parts, body, engagement }),
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
        while let Some(field) = &mut self.field {
            match field.chunk().await {
                Ok(Some(chunk)) if chunk.is_empty() => {}
                Ok(Some(chunk)) => return Ok(Some(chunk)),
                Ok(None) => {
                    // The parser waits for the end of a part that is still open.
                    self.field = None;
                    self.parts.check_rest().await?;
                }
                Err(error @ multer::Error::StreamReadFailed(_)) => {
                    return Err(client_gone_error(&error));
                }
                Err(error) => {
                    let what = "malformed form";
                    return Err(SourceError::with_context(SourceErrorKind::Invalid, what, error));
                }
            }
        }
        Ok(None)
    }

    /// Reads and discards the rest of the request for a limited time.
    pub(crate) fn drain_rest(self) {
        drain_body(self.body, self.engagement);
    }
}
