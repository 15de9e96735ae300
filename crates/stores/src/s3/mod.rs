//! Amazon S3 and the many servers that speak its protocol.
//!
//! Objects are read by `HttpSource`: resumed under `If-Match`, over several connections. The parts
//! that are specific to S3 are how requests are addressed (`place`), signed (`keys`) and refused
//! (`dialect`), and the checksum that it keeps for an object (`checksum`).

mod checksum;
mod dialect;
mod keys;
mod place;

use std::sync::Arc;

use fetch::Network;
use fetch::http::header_text;
use stream::error::SourceError;
use stream::source::Source;

use self::dialect::S3Dialect;
use self::keys::AccessKeys;
use self::place::S3Location;
pub use self::place::url_at;
use super::objects::{ObjectOptions, open_object, stored_object};

/// Header with the version that a response is about.
const VERSION: &str = "x-amz-version-id";

/// Opens the object, with the credentials of `network` or an identity that its policy permits, or
/// otherwise anonymously.
pub fn open(
    endpoint: &str,
    network: &Arc<Network>,
    options: &ObjectOptions,
) -> Result<impl Source + use<>, SourceError> {
    let place = S3Location::parse(endpoint, options.addressing, &network.policy)?;
    let what = format!("\"{}\"", place.object_name());
    let keys = AccessKeys::find_keys(network, options.anonymous, &place.url, &place.region)?;
    let dialect = Arc::new(S3Dialect::new(keys, place.region));
    let spoken = Arc::clone(&dialect) as _;
    let http = open_object("s3", &what, place.url, spoken, network)?;
    // A bucket without versioning sends "null".
    if let Some(version) =
        header_text(http.response_headers(), VERSION).filter(|version| *version != "null")
    {
        dialect.pin_version(version);
    }
    let checksum = checksum::announced_checksum(http.response_headers());
    Ok(stored_object(http, checksum, None, what))
}
