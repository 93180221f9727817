//! Images of a conversation: from base64 to blobs that are named by their content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minke_record::{Blob, Content, ImageBlob, Item};

use crate::bounds::{IMAGE_BYTES, ONE_IMAGE_BYTES};
use crate::tally::Tally;
use crate::{Blobs, Conversation};

/// Bytes that were gathered.
#[derive(Default)]
pub(crate) struct Bag {
    pub(crate) blobs: Blobs,
    bytes: usize,
}

impl Bag {
    /// An image from its base64.
    pub(crate) fn image(&mut self, data: &str, tally: &mut Tally) -> Option<ImageBlob> {
        if data.len() / 4 * 3 > ONE_IMAGE_BYTES {
            tally.count("image that is too large");
            return None;
        }
        let decoded = STANDARD.decode(data.trim()).ok();
        let Some((bytes, media_type)) = decoded.and_then(|bytes| kind(&bytes).map(|kind| (bytes, kind)))
        else {
            tally.count("image that is broken or of another kind");
            return None;
        };
        Some(ImageBlob { blob: self.keep(bytes, tally)?, media_type: media_type.to_owned() })
    }

    /// Keeps some bytes under their name.
    pub(crate) fn keep(&mut self, bytes: Vec<u8>, tally: &mut Tally) -> Option<String> {
        let Blob { name, content } = Blob::new(bytes);
        if !self.blobs.contains_key(&name.blob) {
            if self.bytes.saturating_add(content.len()) > IMAGE_BYTES {
                tally.count("image beyond what one conversation may have");
                return None;
            }
            self.bytes += content.len();
            self.blobs.insert(name.blob.clone(), content);
        }
        Some(name.blob)
    }

    /// An image from a `data:` address.
    pub(crate) fn address(&mut self, address: &str, tally: &mut Tally) -> Option<ImageBlob> {
        match address.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((_, data)) => self.image(data, tally),
            None => {
                tally.count("image that lies elsewhere");
                None
            }
        }
    }
}

/// The base64 of an image, if its bytes are there.
pub(crate) fn encoded(blobs: &Blobs, name: &str) -> Option<String> {
    blobs.get(name).map(|bytes| STANDARD.encode(bytes))
}

pub(crate) fn decoded(data: &str) -> Option<Vec<u8>> {
    STANDARD.decode(data.trim()).ok()
}

/// The kinds that models take, by their first bytes.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    let begins = |with: &[u8]| bytes.starts_with(with);
    if begins(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if begins(b"\xFF\xD8\xFF") {
        Some("image/jpeg")
    } else if begins(b"GIF87a") || begins(b"GIF89a") {
        Some("image/gif")
    } else if begins(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

impl Conversation {
    /// Shows every image to `look`, which gives it in the form that is kept, with its media type, or says what is wrong with
    /// it: then a text stands in its place. Gives how many were so.
    pub fn look_at_images(
        &mut self,
        look: &mut dyn FnMut(Vec<u8>) -> Result<(String, Vec<u8>), String>,
    ) -> u64 {
        let mut seen: std::collections::BTreeMap<String, Result<ImageBlob, String>> = Default::default();
        let mut kept = Blobs::new();
        let mut broken = 0;
        let old = std::mem::take(&mut self.blobs);
        let mut again = |name: &str| {
            let seen = seen.entry(name.to_owned()).or_insert_with(|| {
                let (media_type, bytes) = look(old.get(name).cloned().unwrap_or_default())?;
                let Blob { name, content } = Blob::new(bytes);
                kept.insert(name.blob.clone(), content);
                Ok(ImageBlob { blob: name.blob, media_type })
            });
            broken += u64::from(seen.is_err());
            seen.clone()
        };
        for said in &mut self.said {
            match &mut said.item {
                Item::Message { content, .. } => {
                    for part in content {
                        let Content::Image { blob, .. } = part else { continue };
                        *part = match again(blob) {
                            Ok(ImageBlob { blob, media_type }) => Content::Image { blob, media_type },
                            Err(why) => Content::Text { text: format!("[image left out: {why}]").into() },
                        };
                    }
                }
                Item::ToolResult { images, .. } => {
                    *images = images.iter().filter_map(|image| again(&image.blob).ok()).collect();
                }
                Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => {}
            }
        }
        self.blobs = kept;
        broken
    }
}
