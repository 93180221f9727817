//! Properties of scopes, compared with an independent evaluation of the rules.
//!
//! The oracle knows a small tree of paths and, for every rule, the set of paths that it covers, computed
//! component by component. A scope is then two sets, readable and writable, and a property is a statement
//! about sets. `MINKE_LONG=1` tests ten million triples.

use minke_policy::{
    AccessLevel, access_level, deny_inside_write, find_write_overlap, first_excess, first_invalid_rule,
    is_canonical, narrow_scope, return_loan, scope_contains, scope_listing, subtract_loan,
};
use minke_record::{Permission, Scope, ScopeRule};

const TRIPLES: u64 = 100_000;
const MANY_TRIPLES: u64 = 10_000_000;

/// One name is a prefix of the other, to detect comparisons of texts instead of components.
const NAMES: [&str; 2] = ["a", "ab"];
/// A name that no rule contains.
const OTHER_NAME: &str = "b";

/// A small tree: the paths that rules may name, and for each of them paths that no rule names, one, two and
/// three levels below.
struct PathUniverse {
    targets: Vec<String>,
    paths: Vec<String>,
    /// For each target, not recursive and recursive: the paths that it covers.
    covered: Vec<[u64; 2]>,
}

impl PathUniverse {
    fn new() -> PathUniverse {
        let mut targets = vec!["/".to_owned()];
        let mut level = vec![String::new()];
        for _ in 0..3 {
            level = level.iter().flat_map(|above| NAMES.map(|name| format!("{above}/{name}"))).collect();
            targets.extend(level.clone());
        }
        let mut paths = targets.clone();
        for target in &targets {
            let base = target.trim_end_matches('/');
            paths.push(format!("{base}/{OTHER_NAME}"));
            paths.push(format!("{base}/{OTHER_NAME}/{OTHER_NAME}"));
            paths.push(format!("{base}/{OTHER_NAME}/{OTHER_NAME}/{OTHER_NAME}"));
        }
        assert!(paths.len() <= 64, "a set of paths is 64 bits");
        let covered = targets
            .iter()
            .map(|target| [false, true].map(|recursive| covered_by(target, recursive, &paths)))
            .collect();
        PathUniverse { targets, paths, covered }
    }

    fn covered_paths(&self, rule: &ScopeRule) -> u64 {
        let place = self.targets.iter().position(|target| *target == rule.target).expect("a known target");
        self.covered[place][usize::from(rule.recursive)]
    }

    fn access_sets(&self, scope: &Scope) -> AccessSets {
        let all = |rules: &[ScopeRule], wanted: &Permission| {
            let rules = rules.iter().filter(|rule| rule.permission == *wanted);
            rules.fold(0, |set, rule| set | self.covered_paths(rule))
        };
        let write = all(&scope.allow, &Permission::Write);
        let read = all(&scope.allow, &Permission::Read) | write;
        let no_write = all(&scope.deny, &Permission::Write);
        let no_read = all(&scope.deny, &Permission::Read);
        AccessSets { read: read & !no_read, write: write & !no_write & !no_read }
    }
}

fn path_parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

fn covered_by(target: &str, recursive: bool, paths: &[String]) -> u64 {
    let target = path_parts(target);
    let covers = |path: &str| {
        let path = path_parts(path);
        let below = path.len().wrapping_sub(target.len());
        path.len() >= target.len() && path[..target.len()] == target[..] && (recursive || below <= 1)
    };
    paths.iter().enumerate().filter(|(_, path)| covers(path)).fold(0, |set, (place, _)| set | 1 << place)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AccessSets {
    read: u64,
    write: u64,
}

impl AccessSets {
    fn is_within(self, other: AccessSets) -> bool {
        self.read & !other.read == 0 && self.write & !other.write == 0
    }

    fn intersect(self, other: AccessSets) -> AccessSets {
        AccessSets { read: self.read & other.read, write: self.write & other.write }
    }

    fn level_at(self, place: usize) -> AccessLevel {
        match (self.write >> place & 1, self.read >> place & 1) {
            (1, _) => AccessLevel::Write,
            (_, 1) => AccessLevel::Read,
            _ => AccessLevel::None,
        }
    }
}

struct ScopeRng(u64);

impl ScopeRng {
    fn next_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("smaller than `end`")
    }

    fn random_rule(&mut self, universe: &PathUniverse) -> ScopeRule {
        let target = universe.targets[self.next_below(universe.targets.len())].clone();
        let permission = if self.next_below(2) == 0 { Permission::Read } else { Permission::Write };
        ScopeRule { target, permission, recursive: self.next_below(3) > 0 }
    }

    fn random_scope(&mut self, universe: &PathUniverse) -> Scope {
        let mut rules = |most: usize| {
            let count = self.next_below(most + 1);
            (0..count).map(|_| self.random_rule(universe)).collect()
        };
        Scope { allow: rules(3), deny: rules(2) }
    }
}

