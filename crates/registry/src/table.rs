//! The scope table: who holds which part of the file system, and who has lent it to whom.
//!
//! Here: the rows and what may become of them, as pure functions from a whole table to the next one. Elsewhere: the file,
//! its lock and who lives (`ledger`); scope arithmetic (`policy`).
//! Invariants: no two rows can write one path, nor come to by a death; a borrower has nothing that its lender had not;
//! what a row held is its lender's again when the row is gone (`no_interleaving_breaks_a_law`).

use std::time::Duration;

use minke_policy::{Level, bad_rule, contains, first_excess, level, overlaps_write, subtract};
use minke_record::{Millis, Permission, PodName, Scope, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::RegistryError;
use crate::lease::Row;

/// How many numbered names are tried before giving up.
const NAMES_TRIED: u32 = 1_000;
/// A pod name's longest form.
const NAME_CHARS: usize = 40;

/// All rows of this machine's user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Counts changes.
    pub generation: u64,
    /// By name.
    pub pods: Vec<Row>,
}

/// What a pod has lent to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    pub session: SessionId,
    pub name: PodName,
    pub scope: Scope,
}

/// How many pods there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Pods above a pod.
    pub depth: u32,
    /// Live children of one pod.
    pub children: usize,
    /// Live pods of the user.
    pub pods: usize,
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits { depth: 4, children: 16, pods: 256 }
    }
}

/// What a pod asks for one that it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lend {
    pub lender: SessionId,
    pub session: SessionId,
    pub name: PodName,
    /// Out of the lender's own. The lender's denies are added to it.
    pub scope: Scope,
    /// What is not the lender's to give: the child's clone.
    pub apart: Scope,
    pub limits: TableLimits,
    /// Who was above the child when it was spawned, nearest first. Empty for a new one: the lender and those above it.
    pub line: Vec<SessionId>,
    /// How long the row waits for whoever comes with the ticket.
    pub patience: Duration,
}

impl Table {
    pub fn row(&self, session: SessionId) -> Option<&Row> {
        self.pods.iter().find(|row| row.session == session)
    }

    pub fn named(&self, name: &PodName) -> Option<&Row> {
        self.pods.iter().find(|row| row.name == *name)
    }

    /// The rows below one, children first, then theirs.
    pub fn below(&self, session: SessionId) -> Vec<&Row> {
        let mut found: Vec<&Row> = Vec::new();
        let mut above = vec![session];
        while let Some(parent) = above.pop() {
            for row in self.pods.iter().filter(|row| row.parent == Some(parent)) {
                // A damaged table could lead in a circle.
                if row.session != session && !found.iter().any(|seen| seen.session == row.session) {
                    found.push(row);
                    above.push(row.session);
                }
            }
        }
        found
    }

    /// Adds a pod that nobody lends to. With `unique` a taken name is numbered.
    pub fn register(&self, row: Row, limits: TableLimits, unique: bool) -> Result<Table, RegistryError> {
        self.admit(row.session, limits)?;
        check_rules(&row.scope)?;
        if let Some(ancestor) = self.first_living(&row.ancestors) {
            let ancestor = Box::new(ancestor.clone());
            return Err(RegistryError::NeedsTicket { session: row.session, ancestor });
        }
        let name = if unique { self.free_name(&row.name)? } else { row.name };
        self.check_name(&name)?;
        let returning = self.returning(row.session, &row.scope, None);
        self.check_conflict(&row.scope, &self.with_all_below(&returning), Some(row.session))?;
        let mut next = self.clone();
        next.insert(Row {
            name,
            parent: None,
            depth: row.ancestors.len().try_into().unwrap_or(u32::MAX),
            loans: Vec::new(),
            ticket_hash: None,
            deadline: None,
            yielded: false,
            ..row
        });
        next.hand_back(&returning, row.session);
        Ok(next)
    }

