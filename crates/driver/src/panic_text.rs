//! Panic messages: a panic in a tool or a provider ends that call, not the pod, and its message is reported.

use std::any::Any;

/// The maximum length of a reported panic message.
const MAX_PANIC_CHARS: usize = 500;

/// The message of a caught panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    words.chars().take(MAX_PANIC_CHARS).collect()
}
