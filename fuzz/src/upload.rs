//! The parsers for what clients send in uploads: checksums, resumable uploads, forms.

use http::HeaderMap;
use stream::digest::Checksum;

use uploadserver::checksum::{
    AnnouncedChecksum, AnnouncedChecksumError, promised, promised_of_parts,
};

/// Returns the checksum that `headers` announce, if its value is already known, or the reason why
/// they cannot be parsed.
pub fn promise(headers: &HeaderMap, is_form: bool) -> Result<Option<Checksum>, String> {
    known(promised(headers, is_form))
}

/// Like [`promise`], for a request that begins a resumable upload.
pub fn promise_of_parts(headers: &HeaderMap) -> Result<Option<Checksum>, String> {
    known(promised_of_parts(headers))
}

fn known(
    promise: Result<AnnouncedChecksum, AnnouncedChecksumError>,
) -> Result<Option<Checksum>, String> {
    match promise {
        Ok(AnnouncedChecksum::Known(checksum)) => Ok(Some(checksum)),
        Ok(AnnouncedChecksum::None | AnnouncedChecksum::Later(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Resumable uploads.
pub mod resumable {
    use http::HeaderMap;
    use stream::prefix_crc::PrefixCrc;

    use uploadserver::tus;

    /// Returns the offset of a request that begins or continues an upload, and the upload's total
    /// length; or the reason why the request is invalid.
    pub fn asked(headers: &HeaderMap, begins: bool) -> Result<(u64, Option<u64>), String> {
        let asked = match begins {
            true => tus::length_at_creation(headers).map(|length| (0, length)),
            false => tus::offset_and_length(headers),
        };
        asked.map_err(|error| error.to_string())
    }

    /// Returns the checksums of prefixes that an earlier upload may have left, from a request that
    /// begins an upload.
    pub fn marks(headers: &HeaderMap) -> Result<Vec<PrefixCrc>, String> {
        let length = tus::length_at_creation(headers).map_err(|error| error.to_string())?;
        tus::marks(headers, length).map_err(|error| error.to_string())
    }
}

/// Forms.
pub mod form {
    use std::sync::Arc;

    use hyper::Request;
    use hyper::body::Incoming;
    use tokio::sync::Mutex;
    use uploadserver::form::parts;

    /// Returns the file in the form that `request` carries.
    pub async fn file(request: Request<Incoming>) -> Result<Vec<u8>, String> {
        let boundary =
            parts::form_boundary(request.headers()).map_err(|error| error.to_string())?;
        let body = Arc::new(Mutex::new(request.into_body()));
        let field = parts::find_file(&body, boundary).await;
        let bytes = field.map_err(|error| error.to_string())?.bytes().await;
        Ok(bytes.map_err(|error| error.to_string())?.to_vec())
    }
}
