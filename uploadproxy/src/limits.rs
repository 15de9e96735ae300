//! Limits of the number and speed of uploads, in total and for each client. Off unless configured, but for requests to one PVC.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pace::Pace;
use crate::token::Grant;

/// Requests to one PVC at a time. Its upload server takes one upload; an owner of a token shall not take all connections.
const MOST_FOR_CLAIM: usize = 32;

/// Limits that an administrator sets; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Allowed {
    /// Uploads at a time.
    pub(crate) uploads: Option<NonZeroUsize>,
    /// Uploads at a time from one address.
    pub(crate) uploads_per_client: Option<NonZeroUsize>,
    /// Bytes a second.
    pub(crate) rate: Option<NonZeroU64>,
    /// Bytes a second from one address.
    pub(crate) rate_per_client: Option<NonZeroU64>,
}

/// The uploads in progress.
#[derive(Debug)]
pub(crate) struct Limits {
    allowed: Allowed,
    pace: Option<Arc<Pace>>,
    clients: Mutex<Clients>,
    requests: Mutex<HashMap<Grant, usize>>,
}

#[derive(Debug, Default)]
struct Clients {
    uploads: usize,
    by_address: HashMap<IpAddr, Client>,
}

#[derive(Debug)]
struct Client {
    uploads: usize,
    pace: Option<Arc<Pace>>,
}

/// The right to one upload, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limits: Arc<Limits>,
    address: IpAddr,
    /// Paces that the bytes of the upload keep to.
    pub(crate) paces: Vec<Arc<Pace>>,
}

/// A request to a PVC, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    limits: Arc<Limits>,
    grant: Grant,
}

/// There are too many uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Excess {
    #[error("too many uploads are in progress (at most {0} at a time): try again later")]
    Total(NonZeroUsize),
    #[error("too many uploads from this address are in progress (at most {0} at a time): try again later")]
    Client(NonZeroUsize),
    #[error(
        "too many requests for this PVC are in progress (at most {MOST_FOR_CLAIM} at a time): try again later"
    )]
    Claim,
}

impl Limits {
    pub(crate) fn new(allowed: Allowed) -> Arc<Self> {
        Arc::new(Self {
            allowed,
            pace: allowed.rate.map(|rate| Arc::new(Pace::new(rate))),
            clients: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    /// Lets a request for `grant` begin, unless there are too many.
    pub(crate) fn enter(self: &Arc<Self>, grant: &Grant) -> Result<Entry, Excess> {
        let mut requests = self.requests.lock();
        let count = requests.entry(grant.clone()).or_default();
        if *count >= MOST_FOR_CLAIM {
            return Err(Excess::Claim);
        }
        *count += 1;
        Ok(Entry {
            limits: Arc::clone(self),
            grant: grant.clone(),
        })
    }

    /// Lets `address` begin an upload, unless there are too many.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Permit, Excess> {
        // One client, whether it came by IPv4 or by IPv4 in IPv6.
        let address = address.to_canonical();
        let mut clients = self.clients.lock();
        if let Some(most) = self.allowed.uploads
            && clients.uploads >= most.get()
        {
            return Err(Excess::Total(most));
        }
        let rate = self.allowed.rate_per_client;
        let client = clients.by_address.entry(address).or_insert_with(|| Client {
            uploads: 0,
            pace: rate.map(|rate| Arc::new(Pace::new(rate))),
        });
        if let Some(most) = self.allowed.uploads_per_client
            && client.uploads >= most.get()
        {
            return Err(Excess::Client(most));
        }
        client.uploads += 1;
        let paces = self
            .pace
            .iter()
            .chain(client.pace.iter())
            .map(Arc::clone)
            .collect();
        clients.uploads += 1;
        Ok(Permit {
            limits: Arc::clone(self),
            address,
            paces,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut clients = self.limits.clients.lock();
        clients.uploads = clients.uploads.saturating_sub(1);
        if let Some(client) = clients.by_address.get_mut(&self.address) {
            client.uploads = client.uploads.saturating_sub(1);
            if client.uploads == 0 {
                clients.by_address.remove(&self.address);
            }
        }
    }
}

impl Drop for Entry {
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
    fn without_limits_everybody_is_admitted() {
        let limits = Limits::new(Allowed::default());
        let permits: Vec<_> = (0..1000).map(|_| limits.admit(address(1)).unwrap()).collect();
        assert!(permits.iter().all(|permit| permit.paces.is_empty()));
    }

    #[test]
    fn those_in_excess_are_refused_until_one_has_ended() {
        let limits = Limits::new(Allowed {
            uploads: NonZeroUsize::new(3),
            uploads_per_client: NonZeroUsize::new(2),
            rate: NonZeroU64::new(10),
            rate_per_client: NonZeroU64::new(5),
        });
        let first = limits.admit(address(1)).unwrap();
        let second = limits.admit("::ffff:127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(first.paces.len(), 2);
        assert!(
            Arc::ptr_eq(&first.paces[1], &second.paces[1]),
            "one client, one pace"
        );
        assert!(matches!(limits.admit(address(1)), Err(Excess::Client(_))));
        let _third = limits.admit(address(2)).unwrap();
        assert!(matches!(limits.admit(address(3)), Err(Excess::Total(_))));
        drop(first);
        let _again = limits.admit(address(1)).unwrap();
    }

    #[test]
    fn one_pvc_does_not_take_the_place_of_others() {
        let limits = Limits::new(Allowed::default());
        let grant = |pvc: &str| Grant {
            namespace: "ns".to_owned(),
            pvc: pvc.to_owned(),
        };
        let mut entries: Vec<_> = (0..MOST_FOR_CLAIM)
            .map(|_| limits.enter(&grant("a")).unwrap())
            .collect();
        assert_eq!(limits.enter(&grant("a")).unwrap_err(), Excess::Claim);
        let _other = limits.enter(&grant("b")).unwrap();
        entries.pop();
        entries.push(limits.enter(&grant("a")).unwrap());
        drop(entries);
        assert_eq!(
            limits.requests.lock().len(),
            1,
            "nothing is remembered of those that have ended"
        );
    }

    #[test]
    fn nothing_is_remembered_of_clients_that_are_gone() {
        let limits = Limits::new(Allowed::default());
        drop(limits.admit(address(1)).unwrap());
        assert!(limits.clients.lock().by_address.is_empty());
    }
}
