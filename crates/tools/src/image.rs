//! Images: from a file to what a model takes. Every image is decoded once, so that none that is broken is sent to a
//! model, which would refuse the whole conversation from then on; what is too large is made smaller.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use minke_tool::Image;

/// The longest side that a model looks at; more is scaled down there anyway, at our cost.
const SIDE: u32 = 1_568;
/// The largest image that is sent: models take about 5 MB, counted after Base64.
const BYTES: usize = 3_500_000;
/// The largest side that is decoded, and the memory that decoding may take: a small file can claim to be huge.
const DECODED_SIDE: u32 = 16_384;
const DECODED_BYTES: u64 = 256 * 1024 * 1024;
/// Tried one after the other until the result is small enough.
const QUALITIES: [u8; 3] = [85, 60, 30];

/// An image that can be shown, and its size in words.
pub(crate) struct Shown {
    pub(crate) image: Image,
    pub(crate) what: String,
}

/// The format of an image that models take, by its first bytes.
pub(crate) fn format(bytes: &[u8]) -> Option<ImageFormat> {
    let format = image::guess_format(bytes).ok()?;
    matches!(format, ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP)
        .then_some(format)
}

/// Decodes an image and gives it in a size that a model takes; the error says what is wrong with it.
pub(crate) fn show(bytes: Vec<u8>, format: ImageFormat) -> Result<Shown, String> {
    let mut reader = ImageReader::with_format(Cursor::new(&bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(DECODED_SIDE);
    limits.max_image_height = Some(DECODED_SIDE);
    limits.max_alloc = Some(DECODED_BYTES);
    reader.limits(limits);
    let damaged = |e| format!("it is a damaged or too large image ({e})");
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let orientation = decoder.orientation().map_err(damaged)?;
    let mut decoded = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    let (width, height) = (decoded.width(), decoded.height());
    let media_type = format.to_mime_type();
    let name = media_type.trim_start_matches("image/").to_uppercase();
    let what = format!("{name} image, {width} × {height} pixels");
    if width <= SIDE && height <= SIDE && bytes.len() <= BYTES && is_whole(&bytes, format) {
        return Ok(Shown { image: Image { media_type: media_type.to_owned(), bytes }, what });
    }
    // What is written anew has no room for the note that a camera was held sideways.
    decoded.apply_orientation(orientation);
    let small = if width > SIDE || height > SIDE { decoded.thumbnail(SIDE, SIDE) } else { decoded };
    let what = format!("{what}, shown as {} × {}", small.width(), small.height());
    let image = compress(&small).map_err(|e| format!("the image cannot be made smaller ({e})"))?;
    Ok(Shown { image, what })
}

/// The decoder shows as much of a JPEG as there is; a model may want all of it.
fn is_whole(bytes: &[u8], format: ImageFormat) -> bool {
    format != ImageFormat::Jpeg || memchr::memmem::rfind(bytes, &[0xFF, 0xD9]).is_some()
}

/// Lossless if that is small enough, else as JPEG.
fn compress(image: &DynamicImage) -> Result<Image, String> {
    let mut bytes = Vec::new();
    image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(|e| e.to_string())?;
    if bytes.len() <= BYTES {
        return Ok(Image { media_type: "image/png".to_owned(), bytes });
    }
    let opaque = image.to_rgb8();
    for quality in QUALITIES {
        bytes.clear();
        let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, quality);
        opaque.write_with_encoder(encoder).map_err(|e| e.to_string())?;
        if bytes.len() <= BYTES {
            return Ok(Image { media_type: "image/jpeg".to_owned(), bytes });
        }
    }
    Err(format!("it still has {} bytes", bytes.len()))
}
