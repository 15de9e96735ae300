//! Glance's description of an image (Image service API v2, "Show image").

use serde::Deserialize;
use stream::digest::{Checksum, ChecksumError};
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;

use fetch::error::invalid_error;
use fetch::messages::plain_line;

/// An image, without its bytes. Fields are absent until the bytes have been uploaded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GlanceImage {
    status: Option<String>,
    size: Option<u64>,
    /// MD5 digest of the image.
    checksum: Option<String>,
    os_hash_algo: Option<String>,
    os_hash_value: Option<String>,
    disk_format: Option<String>,
    container_format: Option<String>,
}

impl GlanceImage {
    pub(super) fn parse(body: &[u8]) -> Result<Self, SourceError> {
        let image: Self = serde_json::from_slice(body).map_err(|error| {
            let what = "the image service's description of the image cannot be read";
            SourceError::with_context(SourceErrorKind::Io, what, error)
        })?;
        tracing::info!(
            disk_format = %plain_line(image.disk_format.as_deref().unwrap_or("unknown")),
            container_format = %plain_line(image.container_format.as_deref().unwrap_or("unknown")),
            size = image.size,
            "the image in Glance",
        );
        Ok(image)
    }

    /// Fails unless the image has been uploaded, so that its bytes can be read.
    pub(super) fn check_status(&self) -> Result<(), SourceError> {
        let advice = match self.status.as_deref() {
            Some("active") => return Ok(()),
            Some("queued" | "saving" | "uploading" | "importing") => {
                "wait until its upload has ended"
            }
            Some("deactivated") => "an administrator has to reactivate it",
            Some("killed" | "deleted" | "pending_delete") => "upload it again",
            _ => "only active images can be read",
        };
        let status = plain_line(self.status.as_deref().unwrap_or("without a status"));
        Err(invalid_error(format!("it is {status}, not active: {advice}")))
    }

    /// Returns the digest that the bytes must have: the secure hash, or the MD5 that older clouds
    /// provide instead.
    pub(super) fn expected_checksum(&self) -> Result<Option<Checksum>, SourceError> {
        let secure = self.os_hash_algo.as_deref().zip(self.os_hash_value.as_deref());
        if let Some((algorithm, hash)) = secure {
            match format!("{algorithm}:{hash}").parse() {
                Ok(checksum) => return Ok(Some(checksum)),
                Err(ChecksumError::Algorithm(name)) => {
                    tracing::info!("hash algorithm {name} of the image is not supported")
                }
                Err(error) => return Err(hash_error(error)),
            }
        }
        let md5 = self.checksum.as_deref();
        md5.map(|md5| format!("md5:{md5}").parse().map_err(hash_error)).transpose()
    }

    /// Returns what the cloud states about an image whose format is raw. Other formats are
    /// recognised by the content.
    pub(super) fn stated_disk(&self) -> Option<StatedDisk> {
        let is_bare = self.container_format.as_deref() == Some("bare");
        (is_bare && self.disk_format.as_deref() == Some("raw")).then_some(StatedDisk::PLAIN)
    }

    /// Fails unless the number of bytes that are sent equals the size of the image.
    pub(super) fn check_length(&self, sent: Option<u64>) -> Result<(), SourceError> {
        let text = |length: Option<u64>| {
            length.map_or_else(|| "(unknown)".to_owned(), |length| length.to_string())
        };
        match self.size {
            // A missing length is an error too: the server then cannot know whether it sent
            // everything.
            Some(size) if sent != Some(size) => {
                let message = format!("it has {size} bytes, but the server sends {}", text(sent));
                Err(SourceError::new(SourceErrorKind::Length, message))
            }
            _ => Ok(()),
        }
    }
}

fn hash_error(error: ChecksumError) -> SourceError {
    SourceError::with_context(SourceErrorKind::Invalid, "its hash cannot be used", error)
}
