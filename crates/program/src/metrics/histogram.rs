//! Histograms: the distribution of a quantity over buckets.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::value::Gauge;

/// Buckets for the duration of a transfer in seconds: from one second to 12 hours, which a large
/// disk takes over a slow connection.
pub const TRANSFER_SECONDS: &[f64] =
    &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0];

/// Buckets for the size of a transfer in bytes, from 1 MiB to 1 TiB.
pub const TRANSFER_BYTES: &[f64] =
    &[MIB, 16.0 * MIB, 256.0 * MIB, GIB, 4.0 * GIB, 16.0 * GIB, 64.0 * GIB, 256.0 * GIB, TIB];

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;
const TIB: f64 = 1024.0 * GIB;

/// The distribution of a quantity. All clones share the values.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Distribution>);

#[derive(Debug)]
struct Distribution {
    /// The upper bounds of all buckets except the last, in ascending order.
    bounds: &'static [f64],
    /// The number of values in each bucket. The last bucket holds the values above all bounds.
    counts: Vec<AtomicU64>,
    sum: Gauge,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Distribution { bounds, counts, sum: Gauge::default() }))
    }

    /// Adds `value` to its bucket.
    pub fn observe(&self, value: f64) {
        let Distribution { bounds, counts, sum } = &*self.0;
        let bucket = bounds.partition_point(|bound| *bound < value);
        if let Some(count) = counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
            sum.add(value);
        }
    }

    /// Returns the lines `NAME_bucket{le="…"}`, each with the number of values up to that bound,
    /// followed by the sum and the number of all values.
    pub(super) fn sample_text(&self, name: &str) -> String {
        let Distribution { bounds, counts, sum } = &*self.0;
        let limits = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let (mut text, mut total) = (String::new(), 0);
        for (limit, count) in limits.zip(counts) {
            total += count.load(Ordering::Relaxed);
            // The result can be ignored, because writing to a string does not fail.
            writeln!(text, "{name}_bucket{{le=\"{limit}\"}} {total}").ok();
        }
        writeln!(text, "{name}_sum {}\n{name}_count {total}", sum.value()).ok();
        text
    }
}
