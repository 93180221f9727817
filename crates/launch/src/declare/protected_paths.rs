//! `--lift PATH`: lets the agent reach a protected name or a hidden secret.
//!
//! Here: checking that the path is protected. Elsewhere: the names (`policy`), the effect (`files`, `exec`).
//! Invariant: a path that is not protected is refused, so that a typo is not mistaken for a permission
//! (`only_what_is_held_can_be_lifted`).

use std::path::{Component, Path, PathBuf};

use minke_policy::{PROTECTED_NAMES, protected_name};

use crate::error::SetupRefusal;

/// Maximum edit distance of a suggestion, which must also match half of the text.
const MAX_TYPO_DISTANCE: usize = 3;

/// Returns the absolute path if it is protected. `hidden` are the secrets and the directories of Minke.
pub(crate) fn resolve_lifted(path: &Path, cwd: &Path, hidden: &[PathBuf]) -> Result<PathBuf, SetupRefusal> {
    let shown = path.display();
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(SetupRefusal::invalid(format!("`--lift {shown}` contains `..`"))
            .with_hint("write the path without it, relative to the working directory or absolute"));
    }
    let whole = std::path::absolute(cwd.join(path))
        .map_err(|e| SetupRefusal::invalid(format!("`--lift {shown}` is not a path")).with_reason(e))?;
    if is_protected(&whole.to_string_lossy()) || hidden.iter().any(|secret| whole.starts_with(secret)) {
        return Ok(whole);
    }
    let failure = SetupRefusal::invalid(format!("`--lift {shown}` has no effect"))
        .with_reason(format!("{} is neither a protected name nor a hidden secret", whole.display()));
    let written = path.to_string_lossy();
    let max_distance = MAX_TYPO_DISTANCE.min(written.chars().count() / 2);
    let close = minke_text::nearest_name(&written, PROTECTED_NAMES, max_distance);
    Err(match close {
        Some(name) => failure.with_hint(format!("the nearest protected name is `{name}`")),
        None => {
            failure.with_hint(format!("protected names, in every directory: {}", PROTECTED_NAMES.join(", ")))
        }
    })
}

/// Returns true if a path is a protected name, below one, or the start of one.
fn is_protected(path: &str) -> bool {
    let rests = PROTECTED_NAMES
        .iter()
        .flat_map(|name| name.match_indices('/').filter_map(|(at, _)| name.get(at + 1..)));
    // A `*` in a name matches any name, itself included.
    protected_name(path).is_some()
        || rests.into_iter().any(|rest| protected_name(&format!("{path}/{rest}")).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_held_can_be_lifted() {
        let hidden = [PathBuf::from("/home/u/.aws")];
        let lift = |path: &str| resolve_lifted(Path::new(path), Path::new("/w"), &hidden);
        for (path, whole) in [
            (".git/config", "/w/.git/config"),
            (".git", "/w/.git"),
            ("./sub/.git/hooks/pre-commit", "/w/sub/.git/hooks/pre-commit"),
            (".git/modules", "/w/.git/modules"),
            (".git/modules/sub", "/w/.git/modules/sub"),
            (".config", "/w/.config"),
            ("/home/u/.claude/trees/x", "/home/u/.claude/trees/x"),
            ("/home/u/.aws/config", "/home/u/.aws/config"),
        ] {
            assert_eq!(lift(path).map_err(|e| e.to_string()), Ok(whole.into()), "{path}");
        }
        for (path, word) in [
            ("nothing", ".git/config, "),
            ("src/main.rs", ".minke, "),
            ("", ".minke, "),
            (".", ".minke, "),
            ("/", ".minke, "),
            ("git/config", "`.git/config`"),
            (".git/confg", "`.git/config`"),
            (".git/HEAD", "protected"),
            ("hooks", "protected"),
            ("/home/u/.awsx", "protected"),
            ("a/../.git/config", "`..`"),
        ] {
            let shown = lift(path).unwrap_err().to_string();
            assert!(shown.contains(word), "{path}: {shown}");
        }
    }
}
