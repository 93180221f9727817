//! Budget checker: grants and spending, computed entry by entry in the order of all writes.
//!
//! It sums the spending of each session and its descendants and checks that no grant is exceeded (P9).
//! Elsewhere: the other properties (`invariants`).
//! Invariant: a request counts for all sessions above its pod, even if the pod changes its parent
//! (`a_request_counts_for_everybody_above`).

use std::collections::BTreeMap;

use minke_record::{Entry, Kind, LlmOutcome, Reserved, SessionId};
use serde_json::Value;

/// Grants and spending in tokens.
#[derive(Debug, Default)]
pub(super) struct BudgetChecker {
    /// All spending events in order, with the position of their entry, which a power cut may remove.
    journal: Vec<(SessionId, u64, BudgetEvent)>,
    records: BTreeMap<SessionId, BudgetRecord>,
    /// Sessions whose sums changed since the last check.
    changed: Vec<SessionId>,
    /// From here on sessions restart without a parent that could grant them a part.
    pub(super) is_closed: bool,
}

#[derive(Debug, Clone)]
enum BudgetEvent {
    Started {
        parent: Option<SessionId>,
        granted: Option<u64>,
    },
    Granted(u64),
    Requested {
        call: u64,
        input: u64,
        reserved: u64,
    },
    Used {
        call: u64,
        took: u64,
    },
    /// Whether the provider had read the request.
    Ended {
        call: u64,
        read: bool,
    },
}

#[derive(Debug, Default)]
struct BudgetRecord {
    parent: Option<SessionId>,
    granted: Option<u64>,
    /// Open requests.
    requests: BTreeMap<u64, RequestRecord>,
    /// Spending of the session and its descendants.
    total: i64,
    /// The part of it that exceeded the reservations.
    overrun: i64,
}

#[derive(Debug)]
struct RequestRecord {
    input: u64,
    reserved: u64,
    /// The current count.
    counted: u64,
    is_settled: bool,
}

impl BudgetEvent {
    fn from_entry(entry: &Entry) -> Option<BudgetEvent> {
        Some(match &entry.kind {
            Kind::SessionStart(e) => {
                let tokens =
                    |value: Option<&Value>| value.and_then(|v| v.pointer("/budget/tokens")?.as_u64());
                let granted = match (tokens(Some(&e.manifest)), tokens(e.mandate.as_ref())) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                BudgetEvent::Started { parent: e.parent.as_ref().map(|parent| parent.session), granted }
            }
            Kind::ConfigChanged(e) if e.key == "budget" => {
                BudgetEvent::Granted(e.value.get("tokens").and_then(Value::as_u64)?)
            }
            Kind::LlmCall(e) => {
                let Reserved { input, output, .. } = e.reserved;
                BudgetEvent::Requested { call: e.call, input, reserved: input + output }
            }
            Kind::LlmUsage(e) => BudgetEvent::Used { call: e.call, took: e.input + e.output },
            Kind::LlmEnd(e) => {
                let read = matches!(e.outcome, LlmOutcome::Broken | LlmOutcome::Cancelled);
                BudgetEvent::Ended { call: e.call, read }
            }
            _ => return None,
        })
    }
}

impl BudgetChecker {
    pub(super) fn add_entry(&mut self, session: SessionId, entry: &Entry) {
        if let Some(event) = BudgetEvent::from_entry(entry) {
            self.journal.push((session, entry.seq, event.clone()));
            self.apply_event(session, event);
        }
    }

    /// Counts again after a power cut has removed unsynced entries.
    pub(super) fn recount_within(&mut self, length: impl Fn(SessionId) -> u64) {
        self.journal.retain(|(session, seq, _)| *seq < length(*session));
        self.records.clear();
        let journal = std::mem::take(&mut self.journal);
        for (session, _, event) in &journal {
            self.apply_event(*session, event.clone());
        }
        self.journal = journal;
    }

    fn apply_event(&mut self, session: SessionId, event: BudgetEvent) {
        let record = self.records.entry(session).or_default();
        match event {
            BudgetEvent::Started { parent, granted } => {
                (record.parent, record.granted) = (parent, granted);
            }
            BudgetEvent::Granted(tokens) => {
                record.granted = Some(tokens);
                self.changed.push(session);
            }
            BudgetEvent::Requested { call, input, reserved } => {
                let request = RequestRecord { input, reserved, counted: reserved, is_settled: false };
                record.requests.insert(call, request);
                self.add_spending(session, to_signed(reserved), 0);
            }
            BudgetEvent::Used { call, took } => {
                let Some(asked) = record.requests.get_mut(&call) else { return };
                let more = to_signed(took) - if asked.is_settled { 0 } else { to_signed(asked.counted) };
                asked.counted = if asked.is_settled { asked.counted + took } else { took };
                let overrun = asked.counted.saturating_sub(asked.reserved).min(took);
                asked.is_settled = true;
                self.add_spending(session, more, to_signed(overrun));
            }
            BudgetEvent::Ended { call, read } => {
                let Some(request) = record.requests.remove(&call) else { return };
                // The usage is unknown; input that was read counts.
                if !request.is_settled {
                    let kept = if read { request.input } else { 0 };
                    self.add_spending(session, to_signed(kept) - to_signed(request.counted), 0);
                }
            }
        }
    }

