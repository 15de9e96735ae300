//! The checksums that uploads promise.

mod checksum;

use datapath::digest::Checksum;
use http::HeaderMap;

use self::checksum::{Promise, promised};

/// The checksum that `headers` promise, if it is known already, or why the promise cannot be understood.
pub fn promise(headers: &HeaderMap, is_form: bool) -> Result<Option<Checksum>, String> {
    match promised(headers, is_form) {
        Ok(Promise::Known(checksum)) => Ok(Some(checksum)),
        Ok(Promise::None | Promise::Trailer) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
