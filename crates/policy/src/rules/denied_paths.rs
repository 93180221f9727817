//! Paths that rules deny unconditionally, so that a sandbox can enforce them too.
//!
//! Only `deny` rules with a `path` and no other condition count. `git::scan` finds the existing paths, `exec`
//! enforces them.
//! Invariant: a path that the rules allow to read is never denied here (`a_more_specific_allow_wins`).

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use minke_record::{Judgement, Scope};

use super::matching::{ActionPart, decide_part};
use super::{LayeredRule, PolicyRule, RuleSet};
use crate::scope::path_below;
use crate::{PolicyContext, Posture, SandboxBackend};

/// The path rules of a pod, compiled for comparison with many paths.
#[derive(Debug, Clone)]
pub struct DeniedPaths {
    rules: RuleSet,
    scope: Scope,
    cwd: String,
    globs: GlobSet,
    /// Directories whose whole content is denied.
    directory_globs: GlobSet,
}

impl PartialEq for DeniedPaths {
    fn eq(&self, other: &DeniedPaths) -> bool {
        (&self.rules, &self.scope, &self.cwd) == (&other.rules, &other.scope, &other.cwd)
    }
}

impl DeniedPaths {
    /// Compiles the rules that deny a path unconditionally; returns `None` if there are none.
    pub fn new(rules: &RuleSet, scope: &Scope, cwd: &str) -> Option<DeniedPaths> {
        let (mut globs, mut directory_globs) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let mut any = false;
        let is_allow =
            |layered: &LayeredRule| layered.rule.action == Judgement::Allow && layered.rule.path.is_some();
        let has_exceptions = rules.rules.iter().any(is_allow);
        for placed in rules.rules.iter().filter(|placed| is_unconditional_deny(&placed.rule)) {
            let Some(path) = &placed.rule.path else { continue };
            any = true;
            // Loading rejects invalid globs.
            if let Some(glob) = build_glob(path) {
                globs.add(glob);
            }
            // If all of its content is denied, the directory itself is denied too, so that new files in it
            // are denied at once. This does not apply if a rule may allow a part of it again.
            let above = path.strip_suffix("/**").filter(|above| !above.is_empty() && *above != "**");
            if let Some(glob) = above.filter(|_| !has_exceptions).and_then(build_glob) {
                directory_globs.add(glob);
            }
        }
        let (globs, whole) = (globs.build().ok().filter(|_| any)?, directory_globs.build().ok()?);
        // Rules about tools and paths may allow a part of a denied path again.
        let about_paths = rules.rules.iter().filter(|layered| layered.rule.path.is_some());
        let rules = RuleSet { rules: about_paths.cloned().collect() };
        Some(DeniedPaths { rules, scope: scope.clone(), cwd: cwd.to_owned(), globs, directory_globs: whole })
    }

    /// Returns the absolute paths that rules name literally.
    pub fn literal_paths(&self) -> impl Iterator<Item = &str> {
        let globs = self.rules.rules.iter().filter(|layered| is_unconditional_deny(&layered.rule));
        let written = globs.filter_map(|placed| placed.rule.path.as_deref());
        let written = written.map(|path| path.strip_suffix("/**").unwrap_or(path));
        written
            .filter(|path| path.starts_with('/') && !path.contains(['*', '?', '[', '{', '\\']))
            .filter(|path| self.denies_path(path))
    }

    /// Returns whether an absolute path is denied.
    pub fn denies_path(&self, path: &str) -> bool {
        let below = |directory: &str| path_below(path, directory).filter(|rest| !rest.is_empty());
        let fits = |globs: &GlobSet| {
            globs.is_match(path)
                || below(&self.cwd).is_some_and(|spelling| globs.is_match(spelling))
                || self.scope.allow.iter().any(|rule| {
                    rule.target != self.cwd
                        && below(&rule.target).is_some_and(|spelling| globs.is_match(spelling))
                })
        };
        (fits(&self.globs) && self.is_denied_by_rules(path))
            || (!self.directory_globs.is_empty()
                && fits(&self.directory_globs)
                && self.is_denied_by_rules(&format!("{path}/x")))
    }

    /// Evaluates all layers: a more specific rule may allow the path again.
    fn is_denied_by_rules(&self, path: &str) -> bool {
        let context = PolicyContext {
            rules: &self.rules,
            cwd: &self.cwd,
            ..PolicyContext::new(Posture::Auto, &self.scope, SandboxBackend::Namespaces)
        };
        let decision = decide_part(&context, &ActionPart::Read(path));
        decision.is_some_and(|decided| decided.judgement == Judgement::Deny && !decided.is_uncertain)
    }
}

fn is_unconditional_deny(rule: &PolicyRule) -> bool {
    rule.action == Judgement::Deny && rule.tool.is_none() && rule.command.is_none() && rule.host.is_none()
}

fn build_glob(glob: &str) -> Option<Glob> {
    GlobBuilder::new(glob).literal_separator(true).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleLayer;

    fn rule_set(layer: RuleLayer, lines: &[&str]) -> RuleSet {
        let place = |line: &&str| LayeredRule {
            layer,
            origin: "test".to_owned(),
            rule: PolicyRule::parse(line).unwrap(),
        };
        RuleSet { rules: lines.iter().map(place).collect() }
    }

    fn is_path_denied(lines: &[&str], path: &str) -> bool {
        let scope = Scope::writable("/w");
        DeniedPaths::new(&rule_set(RuleLayer::User, lines), &scope, "/w")
            .is_some_and(|denied| denied.denies_path(path))
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
            assert_eq!(is_path_denied(&[&line], path), expected, "{glob} {path}");
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
            assert!(!is_path_denied(&[line], "/w/.env"), "{line}");
        }
    }

    #[test]
    fn a_more_specific_allow_wins() {
        let deny = "{ action = \"deny\", path = \"**/.env*\" }";
        let allow = "{ action = \"allow\", tool = \"Read\", path = \"**/.env.example\" }";
        assert!(
            is_path_denied(&[deny, allow], "/w/.env") && !is_path_denied(&[deny, allow], "/w/.env.example")
        );
        let mut two = rule_set(RuleLayer::User, &[allow]);
        two.rules.extend(rule_set(RuleLayer::Managed, &[deny]).rules);
        let scope = Scope::writable("/w");
        let denied = DeniedPaths::new(&two, &scope, "/w").unwrap();
        assert!(denied.denies_path("/w/.env.example"), "another layer does not loosen the rule");
    }
}
