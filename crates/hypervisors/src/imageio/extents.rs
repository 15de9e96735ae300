//! Data and holes of a disk, as the image server lists them.

use std::sync::Arc;

use fetch::Network;
use fetch::http::{HttpAgent, USER_AGENT};
use fetch::messages::plain_line;
use http::Method;
use serde::Deserialize;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

/// A run of bytes that are all data or all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ImageIoExtent {
    /// Offset of the first byte on the disk.
    pub start: u64,
    /// Number of bytes, at least one.
    pub(super) length: u64,
    /// True if the bytes read as zeros.
    #[serde(default)]
    pub zero: bool,
}

impl ImageIoExtent {
    /// Returns the offset after the last byte, which is checked for overflow when the list is
    /// parsed.
    pub fn end_offset(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Returns how many bytes of the disk the extents describe.
pub(super) fn described_bytes(extents: &[ImageIoExtent]) -> u64 {
    extents.last().map_or(0, ImageIoExtent::end_offset)
}

/// Parses the list in `text`. Neighbours of the same kind are merged.
pub fn parse_extents(text: &[u8]) -> Result<Vec<ImageIoExtent>, SourceError> {
    let wrong = |reason: String| {
        let message = format!("the extents of the disk are invalid: {reason}");
        SourceError::new(SourceErrorKind::Invalid, message)
    };
    let extents: Vec<ImageIoExtent> =
        serde_json::from_slice(text).map_err(|error| wrong(plain_line(&error.to_string())))?;
    let mut merged: Vec<ImageIoExtent> = Vec::new();
    for extent in extents {
        let ImageIoExtent { start, length, zero } = extent;
        let end = described_bytes(&merged);
        if start != end || length == 0 || start.checked_add(length).is_none() {
            return Err(wrong(format!(
                "one of {length} bytes begins at byte {start}, expected {end}"
            )));
        }
        // Join neighbours, because the server splits extents at cluster boundaries.
        match merged.last_mut() {
            Some(last) if last.zero == zero => last.length += length,
            _ => merged.push(extent),
        }
    }
    Ok(merged)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_extents_of_a_kind_are_merged() {
        let text = br#"[{"start":0,"length":5,"zero":false,"hole":false},{"start":5,"length":5,"zero":false},
                        {"start":10,"length":90,"zero":true,"hole":true}]"#;
        let extents = parse_extents(text).unwrap();
        assert_eq!(extents.len(), 2);
        assert_eq!((extents[0].end_offset(), described_bytes(&extents)), (10, 100));
        assert_eq!(described_bytes(&[]), 0);
    }

    #[test]
    fn lists_that_do_not_describe_a_disk_are_refused() {
        for text in [
            "{}",
            "[",
            r#"[{"start":1,"length":5}]"#,
            r#"[{"start":0,"length":0}]"#,
            r#"[{"start":0,"length":5},{"start":4,"length":5}]"#,
            r#"[{"start":0,"length":-5}]"#,
            r#"[{"start":0,"length":18446744073709551615},{"start":18446744073709551615,"length":1}]"#,
        ] {
            assert!(parse_extents(text.as_bytes()).is_err(), "{text}");
        }
    }
}
