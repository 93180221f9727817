//! Checks every interleaving of three pods over three paths, with a crash or an error at every file operation.
//!
//! Runs the real table code on files in memory. Starting with an empty registry, the test performs every possible
//! action in every reachable state: register, lend, adopt, yield, take back, release, withdraw, survey, exit with and
//! without remaining child processes, and the passing of time. Each action is also interrupted before every write by a
//! crash (with `MINKE_LONG`, by an error too). Every state must satisfy the invariants, also after the loss of the
//! newest table and of both tables.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use minke_policy::{find_write_overlap, scope_contains};
use minke_record::{PodName, Scope, SessionId};

use crate::error::RegistryError;
use crate::lease::ScopeRow;
use crate::liveness::{Liveness, PodDir};
use crate::table::{LoanRequest, PodLimits, ScopeTable};
use crate::table_store::{self, TableFile, TableStorage};

const POD_COUNT: usize = 3;
const SCOPE_PATHS: [&str; 3] = ["/a", "/a/b", "/c"];
const TICKET: &str = "the ticket";
/// Time only decides whether a deadline has passed: 0 is in the past, 1 in the future, and the current time is always
/// 0.
const NOW: u64 = 0;

fn session_of(pod: usize) -> SessionId {
    SessionId(uuid::Uuid::from_u128(pod as u128 + 1))
}

fn pod_of_session(session: SessionId) -> usize {
    usize::try_from(session.0.as_u128() - 1).unwrap()
}

const POD_NAMES: [&str; POD_COUNT] = ["one", "two", "three"];

fn pod_name(pod: usize) -> PodName {
    POD_NAMES[pod].parse().unwrap()
}

/// Properties of a session that are fixed at its first start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StartRecord {
    path_index: usize,
    ancestors: Vec<SessionId>,
}

#[derive(Debug, Clone, Default)]
struct RegistryState {
    current: Option<Rc<ScopeTable>>,
    previous: Option<Rc<ScopeTable>>,
    next: Option<Rc<ScopeTable>>,
    /// Outer: the lease file exists. Inner: it contains a row.
    leases: [Option<Option<ScopeRow>>; POD_COUNT],
    /// A process holds the lease.
    lease_held: [bool; POD_COUNT],
    /// A process that the pod started still runs, although the pod has ended.
    sandbox_alive: [bool; POD_COUNT],
    /// The pod has not released its scope.
    has_write_scope: [bool; POD_COUNT],
    /// A process used the last ticket.
    ticket_used: [bool; POD_COUNT],
    start_records: [Option<StartRecord>; POD_COUNT],
}

/// The failure to inject, and at which write.
#[derive(Debug, Clone, Copy)]
enum InjectedFailure {
    Never,
    Crash(u32),
    Fault(u32),
}

struct MemoryFiles<'a> {
    world: &'a mut RegistryState,
    failure: InjectedFailure,
    triggered: bool,
    crashed: bool,
}

