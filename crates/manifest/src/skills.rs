//! `skills`: where skills lie, beside the usual places.
//!
//! Here: the key. Elsewhere: the usual places and what a skill is (`references`), what a relative path means (`sources`).

use crate::form::{List, Place};
use crate::key::section;

section! {
    /// Where skills lie.
    SkillsSection at "skills" {
        /// Directories that hold skills, beside the usual ones; those of a workspace's file lie inside the workspace.
        directories: Vec<String> = Vec::new(), List<Place>, Concatenate, Set, true;
    }
    besides {}
}

impl SkillsSection {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }
}
