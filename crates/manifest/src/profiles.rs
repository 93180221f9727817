//! Profiles: selection by name, and the limits of a child by its parent.
//!
//! Elsewhere: registration and contents of profiles (`sources`, `lua`).
//! Invariant: no profile gives a child more than its parent has (`a_child_is_never_freer_than_its_parent`).

use std::fmt;

use minke_record::Judgement;

use crate::{Manifest, NetworkPolicy, SandboxMode};

/// The selector for the parent's own configuration.
pub const INHERIT: &str = "inherit";
/// The selector for the default of the registries.
pub const DEFAULT: &str = "default";
/// Maximum length of a selector in an error.
const MAX_SHOWN_CHARS: usize = 60;
/// Maximum size of a profile list for a model.
const MAX_LISTING_BYTES: usize = 2 * 1024;

/// The registry of a profile. A later one's default overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProfileOrigin {
    Builtin,
    User,
    Project,
}

impl ProfileOrigin {
    pub const ALL: [ProfileOrigin; 3] = [ProfileOrigin::Builtin, ProfileOrigin::User, ProfileOrigin::Project];

    pub fn as_str(self) -> &'static str {
        match self {
            ProfileOrigin::Builtin => "builtin",
            ProfileOrigin::User => "user",
            ProfileOrigin::Project => "project",
        }
    }
}

impl fmt::Display for ProfileOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A profile by its full name: `builtin:coder`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileName {
    pub source: ProfileOrigin,
    pub name: String,
}

impl ProfileName {
    pub fn new(source: ProfileOrigin, name: impl Into<String>) -> ProfileName {
        ProfileName { source, name: name.into() }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.name)
    }
}

/// A parsed selector, before lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileSelector {
    Default,
    Inherit,
    Full(ProfileName),
    Bare(String),
}

impl ProfileSelector {
    /// Parses a selector. Absent, blank and `default` select the default.
    pub fn parse(said: Option<&str>) -> Result<ProfileSelector, ProfileError> {
        let said = said.unwrap_or_default().trim();
        if is_path_like(said) {
            return Err(ProfileError::PathLike(said.to_owned()));
        }
        let Some((prefix, name)) = said.split_once(':') else {
            return Ok(match said {
                "" | DEFAULT => ProfileSelector::Default,
                INHERIT => ProfileSelector::Inherit,
                name => ProfileSelector::Bare(name.to_owned()),
            });
        };
        let source = ProfileOrigin::ALL.into_iter().find(|source| source.as_str() == prefix);
        match (source, name.trim()) {
            (None, _) => Err(ProfileError::UnknownPrefix(said.to_owned())),
            (Some(_), "") => Err(ProfileError::EmptyName(said.to_owned())),
            (Some(source), name) => Ok(ProfileSelector::Full(ProfileName::new(source, name))),
        }
    }
}

/// Returns whether a selector names a file.
pub fn is_path_like(said: &str) -> bool {
    said.starts_with("path:") || said.contains('/') || said.ends_with(".lua") || said.ends_with(".nix")
}

/// A profile that can be selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileListing {
    pub name: ProfileName,
    pub description: Option<String>,
}

/// All profiles that can be selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileCatalog {
    pub profiles: Vec<ProfileListing>,
    pub default: ProfileName,
    /// Why the registries cannot be used; then only `inherit` can be selected.
    pub problem: Option<String>,
    /// Accepts every name without lookup.
    accepts_any: bool,
}

/// The selected profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileChoice {
    Inherit,
    Profile(ProfileName),
}

impl ProfileCatalog {
    pub fn new(
        profiles: Vec<ProfileListing>,
        default: ProfileName,
        problem: Option<String>,
    ) -> ProfileCatalog {
        ProfileCatalog { profiles, default, problem, accepts_any: false }
    }

    /// Returns a catalog that accepts every name, for replays.
    pub fn accepting_any() -> ProfileCatalog {
        let default = ProfileName::new(ProfileOrigin::Builtin, DEFAULT);
        ProfileCatalog { profiles: Vec::new(), default, problem: None, accepts_any: true }
    }

