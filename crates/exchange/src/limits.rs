//! Limits of an import, each with its reason.

/// The maximum file size: long sessions with many images have some tens of MiB.
pub const MAX_FILE_BYTES: u64 = 128 * 1024 * 1024;
/// The maximum line length; a longer line is omitted and counted. An image of the maximum size fits, even escaped.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;
/// The maximum number of items. Of a longer conversation the newest remain.
pub const MAX_ITEMS: usize = 10_000;
/// The maximum size of the texts, which every opening of the session folds. Of a longer conversation the newest remain.
pub const MAX_TEXT_BYTES: u64 = 32 * 1024 * 1024;
/// The maximum total size of the images.
pub(crate) const MAX_TOTAL_IMAGE_BYTES: usize = 128 * 1024 * 1024;
/// The maximum size of one image, as models accept it.
pub(crate) const MAX_IMAGE_BYTES: usize = 20 * 1024 * 1024;
/// The maximum length of the name of a tool and of the id of a call.
pub(crate) const MAX_NAME_BYTES: usize = 128;
/// The maximum length of a metadata text: directory, branch, title, model.
pub(crate) const MAX_WORD_BYTES: usize = 1_024;
/// The maximum number of separately counted names.
pub(crate) const MAX_COUNTED_NAMES: usize = 40;