    /// Adds a child's row and its parent's loan. `place` has what the hand knows: ticket, deadline, socket.
    pub fn lend(&self, lend: &Lend, place: Row) -> Result<Table, RegistryError> {
        let unknown = RegistryError::UnknownPod { session: lend.lender };
        let lender = self.row(lend.lender).ok_or(unknown)?;
        self.admit(lend.session, lend.limits)?;
        self.check_name(&lend.name)?;
        let line = self.line(lend, lender)?;
        let depth = line.len().try_into().unwrap_or(u32::MAX);
        if depth > lend.limits.depth {
            return Err(RegistryError::TooDeep { depth, limit: lend.limits.depth });
        }
        // Adopted ones are another's children: they wait for it to come back.
        let own = |line: &[SessionId]| line.first() == Some(&lend.lender);
        let children = self.pods.iter().filter(|row| own(&row.ancestors)).count();
        if own(&line) && children >= lend.limits.children {
            let (count, limit) = (children, lend.limits.children);
            return Err(RegistryError::TooMany { what: "children of this pod", count, limit });
        }
        for scope in [&lend.scope, &lend.apart] {
            check_rules(scope)?;
        }
        let lent = inherit(&lend.scope, &lender.scope);
        let scope = together(&lent, &lend.apart);
        let returning = self.returning(lend.session, &scope, Some(lend.lender));
        let lender = lender_without(lender, &returning);
        self.check_loans(&lender, &lent)?;
        check_within(&lender.effective(), &lend.scope, &lent)?;
        let mut spared = self.with_all_below(&returning);
        spared.push(lend.lender);
        self.check_effective(&scope, &spared)?;
        spared.extend(lender.ancestors.iter().copied());
        self.check_reserved(&lend.apart, &spared)?;
        let mut next = self.clone();
        next.insert(Row {
            name: lend.name.clone(),
            session: lend.session,
            parent: Some(lend.lender),
            lender: line.first().copied(),
            ancestors: line,
            depth,
            scope,
            apart: lend.apart.clone(),
            loans: Vec::new(),
            yielded: false,
            ..place
        });
        next.hand_back(&returning, lend.session);
        next.note_loan(lend.lender, lend.session);
        Ok(next)
    }

    /// Gives a lent row to whoever came with its ticket: what `here` says of the process, all else from the row.
    pub fn adopt(&self, here: &Row, ticket_hash: &str, now: Millis) -> Result<Table, RegistryError> {
        let bad = || RegistryError::BadTicket { session: here.session };
        let mut next = self.clone();
        let row = next.row_mut(here.session).ok_or_else(bad)?;
        let good = row.ticket_hash.as_deref() == Some(ticket_hash) && row.deadline.is_some_and(|at| now < at);
        if !good {
            return Err(bad());
        }
        row.ticket_hash = None;
        row.deadline = None;
        row.since = now;
        row.pid = here.pid;
        row.start_time = here.start_time;
        row.boot_id.clone_from(&here.boot_id);
        row.epoch = here.epoch;
        Ok(next)
    }

    /// Takes a row away. Its children go to whoever is above it, with their loans.
    pub fn release(&self, session: SessionId) -> Table {
        self.reclaim(&[session])
    }

    /// Takes all these rows away, in whatever order.
    pub fn reclaim(&self, dead: &[SessionId]) -> Table {
        let mut next = self.clone();
        dead.iter().for_each(|session| next.remove(*session));
        next
    }

    fn remove(&mut self, session: SessionId) {
        let Some(place) = self.pods.iter().position(|row| row.session == session) else { return };
        let gone = self.pods.remove(place);
        let above = gone.parent.filter(|parent| self.row(*parent).is_some());
        let mut moved = Vec::new();
        for row in self.pods.iter_mut().filter(|row| row.parent == Some(session)) {
            row.parent = above;
            moved.push(row.session);
        }
        if let Some(above) = above {
            if let Some(row) = self.row_mut(above) {
                row.loans.retain(|loan| loan.session != session);
            }
            for child in moved {
                self.note_loan(above, child);
            }
        }
    }

    /// Whether a row was spawned below this session. If one was, a session that comes back may get it again.
    pub(crate) fn has_below(&self, session: SessionId) -> bool {
        self.pods.iter().any(|row| row.ancestors.contains(&session))
    }

