//! The preview of a thread: its latest input on one line.

use minke_record::{Content, InputSegment, Item, Role};
use unicode_segmentation::UnicodeSegmentation;

/// Maximum length in grapheme clusters.
pub const PREVIEW_CHARS: usize = 120;
/// The preview before the first input.
pub const NEW_CONVERSATION: &str = "New conversation";
/// Maximum scanned size of one input, because combining marks can make one character arbitrarily long.
const MAX_SCANNED_BYTES: usize = 4 * 1024;

/// Returns one line of an input, or `None` if it has no visible text.
pub fn preview_input(segments: &[InputSegment]) -> Option<String> {
    single_line(segments.iter().map(InputSegment::to_content))
}

/// Returns one line of a user message.
pub(crate) fn preview_item(item: &Item) -> Option<String> {
    match item {
        Item::Message { role: Role::User, content } => single_line(content.iter().cloned()),
        Item::Message { .. }
        | Item::Reasoning { .. }
        | Item::ToolCall { .. }
        | Item::ToolResult { .. }
        | Item::Unknown => None,
    }
}

fn single_line(content: impl Iterator<Item = Content>) -> Option<String> {
    let mut text = String::new();
    for part in content {
        let Content::Text { text: words } = &part else { continue };
        let shown = words.inline().unwrap_or_default();
        for word in shown.split(|c: char| c.is_whitespace() || c.is_control()) {
            if text.len() > MAX_SCANNED_BYTES {
                break;
            }
            if !text.is_empty() && !word.is_empty() {
                text.push(' ');
            }
            text.extend(word.chars().take(MAX_SCANNED_BYTES));
        }
    }
    let line: String = text.graphemes(true).take(PREVIEW_CHARS).collect();
    let line: String =
        if line.len() > MAX_SCANNED_BYTES { line.chars().take(PREVIEW_CHARS).collect() } else { line };
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview_text(text: &str) -> Option<String> {
        preview_input(&[InputSegment::from_text(text)])
    }

    #[test]
    fn it_is_one_line_cut_between_characters() {
        assert_eq!(preview_text("  fix\n\tthe\u{7} bug \r\n").as_deref(), Some("fix the bug"));
        assert_eq!(preview_text(" \n\0 "), None);
        // A family emoji is one character of seven code points and must not be split.
        let family = "👨‍👩‍👧‍👦";
        let line = preview_text(&family.repeat(200)).unwrap();
        assert_eq!(line, family.repeat(PREVIEW_CHARS));
        let bomb = format!("e{}", "\u{301}".repeat(1_000_000));
        assert!(preview_text(&bomb).unwrap().len() <= MAX_SCANNED_BYTES);
        let file = InputSegment::FileRef { path: "src/a.rs".into() };
        assert_eq!(preview_input(&[InputSegment::from_text("see"), file]).as_deref(), Some("see @src/a.rs"));
    }
}
