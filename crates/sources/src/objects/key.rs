//! Names of objects in paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// All but what RFC 3986 §2.3 calls unreserved, and the slash: what signatures of version 4 are made over.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The path that names the object.
pub(crate) fn encode_path(name: &[u8]) -> String {
    percent_encode(name, ENCODED).to_string()
}

/// False for a name with a segment `.` or `..`: on its way through URLs it would become another name.
pub(crate) fn survives_urls(name: &[u8]) -> bool {
    !name.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b"..")
}
