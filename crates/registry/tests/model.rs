//! The scope table against a second opinion: a model that knows no rules, only points and who has them.
//!
//! Random pods come, lend, adopt, die, come back and yield. For every request the model says by sets of points whether it
//! must be granted; afterwards every row may write exactly the points that the model gives it.
//! Invariant: `the_table_says_what_sets_of_points_say`, which fails if any of the table's guards is taken away.

use std::collections::BTreeMap;
use std::time::Duration;

use minke_policy::{Level, level};
use minke_record::{Ids, Permission, PodName, Scope, ScopeRule, SessionId};
use minke_registry::{Lend, RegistryError, Row, Table, TableLimits};

/// Depth of the paths that are looked at: one more than the deepest rule names.
const DEPTH: usize = 4;
/// Bytes of the longest path in a rule.
const DEEPEST: usize = 2 + 2 * (DEPTH - 1);
const SESSIONS: u64 = 9;
const STEPS: u64 = 250;
const LIMITS: TableLimits = TableLimits { depth: 3, children: 3, pods: 7 };
const PATIENCE: u64 = 1_000;

/// A set of points, one bit for each.
type Points = u32;

/// Every path over two names, so that any two rules that differ are told apart by one of them.
fn points() -> Vec<String> {
    let mut all = vec!["/w".to_owned()];
    let mut last = all.clone();
    for _ in 0..DEPTH {
        last = last.iter().flat_map(|above| ["a", "b"].map(|name| format!("{above}/{name}"))).collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// Small, quick and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// What one session is in the model.
#[derive(Debug, Clone)]
struct Pod {
    /// What it was given, whoever has it now.
    read: Points,
    write: Points,
    /// What its write rules cover, denies or not: its lender may write none of that.
    covered: Points,
    scope: Scope,
    /// Who was above it when it was spawned, nearest first.
    line: Vec<u64>,
    lives: bool,
    yielded: bool,
    /// The number of its ticket, until somebody came with it, and when it ends.
    ticket: Option<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Verdict {
    Granted,
    Held,
    TooMany,
    TooDeep,
    NeedsTicket,
    NameTaken,
    Unknown,
    /// A conflict, or more than the lender has.
    NotFree,
    BadTicket,
    CannotYield,
}

fn verdict<T>(result: &Result<T, RegistryError>) -> Verdict {
    match result {
        Ok(_) => Verdict::Granted,
        Err(RegistryError::SessionHeld { .. }) => Verdict::Held,
        Err(RegistryError::TooMany { .. }) => Verdict::TooMany,
        Err(RegistryError::TooDeep { .. }) => Verdict::TooDeep,
        Err(RegistryError::NeedsTicket { .. }) => Verdict::NeedsTicket,
        Err(RegistryError::DuplicateName { .. }) => Verdict::NameTaken,
        Err(RegistryError::UnknownPod { .. }) => Verdict::Unknown,
        Err(RegistryError::WriteConflict { .. } | RegistryError::NotWithin { .. }) => Verdict::NotFree,
        Err(RegistryError::BadTicket { .. }) => Verdict::BadTicket,
        Err(RegistryError::CannotYield { .. }) => Verdict::CannotYield,
        Err(other) => panic!("nothing here can lead to: {other}"),
    }
}

struct Model {
    points: Vec<String>,
    pods: BTreeMap<u64, Pod>,
    now: u64,
}

impl Model {
    fn lives(&self, number: u64) -> bool {
        self.pods.get(&number).is_some_and(|pod| pod.lives)
    }

    fn living(&self) -> usize {
        self.pods.values().filter(|pod| pod.lives).count()
    }

    /// Who has lent to it: the nearest that was above it and lives.
    fn parent(&self, number: u64) -> Option<u64> {
        self.pods[&number].line.iter().copied().find(|above| self.lives(*above))
    }

    fn children(&self, number: u64) -> Vec<u64> {
        let below = |other: &u64| self.lives(*other) && self.parent(*other) == Some(number);
        self.pods.keys().copied().filter(below).collect()
    }

    /// What it may write now.
    fn effective(&self, number: u64) -> Points {
        let pod = &self.pods[&number];
        let lent = self.children(number).iter().fold(0, |lent, child| lent | self.pods[child].covered);
        if pod.yielded { 0 } else { pod.write & !lent }
    }

    fn covered(&self, scope: &Scope) -> Points {
        self.set(&Scope { allow: scope.allow.clone(), deny: Vec::new() }, Permission::Write)
    }

    /// Whether somebody who is not below `number` may write one of the points, or could by a death.
    fn taken(&self, points: Points, number: u64) -> bool {
        self.pods.iter().any(|(other, pod)| {
            let apart = *other != number && !pod.line.contains(&number);
            pod.lives && apart && !pod.yielded && pod.write & points != 0
        })
    }

    fn set(&self, scope: &Scope, permission: Permission) -> Points {
        let covers = |rule: &ScopeRule, path: &String| {
            *path == rule.target || path.starts_with(&format!("{}/", rule.target))
        };
        let mut set = 0;
        for (at, path) in self.points.iter().enumerate() {
            let strong =
                |rule: &&ScopeRule| permission == Permission::Read || rule.permission == Permission::Write;
            let allowed = scope.allow.iter().filter(strong).any(|rule| covers(rule, path));
            let denied = scope.deny.iter().any(|rule| covers(rule, path));
            if allowed && !denied {
                set |= 1 << at;
            }
        }
        set
    }
}

fn session(number: u64) -> SessionId {
    SessionId(Ids::new(1, number).next_uuid())
}

fn name(number: u64) -> PodName {
    format!("pod-{number}").parse().expect("a good name")
}

struct Both {
    dice: Dice,
    model: Model,
    table: Table,
    tickets: u64,
    /// How often each verdict was given.
    given: BTreeMap<String, u64>,
}

impl Both {
    fn rule(&mut self, permission: Permission) -> ScopeRule {
        let mut target = "/w".to_owned();
        while target.len() < DEEPEST && !self.dice.one_in(3) {
            target.push_str(if self.dice.one_in(2) { "/a" } else { "/b" });
        }
        ScopeRule { target, permission, recursive: true }
    }

    fn scope(&mut self) -> Scope {
        let mut scope = Scope { allow: vec![self.rule(Permission::Write)], deny: Vec::new() };
        if self.dice.one_in(4) {
            let permission = if self.dice.one_in(2) { Permission::Read } else { Permission::Write };
            let more = self.rule(permission);
            scope.allow.push(more);
        }
        if self.dice.one_in(4) {
            // A deny of everything from reading on.
            let deny = self.rule(Permission::Read);
            scope.deny.push(deny);
        }
        scope
    }

    /// The table in a few lines.
    fn shown(&self) -> String {
        let mut text = String::new();
        for row in &self.table.pods {
            let deny: Vec<&str> = row.scope.deny.iter().map(|rule| rule.target.as_str()).collect();
            let loans: Vec<&str> = row.loans.iter().map(|loan| loan.name.as_str()).collect();
            let parent = row.parent.and_then(|parent| self.table.row(parent)).map(|row| row.name.as_str());
            text.push_str(&format!(
                "{} has {} without {deny:?}, below {parent:?}, has lent to {loans:?}, yielded: {}\n",
                row.name,
                row.scope.summary(),
                row.yielded
            ));
        }
        text
    }

    fn check(&mut self, what: &str, expected: Verdict, got: Verdict) {
        assert_eq!(got, expected, "{what}\n{}", self.shown());
        *self.given.entry(format!("{what} {got:?}")).or_default() += 1;
    }

    /// A session without parent comes, or one comes back whose parents are all gone.
    fn register(&mut self, number: u64) {
        let known = self.model.pods.get(&number).cloned();
        let fresh = self.scope();
        let (scope, line) = known.map_or((fresh, Vec::new()), |pod| (pod.scope, pod.line));
        let write = self.model.set(&scope, Permission::Write);
        let expected = if self.model.lives(number) {
            Verdict::Held
        } else if self.model.living() >= LIMITS.pods {
            Verdict::TooMany
        } else if line.iter().any(|above| self.model.lives(*above)) {
            Verdict::NeedsTicket
        } else if self.model.taken(write, number) {
            Verdict::NotFree
        } else {
            Verdict::Granted
        };
        let row = Row {
            scope: scope.clone(),
            ancestors: line.iter().map(|above| session(*above)).collect(),
            ..Row::here(name(number), session(number), None)
        };
        let got = self.table.register(row, LIMITS, false);
        self.check("register", expected, verdict(&got));
        if let Ok(next) = got {
            self.table = next;
            let read = self.model.set(&scope, Permission::Read);
            let covered = self.model.covered(&scope);
            let pod = Pod { read, write, covered, scope, line, lives: true, yielded: false, ticket: None };
            self.model.pods.insert(number, pod);
        }
    }

    /// A child is spawned, or woken by whoever is the nearest above it.
    fn lend(&mut self, lender: u64, number: u64) {
        let known = self.model.pods.get(&number).cloned();
        let (mut scope, mut line) = (self.scope(), Vec::new());
        // Mostly something that the lender could have.
        if let Some(above) = self.model.pods.get(&lender).filter(|_| !self.dice.one_in(4)) {
            let mut rule = above.scope.allow[0].clone();
            if rule.target.len() < DEEPEST && !self.dice.one_in(4) {
                rule.target.push_str(if self.dice.one_in(2) { "/a" } else { "/b" });
            }
            scope.allow[0] = rule;
            scope.allow.truncate(1);
        }
        if let Some(pod) = &known {
            scope = pod.scope.clone();
            line.clone_from(&pod.line);
        }
        if known.is_some() && line.is_empty() {
            return; // It was nobody's child and does not become one.
        }
        let expected = self.lend_verdict(lender, number, (&scope, &line));
        let lend = Lend {
            lender: session(lender),
            session: session(number),
            name: name(number),
            scope: scope.clone(),
            apart: Scope::default(),
            limits: LIMITS,
            line: line.iter().map(|above| session(*above)).collect(),
            patience: Duration::from_millis(PATIENCE),
        };
        self.tickets += 1;
        let ends = self.model.now + PATIENCE;
        let place = Row {
            ticket_hash: Some(self.tickets.to_string()),
            deadline: Some(ends),
            ..Row::here(name(number), session(number), None)
        };
        let got = self.table.lend(&lend, place);
        if verdict(&got) != expected {
            eprintln!(
                "{lender} lends {} without {:?} to {number}: {:?}",
                scope.summary(),
                scope.deny,
                got.as_ref().err()
            );
        }
        self.check("lend", expected, verdict(&got));
        let Ok(next) = got else { return };
        self.table = next;
        let above = &self.model.pods[&lender];
        if line.is_empty() {
            line = [lender].into_iter().chain(above.line.iter().copied()).collect();
        }
        // What the lender was denied, its child is denied.
        scope.deny.extend(above.scope.deny.iter().cloned());
        let read = self.model.set(&scope, Permission::Read);
        let write = self.model.set(&scope, Permission::Write);
        let ticket = Some((self.tickets, ends));
        let covered = self.model.covered(&scope);
        let pod = Pod { read, write, covered, scope, line, lives: true, yielded: false, ticket };
        self.model.pods.insert(number, pod);
    }

    fn lend_verdict(&self, lender: u64, number: u64, (scope, line): (&Scope, &[u64])) -> Verdict {
        let model = &self.model;
        if !model.lives(lender) {
            return Verdict::Unknown;
        }
        if model.lives(number) {
            return Verdict::Held;
        }
        if model.living() >= LIMITS.pods {
            return Verdict::TooMany;
        }
        match line.iter().find(|above| model.lives(**above)) {
            Some(nearest) if *nearest != lender => return Verdict::NeedsTicket,
            None if !line.is_empty() => return Verdict::Unknown,
            _ => {}
        }
        let above = &model.pods[&lender];
        let depth = if line.is_empty() { above.line.len() + 1 } else { line.len() };
        if depth > LIMITS.depth as usize {
            return Verdict::TooDeep;
        }
        let own = |line: &[u64]| line.is_empty() || line.first() == Some(&lender);
        let mut children = model.children(lender);
        children.retain(|child| model.pods[child].line.first() == Some(&lender));
        if own(line) && children.len() >= LIMITS.children {
            return Verdict::TooMany;
        }
        let mut held = scope.clone();
        held.deny.extend(above.scope.deny.iter().cloned());
        let (read, write) = (model.set(&held, Permission::Read), model.set(&held, Permission::Write));
        // Its own children, which the lender has meanwhile, come back to it.
        let others = |child: &u64| !model.pods[child].line.contains(&number);
        let lent = model.children(lender).into_iter().filter(others);
        let out = lent.fold(0, |out, child| out | model.pods[&child].covered);
        let has = if above.yielded { 0 } else { above.write & !out };
        // What is asked for by name must be the lender's; a deny below it is inherited instead.
        let named = |rule: &ScopeRule| {
            let at = model.points.iter().position(|path| *path == rule.target).expect("rules name points");
            let own = if rule.permission == Permission::Write { has } else { above.read };
            own & (1 << at) != 0
        };
        let within = write & !has == 0 && read & !above.read == 0;
        if within && scope.allow.iter().all(named) { Verdict::Granted } else { Verdict::NotFree }
    }

    fn adopt(&mut self, number: u64, ticket: u64) {
        let pod = self.model.pods.get_mut(&number);
        let good = pod.as_ref().is_some_and(|pod| {
            pod.lives && pod.ticket.is_some_and(|(own, ends)| own == ticket && self.model.now < ends)
        });
        if let (true, Some(pod)) = (good, pod) {
            pod.ticket = None;
        }
        let here = Row::here(name(number), session(number), None);
        let got = self.table.adopt(&here, &ticket.to_string(), self.model.now);
        self.check("adopt", if good { Verdict::Granted } else { Verdict::BadTicket }, verdict(&got));
        if let Ok(next) = got {
            self.table = next;
        }
    }

    fn give(&mut self, number: u64) {
        let expected = match self.model.pods.get(&number) {
            Some(pod) if pod.lives => {
                let bound = !pod.line.is_empty() || !self.model.children(number).is_empty();
                if bound { Verdict::CannotYield } else { Verdict::Granted }
            }
            _ => Verdict::Unknown,
        };
        let got = self.table.give_scope(session(number));
        self.check("give", expected, verdict(&got));
        if let Ok(next) = got {
            self.table = next;
            self.model.pods.get_mut(&number).expect("it lives").yielded = true;
        }
    }

    fn take(&mut self, number: u64) {
        let expected = match self.model.pods.get(&number) {
            Some(pod) if pod.lives => {
                let taken = pod.yielded && self.model.taken(pod.write, number);
                if taken { Verdict::NotFree } else { Verdict::Granted }
            }
            _ => Verdict::Unknown,
        };
        let got = self.table.take_scope(session(number));
        self.check("take", expected, verdict(&got));
        if let Ok(next) = got {
            self.table = next;
            self.model.pods.get_mut(&number).expect("it lives").yielded = false;
        }
    }

    fn die(&mut self, dead: &[u64]) {
        for number in dead {
            if let Some(pod) = self.model.pods.get_mut(number) {
                (pod.lives, pod.yielded, pod.ticket) = (false, false, None);
            }
        }
        let sessions: Vec<SessionId> = dead.iter().map(|number| session(*number)).collect();
        self.table = match sessions.as_slice() {
            [one] => self.table.release(*one),
            many => self.table.reclaim(many),
        };
        // Some never come back, and their number is free for somebody new.
        for number in dead {
            let above_somebody = self.model.pods.values().any(|pod| pod.line.contains(number));
            if !above_somebody && self.dice.one_in(2) {
                self.model.pods.remove(number);
            }
        }
    }

    /// Somebody who is dead comes back, by way of whoever is the nearest above it.
    fn wake(&mut self, number: u64) {
        let Some(pod) = self.model.pods.get(&number) else { return };
        match pod.line.iter().copied().find(|above| self.model.lives(*above)) {
            Some(nearest) if !pod.lives => {
                let back = self.model.children(nearest).into_iter();
                let comes_back = |child: u64| self.model.pods[&child].line.contains(&number);
                if back.into_iter().any(comes_back) {
                    *self.given.entry("woken above its children".to_owned()).or_default() += 1;
                }
                self.lend(nearest, number);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        let (number, other) = (self.dice.below(SESSIONS), self.dice.below(SESSIONS));
        let living: Vec<u64> = self.model.pods.keys().copied().filter(|pod| self.model.lives(*pod)).collect();
        let lender = match living.len() as u64 {
            0 => number,
            count => living[usize::try_from(self.dice.below(count)).expect("a few")],
        };
        match self.dice.below(17) {
            0..=2 => self.register(number),
            3 if number != other => self.lend(number, other),
            4..=7 if lender != other => self.lend(lender, other),
            13..=15 => self.wake(number),
            8 => {
                let own = self.model.pods.get(&number).and_then(|pod| pod.ticket).map(|(own, _)| own);
                let ticket = own.filter(|_| !self.dice.one_in(4)).unwrap_or(other);
                self.adopt(number, ticket);
                if self.dice.one_in(2) {
                    self.adopt(number, ticket);
                }
            }
            9 => self.give(number),
            10 => self.take(number),
            11 => self.die(&[number, other]),
            12 => self.die(&[number]),
            _ => {
                // Also to the very end of somebody's time.
                let end = self.model.pods.get(&number).and_then(|pod| pod.ticket).map(|(_, end)| end);
                let some = self.model.now + self.dice.below(PATIENCE);
                self.model.now = self.model.now.max(end.unwrap_or(some));
            }
        }
    }

    /// Every row, point for point, and no row too many.
    fn compare(&self) {
        let model = &self.model;
        assert_eq!(self.table.pods.len(), model.living());
        let mut owners: Points = 0;
        for (number, pod) in model.pods.iter().filter(|(_, pod)| pod.lives) {
            let row = self.table.row(session(*number)).expect("who lives has a row");
            assert_eq!(row.parent, model.parent(*number).map(session), "{number}: {}", self.shown());
            assert_eq!(row.depth as usize, pod.line.len());
            let (scope, mut write, mut read): (Scope, Points, Points) = (row.effective(), 0, 0);
            for (at, path) in model.points.iter().enumerate() {
                let has = level(&scope, path);
                write |= u32::from(has == Level::Write) << at;
                read |= u32::from(has != Level::None) << at;
            }
            assert_eq!(write, model.effective(*number), "{number} writes; {}", self.shown());
            assert_eq!(read, pod.read, "{number} reads; {}", self.shown());
            assert_eq!(owners & write, 0, "two may write one point; {}", self.shown());
            owners |= write;
        }
    }
}

#[test]
fn the_table_says_what_sets_of_points_say() {
    let seeds = if std::env::var_os("MINKE_LONG").is_some() { 4_000 } else { 400 };
    let mut given: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..seeds {
        let model = Model { points: points(), pods: BTreeMap::new(), now: 0 };
        let table = Table::default();
        let mut both = Both { dice: Dice(seed), model, table, tickets: 100, given: BTreeMap::new() };
        for _ in 0..STEPS {
            both.step();
            both.compare();
        }
        for (what, times) in both.given {
            *given.entry(what).or_default() += times;
        }
    }
    eprintln!("{given:#?}");
    // A verdict that never came was never compared.
    for what in [
        "register Granted",
        "register Held",
        "register TooMany",
        "register NeedsTicket",
        "register NotFree",
        "lend Granted",
        "lend Held",
        "lend TooMany",
        "lend TooDeep",
        "lend NeedsTicket",
        "lend Unknown",
        "lend NotFree",
        "adopt Granted",
        "adopt BadTicket",
        "give Granted",
        "give CannotYield",
        "give Unknown",
        "take Granted",
        "take NotFree",
        "take Unknown",
        "woken above its children",
    ] {
        assert!(given.get(what).is_some_and(|times| *times > 0), "{what} never came: {given:#?}");
    }
}
