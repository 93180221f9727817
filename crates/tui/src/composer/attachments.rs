//! Attachments: long or non-text parts of an input that appear as a label in the text.

use minke_record::{ImageSource, InputSegment, Text};
use serde::{Deserialize, Serialize};

/// A longer paste becomes an attachment.
const PASTE_LINES: usize = 8;
const PASTE_CHARS: usize = 800;
/// Limit for one paste; larger content should be referenced as a file.
pub(super) const MAX_PASTE_BYTES: usize = 3 * 1024 * 1024;
/// Limit for all attachments of an input, because a draft is loaded completely.
const MAX_ATTACHMENT_BYTES: usize = 12 * 1024 * 1024;

/// An attachment with its label in the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    pub mark: String,
    pub segment: InputSegment,
}

impl Attachment {
    fn byte_len(&self) -> usize {
        match &self.segment {
            InputSegment::Paste { content: Text::Inline(text), .. }
            | InputSegment::Text { content: Text::Inline(text) } => text.len(),
            _ => 0,
        }
    }
}

/// The classification of a paste.
pub(super) enum PasteContent {
    Text(String),
    Attachment { name: String, segment: InputSegment },
    LongText { lines: u64, chars: u64, text: String },
}

/// Classifies pasted text after removing control characters.
pub(super) fn classify_paste(text: &str, chips: &[Attachment]) -> Result<PasteContent, String> {
    let here = chips.iter().map(Attachment::byte_len).sum::<usize>();
    if text.len() > MAX_PASTE_BYTES {
        return Err(format!(
            "could not paste {} bytes: the limit is {MAX_PASTE_BYTES}; reference a file with @ instead",
            text.len()
        ));
    }
    if here + text.len() > MAX_ATTACHMENT_BYTES {
        return Err(format!(
            "the pastes of one input are limited to {MAX_ATTACHMENT_BYTES} bytes: send the input first, or reference a file with @"
        ));
    }
    let text = strip_controls(text);
    if let Some((name, segment)) = image_attachment(&text) {
        return Ok(PasteContent::Attachment { name, segment });
    }
    let (lines, chars) = (text.lines().count(), text.chars().count());
    if lines <= PASTE_LINES && chars <= PASTE_CHARS {
        return Ok(PasteContent::Text(text.replace('\t', "    ")));
    }
    Ok(PasteContent::LongText { lines: lines as u64, chars: chars as u64, text })
}

/// Removes control characters other than tabs and newlines.
pub(super) fn strip_controls(text: &str) -> String {
    let text: String = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// Returns a label that no other attachment has.
pub(super) fn unique_mark(name: &str, chips: &[Attachment]) -> String {
    let numbered = std::iter::once(format!("[{name}]")).chain((2..).map(|n| format!("[{name} ({n})]")));
    let used = |mark: &String| chips.iter().any(|chip| chip.mark == *mark);
    numbered.into_iter().find(|mark| !used(mark)).unwrap_or_default()
}

/// Recognizes the path of an image, which terminals paste when a file is dropped.
fn image_attachment(text: &str) -> Option<(String, InputSegment)> {
    let text = text.trim();
    let quoted = |mark| text.strip_prefix(mark).and_then(|text| text.strip_suffix(mark));
    let path = quoted('\'').or_else(|| quoted('"')).unwrap_or(text);
    let path = path.strip_prefix("file://").unwrap_or(path).replace("\\ ", " ");
    if path.contains('\n') || !path.starts_with('/') || path.len() > 4_096 {
        return None;
    }
    let (rest, ending) = path.rsplit_once('.')?;
    let media_type = match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return None,
    };
    let name = format!("image {}.{ending}", rest.rsplit('/').next().unwrap_or(rest));
    let source = ImageSource::Path(path);
    Some((name, InputSegment::Image { source, media_type: media_type.to_owned() }))
}
