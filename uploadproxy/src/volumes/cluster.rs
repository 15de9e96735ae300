//! Looks up PVCs in a cluster.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::{Instant, interval, timeout, timeout_at};

use super::judge::{FilledClaim, filled_claim, upload_content};
use super::{MESSAGE_CHARS, UploadContent, UpstreamAddress, WaitingClaim, missing_claim};
use crate::names;
use crate::token::UploadGrant;

/// Time to wait for an upload server that is not ready yet.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Pause between two lookups of a PVC.
const INTERVAL: Duration = Duration::from_secs(1);

/// The port of upload servers and, in current releases of CDI, of their Services.
const PORT: u16 = 8443;

/// The port of upload servers' Services in CDI 1.64.0 and earlier.
const OLDER_PORT: u16 = 443;

/// Time for which the result of a lookup is shared with other requests. It is shorter than
/// [`INTERVAL`], so that a single waiting request makes a new lookup each time.
const SHARED: Duration = Duration::from_millis(250);

/// Maximum time for which a lookup holds a permit for prompt lookups; a lookup that takes longer
/// counts as slow. An API server normally answers within a few milliseconds.
const PROMPT: Duration = Duration::from_millis(250);

/// Maximum number of simultaneous prompt lookups. A burst of n slow lookups delays the other
/// lookups by n times [`PROMPT`], divided by this number.
const PROMPT_LOOKUPS: usize = 32;

/// Maximum number of simultaneous slow lookups. They have separate permits: with shared permits,
/// 60 hanging lookups made every second upload to other PVCs fail after ten seconds.
const SLOW_LOOKUPS: usize = 32;

/// Access to the PVCs of all namespaces.
pub struct ClusterClaims {
    client: Client,
    looks: Mutex<HashMap<UploadGrant, Arc<ClaimLookup>>>,
    prompt: Semaphore,
    slow: Semaphore,
}

/// The most recent lookup of a PVC. The request that holds the lock makes the lookup, and the
/// others wait for its result.
#[derive(Default)]
struct ClaimLookup(AsyncMutex<LastLookup>);

#[derive(Default)]
struct LastLookup {
    /// The result of the lookup, and the time at which it arrived.
    seen: Option<(Instant, Seen)>,
    /// True if the lookup took longer than [`PROMPT`], or has already been running for that time.
    is_slow: bool,
}

/// The name of the PVC to be filled and its content type, if its upload server is ready.
type Seen = Result<Option<(String, UploadContent)>, String>;

impl ClaimLookup {
    /// Returns false if no request is using this lookup and its result is too old to be shared.
    fn is_of_use(self: &Arc<Self>) -> bool {
        let is_fresh = |(when, _): &(Instant, Seen)| when.elapsed() < SHARED;
        Arc::strong_count(self) > 1
            || self.0.try_lock().is_ok_and(|last| last.seen.as_ref().is_some_and(is_fresh))
    }
}

impl ClusterClaims {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            looks: Mutex::default(),
            prompt: Semaphore::new(PROMPT_LOOKUPS),
            slow: Semaphore::new(SLOW_LOOKUPS),
        }
    }

    pub(super) async fn find_volume(&self, grant: &UploadGrant) -> Result<WaitingClaim, String> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let found = timeout_at(deadline, self.wait_for_volume(grant)).await;
        // The text is the one that Go uses, because clients recognize it.
        found.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }

    async fn wait_for_volume(&self, grant: &UploadGrant) -> Result<WaitingClaim, String> {
        let shared = self.look_of(grant);
        let mut ticks = interval(INTERVAL);
        loop {
            ticks.tick().await;
            if let Some((name, content)) = self.look_up_claim(grant, &shared).await? {
                return Ok(WaitingClaim {
                    place: UpstreamAddress {
                        host: format!("{}.{}.svc", names::upload_service(&name), grant.namespace),
                        port: PORT,
                        older_port: Some(OLDER_PORT),
                    },
                    content,
                });
            }
        }
    }

    fn look_of(&self, grant: &UploadGrant) -> Arc<ClaimLookup> {
        let mut looks = self.looks.lock();
        looks.retain(|_, look| look.is_of_use());
        Arc::clone(looks.entry(grant.clone()).or_default())
    }

    /// Looks up a PVC. However many requests need it, the API server receives only a few requests
    /// per second.
    async fn look_up_claim(&self, grant: &UploadGrant, shared: &ClaimLookup) -> Seen {
        let mut last = shared.0.lock().await;
        if let Some((when, seen)) = &last.seen
            && when.elapsed() < SHARED
        {
            return seen.clone();
        }
        let api = Api::namespaced(self.client.clone(), &grant.namespace);
        let seen = self.query_claim(&api, &grant.pvc, &mut last.is_slow).await;
        last.seen = Some((Instant::now(), seen.clone()));
        seen
    }

    /// Sends the lookup to the API server. The lookup holds a permit for prompt lookups until it
    /// counts as slow.
    async fn query_claim(
        &self,
        api: &Api<PersistentVolumeClaim>,
        pvc: &str,
        is_slow: &mut bool,
    ) -> Seen {
        let mut answer = pin!(look_up_volume(api, pvc));
        if !*is_slow {
            // The semaphore is never closed.
            let _place = self.prompt.acquire().await;
            if let Ok(seen) = timeout(PROMPT, &mut answer).await {
                return seen;
            }
            // This is set before the wait below, which may be cancelled together with this
            // request.
            *is_slow = true;
        }
        // Without a permit, the lookup does not wait for the API server's response, because the
        // response takes memory. The caller tries again a second later.
        let Ok(_place) = self.slow.try_acquire() else {
            return Ok(None);
        };
        let began = Instant::now();
        let seen = answer.await;
        *is_slow = began.elapsed() > PROMPT;
        seen
    }
}

/// Returns the name of the PVC to be filled and its content type, if its upload server is ready.
async fn look_up_volume(api: &Api<PersistentVolumeClaim>, pvc: &str) -> Seen {
    let claim = get_claim(api, pvc).await?.ok_or_else(|| missing_claim(pvc))?;
    let no_prime = || format!("rejecting Upload Request for PVC {pvc}, PVC' wasn't created yet");
    let (name, claim) = match filled_claim(&claim) {
        FilledClaim::Itself => (pvc.to_owned(), claim),
        FilledClaim::NotYet => return Ok(None),
        // A name from an annotation is validated too, because it becomes part of a host name.
        FilledClaim::Prime(prime) if !names::is_subdomain(&prime) => return Err(no_prime()),
        FilledClaim::Prime(prime) => {
            let claim = get_claim(api, &prime).await?;
            (prime, claim.ok_or_else(no_prime)?)
        }
    };
    Ok(upload_content(pvc, &claim)?.map(|content| (name, content)))
}

async fn get_claim(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
) -> Result<Option<PersistentVolumeClaim>, String> {
    api.get_opt(name).await.map_err(|error| {
        let message = match error {
            kube::Error::Api(status) => status.message,
            other => program::report::error_chain(&other),
        };
        printable::escape_line(&message, MESSAGE_CHARS)
    })
}