    /// The row gives up writing until it takes its scope back. Only for pods that nobody spawned and that have lent
    /// nothing: what comes back to a lender must not have gone to somebody else, also if that lender is only coming back.
    pub fn give_scope(&self, session: SessionId) -> Result<Table, RegistryError> {
        let mut next = self.clone();
        let row = next.row_mut(session).ok_or(RegistryError::UnknownPod { session })?;
        let why = if !row.ancestors.is_empty() || row.parent.is_some() {
            Some("it is lent by the pod that spawned it; stop it instead")
        } else if !row.loans.is_empty() {
            Some("it has live children; stop them first")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(RegistryError::CannotYield { name: row.name.clone(), why });
        }
        row.yielded = true;
        Ok(next)
    }

    /// The row takes back what it gave up, if nobody has it.
    pub fn take_scope(&self, session: SessionId) -> Result<Table, RegistryError> {
        let mut next = self.clone();
        let row = next.row_mut(session).ok_or(RegistryError::UnknownPod { session })?;
        if row.yielded {
            row.yielded = false;
            let scope = row.scope.clone();
            let spared: Vec<SessionId> = self.below(session).iter().map(|row| row.session).collect();
            self.check_conflict(&scope, &spared, Some(session))?;
        }
        Ok(next)
    }

    /// The first of these sessions that has a row.
    pub fn first_living(&self, of: &[SessionId]) -> Option<&Row> {
        of.iter().find_map(|session| self.row(*session))
    }

    /// Makes all loans anew: every row belongs to the nearest that was above it, is there, and has what it has. Sources of
    /// different age may disagree about that.
    pub(crate) fn settle(&mut self) {
        self.pods.sort_by(|a, b| a.name.cmp(&b.name));
        let lender_of = |row: &Row| {
            let mut above = row.ancestors.iter().filter_map(|session| self.row(*session));
            above.find(|lender| contains(&lender.scope, &row.lent())).map(|lender| lender.session)
        };
        let parents: Vec<Option<SessionId>> = self.pods.iter().map(lender_of).collect();
        for (row, parent) in self.pods.iter_mut().zip(&parents) {
            row.parent = *parent;
            row.loans.clear();
        }
        let borrowers: Vec<SessionId> = self.pods.iter().map(|row| row.session).collect();
        for (borrower, lender) in borrowers.into_iter().zip(parents) {
            if let Some(lender) = lender {
                self.note_loan(lender, borrower);
            }
        }
    }

    /// Who is above the pod that is lent to. One that is woken may be lent to by the nearest of them that lives only.
    fn line(&self, lend: &Lend, lender: &Row) -> Result<Vec<SessionId>, RegistryError> {
        if lend.line.is_empty() {
            return Ok(std::iter::once(lend.lender).chain(lender.ancestors.iter().copied()).collect());
        }
        match self.first_living(&lend.line) {
            Some(nearest) if nearest.session == lend.lender => Ok(lend.line.clone()),
            Some(nearest) => {
                let ancestor = Box::new(nearest.clone());
                Err(RegistryError::NeedsTicket { session: lend.session, ancestor })
            }
            None => Err(RegistryError::UnknownPod { session: lend.lender }),
        }
    }

    fn insert(&mut self, row: Row) {
        let place = self.pods.partition_point(|other| other.name < row.name);
        self.pods.insert(place, row);
    }

    pub(crate) fn row_mut(&mut self, session: SessionId) -> Option<&mut Row> {
        self.pods.iter_mut().find(|row| row.session == session)
    }

    fn note_loan(&mut self, lender: SessionId, borrower: SessionId) {
        let Some(row) = self.row(borrower) else { return };
        let loan = Loan { session: borrower, name: row.name.clone(), scope: row.scope.clone() };
        if let Some(lender) = self.row_mut(lender) {
            lender.loans.retain(|other| other.session != borrower);
            lender.loans.push(loan);
        }
    }

