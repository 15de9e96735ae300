//! The ranges that the server of a node pull is asked for.

mod range;

use std::ops::Range;

use self::range::RequestedRange;

/// The bytes that are sent of a file of `length` bytes to who asks with this `Range` header; none if it has not got them.
pub fn wanted(header: &str, length: u64) -> Option<Range<u64>> {
    match RequestedRange::from_header(header, length) {
        RequestedRange::Whole => Some(0..length),
        RequestedRange::Part(range) => Some(range),
        RequestedRange::Unsatisfiable => None,
    }
}
