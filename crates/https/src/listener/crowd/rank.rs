//! Connections in the order in which they make room.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Connections by client: those of the client that has most come first, and of these the least ones.
///
/// Every change and question takes logarithmic time: with thousands of connections, thousands of new ones may come each second.
#[derive(Debug)]
pub(super) struct Rank<K> {
    length: usize,
    by_client: HashMap<IpAddr, BTreeSet<K>>,
    /// The number of connections of each client, and its least one.
    order: BTreeSet<(usize, Reverse<K>, IpAddr)>,
}

impl<K> Default for Rank<K> {
    fn default() -> Self {
        Self {
            length: 0,
            by_client: HashMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Copy> Rank<K> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The connection that makes room next.
    pub(super) fn first(&self) -> Option<K> {
        self.order.last().map(|(_, Reverse(key), _)| *key)
    }

    pub(super) fn insert(&mut self, client: IpAddr, key: K) {
        self.length += usize::from(self.change(client, |keys| keys.insert(key)));
    }

    pub(super) fn remove(&mut self, client: IpAddr, key: K) {
        self.length -= usize::from(self.change(client, |keys| keys.remove(&key)));
    }

    fn change(&mut self, client: IpAddr, change: impl FnOnce(&mut BTreeSet<K>) -> bool) -> bool {
        let keys = self.by_client.entry(client).or_default();
        if let Some(least) = keys.first() {
            self.order.remove(&(keys.len(), Reverse(*least), client));
        }
        let has_changed = change(keys);
        match keys.first() {
            Some(least) => {
                self.order.insert((keys.len(), Reverse(*least), client));
            }
            None => {
                self.by_client.remove(&client);
            }
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_least_of_the_client_with_most(changes in prop::collection::vec((0..4_u8, 0..20_u64, any::<bool>()), 1..200)) {
            let mut rank = Rank::default();
            let mut all: BTreeSet<(u8, u64)> = BTreeSet::new();
            for (client, key, is_in) in changes {
                // A key is of one client.
                let (key, address) = (key * 4 + u64::from(client), IpAddr::V4(Ipv4Addr::new(192, 0, 2, client)));
                if is_in {
                    rank.insert(address, key);
                    all.insert((client, key));
                } else {
                    rank.remove(address, key);
                    all.remove(&(client, key));
                }
                let of = |client: u8| all.iter().filter(move |(other, _)| *other == client);
                let expected = all.iter().max_by_key(|(client, key)| (of(*client).count(), Reverse(*key)));
                prop_assert_eq!(rank.first(), expected.map(|(_, key)| *key));
                prop_assert_eq!(rank.len(), all.len());
                prop_assert_eq!(rank.by_client.len(), (0..4).filter(|client| of(*client).count() > 0).count());
            }
        }
    }
}
