//! Proposes the rule for an "always" answer: the narrowest rule that a user would understand, if it helps.
//!
//! `append` writes the rule, `command` has the words that name a command.
//! Invariant: a proposed rule changes the verdict to allow, and is never a bare interpreter or launcher
//! (`what_is_proposed_allows_and_is_never_bare`).

use minke_record::{Action, Judgement};

use crate::judge::{PolicyContext, RuleEvaluation, hard_denial, judge_parsed_line};
use crate::shell::{self, ShellLine};

use super::command::proposable_words;
use super::matching::ActionPart;
use super::{LayeredRule, PolicyRule, RuleLayer, RuleSet};

/// Returns a user rule that would allow this action, if one is worth proposing.
pub fn propose_rule(context: &PolicyContext<'_>, action: &Action) -> Option<PolicyRule> {
    let line = action.command.as_deref().map(shell::parse_shell_line);
    let line = line.as_ref();
    if judge_parsed_line(context, action, line).outcome != Judgement::Ask {
        return None;
    }
    [false, true].into_iter().find_map(|with_flags| {
        let rule = candidate_rule(context, action, line, with_flags)?;
        would_allow(context, action, line, &rule).then_some(rule)
    })
}

/// Returns whether an additional rule would allow an action.
fn would_allow(by: &PolicyContext<'_>, action: &Action, line: Option<&ShellLine>, rule: &PolicyRule) -> bool {
    let layered = LayeredRule { layer: RuleLayer::User, origin: "proposed".to_owned(), rule: rule.clone() };
    let mut rules: RuleSet = by.rules.clone();
    rules.rules.push(layered);
    let with = PolicyContext { rules: &rules, ..*by };
    judge_parsed_line(&with, action, line).outcome == Judgement::Allow
}

/// Returns a single rule for all parts that need approval, if one exists. If the flags of the program are
/// unknown, the rule must name them.
fn candidate_rule(
    context: &PolicyContext<'_>,
    action: &Action,
    line: Option<&ShellLine>,
    with_flags: bool,
) -> Option<PolicyRule> {
    if hard_denial(context, action).is_some() || line.is_some_and(|line| line.uncertain_reason.is_some()) {
        return None;
    }
    let evaluation = RuleEvaluation::evaluate(context, action, line);
    let asked = evaluation.asked_by.iter().map(|(part, _)| part).chain(evaluation.undecided_asks());
    // A rule for a launcher covers the launched command too.
    let run = |part: &&ActionPart<'_>| !matches!(part, ActionPart::Command(_, Some(wrapper)) if proposable_words(wrapper, false).is_some());
    let mut rules = asked.filter(run).map(|part| rule_for_part(part, with_flags));
    let first = rules.next()??;
    rules.all(|rule| rule.as_ref() == Some(&first)).then_some(first)
}

fn rule_for_part(part: &ActionPart<'_>, with_flags: bool) -> Option<PolicyRule> {
    let rule = PolicyRule::new(Judgement::Allow);
    match part {
        ActionPart::Command(command, _) => {
            let words = proposable_words(command, with_flags)?
                .into_iter()
                .map(plain_word)
                .collect::<Option<Vec<&str>>>()?;
            Some(PolicyRule { command: Some(words.join(" ")), ..rule })
        }
        ActionPart::Host(host) => Some(PolicyRule { host: Some((*host).to_owned()), ..rule }),
        ActionPart::Mcp(name) => Some(PolicyRule { tool: Some((*name).to_owned()), ..rule }),
        ActionPart::Write(path) => {
            let (directory, _) = path.rsplit_once('/')?;
            let glob = format!("{}/**", globset::escape(directory));
            Some(PolicyRule { tool: Some("Write".to_owned()), path: Some(glob), ..rule })
        }
        ActionPart::EmptyLine
        | ActionPart::FileWord(_)
        | ActionPart::PossibleFile(_)
        | ActionPart::PossibleLaunch(_)
        | ActionPart::Redirect(_)
        | ActionPart::Read(_)
        | ActionPart::Pod(_)
        | ActionPart::Undeclared => None,
    }
}

/// Returns a word that needs no quotes in a rule.
fn plain_word(word: &str) -> Option<&str> {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./:@+,=%".contains(letter);
    word.chars().all(plain).then_some(word)
}
