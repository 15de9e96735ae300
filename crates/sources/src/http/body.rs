//! The bytes of an object, for the engine.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::pin::pin;

use datapath::error::SourceError;
use reqwest::Response;

use super::download::Download;
use super::object::Object;
use crate::engine::{Outlet, Regions, Remote, TO_THE_END};
use crate::network::{Network, stopped};

impl Remote for Object {
    type Connection = Response;

    const AHEAD_BYTES: u64 = 16 << 20;

    fn network(&self) -> &Network {
        self.client.network()
    }

    fn length(&self) -> Option<u64> {
        self.identity.length
    }

    fn connections(&self) -> usize {
        self.network().connections.map_or(1, NonZeroUsize::get)
    }

    fn regions(&self) -> Option<&Regions> {
        self.regions.as_ref()
    }

    async fn read(
        &self,
        ranges: impl Iterator<Item = Range<u64>> + Send,
        mut first: Option<Response>,
        outlet: Outlet,
    ) -> Result<(), SourceError> {
        for range in ranges {
            let download = match first.take().filter(|_| range.start == 0) {
                None if range.end != TO_THE_END => Download::within(self, range.clone()),
                response => Download::from(self, range.start, response),
            };
            self.hand_over(download, range, &outlet).await?;
        }
        Ok(())
    }
}

impl Object {
    /// Hands over what `download` brings of `range`.
    async fn hand_over(
        &self,
        mut download: Download<'_>,
        range: Range<u64>,
        outlet: &Outlet,
    ) -> Result<(), SourceError> {
        let mut packing = outlet.packing(range.start);
        // One for all pieces: each would take a lock of the token that all connections share.
        let mut closed = pin!(outlet.closed());
        let mut left = range.end - range.start;
        while left > 0 {
            let mut next = pin!(download.next());
            let early = match outlet.is_prompt {
                true => packing.soon(next.as_mut()).await.map_err(|_| stopped())?,
                false => None,
            };
            let received = match early {
                Some(received) => received,
                None => tokio::select! {
                    biased;
                    received = next => received,
                    () = closed.as_mut() => return Err(stopped()),
                },
            };
            let chunk = match received {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => {
                    // What came before an error is good.
                    packing.flush().await.map_err(|_| stopped())?;
                    return Err(error);
                }
            };
            // The first response goes on behind the range.
            let wanted = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            packing.push(&chunk[..wanted]).await.map_err(|_| stopped())?;
            left -= wanted as u64;
        }
        packing.flush().await.map_err(|_| stopped())
    }
}
