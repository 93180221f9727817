//! Scope arithmetic: access to paths, and what a pod may lend.
//!
//! This module computes the access to a path and compares and combines whole scopes. `files` and `exec`
//! resolve paths, `registry` knows the scopes of the pods on this machine. Paths are compared as text. A path
//! that is not canonical has no access; it is not normalized.
//! Invariant: no operation grants more than its inputs (`the_laws_hold_for_random_triples`, which compares
//! with an independent evaluation of the rules, path by path).

use std::collections::BTreeSet;

use minke_record::{Permission, Scope, ScopeRule};

/// The access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessLevel {
    None,
    Read,
    Write,
}

impl AccessLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            AccessLevel::None => "none",
            AccessLevel::Read => "read",
            AccessLevel::Write => "write",
        }
    }

    fn permission(self) -> Option<Permission> {
        match self {
            AccessLevel::None => None,
            AccessLevel::Read => Some(Permission::Read),
            AccessLevel::Write => Some(Permission::Write),
        }
    }
}

/// A path that two scopes could both write, with the rules that allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOverlap {
    /// The topmost common path; the overlap is this path or below it.
    pub path: String,
    pub first: ScopeRule,
    pub second: ScopeRule,
}

/// Returns the access to a path: the highest matching allow, capped strictly below the level of every
/// matching deny. A path that is not absolute and canonical has no access.
pub fn access_level(scope: &Scope, path: &str) -> AccessLevel {
    if is_canonical(path) {
        ValidRules::new(scope).level_at(PathSpot { path, depth: 0 })
    } else {
        AccessLevel::None
    }
}

