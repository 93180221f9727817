//! What was granted and spent, by eyes of the simulation's own: entry by entry, in the order in which all logs were written.
//!
//! Here: whose part every request takes, and that no grant is exceeded (P9). Elsewhere: the other properties (`check`).
//! Invariant: what a request gives back goes to those who held it when it was made, whoever its pod belongs to by then
//! (`a_pod_that_is_adopted_in_the_middle_of_a_request`).

use std::collections::BTreeMap;

use minke_record::{ChildOutcome, Entry, Kind, LlmOutcome, Reserved, SessionId};
use serde_json::Value;

/// What was granted and spent, in tokens.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// Everything that concerns spending, in order: with the place of its entry, which a power cut may take away.
    journal: Vec<(SessionId, u64, Event)>,
    of: BTreeMap<SessionId, Purse>,
    /// Sessions whose sums have changed since they were last looked at.
    changed: Vec<SessionId>,
    /// From here on sessions are woken by nobody who could give them a part.
    pub(super) closed: bool,
}

#[derive(Debug, Clone)]
enum Event {
    Begins {
        parent: Option<SessionId>,
        granted: Option<u64>,
    },
    Granted(u64),
    Asks {
        call: u64,
        input: u64,
        reserved: u64,
    },
    Used {
        call: u64,
        took: u64,
    },
    /// Whether what was sent had been read.
    Ends {
        call: u64,
        read: bool,
    },
    /// It spends this session's part from here on.
    Funds(SessionId),
    /// It spends its own parent's part again.
    Returns(SessionId),
}

#[derive(Debug, Default)]
struct Purse {
    parent: Option<SessionId>,
    /// Whose part it spends now: its parent's, or that of who has adopted it or started it again.
    funder: Option<SessionId>,
    granted: Option<u64>,
    /// Requests that were made, until they have ended.
    asked: BTreeMap<u64, Asked>,
    /// By it and everything that was funded by it at the time.
    total: i64,
    /// What of it requests took beyond what could be known before.
    beyond: i64,
}

#[derive(Debug)]
struct Asked {
    input: u64,
    reserved: u64,
    /// What it counts as now.
    counted: u64,
    settled: bool,
    /// Who holds the reservation: the session, and all whose part it spent at that moment.
    line: Vec<SessionId>,
}

impl Event {
    fn of(entry: &Entry) -> Option<Event> {
        Some(match &entry.kind {
            Kind::SessionStart(e) => {
                let tokens =
                    |value: Option<&Value>| value.and_then(|v| v.pointer("/budget/tokens")?.as_u64());
                let granted = match (tokens(Some(&e.manifest)), tokens(e.mandate.as_ref())) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                Event::Begins { parent: e.parent.as_ref().map(|parent| parent.session), granted }
            }
            Kind::ConfigChanged(e) if e.key == "budget" => {
                Event::Granted(e.value.get("tokens").and_then(Value::as_u64)?)
            }
            Kind::LlmCall(e) => {
                let Reserved { input, output, .. } = e.reserved;
                Event::Asks { call: e.call, input, reserved: input + output }
            }
            Kind::LlmUsage(e) => Event::Used { call: e.call, took: e.input + e.output },
            Kind::LlmEnd(e) => {
                let read = matches!(e.outcome, LlmOutcome::Broken | LlmOutcome::Cancelled);
                Event::Ends { call: e.call, read }
            }
            Kind::Child(e) => Event::Funds(e.session),
            Kind::ChildEnd(e) if e.outcome == ChildOutcome::Returned => Event::Returns(e.session),
            _ => return None,
        })
    }
}

impl Budgets {
    pub(super) fn wrote(&mut self, session: SessionId, entry: &Entry) {
        if let Some(event) = Event::of(entry) {
            self.journal.push((session, entry.seq, event.clone()));
            self.happened(session, event);
        }
    }

    /// Logs have lost what was not synced: everything is counted anew without it.
    pub(super) fn cut(&mut self, length: impl Fn(SessionId) -> u64) {
        self.journal.retain(|(session, seq, _)| *seq < length(*session));
        self.of.clear();
        let journal = std::mem::take(&mut self.journal);
        for (session, _, event) in &journal {
            self.happened(*session, event.clone());
        }
        self.journal = journal;
    }

