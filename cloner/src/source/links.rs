//! Tracks hard links: the first name of a file is stored with its data, and the other names refer
//! to it.

use std::collections::HashMap;

use rustix::fs::Stat;

/// Maximum memory for remembered names. Beyond it, additional names of a file become separate
/// files.
const MAX_BYTES: usize = 16 << 20;

/// Memory of an entry in addition to its name: the key, the value, and overhead of the table.
const ENTRY_BYTES: usize = 96;

/// The device and inode numbers of a file.
type Key = (u64, u64);

/// Files of which some names have not been seen yet.
#[derive(Default)]
pub(super) struct HardLinks {
    first_names: HashMap<Key, (Vec<u8>, u128)>,
    bytes: usize,
    is_full: bool,
}

impl HardLinks {
    /// Registers `name` as a name of the file with metadata `stat`. If another name of the file
    /// was registered before, returns the first one. Files with a single name are not stored, and
    /// a file is removed once all its names were registered.
    pub(super) fn register_name(&mut self, stat: &Stat, name: &[u8]) -> Option<Vec<u8>> {
        // `st_nlink` has 64 bits on one architecture and 32 bits on another.
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
            tracing::warn!("too many hard links to track: some will be stored as separate files");
        }
        None
    }
}
