//! An object in a store, and the checksum that the store keeps for it.

use std::sync::Arc;

use fetch::Network;
use fetch::http::{ContinuityProof, HttpConfig, HttpSource, ServerDialect};
use fetch::verified::VerifiedBody;
use fetch::wrapped::WrappedSource;
use stream::digest::Checksum;
use stream::error::SourceError;
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};
use url::Url;

/// Requests the object `what` at `url` from a store of this kind. Errors are worded as in CDI.
pub(crate) fn open_object(
    kind: &str,
    what: &str,
    url: Url,
    dialect: Arc<dyn ServerDialect>,
    network: &Arc<Network>,
) -> Result<HttpSource, SourceError> {
    let config = HttpConfig {
        dialect: Some(dialect),
        continuity: ContinuityProof::IfMatch,
        ..HttpConfig::from_url(url, network)
    };
    HttpSource::open(config)
        .map_err(|error| error.in_context(format_args!("could not get {kind} object: {what}")))
}

/// Returns the source of the object `what`, which `http` reads. Its body verifies `checksum`, the
/// digest that the store announces for all bytes. `stated_disk` is the raw disk that the object is,
/// if the store states that.
pub(crate) fn stored_object(
    http: HttpSource,
    checksum: Option<Checksum>,
    stated_disk: Option<StatedDisk>,
    what: String,
) -> impl Source {
    WrappedSource {
        inner: Box::new(http),
        is_verified: checksum.is_some(),
        stated_disk,
        open: move |http: &dyn Source| -> Result<Box<dyn SourceBody>, SourceError> {
            let body = http.open_body()?;
            Ok(match checksum.clone() {
                Some(checksum) => Box::new(VerifiedBody::new(body, checksum, what.clone())?),
                None => body,
            })
        },
    }
}
