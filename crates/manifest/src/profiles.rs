//! Profiles: how one is chosen by a selector, and what a child may be made to be.
//!
//! Here: how a selector reads, what can be chosen (an offer), and holding a child to its parent. Elsewhere: where profiles
//! are registered and what they say (`sources`, `lua`).
//! Invariant: no profile gives a child more than its parent has (`a_child_is_never_freer_than_its_parent`).

use std::fmt;

use minke_record::Judgement;

use crate::{Manifest, Network, SandboxMode};

/// The parent's own configuration.
pub const INHERIT: &str = "inherit";
/// The default of the registries.
pub const DEFAULT: &str = "default";
/// The most of a selector that an error repeats.
const SHOWN_CHARS: usize = 60;
/// The most that a list of profiles takes before a model.
const LISTED_BYTES: usize = 2 * 1024;

/// Where a profile is registered. A later one's default counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Builtin,
    User,
    Project,
}

impl Source {
    pub const ALL: [Source; 3] = [Source::Builtin, Source::User, Source::Project];

    pub fn as_str(self) -> &'static str {
        match self {
            Source::Builtin => "builtin",
            Source::User => "user",
            Source::Project => "project",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A profile by its full name: `builtin:coder`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileName {
    pub source: Source,
    pub name: String,
}

impl ProfileName {
    pub fn new(source: Source, name: impl Into<String>) -> ProfileName {
        ProfileName { source, name: name.into() }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.name)
    }
}

/// What a selector says, before anybody looks whether there is such a thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    Default,
    Inherit,
    Full(ProfileName),
    Bare(String),
}

impl Selector {
    /// Reads one. Absent, blank and `default` are the default.
    pub fn read(said: Option<&str>) -> Result<Selector, ProfileError> {
        let said = said.unwrap_or_default().trim();
        if is_path_like(said) {
            return Err(ProfileError::PathLike(said.to_owned()));
        }
        let Some((prefix, name)) = said.split_once(':') else {
            return Ok(match said {
                "" | DEFAULT => Selector::Default,
                INHERIT => Selector::Inherit,
                name => Selector::Bare(name.to_owned()),
            });
        };
        let source = Source::ALL.into_iter().find(|source| source.as_str() == prefix);
        match (source, name.trim()) {
            (None, _) => Err(ProfileError::UnknownPrefix(said.to_owned())),
            (Some(_), "") => Err(ProfileError::EmptyName(said.to_owned())),
            (Some(source), name) => Ok(Selector::Full(ProfileName::new(source, name))),
        }
    }
}

/// Whether a selector names a file.
pub fn is_path_like(said: &str) -> bool {
    said.starts_with("path:") || said.contains('/') || said.ends_with(".lua") || said.ends_with(".nix")
}

/// A profile that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: ProfileName,
    pub description: Option<String>,
}

/// Everything that can be chosen, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub profiles: Vec<Listed>,
    pub default: ProfileName,
    /// Why the registries cannot be relied on: then nothing but `inherit` can be chosen.
    pub problem: Option<String>,
    /// Nobody looked: every name is taken for one that is there.
    unseen: bool,
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    Inherit,
    Profile(ProfileName),
}

impl Offer {
    pub fn new(profiles: Vec<Listed>, default: ProfileName, problem: Option<String>) -> Offer {
        Offer { profiles, default, problem, unseen: false }
    }

    /// For those who know only what was chosen in the end: a replay.
    pub fn unseen() -> Offer {
        let default = ProfileName::new(Source::Builtin, DEFAULT);
        Offer { profiles: Vec::new(), default, problem: None, unseen: true }
    }

