//! The parts of a form, up to the file.

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

/// The part with the image.
const FILE: &str = "file";

/// Bytes that may come before the file: fields of a form are small, and the parser keeps the header of a part in memory
/// until it ends.
const MAX_PREAMBLE_BYTES: u64 = 4 << 20;

/// A reason why there is no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error("this is not a form: {0}; an image by itself is for the path upload")]
    Boundary(multer::Error),
    #[error("malformed form: {0}")]
    Malformed(multer::Error),
    #[error("{0}")]
    Unread(Box<dyn Error + Send + Sync>),
    #[error("the form has no part named {FILE:?}")]
    NoFile,
}

/// The body of a request, for the parser and for what comes after it.
pub(super) type Shared<B> = Arc<Mutex<B>>;

/// A reason why the parser gets no more.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error(transparent)]
    Gone(Box<dyn Error + Send + Sync>),
    #[error("more than {MAX_PREAMBLE_BYTES} bytes before the part named {FILE:?}")]
    Preamble,
}

/// The boundary between the parts, as the header of a request has it.
pub(crate) fn form_boundary(headers: &HeaderMap) -> Result<String, FormError> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    multer::parse_boundary(content_type).map_err(FormError::Boundary)
}

/// The file in `body`; what comes before it is skipped.
pub(super) async fn find_file<B>(body: &Shared<B>, boundary: String) -> Result<Field<'static>, FormError>
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

/// The parser does not say why it got no more.
fn parse_error(error: multer::Error) -> FormError {
    match error {
        multer::Error::StreamReadFailed(cause) => FormError::Unread(cause),
        other => FormError::Malformed(other),
    }
}

/// The bytes of a body, without trailers; not many before the file.
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
            // The parser takes all that is ready at once: one frame at a time, or else a fast client fills the memory.
            tokio::task::yield_now().await;
            let frame = body.lock().await.frame().await?;
            let data = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(error) => return Some((Err(BodyError::Gone(error.into())), (body, in_file, before))),
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
