//! Scope arithmetic: what a pod may touch, and what it may lend.
//!
//! Here: the level of a path and the comparisons and cuts of whole scopes. Elsewhere: where a path really leads (`files`,
//! `exec`), who holds what on this machine (`registry`).
//! Paths are compared as they are written, and one that is not canonical has no level: it is never worked out.
//! Invariant: no operation gives more than it was given (`the_laws_hold_for_random_triples`, which compares with an
//! independent reading of the rules, path by path).

use std::collections::BTreeSet;

use minke_record::{Permission, Scope, ScopeRule};

/// What may be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    None,
    Read,
    Write,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Read => "read",
            Level::Write => "write",
        }
    }

    fn permission(self) -> Option<Permission> {
        match self {
            Level::None => None,
            Level::Read => Some(Permission::Read),
            Level::Write => Some(Permission::Write),
        }
    }
}

/// Where two scopes could both write, and the rules that say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The topmost such place; everything that overlaps there is it or lies below it.
    pub path: String,
    pub first: ScopeRule,
    pub second: ScopeRule,
}

/// The level of a path: the highest allow that covers it, then every deny that covers it caps strictly below its own
/// level. A path that is not absolute and canonical has none.
pub fn level(scope: &Scope, path: &str) -> Level {
    if is_canonical(path) { Rules::of(scope).at(Spot { path, below: 0 }) } else { Level::None }
}

/// Whether a path is absolute and has no empty, `.` or `..` part, no NUL and no `/` at its end.
pub fn is_canonical(path: &str) -> bool {
    let Some(below) = path.strip_prefix('/') else { return false };
    !path.contains('\0')
        && (below.is_empty() || below.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// The first rule whose target or permission means nothing, for the door where a scope comes in.
///
/// Where one is met all the same, it works against its holder: as an allow it covers nothing, as a deny everything.
pub fn bad_rule(scope: &Scope) -> Option<&ScopeRule> {
    scope.allow.iter().chain(&scope.deny).find(|rule| !is_good(rule))
}

/// Whether `inner` has nowhere more than `outer`.
pub fn contains(outer: &Scope, inner: &Scope) -> bool {
    first_excess(outer, inner).is_none()
}

/// A path at which `inner` has more than `outer`, with what `outer` has there and what `inner` wants.
pub fn first_excess(outer: &Scope, inner: &Scope) -> Option<(String, Level, Level)> {
    let (outer, inner) = (Rules::of(outer), Rules::of(inner));
    spots(&outer, &inner)
        .map(|spot| (spot, outer.at(spot), inner.at(spot)))
        .find(|(_, have, want)| want > have)
        .map(|(spot, have, want)| (spot.path.to_owned(), have, want))
}

/// Where both scopes could write, if anywhere.
pub fn overlaps_write(a: &Scope, b: &Scope) -> Option<Overlap> {
    let (first, second) = (Rules::of(a), Rules::of(b));
    let both = |spot: &Spot<'_>| first.at(*spot).min(second.at(*spot)) == Level::Write;
    let spot = spots(&first, &second).find(both)?;
    let rule = |scope: &Scope| {
        let mut rules = scope.allow.iter();
        rules.find(|rule| rule.permission == Permission::Write && covers(rule, spot)).cloned()
    };
    Some(Overlap { path: spot.path.to_owned(), first: rule(a)?, second: rule(b)? })
}

/// What a child gets: its request, cut down to what the parent has; the denies of both stay.
///
/// One thing is lost on purpose. Where a non-recursive rule meets a rule for one of its direct children, only that one
/// path is common, without what is below it. No rule can say that, so the child does not get it.
pub fn narrow(parent: &Scope, request: &Scope) -> Scope {
    let mut allow: Vec<ScopeRule> = Vec::new();
    for wanted in &request.allow {
        for granted in &parent.allow {
            if let Some(rule) = meet(granted, wanted)
                && !allow.iter().any(|other| includes(other, &rule))
            {
                allow.retain(|other| !includes(&rule, other));
                allow.push(rule);
            }
        }
    }
    let mut deny = parent.deny.clone();
    deny.extend(request.deny.iter().filter(|rule| !parent.deny.contains(rule)).cloned());
    Scope { allow, deny }
}

/// What is left to a lender: where the loan could write, it may only read. `add_back` undoes it.
///
/// The whole of each write rule is taken from the lender, denies inside the loan too: what the borrower may not write
/// there, the lender may not either until the loan is back.
pub fn subtract(scope: &Scope, loan: &Scope) -> Scope {
    let mut rest = scope.clone();
    rest.deny.extend(lent(loan).cloned());
    rest
}

/// A scope to which a loan came back; none if the loan was not out.
pub fn add_back(scope: &Scope, loan: &Scope) -> Option<Scope> {
    let mut whole = scope.clone();
    for rule in lent(loan) {
        // The last of its equals: the earlier ones are the scope's own.
        let place = whole.deny.iter().rposition(|deny| deny == rule)?;
        whole.deny.remove(place);
    }
    Some(whole)
}

/// The deny that lies inside a write grant, if there is one: a fence that can only add rights cannot hold it.
pub fn deny_inside_write(scope: &Scope) -> Option<&ScopeRule> {
    scope.deny.iter().find(|deny| {
        let touched = scope.allow.iter().filter(|allow| allow.permission == Permission::Write);
        !is_good(deny) || touched.into_iter().any(|allow| meets(allow, deny))
    })
}

/// The scope as the greeting shows it: two headed lists, one path a line.
pub fn listing(scope: &Scope) -> String {
    let lines = |wanted: Permission| {
        let rules = scope.allow.iter().filter(|rule| rule.permission == wanted);
        let mut lines: Vec<String> = rules.map(|rule| line(scope, rule)).collect();
        if lines.is_empty() {
            lines.push(" - (none)".to_owned());
        }
        lines.join("\n")
    };
    format!("Writable:\n{}\nReadable:\n{}", lines(Permission::Write), lines(Permission::Read))
}

/// ` - path`, and what a reader would otherwise get wrong about it.
fn line(scope: &Scope, rule: &ScopeRule) -> String {
    let mut text = format!(" - {}", rule.target);
    if !rule.recursive {
        text.push_str(" [non-recursive]");
    }
    for deny in scope.deny.iter().filter(|deny| meets(rule, deny)) {
        let rest = match (&deny.permission, &rule.permission) {
            (Permission::Write, Permission::Write) => "read-only",
            (Permission::Write, _) => continue,
            _ => "not",
        };
        text.push_str(&format!(" [{rest}: {}]", deny.target));
    }
    text
}

/// A place in the tree of paths: a target, or any path one or more steps below it that leads to no other target.
///
/// These are all there are to look at. How deep a path lies below the deepest target above it (none, one, more) is all
/// that the rules can tell apart.
#[derive(Debug, Clone, Copy)]
struct Spot<'a> {
    path: &'a str,
    below: u8,
}

/// Every spot that the rules of two scopes can tell apart, topmost first.
fn spots<'a>(a: &Rules<'a>, b: &Rules<'a>) -> impl Iterator<Item = Spot<'a>> + use<'a> {
    let rules = a.allow.iter().chain(&a.deny).chain(&b.allow).chain(&b.deny);
    let mut targets: BTreeSet<&str> = rules.map(|rule| rule.target.as_str()).collect();
    targets.insert("/");
    targets.into_iter().flat_map(|path| (0..=2).map(move |below| Spot { path, below }))
}

