//! Prepares images for a model. Every image is decoded once, because a model rejects a broken image and then
//! the whole conversation. Large images are scaled down.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use minke_tool::ToolImage;

/// The maximum side that a model uses; larger images are scaled down by the provider but cost more.
const MAX_SIDE: u32 = 1_568;
/// The maximum size of an image: models accept about 5 MB after Base64.
const MAX_BYTES: usize = 3_500_000;
/// The maximum side and memory for decoding, because a small file can claim a huge size.
const MAX_DECODED_SIDE: u32 = 16_384;
const MAX_DECODED_BYTES: u64 = 256 * 1024 * 1024;
/// JPEG qualities, tried until the result is small enough.
const QUALITIES: [u8; 3] = [85, 60, 30];

/// An image for a model, with a description of its size.
pub(crate) struct PreparedImage {
    pub(crate) image: ToolImage,
    pub(crate) description: String,
}

/// Returns the format of an image that models accept, from its first bytes.
pub(crate) fn image_format(bytes: &[u8]) -> Option<ImageFormat> {
    let format = image::guess_format(bytes).ok()?;
    matches!(format, ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP)
        .then_some(format)
}

/// Decodes an image and returns it in a size that models accept.
pub(crate) fn prepare_image(bytes: Vec<u8>, format: ImageFormat) -> Result<PreparedImage, String> {
    let mut reader = ImageReader::with_format(Cursor::new(&bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_DECODED_SIDE);
    limits.max_image_height = Some(MAX_DECODED_SIDE);
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    reader.limits(limits);
    let damaged = |e| format!("the image is damaged or too large ({e})");
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let orientation = decoder.orientation().map_err(damaged)?;
    let mut decoded = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    let (width, height) = (decoded.width(), decoded.height());
    let media_type = format.to_mime_type();
    let name = media_type.trim_start_matches("image/").to_uppercase();
    let description = format!("{name} image, {width} × {height} pixels");
    if width <= MAX_SIDE && height <= MAX_SIDE && bytes.len() <= MAX_BYTES && is_complete(&bytes, format) {
        return Ok(PreparedImage {
            image: ToolImage { media_type: media_type.to_owned(), bytes },
            description,
        });
    }
    // A new file has no orientation tag, so apply it to the pixels.
    decoded.apply_orientation(orientation);
    let small =
        if width > MAX_SIDE || height > MAX_SIDE { decoded.thumbnail(MAX_SIDE, MAX_SIDE) } else { decoded };
    let what = format!("{description}, shown as {} × {}", small.width(), small.height());
    let image = compress_image(&small).map_err(|e| format!("could not make the image smaller ({e})"))?;
    Ok(PreparedImage { image, description: what })
}

/// Returns whether a JPEG is complete. The decoder accepts truncated files, but a model may not.
fn is_complete(bytes: &[u8], format: ImageFormat) -> bool {
    format != ImageFormat::Jpeg || memchr::memmem::rfind(bytes, &[0xFF, 0xD9]).is_some()
}

/// Compresses losslessly if that is small enough, otherwise as JPEG.
fn compress_image(image: &DynamicImage) -> Result<ToolImage, String> {
    let mut bytes = Vec::new();
    image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(|e| e.to_string())?;
    if bytes.len() <= MAX_BYTES {
        return Ok(ToolImage { media_type: "image/png".to_owned(), bytes });
    }
    let opaque = image.to_rgb8();
    for quality in QUALITIES {
        bytes.clear();
        let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, quality);
        opaque.write_with_encoder(encoder).map_err(|e| e.to_string())?;
        if bytes.len() <= MAX_BYTES {
            return Ok(ToolImage { media_type: "image/jpeg".to_owned(), bytes });
        }
    }
    Err(format!("it still has {} bytes", bytes.len()))
}
