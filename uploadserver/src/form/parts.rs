//! Finds the file in the parts of a form.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use multer::{Field, Multipart};
use tokio::sync::Mutex;

/// Name of the part that contains the image.
const FILE: &str = "file";

/// Maximum number of bytes before the file. The fields of a form are small, but the parser keeps
/// the header of a part in memory until that header ends, so the number of bytes has to be
/// limited.
const MAX_PREAMBLE_BYTES: u64 = 4 << 20;

/// Reasons why the file in a form cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    #[error("this is not a form: {0}; send a plain image to the path upload")]
    Boundary(multer::Error),
    #[error("malformed form: {0}")]
    Malformed(multer::Error),
    #[error("{0}")]
    Unread(Box<dyn Error + Send + Sync>),
    #[error("the form has no part named {FILE:?}")]
    NoFile,
}

/// The body of a request, shared by the parser and the code that drains the rest of the body.
pub(super) type Shared<B> = Arc<Mutex<B>>;

/// Reasons why the parser gets no more bytes.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error(transparent)]
    Gone(Box<dyn Error + Send + Sync>),
    #[error("more than {MAX_PREAMBLE_BYTES} bytes before the part named {FILE:?}")]
    Preamble,
}

/// Returns the boundary between the parts of a form, which the content type of a request contains.
pub fn form_boundary(headers: &HeaderMap) -> Result<String, FormError> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    multer::parse_boundary(content_type).map_err(FormError::Boundary)
}

/// Finds the file in `body`, and skips the parts before it.
pub async fn find_file<B>(body: &Shared<B>, boundary: String) -> Result<Field<'static>, FormError>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let in_file = Arc::new(AtomicBool::new(false));
    let mut parts = Multipart::new(data_stream(Arc::clone(body), Arc::clone(&in_file)), boundary);
    while let Some(field) = parts.next_field().await.map_err(parse_error)? {
        if field.name() == Some(FILE) {
            in_file.store(true, Ordering::Relaxed);
            return Ok(field);
        }
        tracing::info!("Ignoring part {}", field.name().unwrap_or_default());
    }
    Err(FormError::NoFile)
}

/// Extracts the error that ended the body, which the parser has wrapped.
fn parse_error(error: multer::Error) -> FormError {
    match error {
        multer::Error::StreamReadFailed(cause) => FormError::Unread(cause),
        other => FormError::Malformed(other),
    }
}

/// Returns a body's data without its trailers, as a stream. The stream fails if there are too many
/// bytes before the file.
fn data_stream<B>(
    body: Shared<B>,
    in_file: Arc<AtomicBool>,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    stream::unfold((body, in_file, 0u64), |(body, in_file, before)| async move {
        loop {
            // The parser reads all data that is ready at once. Yielding here limits it to one
            // frame at a time; otherwise a fast client could fill the memory.
            tokio::task::yield_now().await;
            let frame = body.lock().await.frame().await?;
            let data = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(error) => {
                    return Some((Err(BodyError::Gone(error.into())), (body, in_file, before)));
                }
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
