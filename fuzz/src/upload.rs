//! What clients say of uploads: checksums, resumable uploads, forms.

mod checksum;
mod tus;

use datapath::digest::Checksum;
use http::HeaderMap;

use self::checksum::{AnnouncedChecksum, AnnouncedChecksumError, promised, promised_of_parts};

/// The checksum that `headers` promise, if it is known already, or why the promise cannot be understood.
pub fn promise(headers: &HeaderMap, is_form: bool) -> Result<Option<Checksum>, String> {
    known(promised(headers, is_form))
}

/// The same of a request that begins a resumable upload.
pub fn promise_of_parts(headers: &HeaderMap) -> Result<Option<Checksum>, String> {
    known(promised_of_parts(headers))
}

fn known(promise: Result<AnnouncedChecksum, AnnouncedChecksumError>) -> Result<Option<Checksum>, String> {
    match promise {
        Ok(AnnouncedChecksum::Known(checksum)) => Ok(Some(checksum)),
        Ok(AnnouncedChecksum::None | AnnouncedChecksum::Later(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Resumable uploads.
pub mod resumable {
    use datapath::marks::PrefixCrc;
    use http::HeaderMap;

    use super::tus;

    /// Where the bytes of a request that begins or continues an upload belong, and how long that is to be; or why the request makes
    /// no sense.
    pub fn asked(headers: &HeaderMap, begins: bool) -> Result<(u64, Option<u64>), String> {
        let asked = match begins {
            true => tus::length_at_creation(headers).map(|length| (0, length)),
            false => tus::offset_and_length(headers),
        };
        asked.map_err(|error| error.to_string())
    }

    /// The marks of what an earlier upload may have left, in a request that begins one.
    pub fn marks(headers: &HeaderMap) -> Result<Vec<PrefixCrc>, String> {
        let length = tus::length_at_creation(headers).map_err(|error| error.to_string())?;
        tus::marks(headers, length).map_err(|error| error.to_string())
    }
}

/// Forms.
pub mod form {
    mod parts;

    use std::sync::Arc;

    use hyper::Request;
    use hyper::body::Incoming;
    use tokio::sync::Mutex;

    /// The file in the form that `request` brings.
    pub async fn file(request: Request<Incoming>) -> Result<Vec<u8>, String> {
        let boundary = parts::form_boundary(request.headers()).map_err(|error| error.to_string())?;
        let body = Arc::new(Mutex::new(request.into_body()));
        let field = parts::find_file(&body, boundary).await;
        let bytes = field.map_err(|error| error.to_string())?.bytes().await;
        Ok(bytes.map_err(|error| error.to_string())?.to_vec())
    }
}
