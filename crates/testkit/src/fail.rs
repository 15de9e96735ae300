//! Turns a failure of the test's own machinery into a failed test with a sentence.

use std::fmt::Display;

/// Takes the value or fails the running test, saying what was being done.
pub trait OrFail<T> {
    /// The value; else panics with `what: the reason`, at the caller's line.
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