/// Returns whether a path is absolute and has no empty, `.` or `..` component, no NUL and no trailing `/`.
pub fn is_canonical(path: &str) -> bool {
    let Some(below) = path.strip_prefix('/') else { return false };
    !path.contains('\0')
        && (below.is_empty() || below.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// Returns the first invalid rule, to check a scope where it enters the system.
///
/// Elsewhere an invalid rule restricts its owner: as an allow it covers nothing, as a deny it covers
/// everything.
pub fn first_invalid_rule(scope: &Scope) -> Option<&ScopeRule> {
    scope.allow.iter().chain(&scope.deny).find(|rule| !is_valid_rule(rule))
}

/// Returns whether `inner` grants nowhere more than `outer`.
pub fn scope_contains(outer: &Scope, inner: &Scope) -> bool {
    first_excess(outer, inner).is_none()
}

/// Returns a path at which `inner` has more access than `outer`, with the access of `outer` and of `inner`.
pub fn first_excess(outer: &Scope, inner: &Scope) -> Option<(String, AccessLevel, AccessLevel)> {
    let (outer, inner) = (ValidRules::new(outer), ValidRules::new(inner));
    all_spots(&outer, &inner)
        .map(|spot| (spot, outer.level_at(spot), inner.level_at(spot)))
        .find(|(_, have, want)| want > have)
        .map(|(spot, have, want)| (spot.path.to_owned(), have, want))
}

/// Returns a path that both scopes could write, if there is one.
pub fn find_write_overlap(a: &Scope, b: &Scope) -> Option<WriteOverlap> {
    let (first, second) = (ValidRules::new(a), ValidRules::new(b));
    let both = |spot: &PathSpot<'_>| first.level_at(*spot).min(second.level_at(*spot)) == AccessLevel::Write;
    let spot = all_spots(&first, &second).find(both)?;
    let rule = |scope: &Scope| {
        let mut rules = scope.allow.iter();
        rules.find(|rule| rule.permission == Permission::Write && rule_covers(rule, spot)).cloned()
    };
    Some(WriteOverlap { path: spot.path.to_owned(), first: rule(a)?, second: rule(b)? })
}

/// Returns the scope of a child: its request, restricted to the scope of the parent. The denies of both
/// remain.
///
/// One case loses access on purpose. If a non-recursive rule meets a rule for one of its direct children,
/// they have only that single path in common, without its content. No rule can express that, so the child
/// does not get it.
pub fn narrow_scope(parent: &Scope, request: &Scope) -> Scope {
    let mut allow: Vec<ScopeRule> = Vec::new();
    for wanted in &request.allow {
        for granted in &parent.allow {
            if let Some(rule) = intersect_rules(granted, wanted)
                && !allow.iter().any(|other| rule_includes(other, &rule))
            {
                allow.retain(|other| !rule_includes(&rule, other));
                allow.push(rule);
            }
        }
    }
    let mut deny = parent.deny.clone();
    deny.extend(request.deny.iter().filter(|rule| !parent.deny.contains(rule)).cloned());
    Scope { allow, deny }
}

/// Removes a loan from the lender's scope: the lender may only read where the loan could write. `add_back`
/// reverts it.
///
/// Every write rule of the loan is removed completely, including denies inside the loan: until the loan is
/// returned, the lender may not write there either.
pub fn subtract_loan(scope: &Scope, loan: &Scope) -> Scope {
    let mut rest = scope.clone();
    rest.deny.extend(lent_rules(loan).cloned());
    rest
}

/// Adds a returned loan back to the lender's scope; returns `None` if it was not lent.
pub fn return_loan(scope: &Scope, loan: &Scope) -> Option<Scope> {
    let mut whole = scope.clone();
    for rule in lent_rules(loan) {
        // The last of several equal denies: the earlier ones belong to the scope itself.
        let place = whole.deny.iter().rposition(|deny| deny == rule)?;
        whole.deny.remove(place);
    }
    Some(whole)
}

/// Returns a deny inside a write grant. A sandbox that can only add rights cannot enforce it.
pub fn deny_inside_write(scope: &Scope) -> Option<&ScopeRule> {
    scope.deny.iter().find(|deny| {
        let touched = scope.allow.iter().filter(|allow| allow.permission == Permission::Write);
        !is_valid_rule(deny) || touched.into_iter().any(|allow| rules_intersect(allow, deny))
    })
}

/// Formats the scope for the greeting: two lists with headings, one path per line.
pub fn scope_listing(scope: &Scope) -> String {
    let lines = |wanted: Permission| {
        let rules = scope.allow.iter().filter(|rule| rule.permission == wanted);
        let mut lines: Vec<String> = rules.map(|rule| listing_line(scope, rule)).collect();
        if lines.is_empty() {
            lines.push(" - (none)".to_owned());
        }
        lines.join("\n")
    };
    format!("Writable:\n{}\nReadable:\n{}", lines(Permission::Write), lines(Permission::Read))
}

/// Formats ` - path` with the exceptions below it.
fn listing_line(scope: &Scope, rule: &ScopeRule) -> String {
    let mut text = format!(" - {}", rule.target);
    if !rule.recursive {
        text.push_str(" [non-recursive]");
    }
    for deny in scope.deny.iter().filter(|deny| rules_intersect(rule, deny)) {
        let rest = match (&deny.permission, &rule.permission) {
            (Permission::Write, Permission::Write) => "read-only",
            (Permission::Write, _) => continue,
            _ => "not",
        };
        text.push_str(&format!(" [{rest}: {}]", deny.target));
    }
    text
}

/// A position in the tree of paths: a target, or a path below it that leads to no other target.
///
/// The rules distinguish only three depths below the nearest target: zero, one and more. So these positions
/// represent all paths.
#[derive(Debug, Clone, Copy)]
struct PathSpot<'a> {
    path: &'a str,
    depth: u8,
}

/// Returns every position that the rules of two scopes can distinguish, topmost first.
fn all_spots<'a>(a: &ValidRules<'a>, b: &ValidRules<'a>) -> impl Iterator<Item = PathSpot<'a>> + use<'a> {
    let rules = a.allow.iter().chain(&a.deny).chain(&b.allow).chain(&b.deny);
    let mut targets: BTreeSet<&str> = rules.map(|rule| rule.target.as_str()).collect();
    targets.insert("/");
    targets.into_iter().flat_map(|path| (0..=2).map(move |depth| PathSpot { path, depth }))
}

/// The valid rules of a scope.
struct ValidRules<'a> {
    allow: Vec<&'a ScopeRule>,
    deny: Vec<&'a ScopeRule>,
    /// The scope has an invalid deny, so it grants nothing.
    closed: bool,
}

