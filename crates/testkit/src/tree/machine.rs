//! The simulated machine: the scope table with the product's rules, kernel locks for liveness, commands that
//! outlive their pods, reused process numbers, and a clock that may jump.
//!
//! Elsewhere: the processes (`process`), the invariants (`invariants`).
//! Invariant: liveness is a lock, and a row is released only after its lock and its commands; each guard can
//! be disabled (`TreeFlaw`) to test the checks.

use std::collections::BTreeMap;
use std::time::Duration;

use minke_policy::find_write_overlap;
use minke_record::{CallId, Millis, PodName, Scope, SessionId};
use minke_registry::{LoanRequest, PodLimits, RegistryError, ScopeLoan, ScopeRow, ScopeTable};

use super::{Key, TreeFlaw};

/// Number of different process numbers.
const PID_COUNT: u32 = 24;
/// How long a ticket is valid.
const TICKET_VALID_MS: u64 = 10_000;

/// A sandboxed command: it may write where its pod could when it started.
#[derive(Debug)]
pub(super) struct SandboxedCommand {
    pub(super) name: PodName,
    pub(super) owner: Key,
    pub(super) call: CallId,
    pub(super) scope: Scope,
    /// Its pod has ended or stopped it: it ends soon.
    pub(super) is_ending: bool,
}

/// The process that claims the row of a session in the scope table.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowClaim<'a> {
    pub(super) key: Key,
    pub(super) pid: u32,
    pub(super) name: &'a PodName,
    pub(super) session: SessionId,
}

#[derive(Debug)]
pub(super) struct VirtualMachine {
    pub(super) table: ScopeTable,
    pub(super) now: Millis,
    pub(super) limits: PodLimits,
    /// The holders of the scope leases by name.
    locks: BTreeMap<PodName, Key>,
    pub(super) commands: Vec<SandboxedCommand>,
    /// Number of adoptions per ticket.
    pub(super) adoptions: BTreeMap<String, u32>,
    /// The numbers of the running processes.
    pids: BTreeMap<Key, u32>,
    next_pid: u32,
    tickets: u64,
    row_template: ScopeRow,
    flaw: Option<TreeFlaw>,
}

impl VirtualMachine {
    pub(super) fn new(now: Millis, limits: PodLimits, flaw: Option<TreeFlaw>) -> VirtualMachine {
        let nil_session = SessionId(uuid::Uuid::nil());
        VirtualMachine {
            table: ScopeTable::default(),
            now,
            limits,
            locks: BTreeMap::new(),
            commands: Vec::new(),
            adoptions: BTreeMap::new(),
            pids: BTreeMap::new(),
            next_pid: 1,
            tickets: 0,
            row_template: ScopeRow::for_this_process(PodName::from_text("unnamed"), nil_session, None),
            flaw,
        }
    }

    /// Returns a number for a process, and whether it was used before.
    pub(super) fn allocate_pid(&mut self, key: Key) -> (u32, bool) {
        loop {
            self.next_pid += 1;
            let pid = self.next_pid % PID_COUNT + 1;
            if !self.pids.values().any(|taken| *taken == pid) {
                self.pids.insert(key, pid);
                return (pid, self.next_pid > PID_COUNT);
            }
        }
    }

    /// Returns whether a row is alive: its lease is held, it has commands, or its ticket is valid.
    fn is_row_alive(&self, row: &ScopeRow) -> bool {
        if self.flaw == Some(TreeFlaw::TrustsPids) {
            return self.pids.values().any(|pid| *pid == row.pid)
                || row.deadline.is_some_and(|at| self.now < at);
        }
        let runs_command = self.flaw != Some(TreeFlaw::IgnoresCommands) && self.has_commands(&row.name);
        self.locks.contains_key(&row.name) || runs_command || row.deadline.is_some_and(|at| self.now < at)
    }

    fn has_commands(&self, name: &PodName) -> bool {
        self.commands.iter().any(|command| command.name == *name)
    }

