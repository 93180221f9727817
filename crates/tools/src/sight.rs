//! Sight: what Read sees in a file's bytes, for those who put a file before a model without a call (`references`).
//!
//! Elsewhere: how it is decided (`text`, `image`), who may look (`files`).

use minke_tool::Image;

use crate::image;
use crate::text::{Text, binary, shown};

/// What a file holds.
#[derive(Debug)]
pub enum Sight {
    /// Characters, and what is to be said of how they are written.
    Text { text: String, remarks: Vec<String> },
    /// An image in a size that a model takes, and what it is in words.
    Image { image: Image, what: String },
    /// Neither: what it is, in words.
    Binary(&'static str),
}

/// Whether a file begins like an image that models take: then all of it is needed.
pub fn begins_as_image(head: &[u8]) -> bool {
    image::format(head).is_some() && binary(head).is_some()
}

/// What some bytes are. A file that is longer than what is given may end inside a character.
pub fn look_at(bytes: Vec<u8>) -> Result<Sight, String> {
    match (image::format(&bytes), binary(&bytes)) {
        (Some(format), Some(_)) => {
            let image::Shown { image, what } = image::show(bytes, format)?;
            Ok(Sight::Image { image, what })
        }
        (_, Some(kind)) => Ok(Sight::Binary(kind)),
        (_, None) => {
            let Text { text, form, .. } = Text::decode(&bytes);
            let remarks = form.remarks();
            Ok(Sight::Text { text: shown(&text, form.coding).into_owned(), remarks })
        }
    }
}
