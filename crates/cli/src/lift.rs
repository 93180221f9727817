//! `--lift PATH`: a protected name, or a hidden secret, that the agent may reach all the same.
//!
//! Here: whether there is anything to lift at a path. Elsewhere: the names (`policy`), what lifting does (`files`, `exec`).
//! Invariant: a path at which nothing is held is refused, so that a slip of the pen is not taken for a permission
//! (`only_what_is_held_can_be_lifted`).

use std::path::{Component, Path, PathBuf};

use minke_policy::{NAMES, protected};

use crate::failure::Failure;
use crate::settings::{distance, nearest};

/// A name that is at most this far from what was written, and shares half of it, is what was meant.
const SLIP: usize = 3;

/// The path in full, if something is held there. `hidden` are the secrets and our own directories.
pub(crate) fn lifted(path: &Path, cwd: &Path, hidden: &[PathBuf]) -> Result<PathBuf, Failure> {
    let said = path.display();
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(Failure::usage(format!("`--lift {said}` climbs with `..`"))
            .hint("write the path without it, from the working directory or in full"));
    }
    let whole = std::path::absolute(cwd.join(path))
        .map_err(|e| Failure::usage(format!("`--lift {said}` is not a path")).why(e))?;
    if holds(&whole.to_string_lossy()) || hidden.iter().any(|wall| whole.starts_with(wall)) {
        return Ok(whole);
    }
    let failure = Failure::usage(format!("`--lift {said}` lifts nothing"))
        .why(format!("{} is neither a protected name nor a hidden secret", whole.display()));
    let written = path.to_string_lossy();
    let meant = |name: &&str| {
        let far = distance(name, &written);
        far <= SLIP && far * 2 <= written.chars().count()
    };
    let close = nearest(&written, NAMES.into_iter()).filter(meant);
    Err(match close {
        Some(name) => failure.hint(format!("the nearest protected name is `{name}`")),
        None => failure.hint(format!("protected are, in every directory: {}", NAMES.join(", "))),
    })
}

/// Whether a path is a protected name, lies below one, or is the beginning of one.
fn holds(path: &str) -> bool {
    let rests =
        NAMES.iter().flat_map(|name| name.match_indices('/').filter_map(|(at, _)| name.get(at + 1..)));
    // `*` stands for any name, and is one.
    protected(path).is_some() || rests.into_iter().any(|rest| protected(&format!("{path}/{rest}")).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_held_can_be_lifted() {
        let hidden = [PathBuf::from("/home/u/.aws")];
        let lift = |path: &str| lifted(Path::new(path), Path::new("/w"), &hidden);
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
            assert_eq!(lift(path).map_err(|e| e.text()), Ok(whole.into()), "{path}");
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
            let said = lift(path).unwrap_err().text();
            assert!(said.contains(word), "{path}: {said}");
        }
    }
}