    /// What a selector chooses.
    pub fn choose(&self, said: Option<&str>) -> Result<Choice, ProfileError> {
        let selector = Selector::read(said).map_err(|e| e.with(self))?;
        if selector == Selector::Inherit {
            return Ok(Choice::Inherit);
        }
        if let Some(problem) = &self.problem {
            let said = said.unwrap_or(DEFAULT).trim().to_owned();
            return Err(ProfileError::Problem { said, problem: problem.clone() });
        }
        let name = match selector {
            Selector::Default | Selector::Inherit => return Ok(Choice::Profile(self.default.clone())),
            Selector::Full(name) if self.unseen => name,
            Selector::Bare(name) if self.unseen => ProfileName::new(Source::Builtin, name),
            Selector::Full(name) => {
                let there = self.profiles.iter().any(|profile| profile.name == name);
                let said = name.to_string();
                if there { name } else { return Err(ProfileError::NotFound(said).with(self)) }
            }
            Selector::Bare(name) => self.bare(&name)?,
        };
        Ok(Choice::Profile(name))
    }

    fn bare(&self, name: &str) -> Result<ProfileName, ProfileError> {
        let mut found = self.profiles.iter().map(|profile| &profile.name).filter(|full| full.name == name);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only.clone()),
            (Some(first), Some(second)) => {
                let all = [first, second].into_iter().chain(found).map(ToString::to_string).collect();
                Err(ProfileError::Ambiguous { said: name.to_owned(), candidates: all })
            }
            (None, _) => Err(ProfileError::NotFound(name.to_owned()).with(self)),
        }
    }

    /// The list before a model: full names, which one is the default, what each is for, and what went wrong.
    pub fn listing(&self) -> String {
        let mut text = format!("`{INHERIT}` (your own configuration)");
        let mut left = 0;
        for profile in &self.profiles {
            let default = if profile.name == self.default { " (default)" } else { "" };
            let about = profile.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
            let line = format!("; {}{default}{about}", profile.name);
            if text.len() + line.len() > LISTED_BYTES {
                left += 1;
            } else {
                text.push_str(&line);
            }
        }
        if left > 0 {
            text.push_str(&format!("; and {left} more"));
        }
        if let Some(problem) = &self.problem {
            text.push_str(&format!(". None but `{INHERIT}` can be used now: {problem}"));
        }
        text
    }

    fn selectors(&self) -> Vec<String> {
        let all = self.profiles.iter().map(|profile| profile.name.to_string());
        std::iter::once(INHERIT.to_owned()).chain(all).collect()
    }
}

/// Why a selector chooses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileError {
    /// It names a file: a model may pick registered profiles, never files.
    PathLike(String),
    UnknownPrefix(String),
    /// There is nothing after the prefix.
    EmptyName(String),
    NotFound(String),
    Ambiguous {
        said: String,
        candidates: Vec<String>,
    },
    /// The registries themselves are broken.
    Problem {
        said: String,
        problem: String,
    },
    /// One of the others, with what can be chosen.
    Usable {
        why: Box<ProfileError>,
        usable: Vec<String>,
    },
}

impl ProfileError {
    fn with(self, offer: &Offer) -> ProfileError {
        ProfileError::Usable { why: Box::new(self), usable: offer.selectors() }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::PathLike(said) => write!(
                f,
                "profile `{}` names a file, and only registered profiles can be chosen here",
                shown(said)
            ),
            ProfileError::UnknownPrefix(said) => {
                let known: Vec<&str> = Source::ALL.into_iter().map(Source::as_str).collect();
                write!(
                    f,
                    "profile `{}` has a prefix that is none: there are {}",
                    shown(said),
                    known.join(", ")
                )
            }
            ProfileError::EmptyName(said) => {
                write!(f, "profile `{}` has no name after the prefix", shown(said))
            }
            ProfileError::NotFound(said) => write!(f, "there is no profile `{}`", shown(said)),
            ProfileError::Ambiguous { said, candidates } => write!(
                f,
                "profile `{}` could be {}: use the full name",
                shown(said),
                quoted(candidates).join(" or ")
            ),
            ProfileError::Problem { said, problem } => {
                write!(f, "profile `{}` cannot be looked up: {problem}", shown(said))
            }
            ProfileError::Usable { why, usable } => {
                write!(f, "{why}; usable are {}", quoted(usable).join(", "))
            }
        }
    }
}

impl std::error::Error for ProfileError {}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

fn shown(said: &str) -> String {
    let mut text: String = said.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if said.chars().nth(SHOWN_CHARS).is_some() {
        text.push('…');
    }
    text
}

