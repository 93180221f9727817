//! The laws of scopes, checked against an independent reading of the rules.
//!
//! The oracle knows a small tree of paths and, for every rule, the set of those that it covers, worked out part by part.
//! A scope is then two sets, readable and writable, and a law is a statement about sets. `MINKE_LONG=1` does ten million
//! triples instead of the ordinary number.

use minke_policy::{
    Level, add_back, bad_rule, contains, deny_inside_write, first_excess, is_canonical, level, listing,
    narrow, overlaps_write, subtract,
};
use minke_record::{Permission, Scope, ScopeRule};

const TRIPLES: u64 = 100_000;
const MANY_TRIPLES: u64 = 10_000_000;

/// One name is the beginning of the other, so that comparing texts instead of parts is caught.
const NAMES: [&str; 2] = ["a", "ab"];
/// No rule speaks of it.
const OTHER: &str = "b";

/// The small tree: the paths that rules may name, and for each of those what lies beside all rules one, two and three
/// steps below.
struct Universe {
    targets: Vec<String>,
    paths: Vec<String>,
    /// For each target, recursive or not: which paths it covers.
    covered: Vec<[u64; 2]>,
}

impl Universe {
    fn new() -> Universe {
        let mut targets = vec!["/".to_owned()];
        let mut level = vec![String::new()];
        for _ in 0..3 {
            level = level.iter().flat_map(|above| NAMES.map(|name| format!("{above}/{name}"))).collect();
            targets.extend(level.clone());
        }
        let mut paths = targets.clone();
        for target in &targets {
            let base = target.trim_end_matches('/');
            paths.push(format!("{base}/{OTHER}"));
            paths.push(format!("{base}/{OTHER}/{OTHER}"));
            paths.push(format!("{base}/{OTHER}/{OTHER}/{OTHER}"));
        }
        assert!(paths.len() <= 64, "a set of paths is 64 bits");
        let covered = targets
            .iter()
            .map(|target| [false, true].map(|recursive| covered_by(target, recursive, &paths)))
            .collect();
        Universe { targets, paths, covered }
    }

    fn covers(&self, rule: &ScopeRule) -> u64 {
        let place = self.targets.iter().position(|target| *target == rule.target).expect("a known target");
        self.covered[place][usize::from(rule.recursive)]
    }

