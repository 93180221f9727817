//! The scope table: the scope of every pod, and all loans.
//!
//! Here: the rows and their changes, as pure functions from one table to the next. Elsewhere: storage, the lock and
//! liveness (`table_store`); scope arithmetic (`policy`).
//! Invariants: no two rows can write the same path, now or after any pod's death; a borrower has no more than its
//! lender had; the scope of a removed row returns to its lender (`no_interleaving_breaks_a_law`).

use std::time::Duration;

use minke_policy::{
    AccessLevel, access_level, find_write_overlap, first_excess, first_invalid_rule, scope_contains,
    subtract_loan,
};
use minke_record::{Millis, Permission, PodName, Scope, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::RegistryError;
use crate::lease::ScopeRow;

/// How many numbered names are tried.
const MAX_NAME_ATTEMPTS: u32 = 1_000;
/// The maximum length of a pod name.
const MAX_NAME_CHARS: usize = 40;

/// All rows of this user on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeTable {
    /// The number of changes.
    pub generation: u64,
    /// Sorted by name.
    pub pods: Vec<ScopeRow>,
}

/// A loan of one pod to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeLoan {
    pub session: SessionId,
    pub name: PodName,
    pub scope: Scope,
}

/// Limits on the number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodLimits {
    /// Ancestors of a pod.
    pub max_depth: u32,
    /// Live children of one pod.
    pub max_children: usize,
    /// Live pods of the user.
    pub max_pods: usize,
}

impl Default for PodLimits {
    fn default() -> Self {
        PodLimits { max_depth: 4, max_children: 16, max_pods: 256 }
    }
}

/// A request for a child's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoanRequest {
    pub lender: SessionId,
    pub session: SessionId,
    pub name: PodName,
    /// The part from the lender's own scope. The lender's denies are added to it.
    pub scope: Scope,
    /// The part that the lender does not own: the child's clone.
    pub extra_scope: Scope,
    pub limits: PodLimits,
    /// The ancestors of the child when it was spawned, nearest first. Empty for a new child: the lender and its
    /// ancestors.
    pub ancestors: Vec<SessionId>,
    /// How long the row waits for a process with the ticket.
    pub ticket_timeout: Duration,
}

impl ScopeTable {
    pub fn find_row(&self, session: SessionId) -> Option<&ScopeRow> {
        self.pods.iter().find(|row| row.session == session)
    }

    pub fn find_by_name(&self, name: &PodName) -> Option<&ScopeRow> {
        self.pods.iter().find(|row| row.name == *name)
    }

    /// Returns all descendants, children first.
    pub fn descendants(&self, session: SessionId) -> Vec<&ScopeRow> {
        let mut found: Vec<&ScopeRow> = Vec::new();
        let mut above = vec![session];
        while let Some(parent) = above.pop() {
            for row in self.pods.iter().filter(|row| row.parent == Some(parent)) {
                // A damaged table could contain a cycle.
                if row.session != session && !found.iter().any(|seen| seen.session == row.session) {
                    found.push(row);
                    above.push(row.session);
                }
            }
        }
        found
    }

    /// Adds a pod without a lender. With `unique` a taken name gets a number.
    pub fn with_root_pod(
        &self,
        row: ScopeRow,
        limits: PodLimits,
        unique: bool,
    ) -> Result<ScopeTable, RegistryError> {
        self.check_limits(row.session, limits)?;
        check_rules(&row.scope)?;
        if let Some(ancestor) = self.first_live_row(&row.ancestors) {
            let ancestor = Box::new(ancestor.clone());
            return Err(RegistryError::NeedsTicket { session: row.session, ancestor });
        }
        let name = if unique { self.find_free_name(&row.name)? } else { row.name };
        self.check_name_free(&name)?;
        let returning = self.returning_sessions(row.session, &row.scope, None);
        self.check_conflict(&row.scope, &self.with_descendants(&returning), Some(row.session))?;
        let mut next = self.clone();
        next.insert_row(ScopeRow {
            name,
            parent: None,
            depth: row.ancestors.len().try_into().unwrap_or(u32::MAX),
            loans: Vec::new(),
            ticket_hash: None,
            deadline: None,
            yielded: false,
            ..row
        });
        next.return_rows_to(&returning, row.session);
        Ok(next)
    }