    /// Resolves a selector.
    pub fn select(&self, said: Option<&str>) -> Result<ProfileChoice, ProfileError> {
        let selector = ProfileSelector::parse(said).map_err(|e| e.with_usable(self))?;
        if selector == ProfileSelector::Inherit {
            return Ok(ProfileChoice::Inherit);
        }
        if let Some(problem) = &self.problem {
            let said = said.unwrap_or(DEFAULT).trim().to_owned();
            return Err(ProfileError::Problem { selector: said, problem: problem.clone() });
        }
        let name = match selector {
            ProfileSelector::Default | ProfileSelector::Inherit => {
                return Ok(ProfileChoice::Profile(self.default.clone()));
            }
            ProfileSelector::Full(name) if self.accepts_any => name,
            ProfileSelector::Bare(name) if self.accepts_any => ProfileName::new(ProfileOrigin::Builtin, name),
            ProfileSelector::Full(name) => {
                let there = self.profiles.iter().any(|profile| profile.name == name);
                let said = name.to_string();
                if there { name } else { return Err(ProfileError::NotFound(said).with_usable(self)) }
            }
            ProfileSelector::Bare(name) => self.find_bare_name(&name)?,
        };
        Ok(ProfileChoice::Profile(name))
    }

    fn find_bare_name(&self, name: &str) -> Result<ProfileName, ProfileError> {
        let mut found = self.profiles.iter().map(|profile| &profile.name).filter(|full| full.name == name);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only.clone()),
            (Some(first), Some(second)) => {
                let all = [first, second].into_iter().chain(found).map(ToString::to_string).collect();
                Err(ProfileError::Ambiguous { selector: name.to_owned(), candidates: all })
            }
            (None, _) => Err(ProfileError::NotFound(name.to_owned()).with_usable(self)),
        }
    }

    /// Lists the profiles for a model: full names, the default, descriptions and the problem.
    pub fn describe(&self) -> String {
        let mut text = format!("`{INHERIT}` (your own configuration)");
        let mut left = 0;
        for profile in &self.profiles {
            let default = if profile.name == self.default { " (default)" } else { "" };
            let about = profile.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
            let line = format!("; {}{default}{about}", profile.name);
            if text.len() + line.len() > MAX_LISTING_BYTES {
                left += 1;
            } else {
                text.push_str(&line);
            }
        }
        if left > 0 {
            text.push_str(&format!("; and {left} more"));
        }
        if let Some(problem) = &self.problem {
            text.push_str(&format!(". Only `{INHERIT}` can be used now: {problem}"));
        }
        text
    }

    fn all_selectors(&self) -> Vec<String> {
        let all = self.profiles.iter().map(|profile| profile.name.to_string());
        std::iter::once(INHERIT.to_owned()).chain(all).collect()
    }
}

/// Why a selector matches no profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileError {
    /// It names a file; models may select only registered profiles.
    PathLike(String),
    UnknownPrefix(String),
    /// The prefix has no name after it.
    EmptyName(String),
    NotFound(String),
    Ambiguous {
        selector: String,
        candidates: Vec<String>,
    },
    /// The registries are broken.
    Problem {
        selector: String,
        problem: String,
    },
    /// Another error, with the list of valid selectors.
    Usable {
        error: Box<ProfileError>,
        usable: Vec<String>,
    },
}

