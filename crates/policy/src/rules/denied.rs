//! Paths that rules deny outright: those that a sandbox can hold as well.
//!
//! Here: which rules count (those with a `path` and no other condition), and whether they deny a path. Elsewhere: which
//! paths exist (`git::scan`), what holds them (`exec`).
//! Invariant: a path that the rules do not deny to be read is never denied here (`a_more_specific_allow_wins`).

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use minke_record::{Judgement, Scope};

use super::fit::{Part, decide};
use super::{Placed, Rule, RuleSet};
use crate::scope::remainder;
use crate::{Judging, Posture, Tier};

/// The path rules of a pod, ready to be compared with many paths.
#[derive(Debug, Clone)]
pub struct DeniedPaths {
    rules: RuleSet,
    scope: Scope,
    cwd: String,
    globs: GlobSet,
    /// Directories of which everything is denied.
    whole: GlobSet,
}

impl PartialEq for DeniedPaths {
    fn eq(&self, other: &DeniedPaths) -> bool {
        (&self.rules, &self.scope, &self.cwd) == (&other.rules, &other.scope, &other.cwd)
    }
}

impl DeniedPaths {
    /// The rules that deny a path whatever else is true of the action; `None` if there is none.
    pub fn new(rules: &RuleSet, scope: &Scope, cwd: &str) -> Option<DeniedPaths> {
        let (mut globs, mut whole) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let mut any = false;
        let is_allow = |placed: &Placed| placed.rule.action == Judgement::Allow && placed.rule.path.is_some();
        let has_exceptions = rules.rules.iter().any(is_allow);
        for placed in rules.rules.iter().filter(|placed| is_plain_deny(&placed.rule)) {
            let Some(path) = &placed.rule.path else { continue };
            any = true;
            // Loading has refused what is no glob.
            if let Some(glob) = glob_of(path) {
                globs.add(glob);
            }
            // With all of its content denied the directory itself is held, so that what a command makes there is denied
            // at once; unless a rule may allow a part of it again.
            let above = path.strip_suffix("/**").filter(|above| !above.is_empty() && *above != "**");
            if let Some(glob) = above.filter(|_| !has_exceptions).and_then(glob_of) {
                whole.add(glob);
            }
        }
        let (globs, whole) = (globs.build().ok().filter(|_| any)?, whole.build().ok()?);
        // Rules about tools and paths may allow again what a wider rule denies.
        let about_paths = rules.rules.iter().filter(|placed| placed.rule.path.is_some());
        let rules = RuleSet { rules: about_paths.cloned().collect() };
        Some(DeniedPaths { rules, scope: scope.clone(), cwd: cwd.to_owned(), globs, whole })
    }

    /// Absolute paths that a rule writes out.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        let globs = self.rules.rules.iter().filter(|placed| is_plain_deny(&placed.rule));
        let written = globs.filter_map(|placed| placed.rule.path.as_deref());
        let written = written.map(|path| path.strip_suffix("/**").unwrap_or(path));
        written
            .filter(|path| path.starts_with('/') && !path.contains(['*', '?', '[', '{', '\\']))
            .filter(|path| self.holds(path))
    }

    /// Whether an absolute path is denied.
    pub fn holds(&self, path: &str) -> bool {
        let below = |directory: &str| remainder(path, directory).filter(|rest| !rest.is_empty());
        let fits = |globs: &GlobSet| {
            globs.is_match(path)
                || below(&self.cwd).is_some_and(|spelling| globs.is_match(spelling))
                || self.scope.allow.iter().any(|rule| {
                    rule.target != self.cwd
                        && below(&rule.target).is_some_and(|spelling| globs.is_match(spelling))
                })
        };
        (fits(&self.globs) && self.is_denied(path))
            || (!self.whole.is_empty() && fits(&self.whole) && self.is_denied(&format!("{path}/x")))
    }

    /// The word of all layers: a more specific rule may allow again.
    fn is_denied(&self, path: &str) -> bool {
        let by = Judging {
            rules: &self.rules,
            cwd: &self.cwd,
            ..Judging::new(Posture::Auto, &self.scope, Tier::A)
        };
        let decided = decide(&by, &Part::Reads(path));
        decided.is_some_and(|decided| decided.word == Judgement::Deny && !decided.maybe)
    }
}

fn is_plain_deny(rule: &Rule) -> bool {
    rule.action == Judgement::Deny && rule.tool.is_none() && rule.command.is_none() && rule.host.is_none()
}

fn glob_of(glob: &str) -> Option<Glob> {
    GlobBuilder::new(glob).literal_separator(true).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layer;

    fn rules(layer: Layer, lines: &[&str]) -> RuleSet {
        let place =
            |line: &&str| Placed { layer, origin: "test".to_owned(), rule: Rule::parse(line).unwrap() };
        RuleSet { rules: lines.iter().map(place).collect() }
    }

    fn held(lines: &[&str], path: &str) -> bool {
        let scope = Scope::write("/w");
        DeniedPaths::new(&rules(Layer::User, lines), &scope, "/w").is_some_and(|denied| denied.holds(path))
    }

    #[test]
    fn a_path_rule_without_conditions_holds_its_paths() {
        for (glob, path, expected) in [
            ("**/.env", "/w/.env", true),
            ("**/.env", "/w/a/b/.env", true),
            ("**/.env", "/w/.env.example", false),
            ("**/.env", "/elsewhere/.env", true),
            (".env", "/w/.env", true),
            (".env", "/w/a/.env", false),
            ("secrets/**", "/w/secrets", true),
            ("secrets/*", "/w/secrets/a", true),
            ("secrets/*", "/w/secrets", false),
            ("secrets", "/w/secrets", true),
            ("/w/a/*.pem", "/w/a/x.pem", true),
            ("/w/a/*.pem", "/w/a/b/x.pem", false),
            ("**", "/w/a", true),
        ] {
            let line = format!("{{ action = \"deny\", path = \"{glob}\" }}");
            assert_eq!(held(&[&line], path), expected, "{glob} {path}");
        }
    }

    #[test]
    fn rules_with_other_conditions_hold_nothing() {
        for line in [
            "{ action = \"ask\", path = \"**/.env\" }",
            "{ action = \"deny\", tool = \"Write\", path = \"**/.env\" }",
            "{ action = \"deny\", command = \"cat .env\" }",
            "{ action = \"deny\", tool = \"*\" }",
        ] {
            assert!(!held(&[line], "/w/.env"), "{line}");
        }
    }

    #[test]
    fn a_more_specific_allow_wins() {
        let deny = "{ action = \"deny\", path = \"**/.env*\" }";
        let allow = "{ action = \"allow\", tool = \"Read\", path = \"**/.env.example\" }";
        assert!(held(&[deny, allow], "/w/.env") && !held(&[deny, allow], "/w/.env.example"));
        let mut two = rules(Layer::User, &[allow]);
        two.rules.extend(rules(Layer::Managed, &[deny]).rules);
        let scope = Scope::write("/w");
        let denied = DeniedPaths::new(&two, &scope, "/w").unwrap();
        assert!(denied.holds("/w/.env.example"), "another layer does not loosen");
    }
}
