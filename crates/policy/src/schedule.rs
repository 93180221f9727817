//! Which calls may run beside each other. Those that conflict keep the order in which the model made them.
//!
//! Here: conflicts and the choice. Elsewhere: the calls themselves (`pod`).
//! Paths are compared as they are written; two names of one file are kept apart by the files' own lock (`files`).
//! Invariant: two calls that conflict never run at once and never change places
//! (`conflicting_calls_keep_their_order_and_never_meet`).

use minke_record::Action;

use crate::scope::is_beneath;

/// The most calls of a pod that run at once.
pub const AT_ONCE: usize = 8;

/// Where a call stands. One that has ended is not in the list any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// May start when nothing is in its way.
    Waiting,
    /// Has started.
    Running,
    /// Waits for an answer or a verdict: holds back those after it that conflict with it, and nobody else.
    Blocked,
}

/// A call that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    pub state: SlotState,
    pub action: &'a Action,
}

/// Which of the calls, in their order, may start now, so that at most `limit` run at once.
pub fn startable(calls: &[Slot<'_>], limit: usize) -> Vec<usize> {
    let running = calls.iter().filter(|slot| slot.state == SlotState::Running).count();
    let mut room = limit.saturating_sub(running);
    let mut start = Vec::new();
    for (place, slot) in calls.iter().enumerate() {
        if room == 0 {
            break;
        }
        // Whatever stands before it counts, started now or not: its turn comes first.
        let mut before = calls.iter().take(place);
        // One after it that runs already was let through before this one could start: they must not meet either.
        let mut after = calls.iter().skip(place + 1).filter(|other| other.state == SlotState::Running);
        let in_the_way = |other: &Slot<'_>| conflicts(slot.action, other.action);
        if slot.state == SlotState::Waiting && !before.any(in_the_way) && !after.any(in_the_way) {
            start.push(place);
            room -= 1;
        }
    }
    start
}

/// Whether the order in which two actions happen could be seen: one writes where the other reads or writes, or one may
/// do anything.
pub fn conflicts(a: &Action, b: &Action) -> bool {
    meet(&a.writes, &b.writes)
        || meet(&a.writes, &b.reads)
        || meet(&a.reads, &b.writes)
        || is_open_ended(a)
        || is_open_ended(b)
        || (a.pod.is_some() && a.pod == b.pod)
}

/// A command writes where it likes; so does whatever has side effects and does not say where.
fn is_open_ended(action: &Action) -> bool {
    let says_where = !action.writes.is_empty() || !action.hosts.is_empty() || action.pod.is_some();
    action.command.is_some() || (action.side_effects && !says_where)
}

/// Whether a path of one list is, lies below or lies above one of the other: a search reads what is below a directory,
/// and a write may make the directories above it.
fn meet(a: &[String], b: &[String]) -> bool {
    a.iter().any(|a| b.iter().any(|b| related(a, b)))
}

/// Without regard to case, because some volumes have none; on others the price is a pair that waits in vain.
fn related(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    is_beneath(&a, &b) || is_beneath(&b, &a)
}
