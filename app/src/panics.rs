//! A panic is a bug, and becomes one sentence.

use std::panic::PanicHookInfo;
use std::sync::OnceLock;

/// The words of the first panic, and its place.
static FIRST_PANIC: OnceLock<String> = OnceLock::new();

/// Keeps panics off stderr: the caller of the job reports the first of them, once.
pub fn catch() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map_or_else(String::new, |place| format!(" ({place})"));
        let text = format!("internal error, please report it: {}{place}", said(panic)).replace('\n', " ");
        tracing::debug!("{text}");
        FIRST_PANIC.get_or_init(|| text);
    }));
}

fn said<'a>(panic: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = panic.payload();
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    formatted
        .or_else(|| payload.downcast_ref().copied())
        .unwrap_or("no message")
}

/// The first panic in one sentence.
pub fn first() -> String {
    let panic = FIRST_PANIC.get().cloned();
    panic.unwrap_or_else(|| "internal error, please report it".to_owned())
}