    /// Adds a child's row and its parent's loan. `place` contains the ticket, the deadline and the socket.
    pub fn with_loan(&self, lend: &LoanRequest, position: ScopeRow) -> Result<ScopeTable, RegistryError> {
        let unknown = RegistryError::UnknownPod { session: lend.lender };
        let lender = self.find_row(lend.lender).ok_or(unknown)?;
        self.check_limits(lend.session, lend.limits)?;
        self.check_name_free(&lend.name)?;
        let line = self.loan_ancestors(lend, lender)?;
        let depth = line.len().try_into().unwrap_or(u32::MAX);
        if depth > lend.limits.max_depth {
            return Err(RegistryError::TooDeep { depth, limit: lend.limits.max_depth });
        }
        // Adopted rows are children of another pod, which may come back.
        let own = |line: &[SessionId]| line.first() == Some(&lend.lender);
        let children = self.pods.iter().filter(|row| own(&row.ancestors)).count();
        if own(&line) && children >= lend.limits.max_children {
            let (count, limit) = (children, lend.limits.max_children);
            return Err(RegistryError::TooMany { what: "children of this pod", count, limit });
        }
        for scope in [&lend.scope, &lend.extra_scope] {
            check_rules(scope)?;
        }
        let lent = with_lender_denies(&lend.scope, &lender.scope);
        let scope = merge_scopes(&lent, &lend.extra_scope);
        let returning = self.returning_sessions(lend.session, &scope, Some(lend.lender));
        let lender = lender_without(lender, &returning);
        self.check_loans(&lender, &lent)?;
        check_within(&lender.effective_scope(), &lend.scope, &lent)?;
        let mut exempt = self.with_descendants(&returning);
        exempt.push(lend.lender);
        self.check_effective(&scope, &exempt)?;
        exempt.extend(lender.ancestors.iter().copied());
        self.check_reserved(&lend.extra_scope, &exempt)?;
        let mut next = self.clone();
        next.insert_row(ScopeRow {
            name: lend.name.clone(),
            session: lend.session,
            parent: Some(lend.lender),
            lender: line.first().copied(),
            ancestors: line,
            depth,
            scope,
            apart: lend.extra_scope.clone(),
            loans: Vec::new(),
            yielded: false,
            ..position
        });
        next.return_rows_to(&returning, lend.session);
        next.add_loan(lend.lender, lend.session);
        Ok(next)
    }

    /// Gives a lent row to the process with its ticket. `here` describes the process; the rest comes from the row.
    pub fn with_adopted(
        &self,
        process_row: &ScopeRow,
        ticket_hash: &str,
        now: Millis,
    ) -> Result<ScopeTable, RegistryError> {
        let bad = || RegistryError::BadTicket { session: process_row.session };
        let mut next = self.clone();
        let row = next.row_mut(process_row.session).ok_or_else(bad)?;
        let good = row.ticket_hash.as_deref() == Some(ticket_hash) && row.deadline.is_some_and(|at| now < at);
        if !good {
            return Err(bad());
        }
        row.ticket_hash = None;
        row.deadline = None;
        row.since = now;
        row.pid = process_row.pid;
        row.start_time = process_row.start_time;
        row.boot_id.clone_from(&process_row.boot_id);
        row.epoch = process_row.epoch;
        Ok(next)
    }

    /// Removes a row. Its children, with their loans, go to its nearest live ancestor.
    pub fn without_pod(&self, session: SessionId) -> ScopeTable {
        self.without_pods(&[session])
    }

    /// Removes all these rows; their order does not matter.
    pub fn without_pods(&self, dead: &[SessionId]) -> ScopeTable {
        let mut next = self.clone();
        dead.iter().for_each(|session| next.remove_row(*session));
        next
    }