/// The manifest of a child that inherits: its parent's, without what is never passed on. Its scope, budget and
/// permissions come from its session and its mandate.
pub fn inherited(parent: &Manifest) -> Manifest {
    let mut child = parent.clone();
    child.budget = Default::default();
    // Its scope is its loan.
    child.scope = Default::default();
    child.left_out.clear();
    child.pod.name = None;
    // That it may answer is the person's word about the parent alone.
    child.permissions.may_answer = false;
    child
}

/// Holds a child's manifest to what its parent has, whatever a profile said.
pub fn confine(child: Manifest, parent: &Manifest) -> Manifest {
    let mut child = inherited(&child);
    let (may, has) = (&mut child.permissions, &parent.permissions);
    may.posture = match (may.posture, has.posture) {
        (Some(wished), Some(most)) => Some(wished.min(most)),
        (wished, most) => wished.or(most),
    };
    may.default_action = stricter(may.default_action.take(), has.default_action.clone());
    let own = std::mem::take(&mut may.rule);
    let tightening = own.into_iter().filter(|rule| rule.action != Judgement::Allow);
    may.rule.clone_from(&has.rule);
    may.rule.extend(tightening.filter(|rule| !has.rule.contains(rule)));
    may.rules = has.rules.clone();
    may.ask_expires_s = match (may.ask_expires_s, has.ask_expires_s) {
        (Some(own), Some(most)) => Some(own.min(most)),
        (own, most) => own.or(most),
    };

    let (box_, most) = (&mut child.sandbox, &parent.sandbox);
    if box_.mode != SandboxMode::ReadOnly {
        box_.mode = most.mode;
    }
    box_.network = common_network(&box_.network, &most.network);
    box_.writable_tmp &= most.writable_tmp;
    box_.env.pass.retain(|name| most.env.pass.contains(name));
    box_.lifted.clone_from(&most.lifted);
    box_.broad_roots.clone_from(&most.broad_roots);

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
    // Hooks can refuse what rules would allow.
    child.hooks.enabled |= parent.hooks.enabled;
    child
}

fn stricter(a: Option<Judgement>, b: Option<Judgement>) -> Option<Judgement> {
    let rank = |judgement: &Judgement| match judgement {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        // What is not known here is held to be the strictest.
        Judgement::Deny | Judgement::Other(_) => 2,
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if rank(&a) >= rank(&b) { a } else { b }),
        // A parent that leaves it to its posture never said that everything is allowed.
        (Some(Judgement::Allow), None) => None,
        (a, b) => a.or(b),
    }
}

/// The hosts that both may reach.
fn common_network(own: &Network, most: &Network) -> Network {
    match (own, most) {
        (Network::Off, _) | (_, Network::Off) => Network::Off,
        (own, Network::On) => own.clone(),
        (Network::On, most) => most.clone(),
        (Network::Hosts(own), Network::Hosts(most)) => {
            let within = |host: &&String| most.iter().any(|wider| covers(wider, host));
            let both: Vec<String> = own.iter().filter(within).cloned().collect();
            if both.is_empty() { Network::Off } else { Network::Hosts(both) }
        }
    }
}

