//! What a panic said: one in a tool or a provider ends that call, not the pod, and its words are passed on.

use std::any::Any;

/// The longest word of a panic that is passed on.
const CHARS: usize = 500;

/// The words of a caught panic.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why");
    words.chars().take(CHARS).collect()
}
