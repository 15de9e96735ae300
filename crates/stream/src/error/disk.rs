//! Errors of the disk or directory that is written.

use std::path::Path;

/// A failure of the target stage.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {}", errno_text(.source))]
pub struct TargetError {
    /// The action that failed: `write`, `open`, `fsync`, …
    pub action: &'static str,
    /// The target's path.
    pub path: String,
    /// The error that the system returned.
    #[source]
    pub source: std::io::Error,
}

/// A reason not to write to a target, or to stop writing to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetRefusedError {
    /// The target is neither a regular file nor a block device.
    #[error("it is {0}: a disk is written to a regular file or a block device")]
    Kind(&'static str),
    /// Another process holds the lock of the target.
    #[error(
        "another import or upload is writing to it: wait until it ends, or choose another target"
    )]
    InUse,
    /// The path no longer leads to the file that was created there.
    #[error("it was removed or replaced in the meantime")]
    Replaced,
    /// Writing to the target would change the source that is being read.
    #[error("it is the source, or overlaps it: write to another target")]
    Source,
    /// A file that the archive contains exists already.
    #[error("it exists already: pass --overwrite to replace it")]
    Exists,
    /// The archive contains another kind of entry where a directory with content exists.
    #[error("it is a directory that is not empty")]
    Occupied,
    /// Another process added or removed names in the directory in which an archive was unpacked.
    #[error("{made} names were created, {found} were found: another process changed the directory")]
    NotWhole {
        /// Number of names that were created.
        made: u64,
        /// Number of names found.
        found: u64,
    },
}

impl TargetError {
    /// Names of all kinds, for the metric label `kind`.
    // `kind_name` destructures this array, so it cannot return a name that is not listed here.
    pub(super) const KINDS: [&'static str; 3] = ["no-space", "refused", "io"];

    /// Name of the kind. Several causes share one name.
    pub(super) fn kind_name(&self) -> &'static str {
        let [no_space, refused, io] = Self::KINDS;
        match self.refusal_reason() {
            _ if self.is_no_space() => no_space,
            Some(_) => refused,
            None => io,
        }
    }

    /// Creates the error for `source`, which the system reported when `action` was tried on
    /// `path`.
    pub fn new(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self { action, path: path.display().to_string(), source }
    }

    /// Creates the error for an `action` on `path` that was refused for `reason`.
    pub fn from_refusal(action: &'static str, path: &Path, reason: TargetRefusedError) -> Self {
        Self::new(action, path, std::io::Error::other(reason))
    }

    /// Why the target was refused; `None` if the error came from the system.
    pub fn refusal_reason(&self) -> Option<&TargetRefusedError> {
        self.source.get_ref()?.downcast_ref()
    }

    /// Extends the failure of a commit: hiding the incomplete disk on the device failed as well,
    /// with `hiding`.
    pub fn still_visible(self, hiding: &Self) -> Self {
        let hiding = errno_text(&hiding.source);
        self.with_remains(format!(
            "its first MiB could not be zeroed again ({hiding}), so it may look like a complete disk"
        ))
    }

    /// Extends the error of a full filesystem by what was `stored` there, and by the bytes that
    /// were `available` at the beginning.
    pub fn with_space(self, stored: u64, available: u64) -> Self {
        match available {
            u64::MAX => self,
            _ => self.with_remains(format!(
                "{stored} bytes were stored, and {available} were available at the beginning"
            )),
        }
    }

    /// Extends the failure of an archive's commit that happened after its first rename.
    pub fn partly_unpacked(self) -> Self {
        self.with_remains(
            "the directory may contain part of the archive: unpack the archive again with --overwrite"
                .to_owned(),
        )
    }

    fn with_remains(self, remains: String) -> Self {
        let cause = self.source;
        Self { source: std::io::Error::other(Leaving { cause, remains }), ..self }
    }

    /// True for EACCES and EPERM.
    pub fn is_denied(&self) -> bool {
        self.source.kind() == std::io::ErrorKind::PermissionDenied
    }

    /// True for ENOSPC, EDQUOT and EFBIG, where a larger volume would help.
    pub fn is_no_space(&self) -> bool {
        use std::io::ErrorKind;
        let leaving = self.source.get_ref().and_then(|error| error.downcast_ref());
        let kind = leaving.map_or(&self.source, |Leaving { cause, .. }| cause).kind();
        matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    }
}

/// A failure together with what it leaves on the target.
#[derive(Debug, thiserror::Error)]
#[error("{}; {remains}", errno_text(cause))]
struct Leaving {
    cause: std::io::Error,
    remains: String,
}

/// The text of an errno as Go spells it: lower case, without Rust's ` (os error N)`. CDI's
/// controllers search messages for this spelling.
pub fn errno_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let Some((words, _)) = text.split_once(" (os error ") else {
        return text;
    };
    // Windows ends its sentences with a full stop.
    let words = words.trim_end_matches('.');
    let mut chars = words.chars();
    match chars.next() {
        // "Is a directory" → "is a directory", but "RPC …" and similar words keep their capitals.
        Some(first) if !chars.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_texts_are_those_that_the_controllers_search_for() {
        for (errno, text) in [
            (rustix::io::Errno::NOSPC, "no space left on device"),
            (rustix::io::Errno::DQUOT, "disk quota exceeded"),
            (rustix::io::Errno::IO, "input/output error"),
        ] {
            let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(errno_text(&error), text);
        }
        assert_eq!(errno_text(&std::io::Error::other("Odd Thing")), "Odd Thing");
    }

    #[test]
    fn the_error_of_a_device_that_stays_visible_says_so_and_keeps_its_errno() {
        let failed = |action, errno: rustix::io::Errno| {
            TargetError::new(action, Path::new("/dev/x"), std::io::Error::from(errno))
        };
        let hiding = failed("write", rustix::io::Errno::IO);
        let error = failed("fsync", rustix::io::Errno::NOSPC).still_visible(&hiding);
        assert!(error.is_no_space());
        assert_eq!(
            error.to_string(),
            "fsync /dev/x: no space left on device; its first MiB could not be zeroed again (input/output error), \
             so it may look like a complete disk"
        );
    }
}
