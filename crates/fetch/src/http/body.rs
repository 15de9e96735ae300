//! Reading of HTTP objects for the download engine.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::pin::pin;

use reqwest::Response;
use stream::error::SourceError;

use super::download::HttpDownload;
use super::object::HttpObject;
use crate::engine::{ConnectionOutlet, ObjectRegions, RemoteObject, TO_THE_END};
use crate::error::stopped_error;
use crate::network::Network;

impl RemoteObject for HttpObject {
    type Connection = Response;

    const AHEAD_BYTES: u64 = 16 << 20;

    /// Three buffers of hyper, each of which grows to 408 KiB: one is filled, one waits in the
    /// channel of the body, one is copied. Without counting them, 16 connections took 78 MiB.
    const LIBRARY_BYTES: u64 = 3 * (408 << 10);

    fn network(&self) -> &Network {
        self.client.network()
    }

    fn object_len(&self) -> Option<u64> {
        self.identity.length
    }

    fn connection_count(&self) -> usize {
        self.network().connections.map_or(1, NonZeroUsize::get)
    }

    fn data_regions(&self) -> Option<&ObjectRegions> {
        self.regions.as_ref()
    }

    async fn read_ranges(
        &self,
        ranges: impl Iterator<Item = Range<u64>> + Send,
        mut first: Option<Response>,
        outlet: ConnectionOutlet,
    ) -> Result<(), SourceError> {
        for range in ranges {
            let download = match first.take().filter(|_| range.start == 0) {
                None if range.end != TO_THE_END => HttpDownload::from_range(self, range.clone()),
                response => HttpDownload::from_position(self, range.start, response),
            };
            let download = download.without_retries(outlet.is_additional());
            self.hand_over(download, range, &outlet).await?;
        }
        Ok(())
    }
}

impl HttpObject {
    /// Sends the bytes of `range` that `download` returns to `outlet`.
    async fn hand_over(
        &self,
        mut download: HttpDownload<'_>,
        range: Range<u64>,
        outlet: &ConnectionOutlet,
    ) -> Result<(), SourceError> {
        let mut copying = outlet.copying_sender(range.start);
        // Use one future for all pieces: a new one for each would lock the token that all
        // connections share.
        let mut closed = pin!(outlet.wait_for_close());
        let mut position = range.start;
        while position < outlet.end_before(range.end) {
            let mut next = pin!(download.next());
            let early = if outlet.is_prompt {
                copying.await_or_flush(next.as_mut()).await.map_err(|_| stopped_error())?
            } else {
                None
            };
            let received = match early {
                Some(received) => received,
                None => tokio::select! {
                    // Poll in this order, so that the shared token is locked only while no bytes
                    // have arrived.
                    biased;
                    received = next => received,
                    () = closed.as_mut() => return Err(stopped_error()),
                },
            };
            let chunk = match received {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => {
                    // Bytes that arrived before an error are valid.
                    copying.flush().await.map_err(|_| stopped_error())?;
                    return Err(error);
                }
            };
            // The first response may extend beyond the range, so take only the part within the
            // range.
            let left = range.end.saturating_sub(position);
            let wanted = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            let wanted = outlet.accept(wanted);
            position += wanted as u64;
            copying.push(&chunk[..wanted]).await.map_err(|_| stopped_error())?;
        }
        copying.flush().await.map_err(|_| stopped_error())
    }
}
