//! What a tool said: one text in the files of others, a summary and the whole in our items.

use minke_record::limits::SUMMARY_BYTES;
use minke_record::{CallId, ImageBlob, Item};

use crate::plain::{NOTHING, cut};

/// The result of a call from the text that stands for it.
pub(crate) fn result(call_id: &str, text: String, is_error: bool, images: Vec<ImageBlob>) -> Item {
    let (summary, content) = if text.len() <= SUMMARY_BYTES && !text.contains('\n') && !text.is_empty() {
        (text, None)
    } else {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or(NOTHING);
        (cut(first, SUMMARY_BYTES), (!text.is_empty()).then(|| text.as_str().into()))
    };
    Item::ToolResult { call_id: CallId(call_id.to_owned()), summary, content, is_error, blob: None, images }
}

/// The text that stands for a result.
pub(crate) fn text_of(item: &Item) -> &str {
    match item {
        Item::ToolResult { summary, content, .. } => {
            content.as_ref().and_then(minke_record::Text::here).unwrap_or(summary)
        }
        Item::Message { .. } | Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => "",
    }
}
