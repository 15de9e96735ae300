//! Amazon S3 and the many servers that speak its protocol.
//!
//! Objects are read by `HttpSource`: resumed under `If-Match`, over several connections if wanted. What is particular to
//! S3 is how requests are addressed (`place`), signed (`keys`) and refused (`dialect`), and the checksum that it keeps
//! of an object (`checksum`).

mod checksum;
mod dialect;
mod keys;
mod place;

use std::sync::Arc;

use datapath::error::SourceError;

use self::dialect::S3Dialect;
use self::keys::Keys;
use self::place::Place;
pub use self::place::url_at;
use super::http::text;
use super::network::Network;
use super::objects::{ObjectOptions, Store, StoredObject, open_object};

/// Names the version that an answer is about.
const VERSION: &str = "x-amz-version-id";

/// S3, as it is registered.
pub(crate) const STORE: Store = Store {
    scheme: "s3",
    name: "s3",
    open,
};

/// Asks for the object, with the credentials of `network` or an identity that its policy lends, else without.
pub fn open(
    endpoint: &str,
    network: &Arc<Network>,
    options: &ObjectOptions,
) -> Result<StoredObject, SourceError> {
    let region = options.region.clone();
    let place = Place::parse(endpoint, options.addressing, region, &network.policy)?;
    let what = format!("\"{}\"", place.name());
    let keys = Keys::find(network, options.anonymous, &place.url, &place.region)?;
    let dialect = Arc::new(S3Dialect::new(keys, place.region));
    let spoken = Arc::clone(&dialect) as _;
    let http = open_object("s3", &what, place.url, spoken, network)?;
    // A bucket without versions says "null".
    if let Some(version) = text(http.headers(), VERSION).filter(|version| *version != "null") {
        dialect.pin(version);
    }
    let checksum = checksum::announced(http.headers());
    Ok(StoredObject { http, checksum, what })
}