impl<'a> ValidRules<'a> {
    fn new(scope: &'a Scope) -> ValidRules<'a> {
        let good =
            |rules: &'a [ScopeRule]| rules.iter().filter(|rule| is_valid_rule(rule)).collect::<Vec<_>>();
        let deny = good(&scope.deny);
        ValidRules { allow: good(&scope.allow), closed: deny.len() < scope.deny.len(), deny }
    }

    fn level_at(&self, spot: PathSpot<'_>) -> AccessLevel {
        if self.closed {
            return AccessLevel::None;
        }
        let covering = |rules: &[&'a ScopeRule], wanted: Permission| {
            rules.iter().any(|rule| rule.permission == wanted && rule_covers(rule, spot))
        };
        if covering(&self.deny, Permission::Read) {
            AccessLevel::None
        } else if covering(&self.allow, Permission::Write) && !covering(&self.deny, Permission::Write) {
            AccessLevel::Write
        } else if covering(&self.allow, Permission::Write) || covering(&self.allow, Permission::Read) {
            AccessLevel::Read
        } else {
            AccessLevel::None
        }
    }
}

fn rule_level(rule: &ScopeRule) -> AccessLevel {
    match rule.permission {
        Permission::Write => AccessLevel::Write,
        Permission::Read => AccessLevel::Read,
        Permission::Other(_) => AccessLevel::None,
    }
}

fn is_valid_rule(rule: &ScopeRule) -> bool {
    is_canonical(&rule.target) && !matches!(rule.permission, Permission::Other(_))
}

fn rule_covers(rule: &ScopeRule, spot: PathSpot<'_>) -> bool {
    if rule.recursive {
        return is_at_or_below(spot.path, &rule.target);
    }
    match spot.depth {
        0 => spot.path == rule.target || parent_path(spot.path) == Some(rule.target.as_str()),
        1 => spot.path == rule.target,
        _ => false,
    }
}

/// Returns whether a path is a directory or is below it.
pub(crate) fn is_at_or_below(path: &str, directory: &str) -> bool {
    path_below(path, directory).is_some()
}

/// Returns the part of a path below a directory; empty if it is the directory itself.
pub(crate) fn path_below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory.strip_suffix('/').unwrap_or(directory))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn parent_path(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('/')?;
    match (above, name) {
        ("", "") => None,
        ("", _) => Some("/"),
        _ => Some(above),
    }
}

/// Returns the write rules of a loan, which become denies of the lender.
fn lent_rules(loan: &Scope) -> impl Iterator<Item = &ScopeRule> {
    loan.allow.iter().filter(|rule| rule.permission == Permission::Write && is_valid_rule(rule))
}

/// Returns the rule for the intersection of two rules, if one rule can express it.
fn intersect_rules(a: &ScopeRule, b: &ScopeRule) -> Option<ScopeRule> {
    if !is_valid_rule(a) || !is_valid_rule(b) {
        return None;
    }
    let permission = rule_level(a).min(rule_level(b)).permission()?;
    let (outer, inner) = if is_at_or_below(&b.target, &a.target) { (a, b) } else { (b, a) };
    let same = outer.target == inner.target;
    if !is_at_or_below(&inner.target, &outer.target) || (!outer.recursive && !same) {
        return None;
    }
    Some(ScopeRule {
        target: inner.target.clone(),
        permission,
        recursive: inner.recursive && outer.recursive,
    })
}

/// Returns whether two rules cover a common path.
fn rules_intersect(a: &ScopeRule, b: &ScopeRule) -> bool {
    let reaches =
        |outer: &ScopeRule, inner: &ScopeRule| rule_covers(outer, PathSpot { path: &inner.target, depth: 0 });
    reaches(a, b) || reaches(b, a)
}

/// Returns whether one allow grants everything that the other grants.
fn rule_includes(outer: &ScopeRule, inner: &ScopeRule) -> bool {
    rule_level(outer) >= rule_level(inner)
        && if outer.recursive {
            is_at_or_below(&inner.target, &outer.target)
        } else {
            !inner.recursive && inner.target == outer.target
        }
}