    fn remove_row(&mut self, session: SessionId) {
        let Some(position) = self.pods.iter().position(|row| row.session == session) else { return };
        let gone = self.pods.remove(position);
        let above = gone.parent.filter(|parent| self.find_row(*parent).is_some());
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
                self.add_loan(above, child);
            }
        }
    }

    /// Returns whether a descendant of this session has a row. If so, a session that comes back may get it again.
    pub(crate) fn has_descendants(&self, session: SessionId) -> bool {
        self.pods.iter().any(|row| row.ancestors.contains(&session))
    }

    /// Releases the write access of a row until it takes its scope back. Only for pods without a parent and without
    /// loans: a scope that returns to a lender must not belong to another pod, even if that lender is only coming back.
    pub fn give_scope(&self, session: SessionId) -> Result<ScopeTable, RegistryError> {
        let mut next = self.clone();
        let row = next.row_mut(session).ok_or(RegistryError::UnknownPod { session })?;
        let why = if !row.ancestors.is_empty() || row.parent.is_some() {
            Some("its scope is lent by its parent; stop it instead")
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

    /// Takes the released scope back, if no other pod has it.
    pub fn take_scope(&self, session: SessionId) -> Result<ScopeTable, RegistryError> {
        let mut next = self.clone();
        let row = next.row_mut(session).ok_or(RegistryError::UnknownPod { session })?;
        if row.yielded {
            row.yielded = false;
            let scope = row.scope.clone();
            let exempt: Vec<SessionId> = self.descendants(session).iter().map(|row| row.session).collect();
            self.check_conflict(&scope, &exempt, Some(session))?;
        }
        Ok(next)
    }

    /// Returns the first of these sessions that has a row.
    pub fn first_live_row(&self, of: &[SessionId]) -> Option<&ScopeRow> {
        of.iter().find_map(|session| self.find_row(*session))
    }

    /// Rebuilds all loans: every row belongs to its nearest ancestor that has a row and covers its scope. Sources of
    /// different age may disagree about this.
    pub(crate) fn rebuild_loans(&mut self) {
        self.pods.sort_by(|a, b| a.name.cmp(&b.name));
        let lender_of = |row: &ScopeRow| {
            let mut above = row.ancestors.iter().filter_map(|session| self.find_row(*session));
            above.find(|lender| scope_contains(&lender.scope, &row.lent_scope())).map(|lender| lender.session)
        };
        let parents: Vec<Option<SessionId>> = self.pods.iter().map(lender_of).collect();
        for (row, parent) in self.pods.iter_mut().zip(&parents) {
            row.parent = *parent;
            row.loans.clear();
        }
        let borrowers: Vec<SessionId> = self.pods.iter().map(|row| row.session).collect();
        for (borrower, lender) in borrowers.into_iter().zip(parents) {
            if let Some(lender) = lender {
                self.add_loan(lender, borrower);
            }
        }
    }

    /// Returns the ancestors of the borrower. A pod that is woken may borrow only from its nearest live ancestor.
    fn loan_ancestors(&self, lend: &LoanRequest, lender: &ScopeRow) -> Result<Vec<SessionId>, RegistryError> {
        if lend.ancestors.is_empty() {
            return Ok(std::iter::once(lend.lender).chain(lender.ancestors.iter().copied()).collect());
        }
        match self.first_live_row(&lend.ancestors) {
            Some(nearest) if nearest.session == lend.lender => Ok(lend.ancestors.clone()),
            Some(nearest) => {
                let ancestor = Box::new(nearest.clone());
                Err(RegistryError::NeedsTicket { session: lend.session, ancestor })
            }
            None => Err(RegistryError::UnknownPod { session: lend.lender }),
        }
    }

    fn insert_row(&mut self, row: ScopeRow) {
        let position = self.pods.partition_point(|other| other.name < row.name);
        self.pods.insert(position, row);
    }

    pub(crate) fn row_mut(&mut self, session: SessionId) -> Option<&mut ScopeRow> {
        self.pods.iter_mut().find(|row| row.session == session)
    }

    fn add_loan(&mut self, lender: SessionId, borrower: SessionId) {
        let Some(row) = self.find_row(borrower) else { return };
        let loan = ScopeLoan { session: borrower, name: row.name.clone(), scope: row.scope.clone() };
        if let Some(lender) = self.row_mut(lender) {
            lender.loans.retain(|other| other.session != borrower);
            lender.loans.push(loan);
        }
    }

    fn check_limits(&self, session: SessionId, limits: PodLimits) -> Result<(), RegistryError> {
        if let Some(row) = self.find_row(session) {
            return Err(RegistryError::SessionHeld { pod: Box::new(row.clone()), since: row.since });
        }
        if self.pods.len() >= limits.max_pods {
            let (count, limit) = (self.pods.len(), limits.max_pods);
            return Err(RegistryError::TooMany { what: "pods of this user", count, limit });
        }
        Ok(())
    }

    fn check_name_free(&self, name: &PodName) -> Result<(), RegistryError> {
        match self.find_by_name(name) {
            Some(holder) => Err(RegistryError::DuplicateName {
                name: name.clone(),
                holder: Some(Box::new(holder.clone())),
            }),
            None => Ok(()),
        }
    }

    fn find_free_name(&self, base: &PodName) -> Result<PodName, RegistryError> {
        let mut names = (1..=MAX_NAME_ATTEMPTS).map(|number| numbered_name(base, number));
        let free = names.find(|name| self.find_by_name(name).is_none());
        free.ok_or_else(|| RegistryError::NoFreeName { name: base.clone(), tried: MAX_NAME_ATTEMPTS })
    }

    /// Returns the rows that a session gets back below `parent`: those that were spawned below it, now belong to its
    /// new parent, and lie inside its scope.
    fn returning_sessions(
        &self,
        session: SessionId,
        scope: &Scope,
        parent: Option<SessionId>,
    ) -> Vec<SessionId> {
        let comes_back = |row: &&ScopeRow| {
            let rank = |of: SessionId| row.ancestors.iter().position(|ancestor| *ancestor == of);
            let Some(own) = rank(session) else { return false };
            let nearer = match row.parent {
                Some(now) => rank(now).is_none_or(|now| own < now),
                None => true,
            };
            nearer && row.parent == parent && scope_contains(scope, &row.lent_scope())
        };
        self.pods.iter().filter(comes_back).map(|row| row.session).collect()
    }

    fn return_rows_to(&mut self, returning: &[SessionId], to: SessionId) {
        for session in returning {
            let Some(row) = self.row_mut(*session) else { continue };
            let before = row.parent.replace(to);
            if let Some(ancestor) = before.and_then(|before| self.row_mut(before)) {
                ancestor.loans.retain(|loan| loan.session != *session);
            }
            self.add_loan(to, *session);
        }
    }

    fn with_descendants(&self, tops: &[SessionId]) -> Vec<SessionId> {
        let below = tops.iter().flat_map(|top| self.descendants(*top)).map(|row| row.session);
        tops.iter().copied().chain(below).collect()
    }

    /// Refuses paths that another row can write, now or when its loans return.
    fn check_conflict(
        &self,
        scope: &Scope,
        exempt: &[SessionId],
        own: Option<SessionId>,
    ) -> Result<(), RegistryError> {
        let spared: Vec<SessionId> = exempt.iter().copied().chain(own).collect();
        self.check_effective(scope, &spared)?;
        self.check_reserved(scope, &spared)
    }

    /// Refuses paths that the lender has already lent.
    fn check_loans(&self, lender: &ScopeRow, lent: &Scope) -> Result<(), RegistryError> {
        for loan in &lender.loans {
            if let (Some(overlap), Some(row)) =
                (find_write_overlap(&loan.scope, lent), self.find_row(loan.session))
            {
                let holder = Box::new(row.clone());
                return Err(RegistryError::WriteConflict { path: overlap.path, holder, rule: overlap.first });
            }
        }
        Ok(())
    }

    fn check_effective(&self, scope: &Scope, exempt: &[SessionId]) -> Result<(), RegistryError> {
        self.check_against(scope, exempt, ScopeRow::effective_scope)
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
        exempt: &[SessionId],
        scope_of: impl Fn(&ScopeRow) -> Scope,
    ) -> Result<(), RegistryError> {
        let related =
            |row: &&ScopeRow| !exempt.contains(&row.session) && scopes_may_overlap(&row.scope, scope);
        for row in self.pods.iter().filter(related) {
            if let Some(overlap) = find_write_overlap(&scope_of(row), scope) {
                let holder = Box::new(row.clone());
                return Err(RegistryError::WriteConflict { path: overlap.path, holder, rule: overlap.first });
            }
        }
        Ok(())
    }
}

impl ScopeRow {
    /// Returns the current scope of the pod: without write access to lent paths.
    pub fn effective_scope(&self) -> Scope {
        let rest = self.loans.iter().fold(self.scope.clone(), |rest, loan| subtract_loan(&rest, &loan.scope));
        if self.yielded { read_only_scope(rest) } else { rest }
    }

    /// Returns the part of its scope that came from its lender.
    fn lent_scope(&self) -> Scope {
        let mut lent = self.scope.clone();
        lent.allow.retain(|rule| !self.apart.allow.contains(rule));
        lent
    }
}

/// Returns whether a write rule of one scope equals, contains or lies below one of the other. Otherwise no path can be
/// written in both, so most rows need no closer comparison.
pub(crate) fn scopes_may_overlap(a: &Scope, b: &Scope) -> bool {
    let at_or_below = |low: &str, high: &str| {
        let rest = low.strip_prefix(high);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || high.ends_with('/'))
    };
    write_targets(a).any(|one| write_targets(b).any(|two| at_or_below(one, two) || at_or_below(two, one)))
}

