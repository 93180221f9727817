//! Images of a conversation: converts base64 to blobs, which are named by their content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minke_record::{Blob, Content, ImageBlob, Item};

use crate::limits::{MAX_IMAGE_BYTES, MAX_TOTAL_IMAGE_BYTES};
use crate::omissions::OmissionCounts;
use crate::{BlobMap, PortableConversation};

/// Collected blobs.
#[derive(Default)]
pub(crate) struct ImageStore {
    pub(crate) blobs: BlobMap,
    bytes: usize,
}

impl ImageStore {
    /// Adds an image from base64.
    pub(crate) fn add_base64(&mut self, data: &str, omissions: &mut OmissionCounts) -> Option<ImageBlob> {
        if data.len() / 4 * 3 > MAX_IMAGE_BYTES {
            omissions.count_one("image that is too large");
            return None;
        }
        let decoded = STANDARD.decode(data.trim()).ok();
        let Some((bytes, media_type)) =
            decoded.and_then(|bytes| media_type(&bytes).map(|kind| (bytes, kind)))
        else {
            omissions.count_one("image that is broken or of an unsupported type");
            return None;
        };
        Some(ImageBlob { blob: self.add_bytes(bytes, omissions)?, media_type: media_type.to_owned() })
    }

    /// Adds bytes under their content hash.
    pub(crate) fn add_bytes(&mut self, bytes: Vec<u8>, tally: &mut OmissionCounts) -> Option<String> {
        let Blob { name, content } = Blob::new(bytes);
        if !self.blobs.contains_key(&name.blob) {
            if self.bytes.saturating_add(content.len()) > MAX_TOTAL_IMAGE_BYTES {
                tally.count_one("image beyond the limit of a conversation");
                return None;
            }
            self.bytes += content.len();
            self.blobs.insert(name.blob.clone(), content);
        }
        Some(name.blob)
    }

    /// Adds an image from a `data:` URL.
    pub(crate) fn add_data_url(
        &mut self,
        address: &str,
        omissions: &mut OmissionCounts,
    ) -> Option<ImageBlob> {
        match address.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((_, data)) => self.add_base64(data, omissions),
            None => {
                omissions.count_one("image at an external address");
                None
            }
        }
    }
}

/// Returns the base64 of an image, if its bytes are present.
pub(crate) fn encode_blob(blobs: &BlobMap, name: &str) -> Option<String> {
    blobs.get(name).map(|bytes| STANDARD.encode(bytes))
}

pub(crate) fn decode_base64(data: &str) -> Option<Vec<u8>> {
    STANDARD.decode(data.trim()).ok()
}

/// Returns the media type from the first bytes, if models support it.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
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

impl PortableConversation {
    /// Passes every image to `look`, which returns the converted image with its media type, or an error: then a text
    /// replaces the image. Returns the number of replaced images.
    pub fn convert_images(
        &mut self,
        look: &mut dyn FnMut(Vec<u8>) -> Result<(String, Vec<u8>), String>,
    ) -> u64 {
        let mut seen: std::collections::BTreeMap<String, Result<ImageBlob, String>> = Default::default();
        let mut kept_blobs = BlobMap::new();
        let mut broken = 0;
        let old = std::mem::take(&mut self.blobs);
        let mut again = |name: &str| {
            let seen = seen.entry(name.to_owned()).or_insert_with(|| {
                let (media_type, bytes) = look(old.get(name).cloned().unwrap_or_default())?;
                let Blob { name, content } = Blob::new(bytes);
                kept_blobs.insert(name.blob.clone(), content);
                Ok(ImageBlob { blob: name.blob, media_type })
            });
            broken += u64::from(seen.is_err());
            seen.clone()
        };
        for timed_item in &mut self.items {
            match &mut timed_item.item {
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
        self.blobs = kept_blobs;
        broken
    }
}
