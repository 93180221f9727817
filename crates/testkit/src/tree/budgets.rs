//! What was granted and spent, by eyes of the simulation's own: entry by entry, in the order in which all logs were written.
//!
//! Here: what everybody and everything below it has spent, and that no grant is exceeded (P9). Elsewhere: the other
//! properties (`check`).
//! Invariant: a request counts for everybody above its pod, whoever the pod belongs to meanwhile
//! (`a_request_counts_for_everybody_above`).

use std::collections::BTreeMap;

use minke_record::{Entry, Kind, LlmOutcome, Reserved, SessionId};
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
}

#[derive(Debug, Default)]
struct Purse {
    parent: Option<SessionId>,
    granted: Option<u64>,
    /// Requests that were made, until they have ended.
    asked: BTreeMap<u64, Asked>,
    /// By it and everything that was spawned below it.
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
            }
            Event::Granted(tokens) => {
                purse.granted = Some(tokens);
                self.changed.push(session);
            }
            Event::Asks { call, input, reserved } => {
                let asked = Asked { input, reserved, counted: reserved, settled: false };
                purse.asked.insert(call, asked);
                self.count(session, signed(reserved), 0);
            }
            Event::Used { call, took } => {
                let Some(asked) = purse.asked.get_mut(&call) else { return };
                let more = signed(took) - if asked.settled { 0 } else { signed(asked.counted) };
                asked.counted = if asked.settled { asked.counted + took } else { took };
                let beyond = asked.counted.saturating_sub(asked.reserved).min(took);
                asked.settled = true;
                self.count(session, more, signed(beyond));
            }
            Event::Ends { call, read } => {
                let Some(asked) = purse.asked.remove(&call) else { return };
                // What it took was not told: what was read counts, if it was.
                if !asked.settled {
                    let kept = if read { asked.input } else { 0 };
                    self.count(session, signed(kept) - signed(asked.counted), 0);
                }
            }
        }
    }

    /// Counts something for a session and for everybody above it.
    fn count(&mut self, session: SessionId, more: i64, beyond: i64) {
        let mut at = Some(session);
        while let Some(session) = at {
            let purse = self.of.entry(session).or_default();
            purse.total += more;
            purse.beyond += beyond;
            at = purse.parent;
            if more - beyond > 0 {
                self.changed.push(session);
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

    /// The grant of a root, and of everybody who lives, covers what was spent below it. What a dead pod was granted does
    /// not count: those below it may have been given more by whoever is above it, and it is told when it is woken.
    pub(super) fn check(&mut self, lives: impl Fn(SessionId) -> bool) -> Result<(), String> {
        for session in std::mem::take(&mut self.changed) {
            let Some(purse) = self.of.get(&session).filter(|_| !self.closed) else { continue };
            if purse.parent.is_some() && !lives(session) {
                continue;
            }
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
        budgets.happened(child, Event::Begins { parent: Some(root), granted: Some(3_000) });
        budgets.happened(grandchild, Event::Begins { parent: Some(child), granted: Some(2_000) });
        (budgets, all)
    }

    #[test]
    fn a_request_counts_for_everybody_above() {
        let (mut budgets, [root, child, grandchild]) = family();
        budgets.happened(grandchild, Event::Asks { call: 0, input: 500, reserved: 2_000 });
        assert_eq!(budgets.of[&child].total, 2_000);
        budgets.happened(grandchild, Event::Used { call: 0, took: 900 });
        budgets.happened(grandchild, Event::Ends { call: 0, read: true });
        for session in [root, child, grandchild] {
            assert_eq!(budgets.of[&session].total, 900, "{session}");
        }
        budgets.happened(child, Event::Asks { call: 0, input: 500, reserved: 2_000 });
        assert_eq!(budgets.check(|_| true), Ok(()));
        budgets.happened(child, Event::Asks { call: 1, input: 500, reserved: 200 });
        assert!(budgets.check(|_| true).is_err_and(|why| why.contains("was granted 3000 tokens, and 3100")));
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
        assert!(budgets.check(|_| true).is_err());
        budgets.cut(|_| 3);
        assert_eq!(budgets.of[&root].total, 8_000);
        assert_eq!(budgets.check(|_| true), Ok(()));
    }
}
