//! Requests the list of data and holes from the image server.

use std::sync::Arc;

use fetch::Network;
use fetch::http::{HttpAgent, USER_AGENT};
use http::Method;
use serde::Deserialize;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::extents::{ImageIoExtent, parse_extents};

/// Maximum size of the list in bytes, enough for about 200,000 extents. A disk that is more
/// fragmented is read as a whole.
const MAX_LIST_BYTES: usize = 16 << 20;

/// Reads the extents of the disk at `url`; `None` if the server provides no list, or one that is
/// too long.
pub(super) async fn read_extents(
    network: &Arc<Network>,
    url: &Url,
) -> Result<Option<Vec<ImageIoExtent>>, SourceError> {
    #[derive(Deserialize)]
    struct ImageIoOptions {
        #[serde(default)]
        features: Vec<String>,
    }
    let agent = HttpAgent::new(network, USER_AGENT)?;
    let options =
        agent.send_patiently(|| agent.build_request(Method::OPTIONS, url.clone()), 1 << 20).await?;
    let knows = serde_json::from_slice(&options.body).is_ok_and(|options: ImageIoOptions| {
        options.features.iter().any(|feature| feature == "extents")
    });
    if !options.status.is_success() || !knows {
        return Ok(None);
    }
    let mut list = url.clone();
    list.set_path(&format!("{}/extents", url.path().trim_end_matches('/')));
    let answer = agent
        .send_patiently(|| agent.build_request(Method::GET, list.clone()), MAX_LIST_BYTES)
        .await;
    let answer = match answer {
        // Extents only save reading, so a list that is too long is not an error.
        Err(error) if error.kind() == SourceErrorKind::Length => {
            tracing::info!("reading the holes of the disk as well: {error}");
            return Ok(None);
        }
        other => other?,
    };
    if !answer.status.is_success() {
        let kind = SourceErrorKind::Status(answer.status.as_u16());
        return Err(SourceError::new(kind, format!("bad status: {}", answer.status)));
    }
    parse_extents(&answer.body).map(Some)
}