/// Returns the targets of a scope's write rules.
fn write_targets(scope: &Scope) -> impl Iterator<Item = &str> {
    let rules = scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    rules.map(|rule| rule.target.as_str())
}

fn lender_without(lender: &ScopeRow, returning: &[SessionId]) -> ScopeRow {
    let mut lender = lender.clone();
    lender.loans.retain(|loan| !returning.contains(&loan.session));
    lender
}

fn read_only_scope(mut scope: Scope) -> Scope {
    for rule in &mut scope.allow {
        rule.permission = Permission::Read;
    }
    scope
}

/// Returns the request with the lender's denies.
fn with_lender_denies(request: &Scope, lender: &Scope) -> Scope {
    let mut deny = lender.deny.clone();
    deny.extend(request.deny.iter().filter(|rule| !lender.deny.contains(rule)).cloned());
    Scope { allow: request.allow.clone(), deny }
}

fn merge_scopes(lent: &Scope, apart: &Scope) -> Scope {
    let mut scope = lent.clone();
    scope.allow.extend(apart.allow.iter().cloned());
    scope.deny.extend(apart.deny.iter().filter(|rule| !lent.deny.contains(rule)).cloned());
    scope
}

fn check_rules(scope: &Scope) -> Result<(), RegistryError> {
    match first_invalid_rule(scope) {
        Some(rule) => Err(RegistryError::BadTarget {
            target: rule.target.clone(),
            why: "it is not an absolute path without `.`, `..` and double slashes, or the permission is unknown"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Refuses a request for a path where the lender has less access. Its denies below a path are inherited instead.
fn check_within(have: &Scope, request: &Scope, lent: &Scope) -> Result<(), RegistryError> {
    for rule in &request.allow {
        let wanted =
            if rule.permission == Permission::Write { AccessLevel::Write } else { AccessLevel::Read };
        let found = access_level(have, &rule.target);
        if found < wanted {
            return Err(RegistryError::NotWithin { path: rule.target.clone(), have: found, want: wanted });
        }
    }
    match first_excess(have, lent) {
        Some((path, have, want)) => Err(RegistryError::NotWithin { path, have, want }),
        None => Ok(()),
    }
}

/// Returns `name`, `name-2`, `name-3` …, shortened to the maximum length.
fn numbered_name(base: &PodName, number: u32) -> PodName {
    if number == 1 {
        return base.clone();
    }
    let suffix = format!("-{number}");
    let room = MAX_NAME_CHARS - suffix.len();
    let stem: String = base.as_str().chars().take(room).collect();
    let name = format!("{}{suffix}", stem.trim_end_matches(['-', ' ']));
    name.parse().unwrap_or_else(|_| PodName::from_text(&name))
}