impl ProfileError {
    fn with_usable(self, offer: &ProfileCatalog) -> ProfileError {
        ProfileError::Usable { error: Box::new(self), usable: offer.all_selectors() }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::PathLike(said) => write!(
                f,
                "profile `{}` names a file, and only registered profiles can be chosen here",
                truncate_selector(said)
            ),
            ProfileError::UnknownPrefix(said) => {
                let known: Vec<&str> = ProfileOrigin::ALL.into_iter().map(ProfileOrigin::as_str).collect();
                write!(
                    f,
                    "profile `{}` has an unknown prefix; known prefixes: {}",
                    truncate_selector(said),
                    known.join(", ")
                )
            }
            ProfileError::EmptyName(said) => {
                write!(f, "profile `{}` has no name after the prefix", truncate_selector(said))
            }
            ProfileError::NotFound(said) => write!(f, "there is no profile `{}`", truncate_selector(said)),
            ProfileError::Ambiguous { selector, candidates } => write!(
                f,
                "profile `{}` is ambiguous ({}): use the full name",
                truncate_selector(selector),
                quote_names(candidates).join(" or ")
            ),
            ProfileError::Problem { selector: said, problem } => {
                write!(f, "could not look up profile `{}`: {problem}", truncate_selector(said))
            }
            ProfileError::Usable { error, usable } => {
                write!(f, "{error}; usable are {}", quote_names(usable).join(", "))
            }
        }
    }
}

impl std::error::Error for ProfileError {}

fn quote_names(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

fn truncate_selector(said: &str) -> String {
    let mut text: String = said.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if said.chars().nth(MAX_SHOWN_CHARS).is_some() {
        text.push('…');
    }
    text
}

/// Returns the manifest of an inheriting child: its parent's without values that are never inherited. Scope,
/// budget and permissions come from its session and mandate.
pub fn inherited_manifest(parent: &Manifest) -> Manifest {
    let mut child = parent.clone();
    child.budget = Default::default();
    // Its scope is its loan.
    child.scope = Default::default();
    child.left_out.clear();
    child.pod.name = None;
    // The permission to answer asks applies to the parent alone.
    child.permissions.may_answer = false;
    child
}

/// Limits a child's manifest to its parent's rights, regardless of its profile.
pub fn restrict_to_parent(child: Manifest, parent: &Manifest) -> Manifest {
    let mut child = inherited_manifest(&child);
    let (may, has) = (&mut child.permissions, &parent.permissions);
    may.posture = match (may.posture, has.posture) {
        (Some(wanted), Some(most)) => Some(wanted.min(most)),
        (wished, most) => wished.or(most),
    };
    may.default_action = stricter_action(may.default_action.take(), has.default_action.clone());
    let child_value = std::mem::take(&mut may.rule);
    let tightening = child_value.into_iter().filter(|rule| rule.action != Judgement::Allow);
    may.rule.clone_from(&has.rule);
    may.rule.extend(tightening.filter(|rule| !has.rule.contains(rule)));
    may.rules = has.rules.clone();
    may.ask_expires_s = match (may.ask_expires_s, has.ask_expires_s) {
        (Some(child_value), Some(most)) => Some(child_value.min(most)),
        (own, most) => own.or(most),
    };

    let (sandbox, most) = (&mut child.sandbox, &parent.sandbox);
    if sandbox.mode != SandboxMode::ReadOnly {
        sandbox.mode = most.mode;
    }
    sandbox.network = intersect_networks(&sandbox.network, &most.network);
    sandbox.writable_tmp &= most.writable_tmp;
    sandbox.env.pass.retain(|name| most.env.pass.contains(name));
    sandbox.lifted.clone_from(&most.lifted);
    sandbox.broad_roots.clone_from(&most.broad_roots);

    child.web = match (child.web.take(), &parent.web) {
        (Some(mut web), Some(most)) if most.enabled => {
            web.fetch.allow_private &= most.fetch.allow_private;
            Some(web)
        }
        _ => None,
    };
    let (limits, most) = (&mut child.pod.limits, &parent.pod.limits);
    limits.depth = limits.depth.min(most.depth);
    limits.children = limits.children.min(most.children);
    limits.pods_per_user = limits.pods_per_user.min(most.pods_per_user);
    limits.queue = limits.queue.min(most.queue);
    // Hooks can refuse actions that rules allow.
    child.hooks.enabled |= parent.hooks.enabled;
    child
}

fn stricter_action(a: Option<Judgement>, b: Option<Judgement>) -> Option<Judgement> {
    let rank = |judgement: &Judgement| match judgement {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        // An unknown judgement counts as the strictest.
        Judgement::Deny | Judgement::Other(_) => 2,
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if rank(&a) >= rank(&b) { a } else { b }),
        // A parent without a default action never allowed everything.
        (Some(Judgement::Allow), None) => None,
        (a, b) => a.or(b),
    }
}

