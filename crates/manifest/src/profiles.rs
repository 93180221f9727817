//! Profiles: what a child is made to be, chosen by a selector.
//!
//! Here: how a selector reads, and the two profiles that need no file: the built-in default and `inherit`. Profiles that
//! people write come with their own issue; until then every other name does not exist, and the error says what does.
//! Invariant: no profile gives a child more than its parent has (`a_child_is_never_freer_than_its_parent`).

use std::fmt;

use crate::Manifest;

/// The profile that a child gets if nobody chooses one.
pub const DEFAULT: &str = "builtin:default";
/// The parent's own configuration.
pub const INHERIT: &str = "inherit";
/// Where profiles are registered.
const PREFIXES: [&str; 3] = ["builtin", "user", "project"];
/// The most of a selector that an error repeats.
const SHOWN_CHARS: usize = 60;

/// What a selector chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Default,
    Inherit,
}

/// A profile that can be chosen, as the tool's description lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usable {
    pub selector: &'static str,
    pub description: &'static str,
}

/// Everything that a selector may say.
pub const USABLE: [Usable; 2] = [
    Usable { selector: DEFAULT, description: "the default: your model, the usual instruction" },
    Usable { selector: INHERIT, description: "your own configuration" },
];

/// Why a selector chooses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileError {
    /// It names a file: a model may pick registered profiles, never files.
    PathLike(String),
    UnknownPrefix(String),
    /// There is nothing after the prefix.
    EmptyName(String),
    NotFound(String),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usable: Vec<String> = USABLE.iter().map(|profile| format!("`{}`", profile.selector)).collect();
        let usable = usable.join(", ");
        match self {
            ProfileError::PathLike(said) => write!(
                f,
                "`profile` is `{}`, which names a file: only registered profiles can be chosen: {usable}",
                shown(said)
            ),
            ProfileError::UnknownPrefix(said) => write!(
                f,
                "`profile` is `{}`: a prefix is one of {}; usable are {usable}",
                shown(said),
                PREFIXES.join(", ")
            ),
            ProfileError::EmptyName(said) => {
                write!(
                    f,
                    "`profile` is `{}`, with no name after the prefix; usable are {usable}",
                    shown(said)
                )
            }
            ProfileError::NotFound(said) => {
                write!(f, "there is no profile `{}`; usable are {usable}", shown(said))
            }
        }
    }
}

impl std::error::Error for ProfileError {}

fn shown(said: &str) -> String {
    let mut text: String = said.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if said.chars().nth(SHOWN_CHARS).is_some() {
        text.push('…');
    }
    text
}

/// Reads a selector. Absent, blank and `default` are the default.
pub fn select(selector: Option<&str>) -> Result<Profile, ProfileError> {
    let said = selector.unwrap_or_default().trim();
    if said.starts_with("path:") || said.contains('/') || said.ends_with(".lua") || said.ends_with(".nix") {
        return Err(ProfileError::PathLike(said.to_owned()));
    }
    let name = match said.split_once(':') {
        None => match said {
            "" | "default" => return Ok(Profile::Default),
            INHERIT => return Ok(Profile::Inherit),
            name => name,
        },
        Some((prefix, _)) if !PREFIXES.contains(&prefix) => {
            return Err(ProfileError::UnknownPrefix(said.to_owned()));
        }
        Some((_, name)) if name.trim().is_empty() => return Err(ProfileError::EmptyName(said.to_owned())),
        Some(("builtin", "default")) => return Ok(Profile::Default),
        Some(_) => said,
    };
    Err(ProfileError::NotFound(name.to_owned()))
}

/// The manifest of a child: the profile's, in what its parent has, without what is never passed on. Its scope, budget and
/// permissions come from its session and its mandate.
pub fn resolve(selector: Option<&str>, parent: &Manifest) -> Result<Manifest, ProfileError> {
    let profile = select(selector)?;
    let mut child = parent.clone();
    child.budget = Default::default();
    // Its scope is its loan.
    child.scope = Default::default();
    child.left_out.clear();
    child.pod.name = None;
    // That it may answer is the person's word about the parent alone.
    child.permissions.may_answer = false;
    if profile == Profile::Default {
        child.worker.instruction = None;
    }
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_selector_has_its_own_error_and_lists_what_can_be_chosen() {
        for (said, wanted) in [
            ("path:x", ProfileError::PathLike("path:x".into())),
            ("profiles/x", ProfileError::PathLike("profiles/x".into())),
            (" x.lua ", ProfileError::PathLike("x.lua".into())),
            ("x.nix", ProfileError::PathLike("x.nix".into())),
            ("else:x", ProfileError::UnknownPrefix("else:x".into())),
            ("user:", ProfileError::EmptyName("user:".into())),
            ("builtin: ", ProfileError::EmptyName("builtin:".into())),
            ("user:mine", ProfileError::NotFound("user:mine".into())),
            ("reviewer", ProfileError::NotFound("reviewer".into())),
        ] {
            let error = select(Some(said)).unwrap_err();
            assert_eq!(error, wanted, "{said}");
            let text = error.to_string();
            assert!(text.contains("`builtin:default`") && text.contains("`inherit`"), "{text}");
        }
        for said in [None, Some(""), Some("  "), Some("default"), Some("builtin:default")] {
            assert_eq!(select(said), Ok(Profile::Default), "{said:?}");
        }
        assert_eq!(select(Some(" inherit ")), Ok(Profile::Inherit));
    }

    #[test]
    fn a_child_is_never_freer_than_its_parent() {
        let mut parent = Manifest::default();
        parent.pod.limits.depth = 2;
        parent.budget.tokens = Some(9);
        parent.permissions.may_answer = true;
        parent.worker.instruction = Some("Review.".to_owned());
        for (said, instruction) in [(None, None), (Some("inherit"), Some("Review."))] {
            let child = resolve(said, &parent).unwrap();
            assert_eq!(child.pod.limits, parent.pod.limits);
            assert_eq!(child.sandbox, parent.sandbox);
            assert!(child.budget.is_empty() && !child.permissions.may_answer);
            assert_eq!(child.worker.instruction.as_deref(), instruction);
        }
    }
}
