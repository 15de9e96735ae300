//! Turns a failure of the test's own machinery into a failed test with a clear message.

use std::fmt::Display;

/// Unwraps a value or fails the running test with a message that says what was being done.
pub trait OrFail<T> {
    /// Returns the value, or panics at the caller's line with `what: the reason`.
    fn or_fail(self, what: impl Display) -> T;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    #[track_caller]
    fn or_fail(self, what: impl Display) -> T {
        match self {
            Ok(value) => value,
            Err(reason) => panic!("{what}: {reason}"),
        }
    }
}

impl<T> OrFail<T> for Option<T> {
    #[track_caller]
    fn or_fail(self, what: impl Display) -> T {
        match self {
            Some(value) => value,
            None => panic!("{what}"),
        }
    }
}
