//! Limits for the number and speed of uploads, in total and per client. A limit applies only if it
//! is configured or derived from the memory limit. The limit of requests to one PVC always
//! applies.
//!
//! An upload that makes no progress, because its client or its upload server hangs, keeps its slot
//! only until another upload needs it. The proxy cannot detect that a client is gone while the
//! upload server reads nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pace::SharedRateLimiter;
use crate::token::UploadGrant;

/// Maximum number of simultaneous requests to one PVC. An upload server accepts one upload at a
/// time, and the owner of one token must not occupy all connections.
const MOST_FOR_CLAIM: usize = 32;

/// Divisor that gives the share of one PVC in the uploads that memory allows. In any case
/// [`LEAST_FOR_CLAIM`] requests are allowed: an upload, and a request that asks about it.
const CLAIM_SHARE: usize = 4;
const LEAST_FOR_CLAIM: usize = 2;

/// Time without progress after which an upload may be cancelled to make room, if all slots are
/// taken.
pub(crate) const STALLED: Duration = Duration::from_secs(30);

/// Limits that an administrator sets. `None` means that there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UploadLimits {
    /// Maximum number of simultaneous uploads.
    pub uploads: Option<NonZeroUsize>,
    /// Maximum number of simultaneous uploads from one address.
    pub uploads_per_client: Option<NonZeroUsize>,
    /// Maximum bytes per second for all uploads together.
    pub rate: Option<NonZeroU64>,
    /// Maximum bytes per second for all uploads from one address.
    pub rate_per_client: Option<NonZeroU64>,
}

/// Admits uploads and requests, and tracks the ones in progress.
#[derive(Debug)]
pub(crate) struct UploadLimiter {
    allowed: UploadLimits,
    /// Maximum number of simultaneous uploads that fit into the proxy's memory. It is `None` if a
    /// number is configured.
    by_memory: Option<NonZeroUsize>,
    /// Maximum number of simultaneous requests to one PVC.
    for_claim: usize,
    pace: Option<Arc<SharedRateLimiter>>,
    clients: Mutex<ClientTable>,
    requests: Mutex<HashMap<UploadGrant, usize>>,
}

#[derive(Debug, Default)]
struct ClientTable {
    uploads: HashMap<u64, Arc<RelayProgress>>,
    /// The key of the next upload.
    next: u64,
    by_address: HashMap<IpAddr, ClientUsage>,
}

#[derive(Debug)]
struct ClientUsage {
    uploads: usize,
    pace: Option<Arc<SharedRateLimiter>>,
}

/// The progress of an upload.
#[derive(Debug)]
pub(crate) struct RelayProgress {
    /// Time at which the last bytes were forwarded, or until which the rate limits hold back the
    /// next ones. It is `None` once all bytes have been forwarded and only the upload server still
    /// has work to do.
    last: Mutex<Option<Instant>>,
    /// Cancelled when the upload has to make room for another one.
    pub(crate) give_up: CancellationToken,
}

impl RelayProgress {
    fn start_now() -> Arc<Self> {
        Arc::new(Self { last: Mutex::new(Some(Instant::now())), give_up: CancellationToken::new() })
    }

    /// Records that bytes have been forwarded; the next ones may be forwarded at `next`.
    pub(crate) fn advance_to(&self, next: Instant) {
        *self.last.lock() = Some(next);
    }

    /// Records that all bytes have been forwarded.
    pub(crate) fn set_complete(&self) {
        *self.last.lock() = None;
    }
}

/// The permission for one upload. Dropping it frees the upload's slot.
#[derive(Debug)]
pub(crate) struct UploadPermit {
    limits: Arc<UploadLimiter>,
    address: IpAddr,
    key: u64,
    pub(crate) progress: Arc<RelayProgress>,
    /// The rate limits that apply to the bytes of the upload.
    pub(crate) paces: Vec<Arc<SharedRateLimiter>>,
}

/// Counts a request to a PVC as in progress until it is dropped.
#[derive(Debug)]
pub(crate) struct ClaimRequestGuard {
    limits: Arc<UploadLimiter>,
    grant: UploadGrant,
}

/// Reasons why an upload or a request exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UploadLimitError {
    #[error("too many uploads are in progress (at most {0} at a time): try again later")]
    Total(NonZeroUsize),
    #[error(
        "too many uploads are in progress (the memory limit of the upload proxy allows {0} at a time): retry later; an administrator \
         can raise that limit, or set --max-uploads"
    )]
    Memory(NonZeroUsize),
    #[error(
        "too many uploads from this address are in progress (at most {0} at a time): try again later"
    )]
    Client(NonZeroUsize),
    #[error(
        "too many requests for this PVC are in progress (at most {0} at a time): try again later"
    )]
    Claim(usize),
}

