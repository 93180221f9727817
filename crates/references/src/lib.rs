//! References: what an input refers to, found, read and completed.
//!
//! Here: `@path` (`path`, `file`), `#knowledge`, `/workflow` and skills (`shelf`, `skill`, `front`), all of an input
//! together (`refer`), names that complete what somebody types (`complete`, `index`, `fuzzy`), and words of a command line
//! that refer to something (`words`). Elsewhere: what may be read (`files`, `policy`), whether a workspace is trusted
//! (`trust`), what an image or a text is (`tools`), where what was read goes (`pod`).
//! Invariants: nothing outside the scope is read (`whatever_is_referred_to_ends_as_documented`); what is read is bounded
//! and whole characters (`a_cut_never_breaks_a_character`); a bad file costs only itself
//! (`a_bad_file_is_reported_and_skipped`).

mod complete;
mod file;
mod front;
mod fuzzy;
mod index;
mod path;
mod refer;
mod shelf;
mod skill;
mod words;

pub use complete::{COMPLETIONS, Completed, Wanted};
pub use refer::{Places, References};
pub use shelf::{Invoked, Shelf, Workflow};
pub use skill::{Level, Skill, check};
pub use words::{Known, segments};

/// The longest name of a knowledge record, a workflow or a skill.
pub const SLUG_CHARS: usize = 64;

/// Whether a text is a slug: 1 to 64 of `a-z0-9-`, no hyphen first, last or twice.
pub fn is_slug(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= SLUG_CHARS
        && text.chars().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}
