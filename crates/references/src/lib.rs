//! References: finds, reads and completes the references in an input.
//!
//! Here: `@path` (`path`, `file`), `#knowledge`, `/workflow` and skills (`library`, `skill`, `front_matter`), resolving
//! an input (`resolve`), completions (`complete`, `index`, `fuzzy`), and finding references in a command line
//! (`segments`). Elsewhere: which files may be read (`files`, `policy`), whether a workspace is trusted (`trust`), the
//! type of a file (`tools`), the use of the result (`pod`).
//! Invariants: no file outside the scope is read (`whatever_is_referred_to_ends_as_documented`); results are limited
//! and end at a character boundary (`a_cut_never_breaks_a_character`); an invalid file affects only itself
//! (`a_bad_file_is_reported_and_skipped`).

mod complete;
mod file;
mod front_matter;
mod fuzzy;
mod index;
mod library;
mod path;
mod resolve;
mod segments;
mod skill;

pub use complete::{Completion, CompletionKind, MAX_COMPLETIONS};
pub use library::{InvokedText, ReferenceLibrary, Workflow};
pub use resolve::{ReferenceDirs, ReferenceResolver};
pub use segments::{KnownReferences, split_segments};
pub use skill::{Skill, SkillLevel, check_skill};

/// The longest name of a knowledge record, a workflow or a skill.
pub const MAX_SLUG_CHARS: usize = 64;

/// Whether a text is a slug: 1 to 64 of `a-z0-9-`, no hyphen first, last or twice in a row.
pub fn is_slug(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= MAX_SLUG_CHARS
        && text.chars().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}
