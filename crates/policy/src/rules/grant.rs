//! Grants: what a person allowed for a session. A grant answers a question and never a refusal.
//!
//! Here: whether the grants of a pod answer the question about an action. Elsewhere: who logs them (`pod`).
//! Invariant: where a verdict is not a question no grant changes it (`a_grant_answers_a_question_and_never_a_refusal`).

use minke_record::{Action, Judgement};

use crate::judge::{Judging, Looked, judge_line, refusal};
use crate::shell::{self, Line};

use super::Rule;
use super::fit::allows;

/// How a grant for one exact call begins; what follows is the call's digest.
const CALL: &str = "call ";

/// The grant that answers the question about an action, if all that is asked about is covered.
///
/// A grant is `call <digest>`, for that very call, or a rule in one line of TOML.
pub fn granted(grants: &[&str], by: &Judging<'_>, action: &Action, digest: &str) -> Option<String> {
    let line = action.command.as_deref().map(shell::read);
    if judge_line(by, action, line.as_ref()).outcome != Judgement::Ask {
        return None;
    }
    if let Some(exact) = grants.iter().find(|grant| grant.strip_prefix(CALL) == Some(digest)) {
        return Some((*exact).to_owned());
    }
    // A text that is no rule grants nothing.
    let rules = grants.iter().filter_map(|grant| Some((*grant, Rule::parse(grant).ok()?)));
    let rules: Vec<(&str, Rule)> = rules.filter(|(_, rule)| rule.action == Judgement::Allow).collect();
    let mut used = None;
    let mut judging = Some(by);
    while let Some(by) = judging {
        used = used.or(covered(&rules, by, action, line.as_ref())?);
        judging = by.parent;
    }
    used.map(str::to_owned)
}

/// The first grant that is used to cover what one policy asks about; none if something is left uncovered.
fn covered<'g>(
    grants: &[(&'g str, Rule)],
    by: &Judging<'_>,
    action: &Action,
    line: Option<&Line>,
) -> Option<Option<&'g str>> {
    if refusal(by, action).is_some() {
        return None;
    }
    let looked = Looked::at(by, action, line);
    let vouched = looked.unreadable().is_none() && !(looked.command_asks() && looked.unvouched.is_some());
    if looked.denied.is_some() || !vouched {
        return None;
    }
    let asked = looked.asked.iter().map(|(part, _)| part).chain(looked.open_questions());
    let mut used = None;
    for part in asked {
        let (text, _) = grants.iter().find(|(_, rule)| allows(by, rule, part))?;
        used = used.or(Some(*text));
    }
    Some(used)
}
