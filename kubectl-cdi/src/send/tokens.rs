//! Tokens of one claim, asked for when the last one grows old.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::{Cluster, ClusterError, UploadToken};

/// Age from which on a token is not used any more. It is good for five minutes, by the clock of another machine.
const MAX_AGE: Duration = Duration::from_secs(4 * 60);

/// Age up to which a token that is refused was never good: the next one would not be either.
const FRESH: Duration = Duration::from_secs(10);

/// The tokens.
pub(crate) struct TokenCache {
    cluster: Cluster,
    claim: String,
    held: Mutex<Option<(UploadToken, Instant)>>,
}

impl TokenCache {
    /// Tokens for the claim of this name.
    pub(crate) fn new(cluster: Cluster, claim: &str) -> Self {
        Self { cluster, claim: claim.to_owned(), held: Mutex::new(None) }
    }

    /// A token that is good for some time.
    pub(crate) async fn current_token(&self) -> Result<UploadToken, ClusterError> {
        if let Some((token, since)) = self.held.lock().clone()
            && since.elapsed() < MAX_AGE
        {
            return Ok(token);
        }
        let token = self.cluster.request_token(&self.claim).await?;
        *self.held.lock() = Some((token.clone(), Instant::now()));
        Ok(token)
    }

    /// Gives up a token that was refused. False if it was a fresh one.
    pub(crate) fn discard_token(&self) -> bool {
        let held = self.held.lock().take();
        held.is_none_or(|(_, since)| since.elapsed() >= FRESH)
    }
}
