//! Small text functions that several crates need: cutting, suggestions, ages and numbers.

mod cut;
mod format;
mod suggest;

pub use cut::{cut_to_bytes, shorten_first_line, shorten_to_chars};
pub use format::{format_age, format_count, format_dollars};
pub use suggest::{edit_distance, nearest_name, suggest_name};
