//! PVCs of a cluster.

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
use super::{UnavailableError, UploadContent, UpstreamAddress, WORDS_CHARS, WaitingClaim};
use crate::names;
use crate::token::UploadGrant;

/// Time for which an upload server that is not ready is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two looks at the PVC.
const INTERVAL: Duration = Duration::from_secs(1);

/// The port of upload servers.
const PORT: u16 = 8443;

/// Time for which a look at a PVC is shared with others who ask. Less than [`INTERVAL`], so that a request that waits alone looks each time.
const SHARED: Duration = Duration::from_millis(250);

/// Time for which a lookup may hold one of the places for prompt ones: an API server answers
/// within a few milliseconds.
const PROMPT: Duration = Duration::from_millis(250);

/// Prompt lookups at the same time. A burst of n slow ones delays the others by n times
/// [`PROMPT`], divided by this.
const PROMPT_LOOKUPS: usize = 32;

/// Lookups at the same time that take longer. They have places of their own: in common places 60
/// lookups that hang made every second upload to other PVCs fail after ten seconds.
const SLOW_LOOKUPS: usize = 32;

/// The PVCs of all namespaces.
pub struct ClusterClaims {
    client: Client,
    looks: Mutex<HashMap<UploadGrant, Arc<ClaimLookup>>>,
    prompt: Semaphore,
    slow: Semaphore,
}

/// The last look at a PVC. The request that holds it looks, and the others wait for that.
#[derive(Default)]
struct ClaimLookup(AsyncMutex<LastLookup>);

#[derive(Default)]
struct LastLookup {
    /// Its result, and when that came.
    seen: Option<(Instant, Seen)>,
    /// It took longer than [`PROMPT`], or takes so long.
    is_slow: bool,
}

/// The PVC that is filled and with what, if its upload server is ready.
type Seen = Result<Option<(String, UploadContent)>, UnavailableError>;

impl ClaimLookup {
    /// False if the PVC was not asked for of late.
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

    pub(super) async fn find_volume(&self, grant: &UploadGrant) -> Result<WaitingClaim, UnavailableError> {
        let deadline = Instant::now() + PATIENCE;
        let found = timeout_at(deadline, self.wait_for_volume(grant)).await;
        found.unwrap_or(Err(UnavailableError::TimedOut))
    }

    async fn wait_for_volume(&self, grant: &UploadGrant) -> Result<WaitingClaim, UnavailableError> {
        let shared = self.look_of(grant);
        let mut ticks = interval(INTERVAL);
        loop {
            ticks.tick().await;
            if let Some((name, content)) = self.look_up_claim(grant, &shared).await? {
                return Ok(WaitingClaim {
                    place: UpstreamAddress {
                        host: format!("{}.{}.svc", names::upload_service(&name), grant.namespace),
                        port: PORT,
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

    /// Looks at a PVC. However many requests want that, the API server is asked a few times a second.
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

    /// Asks the API server, in one of the places for prompt lookups as long as this one may be
    /// prompt.
    async fn query_claim(&self, api: &Api<PersistentVolumeClaim>, pvc: &str, is_slow: &mut bool) -> Seen {
        let mut answer = pin!(look_up_volume(api, pvc));
        if !*is_slow {
            // Never closed.
            let _place = self.prompt.acquire().await;
            if let Ok(seen) = timeout(PROMPT, &mut answer).await {
                return seen;
            }
            // Before the wait, which may end with this request.
            *is_slow = true;
        }
        // Without a place the API server's answer is not waited for, because it takes memory. The
        // caller asks again a second later.
        let Ok(_place) = self.slow.try_acquire() else {
            return Ok(None);
        };
        let began = Instant::now();
        let seen = answer.await;
        *is_slow = began.elapsed() > PROMPT;
        seen
    }
}

/// The PVC that is filled and with what, if its upload server is ready.
async fn look_up_volume(api: &Api<PersistentVolumeClaim>, pvc: &str) -> Seen {
    let claim = get_claim(api, pvc).await?.ok_or_else(|| UnavailableError::NotFound(pvc.to_owned()))?;
    let (name, claim) = match filled_claim(&claim) {
        FilledClaim::Itself => (pvc.to_owned(), claim),
        FilledClaim::NotYet => return Ok(None),
        // Also what an annotation says is checked before it becomes a part of a host's name.
        FilledClaim::Prime(prime) if !names::is_subdomain(&prime) => {
            return Err(UnavailableError::NoPrime(pvc.to_owned()));
        }
        FilledClaim::Prime(prime) => {
            let claim = get_claim(api, &prime).await?;
            (prime, claim.ok_or_else(|| UnavailableError::NoPrime(pvc.to_owned()))?)
        }
    };
    Ok(upload_content(pvc, &claim)?.map(|content| (name, content)))
}

async fn get_claim(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
) -> Result<Option<PersistentVolumeClaim>, UnavailableError> {
    api.get_opt(name).await.map_err(|error| {
        let words = match error {
            kube::Error::Api(status) => status.message,
            other => program::report::error_chain(&other),
        };
        UnavailableError::Api(printable::escape_line(&words, WORDS_CHARS))
    })
}
