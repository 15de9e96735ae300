//! What a check finds.

/// Sentences that are kept; more are only counted.
const MAX_SENTENCES: usize = 20;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Bytes of the image that hold guest data.
    pub data_bytes: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// What the guest could read wrongly because of it, or what a writer would destroy.
    pub errors: Vec<String>,
    /// How many errors there are.
    pub error_count: u64,
    /// How many of them `qemu-img check` does not look for: with those alone it calls the image clean.
    pub unknown_to_qemu: u64,
    /// Clusters that are counted more often than they are used: lost space, no lost data.
    pub leaked_clusters: u64,
}

impl Findings {
    pub(crate) fn error(&mut self, sentence: impl FnOnce() -> String) {
        self.error_count += 1;
        if self.errors.len() < MAX_SENTENCES {
            self.errors.push(sentence());
        }
    }

    /// An error that `qemu-img check` does not look for.
    pub(crate) fn error_unknown_to_qemu(&mut self, sentence: impl FnOnce() -> String) {
        self.unknown_to_qemu += 1;
        self.error(sentence);
    }
}
