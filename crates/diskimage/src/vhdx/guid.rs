//! GUIDs as they are stored in the image.

/// A GUID whose first three fields are little-endian. The other bytes are in written order.
pub(super) type Guid = [u8; 16];

/// Converts the hexadecimal digits of a written GUID.
pub(super) const fn guid_from_digits(digits: u128) -> Guid {
    let [a, b, c, d, e, f, g, h, rest @ ..] = digits.to_be_bytes();
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

/// The GUID of zeros, which means "no GUID". A header with this log GUID has an empty log.
pub(super) const NONE: Guid = [0; 16];
