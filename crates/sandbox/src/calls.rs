//! The system calls that a process may still make, enforced by a seccomp filter.
//!
//! The filter is a list of allowed calls: a call that a future kernel adds is denied too. All other
//! calls fail with EPERM; they do not kill the process. Otherwise a call that this list lacks would
//! end a transfer without an error message and leave an incomplete file, while an attacker who
//! causes EPERM gains nothing.

/// Groups of calls for processes that do more than read and write files of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CallSet {
    /// Sockets for TCP, and for UDP, by which names are looked up.
    pub(crate) network: bool,
    /// Listening on a port.
    pub(crate) listen: bool,
    /// Setting the times of files by their names, as archives need for symbolic links.
    pub(crate) trees: bool,
    /// Connections to Unix sockets.
    pub(crate) unix: bool,
    /// Waiting for another program that was started before.
    pub(crate) children: bool,
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod filter {
    use super::CallSet;

    pub(crate) fn restrict_calls(_: CallSet) -> Result<String, String> {
        Err(format!("seccomp filters are not supported on {}", std::env::consts::ARCH))
    }

    pub(crate) fn deny_sockets() -> Result<(), String> {
        Ok(())
    }

    pub(crate) fn deny_listening() -> Result<(), String> {
        Ok(())
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter;

pub(crate) use filter::{deny_listening, deny_sockets, restrict_calls};