impl MemoryFiles<'_> {
    fn next_operation(&mut self) -> Result<(), RegistryError> {
        let broken = || RegistryError::LeaseLost { path: PathBuf::new() };
        if self.crashed {
            return Err(broken());
        }
        match &mut self.failure {
            InjectedFailure::Never => Ok(()),
            InjectedFailure::Crash(0) => {
                (self.triggered, self.crashed) = (true, true);
                Err(broken())
            }
            InjectedFailure::Fault(0) => {
                self.triggered = true;
                self.failure = InjectedFailure::Never;
                Err(broken())
            }
            InjectedFailure::Crash(left) | InjectedFailure::Fault(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

fn to_page(table: Option<&Rc<ScopeTable>>) -> TableFile {
    table.map_or(TableFile::Missing, |table| TableFile::Valid(ScopeTable::clone(table)))
}

impl TableStorage for MemoryFiles<'_> {
    fn read_current(&self) -> Result<TableFile, RegistryError> {
        Ok(to_page(self.world.current.as_ref()))
    }

    fn read_previous(&self) -> Result<TableFile, RegistryError> {
        Ok(to_page(self.world.previous.as_ref()))
    }

    fn write_lease(&mut self, row: &ScopeRow) -> Result<(), RegistryError> {
        self.next_operation()?;
        if let Some(lease) = &mut self.world.leases[pod_of_session(row.session)] {
            *lease = Some(row.clone());
        }
        Ok(())
    }

    fn write_next(&mut self, table: &ScopeTable) -> Result<(), RegistryError> {
        // A failure here equals one before the next step: no process reads the unfinished file.
        self.world.next = Some(Rc::new(table.clone()));
        Ok(())
    }

    fn current_to_previous(&mut self) -> Result<bool, RegistryError> {
        self.next_operation()?;
        let page = self.world.current.take();
        let had = page.is_some();
        if had {
            self.world.previous = page;
        }
        Ok(had)
    }

    fn next_to_current(&mut self) -> Result<(), RegistryError> {
        self.next_operation()?;
        self.world.current = self.world.next.take();
        // The rename succeeded and the sync of the directory fails.
        self.next_operation()
    }

    fn restore_previous(&mut self, had: bool) -> Result<(), RegistryError> {
        self.next_operation()?;
        self.world.current = if had { self.world.previous.take() } else { None };
        Ok(())
    }

    fn has_next(&self) -> Result<bool, RegistryError> {
        Ok(self.world.next.is_some())
    }

    fn discard_next(&mut self) -> Result<(), RegistryError> {
        self.next_operation()?;
        self.world.next = None;
        Ok(())
    }
}

/// An action of one pod or of an outside process.
#[derive(Debug, Clone, Copy)]
enum PodAction {
    Register { pod: usize, path_index: usize },
    Lend { from: usize, to: usize, path_index: usize },
    Adopt(usize),
    Release(usize),
    Withdraw(usize),
    Yield(usize),
    TakeBack(usize),
    Survey,
}

impl PodAction {
    /// Returns the pod that dies if a crash interrupts the action; `None` for an outside process.
    fn acting_pod(self) -> Option<usize> {
        match self {
            PodAction::Register { pod, .. } => Some(pod),
            PodAction::Lend { from, .. } => Some(from),
            PodAction::Adopt(pod)
            | PodAction::Release(pod)
            | PodAction::Yield(pod)
            | PodAction::TakeBack(pod) => Some(pod),
            PodAction::Withdraw(_) | PodAction::Survey => None,
        }
    }
}

impl RegistryState {
    fn pod_dirs(&self) -> Vec<PodDir> {
        let there = (0..POD_COUNT).filter(|pod| self.leases[*pod].is_some());
        there
            .map(|pod| PodDir {
                dir: PathBuf::from(POD_NAMES[pod]),
                row: self.leases[pod].clone().flatten(),
                damage: None,
                liveness: match (self.lease_held[pod], self.sandbox_alive[pod]) {
                    (true, _) => Liveness::Alive,
                    (false, true) => Liveness::Dying,
                    (false, false) => Liveness::Gone,
                },
                has_lease: true,
                _lock: None,
            })
            .collect()
    }

    /// Returns all actions, allowed or not.
    fn all_actions(&self) -> Vec<PodAction> {
        let mut deeds = vec![PodAction::Survey];
        for pod in 0..POD_COUNT {
            let places = match &self.start_records[pod] {
                Some(birth) => birth.path_index..birth.path_index + 1,
                None => 0..SCOPE_PATHS.len(),
            };
            deeds.push(PodAction::Withdraw(pod));
            if self.lease_held[pod] {
                deeds.extend([PodAction::Release(pod), PodAction::Yield(pod), PodAction::TakeBack(pod)]);
                continue;
            }
            deeds.push(PodAction::Adopt(pod));
            for path_index in places {
                deeds.push(PodAction::Register { pod, path_index });
                let lenders = (0..POD_COUNT).filter(|from| *from != pod && self.lease_held[*from]);
                deeds.extend(lenders.map(|from| PodAction::Lend { from, to: pod, path_index }));
            }
        }
        deeds
    }

    /// Performs the action as [`RuntimeDir`] does: on the unverified table if that allows it, else after removing dead
    /// rows. Returns whether the injected failure was reached.
    fn perform(&mut self, action: PodAction, failure: InjectedFailure) -> bool {
        if let PodAction::Release(pod) = action {
            // The lease is unlocked first.
            self.lease_held[pod] = false;
        }
        if let Some(table) = self.quick_table().filter(|table| self.allows_quick_path(action, table))
            && let Some(next) = self.planned_table(action, &table)
        {
            return self.write_table(action, failure, &table, next).0;
        }
        let pod_dirs_found = self.pod_dirs();
        let mut storage = MemoryFiles { world: self, failure, triggered: false, crashed: false };
        let read = table_store::read_and_prune(&mut storage, &pod_dirs_found, NOW);
        let (hit, crashed, left) = (storage.triggered, storage.crashed, storage.failure);
        let table = match read {
            Ok(read) => read.table,
            Err(_) => {
                assert!(hit, "{action:?}: an undamaged table could not be read");
                if crashed {
                    self.let_go(action.acting_pod());
                }
                return true;
            }
        };
        for pod in 0..POD_COUNT {
            if !self.lease_held[pod] && !self.sandbox_alive[pod] && table.find_row(session_of(pod)).is_none()
            {
                self.leases[pod] = None;
            }
        }
        if matches!(action, PodAction::Release(_)) {
            // The pod was taken for dead.
            return hit;
        }
        let Some(next) = self.planned_table(action, &table) else { return hit };
        let (hit_now, _) = self.write_table(action, left, &table, next);
        hit || hit_now
    }

    fn write_table(
        &mut self,
        deed: PodAction,
        failure: InjectedFailure,
        table: &ScopeTable,
        next: ScopeTable,
    ) -> (bool, bool) {
        let mut storage = MemoryFiles { world: self, failure, triggered: false, crashed: false };
        let written = table_store::write_table(&mut storage, table, next);
        let (hit, crashed) = (storage.triggered, storage.crashed);
        if written.is_ok() {
            self.apply_success(deed);
        } else {
            self.apply_failure(deed, crashed);
        }
        (hit, crashed)
    }

    /// Returns the unverified table, if it may be used without checking the leases.
    fn quick_table(&self) -> Option<ScopeTable> {
        let mut state = self.clone();
        let storage = MemoryFiles {
            world: &mut state,
            failure: InjectedFailure::Never,
            triggered: false,
            crashed: false,
        };
        let table = table_store::read_quick(&storage).expect("no failure is injected")?;
        let unexplained =
            |pod: usize| self.leases[pod].is_some() && table.find_row(session_of(pod)).is_none();
        (!(0..POD_COUNT).any(unexplained)).then_some(table)
    }

    /// The checks of [`RuntimeDir`] before it tries an action on an unverified table.
    fn allows_quick_path(&self, action: PodAction, table: &ScopeTable) -> bool {
        match action {
            PodAction::Register { pod, .. } | PodAction::Lend { to: pod, .. } => {
                self.leases[pod].is_none() && !table.has_descendants(session_of(pod))
            }
            PodAction::Adopt(_) | PodAction::Release(_) | PodAction::Yield(_) | PodAction::TakeBack(_) => {
                true
            }
            PodAction::Withdraw(_) | PodAction::Survey => false,
        }
    }

    /// Sessions that an exiting pod removes with itself. The real code removes only those that have announced their
    /// exit.
    fn gone_sessions(&self, table: &ScopeTable) -> Vec<SessionId> {
        let exited_sessions = |pod: &usize| {
            let row = table.find_row(session_of(*pod)).filter(|row| row.ticket_hash.is_none());
            !self.lease_held[*pod]
                && !self.sandbox_alive[*pod]
                && self.leases[*pod].is_some()
                && row.is_some()
        };
        (0..POD_COUNT).filter(exited_sessions).map(session_of).collect()
    }

    /// Returns the table after the action, if it is allowed, and prepares the files that precede the write.
    fn planned_table(&mut self, action: PodAction, table: &ScopeTable) -> Option<ScopeTable> {
        let limits = PodLimits::default();
        match action {
            PodAction::Register { pod, path_index } => {
                let ancestors =
                    self.start_records[pod].as_ref().map(|birth| birth.ancestors.clone()).unwrap_or_default();
                let scope = Scope::writable(SCOPE_PATHS[path_index]);
                let row = ScopeRow {
                    scope,
                    ancestors: ancestors.clone(),
                    ..ScopeRow::without_process(pod_name(pod), session_of(pod))
                };
                let next = table.with_root_pod(row, limits, false).ok()?;
                self.start_records[pod] = Some(StartRecord { path_index, ancestors });
                self.leases[pod] = Some(None);
                self.lease_held[pod] = true;
                Some(next)
            }
            PodAction::Lend { from, to, path_index: place } => {
                let lend = LoanRequest {
                    lender: session_of(from),
                    session: session_of(to),
                    name: pod_name(to),
                    scope: Scope::writable(SCOPE_PATHS[place]),
                    extra_scope: Scope::default(),
                    limits,
                    ancestors: self.start_records[to]
                        .as_ref()
                        .map(|birth| birth.ancestors.clone())
                        .unwrap_or_default(),
                    ticket_timeout: Duration::ZERO,
                };
                let place_row = ScopeRow {
                    ticket_hash: Some(TICKET.to_owned()),
                    deadline: Some(1),
                    ..ScopeRow::without_process(pod_name(to), session_of(to))
                };
                // A session without ancestors has no parent.
                if self.start_records[to].as_ref().is_some_and(|birth| birth.ancestors.is_empty()) {
                    return None;
                }
                let next = table.with_loan(&lend, place_row).ok()?;
                let ancestors = next.find_row(session_of(to)).unwrap().ancestors.clone();
                self.start_records[to] = Some(StartRecord { path_index: place, ancestors });
                self.leases[to] = Some(None);
                // Even if this change fails, its ticket is new.
                self.ticket_used[to] = false;
                Some(next)
            }
            PodAction::Adopt(pod) => {
                let here = ScopeRow::without_process(pod_name(pod), session_of(pod));
                let next = table.with_adopted(&here, TICKET, NOW).ok()?;
                assert!(!self.ticket_used[pod], "a ticket was accepted twice");
                self.lease_held[pod] = true;
                Some(next)
            }
            PodAction::Release(_) => Some(table.without_pods(&self.gone_sessions(table))),
            PodAction::Withdraw(pod) => {
                let exited_sessions = !self.lease_held[pod]
                    && !self.sandbox_alive[pod]
                    && table.find_row(session_of(pod)).is_some();
                exited_sessions.then(|| table.without_pod(session_of(pod)))
            }
            PodAction::Yield(pod) => {
                table.give_scope(session_of(pod)).ok().inspect(|_| self.has_write_scope[pod] = false)
            }
            PodAction::TakeBack(pod) => table.take_scope(session_of(pod)).ok(),
            PodAction::Survey => None,
        }
    }

    fn apply_success(&mut self, action: PodAction) {
        match action {
            PodAction::Register { pod, .. } => self.has_write_scope[pod] = true,
            PodAction::Adopt(pod) => (self.ticket_used[pod], self.has_write_scope[pod]) = (true, true),
            PodAction::Release(_) => {
                let table = self.current.clone().expect("it was just written");
                for pod in 0..POD_COUNT {
                    let exited_sessions = !self.lease_held[pod]
                        && !self.sandbox_alive[pod]
                        && table.find_row(session_of(pod)).is_none();
                    if exited_sessions {
                        self.leases[pod] = None;
                    }
                }
            }
            PodAction::Withdraw(pod) => self.leases[pod] = None,
            PodAction::TakeBack(pod) => self.has_write_scope[pod] = true,
            PodAction::Lend { .. } | PodAction::Yield(_) | PodAction::Survey => {}
        }
    }

    /// Undoes a failed action as far as possible, or marks the pod as dead.
    fn apply_failure(&mut self, action: PodAction, crashed: bool) {
        match action {
            PodAction::Register { pod, .. } if !crashed => {
                (self.leases[pod], self.lease_held[pod]) = (None, false)
            }
            PodAction::Lend { to, .. } if !crashed => self.leases[to] = None,
            PodAction::Adopt(_) => self.let_go(action.acting_pod()),
            _ if crashed => self.let_go(action.acting_pod()),
            _ => {}
        }
    }

    fn let_go(&mut self, actor: Option<usize>) {
        if let Some(pod) = actor {
            self.lease_held[pod] = false;
        }
    }

    fn kill_pod(&self, pod: usize, leaving: bool) -> RegistryState {
        let mut state = self.clone();
        state.lease_held[pod] = false;
        state.sandbox_alive[pod] = leaving;
        state
    }

    fn advance_time(&self) -> RegistryState {
        let mut world = self.clone();
        let tables = [&mut world.current, &mut world.previous];
        let rows = tables.into_iter().flatten().flat_map(|table| &mut Rc::make_mut(table).pods);
        for row in rows.chain(world.leases.iter_mut().flatten().flatten()) {
            row.deadline = row.deadline.map(|_| 0);
        }
        world
    }

    /// Returns the table that the next reader would find.
    fn recovered_table(&self) -> ScopeTable {
        let mut state = self.clone();
        let pod_dirs_found = state.pod_dirs();
        let mut storage = MemoryFiles {
            world: &mut state,
            failure: InjectedFailure::Never,
            triggered: false,
            crashed: false,
        };
        table_store::read_and_prune(&mut storage, &pod_dirs_found, NOW)
            .expect("the table is always readable")
            .table
    }

    fn check_invariants(&self) -> Result<(), String> {
        let table = self.recovered_table();
        check_table_rows(&table)?;
        self.check_live_pods(&table)
    }

    fn check_live_pods(&self, table: &ScopeTable) -> Result<(), String> {
        for pod in (0..POD_COUNT).filter(|pod| self.lease_held[*pod] || self.sandbox_alive[*pod]) {
            let birth = self.start_records[pod].as_ref().expect("the pod is live");
            let row =
                table.find_row(session_of(pod)).ok_or_else(|| format!("the live pod {pod} has no row"))?;
            if row.scope != Scope::writable(SCOPE_PATHS[birth.path_index]) {
                return Err(format!("{pod} has another scope than at its start: {row:?}"));
            }
            if self.has_write_scope[pod] && row.yielded {
                return Err(format!("{pod} writes in a scope that counts as released"));
            }
        }
        Ok(())
    }

    fn check_state(&self) -> Result<(), String> {
        self.check_invariants()?;
        if let Some(table) = self.quick_table() {
            check_table_rows(&table).map_err(|e| format!("in the unverified table: {e}"))?;
            self.check_live_pods(&table).map_err(|e| format!("in the unverified table: {e}"))?;
        }
        let lost = RegistryState { current: None, ..self.clone() };
        lost.check_invariants().map_err(|e| format!("without the newest table: {e}"))?;
        let both = RegistryState { previous: None, ..lost };
        both.check_invariants().map_err(|e| format!("without any table: {e}"))?;
        let mut over = self.advance_time();
        (over.lease_held, over.sandbox_alive) = Default::default();
        match over.recovered_table().pods.is_empty() {
            true => Ok(()),
            false => Err("a scope stays reserved although no pod is live".to_owned()),
        }
    }

    /// Identifies a state regardless of pod names. The previous table counts only while there is no newer one.
    fn canonical_key(&self) -> u128 {
        ORDERS.iter().map(|order| self.key_in_order(*order)).min().expect("ORDERS is not empty")
    }

    fn has_ticket(&self, pod: usize) -> bool {
        let tables = [&self.current, &self.previous].into_iter().flatten();
        let rows = tables
            .filter_map(|table| table.find_row(session_of(pod)))
            .chain(self.leases[pod].iter().flatten());
        rows.into_iter().any(|row| row.ticket_hash.is_some())
    }

    fn key_in_order(&self, order: [usize; POD_COUNT]) -> u128 {
        let mut key = StateKey { bits: 0, order };
        key.push_bits(self.next.is_some().into(), 1);
        let previous = self.previous.as_ref().filter(|_| self.current.is_none());
        for table in [self.current.as_ref(), previous] {
            key.push_bits(table.is_some().into(), 1);
            for pod in order {
                key.push_row(table.and_then(|table| table.find_row(session_of(pod))));
            }
        }
        for pod in order {
            key.push_bits(self.leases[pod].is_some().into(), 1);
            key.push_row(self.leases[pod].as_ref().and_then(Option::as_ref));
            // The write flag of a dead pod and the use of a ticket that no file contains make no difference.
            let writes = self.has_write_scope[pod] && (self.lease_held[pod] || self.sandbox_alive[pod]);
            let used = self.ticket_used[pod] && self.has_ticket(pod);
            for bit in [self.lease_held[pod], self.sandbox_alive[pod], writes, used] {
                key.push_bits(bit.into(), 1);
            }
            match &self.start_records[pod] {
                None => key.push_bits(0, 6),
                Some(birth) => {
                    key.push_bits(birth.path_index as u128 + 1, 2);
                    key.push_session(birth.ancestors.first());
                    key.push_session(birth.ancestors.get(1));
                }
            }
        }
        key.bits
    }
}

const ORDERS: [[usize; POD_COUNT]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

struct StateKey {
    bits: u128,
    order: [usize; POD_COUNT],
}

impl StateKey {
    fn push_bits(&mut self, value: u128, bits: u32) {
        debug_assert!(value < 1 << bits && self.bits.leading_zeros() >= bits, "the key is too small");
        self.bits = self.bits << bits | value;
    }

    fn push_session(&mut self, session: Option<&SessionId>) {
        let place =
            session.and_then(|session| self.order.iter().position(|pod| *pod == pod_of_session(*session)));
        self.push_bits(place.map_or(0, |place| place as u128 + 1), 2);
    }

    /// Its scope and ancestors equal those of its start record.
    fn push_row(&mut self, row: Option<&ScopeRow>) {
        let Some(row) = row else { return self.push_bits(0, 9) };
        self.push_bits(1, 1);
        self.push_session(row.parent.as_ref());
        self.push_bits(row.ticket_hash.is_some().into(), 1);
        self.push_bits((row.deadline == Some(1)).into(), 1);
        self.push_bits(row.yielded.into(), 1);
        for pod in self.order {
            self.push_bits(row.loans.iter().any(|loan| loan.session == session_of(pod)).into(), 1);
        }
    }
}

fn check_table_rows(table: &ScopeTable) -> Result<(), String> {
    for (place, row) in table.pods.iter().enumerate() {
        for other in &table.pods[place + 1..] {
            if let Some(overlap) = find_write_overlap(&row.effective_scope(), &other.effective_scope()) {
                return Err(format!("{} and {} can both write {}", row.name, other.name, overlap.path));
            }
        }
        if let Some(parent) = row.parent {
            let parent =
                table.find_row(parent).ok_or_else(|| format!("the lender of {} is gone", row.name))?;
            if !scope_contains(&parent.scope, &row.scope) {
                return Err(format!("{} has more than its parent", row.name));
            }
        }
        let lent: Vec<SessionId> = row.loans.iter().map(|loan| loan.session).collect();
        let borrowed = |other: &&ScopeRow| other.parent == Some(row.session);
        let owed: Vec<SessionId> = table.pods.iter().filter(borrowed).map(|other| other.session).collect();
        if lent.len() != owed.len() || lent.iter().any(|session| !owed.contains(session)) {
            return Err(format!("the loans of {} are not those of its borrowers", row.name));
        }
    }
    Ok(())
}

/// A transition from one state to the next.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "printed by `Debug` when an invariant is violated")]
enum Transition {
    Nothing,
    TimePasses,
    Dies { pod: usize, has_announced: bool },
    Does(PodAction, InjectedFailure),
}

/// The path to a state, printed when the state violates an invariant.
struct StateHistory {
    transition: Transition,
    previous: Option<Rc<StateHistory>>,
}

impl StateHistory {
    fn describe(&self) -> String {
        let before = self.previous.as_ref().map(|before| before.describe()).unwrap_or_default();
        format!("{before}\n  {:?}", self.transition)
    }
}

/// Returns all successor states. With `long`, errors are injected as well as crashes.
fn successors(state: &RegistryState, long: bool) -> Vec<(Transition, RegistryState)> {
    let mut next = vec![(Transition::TimePasses, state.advance_time())];
    let mut die = |pod, has_announced| {
        next.push((Transition::Dies { pod, has_announced }, state.kill_pod(pod, has_announced)))
    };
    for pod in 0..POD_COUNT {
        if state.lease_held[pod] {
            die(pod, false);
            die(pod, true);
        } else if state.sandbox_alive[pod] {
            die(pod, false);
        }
    }
    let kinds = [InjectedFailure::Crash as fn(u32) -> InjectedFailure, InjectedFailure::Fault];
    for action in state.all_actions() {
        let mut whole = state.clone();
        whole.perform(action, InjectedFailure::Never);
        next.push((Transition::Does(action, InjectedFailure::Never), whole));
        for make in kinds.iter().take(if long { 2 } else { 1 }) {
            for at in 0.. {
                let mut failure = state.clone();
                if !failure.perform(action, make(at)) {
                    break;
                }
                next.push((Transition::Does(action, make(at)), failure));
            }
        }
    }
    next
}

#[test]
fn no_interleaving_breaks_a_law() {
    let long = std::env::var_os("MINKE_LONG").is_some();
    let (mut seen, mut met) = (HashSet::new(), HashSet::new());
    let start = StateHistory { transition: Transition::Nothing, previous: None };
    let mut waiting = VecDeque::from([(RegistryState::default(), Rc::new(start))]);
    seen.insert(RegistryState::default().canonical_key());
    let mut steps = 0_u64;
    while let Some((state, trail)) = waiting.pop_front() {
        for (transition, world) in successors(&state, long) {
            steps += 1;
            // Compute the cheaper key first: most transitions lead to known states.
            if met.insert(world.key_in_order(ORDERS[0])) && seen.insert(world.canonical_key()) {
                let trail = StateHistory { transition, previous: Some(Rc::clone(&trail)) };
                if let Err(broken) = world.check_state() {
                    panic!("{broken}\nafter{}\nin {world:?}", trail.describe());
                }
                waiting.push_back((world, Rc::new(trail)));
            }
        }
    }
    eprintln!("{} states, {steps} transitions; no invariant was violated", seen.len());
    assert!(seen.len() > 1_000, "too few states were reached");
}
