//! Grants: approvals for a session. A grant answers an approval request and never overrides a denial.
//!
//! This module finds the grant that covers an action. `pod` logs the grants.
//! Invariant: a grant changes only verdicts that ask (`a_grant_answers_a_question_and_never_a_refusal`).

use minke_record::{Action, Judgement};

use crate::judge::{PolicyContext, RuleEvaluation, hard_denial, judge_parsed_line};
use crate::shell::{self, ShellLine};

use super::PolicyRule;
use super::matching::rule_allows;

/// The prefix of a grant for one exact call; the digest of the call follows.
const CALL_PREFIX: &str = "call ";

/// Returns the grant that covers an action that needs approval, if all of its parts are covered.
///
/// A grant is `call <digest>` for one exact call, or a rule as one line of TOML.
pub fn find_grant(
    grants: &[&str],
    context: &PolicyContext<'_>,
    action: &Action,
    digest: &str,
) -> Option<String> {
    let line = action.command.as_deref().map(shell::parse_shell_line);
    if judge_parsed_line(context, action, line.as_ref()).outcome != Judgement::Ask {
        return None;
    }
    if let Some(exact) = grants.iter().find(|grant| grant.strip_prefix(CALL_PREFIX) == Some(digest)) {
        return Some((*exact).to_owned());
    }
    // A text that is not a rule grants nothing.
    let rules = grants.iter().filter_map(|grant| Some((*grant, PolicyRule::parse(grant).ok()?)));
    let rules: Vec<(&str, PolicyRule)> = rules.filter(|(_, rule)| rule.action == Judgement::Allow).collect();
    let mut used = None;
    let mut judging = Some(context);
    while let Some(by) = judging {
        used = used.or(covering_grant(&rules, by, action, line.as_ref())?);
        judging = by.parent;
    }
    used.map(str::to_owned)
}

/// Returns the first grant used to cover the approval requests of one policy, or `None` if one is not
/// covered.
fn covering_grant<'g>(
    grants: &[(&'g str, PolicyRule)],
    context: &PolicyContext<'_>,
    action: &Action,
    line: Option<&ShellLine>,
) -> Option<Option<&'g str>> {
    if hard_denial(context, action).is_some() {
        return None;
    }
    let evaluation = RuleEvaluation::evaluate(context, action, line);
    let vouched = evaluation.unreadable_reason().is_none()
        && !(evaluation.asks_about_commands() && evaluation.not_allowed_reason.is_some());
    if evaluation.denied_by.is_some() || !vouched {
        return None;
    }
    let asked = evaluation.asked_by.iter().map(|(part, _)| part).chain(evaluation.undecided_asks());
    let mut used = None;
    for part in asked {
        let (text, _) = grants.iter().find(|(_, rule)| rule_allows(context, rule, part))?;
        used = used.or(Some(*text));
    }
    Some(used)
}