impl UploadLimitError {
    /// The names of all limits, used as values of the metric label `limit`.
    // `name` destructures this array, so it cannot return any other name.
    pub(crate) const NAMES: [&'static str; 4] = ["uploads", "memory", "client", "claim"];

    /// Returns the name of the limit in lower case.
    pub(crate) const fn name(self) -> &'static str {
        let [uploads, memory, client, claim] = Self::NAMES;
        match self {
            Self::Total(_) => uploads,
            Self::Memory(_) => memory,
            Self::Client(_) => client,
            Self::Claim(_) => claim,
        }
    }
}

impl UploadLimiter {
    /// Creates a limiter. `by_memory` is the number of uploads that fit into the proxy's memory;
    /// it applies if `allowed` does not set a number.
    pub(crate) fn new(allowed: UploadLimits, by_memory: Option<NonZeroUsize>) -> Arc<Self> {
        let by_memory = by_memory.filter(|_| allowed.uploads.is_none());
        let share = by_memory.map(|most| most.get() / CLAIM_SHARE);
        Arc::new(Self {
            allowed,
            by_memory,
            for_claim: share
                .map_or(MOST_FOR_CLAIM, |share| share.clamp(LEAST_FOR_CLAIM, MOST_FOR_CLAIM)),
            pace: allowed.rate.map(|rate| Arc::new(SharedRateLimiter::new(rate))),
            clients: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    /// Admits a request for `grant`, unless too many are in progress.
    pub(crate) fn enter_request(
        self: &Arc<Self>,
        grant: &UploadGrant,
    ) -> Result<ClaimRequestGuard, UploadLimitError> {
        let mut requests = self.requests.lock();
        let count = requests.entry(grant.clone()).or_default();
        if *count >= self.for_claim {
            return Err(UploadLimitError::Claim(self.for_claim));
        }
        *count += 1;
        Ok(ClaimRequestGuard { limits: Arc::clone(self), grant: grant.clone() })
    }

    /// Admits an upload from `address`, unless too many are in progress.
    pub(crate) fn admit_upload(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Result<UploadPermit, UploadLimitError> {
        // An IPv4 address and the same address mapped into IPv6 count as one client.
        let address = address.to_canonical();
        let mut clients = self.clients.lock();
        if let Some(excess) = self.excess_error(clients.uploads.len()) {
            // The stalled upload frees its slot a moment later, so that this client can retry
            // then.
            clients.give_up_a_stalled_one();
            return Err(excess);
        }
        let rate = self.allowed.rate_per_client;
        let client = clients.by_address.entry(address).or_insert_with(|| ClientUsage {
            uploads: 0,
            pace: rate.map(|rate| Arc::new(SharedRateLimiter::new(rate))),
        });
        if let Some(most) = self.allowed.uploads_per_client
            && client.uploads >= most.get()
        {
            return Err(UploadLimitError::Client(most));
        }
        client.uploads += 1;
        let paces = self.pace.iter().chain(client.pace.iter()).map(Arc::clone).collect();
        let (key, progress) = (clients.next, RelayProgress::start_now());
        clients.next += 1;
        clients.uploads.insert(key, Arc::clone(&progress));
        Ok(UploadPermit { limits: Arc::clone(self), address, key, progress, paces })
    }

    /// Returns the limit that would be exceeded by one more upload in addition to `uploads`
    /// others, if any.
    fn excess_error(&self, uploads: usize) -> Option<UploadLimitError> {
        let full = |most: &NonZeroUsize| uploads >= most.get();
        let total = self.allowed.uploads.filter(full).map(UploadLimitError::Total);
        total.or(self.by_memory.filter(full).map(UploadLimitError::Memory))
    }
}

impl ClientTable {
    /// Cancels the upload that has made no progress for the longest time, if that is at least
    /// [`STALLED`].
    fn give_up_a_stalled_one(&self) {
        let stalled = self.uploads.values().filter_map(|upload| {
            let last = (*upload.last.lock())?;
            (last.elapsed() >= STALLED && !upload.give_up.is_cancelled()).then_some((last, upload))
        });
        if let Some((_, upload)) = stalled.min_by_key(|(last, _)| *last) {
            upload.give_up.cancel();
        }
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let mut clients = self.limits.clients.lock();
        clients.uploads.remove(&self.key);
        if let Some(client) = clients.by_address.get_mut(&self.address) {
            client.uploads = client.uploads.saturating_sub(1);
            if client.uploads == 0 {
                clients.by_address.remove(&self.address);
            }
        }
    }
}

impl Drop for ClaimRequestGuard {
    fn drop(&mut self) {
        let mut requests = self.limits.requests.lock();
        if let Some(count) = requests.get_mut(&self.grant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                requests.remove(&self.grant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn without_limits_every_upload_is_admitted() {
        let limits = UploadLimiter::new(UploadLimits::default(), None);
        let permits: Vec<_> = (0..1000).map(|_| limits.admit_upload(address(1)).unwrap()).collect();
        assert!(permits.iter().all(|permit| permit.paces.is_empty()));
        drop(permits);
        assert!(limits.clients.lock().by_address.is_empty(), "clients are forgotten");
    }

    #[test]
    fn uploads_above_a_limit_are_refused_until_one_ends() {
        let allowed = UploadLimits {
            uploads: NonZeroUsize::new(3),
            uploads_per_client: NonZeroUsize::new(2),
            rate: NonZeroU64::new(10),
            rate_per_client: NonZeroU64::new(5),
        };
        let limits = UploadLimiter::new(allowed, NonZeroUsize::new(1));
        let first = limits.admit_upload(address(1)).unwrap();
        let second = limits.admit_upload("::ffff:127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(first.paces.len(), 2);
        assert!(Arc::ptr_eq(&first.paces[1], &second.paces[1]), "one client, one pace");
        assert!(matches!(limits.admit_upload(address(1)), Err(UploadLimitError::Client(_))));
        let _third = limits.admit_upload(address(2)).unwrap();
        assert!(matches!(limits.admit_upload(address(3)), Err(UploadLimitError::Total(_))));
        drop(first);
        let _again = limits.admit_upload(address(1)).unwrap();
    }

    #[test]
    fn one_pvc_cannot_take_the_places_of_others() {
        let limits = UploadLimiter::new(UploadLimits::default(), None);
        let grant = |pvc: &str| UploadGrant { namespace: "ns".to_owned(), pvc: pvc.to_owned() };
        let mut entries: Vec<_> =
            (0..MOST_FOR_CLAIM).map(|_| limits.enter_request(&grant("a")).unwrap()).collect();
        assert_eq!(
            limits.enter_request(&grant("a")).unwrap_err(),
            UploadLimitError::Claim(MOST_FOR_CLAIM)
        );
        let _other = limits.enter_request(&grant("b")).unwrap();
        entries.pop();
        entries.push(limits.enter_request(&grant("a")).unwrap());
        drop(entries);
        assert_eq!(limits.requests.lock().len(), 1, "ended requests are forgotten");
    }

    #[test]
    fn memory_limits_all_uploads_and_those_of_one_pvc() {
        for (by_memory, for_claim) in [(1, 2), (18, 4), (54, 13), (1000, MOST_FOR_CLAIM)] {
            let most = NonZeroUsize::new(by_memory).unwrap();
            let limits = UploadLimiter::new(UploadLimits::default(), Some(most));
            let _all: Vec<_> =
                (0..by_memory).map(|_| limits.admit_upload(address(1)).unwrap()).collect();
            assert_eq!(
                limits.admit_upload(address(2)).unwrap_err(),
                UploadLimitError::Memory(most)
            );
            assert_eq!(limits.for_claim, for_claim);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_upload_is_given_up_when_another_needs_its_place() {
        let limits = UploadLimiter::new(UploadLimits::default(), NonZeroUsize::new(3));
        let [complete, moving, stalled] =
            [1, 2, 3].map(|last| limits.admit_upload(address(last)).unwrap());
        let is_given_up = |permit: &UploadPermit| permit.progress.give_up.is_cancelled();
        complete.progress.set_complete();
        tokio::time::advance(STALLED).await;
        moving.progress.advance_to(Instant::now());
        assert!(!is_given_up(&stalled), "no other upload needs its place yet");
        for _ in 0..2 {
            limits.admit_upload(address(4)).unwrap_err();
            assert!(is_given_up(&stalled));
            assert!(!is_given_up(&moving) && !is_given_up(&complete));
        }
        drop(stalled);
        let _new = limits.admit_upload(address(4)).unwrap();
    }
}