#[expect(clippy::disallowed_methods, reason = "a variable sets the length of the test")]
fn triple_count() -> u64 {
    if std::env::var("MINKE_LONG").is_ok() { MANY_TRIPLES } else { TRIPLES }
}

#[test]
fn the_laws_hold_for_random_triples() {
    let universe = PathUniverse::new();
    let mut rng = ScopeRng(4);
    let mut seen = [0_u64; 4];
    for count in 0..triple_count() {
        let [a, b, c] = [(); 3].map(|()| rng.random_scope(&universe));
        let place = rng.next_below(universe.paths.len());
        assert_eq!(
            access_level(&a, &universe.paths[place]),
            universe.access_sets(&a).level_at(place),
            "{count}: {} in {a:?}",
            universe.paths[place]
        );
        seen[0] += u64::from(universe.access_sets(&a).write & universe.access_sets(&b).write != 0);
        seen[1] += u64::from(check_narrowing(&universe, &a, &b, &c));
        seen[2] += u64::from(check_lending(&universe, &a, &b, &c));
        seen[3] += u64::from(check_comparing(&universe, &a, &b));
    }
    eprintln!("{} triples: write overlaps, monotone pairs, loans, containments: {seen:?}", triple_count());
    assert!(seen.iter().all(|count| *count > triple_count() / 100), "the cases are too poor: {seen:?}");
}

/// A child has nothing that its parent or its request lacks, keeps every deny, and loses only inexpressible
/// paths.
fn check_narrowing(universe: &PathUniverse, parent: &Scope, request: &Scope, more: &Scope) -> bool {
    let child = narrow_scope(parent, request);
    let [outer, wanted, got] = [parent, request, &child].map(|scope| universe.access_sets(scope));
    let both = outer.intersect(wanted);
    assert!(got.is_within(both), "{child:?} is more than {request:?} in {parent:?}");
    assert!(scope_contains(parent, &child) && scope_contains(request, &child));
    assert!(parent.deny.iter().chain(&request.deny).all(|deny| child.deny.contains(deny)));
    assert_eq!(universe.access_sets(&narrow_scope(parent, &child)), got, "narrowing again changes nothing");
    assert_eq!(universe.access_sets(&narrow_scope(request, parent)), got, "the common part has no order");
    check_nothing_lost(universe, &child, got, both);
    // The third scope serves as a grandchild, and as a wider request.
    assert!(universe.access_sets(&narrow_scope(&child, more)).is_within(outer));
    let mut wider = request.clone();
    wider.allow.extend(more.allow.iter().cloned());
    wider.deny.truncate(more.deny.len());
    let grew = universe.access_sets(&wider) != wanted;
    if wanted.is_within(universe.access_sets(&wider)) {
        assert!(
            got.is_within(universe.access_sets(&narrow_scope(parent, &wider))),
            "{request:?}, {wider:?}, {parent:?}"
        );
    }
    grew
}

/// Where a child has less than both scopes, no rule could grant the path without granting too much elsewhere.
fn check_nothing_lost(universe: &PathUniverse, child: &Scope, got: AccessSets, both: AccessSets) {
    let denied = universe.access_sets(&Scope { allow: Scope::writable("/").allow, deny: child.deny.clone() });
    let lost = AccessSets { read: both.read & !got.read, write: both.write & !got.write };
    for set in universe.covered.iter().flatten() {
        let write = AccessSets { read: *set, write: *set }.intersect(denied);
        let read = AccessSets { read: *set & denied.read, write: 0 };
        assert!(write.write & lost.write == 0 || !write.is_within(both), "{child:?} lost a writable rule");
        assert!(read.read & lost.read == 0 || !read.is_within(both), "{child:?} lost a readable rule");
    }
}

