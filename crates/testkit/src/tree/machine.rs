//! The virtual machine below the tree: the scope table with the product's own rules, the kernel locks that say who lives,
//! commands that outlive their pods, process numbers that are used again, and a clock that may jump.
//!
//! Here: what holds whoever lives. Elsewhere: the processes (`life`), what must always be true (`check`).
//! Invariant: liveness is a lock, and a row is given back only when its lock and its commands are gone; each guard can be
//! left out (`Flaw`) to see that it is missed.

use std::collections::BTreeMap;
use std::time::Duration;

use minke_policy::overlaps_write;
use minke_record::{CallId, Millis, PodName, Scope, SessionId};
use minke_registry::{Lend, Loan, RegistryError, Row, Table, TableLimits};

use super::{Flaw, Key};

/// Process numbers go round after this many.
const PIDS: u32 = 24;
/// How long a ticket is good.
const TICKET_MS: u64 = 10_000;

/// A command in its fence: it may write what its pod could when it began.
#[derive(Debug)]
pub(super) struct Fence {
    pub(super) name: PodName,
    pub(super) owner: Key,
    pub(super) call: CallId,
    pub(super) scope: Scope,
    /// Its pod is gone, or has stopped it: it ends soon.
    pub(super) ends: bool,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) table: Table,
    pub(super) now: Millis,
    pub(super) limits: TableLimits,
    /// Who holds the scope lease of a name.
    locks: BTreeMap<PodName, Key>,
    pub(super) fences: Vec<Fence>,
    /// How often each ticket has led to a row.
    pub(super) adopted: BTreeMap<String, u32>,
    /// The numbers of the processes that live.
    pids: BTreeMap<Key, u32>,
    next_pid: u32,
    tickets: u64,
    place: Row,
    flaw: Option<Flaw>,
}

impl Machine {
    pub(super) fn new(now: Millis, limits: TableLimits, flaw: Option<Flaw>) -> Machine {
        let nobody = SessionId(uuid::Uuid::nil());
        Machine {
            table: Table::default(),
            now,
            limits,
            locks: BTreeMap::new(),
            fences: Vec::new(),
            adopted: BTreeMap::new(),
            pids: BTreeMap::new(),
            next_pid: 1,
            tickets: 0,
            place: Row::here(PodName::from_any("nobody"), nobody, None),
            flaw,
        }
    }

    /// A number for a process; says whether somebody had it before.
    pub(super) fn pid(&mut self, key: Key) -> (u32, bool) {
        loop {
            self.next_pid += 1;
            let pid = self.next_pid % PIDS + 1;
            if !self.pids.values().any(|taken| *taken == pid) {
                self.pids.insert(key, pid);
                return (pid, self.next_pid > PIDS);
            }
        }
    }

    /// Whether a row stands for somebody: its lease is held, its commands are there, or its ticket is still good.
    fn is_alive(&self, row: &Row) -> bool {
        if self.flaw == Some(Flaw::TrustsPids) {
            return self.pids.values().any(|pid| *pid == row.pid)
                || row.deadline.is_some_and(|at| self.now < at);
        }
        let fenced = self.flaw != Some(Flaw::IgnoresCommands) && self.has_commands(&row.name);
        self.locks.contains_key(&row.name) || fenced || row.deadline.is_some_and(|at| self.now < at)
    }

    fn has_commands(&self, name: &PodName) -> bool {
        self.fences.iter().any(|fence| fence.name == *name)
    }

    /// Takes away the rows of the dead; whoever looks does.
    pub(super) fn reclaim(&mut self) -> usize {
        let dead: Vec<SessionId> =
            self.table.pods.iter().filter(|row| !self.is_alive(row)).map(|row| row.session).collect();
        if self.flaw == Some(Flaw::LosesLoans) && !dead.is_empty() {
            self.table.pods.retain(|row| !dead.contains(&row.session));
        } else if !dead.is_empty() {
            self.table = self.table.reclaim(&dead);
        }
        dead.len()
    }

    fn here(&self, name: &PodName, session: SessionId, pid: u32) -> Row {
        Row { name: name.clone(), session, pid, since: self.now, ..self.place.clone() }
    }

    pub(super) fn register(
        &mut self,
        (key, pid): (Key, u32),
        (name, session): (&PodName, SessionId),
        scope: &Scope,
        ancestors: Vec<SessionId>,
    ) -> Result<PodName, RegistryError> {
        self.reclaim();
        let lender = ancestors.first().copied();
        let row = Row { scope: scope.clone(), ancestors, lender, ..self.here(name, session, pid) };
        self.table = self.table.register(row, self.limits, true)?;
        let name = self.table.row(session).map_or_else(|| name.clone(), |row| row.name.clone());
        self.locks.insert(name.clone(), key);
        Ok(name)
    }

    /// Gives the ticket of the new row. `line`: all above one that is woken, nearest first.
    pub(super) fn lend(
        &mut self,
        lender: SessionId,
        (session, name): (SessionId, &PodName),
        scope: &Scope,
        line: Vec<SessionId>,
    ) -> Result<String, RegistryError> {
        self.reclaim();
        self.tickets += 1;
        let ticket = format!("ticket {}", self.tickets);
        let lend = Lend {
            lender,
            session,
            name: name.clone(),
            scope: scope.clone(),
            apart: Scope::default(),
            limits: self.limits,
            line,
            patience: Duration::from_millis(TICKET_MS),
        };
        let place = Row {
            ticket_hash: Some(ticket.clone()),
            deadline: Some(self.now + TICKET_MS),
            ..self.here(name, session, 0)
        };
        self.table = match self.flaw {
            Some(Flaw::LendsTaken) => self.lend_blindly(&lend, place)?,
            Some(Flaw::IgnoresLimits) => {
                let limits = TableLimits { depth: u32::MAX, children: usize::MAX, pods: usize::MAX };
                self.table.lend(&Lend { limits, ..lend }, place)?
            }
            _ => self.table.lend(&lend, place)?,
        };
        Ok(ticket)
    }

