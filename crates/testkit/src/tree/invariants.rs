//! Invariants of the tree, checked after every step: logs entry by entry, the table row by row, and the
//! effective write access of processes and commands.
//!
//! Elsewhere: the checks after everything has settled (`settling`).

use std::collections::BTreeMap;

use minke_pod::{InputKind, PodCommand};
use minke_policy::{find_write_overlap, scope_contains};
use minke_record::{Entry, Kind, RunId, SessionId};

use super::TreeSimulation;
use super::budgets::BudgetChecker;

/// The facts of the logs so far.
#[derive(Debug, Default)]
pub(super) struct TreeChecker {
    logs: BTreeMap<SessionId, SessionRecord>,
    pub(super) budgets: BudgetChecker,
    pub(super) runs: u64,
    pub(super) reports: u64,
}

#[derive(Debug, Default)]
struct SessionRecord {
    open: Option<RunId>,
    last: Option<RunId>,
    epoch: u64,
    /// The newest report of each sender.
    heard: BTreeMap<SessionId, u64>,
    received: Vec<(SessionId, u64)>,
    acked: Vec<u64>,
    /// The sequence numbers of sent reports.
    sent: Vec<u64>,
}

impl TreeChecker {
    /// Checks a written entry.
    pub(super) fn check_entry(&mut self, session: SessionId, entry: &Entry) -> Result<(), String> {
        self.budgets.add_entry(session, entry);
        self.apply_entry(session, entry)
    }

