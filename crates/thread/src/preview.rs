//! A thread in one line: the latest input.

use minke_record::{Content, InputSegment, Item, Role};
use unicode_segmentation::UnicodeSegmentation;

/// How long it is at most, in what people see as characters.
pub const PREVIEW_CHARS: usize = 120;
/// Before the first input.
pub const NEW: &str = "New conversation";
/// What is looked at of one input: an unbroken run of marks can make one character as long as it likes.
const LOOKED_AT_BYTES: usize = 4 * 1024;

/// One line of an input, or `None` if nothing in it can be shown.
pub fn preview(segments: &[InputSegment]) -> Option<String> {
    line(segments.iter().map(InputSegment::flatten))
}

/// The same of an item that a person said.
pub(crate) fn preview_of(item: &Item) -> Option<String> {
    match item {
        Item::Message { role: Role::User, content } => line(content.iter().cloned()),
        Item::Message { .. }
        | Item::Reasoning { .. }
        | Item::ToolCall { .. }
        | Item::ToolResult { .. }
        | Item::Unknown => None,
    }
}

fn line(content: impl Iterator<Item = Content>) -> Option<String> {
    let mut text = String::new();
    for part in content {
        let Content::Text { text: words } = &part else { continue };
        let shown = words.here().unwrap_or_default();
        for word in shown.split(|c: char| c.is_whitespace() || c.is_control()) {
            if text.len() > LOOKED_AT_BYTES {
                break;
            }
            if !text.is_empty() && !word.is_empty() {
                text.push(' ');
            }
            text.extend(word.chars().take(LOOKED_AT_BYTES));
        }
    }
    let line: String = text.graphemes(true).take(PREVIEW_CHARS).collect();
    let line: String =
        if line.len() > LOOKED_AT_BYTES { line.chars().take(PREVIEW_CHARS).collect() } else { line };
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        preview(&[InputSegment::text(text)])
    }

    #[test]
    fn it_is_one_line_cut_between_characters() {
        assert_eq!(of("  fix\n\tthe\u{7} bug \r\n").as_deref(), Some("fix the bug"));
        assert_eq!(of(" \n\0 "), None);
        // A family is one character of seven code points, and is never cut in two.
        let family = "👨‍👩‍👧‍👦";
        let line = of(&family.repeat(200)).unwrap();
        assert_eq!(line, family.repeat(PREVIEW_CHARS));
        let bomb = format!("e{}", "\u{301}".repeat(1_000_000));
        assert!(of(&bomb).unwrap().len() <= LOOKED_AT_BYTES);
        let file = InputSegment::FileRef { path: "src/a.rs".into() };
        assert_eq!(preview(&[InputSegment::text("see"), file]).as_deref(), Some("see @src/a.rs"));
    }
}
