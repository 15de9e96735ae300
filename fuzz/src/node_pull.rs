//! The ranges that the server of a node pull is asked for.

mod range;

use std::ops::Range;

use self::range::Wanted;

/// The bytes that are sent of a file of `length` bytes to who asks with this `Range` header; none if it has not got them.
pub fn wanted(header: &str, length: u64) -> Option<Range<u64>> {
    match Wanted::of(header, length) {
        Wanted::Whole => Some(0..length),
        Wanted::Part(range) => Some(range),
        Wanted::Unsatisfiable => None,
    }
}
