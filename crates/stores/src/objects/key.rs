//! Names of objects in URL paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Characters to encode: all but the slash and the unreserved characters of RFC 3986 §2.3.
/// Signatures of version 4 are computed over this form.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Encodes the name of an object as a path.
pub(crate) fn encode_path(name: &[u8]) -> String {
    percent_encode(name, ENCODED).to_string()
}

/// False for a name with a segment `.` or `..`, which URL parsers would change into another name.
pub(crate) fn survives_urls(name: &[u8]) -> bool {
    !name.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b"..")
}