/// Whether a granted name holds for another one.
fn covers(wider: &str, host: &str) -> bool {
    wider == host || wider.strip_prefix('*').is_some_and(|end| end.starts_with('.') && host.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_policy::{Posture, Rule};

    fn offer() -> Offer {
        let listed = |source, name: &str| Listed {
            name: ProfileName::new(source, name),
            description: Some(format!("about {name}")),
        };
        let profiles = vec![
            listed(Source::Builtin, "default"),
            listed(Source::Builtin, "coder"),
            listed(Source::User, "coder"),
            listed(Source::Project, "mine"),
        ];
        Offer::new(profiles, ProfileName::new(Source::Project, "mine"), None)
    }

    #[test]
    fn each_bad_selector_has_its_own_error_and_lists_what_can_be_chosen() {
        for (said, words) in [
            ("path:x", "names a file"),
            ("profiles/x", "names a file"),
            (" x.lua ", "names a file"),
            ("x.nix", "names a file"),
            ("./x", "names a file"),
            ("else:x", "a prefix that is none: there are builtin, user, project"),
            ("user:", "no name after the prefix"),
            ("builtin: ", "no name after the prefix"),
            ("user:mine", "there is no profile `user:mine`"),
            ("reviewer", "there is no profile `reviewer`"),
        ] {
            let text = offer().choose(Some(said)).unwrap_err().to_string();
            assert!(text.contains(words), "{said}: {text}");
            assert!(text.contains("`inherit`, `builtin:default`, `builtin:coder`"), "{text}");
        }
        let ambiguous = offer().choose(Some("coder")).unwrap_err().to_string();
        assert!(ambiguous.contains("`builtin:coder` or `user:coder`"), "{ambiguous}");
    }

    #[test]
    fn a_selector_chooses() {
        let profile = |source, name| Ok(Choice::Profile(ProfileName::new(source, name)));
        for said in [None, Some(""), Some("  "), Some("default"), Some(" mine "), Some("project:mine")] {
            assert_eq!(offer().choose(said), profile(Source::Project, "mine"), "{said:?}");
        }
        assert_eq!(offer().choose(Some("user:coder")), profile(Source::User, "coder"));
        assert_eq!(offer().choose(Some("builtin:default")), profile(Source::Builtin, "default"));
        assert_eq!(offer().choose(Some(" inherit ")), Ok(Choice::Inherit));
        let listing = offer().listing();
        assert!(listing.contains("project:mine (default): about mine"), "{listing}");
    }

    #[test]
    fn where_the_registries_are_broken_inherit_is_left() {
        let broken = Offer { problem: Some("profiles.toml: line 3".to_owned()), ..offer() };
        assert_eq!(broken.choose(Some("inherit")), Ok(Choice::Inherit));
        for said in [None, Some("default"), Some("builtin:coder"), Some("nothing")] {
            let text = broken.choose(said).unwrap_err().to_string();
            assert!(text.contains("profiles.toml: line 3"), "{text}");
        }
        assert!(broken.listing().contains("profiles.toml: line 3"));
        assert!(broken.choose(Some("a/b")).unwrap_err().to_string().contains("names a file"));
    }

    /// Every key that could free a child, freed by its profile.
    #[test]
    fn a_child_is_never_freer_than_its_parent() {
        let rule = |action: &str| -> Rule {
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
        parent.sandbox.network = Network::Hosts(vec!["a.org".into(), "*.b.org".into()]);
        parent.sandbox.writable_tmp = false;
        parent.worker.instruction = "Review.".to_owned();

        let mut wished = Manifest::default();
        wished.pod.limits.depth = 20;
        wished.budget.tokens = Some(9_000);
        wished.permissions.may_answer = true;
        wished.permissions.posture = Some(Posture::Full);
        wished.permissions.default_action = Some(Judgement::Allow);
        wished.permissions.rule = vec![rule("allow"), rule("ask")];
        wished.sandbox.mode = SandboxMode::Off;
        wished.sandbox.network = Network::On;
        wished.sandbox.env.pass = vec!["SECRET".to_owned()];
        wished.sandbox.lifted = vec!["/w/.git/config".to_owned()];
        parent.sandbox.broad_roots = vec!["/home/ada".to_owned()];
        wished.web = Some(Default::default());
        wished.hooks.enabled = false;
        let child = confine(wished.clone(), &parent);
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

        wished.sandbox.network = Network::Hosts(vec!["x.b.org".into(), "c.org".into(), "b.org".into()]);
        let child = confine(wished.clone(), &parent);
        assert_eq!(child.sandbox.network, Network::Hosts(vec!["x.b.org".into()]));
        parent.permissions.default_action = None;
        assert_eq!(confine(wished.clone(), &parent).permissions.default_action, None);
        // What tightens stays.
        wished.permissions.posture = Some(Posture::Plan);
        wished.sandbox.network = Network::Off;
        let child = confine(wished, &parent);
        assert_eq!((child.permissions.posture, child.sandbox.network), (Some(Posture::Plan), Network::Off));
        let same = inherited(&parent);
        assert_eq!(same.worker.instruction, "Review.");
        assert!(same.budget.is_empty() && !same.permissions.may_answer);
    }
}