/// Returns the hosts that both may reach.
fn intersect_networks(child_value: &NetworkPolicy, most: &NetworkPolicy) -> NetworkPolicy {
    match (child_value, most) {
        (NetworkPolicy::Off, _) | (_, NetworkPolicy::Off) => NetworkPolicy::Off,
        (own, NetworkPolicy::On) => own.clone(),
        (NetworkPolicy::On, most) => most.clone(),
        (NetworkPolicy::Hosts(own), NetworkPolicy::Hosts(most)) => {
            let within = |host: &&String| most.iter().any(|wider| host_covers(wider, host));
            let both: Vec<String> = own.iter().filter(within).cloned().collect();
            if both.is_empty() { NetworkPolicy::Off } else { NetworkPolicy::Hosts(both) }
        }
    }
}

/// Returns whether a granted host name covers another one.
fn host_covers(wider: &str, host: &str) -> bool {
    wider == host || wider.strip_prefix('*').is_some_and(|end| end.starts_with('.') && host.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_policy::{PolicyRule, Posture};

    fn test_catalog() -> ProfileCatalog {
        let listed = |source, name: &str| ProfileListing {
            name: ProfileName::new(source, name),
            description: Some(format!("about {name}")),
        };
        let profiles = vec![
            listed(ProfileOrigin::Builtin, "default"),
            listed(ProfileOrigin::Builtin, "coder"),
            listed(ProfileOrigin::User, "coder"),
            listed(ProfileOrigin::Project, "mine"),
        ];
        ProfileCatalog::new(profiles, ProfileName::new(ProfileOrigin::Project, "mine"), None)
    }

    #[test]
    fn each_bad_selector_has_its_own_error_and_lists_what_can_be_chosen() {
        for (said, words) in [
            ("path:x", "names a file"),
            ("profiles/x", "names a file"),
            (" x.lua ", "names a file"),
            ("x.nix", "names a file"),
            ("./x", "names a file"),
            ("else:x", "an unknown prefix; known prefixes: builtin, user, project"),
            ("user:", "no name after the prefix"),
            ("builtin: ", "no name after the prefix"),
            ("user:mine", "there is no profile `user:mine`"),
            ("reviewer", "there is no profile `reviewer`"),
        ] {
            let text = test_catalog().select(Some(said)).unwrap_err().to_string();
            assert!(text.contains(words), "{said}: {text}");
            assert!(text.contains("`inherit`, `builtin:default`, `builtin:coder`"), "{text}");
        }
        let ambiguous = test_catalog().select(Some("coder")).unwrap_err().to_string();
        assert!(ambiguous.contains("`builtin:coder` or `user:coder`"), "{ambiguous}");
    }

    #[test]
    fn a_selector_chooses() {
        let profile = |source, name| Ok(ProfileChoice::Profile(ProfileName::new(source, name)));
        for said in [None, Some(""), Some("  "), Some("default"), Some(" mine "), Some("project:mine")] {
            assert_eq!(test_catalog().select(said), profile(ProfileOrigin::Project, "mine"), "{said:?}");
        }
        assert_eq!(test_catalog().select(Some("user:coder")), profile(ProfileOrigin::User, "coder"));
        assert_eq!(
            test_catalog().select(Some("builtin:default")),
            profile(ProfileOrigin::Builtin, "default")
        );
        assert_eq!(test_catalog().select(Some(" inherit ")), Ok(ProfileChoice::Inherit));
        let listing = test_catalog().describe();
        assert!(listing.contains("project:mine (default): about mine"), "{listing}");
    }

    #[test]
    fn where_the_registries_are_broken_inherit_is_left() {
        let broken = ProfileCatalog { problem: Some("profiles.toml: line 3".to_owned()), ..test_catalog() };
        assert_eq!(broken.select(Some("inherit")), Ok(ProfileChoice::Inherit));
        for said in [None, Some("default"), Some("builtin:coder"), Some("nothing")] {
            let text = broken.select(said).unwrap_err().to_string();
            assert!(text.contains("profiles.toml: line 3"), "{text}");
        }
        assert!(broken.describe().contains("profiles.toml: line 3"));
        assert!(broken.select(Some("a/b")).unwrap_err().to_string().contains("names a file"));
    }

    /// The profile sets every key that could give a child more rights.
    #[test]
    fn a_child_is_never_freer_than_its_parent() {
        let rule = |action: &str| -> PolicyRule {
            serde_json::from_value(serde_json::json!({ "action": action, "tool": "Bash" })).unwrap()
        };
        let mut parent = Manifest::default();
        parent.pod.limits.depth = 2;
        parent.budget.tokens = Some(9);
        parent.permissions.may_answer = true;
        parent.permissions.posture = Some(Posture::Ask);
        parent.permissions.default_action = Some(Judgement::Ask);
        parent.permissions.rule = vec![rule("deny")];
        parent.sandbox.mode = SandboxMode::ReadOnly;
        parent.sandbox.network = NetworkPolicy::Hosts(vec!["a.org".into(), "*.b.org".into()]);
        parent.sandbox.writable_tmp = false;
        parent.worker.instruction = "Review.".to_owned();

        let mut wanted = Manifest::default();
        wanted.pod.limits.depth = 20;
        wanted.budget.tokens = Some(9_000);
        wanted.permissions.may_answer = true;
        wanted.permissions.posture = Some(Posture::Full);
        wanted.permissions.default_action = Some(Judgement::Allow);
        wanted.permissions.rule = vec![rule("allow"), rule("ask")];
        wanted.sandbox.mode = SandboxMode::Off;
        wanted.sandbox.network = NetworkPolicy::On;
        wanted.sandbox.env.pass = vec!["SECRET".to_owned()];
        wanted.sandbox.lifted = vec!["/w/.git/config".to_owned()];
        parent.sandbox.broad_roots = vec!["/home/ada".to_owned()];
        wanted.web = Some(Default::default());
        wanted.hooks.enabled = false;
        let child = restrict_to_parent(wanted.clone(), &parent);
        assert_eq!(child.pod.limits.depth, 2);
        assert!(child.budget.is_empty() && !child.permissions.may_answer);
        assert_eq!(child.permissions.posture, Some(Posture::Ask));
        assert_eq!(child.permissions.default_action, Some(Judgement::Ask));
        assert_eq!(child.permissions.rule, [rule("deny"), rule("ask")]);
        assert_eq!(child.sandbox.mode, SandboxMode::ReadOnly);
        assert_eq!(child.sandbox.network, parent.sandbox.network);
        assert!(!child.sandbox.writable_tmp && child.hooks.enabled);
        assert!(child.sandbox.env.pass.is_empty() && child.sandbox.lifted.is_empty());
        assert_eq!(child.sandbox.broad_roots, ["/home/ada"], "the question is the child's too");
        assert_eq!(child.web, None);

        wanted.sandbox.network = NetworkPolicy::Hosts(vec!["x.b.org".into(), "c.org".into(), "b.org".into()]);
        let child = restrict_to_parent(wanted.clone(), &parent);
        assert_eq!(child.sandbox.network, NetworkPolicy::Hosts(vec!["x.b.org".into()]));
        parent.permissions.default_action = None;
        assert_eq!(restrict_to_parent(wanted.clone(), &parent).permissions.default_action, None);
        // Stricter values stay.
        wanted.permissions.posture = Some(Posture::Plan);
        wanted.sandbox.network = NetworkPolicy::Off;
        let child = restrict_to_parent(wanted, &parent);
        assert_eq!(
            (child.permissions.posture, child.sandbox.network),
            (Some(Posture::Plan), NetworkPolicy::Off)
        );
        let same = inherited_manifest(&parent);
        assert_eq!(same.worker.instruction, "Review.");
        assert!(same.budget.is_empty() && !same.permissions.may_answer);
    }
}
