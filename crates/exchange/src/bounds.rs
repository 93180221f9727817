//! How much is taken from a file, each with its reason.

/// The largest file: long sessions with many images have some tens of MiB.
pub const FILE_BYTES: u64 = 128 * 1024 * 1024;
/// The longest line that is read; a longer one is left out and counted. An image of the largest size, escaped, fits.
pub const LINE_BYTES: usize = 32 * 1024 * 1024;
/// The most items of a conversation. Of a longer one the newest stay.
pub const ITEMS: usize = 10_000;
/// The most text of a conversation: it is folded by every opening of the session. Of a longer one the newest stays.
pub const BYTES: u64 = 32 * 1024 * 1024;
/// The most bytes of images in one conversation.
pub(crate) const IMAGE_BYTES: usize = 128 * 1024 * 1024;
/// The largest image, as models take it.
pub(crate) const ONE_IMAGE_BYTES: usize = 20 * 1024 * 1024;
/// The longest name of a tool, and of a call.
pub(crate) const NAME_BYTES: usize = 128;
/// The longest word about a conversation: its directory, branch, title, model.
pub(crate) const WORD_BYTES: usize = 1_024;
/// How many different things are counted by name.
pub(crate) const NAMES: usize = 40;
