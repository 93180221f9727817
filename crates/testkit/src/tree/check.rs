//! What must hold in the tree, looked at after every step with eyes of its own: logs entry by entry, the table row by row,
//! and what processes and commands can really write.
//!
//! Elsewhere: what must hold when everything has come to rest (`rest`).

use std::collections::BTreeMap;

use minke_pod::{Order, What};
use minke_policy::{contains, overlaps_write};
use minke_record::{Entry, Kind, RunId, SessionId};

use super::Tree;
use super::budgets::Budgets;

/// What the logs have said so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    logs: BTreeMap<SessionId, Seen>,
    pub(super) budgets: Budgets,
    pub(super) runs: u64,
    pub(super) reports: u64,
}

#[derive(Debug, Default)]
struct Seen {
    open: Option<RunId>,
    last: Option<RunId>,
    epoch: u64,
    /// The newest report of each sender.
    heard: BTreeMap<SessionId, u64>,
    received: Vec<(SessionId, u64)>,
    acked: Vec<u64>,
    /// Whom reports went to.
    sent: Vec<u64>,
}

impl Watch {
    /// An entry was written.
    pub(super) fn wrote(&mut self, session: SessionId, entry: &Entry) -> Result<(), String> {
        self.budgets.wrote(session, entry);
        self.saw(session, entry)
    }

