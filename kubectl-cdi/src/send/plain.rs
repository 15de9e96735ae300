//! Uploads in one request, as virtctl sends them. They are used for archives, and for servers that
//! do not support resumable uploads.

use std::sync::Arc;

use http::{HeaderValue, Method, header};
use parking_lot::Mutex;
use program::cdi::{UPLOAD, UPLOAD_ASYNC};

use super::ledger::PieceLedger;
use super::protocol::UploadRequestError;
use super::stall_timer::StallTimer;
use super::upload_body::UploadBody;
use super::{CompletedUpload, UploadTask};
use crate::error::PluginError;

impl UploadTask<'_> {
    /// Sends the whole image. Starts over after each failure that may be temporary.
    pub(super) async fn in_one_request(
        &self,
        stall_timer: &mut StallTimer<'_>,
    ) -> Result<CompletedUpload, PluginError> {
        if !self.is_archive {
            // The 404 that led here comes from a proxy or a server that is not ours, but it does
            // not show which of the two.
            tracing::warn!(
                "uploads cannot be resumed here: the upload proxy or the upload server does not support it; after a break the upload \
                 starts over"
            );
        }
        loop {
            match self.send_all().await {
                Ok(stream_bytes) => {
                    self.image.check_unchanged()?;
                    return Ok(self.completed_upload(stream_bytes, false));
                }
                Err(UploadRequestError::Failed(error)) if error.may_pass() => {
                    self.wait_before_retry(stall_timer, &error).await?
                }
                Err(UploadRequestError::Unauthorized) if self.tokens.discard_token() => {}
                Err(trouble) => return Err(self.send_error(trouble)),
            }
        }
    }

    async fn send_all(&self) -> Result<u64, UploadRequestError> {
        // The asynchronous path is answered as soon as all bytes have arrived, so that no
        // connection has to stay open while the disk is completed.
        let path = match self.send_request(Method::HEAD, UPLOAD_ASYNC, Vec::new(), None).await {
            Ok(_) => UPLOAD_ASYNC,
            Err(UploadRequestError::Missing) => UPLOAD,
            Err(trouble) => return Err(trouble),
        };
        let ledger = Arc::new(Mutex::new(PieceLedger::new(None)));
        let stream = UploadBody::resume_after(0, self.image, self.encoding, &ledger, self.watch);
        let (stream, tally) = stream?.ok_or(UploadRequestError::Missing)?;
        let kind = HeaderValue::from_static("application/octet-stream");
        let mut headers = vec![(header::CONTENT_TYPE, kind)];
        headers.extend(self.format_header());
        let asking = self.send_request(Method::POST, path, headers, Some(stream));
        self.while_it_moves(&tally, asking).await?;
        Ok(ledger.lock().stream_position())
    }
}
