//! Snapshots of a disk that is imported in stages, while its machine runs.

/// The snapshots of a stage: what is copied, and what the target already holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// The snapshot that is copied; the disk as it is now if there is none.
    pub current: Option<String>,
    /// The snapshot that the target holds, or vSphere's change id of it: what is copied is the difference to it.
    pub previous: Option<String>,
}

impl Checkpoints {
    /// The snapshot that a delta is the difference to, if the import is one of a delta.
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