    fn sets(&self, scope: &Scope) -> Sets {
        let all = |rules: &[ScopeRule], wanted: &Permission| {
            let rules = rules.iter().filter(|rule| rule.permission == *wanted);
            rules.fold(0, |set, rule| set | self.covers(rule))
        };
        let write = all(&scope.allow, &Permission::Write);
        let read = all(&scope.allow, &Permission::Read) | write;
        let no_write = all(&scope.deny, &Permission::Write);
        let no_read = all(&scope.deny, &Permission::Read);
        Sets { read: read & !no_read, write: write & !no_write & !no_read }
    }
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

fn covered_by(target: &str, recursive: bool, paths: &[String]) -> u64 {
    let target = parts(target);
    let covers = |path: &str| {
        let path = parts(path);
        let below = path.len().wrapping_sub(target.len());
        path.len() >= target.len() && path[..target.len()] == target[..] && (recursive || below <= 1)
    };
    paths.iter().enumerate().filter(|(_, path)| covers(path)).fold(0, |set, (place, _)| set | 1 << place)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sets {
    read: u64,
    write: u64,
}

impl Sets {
    fn within(self, other: Sets) -> bool {
        self.read & !other.read == 0 && self.write & !other.write == 0
    }

    fn both(self, other: Sets) -> Sets {
        Sets { read: self.read & other.read, write: self.write & other.write }
    }

    fn level(self, place: usize) -> Level {
        match (self.write >> place & 1, self.read >> place & 1) {
            (1, _) => Level::Write,
            (_, 1) => Level::Read,
            _ => Level::None,
        }
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("smaller than `end`")
    }

    fn rule(&mut self, universe: &Universe) -> ScopeRule {
        let target = universe.targets[self.below(universe.targets.len())].clone();
        let permission = if self.below(2) == 0 { Permission::Read } else { Permission::Write };
        ScopeRule { target, permission, recursive: self.below(3) > 0 }
    }

    fn scope(&mut self, universe: &Universe) -> Scope {
        let mut rules = |most: usize| {
            let count = self.below(most + 1);
            (0..count).map(|_| self.rule(universe)).collect()
        };
        Scope { allow: rules(3), deny: rules(2) }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long to test is said from outside")]
fn triples() -> u64 {
    if std::env::var("MINKE_LONG").is_ok() { MANY_TRIPLES } else { TRIPLES }
}

#[test]
fn the_laws_hold_for_random_triples() {
    let universe = Universe::new();
    let mut chance = Chance(4);
    let mut seen = [0_u64; 4];
    for count in 0..triples() {
        let [a, b, c] = [(); 3].map(|()| chance.scope(&universe));
        let place = chance.below(universe.paths.len());
        assert_eq!(
            level(&a, &universe.paths[place]),
            universe.sets(&a).level(place),
            "{count}: {} in {a:?}",
            universe.paths[place]
        );
        seen[0] += u64::from(universe.sets(&a).write & universe.sets(&b).write != 0);
        seen[1] += u64::from(narrowing(&universe, &a, &b, &c));
        seen[2] += u64::from(lending(&universe, &a, &b, &c));
        seen[3] += u64::from(comparing(&universe, &a, &b));
    }
    eprintln!("{} triples: write overlaps, monotone pairs, loans, containments: {seen:?}", triples());
    assert!(seen.iter().all(|count| *count > triples() / 100), "the cases are too poor: {seen:?}");
}

/// A child has nothing that its parent or its request has not, keeps every deny, and loses only what no rule can say.
fn narrowing(universe: &Universe, parent: &Scope, request: &Scope, more: &Scope) -> bool {
    let child = narrow(parent, request);
    let [outer, wanted, got] = [parent, request, &child].map(|scope| universe.sets(scope));
    let both = outer.both(wanted);
    assert!(got.within(both), "{child:?} is more than {request:?} in {parent:?}");
    assert!(contains(parent, &child) && contains(request, &child));
    assert!(parent.deny.iter().chain(&request.deny).all(|deny| child.deny.contains(deny)));
    assert_eq!(universe.sets(&narrow(parent, &child)), got, "narrowing again changes nothing");
    assert_eq!(universe.sets(&narrow(request, parent)), got, "the common part has no order");
    nothing_sayable_is_lost(universe, &child, got, both);
    // The third scope as a grandchild, and as a wider request.
    assert!(universe.sets(&narrow(&child, more)).within(outer));
    let mut wider = request.clone();
    wider.allow.extend(more.allow.iter().cloned());
    wider.deny.truncate(more.deny.len());
    let grew = universe.sets(&wider) != wanted;
    if wanted.within(universe.sets(&wider)) {
        assert!(got.within(universe.sets(&narrow(parent, &wider))), "{request:?}, {wider:?}, {parent:?}");
    }
    grew
}

/// Where a child has less than both, no rule gives the path without giving too much elsewhere.
fn nothing_sayable_is_lost(universe: &Universe, child: &Scope, got: Sets, both: Sets) {
    let denied = universe.sets(&Scope { allow: Scope::write("/").allow, deny: child.deny.clone() });
    let lost = Sets { read: both.read & !got.read, write: both.write & !got.write };
    for set in universe.covered.iter().flatten() {
        let write = Sets { read: *set, write: *set }.both(denied);
        let read = Sets { read: *set & denied.read, write: 0 };
        assert!(write.write & lost.write == 0 || !write.within(both), "{child:?} lost a writable rule");
        assert!(read.read & lost.read == 0 || !read.within(both), "{child:?} lost a readable rule");
    }
}

/// A lender keeps reading and no longer writes where the borrower can; what comes back makes it whole.
fn lending(universe: &Universe, lender: &Scope, loan: &Scope, other: &Scope) -> bool {
    let rest = subtract(lender, loan);
    let [had, left, lent] = [lender, &rest, loan].map(|scope| universe.sets(scope));
    let rules = loan.allow.iter().filter(|rule| rule.permission == Permission::Write);
    let taken = rules.fold(0, |set, rule| set | universe.covers(rule));
    assert_eq!(left, Sets { read: had.read, write: had.write & !taken });
    assert_eq!(left.write & lent.write, 0, "two would write");
    assert_eq!(add_back(&rest, loan).as_ref(), Some(lender), "subtract, then add");
    assert_eq!(overlaps_write(&rest, loan), None);
    // Two loans come back in either order.
    let two = subtract(&rest, other);
    for (first, second) in [(loan, other), (other, loan)] {
        let whole = add_back(&two, first).and_then(|one| add_back(&one, second)).expect("both were out");
        assert_eq!(universe.sets(&whole), had);
    }
    had.write & taken != 0
}

fn comparing(universe: &Universe, a: &Scope, b: &Scope) -> bool {
    let [first, second] = [a, b].map(|scope| universe.sets(scope));
    let (one, other) = (overlaps_write(a, b), overlaps_write(b, a));
    assert_eq!(one.is_some(), first.write & second.write != 0, "{a:?} {b:?}");
    assert_eq!(
        one.as_ref().map(|o| (&o.path, &o.first, &o.second)),
        other.as_ref().map(|o| (&o.path, &o.second, &o.first))
    );
    if let Some(overlap) = one {
        let below = covered_by(&overlap.path, true, &universe.paths);
        assert!(below & first.write & second.write != 0, "{overlap:?}");
        assert!(a.allow.contains(&overlap.first) && b.allow.contains(&overlap.second));
    }
    let mut holds = false;
    for (outer, inner, sets) in [(a, b, (first, second)), (b, a, (second, first)), (a, a, (first, first))] {
        assert_eq!(contains(outer, inner), sets.1.within(sets.0), "{outer:?} {inner:?}");
        if let Some((path, have, want)) = first_excess(outer, inner) {
            assert!(want > have && universe.targets.contains(&path));
        }
        holds |= contains(outer, inner) && outer != inner;
    }
    let inside = deny_inside_write(a).is_some();
    let denied = a.deny.iter().fold(0, |set, rule| set | universe.covers(rule));
    let writes = a.allow.iter().filter(|rule| rule.permission == Permission::Write);
    assert_eq!(inside, writes.fold(0, |set, rule| set | universe.covers(rule)) & denied != 0, "{a:?}");
    holds
}

/// Every scope of at most one allow and one deny, at every path.
#[test]
fn the_level_of_every_path_under_every_small_scope() {
    let universe = Universe::new();
    let mut rules: Vec<Vec<ScopeRule>> = vec![Vec::new()];
    for target in &universe.targets {
        for permission in [Permission::Read, Permission::Write] {
            for recursive in [false, true] {
                let (target, permission) = (target.clone(), permission.clone());
                rules.push(vec![ScopeRule { target, permission, recursive }]);
            }
        }
    }
    for allow in &rules {
        for deny in &rules {
            let scope = Scope { allow: allow.clone(), deny: deny.clone() };
            let sets = universe.sets(&scope);
            for (place, path) in universe.paths.iter().enumerate() {
                assert_eq!(level(&scope, path), sets.level(place), "{path} in {scope:?}");
            }
        }
    }
}

#[test]
fn a_path_that_is_not_canonical_has_no_level() {
    let scope = Scope::write("/");
    for path in
        ["", "a", "./a", "../a", "//", "//a", "/a//b", "/a/", "/./a", "/a/.", "/..", "/a/../b", "/a\0b", "~"]
    {
        assert!(!is_canonical(path), "{path:?}");
        assert_eq!(level(&scope, path), Level::None, "{path:?}");
    }
    for path in ["/", "/a", "/a/b", "/...", "/a/..b", "/a b", "/ü"] {
        assert_eq!(level(&scope, path), Level::Write, "{path:?}");
    }
}

/// A rule that means nothing works against its holder.
#[test]
fn a_bad_rule_gives_nothing_and_denies_everything() {
    let bad = |target: &str, permission: Permission| ScopeRule {
        target: target.into(),
        permission,
        recursive: true,
    };
    for rule in [
        bad("/w/../x", Permission::Write),
        bad("w", Permission::Write),
        bad("/w/", Permission::Write),
        bad("/w", Permission::from("own")),
    ] {
        let allows = Scope { allow: vec![rule.clone()], deny: Vec::new() };
        assert_eq!(bad_rule(&allows), Some(&rule));
        for path in ["/", "/w", "/x", "/w/a"] {
            assert_eq!(level(&allows, path), Level::None, "{rule:?} {path}");
        }
        let denies = Scope { deny: vec![rule.clone()], ..Scope::write("/w") };
        assert_eq!(bad_rule(&denies), Some(&rule));
        assert_eq!(level(&denies, "/w/a"), Level::None, "{rule:?}");
        assert!(contains(&Scope::default(), &denies));
        assert_eq!(overlaps_write(&denies, &Scope::write("/w")), None);
        assert_eq!(narrow(&Scope::write("/"), &allows).allow, []);
        assert!(deny_inside_write(&denies).is_some());
    }
    assert_eq!(bad_rule(&Scope::write("/w")), None);
}

#[test]
fn a_loan_that_is_not_out_cannot_come_back() {
    let scope = Scope::write("/w");
    assert_eq!(add_back(&scope, &Scope::write("/w/a")), None);
    assert_eq!(add_back(&scope, &Scope::default()), Some(scope));
}

#[test]
fn the_greeting_lists_what_may_be_written_and_read() {
    let mut scope = Scope::write("/w");
    let rule = |target: &str, permission: Permission| ScopeRule {
        target: target.into(),
        permission,
        recursive: true,
    };
    scope.allow.push(rule("/r", Permission::Read));
    scope.allow.push(ScopeRule { recursive: false, ..rule("/n", Permission::Read) });
    scope.deny.push(rule("/w/lent", Permission::Write));
    scope.deny.push(rule("/r/hidden", Permission::Read));
    assert_eq!(
        listing(&scope),
        "Writable:\n - /w [read-only: /w/lent]\nReadable:\n - /r [not: /r/hidden]\n - /n [non-recursive]"
    );
    assert_eq!(listing(&Scope::default()), "Writable:\n - (none)\nReadable:\n - (none)");
}
