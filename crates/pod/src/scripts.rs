//! Scripts of a line in the gate: whether they are the ones that a person approved, and what has changed since.
//!
//! Elsewhere: finding and hashing them (the driver), what the answer is bound to (`digest`).
//! Invariants: a grant covers a line that names scripts only with the content that was approved with a grant
//! (`a_grant_covers_only_the_scripts_that_were_seen`); a script that could not be read whole is covered by no grant.

use minke_record::{CallStage, OpenCall, Script, Verdict};

use crate::calls::Ready;
use crate::gate::{ANSWER, GRANT};
use crate::pod::Pod;

/// The lines of a change that a question shows.
const LINES: usize = 200;

impl Pod {
    /// Whether grants cover the scripts of a call: each was part of a question whose answer was for the session.
    pub(crate) fn scripts_are_granted(&self, scripts: &[Script]) -> bool {
        let approved = || self.state.facts.grants.iter().flat_map(|grant| &grant.scripts);
        scripts.iter().all(|script| script.hash.is_some() && approved().any(|known| known.is_same(script)))
    }

    /// The scripts of a call as its question shows them, each with what has changed since it was approved.
    pub(crate) fn shown_scripts(&self, call: &OpenCall, scripts: &[Script]) -> Vec<Script> {
        let asked: &[Script] = match &call.stage {
            CallStage::Answered { scripts, .. } => scripts,
            CallStage::Wished | CallStage::Asked(_) | CallStage::Dispatched(_) => &[],
        };
        let answered = matches!(call.stage, CallStage::Answered { .. });
        let granted = || self.state.facts.grants.iter().rev().flat_map(|grant| &grant.scripts);
        let earlier = |path: &str| asked.iter().chain(granted()).find(|known| known.path == path);
        let shown = scripts.iter().map(|script| {
            let change = earlier(&script.path).filter(|known| !known.is_same(script));
            let change = change.map(|known| difference(known, script));
            let came = answered && earlier(&script.path).is_none();
            let change = change.or_else(|| came.then(|| "it was not there before".to_owned()));
            Script { change, ..script.clone() }
        });
        let mut shown: Vec<Script> = shown.collect();
        for gone in asked.iter().filter(|known| !scripts.iter().any(|script| script.path == known.path)) {
            let change = Some("it was there before and is gone".to_owned());
            shown.push(Script { change, text: None, hash: None, ..gone.clone() });
        }
        shown
    }
}

/// Whether a call runs because a person said yes to what it is now; then its scripts are looked at once more before it
/// starts.
pub(crate) fn is_approved(verdict: &Verdict) -> bool {
    matches!(verdict.layer.as_deref(), Some(ANSWER | GRANT))
}

/// Whether a call that waited for its turn must be looked at once more.
pub(crate) fn is_stale(ready: &Ready) -> bool {
    ready.waited && !ready.prepared.action.scripts.is_empty() && is_approved(&ready.verdict)
}

/// What has changed, in words or as lines with `-` and `+`.
fn difference(before: &Script, now: &Script) -> String {
    if before.leads_to != now.leads_to {
        let led = |script: &Script| script.leads_to.clone().unwrap_or_else(|| "itself".to_owned());
        return format!("it led to {} and leads to {} now", led(before), led(now));
    }
    if let Some(problem) = &now.problem {
        return format!("it cannot be read whole now: {problem}");
    }
    match (&before.text, &now.text) {
        (Some(before), Some(now)) => lines(before, now),
        _ => "its content has changed".to_owned(),
    }
}

/// Everything between the first and the last line that differ.
fn lines(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[&str], sign: char| -> Vec<String> {
        lines.iter().take(lines.len() - tail).skip(same).map(|line| format!("{sign}{line}")).collect()
    };
    let mut all = [middle(&before, '-'), middle(&after, '+')].concat();
    let more = all.len().saturating_sub(LINES);
    if more > 0 {
        all.truncate(LINES);
        all.push(format!("… and {more} more lines"));
    }
    if all.is_empty() { "only the ends of its lines have changed".to_owned() } else { all.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_the_lines_that_differ() {
        assert_eq!(lines("a\nb\nc\n", "a\nx\ny\nc\n"), "-b\n+x\n+y");
        assert_eq!(lines("a\n", "a\nb\n"), "+b");
        assert_eq!(lines("a\n", "a"), "only the ends of its lines have changed");
        let long = "x\n".repeat(1_000);
        assert!(lines("", &long).ends_with("… and 800 more lines"));
    }
}
