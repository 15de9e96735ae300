//! Small documents, which are read into memory.

use bytes::{Bytes, BytesMut};
use stream::error::{SourceError, SourceErrorKind};
use stream::source::SourceBody;

/// Reads `body` to its end. Fails if it has more than `limit` bytes; `what` names it in the error.
pub fn read_whole(
    body: &mut dyn SourceBody,
    limit: usize,
    what: &str,
) -> Result<Bytes, SourceError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next_chunk()? {
        if bytes.len() + chunk.len() > limit {
            let message = format!("{what}: it has more than {limit} bytes");
            return Err(SourceError::new(SourceErrorKind::Length, message));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
