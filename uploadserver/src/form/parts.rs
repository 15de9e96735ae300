//! Finds the file in the parts of a form.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use multer::{Field, Multipart};
use tokio::sync::Mutex;

/// Name of the part that contains the image.
const FILE: &str = "file";

/// Maximum number of bytes before the file, and after it. The fields of a form are small, but the
/// parser keeps the header of a part in memory until that header ends, so the number of bytes has
/// to be limited.
const MAX_OTHER_BYTES: u64 = 4 << 20;

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
    #[error(
        "the form has the part {0:?}, but none named {FILE:?}: name the field of the image {FILE:?}"
    )]
    OtherName(String),
    #[error("the form has several parts named {FILE:?}: send one image in each request")]
    SecondFile,
}

/// The body of a request, shared by the parser and the code that drains the rest of the body.
pub(super) type Shared<B> = Arc<Mutex<B>>;

/// Reasons why the parser gets no more bytes.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error(transparent)]
    Gone(Box<dyn Error + Send + Sync>),
    #[error("more than {MAX_OTHER_BYTES} bytes in other parts than {FILE:?}")]
    Others,
}

/// Returns the boundary between the parts of a form, which the content type of a request contains.
pub fn form_boundary(headers: &HeaderMap) -> Result<String, FormError> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    multer::parse_boundary(content_type).map_err(FormError::Boundary)
}

/// The parts of a form.
pub struct FormParts {
    parts: Multipart<'static>,
    /// Bytes that may still arrive outside the file.
    allowed: Arc<AtomicU64>,
}

impl FormParts {
    /// Reads the parts of `body`, which `boundary` separates.
    pub fn new<B>(body: &Shared<B>, boundary: String) -> Self
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let allowed = Arc::new(AtomicU64::new(MAX_OTHER_BYTES));
        let stream = data_stream(Arc::clone(body), Arc::clone(&allowed));
        Self { parts: Multipart::new(stream, boundary), allowed }
    }

    /// Finds the file, and skips the parts before it.
    pub async fn find_file(&mut self) -> Result<Field<'static>, FormError> {
        let mut other = None;
        loop {
            match self.parts.next_field().await {
                Ok(Some(field)) if field.name() == Some(FILE) => {
                    self.allowed.store(u64::MAX, Ordering::Relaxed);
                    return Ok(field);
                }
                Ok(Some(field)) => {
                    let name = field.name().unwrap_or_default();
                    tracing::info!("Ignoring part {name}");
                    other = Some(name.to_owned());
                }
                Ok(None) => return Err(other.map_or(FormError::NoFile, FormError::OtherName)),
                // An image under another name is larger than all fields together may be.
                Err(error) => match (parse_error(error), other) {
                    (FormError::Unread(cause), Some(name))
                        if matches!(cause.downcast_ref(), Some(BodyError::Others)) =>
                    {
                        return Err(FormError::OtherName(name));
                    }
                    (error, _) => return Err(error),
                },
            }
        }
    }

    /// Reads the parts after the file, of which none may be another file. Nothing else about them
    /// matters, not even a missing end.
    pub async fn check_rest(&mut self) -> Result<(), FormError> {
        self.allowed.store(MAX_OTHER_BYTES, Ordering::Relaxed);
        while let Ok(Some(field)) = self.parts.next_field().await {
            if field.name() == Some(FILE) {
                return Err(FormError::SecondFile);
            }
        }
        Ok(())
    }
}

/// Extracts the error that ended the body, which the parser has wrapped.
fn parse_error(error: multer::Error) -> FormError {
    match error {
        multer::Error::StreamReadFailed(cause) => FormError::Unread(cause),
        other => FormError::Malformed(other),
    }
}

/// Returns a body's data without its trailers, as a stream. The stream fails if more bytes than
/// `allowed` arrive.
fn data_stream<B>(
    body: Shared<B>,
    allowed: Arc<AtomicU64>,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    stream::unfold((body, allowed), |(body, allowed)| async move {
        loop {
            // The parser reads all data that is ready at once. Yielding here limits it to one
            // frame at a time; otherwise a fast client could fill the memory.
            tokio::task::yield_now().await;
            let frame = body.lock().await.frame().await?;
            let data = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(error) => {
                    return Some((Err(BodyError::Gone(error.into())), (body, allowed)));
                }
            };
            let left = allowed.load(Ordering::Relaxed).checked_sub(data.len() as u64);
            // Within the file, the number is so large that it never ends.
            allowed.store(left.unwrap_or_default(), Ordering::Relaxed);
            let item = left.map(|_| data).ok_or(BodyError::Others);
            return Some((item, (body, allowed)));
        }
    })
}
