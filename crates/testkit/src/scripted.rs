//! Scripted hooks and rules: what a story's hooks say of a question, and the rules that its `policy` lines write.

use std::collections::BTreeMap;

use minke_pod::{HookPoint, HookQuestion, HooksSaid, What};
use minke_policy::{Layer, Placed, Rule, RuleSet};
use minke_record::Judgement;

use crate::world::{Stop, World};

/// What hooks say to a question; `None` if they hang.
pub(crate) fn said(
    hooks: &BTreeMap<String, String>,
    point: &HookPoint,
    question: &HookQuestion,
) -> Option<HooksSaid> {
    let (who, again, may_rewrite) = match (point, question) {
        (HookPoint::UserPrompt(_), _) => ("prompt", 0, true),
        (_, HookQuestion::BeforeTool { tool, may_rewrite, .. }) => (tool.as_str(), 0, *may_rewrite),
        (_, HookQuestion::BeforeStop { again, .. }) => ("stop", *again, false),
        _ => ("", 0, false),
    };
    let nothing = HooksSaid::nothing();
    let Some(what) = hooks.get(who) else { return Some(nothing) };
    let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
    let text = || Some(rest.to_owned());
    let judged =
        |outcome| HooksSaid { outcome, by: Some("h".to_owned()), reason: text(), ..HooksSaid::nothing() };
    Some(match word {
        "hang" => return None,
        "ask" => judged(Judgement::Ask),
        "deny" if again > 0 => nothing,
        "deny" | "always" => judged(Judgement::Deny),
        "rewrite" if may_rewrite => HooksSaid { rewritten: text(), ..nothing },
        "context" => HooksSaid { context: text(), ..nothing },
        "problem" => HooksSaid { problems: vec![rest.to_owned()], ..nothing },
        _ => nothing,
    })
}

impl World {
    /// From here on hooks say this; questions that hang are answered.
    pub(crate) fn hooks_now_say(&mut self, who: &str, what: &str) -> Result<(), Stop> {
        self.hooks.insert(who.to_owned(), what.to_owned());
        for (point, question) in std::mem::take(&mut self.hanging) {
            match said(&self.hooks, &point, &question) {
                Some(said) if self.pod.is_some() => {
                    self.feed(What::HooksSaid { point, said: Box::new(said) })?;
                    self.settle()?;
                }
                Some(_) => {}
                None => self.hanging.push((point, question)),
            }
        }
        Ok(())
    }
}

/// `deny git push`: one rule of the person; `none` takes all back.
pub(crate) fn rules(what: &str) -> Result<RuleSet, String> {
    if what == "none" {
        return Ok(RuleSet::default());
    }
    let (word, command) = what.split_once(' ').ok_or("`policy > WORD COMMAND`")?;
    let action = match word {
        "allow" => Judgement::Allow,
        "ask" => Judgement::Ask,
        "deny" => Judgement::Deny,
        other => return Err(format!("`{other}` is no word of a rule")),
    };
    let rule = Rule {
        action,
        tool: None,
        command: Some(command.to_owned()),
        path: None,
        host: None,
        matches: Vec::new(),
        not_match: Vec::new(),
    };
    Ok(RuleSet { rules: vec![Placed { layer: Layer::User, origin: "story".to_owned(), rule }] })
}
