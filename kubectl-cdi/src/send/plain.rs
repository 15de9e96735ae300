//! An upload in one request, as virtctl sends it: to servers that know no other.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::Empty;
use parking_lot::Mutex;
use program::cdi::{UPLOAD, UPLOAD_ASYNC};

use super::ledger::Ledger;
use super::patience::Patience;
use super::protocol::{self, Trouble, bearer};
use super::stream::Stream;
use super::{SendFailed, Sending, Sent};

impl Sending<'_> {
    /// Sends all of it, and from the beginning again when that breaks.
    pub(super) async fn in_one_request(&self, patience: &mut Patience<'_>) -> Result<Sent, SendFailed> {
        if !self.is_archive {
            // The 404 that is known comes from a proxy or a server that is not ours: it does not
            // tell which of the two.
            tracing::warn!(
                "uploads cannot be resumed here: the upload proxy or the upload server does not support it; after a break the upload \
                 starts over"
            );
        }
        loop {
            match self.send_all().await {
                Ok(stream_bytes) => {
                    self.image.check_unchanged()?;
                    return Ok(Sent {
                        stream_bytes,
                        again: self.watch.handed_over().saturating_sub(stream_bytes),
                        is_resumable: false,
                    });
                }
                Err(Trouble::Passing(words)) => patience.pause(words).await?,
                Err(Trouble::Unauthorized) if self.tokens.renew() => {}
                Err(trouble) => return Err(self.failed(trouble)),
            }
        }
    }

    async fn send_all(&self) -> Result<u64, Trouble> {
        let token = self.tokens.current().await?;
        let bearer = bearer(&token);
        let headers = [bearer.clone()];
        // Where it is answered when all bytes are there, the disk is made while nobody holds a connection open.
        let question = protocol::ask(
            self.proxy,
            Method::HEAD,
            UPLOAD_ASYNC,
            &headers,
            Empty::<Bytes>::new(),
        )
        .await;
        let path = match question {
            Ok(_) => UPLOAD_ASYNC,
            Err(Trouble::Missing) => UPLOAD,
            Err(trouble) => return Err(trouble),
        };
        let ledger = Arc::new(Mutex::new(Ledger::new(None)));
        let stream = Stream::behind(0, self.image, self.encoding, &ledger, self.watch);
        let (stream, tally) = stream?.ok_or(Trouble::Missing)?;
        let kind = HeaderValue::from_static("application/octet-stream");
        let headers = [bearer, (header::CONTENT_TYPE, kind)];
        let asking = protocol::ask(self.proxy, Method::POST, path, &headers, stream);
        self.while_it_moves(&tally, asking).await?;
        Ok(ledger.lock().position())
    }
}
