//! Tool results: one text in foreign files, a summary and the full output in Minke's items.

use minke_record::limits::SUMMARY_BYTES;
use minke_record::{CallId, ImageBlob, Item};
use minke_text::cut_to_bytes;

use crate::portable::NO_OUTPUT;

/// Returns the result of a call from its text.
pub(crate) fn result_item(call_id: &str, text: String, is_error: bool, images: Vec<ImageBlob>) -> Item {
    let (summary, content) = if text.len() <= SUMMARY_BYTES && !text.contains('\n') && !text.is_empty() {
        (text, None)
    } else {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or(NO_OUTPUT);
        (cut_to_bytes(first, SUMMARY_BYTES).to_owned(), (!text.is_empty()).then(|| text.as_str().into()))
    };
    Item::ToolResult { call_id: CallId(call_id.to_owned()), summary, content, is_error, blob: None, images }
}

/// Returns the text of a result.
pub(crate) fn result_text(item: &Item) -> &str {
    match item {
        Item::ToolResult { summary, content, .. } => {
            content.as_ref().and_then(minke_record::Text::inline).unwrap_or(summary)
        }
        Item::Message { .. } | Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => "",
    }
}
