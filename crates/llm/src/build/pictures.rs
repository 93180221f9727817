//! Pictures: which images of a history its scheme is shown, and what stands in the place of the others.
//!
//! Here: types and sizes that a scheme takes, where the images of a result stand, and how many images one request has.
//! Elsewhere: how an image is written (one file per scheme), how many images any request has (`minke_model::IMAGES`).
//! Invariant: no image makes a request one that is refused, for it would be refused in every later request of the
//! session too (`tests/pictures.rs`; for any history `tests/requests.rs`).

use minke_model::Prompt;

use super::turns::{Answer, Heard, Turn};

/// Which images a scheme takes.
pub(super) struct Images {
    pub(super) types: &'static [&'static str],
    /// Bytes of one image.
    pub(super) longest: usize,
    pub(super) in_results: InResults,
    /// Images of one request.
    pub(super) most: usize,
    /// Bytes of all images of one request.
    pub(super) total: usize,
}

/// Whether an image may stand inside the result of a call. Where it may not, it stands after the results, with a line
/// that names the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InResults {
    Always,
    /// Not in the result of a call that failed.
    OfDone,
    Never,
}

#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) media_type: &'a str,
    pub(super) bytes: &'a [u8],
}

impl Images {
    /// An image of the prompt, or the line that stands in its place.
    pub(super) fn find<'a>(
        &self,
        prompt: &'a Prompt,
        vision: bool,
        blob: &str,
        media_type: &'a str,
    ) -> Result<Picture<'a>, String> {
        let why = match prompt.images.get(blob) {
            _ if !vision => "this model cannot see images".to_owned(),
            None => "its content is missing".to_owned(),
            Some(_) if !self.types.contains(&media_type) => {
                "this model does not take images of that type".to_owned()
            }
            Some(bytes) if bytes.len() > self.longest => {
                format!("{} bytes are more than the {} that this model takes", bytes.len(), self.longest)
            }
            Some(bytes) => return Ok(Picture { media_type, bytes }),
        };
        Err(not_shown(media_type, &why))
    }

    /// Takes the pictures out of an answer whose scheme has no place for them there.
    pub(super) fn beside<'a>(&self, answer: &mut Answer<'a>) -> Vec<Picture<'a>> {
        let inside = match self.in_results {
            InResults::Always => true,
            InResults::OfDone => !answer.is_error,
            InResults::Never => false,
        };
        if inside { Vec::new() } else { std::mem::take(&mut answer.pictures) }
    }

    /// Puts lines in the place of the oldest pictures if there are more than one request takes.
    pub(super) fn bound(&self, turns: &mut [Turn<'_>]) {
        let mut sizes = Vec::new();
        each(turns, &mut |picture| {
            sizes.push(picture.bytes.len());
            None
        });
        let mut oldest = self.first_kept(&sizes);
        if oldest == 0 {
            return;
        }
        each(turns, &mut |picture| {
            let over = oldest > 0;
            oldest = oldest.saturating_sub(1);
            over.then(|| too_old(picture.media_type))
        });
    }

    /// The first picture that is still sent. When the room is full, half of it is made free at once: the beginning of
    /// a request, by which a provider knows it again, then stays the same for many requests.
    fn first_kept(&self, sizes: &[usize]) -> usize {
        let (mut first, mut bytes) = (0, 0);
        for (last, size) in sizes.iter().enumerate() {
            bytes += size;
            if last + 1 - first <= self.most && bytes <= self.total {
                continue;
            }
            while first < last && (last + 1 - first > self.most / 2 || bytes > self.total / 2) {
                bytes -= sizes.get(first).copied().unwrap_or_default();
                first += 1;
            }
        }
        first
    }
}

fn not_shown(media_type: &str, why: &str) -> String {
    format!("[image {media_type}, not shown: {why}]")
}

/// What stands in the place of an image that had to make room.
pub(super) fn too_old(media_type: &str) -> String {
    not_shown(media_type, "newer images take all the room that a request has")
}

/// What is said of pictures that stand after the result that showed them.
pub(super) fn label(answer: &Answer<'_>, count: usize) -> String {
    let images = if count == 1 { "The image".to_owned() } else { format!("The {count} images") };
    format!("{images} in the result of {}, call {}:", answer.name, answer.id)
}

/// Visits every picture in order; one for which a line comes back is replaced by it.
fn each(turns: &mut [Turn<'_>], visit: &mut dyn FnMut(&Picture<'_>) -> Option<String>) {
    let heard = turns.iter_mut().filter_map(|turn| match turn {
        Turn::User(heard) => Some(heard),
        Turn::Assistant(_) => None,
    });
    for piece in heard.flatten() {
        match piece {
            Heard::Image(picture) => {
                if let Some(line) = visit(picture) {
                    *piece = Heard::Text(line.into());
                }
            }
            Heard::Answer(answer) => {
                let notes = &mut answer.notes;
                answer.pictures.retain(|picture| match visit(picture) {
                    Some(line) => {
                        notes.push(line);
                        false
                    }
                    None => true,
                });
            }
            Heard::Text(_) | Heard::Notice(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_room_is_made_free_when_it_is_full() {
        let images = Images { types: &[], longest: 10, in_results: InResults::Never, most: 4, total: 20 };
        let first = |sizes: &[usize]| images.first_kept(sizes);
        assert_eq!(first(&[1, 1, 1, 1]), 0);
        assert_eq!(first(&[1, 1, 1, 1, 1]), 3, "two of four stay");
        assert_eq!(first(&[1, 1, 1, 1, 1, 1, 1]), 3, "and the next ones change nothing");
        assert_eq!(first(&[1, 1, 1, 1, 1, 1, 1, 1]), 6);
        assert_eq!(first(&[10, 10]), 0);
        assert_eq!(first(&[10, 10, 1]), 2, "ten and one are more than half of twenty");
        assert_eq!(first(&[10, 10, 10]), 2, "the newest stays");
    }
}
