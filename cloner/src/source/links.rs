//! Files with several names: the first one carries the data, the others refer to it.

use std::collections::HashMap;

use rustix::fs::Stat;

/// Bytes of names that are remembered; beyond, further names of a file become files of their own.
const MAX_BYTES: usize = 16 << 20;

/// Bytes that an entry costs beside its name: the key, the value, and their share of the table.
const ENTRY_BYTES: usize = 96;

/// Device and number of a file.
type Key = (u64, u64);

/// The files with names that are still to come.
#[derive(Default)]
pub(super) struct HardLinks {
    first_names: HashMap<Key, (Vec<u8>, u128)>,
    bytes: usize,
    is_full: bool,
}

impl HardLinks {
    /// The first name of the file that is now met as `name`, if this is not it. Files without other names are not remembered,
    /// and those whose names have all come are forgotten.
    pub(super) fn register_name(&mut self, stat: &Stat, name: &[u8]) -> Option<Vec<u8>> {
        // 64 bits on one architecture, 32 on another.
        let names = u128::from(stat.st_nlink);
        if names < 2 {
            return None;
        }
        let key = (stat.st_dev, stat.st_ino);
        if let Some((first, left)) = self.first_names.get_mut(&key) {
            let first = first.clone();
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.first_names.remove(&key);
                self.bytes -= ENTRY_BYTES + first.len();
            }
            return Some(first);
        }
        let cost = ENTRY_BYTES + name.len();
        if self.bytes + cost <= MAX_BYTES {
            self.bytes += cost;
            self.first_names.insert(key, (name.to_vec(), names - 1));
        } else if !self.is_full {
            self.is_full = true;
            tracing::warn!(
                "there are too many files with several names: some of them will be files of their own"
            );
        }
        None
    }
}
