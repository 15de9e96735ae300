//! The servers, each with one object, and a place in front of it where faults are injected.

pub(crate) mod glance;
pub(crate) mod http;
pub(crate) mod imageio;
pub(crate) mod nbd;
pub(crate) mod objects;
pub(crate) mod registry;

use std::path::Path;

use testkit::gateway::Fault;

/// A server of one kind that has one object.
pub(crate) trait Server: Sized {
    const NAME: &'static str;

    /// The error for a bit flipped in transit; `None` if only the user's checksum can tell.
    const CORRUPTION: Option<&'static str> = None;

    /// Bytes of the requests that are in flight at once, where replies come in any order: after a
    /// cut, they are requested again.
    const UNIT_BYTES: u64 = 0;

    /// Starts a server with `object`. The i-th reply with bytes of it suffers the i-th fault.
    fn start(object: &[u8], faults: Vec<Fault>) -> Self;

    /// The SOURCE argument.
    fn source(&self) -> Vec<String>;

    /// Command-line options; `folder` is for files that they name.
    fn options(&self, _folder: &Path) -> Vec<String> {
        Vec::new()
    }

    /// Environment variables of the importer.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Bytes of the object that were sent so far.
    fn sent_bytes(&self) -> u64;

    /// The SOURCE of a missing object, and part of the error about it.
    fn missing(&self) -> (Vec<String>, &'static str);

    /// Starts a server that requires a password, which [`Server::options`] gives.
    fn start_guarded(_object: &[u8]) -> Self {
        unreachable!("{} knows no passwords", Self::NAME)
    }

    /// Changes the password on the server. Returns the error for clients with the old one.
    fn lock_out(&self) -> &'static str {
        unreachable!("{} knows no passwords", Self::NAME)
    }
}

/// The options `--user` and `--password-file`.
fn password_options(folder: &Path, user: &str, password: &str) -> Vec<String> {
    use testkit::fail::OrFail;
    let file = folder.join("password");
    std::fs::write(&file, password).or_fail("a password");
    ["--user", user, "--password-file"]
        .map(str::to_owned)
        .into_iter()
        .chain([file.display().to_string()])
        .collect()
}
