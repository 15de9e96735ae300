//! The findings of a check.

/// Sentences that are kept; more are only counted.
const MAX_SENTENCES: usize = 20;

/// Bytes that were looked at, and what is wrong with the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Bytes of the image that hold guest data.
    pub data_bytes: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// Sentences about what the guest could read wrongly, or what a writer would destroy: the first 20.
    pub errors: Vec<String>,
    /// Errors in all.
    pub error_count: u64,
    /// Errors that `qemu-img check` does not look for: with those alone it calls the image clean.
    pub unknown_to_qemu: u64,
    /// Clusters that are counted more often than they are used: lost space, no lost data.
    pub leaked_clusters: u64,
}

impl Findings {
    pub(crate) fn add_error(&mut self, sentence: impl FnOnce() -> String) {
        self.error_count += 1;
        if self.errors.len() < MAX_SENTENCES {
            self.errors.push(sentence());
        }
    }

    /// An error that `qemu-img check` does not look for.
    pub(crate) fn error_unknown_to_qemu(&mut self, sentence: impl FnOnce() -> String) {
        self.unknown_to_qemu += 1;
        self.add_error(sentence);
    }
}
