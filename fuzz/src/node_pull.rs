//! The `Range` headers of requests to the server of a node pull.

mod range;

use std::ops::Range;

use self::range::RequestedRange;

/// Returns the range to send from a file of `length` bytes for this `Range` header, or `None` if
/// it cannot be satisfied.
pub fn wanted(header: &str, length: u64) -> Option<Range<u64>> {
    match RequestedRange::from_header(header, length) {
        RequestedRange::Whole => Some(0..length),
        RequestedRange::Part(range) => Some(range),
        RequestedRange::Unsatisfiable => None,
    }
}
