//! Chips: what stands in the text by its name because it is too long for it, or no text at all.

use minke_record::{ImageSource, InputSegment, Text};
use serde::{Deserialize, Serialize};

/// A paste of more than this becomes a chip.
const PASTE_LINES: usize = 8;
const PASTE_CHARS: usize = 800;
/// What one paste may hold; a file is better named than pasted.
pub(super) const PASTE_MOST: usize = 3 * 1024 * 1024;
/// What all chips of an input may hold: a draft is read back whole.
const CHIPS_MOST: usize = 12 * 1024 * 1024;

/// Something that stands in the text by its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chip {
    pub mark: String,
    pub segment: InputSegment,
}

impl Chip {
    fn bytes(&self) -> usize {
        match &self.segment {
            InputSegment::Paste { content: Text::Here(text), .. }
            | InputSegment::Text { content: Text::Here(text) } => text.len(),
            _ => 0,
        }
    }
}

/// What a paste comes to.
pub(super) enum Pasted {
    Text(String),
    Chip { name: String, segment: InputSegment },
    Long { lines: u64, chars: u64, text: String },
}

/// Text that came in one piece: nothing that is no text comes in.
pub(super) fn pasted(text: &str, chips: &[Chip]) -> Result<Pasted, String> {
    let here = chips.iter().map(Chip::bytes).sum::<usize>();
    if text.len() > PASTE_MOST {
        return Err(format!(
            "{} bytes were pasted; at most {PASTE_MOST} are taken: name a file with @ instead",
            text.len()
        ));
    }
    if here + text.len() > CHIPS_MOST {
        return Err(format!(
            "pastes of one input hold at most {CHIPS_MOST} bytes: send what is there, or name a file with @"
        ));
    }
    let text = harmless(text);
    if let Some((name, segment)) = image(&text) {
        return Ok(Pasted::Chip { name, segment });
    }
    let (lines, chars) = (text.lines().count(), text.chars().count());
    if lines <= PASTE_LINES && chars <= PASTE_CHARS {
        return Ok(Pasted::Text(text.replace('\t', "    ")));
    }
    Ok(Pasted::Long { lines: lines as u64, chars: chars as u64, text })
}

/// Without control characters other than tabs and line ends.
pub(super) fn harmless(text: &str) -> String {
    let text: String = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// A mark that no other chip has here.
pub(super) fn unique(name: &str, chips: &[Chip]) -> String {
    let numbered = std::iter::once(format!("[{name}]")).chain((2..).map(|n| format!("[{name} ({n})]")));
    let taken = |mark: &String| chips.iter().any(|chip| chip.mark == *mark);
    numbered.into_iter().find(|mark| !taken(mark)).unwrap_or_default()
}

/// Whether this is the path of an image, as terminals paste a file that was dropped on them.
fn image(text: &str) -> Option<(String, InputSegment)> {
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