    /// Adds spending to a session and all its ancestors.
    fn add_spending(&mut self, session: SessionId, more: i64, overrun: i64) {
        let mut at = Some(session);
        while let Some(session) = at {
            let record = self.records.entry(session).or_default();
            record.total += more;
            record.overrun += overrun;
            at = record.parent;
            if more - overrun > 0 {
                self.changed.push(session);
            }
        }
    }

    /// Checks that the log has the reservation of a request.
    pub(super) fn check_request(
        &self,
        session: SessionId,
        call: u64,
        reserved: Option<&Reserved>,
    ) -> Result<(), String> {
        let wanted = reserved.map_or(0, |reserved| reserved.input + reserved.output);
        let request = self.records.get(&session).and_then(|record| record.requests.get(&call));
        let noted = request.map_or(0, |asked| asked.counted);
        if noted == 0 || noted < wanted {
            return Err(format!("P9: request {call} may take {wanted} tokens, and {noted} are reserved"));
        }
        Ok(())
    }

    /// Checks that the grants of roots and running pods cover the spending below them. The grant of a stopped
    /// pod does not count: its ancestors may have granted more to its descendants, and it learns this when it
    /// restarts.
    pub(super) fn check_grants(&mut self, lives: impl Fn(SessionId) -> bool) -> Result<(), String> {
        for session in std::mem::take(&mut self.changed) {
            let Some(record) = self.records.get(&session).filter(|_| !self.is_closed) else { continue };
            if record.parent.is_some() && !lives(session) {
                continue;
            }
            let spent = record.total - record.overrun;
            if let Some(granted) = record.granted.filter(|granted| spent > to_signed(*granted)) {
                return Err(format!(
                    "P9: {session} was granted {granted} tokens, and {spent} of it are spent"
                ));
            }
        }
        Ok(())
    }
}

fn to_signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session_id(number: u128) -> SessionId {
        SessionId(uuid::Uuid::from_u128(number))
    }

    /// A root, its child and its grandchild with budgets.
    fn three_levels() -> (BudgetChecker, [SessionId; 3]) {
        let all @ [root, child, grandchild] = [1, 2, 3].map(session_id);
        let mut budgets = BudgetChecker::default();
        budgets.apply_event(root, BudgetEvent::Started { parent: None, granted: Some(10_000) });
        budgets.apply_event(child, BudgetEvent::Started { parent: Some(root), granted: Some(3_000) });
        budgets.apply_event(grandchild, BudgetEvent::Started { parent: Some(child), granted: Some(2_000) });
        (budgets, all)
    }

    #[test]
    fn a_request_counts_for_everybody_above() {
        let (mut budgets, [root, child, grandchild]) = three_levels();
        budgets.apply_event(grandchild, BudgetEvent::Requested { call: 0, input: 500, reserved: 2_000 });
        assert_eq!(budgets.records[&child].total, 2_000);
        budgets.apply_event(grandchild, BudgetEvent::Used { call: 0, took: 900 });
        budgets.apply_event(grandchild, BudgetEvent::Ended { call: 0, read: true });
        for session in [root, child, grandchild] {
            assert_eq!(budgets.records[&session].total, 900, "{session}");
        }
        budgets.apply_event(child, BudgetEvent::Requested { call: 0, input: 500, reserved: 2_000 });
        assert_eq!(budgets.check_grants(|_| true), Ok(()));
        budgets.apply_event(child, BudgetEvent::Requested { call: 1, input: 500, reserved: 200 });
        assert!(
            budgets
                .check_grants(|_| true)
                .is_err_and(|why| why.contains("was granted 3000 tokens, and 3100"))
        );
    }

    #[test]
    fn what_a_power_cut_takes_away_is_not_counted() {
        let (mut budgets, [root, ..]) = three_levels();
        budgets.journal.push((root, 0, BudgetEvent::Started { parent: None, granted: Some(10_000) }));
        for call in 0..3 {
            let event = BudgetEvent::Requested { call, input: 500, reserved: 4_000 };
            budgets.journal.push((root, call + 1, event.clone()));
            budgets.apply_event(root, event);
        }
        assert!(budgets.check_grants(|_| true).is_err());
        budgets.recount_within(|_| 3);
        assert_eq!(budgets.records[&root].total, 8_000);
        assert_eq!(budgets.check_grants(|_| true), Ok(()));
    }
}
