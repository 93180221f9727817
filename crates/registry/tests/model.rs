//! The scope table compared with a model that has no rules, only points and their owners.
//!
//! Random pods register, borrow, adopt, die, come back and yield. For every request the model decides with sets of
//! points whether it must succeed; afterwards every row may write exactly the points of the model.
//! Invariant: `the_table_says_what_sets_of_points_say`, which fails if any check of the table is removed.

use std::collections::BTreeMap;
use std::time::Duration;

use minke_policy::{AccessLevel, access_level};
use minke_record::{IdGenerator, Permission, PodName, Scope, ScopeRule, SessionId};
use minke_registry::{LoanRequest, PodLimits, RegistryError, ScopeRow, ScopeTable};

/// The depth of the compared paths: one more than the deepest rule.
const PATH_DEPTH: usize = 4;
/// The length of the longest path in a rule.
const MAX_PATH_BYTES: usize = 2 + 2 * (PATH_DEPTH - 1);
const SESSION_COUNT: u64 = 9;
const STEP_COUNT: u64 = 250;
const LIMITS: PodLimits = PodLimits { max_depth: 3, max_children: 3, max_pods: 7 };
const TICKET_TIMEOUT: u64 = 1_000;

/// A set of points, one bit for each.
type PointSet = u32;

/// Returns every path over two names, so that any two different rules differ in one of them.
fn all_points() -> Vec<String> {
    let mut all = vec!["/w".to_owned()];
    let mut last = all.clone();
    for _ in 0..PATH_DEPTH {
        last = last.iter().flat_map(|above| ["a", "b"].map(|name| format!("{above}/{name}"))).collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// A small, fast, deterministic random generator.
struct TestRandom(u64);

impl TestRandom {
    fn random_below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn is_one_in(&mut self, chances: u64) -> bool {
        self.random_below(chances) == 0
    }
}

/// One session in the model.
#[derive(Debug, Clone)]
struct ModelPod {
    /// The points that it was given, including lent ones.
    read: PointSet,
    write: PointSet,
    /// The points that its write rules cover, ignoring denies: its lender may write none of them.
    covered: PointSet,
    scope: Scope,
    /// Its ancestors when it was spawned, nearest first.
    ancestors: Vec<u64>,
    is_live: bool,
    yielded: bool,
    /// The number of its unused ticket, and its deadline.
    ticket: Option<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum TableOutcome {
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

fn outcome_of<T>(result: &Result<T, RegistryError>) -> TableOutcome {
    match result {
        Ok(_) => TableOutcome::Granted,
        Err(RegistryError::SessionHeld { .. }) => TableOutcome::Held,
        Err(RegistryError::TooMany { .. }) => TableOutcome::TooMany,
        Err(RegistryError::TooDeep { .. }) => TableOutcome::TooDeep,
        Err(RegistryError::NeedsTicket { .. }) => TableOutcome::NeedsTicket,
        Err(RegistryError::DuplicateName { .. }) => TableOutcome::NameTaken,
        Err(RegistryError::UnknownPod { .. }) => TableOutcome::Unknown,
        Err(RegistryError::WriteConflict { .. } | RegistryError::NotWithin { .. }) => TableOutcome::NotFree,
        Err(RegistryError::BadTicket { .. }) => TableOutcome::BadTicket,
        Err(RegistryError::CannotYield { .. }) => TableOutcome::CannotYield,
        Err(other) => panic!("nothing here can lead to: {other}"),
    }
}

struct PointModel {
    points: Vec<String>,
    pods: BTreeMap<u64, ModelPod>,
    now: u64,
}

impl PointModel {
    fn is_live(&self, number: u64) -> bool {
        self.pods.get(&number).is_some_and(|pod| pod.is_live)
    }

    fn live_count(&self) -> usize {
        self.pods.values().filter(|pod| pod.is_live).count()
    }

    /// Returns its lender: its nearest live ancestor.
    fn parent_of(&self, number: u64) -> Option<u64> {
        self.pods[&number].ancestors.iter().copied().find(|above| self.is_live(*above))
    }

    fn children_of(&self, number: u64) -> Vec<u64> {
        let below = |other: &u64| self.is_live(*other) && self.parent_of(*other) == Some(number);
        self.pods.keys().copied().filter(below).collect()
    }

    /// Returns the points that it may write now.
    fn writable_points(&self, number: u64) -> PointSet {
        let pod = &self.pods[&number];
        let lent = self.children_of(number).iter().fold(0, |lent, child| lent | self.pods[child].covered);
        if pod.yielded { 0 } else { pod.write & !lent }
    }

    fn covered_points(&self, scope: &Scope) -> PointSet {
        self.points_of_scope(&Scope { allow: scope.allow.clone(), deny: Vec::new() }, Permission::Write)
    }

    /// Returns whether a pod outside the descendants of `number` may write one of the points, now or after a death.
    fn is_taken(&self, points: PointSet, number: u64) -> bool {
        self.pods.iter().any(|(other, pod)| {
            let apart = *other != number && !pod.ancestors.contains(&number);
            pod.is_live && apart && !pod.yielded && pod.write & points != 0
        })
    }

    fn points_of_scope(&self, scope: &Scope, permission: Permission) -> PointSet {
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

fn session_id(number: u64) -> SessionId {
    SessionId(IdGenerator::new(1, number).next_uuid())
}

fn pod_name(number: u64) -> PodName {
    format!("pod-{number}").parse().expect("a good name")
}

struct TableAndModel {
    dice: TestRandom,
    model: PointModel,
    table: ScopeTable,
    tickets: u64,
    /// How often each outcome occurred.
    outcome_counts: BTreeMap<String, u64>,
}

impl TableAndModel {
    fn random_rule(&mut self, permission: Permission) -> ScopeRule {
        let mut target = "/w".to_owned();
        while target.len() < MAX_PATH_BYTES && !self.dice.is_one_in(3) {
            target.push_str(if self.dice.is_one_in(2) { "/a" } else { "/b" });
        }
        ScopeRule { target, permission, recursive: true }
    }

    fn random_scope(&mut self) -> Scope {
        let mut scope = Scope { allow: vec![self.random_rule(Permission::Write)], deny: Vec::new() };
        if self.dice.is_one_in(4) {
            let permission = if self.dice.is_one_in(2) { Permission::Read } else { Permission::Write };
            let more = self.random_rule(permission);
            scope.allow.push(more);
        }
        if self.dice.is_one_in(4) {
            // A read deny covers every permission.
            let deny = self.random_rule(Permission::Read);
            scope.deny.push(deny);
        }
        scope
    }

    /// Returns the table as text.
    fn describe_table(&self) -> String {
        let mut text = String::new();
        for row in &self.table.pods {
            let deny: Vec<&str> = row.scope.deny.iter().map(|rule| rule.target.as_str()).collect();
            let loans: Vec<&str> = row.loans.iter().map(|loan| loan.name.as_str()).collect();
            let parent =
                row.parent.and_then(|parent| self.table.find_row(parent)).map(|row| row.name.as_str());
            text.push_str(&format!(
                "{} has {} without {deny:?}, below {parent:?}, has lent to {loans:?}, yielded: {}\n",
                row.name,
                row.scope.summary(),
                row.yielded
            ));
        }
        text
    }

    fn check_outcome(&mut self, label: &str, expected: TableOutcome, got: TableOutcome) {
        assert_eq!(got, expected, "{label}\n{}", self.describe_table());
        *self.outcome_counts.entry(format!("{label} {got:?}")).or_default() += 1;
    }

    /// Registers a session without a parent, or one whose ancestors are all gone.
    fn register_pod(&mut self, number: u64) {
        let issued_tickets = self.model.pods.get(&number).cloned();
        let fresh = self.random_scope();
        let (scope, ancestors) = issued_tickets.map_or((fresh, Vec::new()), |pod| (pod.scope, pod.ancestors));
        let write = self.model.points_of_scope(&scope, Permission::Write);
        let expected = if self.model.is_live(number) {
            TableOutcome::Held
        } else if self.model.live_count() >= LIMITS.max_pods {
            TableOutcome::TooMany
        } else if ancestors.iter().any(|above| self.model.is_live(*above)) {
            TableOutcome::NeedsTicket
        } else if self.model.is_taken(write, number) {
            TableOutcome::NotFree
        } else {
            TableOutcome::Granted
        };
        let row = ScopeRow {
            scope: scope.clone(),
            ancestors: ancestors.iter().map(|above| session_id(*above)).collect(),
            ..ScopeRow::for_this_process(pod_name(number), session_id(number), None)
        };
        let got = self.table.with_root_pod(row, LIMITS, false);
        self.check_outcome("register", expected, outcome_of(&got));
        if let Ok(next) = got {
            self.table = next;
            let read = self.model.points_of_scope(&scope, Permission::Read);
            let covered = self.model.covered_points(&scope);
            let pod = ModelPod {
                read,
                write,
                covered,
                scope,
                ancestors,
                is_live: true,
                yielded: false,
                ticket: None,
            };
            self.model.pods.insert(number, pod);
        }
    }

    /// Spawns a child, or wakes one by its nearest live ancestor.
    fn lend_scope(&mut self, lender: u64, number: u64) {
        let issued_tickets = self.model.pods.get(&number).cloned();
        let (mut scope, mut ancestors) = (self.random_scope(), Vec::new());
        // Mostly scopes that the lender could have.
        if let Some(above) = self.model.pods.get(&lender).filter(|_| !self.dice.is_one_in(4)) {
            let mut rule = above.scope.allow[0].clone();
            if rule.target.len() < MAX_PATH_BYTES && !self.dice.is_one_in(4) {
                rule.target.push_str(if self.dice.is_one_in(2) { "/a" } else { "/b" });
            }
            scope.allow[0] = rule;
            scope.allow.truncate(1);
        }
        if let Some(pod) = &issued_tickets {
            scope = pod.scope.clone();
            ancestors.clone_from(&pod.ancestors);
        }
        if issued_tickets.is_some() && ancestors.is_empty() {
            return; // It had no parent and does not get one.
        }
        let expected = self.expected_lend_outcome(lender, number, (&scope, &ancestors));
        let lend = LoanRequest {
            lender: session_id(lender),
            session: session_id(number),
            name: pod_name(number),
            scope: scope.clone(),
            extra_scope: Scope::default(),
            limits: LIMITS,
            ancestors: ancestors.iter().map(|above| session_id(*above)).collect(),
            ticket_timeout: Duration::from_millis(TICKET_TIMEOUT),
        };
        self.tickets += 1;
        let ends = self.model.now + TICKET_TIMEOUT;
        let place = ScopeRow {
            ticket_hash: Some(self.tickets.to_string()),
            deadline: Some(ends),
            ..ScopeRow::for_this_process(pod_name(number), session_id(number), None)
        };
        let got = self.table.with_loan(&lend, place);
        if outcome_of(&got) != expected {
            eprintln!(
                "{lender} lends {} without {:?} to {number}: {:?}",
                scope.summary(),
                scope.deny,
                got.as_ref().err()
            );
        }
        self.check_outcome("lend", expected, outcome_of(&got));
        let Ok(next) = got else { return };
        self.table = next;
        let above = &self.model.pods[&lender];
        if ancestors.is_empty() {
            ancestors = [lender].into_iter().chain(above.ancestors.iter().copied()).collect();
        }
        // The denies of the lender also apply to its child.
        scope.deny.extend(above.scope.deny.iter().cloned());
        let read = self.model.points_of_scope(&scope, Permission::Read);
        let write = self.model.points_of_scope(&scope, Permission::Write);
        let ticket = Some((self.tickets, ends));
        let covered = self.model.covered_points(&scope);
        let pod = ModelPod { read, write, covered, scope, ancestors, is_live: true, yielded: false, ticket };
        self.model.pods.insert(number, pod);
    }

    fn expected_lend_outcome(
        &self,
        lender: u64,
        number: u64,
        (scope, line): (&Scope, &[u64]),
    ) -> TableOutcome {
        let model = &self.model;
        if !model.is_live(lender) {
            return TableOutcome::Unknown;
        }
        if model.is_live(number) {
            return TableOutcome::Held;
        }
        if model.live_count() >= LIMITS.max_pods {
            return TableOutcome::TooMany;
        }
        match line.iter().find(|above| model.is_live(**above)) {
            Some(nearest) if *nearest != lender => return TableOutcome::NeedsTicket,
            None if !line.is_empty() => return TableOutcome::Unknown,
            _ => {}
        }
        let above = &model.pods[&lender];
        let depth = if line.is_empty() { above.ancestors.len() + 1 } else { line.len() };
        if depth > LIMITS.max_depth as usize {
            return TableOutcome::TooDeep;
        }
        let own = |line: &[u64]| line.is_empty() || line.first() == Some(&lender);
        let mut children = model.children_of(lender);
        children.retain(|child| model.pods[child].ancestors.first() == Some(&lender));
        if own(line) && children.len() >= LIMITS.max_children {
            return TableOutcome::TooMany;
        }
        let mut held = scope.clone();
        held.deny.extend(above.scope.deny.iter().cloned());
        let (read, write) =
            (model.points_of_scope(&held, Permission::Read), model.points_of_scope(&held, Permission::Write));
        // Its own children, which the lender has meanwhile, return to it.
        let others = |child: &u64| !model.pods[child].ancestors.contains(&number);
        let lent = model.children_of(lender).into_iter().filter(others);
        let out = lent.fold(0, |out, child| out | model.pods[&child].covered);
        let has = if above.yielded { 0 } else { above.write & !out };
        // A requested path must belong to the lender; a deny below it is inherited instead.
        let named = |rule: &ScopeRule| {
            let at = model.points.iter().position(|path| *path == rule.target).expect("rules name points");
            let own = if rule.permission == Permission::Write { has } else { above.read };
            own & (1 << at) != 0
        };
        let within = write & !has == 0 && read & !above.read == 0;
        if within && scope.allow.iter().all(named) { TableOutcome::Granted } else { TableOutcome::NotFree }
    }

    fn adopt_row(&mut self, number: u64, ticket: u64) {
        let pod = self.model.pods.get_mut(&number);
        let good = pod.as_ref().is_some_and(|pod| {
            pod.is_live && pod.ticket.is_some_and(|(own, ends)| own == ticket && self.model.now < ends)
        });
        if let (true, Some(pod)) = (good, pod) {
            pod.ticket = None;
        }
        let here = ScopeRow::for_this_process(pod_name(number), session_id(number), None);
        let got = self.table.with_adopted(&here, &ticket.to_string(), self.model.now);
        self.check_outcome(
            "adopt",
            if good { TableOutcome::Granted } else { TableOutcome::BadTicket },
            outcome_of(&got),
        );
        if let Ok(next) = got {
            self.table = next;
        }
    }

    fn give_scope(&mut self, number: u64) {
        let expected = match self.model.pods.get(&number) {
            Some(pod) if pod.is_live => {
                let bound = !pod.ancestors.is_empty() || !self.model.children_of(number).is_empty();
                if bound { TableOutcome::CannotYield } else { TableOutcome::Granted }
            }
            _ => TableOutcome::Unknown,
        };
        let got = self.table.give_scope(session_id(number));
        self.check_outcome("give", expected, outcome_of(&got));
        if let Ok(next) = got {
            self.table = next;
            self.model.pods.get_mut(&number).expect("the pod is live").yielded = true;
        }
    }

    fn take_scope(&mut self, number: u64) {
        let expected = match self.model.pods.get(&number) {
            Some(pod) if pod.is_live => {
                let taken = pod.yielded && self.model.is_taken(pod.write, number);
                if taken { TableOutcome::NotFree } else { TableOutcome::Granted }
            }
            _ => TableOutcome::Unknown,
        };
        let got = self.table.take_scope(session_id(number));
        self.check_outcome("take", expected, outcome_of(&got));
        if let Ok(next) = got {
            self.table = next;
            self.model.pods.get_mut(&number).expect("the pod is live").yielded = false;
        }
    }

    fn kill_pods(&mut self, dead: &[u64]) {
        for number in dead {
            if let Some(pod) = self.model.pods.get_mut(number) {
                (pod.is_live, pod.yielded, pod.ticket) = (false, false, None);
            }
        }
        let sessions: Vec<SessionId> = dead.iter().map(|number| session_id(*number)).collect();
        self.table = match sessions.as_slice() {
            [one] => self.table.without_pod(*one),
            many => self.table.without_pods(many),
        };
        // Some never come back, and their number is reused.
        for number in dead {
            let above_somebody = self.model.pods.values().any(|pod| pod.ancestors.contains(number));
            if !above_somebody && self.dice.is_one_in(2) {
                self.model.pods.remove(number);
            }
        }
    }

    /// Wakes a dead pod by its nearest live ancestor.
    fn wake_pod(&mut self, number: u64) {
        let Some(pod) = self.model.pods.get(&number) else { return };
        match pod.ancestors.iter().copied().find(|above| self.model.is_live(*above)) {
            Some(nearest) if !pod.is_live => {
                let back = self.model.children_of(nearest).into_iter();
                let comes_back = |child: u64| self.model.pods[&child].ancestors.contains(&number);
                if back.into_iter().any(comes_back) {
                    *self.outcome_counts.entry("woken above its children".to_owned()).or_default() += 1;
                }
                self.lend_scope(nearest, number);
            }
            _ => {}
        }
    }

    fn random_step(&mut self) {
        let (number, other) = (self.dice.random_below(SESSION_COUNT), self.dice.random_below(SESSION_COUNT));
        let living: Vec<u64> =
            self.model.pods.keys().copied().filter(|pod| self.model.is_live(*pod)).collect();
        let lender = match living.len() as u64 {
            0 => number,
            count => living[usize::try_from(self.dice.random_below(count)).expect("a few")],
        };
        match self.dice.random_below(17) {
            0..=2 => self.register_pod(number),
            3 if number != other => self.lend_scope(number, other),
            4..=7 if lender != other => self.lend_scope(lender, other),
            13..=15 => self.wake_pod(number),
            8 => {
                let own = self.model.pods.get(&number).and_then(|pod| pod.ticket).map(|(own, _)| own);
                let ticket = own.filter(|_| !self.dice.is_one_in(4)).unwrap_or(other);
                self.adopt_row(number, ticket);
                if self.dice.is_one_in(2) {
                    self.adopt_row(number, ticket);
                }
            }
            9 => self.give_scope(number),
            10 => self.take_scope(number),
            11 => self.kill_pods(&[number, other]),
            12 => self.kill_pods(&[number]),
            _ => {
                // Sometimes exactly to a deadline.
                let end = self.model.pods.get(&number).and_then(|pod| pod.ticket).map(|(_, end)| end);
                let some = self.model.now + self.dice.random_below(TICKET_TIMEOUT);
                self.model.now = self.model.now.max(end.unwrap_or(some));
            }
        }
    }

    /// Compares every row with the model, point by point, and checks that there are no other rows.
    fn compare_table(&self) {
        let model = &self.model;
        assert_eq!(self.table.pods.len(), model.live_count());
        let mut owners: PointSet = 0;
        for (number, pod) in model.pods.iter().filter(|(_, pod)| pod.is_live) {
            let row = self.table.find_row(session_id(*number)).expect("a live pod has a row");
            assert_eq!(
                row.parent,
                model.parent_of(*number).map(session_id),
                "{number}: {}",
                self.describe_table()
            );
            assert_eq!(row.depth as usize, pod.ancestors.len());
            let (scope, mut write, mut read): (Scope, PointSet, PointSet) = (row.effective_scope(), 0, 0);
            for (at, path) in model.points.iter().enumerate() {
                let has = access_level(&scope, path);
                write |= u32::from(has == AccessLevel::Write) << at;
                read |= u32::from(has != AccessLevel::None) << at;
            }
            assert_eq!(write, model.writable_points(*number), "{number} writes; {}", self.describe_table());
            assert_eq!(read, pod.read, "{number} reads; {}", self.describe_table());
            assert_eq!(owners & write, 0, "two may write one point; {}", self.describe_table());
            owners |= write;
        }
    }
}

#[test]
fn the_table_says_what_sets_of_points_say() {
    let seeds = if std::env::var_os("MINKE_LONG").is_some() { 4_000 } else { 400 };
    let mut given: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..seeds {
        let model = PointModel { points: all_points(), pods: BTreeMap::new(), now: 0 };
        let table = ScopeTable::default();
        let mut both = TableAndModel {
            dice: TestRandom(seed),
            model,
            table,
            tickets: 100,
            outcome_counts: BTreeMap::new(),
        };
        for _ in 0..STEP_COUNT {
            both.random_step();
            both.compare_table();
        }
        for (label, times) in both.outcome_counts {
            *given.entry(label).or_default() += times;
        }
    }
    eprintln!("{given:#?}");
    // Every outcome must have occurred to be compared.
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