    fn admit(&self, session: SessionId, limits: TableLimits) -> Result<(), RegistryError> {
        if let Some(row) = self.row(session) {
            return Err(RegistryError::SessionHeld { pod: Box::new(row.clone()), since: row.since });
        }
        if self.pods.len() >= limits.pods {
            let (count, limit) = (self.pods.len(), limits.pods);
            return Err(RegistryError::TooMany { what: "pods of this user", count, limit });
        }
        Ok(())
    }

    fn check_name(&self, name: &PodName) -> Result<(), RegistryError> {
        match self.named(name) {
            Some(holder) => Err(RegistryError::DuplicateName {
                name: name.clone(),
                holder: Some(Box::new(holder.clone())),
            }),
            None => Ok(()),
        }
    }

    fn free_name(&self, base: &PodName) -> Result<PodName, RegistryError> {
        let mut names = (1..=NAMES_TRIED).map(|number| numbered(base, number));
        let free = names.find(|name| self.named(name).is_none());
        free.ok_or_else(|| RegistryError::NoFreeName { name: base.clone(), tried: NAMES_TRIED })
    }

    /// Which rows a session that comes back below `parent` has again: those that were spawned below it, live under its
    /// new parent meanwhile, and lie inside its scope.
    fn returning(&self, session: SessionId, scope: &Scope, parent: Option<SessionId>) -> Vec<SessionId> {
        let comes_back = |row: &&Row| {
            let rank = |of: SessionId| row.ancestors.iter().position(|ancestor| *ancestor == of);
            let Some(own) = rank(session) else { return false };
            let nearer = match row.parent {
                Some(now) => rank(now).is_none_or(|now| own < now),
                None => true,
            };
            nearer && row.parent == parent && contains(scope, &row.lent())
        };
        self.pods.iter().filter(comes_back).map(|row| row.session).collect()
    }

    fn hand_back(&mut self, returning: &[SessionId], to: SessionId) {
        for session in returning {
            let Some(row) = self.row_mut(*session) else { continue };
            let before = row.parent.replace(to);
            if let Some(ancestor) = before.and_then(|before| self.row_mut(before)) {
                ancestor.loans.retain(|loan| loan.session != *session);
            }
            self.note_loan(to, *session);
        }
    }

    fn with_all_below(&self, tops: &[SessionId]) -> Vec<SessionId> {
        let below = tops.iter().flat_map(|top| self.below(*top)).map(|row| row.session);
        tops.iter().copied().chain(below).collect()
    }

    /// Refuses what another row can write now or could write again when its loans come back.
    fn check_conflict(
        &self,
        scope: &Scope,
        spared: &[SessionId],
        own: Option<SessionId>,
    ) -> Result<(), RegistryError> {
        let spared: Vec<SessionId> = spared.iter().copied().chain(own).collect();
        self.check_effective(scope, &spared)?;
        self.check_reserved(scope, &spared)
    }

    /// Refuses what the lender has lent to somebody else already.
    fn check_loans(&self, lender: &Row, lent: &Scope) -> Result<(), RegistryError> {
        for loan in &lender.loans {
            if let (Some(overlap), Some(row)) = (overlaps_write(&loan.scope, lent), self.row(loan.session)) {
                let holder = Box::new(row.clone());
                return Err(RegistryError::WriteConflict { path: overlap.path, holder, rule: overlap.first });
            }
        }
        Ok(())
    }

    fn check_effective(&self, scope: &Scope, spared: &[SessionId]) -> Result<(), RegistryError> {
        self.check_against(scope, spared, Row::effective)
    }

    fn check_reserved(&self, scope: &Scope, spared: &[SessionId]) -> Result<(), RegistryError> {
        self.check_against(
            scope,
            spared,
            |row| {
                if row.yielded { Scope::default() } else { row.scope.clone() }
            },
        )
    }

