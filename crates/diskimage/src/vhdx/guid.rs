//! GUIDs as they lie in the file.

/// The three first fields little-endian, the others as they are written.
pub(super) type Guid = [u8; 16];

/// The GUID that is written as these hexadecimal digits.
pub(super) const fn guid_from_digits(digits: u128) -> Guid {
    let [a, b, c, d, e, f, g, h, rest @ ..] = digits.to_be_bytes();
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

/// No GUID.
pub(super) const NONE: Guid = [0; 16];