    fn saw(&mut self, session: SessionId, entry: &Entry) -> Result<(), String> {
        let seen = self.logs.entry(session).or_default();
        match &entry.kind {
            Kind::Opened(e) => {
                if e.epoch != seen.epoch + 1 {
                    return Err(format!("P8: epoch {} follows {}", e.epoch, seen.epoch));
                }
                seen.epoch = e.epoch;
            }
            Kind::Invoke(_) => {
                if let Some(open) = seen.open {
                    return Err(format!("P3: a run begins while {open} is open"));
                }
                (seen.open, seen.last) = (entry.run, entry.run);
                self.runs += 1;
            }
            Kind::RunCompleted(_) | Kind::RunErrored(_) => {
                let ended = seen.open.take();
                if ended != entry.run || ended.is_none() {
                    return Err(format!("P3: entry {} ends a run that is not open", entry.seq));
                }
            }
            Kind::Inbox(e) => {
                if let (Some(sender), Some(seq)) = (e.from.session, e.from_seq) {
                    let heard = seen.heard.insert(sender, seq);
                    if heard.is_some_and(|heard| heard >= seq) {
                        return Err(format!("a report was received twice or late: {seq} after {heard:?}"));
                    }
                    seen.received.push((sender, seq));
                    self.reports += 1;
                }
            }
            Kind::Outbox(_) => seen.sent.push(entry.seq),
            Kind::OutboxAck(e) => {
                seen.acked.push(e.seq);
                if !self.is_anywhere(session, e.seq) {
                    return Err(format!("report {} was acknowledged and is in no log", e.seq));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_anywhere(&self, sender: SessionId, seq: u64) -> bool {
        self.logs.values().any(|seen| seen.received.contains(&(sender, seq)))
    }

    /// Whether this is a report that the session has received already.
    pub(super) fn is_received(&self, session: SessionId, what: &What) -> bool {
        let What::Order(request) = what else { return false };
        let Order::PodEvent { from: Some(sender), from_seq: Some(seq), .. } = &request.order else {
            return false;
        };
        self.logs.get(&session).and_then(|seen| seen.heard.get(sender)).is_some_and(|heard| heard >= seq)
    }

    /// Logs have lost what was not synced: what is left is looked at anew.
    pub(super) fn reread<'a>(
        &mut self,
        logs: impl Iterator<Item = (SessionId, &'a [Entry])> + Clone,
    ) -> Result<(), String> {
        let (runs, reports) = (self.runs, self.reports);
        self.logs.clear();
        // What was received stands before what was acknowledged.
        for acks in [false, true] {
            for (session, entries) in logs.clone() {
                for entry in entries.iter().filter(|e| matches!(e.kind, Kind::OutboxAck(_)) == acks) {
                    self.saw(session, entry)?;
                }
            }
        }
        let lengths: BTreeMap<SessionId, u64> =
            logs.map(|(id, entries)| (id, entries.len() as u64)).collect();
        self.budgets.cut(|session| lengths.get(&session).copied().unwrap_or(0));
        (self.runs, self.reports) = (runs, reports);
        for (sender, seq) in self.logs.values().flat_map(|seen| &seen.received) {
            if !self.logs.get(sender).is_some_and(|seen| seen.sent.contains(seq)) {
                return Err(format!("a report was received that its sender lost: {seq} of {sender}"));
            }
        }
        Ok(())
    }

    /// Runs that have begun and not ended.
    pub(super) fn open_runs(&self) -> Vec<SessionId> {
        self.logs.iter().filter(|(_, seen)| seen.open.is_some()).map(|(session, _)| *session).collect()
    }

    /// Reports of a session that no log holds.
    pub(super) fn unreceived(&self, sender: SessionId) -> Vec<u64> {
        let sent = self.logs.get(&sender).map(|seen| seen.sent.clone()).unwrap_or_default();
        sent.into_iter().filter(|seq| !self.is_anywhere(sender, *seq)).collect()
    }
}

impl Tree {
    /// What must hold after every step.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let processes = &self.processes;
        self.watch.budgets.check(|session| {
            processes.values().any(|process| process.session == session && process.life.is_some())
        })?;
        if let Some((ticket, _)) = self.machine.adopted.iter().find(|(_, times)| **times > 1) {
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
        if rows.len() > limits.pods {
            return Err(format!("P10: {} pods live, {} may", rows.len(), limits.pods));
        }
        let effective: Vec<_> = rows.iter().map(minke_registry::Row::effective).collect();
        for (at, row) in rows.iter().enumerate() {
            for other in at + 1..rows.len() {
                if let Some(overlap) = overlaps_write(&effective[at], &effective[other]) {
                    let (a, b) = (&row.name, &rows[other].name);
                    return Err(format!("P1: {a} and {b} can both write {}", overlap.path));
                }
            }
            if row.parent.is_some() && row.depth > limits.depth {
                return Err(format!(
                    "P10: {} lies {} deep, {} are allowed",
                    row.name, row.depth, limits.depth
                ));
            }
            if let Some(parent) = row.parent {
                let above = self.machine.table.row(parent);
                let above = above.ok_or_else(|| format!("{} has a parent without a row", row.name))?;
                if !contains(&above.scope, &row.scope) {
                    return Err(format!("P2: {} has more than {}", row.name, above.name));
                }
                if !above.loans.iter().any(|loan| loan.session == row.session && loan.scope == row.scope) {
                    return Err(format!("{} has no loan out for {}", above.name, row.name));
                }
            }
            for loan in &row.loans {
                let below = self.machine.table.row(loan.session);
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

    /// What can really be written: by file tools at this moment, and by commands that run.
    fn check_processes(&self) -> Result<(), String> {
        let live: Vec<_> = self.processes.iter().filter(|(_, process)| process.life.is_some()).collect();
        for (at, (key, process)) in live.iter().enumerate() {
            let Some(row) = self.machine.table.row(process.session) else {
                return Err(format!("{} lives and has no row", process.name));
            };
            if !contains(&row.effective(), &process.files) {
                return Err(format!("P1: {} writes what is not its own now", process.name));
            }
            for (_, other) in &live[at + 1..] {
                if let Some(overlap) = overlaps_write(&process.files, &other.files) {
                    let (a, b) = (&process.name, &other.name);
                    return Err(format!("P1: {a} and {b} do both write {}", overlap.path));
                }
            }
            for fence in self.machine.fences.iter().filter(|fence| fence.owner != **key) {
                if let Some(overlap) = overlaps_write(&process.files, &fence.scope) {
                    let (a, b) = (&process.name, &fence.name);
                    return Err(format!("P1: {a} and a command of {b} do both write {}", overlap.path));
                }
            }
        }
        Ok(())
    }
}
