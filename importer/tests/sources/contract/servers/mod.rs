//! The servers, each with one object and a place where faults are put in front of it.

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

    /// What is said when a bit of the object was flipped on the way; `None` if only the user can know.
    const CORRUPTION: Option<&'static str> = None;

    /// Bytes of the requests that are on their way at once, where answers come in any order and one that is cut is asked for again.
    const UNIT_BYTES: u64 = 0;

    /// A server with `object`. The i-th answer with bytes of it suffers the i-th fault.
    fn start(object: &[u8], faults: Vec<Fault>) -> Self;

    /// The SOURCE argument.
    fn source(&self) -> Vec<String>;

    /// Options of the command line; `folder` is for files that they name.
    fn options(&self, _folder: &Path) -> Vec<String> {
        Vec::new()
    }

    /// Variables of the process.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Bytes of the object that were sent so far.
    fn sent_bytes(&self) -> u64;

    /// The SOURCE of an object that is not there, and what is said about it.
    fn missing(&self) -> (Vec<String>, &'static str);

    /// A server that asks for a password, which [`Server::options`] gives.
    fn start_guarded(_object: &[u8]) -> Self {
        unreachable!("{} knows no passwords", Self::NAME)
    }

    /// Changes the password without telling; gives what is said to those who do not know it.
    fn lock_out(&self) -> &'static str {
        unreachable!("{} knows no passwords", Self::NAME)
    }
}

/// `--user` and `--password-file`.
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