    fn happened(&mut self, session: SessionId, event: Event) {
        let purse = self.of.entry(session).or_default();
        match event {
            Event::Begins { parent, granted } => {
                (purse.parent, purse.granted) = (parent, granted);
                purse.funder = purse.funder.or(parent);
            }
            Event::Granted(tokens) => {
                purse.granted = Some(tokens);
                self.changed.push(session);
            }
            Event::Asks { call, input, reserved } => {
                let line = self.line(session);
                let asked = Asked { input, reserved, counted: reserved, settled: false, line: line.clone() };
                self.count(&line, signed(reserved), 0);
                self.of.entry(session).or_default().asked.insert(call, asked);
            }
            Event::Used { call, took } => {
                let Some(asked) = purse.asked.get_mut(&call) else { return };
                let more = signed(took) - if asked.settled { 0 } else { signed(asked.counted) };
                asked.counted = if asked.settled { asked.counted + took } else { took };
                let beyond = asked.counted.saturating_sub(asked.reserved).min(took);
                asked.settled = true;
                let line = asked.line.clone();
                self.count(&line, more, signed(beyond));
            }
            Event::Ends { call, read } => {
                let Some(asked) = purse.asked.remove(&call) else { return };
                // What it took was not told: what was read counts, if it was.
                if !asked.settled {
                    let kept = if read { asked.input } else { 0 };
                    self.count(&asked.line, signed(kept) - signed(asked.counted), 0);
                }
            }
            Event::Funds(child) => self.of.entry(child).or_default().funder = Some(session),
            Event::Returns(child) => {
                let child = self.of.entry(child).or_default();
                child.funder = child.parent;
            }
        }
    }

    fn line(&self, session: SessionId) -> Vec<SessionId> {
        std::iter::successors(Some(session), |at| self.of.get(at)?.funder).collect()
    }

    fn count(&mut self, line: &[SessionId], more: i64, beyond: i64) {
        for session in line {
            let purse = self.of.entry(*session).or_default();
            purse.total += more;
            purse.beyond += beyond;
            if more - beyond > 0 {
                self.changed.push(*session);
            }
        }
    }

    /// A request leaves: what it may take is on disk before.
    pub(super) fn request(
        &self,
        session: SessionId,
        call: u64,
        reserved: Option<&Reserved>,
    ) -> Result<(), String> {
        let wanted = reserved.map_or(0, |reserved| reserved.input + reserved.output);
        let asked = self.of.get(&session).and_then(|purse| purse.asked.get(&call));
        let noted = asked.map_or(0, |asked| asked.counted);
        if noted == 0 || noted < wanted {
            return Err(format!("P9: request {call} may take {wanted} tokens, and {noted} are reserved"));
        }
        Ok(())
    }

    /// Every grant covers what was spent of it.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for session in std::mem::take(&mut self.changed) {
            let Some(purse) = self.of.get(&session).filter(|_| !self.closed) else { continue };
            let spent = purse.total - purse.beyond;
            if let Some(granted) = purse.granted.filter(|granted| spent > signed(*granted)) {
                return Err(format!(
                    "P9: {session} was granted {granted} tokens, and {spent} of it are spent"
                ));
            }
        }
        Ok(())
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u128) -> SessionId {
        SessionId(uuid::Uuid::from_u128(number))
    }

    /// A root, its child and its grandchild, each with its part.
    fn family() -> (Budgets, [SessionId; 3]) {
        let all @ [root, child, grandchild] = [1, 2, 3].map(session);
        let mut budgets = Budgets::default();
        budgets.happened(root, Event::Begins { parent: None, granted: Some(10_000) });
        budgets.happened(root, Event::Funds(child));
        budgets.happened(child, Event::Begins { parent: Some(root), granted: Some(3_000) });
        budgets.happened(child, Event::Funds(grandchild));
        budgets.happened(grandchild, Event::Begins { parent: Some(child), granted: Some(2_000) });
        (budgets, all)
    }

    #[test]
    fn a_pod_that_is_adopted_in_the_middle_of_a_request() {
        let (mut budgets, [root, child, grandchild]) = family();
        budgets.happened(grandchild, Event::Asks { call: 0, input: 500, reserved: 2_000 });
        assert_eq!(budgets.of[&child].total, 2_000);
        budgets.happened(root, Event::Funds(grandchild));
        budgets.happened(grandchild, Event::Used { call: 0, took: 900 });
        budgets.happened(grandchild, Event::Ends { call: 0, read: true });
        for session in [root, child, grandchild] {
            assert_eq!(budgets.of[&session].total, 900, "{session}");
        }
        budgets.happened(child, Event::Asks { call: 0, input: 500, reserved: 2_000 });
        assert_eq!(budgets.check(), Ok(()));
        budgets.happened(child, Event::Asks { call: 1, input: 500, reserved: 200 });
        assert!(budgets.check().is_err_and(|why| why.contains("was granted 3000 tokens, and 3100")));
    }

    #[test]
    fn what_a_power_cut_takes_away_is_not_counted() {
        let (mut budgets, [root, ..]) = family();
        budgets.journal.push((root, 0, Event::Begins { parent: None, granted: Some(10_000) }));
        for call in 0..3 {
            let event = Event::Asks { call, input: 500, reserved: 4_000 };
            budgets.journal.push((root, call + 1, event.clone()));
            budgets.happened(root, event);
        }
        assert!(budgets.check().is_err());
        budgets.cut(|_| 3);
        assert_eq!(budgets.of[&root].total, 8_000);
        assert_eq!(budgets.check(), Ok(()));
    }
}