    /// Removes the rows of dead pods. Every reader of the table does this.
    pub(super) fn reclaim_dead_rows(&mut self) -> usize {
        let dead: Vec<SessionId> =
            self.table.pods.iter().filter(|row| !self.is_row_alive(row)).map(|row| row.session).collect();
        if self.flaw == Some(TreeFlaw::LosesLoans) && !dead.is_empty() {
            self.table.pods.retain(|row| !dead.contains(&row.session));
        } else if !dead.is_empty() {
            self.table = self.table.without_pods(&dead);
        }
        dead.len()
    }

    fn new_row(&self, name: &PodName, session: SessionId, pid: u32) -> ScopeRow {
        ScopeRow { name: name.clone(), session, pid, since: self.now, ..self.row_template.clone() }
    }

    pub(super) fn register_row(
        &mut self,
        claim: RowClaim<'_>,
        scope: &Scope,
        ancestors: Vec<SessionId>,
    ) -> Result<PodName, RegistryError> {
        let RowClaim { key, pid, name, session } = claim;
        self.reclaim_dead_rows();
        let lender = ancestors.first().copied();
        let row = ScopeRow { scope: scope.clone(), ancestors, lender, ..self.new_row(name, session, pid) };
        self.table = self.table.with_root_pod(row, self.limits, true)?;
        let name = self.table.find_row(session).map_or_else(|| name.clone(), |row| row.name.clone());
        self.locks.insert(name.clone(), key);
        Ok(name)
    }

    /// Lends a scope and returns the ticket of the new row. `line`: all ancestors of a restarted pod, nearest
    /// first.
    pub(super) fn lend_scope(
        &mut self,
        lender: SessionId,
        session: SessionId,
        name: &PodName,
        scope: &Scope,
        ancestors: Vec<SessionId>,
    ) -> Result<String, RegistryError> {
        self.reclaim_dead_rows();
        self.tickets += 1;
        let ticket = format!("ticket {}", self.tickets);
        let lend = LoanRequest {
            lender,
            session,
            name: name.clone(),
            scope: scope.clone(),
            extra_scope: Scope::default(),
            limits: self.limits,
            ancestors,
            ticket_timeout: Duration::from_millis(TICKET_VALID_MS),
        };
        let place = ScopeRow {
            ticket_hash: Some(ticket.clone()),
            deadline: Some(self.now + TICKET_VALID_MS),
            ..self.new_row(name, session, 0)
        };
        self.table = match self.flaw {
            Some(TreeFlaw::LendsTaken) => self.lend_unchecked(&lend, place)?,
            Some(TreeFlaw::IgnoresLimits) => {
                let limits =
                    PodLimits { max_depth: u32::MAX, max_children: usize::MAX, max_pods: usize::MAX };
                self.table.with_loan(&LoanRequest { limits, ..lend }, place)?
            }
            _ => self.table.with_loan(&lend, place)?,
        };
        Ok(ticket)
    }

    /// Adds row and loan without the conflict check.
    fn lend_unchecked(&self, lend: &LoanRequest, place: ScopeRow) -> Result<ScopeTable, RegistryError> {
        let error = match self.table.with_loan(lend, place.clone()) {
            Ok(table) => return Ok(table),
            Err(refused) => refused,
        };
        let conflict = matches!(error, RegistryError::WriteConflict { .. } | RegistryError::NotWithin { .. });
        let Some(lender) = self.table.find_row(lend.lender).filter(|_| conflict) else { return Err(error) };
        let ancestors = std::iter::once(lend.lender).chain(lender.ancestors.iter().copied()).collect();
        let mut next = self.table.clone();
        let row = ScopeRow {
            parent: Some(lend.lender),
            lender: Some(lend.lender),
            ancestors,
            depth: lender.depth + 1,
            scope: lend.scope.clone(),
            ..place
        };
        let loan = ScopeLoan { session: lend.session, name: lend.name.clone(), scope: lend.scope.clone() };
        if let Some(lender) = next.pods.iter_mut().find(|row| row.session == lend.lender) {
            lender.loans.push(loan);
        }
        next.pods.push(row);
        Ok(next)
    }

