//! Turns a panic, which is a bug, into one error message.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Message and source location of the first panic.
static FIRST_PANIC: OnceLock<String> = OnceLock::new();

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// A caught panic. It is displayed as the first panic of the process, because a later panic may be
/// a consequence of the first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", first_panic())]
pub struct CaughtPanic {
    /// The message of this panic, without its source location.
    pub message: String,
}

/// Replaces the message that Rust prints for a panic. A panic inside [`catch_panic`] is reported
/// by the caller of that function; any other panic is logged immediately.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |place| format!(" ({place})"));
        let text =
            format!("internal error, please report it: {}{place}", panic_message(panic.payload()))
                .replace('\n', " ");
        if IS_GUARDED.get() {
            tracing::debug!("{text}");
        } else {
            tracing::error!("{text}");
        }
        FIRST_PANIC.get_or_init(|| text);
    }));
}

/// Runs `work` and returns its value or its panic. The caller must report the panic.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    let was_guarded = IS_GUARDED.replace(true);
    let caught = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(was_guarded);
    caught.map_err(|payload| CaughtPanic { message: panic_message(&*payload).to_owned() })
}

fn panic_message(payload: &dyn Any) -> &str {
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| payload.downcast_ref().copied()).unwrap_or("no message")
}

/// Returns the first panic of the process as one sentence.
pub fn first_panic() -> String {
    let panic = FIRST_PANIC.get().cloned();
    panic.unwrap_or_else(|| "internal error, please report it".to_owned())
}
