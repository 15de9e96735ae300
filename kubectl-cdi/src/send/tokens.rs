//! Upload tokens of one claim, renewed before they expire.

use std::time::Duration;

use parking_lot::Mutex;
use program::secret::Secret;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::PluginError;

/// Age at which a token is replaced. Tokens are valid for five minutes, but according to another
/// machine's clock.
const MAX_AGE: Duration = Duration::from_secs(4 * 60);

/// If a token is rejected at this age or earlier, it was never valid, and the next one would not
/// be either.
const FRESH: Duration = Duration::from_secs(10);

/// Requests tokens, and reuses the last one until it is too old.
pub(crate) struct TokenCache {
    cluster: Cluster,
    claim: String,
    held: Mutex<Option<(Secret, Instant)>>,
}

impl TokenCache {
    /// Creates a token cache for the claim with this name. It does not request a token yet.
    pub(crate) fn new(cluster: Cluster, claim: &str) -> Self {
        Self { cluster, claim: claim.to_owned(), held: Mutex::new(None) }
    }

    /// Returns a token that remains valid for about a minute or longer. Requests a new one if the
    /// last one is too old.
    pub(crate) async fn current_token(&self) -> Result<Secret, PluginError> {
        if let Some((token, since)) = self.held.lock().clone()
            && since.elapsed() < MAX_AGE
        {
            return Ok(token);
        }
        let token = self.cluster.request_token(&self.claim).await?;
        *self.held.lock() = Some((token.clone(), Instant::now()));
        Ok(token)
    }

    /// Drops a token that was rejected. Returns false if the token was fresh, because a retry is
    /// then useless.
    pub(crate) fn discard_token(&self) -> bool {
        let held = self.held.lock().take();
        held.is_none_or(|(_, since)| since.elapsed() >= FRESH)
    }
}
