//! Two ways of accounting for the memory that data takes.
//!
//! [`HeldMemory`] counts all of it, for metrics: buffers whose number is bounded by constants, and
//! the memory that images request. A [`MemoryBudget`] limits the second kind: windows,
//! dictionaries, maps and tables. All layers and stages of a transfer share one budget, because
//! they may not all use their maximum at the same time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The budget of all transfers in this process.
static PROCESS: OnceLock<MemoryBudget> = OnceLock::new();

/// Default memory limit of the whole process. docs/operate/images.md recommends the same for a pod.
pub const PROCESS_BYTES: u64 = 256 << 20;

/// Memory of a process apart from what its image requests: code, stacks, TLS, sockets, and all
/// buffers of the data path. Ordinary images take 20 to 50 MiB in all. Tests verify that they stay
/// below this limit, plus 12 MiB in debug builds (`testkit::process::PEAK_RSS_BYTES`).
pub const RESERVE_BYTES: u64 = 64 << 20;

/// For a small process the reserve is this percentage of its memory, so that the 64 MiB of `xz -9`
/// still fit into 96 MiB.
const SMALL_RESERVE_PERCENT: u64 = 30;

/// Bytes held now.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Maximum number of bytes held at once since the process began.
pub fn peak_bytes() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Counts some memory as held, until it is dropped.
#[derive(Debug, Default)]
pub struct HeldMemory(usize);

impl HeldMemory {
    /// Counts `bytes` as held.
    pub(crate) fn new(bytes: usize) -> Self {
        let mut held = Self(0);
        held.set_bytes(bytes);
        held
    }

    /// Changes the amount held to `bytes`.
    pub fn set_bytes(&mut self, bytes: usize) {
        let others = IN_USE.fetch_sub(self.0, Ordering::Relaxed).wrapping_sub(self.0);
        IN_USE.fetch_add(bytes, Ordering::Relaxed);
        PEAK.fetch_max(others.wrapping_add(bytes), Ordering::Relaxed);
        self.0 = bytes;
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The request exceeds the memory that is left in the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "needs {needed} bytes of memory, but only {available} of the {limit} allowed for an image are left"
)]
pub struct MemoryLimitError {
    /// Bytes that this request needs.
    pub needed: u64,
    /// Bytes that were available to it.
    pub available: u64,
    /// Size of the whole budget in bytes.
    pub limit: u64,
}

/// Memory that images may request. Clones share one budget.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    most: u64,
    taken_off: AtomicU64,
    granted: AtomicU64,
}

impl Default for MemoryBudget {
    /// The budget of the process.
    fn default() -> Self {
        PROCESS.get_or_init(|| Self::of_process(PROCESS_BYTES)).clone()
    }
}

impl MemoryBudget {
    /// A separate budget that is not shared with other transfers.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(BudgetState {
            most: limit,
            taken_off: AtomicU64::new(0),
            granted: AtomicU64::new(0),
        }))
    }

    /// The part of a process's `bytes` that is left for images.
    fn of_process(bytes: u64) -> Self {
        let reserve = RESERVE_BYTES.min(bytes / 100 * SMALL_RESERVE_PERCENT);
        Self::new(bytes.saturating_sub(reserve))
    }

    /// Sets the memory limit of the whole process to `bytes`. Must be called once, before the
    /// first transfer; later calls have no effect.
    pub fn limit_process(bytes: u64) {
        PROCESS.get_or_init(|| Self::of_process(bytes));
    }

    /// Reduces the budget by `bytes`, which the process holds for other purposes. Each call
    /// replaces the previous one.
    pub fn take_off(&self, bytes: u64) {
        self.0.taken_off.store(bytes, Ordering::Relaxed);
    }

    /// Size of the budget in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.most.saturating_sub(self.0.taken_off.load(Ordering::Relaxed))
    }

    /// Returns a grant of zero bytes.
    pub fn empty_grant(&self) -> MemoryGrant {
        MemoryGrant { budget: self.clone(), bytes: 0, held: HeldMemory::default() }
    }
}

impl Default for MemoryGrant {
    /// A grant of zero bytes from the budget of the process.
    fn default() -> Self {
        MemoryBudget::default().empty_grant()
    }
}

/// A part of a [`MemoryBudget`], returned when the grant is dropped.
#[derive(Debug)]
pub struct MemoryGrant {
    budget: MemoryBudget,
    bytes: u64,
    held: HeldMemory,
}

impl MemoryGrant {
    /// Bytes of this grant.
    pub fn granted_bytes(&self) -> u64 {
        self.bytes
    }