    pub(super) fn adopt_row(&mut self, claim: RowClaim<'_>, ticket: &str) -> Result<(), RegistryError> {
        let RowClaim { key, pid, name, session } = claim;
        let here = self.new_row(name, session, pid);
        let before = self.table.find_row(session).cloned();
        self.table = self.table.with_adopted(&here, ticket, self.now)?;
        if self.flaw == Some(TreeFlaw::KeepsTickets)
            && let Some(row) = self.table.pods.iter_mut().find(|row| row.session == session)
        {
            row.ticket_hash = before.as_ref().and_then(|row| row.ticket_hash.clone());
            row.deadline = before.and_then(|row| row.deadline);
        }
        *self.adoptions.entry(ticket.to_owned()).or_default() += 1;
        self.locks.insert(name.clone(), key);
        Ok(())
    }

    /// Removes a loan whose borrower has ended.
    pub(super) fn withdraw_loan(&mut self, session: SessionId) {
        let gone = |row: &ScopeRow| !self.locks.contains_key(&row.name) && !self.has_commands(&row.name);
        if self.table.find_row(session).is_some_and(gone) {
            self.table = self.table.without_pod(session);
        }
    }

    /// Releases the row of a pod that exits cleanly after its commands.
    pub(super) fn release_row(&mut self, session: SessionId) {
        self.table = self.table.without_pod(session);
    }

    pub(super) fn give_scope(&mut self, session: SessionId) -> Result<(), RegistryError> {
        self.table = self.table.give_scope(session)?;
        Ok(())
    }

    pub(super) fn take_scope(&mut self, session: SessionId) -> Result<(), RegistryError> {
        self.reclaim_dead_rows();
        self.table = self.table.take_scope(session)?;
        Ok(())
    }

    pub(super) fn effective_scope(&self, session: SessionId) -> Scope {
        self.table.find_row(session).map(ScopeRow::effective_scope).unwrap_or_default()
    }

    pub(super) fn loans_of(&self, session: SessionId) -> Vec<ScopeLoan> {
        self.table.find_row(session).map(|row| row.loans.clone()).unwrap_or_default()
    }

    pub(super) fn lender_of(&self, session: SessionId) -> Option<SessionId> {
        self.table.find_row(session).and_then(|row| row.lender)
    }

    /// Returns whether a process holds the name for this session, or commands of it still run.
    pub(super) fn is_name_held(&self, name: &PodName, session: SessionId) -> bool {
        let own = self.table.find_row(session).is_some_and(|row| row.name == *name);
        if self.flaw == Some(TreeFlaw::IgnoresCommands) {
            return own && self.locks.contains_key(name);
        }
        own && (self.locks.contains_key(name) || self.has_commands(name))
    }

    pub(super) fn lease_holder(&self, name: &PodName) -> Option<Key> {
        self.locks.get(name).copied()
    }

    pub(super) fn add_command(&mut self, owner: Key, name: PodName, call: CallId, scope: Scope) {
        self.commands.push(SandboxedCommand { name, owner, call, scope, is_ending: false });
    }

    pub(super) fn stop_command(&mut self, owner: Key, call: &CallId) {
        for command in
            self.commands.iter_mut().filter(|command| command.owner == owner && command.call == *call)
        {
            command.is_ending = true;
        }
    }

    /// Returns whether a command of this process could write into the scope.
    pub(super) fn has_command_writing(&self, owner: Key, scope: &Scope) -> bool {
        self.commands
            .iter()
            .any(|command| command.owner == owner && find_write_overlap(&command.scope, scope).is_some())
    }

    /// Releases everything that a process held.
    pub(super) fn release_process(&mut self, key: Key) {
        self.pids.remove(&key);
        self.locks.retain(|_, holder| *holder != key);
        for command in self.commands.iter_mut().filter(|command| command.owner == key) {
            command.is_ending = true;
        }
    }

    /// Restarts the machine: no process runs and the runtime directory is empty.
    pub(super) fn reset(&mut self) {
        self.table = ScopeTable::default();
        self.locks.clear();
        self.commands.clear();
        self.pids.clear();
    }
}