/// The rules of a scope that mean something.
struct Rules<'a> {
    allow: Vec<&'a ScopeRule>,
    deny: Vec<&'a ScopeRule>,
    /// A deny was among them that we do not understand, so nothing is left.
    closed: bool,
}

impl<'a> Rules<'a> {
    fn of(scope: &'a Scope) -> Rules<'a> {
        let good = |rules: &'a [ScopeRule]| rules.iter().filter(|rule| is_good(rule)).collect::<Vec<_>>();
        let deny = good(&scope.deny);
        Rules { allow: good(&scope.allow), closed: deny.len() < scope.deny.len(), deny }
    }

    fn at(&self, spot: Spot<'_>) -> Level {
        if self.closed {
            return Level::None;
        }
        let covering = |rules: &[&'a ScopeRule], wanted: Permission| {
            rules.iter().any(|rule| rule.permission == wanted && covers(rule, spot))
        };
        if covering(&self.deny, Permission::Read) {
            Level::None
        } else if covering(&self.allow, Permission::Write) && !covering(&self.deny, Permission::Write) {
            Level::Write
        } else if covering(&self.allow, Permission::Write) || covering(&self.allow, Permission::Read) {
            Level::Read
        } else {
            Level::None
        }
    }
}

fn rank(rule: &ScopeRule) -> Level {
    match rule.permission {
        Permission::Write => Level::Write,
        Permission::Read => Level::Read,
        Permission::Other(_) => Level::None,
    }
}

fn is_good(rule: &ScopeRule) -> bool {
    is_canonical(&rule.target) && !matches!(rule.permission, Permission::Other(_))
}

fn covers(rule: &ScopeRule, spot: Spot<'_>) -> bool {
    if rule.recursive {
        return is_beneath(spot.path, &rule.target);
    }
    match spot.below {
        0 => spot.path == rule.target || parent(spot.path) == Some(rule.target.as_str()),
        1 => spot.path == rule.target,
        _ => false,
    }
}

/// Whether a path is a directory or lies below it.
pub(crate) fn is_beneath(path: &str, directory: &str) -> bool {
    remainder(path, directory).is_some()
}

/// What of a path lies below a directory; empty if it is the directory.
pub(crate) fn remainder<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory.strip_suffix('/').unwrap_or(directory))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn parent(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('/')?;
    match (above, name) {
        ("", "") => None,
        ("", _) => Some("/"),
        _ => Some(above),
    }
}

/// The write rules of a loan, as the denies that they are to the lender.
fn lent(loan: &Scope) -> impl Iterator<Item = &ScopeRule> {
    loan.allow.iter().filter(|rule| rule.permission == Permission::Write && is_good(rule))
}

/// The rule for what two rules have in common, if one can say it.
fn meet(a: &ScopeRule, b: &ScopeRule) -> Option<ScopeRule> {
    if !is_good(a) || !is_good(b) {
        return None;
    }
    let permission = rank(a).min(rank(b)).permission()?;
    let (outer, inner) = if is_beneath(&b.target, &a.target) { (a, b) } else { (b, a) };
    let same = outer.target == inner.target;
    if !is_beneath(&inner.target, &outer.target) || (!outer.recursive && !same) {
        return None;
    }
    Some(ScopeRule {
        target: inner.target.clone(),
        permission,
        recursive: inner.recursive && outer.recursive,
    })
}

/// Whether two rules cover a path in common.
fn meets(a: &ScopeRule, b: &ScopeRule) -> bool {
    let reaches =
        |outer: &ScopeRule, inner: &ScopeRule| covers(outer, Spot { path: &inner.target, below: 0 });
    reaches(a, b) || reaches(b, a)
}

/// Whether one allow gives all that the other gives.
fn includes(outer: &ScopeRule, inner: &ScopeRule) -> bool {
    rank(outer) >= rank(inner)
        && if outer.recursive {
            is_beneath(&inner.target, &outer.target)
        } else {
            !inner.recursive && inner.target == outer.target
        }
}
