//! Classifies the content of a file like Read, for callers that show a file to a model without a call
//! (`references`).
//!
//! `text` and `image` decode the content, `files` checks access.

use minke_tool::ToolImage;

use crate::image;
use crate::text::{FileText, binary_kind, displayable_text};

/// The content of a file.
#[derive(Debug)]
pub enum FileContent {
    /// Text, with remarks about its encoding and line endings.
    Text { text: String, remarks: Vec<String> },
    /// An image in a size that models accept, with a description.
    Image { image: ToolImage, description: String },
    /// Other content, with a description of its kind.
    Binary(&'static str),
}

/// Returns whether a file begins like an image that models accept; then the whole file is needed.
pub fn starts_as_image(head: &[u8]) -> bool {
    image::image_format(head).is_some() && binary_kind(head).is_some()
}

/// Classifies bytes. A prefix of a longer file may end inside a character.
pub fn classify_content(bytes: Vec<u8>) -> Result<FileContent, String> {
    match (image::image_format(&bytes), binary_kind(&bytes)) {
        (Some(format), Some(_)) => {
            let image::PreparedImage { image, description } = image::prepare_image(bytes, format)?;
            Ok(FileContent::Image { image, description })
        }
        (_, Some(kind)) => Ok(FileContent::Binary(kind)),
        (_, None) => {
            let FileText { text, form, .. } = FileText::decode(&bytes);
            let remarks = form.remarks();
            Ok(FileContent::Text { text: displayable_text(&text, form.coding).into_owned(), remarks })
        }
    }
}