    fn check_against(
        &self,
        scope: &Scope,
        spared: &[SessionId],
        held: impl Fn(&Row) -> Scope,
    ) -> Result<(), RegistryError> {
        let related = |row: &&Row| !spared.contains(&row.session) && may_touch(&row.scope, scope);
        for row in self.pods.iter().filter(related) {
            if let Some(overlap) = overlaps_write(&held(row), scope) {
                let holder = Box::new(row.clone());
                return Err(RegistryError::WriteConflict { path: overlap.path, holder, rule: overlap.first });
            }
        }
        Ok(())
    }
}

impl Row {
    /// What the pod may do now: its scope, without writing where it has lent.
    pub fn effective(&self) -> Scope {
        let rest = self.loans.iter().fold(self.scope.clone(), |rest, loan| subtract(&rest, &loan.scope));
        if self.yielded { reading(rest) } else { rest }
    }

    /// The part of its scope that came from its lender.
    fn lent(&self) -> Scope {
        let mut lent = self.scope.clone();
        lent.allow.retain(|rule| !self.apart.allow.contains(rule));
        lent
    }
}

/// Whether a write rule of one scope lies at, above or below one of the other. Without such a pair no path can be written
/// in both, whatever is denied or lent, so most of a thousand rows need no closer comparison.
pub(crate) fn may_touch(a: &Scope, b: &Scope) -> bool {
    let at_or_below = |low: &str, high: &str| {
        let rest = low.strip_prefix(high);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || high.ends_with('/'))
    };
    writes(a).any(|one| writes(b).any(|two| at_or_below(one, two) || at_or_below(two, one)))
}

/// The targets of a scope's write rules.
fn writes(scope: &Scope) -> impl Iterator<Item = &str> {
    let rules = scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    rules.map(|rule| rule.target.as_str())
}

fn lender_without(lender: &Row, returning: &[SessionId]) -> Row {
    let mut lender = lender.clone();
    lender.loans.retain(|loan| !returning.contains(&loan.session));
    lender
}

fn reading(mut scope: Scope) -> Scope {
    for rule in &mut scope.allow {
        rule.permission = Permission::Read;
    }
    scope
}

/// The request with the lender's denies.
fn inherit(request: &Scope, lender: &Scope) -> Scope {
    let mut deny = lender.deny.clone();
    deny.extend(request.deny.iter().filter(|rule| !lender.deny.contains(rule)).cloned());
    Scope { allow: request.allow.clone(), deny }
}

fn together(lent: &Scope, apart: &Scope) -> Scope {
    let mut scope = lent.clone();
    scope.allow.extend(apart.allow.iter().cloned());
    scope.deny.extend(apart.deny.iter().filter(|rule| !lent.deny.contains(rule)).cloned());
    scope
}

fn check_rules(scope: &Scope) -> Result<(), RegistryError> {
    match bad_rule(scope) {
        Some(rule) => Err(RegistryError::BadTarget {
            target: rule.target.clone(),
            why: "it is not an absolute path without `.`, `..` and double slashes, or the permission is unknown"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Refuses a request for a place where the lender has less itself. Its own denies below a place are inherited instead.
fn check_within(have: &Scope, request: &Scope, lent: &Scope) -> Result<(), RegistryError> {
    for rule in &request.allow {
        let wanted = if rule.permission == Permission::Write { Level::Write } else { Level::Read };
        let found = level(have, &rule.target);
        if found < wanted {
            return Err(RegistryError::NotWithin { path: rule.target.clone(), have: found, want: wanted });
        }
    }
    match first_excess(have, lent) {
        Some((path, have, want)) => Err(RegistryError::NotWithin { path, have, want }),
        None => Ok(()),
    }
}

/// `name`, `name-2`, `name-3` …, shortened so that it stays a name.
fn numbered(base: &PodName, number: u32) -> PodName {
    if number == 1 {
        return base.clone();
    }
    let suffix = format!("-{number}");
    let room = NAME_CHARS - suffix.len();
    let stem: String = base.as_str().chars().take(room).collect();
    let name = format!("{}{suffix}", stem.trim_end_matches(['-', ' ']));
    name.parse().unwrap_or_else(|_| PodName::from_any(&name))
}
