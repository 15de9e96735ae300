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
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::dialect::S3Dialect;
use self::keys::Keys;
use self::place::Place;
use super::access::Access;
use super::http::{Continuity, HttpConfig};
use super::objects::{StoredObject, open_object};

/// Names the version that an answer is about.
const VERSION: &str = "x-amz-version-id";

/// What is particular to an import from S3.
#[derive(Debug, Clone, Default)]
pub struct S3Options {
    /// The region that requests are signed for first; otherwise it follows from the host or the environment.
    pub region: Option<String>,
    /// Requests are not signed, whatever keys there are.
    pub anonymous: bool,
    /// How endpoints are written.
    pub addressing: Addressing,
}

/// How endpoints are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addressing {
    /// `SCHEME://HOST/BUCKET/KEY`, as CDI does. HTTPS is spoken unless the scheme is `http`.
    #[default]
    Host,
    /// `s3://BUCKET/KEY`, at Amazon or the server that `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` names.
    Bucket,
}

/// Asks for the object, with the credentials of `access` or an identity that its policy lends, else without.
pub fn open(
    endpoint: &str,
    access: &Access,
    options: S3Options,
    handle: Handle,
    stop: CancellationToken,
) -> Result<StoredObject, SourceError> {
    let place = Place::parse(endpoint, options.addressing, options.region, &access.policy)?;
    let what = format!("\"{}\"", place.name());
    let keys = Keys::find(access, options.anonymous, &place.url, &place.region)?;
    let dialect = Arc::new(S3Dialect::new(keys, place.region));
    let config = HttpConfig {
        dialect: Some(Arc::clone(&dialect) as _),
        continuity: Continuity::IfMatch,
        ..access.http(place.url)
    };
    let http = open_object("s3", &what, config, handle, stop)?;
    let text = |name: &str| http.headers().get(name)?.to_str().ok();
    // A bucket without versions says "null".
    if let Some(version) = text(VERSION).filter(|version| *version != "null") {
        dialect.pin(version);
    }
    let checksum = checksum::announced(http.headers());
    Ok(StoredObject { http, checksum, what })
}