    /// Maximum number of bytes that this grant can be resized to now.
    pub fn available_bytes(&self) -> u64 {
        let others = self.total_granted().saturating_sub(self.bytes);
        self.budget.limit_bytes().saturating_sub(others)
    }

    fn total_granted(&self) -> u64 {
        self.budget.0.granted.load(Ordering::Relaxed)
    }

    /// Changes the grant to `bytes`. Must be called before the memory is allocated. On failure the
    /// grant is unchanged.
    pub fn resize(&mut self, bytes: u64) -> Result<(), MemoryLimitError> {
        let (before, limit) = (self.bytes, self.budget.limit_bytes());
        let others_and = |granted: u64| {
            let wanted = granted.saturating_sub(before).checked_add(bytes)?;
            // Shrinking always succeeds, even if more is granted than the limit now allows.
            (wanted <= limit || bytes <= before).then_some(wanted)
        };
        let granted = &self.budget.0.granted;
        // The grant is compared and changed in one step, because several threads of a transfer may
        // request memory at the same time.
        if granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, others_and).is_err() {
            return Err(MemoryLimitError {
                needed: bytes,
                available: self.available_bytes(),
                limit,
            });
        }
        self.bytes = bytes;
        self.held.set_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Enlarges the grant to at least `bytes`.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), MemoryLimitError> {
        self.resize(bytes.max(self.bytes))
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        self.budget.0.granted.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl diskimage::ImageMemory for MemoryGrant {
    fn available_bytes(&self) -> u64 {
        self.available_bytes()
    }

    fn try_hold_bytes(&mut self, bytes: u64) -> bool {
        self.resize(bytes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_peak_remains_after_memory_is_freed() {
        // Other tests of this process hold memory too, so only amounts far above theirs can be
        // checked.
        const LARGE: usize = 1 << 40;
        let mut held = HeldMemory::new(LARGE);
        assert!(in_use() >= LARGE);
        held.set_bytes(2 * LARGE);
        drop(held);
        assert!(in_use() < LARGE);
        assert!(peak_bytes() >= 2 * LARGE);
    }

    #[test]
    fn the_image_budget_leaves_a_reserve_for_the_process() {
        for (process, image) in [
            (PROCESS_BYTES, 192 << 20),
            // The memory limit that CDI gives its workers.
            (600_000_000, 600_000_000 - RESERVE_BYTES),
            (96 << 20, (96 << 20) - (96 << 20) / 100 * 30),
            (0, 0),
        ] {
            assert_eq!(MemoryBudget::of_process(process).limit_bytes(), image, "{process}");
        }
    }

    #[test]
    fn all_grants_share_one_budget() {
        let budget = MemoryBudget::new(100);
        let (mut first, mut second) = (budget.empty_grant(), budget.empty_grant());
        first.resize(60).unwrap();
        let exceeded = MemoryLimitError { needed: 41, available: 40, limit: 100 };
        assert_eq!(second.resize(41), Err(exceeded));
        assert_eq!((second.granted_bytes(), second.available_bytes()), (0, 40));
        second.resize(40).unwrap();
        first.resize(10).unwrap();
        assert_eq!(second.available_bytes(), 90);
        drop(first);
        second.resize(100).unwrap();
    }

    #[test]
    fn memory_that_is_taken_off_the_budget_is_not_granted() {
        let budget = MemoryBudget::new(100);
        budget.take_off(30);
        let mut grant = budget.empty_grant();
        assert_eq!((budget.limit_bytes(), grant.available_bytes()), (70, 70));
        grant.resize(71).unwrap_err();
        grant.resize(70).unwrap();
        budget.take_off(200);
        assert_eq!(budget.limit_bytes(), 0);
        grant.resize(10).unwrap();
        budget.take_off(0);
        grant.resize(100).unwrap();
    }

    proptest! {
        #[test]
        fn grants_never_exceed_the_budget(steps in prop::collection::vec((0usize..5, 0u64..200), 0..50)) {
            let budget = MemoryBudget::new(300);
            let mut grants: Vec<MemoryGrant> = (0..5).map(|_| budget.empty_grant()).collect();
            for (index, bytes) in steps {
                let others: u64 = grants.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, g)| g.granted_bytes()).sum();
                let outcome = grants[index].resize(bytes);
                prop_assert_eq!(outcome.is_ok(), others + bytes <= 300);
                prop_assert!(grants.iter().map(MemoryGrant::granted_bytes).sum::<u64>() <= 300);
                prop_assert_eq!(grants[0].total_granted(), grants.iter().map(MemoryGrant::granted_bytes).sum::<u64>());
            }
        }
    }
}
