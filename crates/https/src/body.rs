//! Limits the declared length of a body.

/// Maximum length of a body in bytes: 1 PiB, which exceeds the size of any volume. With larger
/// values, sums of lengths and sizes could overflow.
pub const MAX_BYTES: u64 = 1 << 50;

/// The body is too large for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes is too large: the limit is {MAX_BYTES}")]
pub struct TooLarge(pub u64);

/// Rejects a length that is too large to be real.
pub fn check_length(length: u64) -> Result<(), TooLarge> {
    if length > MAX_BYTES {
        return Err(TooLarge(length));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_have_exactly_the_largest_length() {
        assert_eq!(check_length(MAX_BYTES), Ok(()));
        let refused = check_length(MAX_BYTES + 1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "1125899906842625 bytes is too large: the limit is 1125899906842624"
        );
    }
}
