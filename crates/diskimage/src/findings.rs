//! Findings of a consistency check.

/// Largest number of error sentences that are kept. Further errors are only counted.
const MAX_SENTENCES: usize = 20;

/// Result of a check: how many bytes were examined, and what is wrong with the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Number of image bytes that contain guest data.
    pub data_bytes: u64,
    /// Number of image bytes that contain tables.
    pub table_bytes: u64,
    /// The first 20 errors, one sentence each: damage that could make the guest read wrong data or
    /// that could make a writer destroy data.
    pub errors: Vec<String>,
    /// Number of all errors, including those not in `errors`.
    pub error_count: u64,
    /// Errors that `qemu-img check` does not look for. qemu-img reports an image with only such
    /// errors as clean.
    pub unknown_to_qemu: u64,
    /// Clusters whose refcount is higher than the number of references: space is lost, but no
    /// data.
    pub leaked_clusters: u64,
}

impl Findings {
    /// Counts an error, and keeps its sentence unless the list is full.
    pub fn add_error(&mut self, sentence: impl FnOnce() -> String) {
        self.error_count += 1;
        if self.errors.len() < MAX_SENTENCES {
            self.errors.push(sentence());
        }
    }

    /// Adds an error that `qemu-img check` does not look for.
    pub(crate) fn error_unknown_to_qemu(&mut self, sentence: impl FnOnce() -> String) {
        self.unknown_to_qemu += 1;
        self.add_error(sentence);
    }
}
