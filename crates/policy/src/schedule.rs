//! Schedules concurrent calls. Calls that conflict keep the order in which the model made them.
//!
//! This module detects conflicts and selects the calls to start; `pod` runs them. Paths are compared as text;
//! the lock of a file (`files`) serializes access by different names.
//! Invariant: two conflicting calls never run at the same time and never change their order
//! (`conflicting_calls_keep_their_order_and_never_meet`).

use minke_record::Action;

use crate::scope::is_at_or_below;

/// The maximum number of calls of a pod that run at the same time.
pub const MAX_RUNNING_CALLS: usize = 8;

/// The state of a call that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallSlotState {
    /// May start as soon as no other call conflicts.
    Waiting,
    /// Has started.
    Running,
    /// Waits for an answer or a verdict and delays only later calls that conflict with it.
    Blocked,
}

/// A call that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct CallSlot<'a> {
    pub state: CallSlotState,
    pub action: &'a Action,
}

/// Returns the indexes of the calls that may start now, so that at most `limit` run at once.
pub fn startable_calls(calls: &[CallSlot<'_>], limit: usize) -> Vec<usize> {
    let running = calls.iter().filter(|slot| slot.state == CallSlotState::Running).count();
    let mut room = limit.saturating_sub(running);
    let mut start = Vec::new();
    for (place, slot) in calls.iter().enumerate() {
        if room == 0 {
            break;
        }
        // Earlier calls take precedence, started or not.
        let mut before = calls.iter().take(place);
        // A later call may already run because this one could not start yet; they must not run together
        // either.
        let mut after = calls.iter().skip(place + 1).filter(|other| other.state == CallSlotState::Running);
        let in_the_way = |other: &CallSlot<'_>| actions_conflict(slot.action, other.action);
        if slot.state == CallSlotState::Waiting && !before.any(in_the_way) && !after.any(in_the_way) {
            start.push(place);
            room -= 1;
        }
    }
    start
}

/// Returns whether the order of two actions could be observed: one writes where the other reads or writes, or
/// one may do anything.
pub fn actions_conflict(a: &Action, b: &Action) -> bool {
    paths_overlap(&a.writes, &b.writes)
        || paths_overlap(&a.writes, &b.reads)
        || paths_overlap(&a.reads, &b.writes)
        || is_open_ended(a)
        || is_open_ended(b)
        || (a.pod.is_some() && a.pod == b.pod)
}

/// Returns whether an action may write anywhere: a command, or side effects without declared paths.
fn is_open_ended(action: &Action) -> bool {
    let says_where = !action.writes.is_empty() || !action.hosts.is_empty() || action.pod.is_some();
    action.command.is_some() || (action.side_effects && !says_where)
}

/// Returns whether a path of one list is equal to, below or above one of the other: a search reads below a
/// directory, and a write may create the directories above it.
fn paths_overlap(a: &[String], b: &[String]) -> bool {
    a.iter().any(|a| b.iter().any(|b| is_related_path(a, b)))
}

/// Compares without case, because some volumes ignore case; on others this only delays some calls.
fn is_related_path(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    is_at_or_below(&a, &b) || is_at_or_below(&b, &a)
}
