//! Memory for what is under way, lent to connections.

use parking_lot::Mutex;

/// Rooms that are kept for the next who takes one, by all connections: a connection has one only while there is something in it.
const MAX_FREE: usize = 4;

/// Rooms of one size.
pub(super) struct Rooms {
    free: Mutex<Vec<Box<[u8]>>>,
    bytes: usize,
}

impl Rooms {
    pub(super) const fn of(bytes: usize) -> Self {
        Self {
            free: Mutex::new(Vec::new()),
            bytes,
        }
    }

    /// Lends a room. There is something in it, of another connection perhaps.
    pub(super) fn take(&self) -> Box<[u8]> {
        let free = self.free.lock().pop();
        free.unwrap_or_else(|| vec![0; self.bytes].into_boxed_slice())
    }

    /// Takes a room back.
    pub(super) fn give_back(&self, room: Option<Box<[u8]>>) {
        if room.is_none() {
            return;
        }
        let mut free = self.free.lock();
        if free.len() < MAX_FREE {
            free.extend(room);
        }
    }
}
