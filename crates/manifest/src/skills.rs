//! `skills`: additional directories with skills.
//!
//! Elsewhere: the default directories and skills (`references`), relative paths (`sources`).

use crate::form::{ListForm, PathForm};
use crate::key::section;

section! {
    /// Directories with skills.
    SkillsSection at "skills" {
        /// Additional directories with skills; those of a workspace's file must be inside the workspace.
        directories: Vec<String> = Vec::new(), ListForm<PathForm>, Concatenate, Set, true;
    }
    besides {}
}

impl SkillsSection {
    /// Returns whether no directory is set.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }
}
