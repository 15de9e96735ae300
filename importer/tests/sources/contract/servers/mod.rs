//! The servers, each with one object, and a place in front of it where faults are injected.

pub(crate) mod glance;
pub(crate) mod http;
pub(crate) mod imageio;
pub(crate) mod nbd;
pub(crate) mod objects;
pub(crate) mod registry;
pub(crate) mod scripted;

use testkit::gateway::Fault;

use crate::place::Place;

/// A server of one kind that has one object.
pub(crate) trait Server: Sized {
    const NAME: &'static str;

    /// The error for a bit flipped in transit; `None` if only the user's checksum can tell.
    const CORRUPTION: Option<&'static str> = None;

    /// False if the object is inside of another one, so that it is only read in order.
    const RANGED: bool = true;

    /// True if the server states that its object is a raw disk: then no byte of it is examined.
    const STATES_RAW: bool = false;

    /// Bytes that a connection brings besides those of the object, and those of the requests that
    /// are in flight at once, where replies come in any order: after a cut, they are requested
    /// again.
    const UNIT_BYTES: u64 = 0;

    /// Starts a server with `object`. The i-th reply with bytes of it suffers the i-th fault.
    fn start(object: &[u8], faults: Vec<Fault>) -> Self;

    /// The SOURCE argument.
    fn source(&self) -> Vec<String>;

    /// Command-line options; `place` is for files that they name.
    fn options(&self, _place: &Place) -> Vec<String> {
        Vec::new()
    }

    /// Environment variables of the importer.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Bytes of the object that were sent so far.
    fn sent_bytes(&self) -> u64;

    /// The SOURCE of a missing object, and part of the error about it.
    fn missing(&self) -> (Vec<String>, &'static str) {
        unreachable!("{} has everything", Self::NAME)
    }

    /// Starts a server that requires a password, which [`Server::options`] gives.
    fn start_guarded(_object: &[u8]) -> Self {
        unreachable!("{} knows no passwords", Self::NAME)
    }

    /// Changes the password on the server. Returns the old one, and the error for clients with it.
    fn lock_out(&self) -> (&'static str, &'static str) {
        unreachable!("{} knows no passwords", Self::NAME)
    }
}
