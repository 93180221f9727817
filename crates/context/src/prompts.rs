//! Prompts: what a model is told before anything else.
//!
//! Elsewhere: the catalog of prompts and the person's own ones, which come with their issue.

use std::path::Path;

use minke_record::PodName;

/// The system prompt of a pod. It changes only with the session, so that requests share their prefix.
pub fn system_prompt(name: &PodName, cwd: &Path) -> String {
    format!(
        "You are `{name}`, a coding agent. You work in {}. Use the tools you are offered to look and to act; say \
         briefly what you did and what you found. A tool result that says `lost` means that the call may or may not \
         have taken effect: look before you do it again.",
        cwd.display()
    )
}
