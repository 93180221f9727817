//! Scripts in commands: whether they are the approved ones, and how they have changed.
//!
//! Elsewhere: finding and hashing them (the driver), the digest (`digest`).
//! Invariants: a grant covers a command with scripts only for the approved content
//! (`a_grant_covers_only_the_scripts_that_were_seen`); no grant covers a script that cannot be read
//! completely.

use minke_record::{CallStage, ExecutedScript, OpenCall, PolicyVerdict};

use crate::calls::ReadyCall;
use crate::calls::gate::{ANSWER_LAYER, GRANT_LAYER};
use crate::state::State;

/// Maximum number of diff lines in an ask.
const MAX_DIFF_LINES: usize = 200;

impl State {
    /// Returns whether each script was part of an ask that was approved for the session.
    pub(crate) fn are_scripts_granted(&self, scripts: &[ExecutedScript]) -> bool {
        let approved = || self.facts.grants.iter().flat_map(|grant| &grant.scripts);
        scripts.iter().all(|script| script.hash.is_some() && approved().any(|known| known.is_same(script)))
    }

    /// Returns the scripts for an ask, each with its changes since it was approved.
    pub(crate) fn scripts_for_ask(&self, call: &OpenCall, scripts: &[ExecutedScript]) -> Vec<ExecutedScript> {
        let asked: &[ExecutedScript] = match &call.stage {
            CallStage::Answered { scripts, .. } => scripts,
            CallStage::Wished | CallStage::Asked(_) | CallStage::Dispatched(_) => &[],
        };
        let answered = matches!(call.stage, CallStage::Answered { .. });
        let granted = || self.facts.grants.iter().rev().flat_map(|grant| &grant.scripts);
        let earlier = |path: &str| asked.iter().chain(granted()).find(|known| known.path == path);
        let shown = scripts.iter().map(|script| {
            let change = earlier(&script.path).filter(|known| !known.is_same(script));
            let change = change.map(|known| describe_script_change(known, script));
            let came = answered && earlier(&script.path).is_none();
            let change = change.or_else(|| came.then(|| "it was not there before".to_owned()));
            ExecutedScript { change, ..script.clone() }
        });
        let mut shown: Vec<ExecutedScript> = shown.collect();
        for gone in asked.iter().filter(|known| !scripts.iter().any(|script| script.path == known.path)) {
            let change = Some("it was there before and is gone".to_owned());
            shown.push(ExecutedScript { change, text: None, hash: None, ..gone.clone() });
        }
        shown
    }
}

/// Returns whether a call runs because of an answer or grant. Its scripts are then checked again before it
/// starts.
pub(crate) fn is_approved_by_user(verdict: &PolicyVerdict) -> bool {
    matches!(verdict.layer.as_deref(), Some(ANSWER_LAYER | GRANT_LAYER))
}

/// Returns whether a call that waited for its turn must be judged again.
pub(crate) fn needs_recheck(ready: &ReadyCall) -> bool {
    ready.has_waited && !ready.prepared.action.scripts.is_empty() && is_approved_by_user(&ready.verdict)
}

/// Describes a change as a phrase or as diff lines.
fn describe_script_change(before: &ExecutedScript, now: &ExecutedScript) -> String {
    if before.leads_to != now.leads_to {
        let led = |script: &ExecutedScript| script.leads_to.clone().unwrap_or_else(|| "itself".to_owned());
        return format!("it led to {} and leads to {} now", led(before), led(now));
    }
    if let Some(problem) = &now.problem {
        return format!("it cannot be read whole now: {problem}");
    }
    match (&before.text, &now.text) {
        (Some(before), Some(now)) => diff_lines(before, now),
        _ => "its content has changed".to_owned(),
    }
}

/// Returns the lines between the first and the last difference.
fn diff_lines(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[&str], sign: char| -> Vec<String> {
        lines.iter().take(lines.len() - tail).skip(same).map(|line| format!("{sign}{line}")).collect()
    };
    let mut all = [middle(&before, '-'), middle(&after, '+')].concat();
    let more = all.len().saturating_sub(MAX_DIFF_LINES);
    if more > 0 {
        all.truncate(MAX_DIFF_LINES);
        all.push(format!("… and {more} more lines"));
    }
    if all.is_empty() { "only the ends of its lines have changed".to_owned() } else { all.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_the_lines_that_differ() {
        assert_eq!(diff_lines("a\nb\nc\n", "a\nx\ny\nc\n"), "-b\n+x\n+y");
        assert_eq!(diff_lines("a\n", "a\nb\n"), "+b");
        assert_eq!(diff_lines("a\n", "a"), "only the ends of its lines have changed");
        let long = "x\n".repeat(1_000);
        assert!(diff_lines("", &long).ends_with("… and 800 more lines"));
    }
}