    fn apply_entry(&mut self, session: SessionId, entry: &Entry) -> Result<(), String> {
        let record = self.logs.entry(session).or_default();
        match &entry.kind {
            Kind::Opened(e) => {
                if e.epoch != record.epoch + 1 {
                    return Err(format!("P8: epoch {} follows {}", e.epoch, record.epoch));
                }
                record.epoch = e.epoch;
            }
            Kind::Invoke(_) => {
                if let Some(open) = record.open {
                    return Err(format!("P3: a run begins while {open} is open"));
                }
                (record.open, record.last) = (entry.run, entry.run);
                self.runs += 1;
            }
            Kind::RunCompleted(_) | Kind::RunErrored(_) => {
                let ended = record.open.take();
                if ended != entry.run || ended.is_none() {
                    return Err(format!("P3: entry {} ends a run that is not open", entry.seq));
                }
            }
            Kind::Inbox(e) => {
                if let (Some(sender), Some(seq)) = (e.from.session, e.from_seq) {
                    let heard = record.heard.insert(sender, seq);
                    if heard.is_some_and(|heard| heard >= seq) {
                        return Err(format!("a report was received twice or late: {seq} after {heard:?}"));
                    }
                    record.received.push((sender, seq));
                    self.reports += 1;
                }
            }
            Kind::Outbox(_) => record.sent.push(entry.seq),
            Kind::OutboxAck(e) => {
                record.acked.push(e.seq);
                if !self.is_received_anywhere(session, e.seq) {
                    return Err(format!("report {} was acknowledged and is in no log", e.seq));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_received_anywhere(&self, sender: SessionId, seq: u64) -> bool {
        self.logs.values().any(|record| record.received.contains(&(sender, seq)))
    }

    /// Returns whether the session has already received this report.
    pub(super) fn is_received(&self, session: SessionId, what: &InputKind) -> bool {
        let InputKind::Command(request) = what else { return false };
        let PodCommand::PodEvent { from: Some(sender), from_seq: Some(seq), .. } = &request.command else {
            return false;
        };
        self.logs.get(&session).and_then(|record| record.heard.get(sender)).is_some_and(|heard| heard >= seq)
    }

    /// Rebuilds the facts after logs have lost unsynced entries.
    pub(super) fn rebuild_from<'a>(
        &mut self,
        logs: impl Iterator<Item = (SessionId, &'a [Entry])> + Clone,
    ) -> Result<(), String> {
        let (runs, reports) = (self.runs, self.reports);
        self.logs.clear();
        // Received reports come before acknowledgements.
        for acks in [false, true] {
            for (session, entries) in logs.clone() {
                for entry in entries.iter().filter(|e| matches!(e.kind, Kind::OutboxAck(_)) == acks) {
                    self.apply_entry(session, entry)?;
                }
            }
        }
        let lengths: BTreeMap<SessionId, u64> =
            logs.map(|(id, entries)| (id, entries.len() as u64)).collect();
        self.budgets.recount_within(|session| lengths.get(&session).copied().unwrap_or(0));
        (self.runs, self.reports) = (runs, reports);
        for (sender, seq) in self.logs.values().flat_map(|record| &record.received) {
            if !self.logs.get(sender).is_some_and(|seen| seen.sent.contains(seq)) {
                return Err(format!("a report was received that its sender lost: {seq} of {sender}"));
            }
        }
        Ok(())
    }

    /// Returns the sessions with an open run.
    pub(super) fn sessions_with_open_runs(&self) -> Vec<SessionId> {
        self.logs.iter().filter(|(_, record)| record.open.is_some()).map(|(session, _)| *session).collect()
    }

    /// Returns the reports of a session that no log contains.
    pub(super) fn unreceived_reports(&self, sender: SessionId) -> Vec<u64> {
        let sent = self.logs.get(&sender).map(|record| record.sent.clone()).unwrap_or_default();
        sent.into_iter().filter(|seq| !self.is_received_anywhere(sender, *seq)).collect()
    }
}

impl TreeSimulation {
    /// Checks the invariants after a step.
    pub(super) fn check_invariants(&mut self) -> Result<(), String> {
        let processes = &self.processes;
        self.checker.budgets.check_grants(|session| {
            processes.values().any(|process| process.session == session && process.live_pod.is_some())
        })?;
        if let Some((ticket, _)) = self.machine.adoptions.iter().find(|(_, times)| **times > 1) {
            return Err(format!("P13: {ticket} led to a row twice"));
        }
        if std::mem::take(&mut self.scopes_changed) {
            self.check_rows()?;
            self.check_processes()?;
        }
        Ok(())
    }

    fn check_rows(&self) -> Result<(), String> {
        let rows = &self.machine.table.pods;
        let limits = self.machine.limits;
        if rows.len() > limits.max_pods {
            return Err(format!("P10: {} pods live, {} may", rows.len(), limits.max_pods));
        }
        let effective: Vec<_> = rows.iter().map(minke_registry::ScopeRow::effective_scope).collect();
        for (at, row) in rows.iter().enumerate() {
            for other in at + 1..rows.len() {
                if let Some(overlap) = find_write_overlap(&effective[at], &effective[other]) {
                    let (a, b) = (&row.name, &rows[other].name);
                    return Err(format!("P1: {a} and {b} can both write {}", overlap.path));
                }
            }
            if row.parent.is_some() && row.depth > limits.max_depth {
                return Err(format!(
                    "P10: {} lies {} deep, {} are allowed",
                    row.name, row.depth, limits.max_depth
                ));
            }
            if let Some(parent) = row.parent {
                let above = self.machine.table.find_row(parent);
                let above = above.ok_or_else(|| format!("{} has a parent without a row", row.name))?;
                if !scope_contains(&above.scope, &row.scope) {
                    return Err(format!("P2: {} has more than {}", row.name, above.name));
                }
                if !above.loans.iter().any(|loan| loan.session == row.session && loan.scope == row.scope) {
                    return Err(format!("{} has no loan out for {}", above.name, row.name));
                }
            }
            for loan in &row.loans {
                let below = self.machine.table.find_row(loan.session);
                if below.is_none_or(|below| below.parent != Some(row.session)) {
                    return Err(format!(
                        "L1: {} has lent to {}, which has no row below it",
                        row.name, loan.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks the effective write access of file tools and running commands.
    fn check_processes(&self) -> Result<(), String> {
        let live: Vec<_> = self.processes.iter().filter(|(_, process)| process.live_pod.is_some()).collect();
        for (at, (key, process)) in live.iter().enumerate() {
            let Some(row) = self.machine.table.find_row(process.session) else {
                return Err(format!("{} runs and has no row", process.name));
            };
            if !scope_contains(&row.effective_scope(), &process.files) {
                return Err(format!("P1: {} writes outside its scope", process.name));
            }
            for (_, other) in &live[at + 1..] {
                if let Some(overlap) = find_write_overlap(&process.files, &other.files) {
                    let (a, b) = (&process.name, &other.name);
                    return Err(format!("P1: {a} and {b} do both write {}", overlap.path));
                }
            }
            for command in self.machine.commands.iter().filter(|command| command.owner != **key) {
                if let Some(overlap) = find_write_overlap(&process.files, &command.scope) {
                    let (a, b) = (&process.name, &command.name);
                    return Err(format!("P1: {a} and a command of {b} do both write {}", overlap.path));
                }
            }
        }
        Ok(())
    }
}
