//! Images of a history: which ones are sent, and the text that replaces the others.
//!
//! Here: image types and sizes that a scheme accepts, the position of images of a result, and the limit per
//! request. Elsewhere: the serialization of an image (one file per scheme), the global limit
//! (`minke_model::MAX_IMAGES`). Invariant: no image makes a provider reject the request, because every later
//! request of the session would be rejected too (`tests/pictures.rs`; for any history `tests/requests.rs`).

use minke_model::Prompt;

use super::turn_groups::{CallResultPart, InputPart, PromptTurn};

/// The images that a scheme accepts.
pub(super) struct ImageLimits {
    pub(super) types: &'static [&'static str],
    /// The largest image in bytes.
    pub(super) max_bytes: usize,
    pub(super) result_images: ResultImages,
    /// The most images in one request.
    pub(super) max_count: usize,
    /// The largest total size of all images of one request.
    pub(super) max_total_bytes: usize,
}

/// Whether the result of a call may contain images. Otherwise they follow the results, after a line that
/// names the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultImages {
    Always,
    /// Only in the result of a successful call.
    SuccessfulOnly,
    Never,
}

#[derive(Debug)]
pub(super) struct PromptImage<'a> {
    pub(super) media_type: &'a str,
    pub(super) bytes: &'a [u8],
}

impl ImageLimits {
    /// Returns an image of the prompt, or the text that replaces it.
    pub(super) fn find_image<'a>(
        &self,
        prompt: &'a Prompt,
        vision: bool,
        blob: &str,
        media_type: &'a str,
    ) -> Result<PromptImage<'a>, String> {
        let why = match prompt.images.get(blob) {
            _ if !vision => "this model cannot see images".to_owned(),
            None => "its content is missing".to_owned(),
            Some(_) if !self.types.contains(&media_type) => {
                "this model does not accept images of this type".to_owned()
            }
            Some(bytes) if bytes.len() > self.max_bytes => {
                format!("{} bytes exceed the limit of {} of this model", bytes.len(), self.max_bytes)
            }
            Some(bytes) => return Ok(PromptImage { media_type, bytes }),
        };
        Err(omitted_image_note(media_type, &why))
    }

    /// Removes and returns the images of a result if the scheme does not allow them there.
    pub(super) fn take_result_images<'a>(&self, answer: &mut CallResultPart<'a>) -> Vec<PromptImage<'a>> {
        let inside = match self.result_images {
            ResultImages::Always => true,
            ResultImages::SuccessfulOnly => !answer.is_error,
            ResultImages::Never => false,
        };
        if inside { Vec::new() } else { std::mem::take(&mut answer.images) }
    }

    /// Replaces the oldest images by a text if the request has too many.
    pub(super) fn drop_old_images(&self, turns: &mut [PromptTurn<'_>]) {
        let mut sizes = Vec::new();
        for_each_image(turns, &mut |picture| {
            sizes.push(picture.bytes.len());
            None
        });
        let mut oldest = self.first_kept_index(&sizes);
        if oldest == 0 {
            return;
        }
        for_each_image(turns, &mut |picture| {
            let over = oldest > 0;
            oldest = oldest.saturating_sub(1);
            over.then(|| old_image_note(picture.media_type))
        });
    }

    /// Returns the index of the first image that is sent. When the limit is exceeded, half of it is freed at
    /// once, so that the prefix of the request stays cacheable for several turns.
    fn first_kept_index(&self, sizes: &[usize]) -> usize {
        let (mut first, mut bytes) = (0, 0);
        for (last, size) in sizes.iter().enumerate() {
            bytes += size;
            if last + 1 - first <= self.max_count && bytes <= self.max_total_bytes {
                continue;
            }
            while first < last && (last + 1 - first > self.max_count / 2 || bytes > self.max_total_bytes / 2)
            {
                bytes -= sizes.get(first).copied().unwrap_or_default();
                first += 1;
            }
        }
        first
    }
}

fn omitted_image_note(media_type: &str, why: &str) -> String {
    format!("[image {media_type}, not shown: {why}]")
}

/// Returns the text that replaces an image dropped for newer ones.
pub(super) fn old_image_note(media_type: &str) -> String {
    omitted_image_note(media_type, "newer images use the whole image limit of a request")
}

/// Returns the label of images that follow the result that contained them.
pub(super) fn result_image_label(answer: &CallResultPart<'_>, count: usize) -> String {
    let images = if count == 1 { "The image".to_owned() } else { format!("The {count} images") };
    format!("{images} in the result of {}, call {}:", answer.name, answer.id)
}

/// Visits every image in order, and replaces it if `visit` returns a text.
fn for_each_image(turns: &mut [PromptTurn<'_>], visit: &mut dyn FnMut(&PromptImage<'_>) -> Option<String>) {
    let input = turns.iter_mut().filter_map(|turn| match turn {
        PromptTurn::User(heard) => Some(heard),
        PromptTurn::Assistant(_) => None,
    });
    for piece in input.flatten() {
        match piece {
            InputPart::Image(picture) => {
                if let Some(line) = visit(picture) {
                    *piece = InputPart::Text(line.into());
                }
            }
            InputPart::CallResult(answer) => {
                let notes = &mut answer.image_notes;
                answer.images.retain(|picture| match visit(picture) {
                    Some(line) => {
                        notes.push(line);
                        false
                    }
                    None => true,
                });
            }
            InputPart::Text(_) | InputPart::Notice(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_room_is_made_free_when_it_is_full() {
        let images = ImageLimits {
            types: &[],
            max_bytes: 10,
            result_images: ResultImages::Never,
            max_count: 4,
            max_total_bytes: 20,
        };
        let first = |sizes: &[usize]| images.first_kept_index(sizes);
        assert_eq!(first(&[1, 1, 1, 1]), 0);
        assert_eq!(first(&[1, 1, 1, 1, 1]), 3, "two of four are kept");
        assert_eq!(first(&[1, 1, 1, 1, 1, 1, 1]), 3, "and the next ones change nothing");
        assert_eq!(first(&[1, 1, 1, 1, 1, 1, 1, 1]), 6);
        assert_eq!(first(&[10, 10]), 0);
        assert_eq!(first(&[10, 10, 1]), 2, "ten and one are more than half of twenty");
        assert_eq!(first(&[10, 10, 10]), 2, "the newest stays");
    }
}