    /// What a table without its check would do: the row and the loan, whoever else may write there.
    fn lend_blindly(&self, lend: &Lend, place: Row) -> Result<Table, RegistryError> {
        let refused = match self.table.lend(lend, place.clone()) {
            Ok(table) => return Ok(table),
            Err(refused) => refused,
        };
        let conflict =
            matches!(refused, RegistryError::WriteConflict { .. } | RegistryError::NotWithin { .. });
        let Some(lender) = self.table.row(lend.lender).filter(|_| conflict) else { return Err(refused) };
        let ancestors = std::iter::once(lend.lender).chain(lender.ancestors.iter().copied()).collect();
        let mut next = self.table.clone();
        let row = Row {
            parent: Some(lend.lender),
            lender: Some(lend.lender),
            ancestors,
            depth: lender.depth + 1,
            scope: lend.scope.clone(),
            ..place
        };
        let loan = Loan { session: lend.session, name: lend.name.clone(), scope: lend.scope.clone() };
        if let Some(lender) = next.pods.iter_mut().find(|row| row.session == lend.lender) {
            lender.loans.push(loan);
        }
        next.pods.push(row);
        Ok(next)
    }

    pub(super) fn adopt(
        &mut self,
        (key, pid): (Key, u32),
        (name, session): (&PodName, SessionId),
        ticket: &str,
    ) -> Result<(), RegistryError> {
        let here = self.here(name, session, pid);
        let before = self.table.row(session).cloned();
        self.table = self.table.adopt(&here, ticket, self.now)?;
        if self.flaw == Some(Flaw::KeepsTickets)
            && let Some(row) = self.table.pods.iter_mut().find(|row| row.session == session)
        {
            row.ticket_hash = before.as_ref().and_then(|row| row.ticket_hash.clone());
            row.deadline = before.and_then(|row| row.deadline);
        }
        *self.adopted.entry(ticket.to_owned()).or_default() += 1;
        self.locks.insert(name.clone(), key);
        Ok(())
    }

    /// Undoes a loan whose borrower is gone.
    pub(super) fn withdraw(&mut self, session: SessionId) {
        let gone = |row: &Row| !self.locks.contains_key(&row.name) && !self.has_commands(&row.name);
        if self.table.row(session).is_some_and(gone) {
            self.table = self.table.release(session);
        }
    }

    /// The pod itself gives its row back, in good order: its commands are gone.
    pub(super) fn release(&mut self, session: SessionId) {
        self.table = self.table.release(session);
    }

    pub(super) fn give(&mut self, session: SessionId) -> Result<(), RegistryError> {
        self.table = self.table.give_scope(session)?;
        Ok(())
    }

    pub(super) fn take(&mut self, session: SessionId) -> Result<(), RegistryError> {
        self.reclaim();
        self.table = self.table.take_scope(session)?;
        Ok(())
    }

    pub(super) fn effective(&self, session: SessionId) -> Scope {
        self.table.row(session).map(Row::effective).unwrap_or_default()
    }

    pub(super) fn loans(&self, session: SessionId) -> Vec<Loan> {
        self.table.row(session).map(|row| row.loans.clone()).unwrap_or_default()
    }

    pub(super) fn lender(&self, session: SessionId) -> Option<SessionId> {
        self.table.row(session).and_then(|row| row.lender)
    }

    /// Whether somebody holds the name for this session, or commands of it still run.
    pub(super) fn is_held(&self, name: &PodName, session: SessionId) -> bool {
        let own = self.table.row(session).is_some_and(|row| row.name == *name);
        if self.flaw == Some(Flaw::IgnoresCommands) {
            return own && self.locks.contains_key(name);
        }
        own && (self.locks.contains_key(name) || self.has_commands(name))
    }

    pub(super) fn holder(&self, name: &PodName) -> Option<Key> {
        self.locks.get(name).copied()
    }

    pub(super) fn fence(&mut self, owner: Key, name: PodName, call: CallId, scope: Scope) {
        self.fences.push(Fence { name, owner, call, scope, ends: false });
    }

    pub(super) fn stop_command(&mut self, owner: Key, call: &CallId) {
        for fence in self.fences.iter_mut().filter(|fence| fence.owner == owner && fence.call == *call) {
            fence.ends = true;
        }
    }

    /// A command of this process that could write where a loan would.
    pub(super) fn writes_into(&self, owner: Key, scope: &Scope) -> bool {
        self.fences.iter().any(|fence| fence.owner == owner && overlaps_write(&fence.scope, scope).is_some())
    }

    /// The kernel lets go of all that a process held.
    pub(super) fn died(&mut self, key: Key) {
        self.pids.remove(&key);
        self.locks.retain(|_, holder| *holder != key);
        for fence in self.fences.iter_mut().filter(|fence| fence.owner == key) {
            fence.ends = true;
        }
    }

    /// The machine starts anew: nothing that lived does, and the runtime directory is empty.
    pub(super) fn restarted(&mut self) {
        self.table = Table::default();
        self.locks.clear();
        self.fences.clear();
        self.pids.clear();
    }
}
