//! Joins a text into one line.

pub(super) fn to_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
