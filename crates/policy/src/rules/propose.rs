//! The rule that "always" would write: the narrowest that a person would understand, and only where it helps.
//!
//! Here: which rule. Elsewhere: writing it (`append`), the words that name a command (`command`).
//! Invariant: a proposed rule changes the outcome to allow, and is never a bare interpreter or launcher
//! (`what_is_proposed_allows_and_is_never_bare`).

use minke_record::{Action, Judgement};

use crate::judge::{Judging, Looked, judge_line, refusal};
use crate::shell::{self, Line};

use super::command::proposable;
use super::fit::Part;
use super::{Layer, Placed, Rule, RuleSet};

/// The rule of the person's own layer with which the same action would be allowed, if there is one worth offering.
pub fn propose(by: &Judging<'_>, action: &Action) -> Option<Rule> {
    let line = action.command.as_deref().map(shell::read);
    let line = line.as_ref();
    if judge_line(by, action, line).outcome != Judgement::Ask {
        return None;
    }
    [false, true].into_iter().find_map(|with_flags| {
        let rule = candidate(by, action, line, with_flags)?;
        allows_it(by, action, line, &rule).then_some(rule)
    })
}

/// Whether an action would be allowed with one more rule.
fn allows_it(by: &Judging<'_>, action: &Action, line: Option<&Line>, rule: &Rule) -> bool {
    let placed = Placed { layer: Layer::User, origin: "proposed".to_owned(), rule: rule.clone() };
    let mut rules: RuleSet = by.rules.clone();
    rules.rules.push(placed);
    let with = Judging { rules: &rules, ..*by };
    judge_line(&with, action, line).outcome == Judgement::Allow
}

/// One rule for everything that is asked about, if one can say it. Of a program whose flags nothing is known of, the rule
/// has to name them.
fn candidate(by: &Judging<'_>, action: &Action, line: Option<&Line>, with_flags: bool) -> Option<Rule> {
    if refusal(by, action).is_some() || line.is_some_and(|line| line.unsure.is_some()) {
        return None;
    }
    let looked = Looked::at(by, action, line);
    let asked = looked.asked.iter().map(|(part, _)| part).chain(looked.open_questions());
    // A rule for what runs a command by name is about both.
    let run = |part: &&Part<'_>| !matches!(part, Part::Command(_, Some(wrapper)) if proposable(wrapper, false).is_some());
    let mut rules = asked.filter(run).map(|part| rule_for(part, with_flags));
    let first = rules.next()??;
    rules.all(|rule| rule.as_ref() == Some(&first)).then_some(first)
}

fn rule_for(part: &Part<'_>, with_flags: bool) -> Option<Rule> {
    let rule = Rule::new(Judgement::Allow);
    match part {
        Part::Command(command, _) => {
            let words =
                proposable(command, with_flags)?.into_iter().map(spelled).collect::<Option<Vec<&str>>>()?;
            Some(Rule { command: Some(words.join(" ")), ..rule })
        }
        Part::Host(host) => Some(Rule { host: Some((*host).to_owned()), ..rule }),
        Part::Mcp(name) => Some(Rule { tool: Some((*name).to_owned()), ..rule }),
        Part::Writes(path) => {
            let (directory, _) = path.rsplit_once('/')?;
            let glob = format!("{}/**", globset::escape(directory));
            Some(Rule { tool: Some("Write".to_owned()), path: Some(glob), ..rule })
        }
        Part::Line
        | Part::Mentions(_)
        | Part::MayMention(_)
        | Part::MayRun(_)
        | Part::Opens(_)
        | Part::Reads(_)
        | Part::Pod(_)
        | Part::Silent => None,
    }
}

/// A word that stands in a rule as it is.
fn spelled(word: &str) -> Option<&str> {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./:@+,=%".contains(letter);
    word.chars().all(plain).then_some(word)
}