/// A lender can still read and no longer write where the borrower can; returning the loan restores its scope.
fn check_lending(universe: &PathUniverse, lender: &Scope, loan: &Scope, other: &Scope) -> bool {
    let rest = subtract_loan(lender, loan);
    let [had, left, lent] = [lender, &rest, loan].map(|scope| universe.access_sets(scope));
    let rules = loan.allow.iter().filter(|rule| rule.permission == Permission::Write);
    let taken = rules.fold(0, |set, rule| set | universe.covered_paths(rule));
    assert_eq!(left, AccessSets { read: had.read, write: had.write & !taken });
    assert_eq!(left.write & lent.write, 0, "both could write");
    assert_eq!(return_loan(&rest, loan).as_ref(), Some(lender), "subtract, then add");
    assert_eq!(find_write_overlap(&rest, loan), None);
    // Two loans can be returned in any order.
    let two = subtract_loan(&rest, other);
    for (first, second) in [(loan, other), (other, loan)] {
        let whole =
            return_loan(&two, first).and_then(|one| return_loan(&one, second)).expect("both were out");
        assert_eq!(universe.access_sets(&whole), had);
    }
    had.write & taken != 0
}

fn check_comparing(universe: &PathUniverse, a: &Scope, b: &Scope) -> bool {
    let [first, second] = [a, b].map(|scope| universe.access_sets(scope));
    let (one, other) = (find_write_overlap(a, b), find_write_overlap(b, a));
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
        assert_eq!(scope_contains(outer, inner), sets.1.is_within(sets.0), "{outer:?} {inner:?}");
        if let Some((path, have, want)) = first_excess(outer, inner) {
            assert!(want > have && universe.targets.contains(&path));
        }
        holds |= scope_contains(outer, inner) && outer != inner;
    }
    let inside = deny_inside_write(a).is_some();
    let denied = a.deny.iter().fold(0, |set, rule| set | universe.covered_paths(rule));
    let writes = a.allow.iter().filter(|rule| rule.permission == Permission::Write);
    assert_eq!(inside, writes.fold(0, |set, rule| set | universe.covered_paths(rule)) & denied != 0, "{a:?}");
    holds
}

/// Every scope of at most one allow and one deny, at every path.
#[test]
fn the_level_of_every_path_under_every_small_scope() {
    let universe = PathUniverse::new();
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
            let sets = universe.access_sets(&scope);
            for (place, path) in universe.paths.iter().enumerate() {
                assert_eq!(access_level(&scope, path), sets.level_at(place), "{path} in {scope:?}");
            }
        }
    }
}

#[test]
fn a_path_that_is_not_canonical_has_no_level() {
    let scope = Scope::writable("/");
    for path in
        ["", "a", "./a", "../a", "//", "//a", "/a//b", "/a/", "/./a", "/a/.", "/..", "/a/../b", "/a\0b", "~"]
    {
        assert!(!is_canonical(path), "{path:?}");
        assert_eq!(access_level(&scope, path), AccessLevel::None, "{path:?}");
    }
    for path in ["/", "/a", "/a/b", "/...", "/a/..b", "/a b", "/ü"] {
        assert_eq!(access_level(&scope, path), AccessLevel::Write, "{path:?}");
    }
}

/// An invalid rule restricts its owner.
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
        assert_eq!(first_invalid_rule(&allows), Some(&rule));
        for path in ["/", "/w", "/x", "/w/a"] {
            assert_eq!(access_level(&allows, path), AccessLevel::None, "{rule:?} {path}");
        }
        let denies = Scope { deny: vec![rule.clone()], ..Scope::writable("/w") };
        assert_eq!(first_invalid_rule(&denies), Some(&rule));
        assert_eq!(access_level(&denies, "/w/a"), AccessLevel::None, "{rule:?}");
        assert!(scope_contains(&Scope::default(), &denies));
        assert_eq!(find_write_overlap(&denies, &Scope::writable("/w")), None);
        assert_eq!(narrow_scope(&Scope::writable("/"), &allows).allow, []);
        assert!(deny_inside_write(&denies).is_some());
    }
    assert_eq!(first_invalid_rule(&Scope::writable("/w")), None);
}

#[test]
fn a_loan_that_is_not_out_cannot_come_back() {
    let scope = Scope::writable("/w");
    assert_eq!(return_loan(&scope, &Scope::writable("/w/a")), None);
    assert_eq!(return_loan(&scope, &Scope::default()), Some(scope));
}

#[test]
fn the_greeting_lists_what_may_be_written_and_read() {
    let mut scope = Scope::writable("/w");
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
        scope_listing(&scope),
        "Writable:\n - /w [read-only: /w/lent]\nReadable:\n - /r [not: /r/hidden]\n - /n [non-recursive]"
    );
    assert_eq!(scope_listing(&Scope::default()), "Writable:\n - (none)\nReadable:\n - (none)");
}
