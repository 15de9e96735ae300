//! Snapshots of a disk that is imported in stages while its virtual machine runs.

/// The snapshots of one stage: the one to copy, and the one that the target already holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// The snapshot to copy; `None` copies the current state of the disk.
    pub current: Option<String>,
    /// The snapshot that the target already holds, or the change ID that vSphere gave it. Only the
    /// difference to it is copied.
    pub previous: Option<String>,
}

impl Checkpoints {
    /// Returns the base snapshot if the stage copies a delta, and `None` if it copies the whole
    /// disk.
    pub fn base_snapshot(&self) -> Option<&str> {
        self.current.as_ref().and(self.previous.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_needs_both_checkpoints() {
        let of = |current: Option<&str>, previous: Option<&str>| Checkpoints {
            current: current.map(str::to_owned),
            previous: previous.map(str::to_owned),
        };
        assert_eq!(of(Some("b"), Some("a")).base_snapshot(), Some("a"));
        assert_eq!(of(None, Some("a")).base_snapshot(), None);
        assert_eq!(of(Some("b"), None).base_snapshot(), None);
    }
}
