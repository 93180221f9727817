//! Scripted hooks, and the rules of `policy` lines.

use std::collections::BTreeMap;

use minke_pod::{HookPoint, HookRequest, HookVerdict, InputKind};
use minke_policy::{LayeredRule, PolicyRule, RuleLayer, RuleSet};
use minke_record::Judgement;

use crate::world::{StoryStop, StoryWorld};

/// Returns the hooks' verdict; `None` if they hang.
pub(crate) fn hook_verdict(
    hooks: &BTreeMap<String, String>,
    point: &HookPoint,
    question: &HookRequest,
) -> Option<HookVerdict> {
    let (who, again, may_rewrite) = match (point, question) {
        (HookPoint::UserPrompt(_), _) => ("prompt", 0, true),
        (_, HookRequest::BeforeTool { tool, may_rewrite, .. }) => (tool.as_str(), 0, *may_rewrite),
        (_, HookRequest::BeforeStop { continues, .. }) => ("stop", *continues, false),
        _ => ("", 0, false),
    };
    let nothing = HookVerdict::allow();
    let Some(what) = hooks.get(who) else { return Some(nothing) };
    let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
    let text = || Some(rest.to_owned());
    let judged =
        |outcome| HookVerdict { outcome, by: Some("h".to_owned()), reason: text(), ..HookVerdict::allow() };
    Some(match word {
        "hang" => return None,
        "ask" => judged(Judgement::Ask),
        "deny" if again > 0 => nothing,
        "deny" | "always" => judged(Judgement::Deny),
        "rewrite" if may_rewrite => HookVerdict { rewritten: text(), ..nothing },
        "context" => HookVerdict { context: text(), ..nothing },
        "problem" => HookVerdict { problems: vec![rest.to_owned()], ..nothing },
        _ => nothing,
    })
}

impl StoryWorld {
    /// Changes the hooks' reply; hanging requests are answered.
    pub(crate) fn set_hook_reply(&mut self, who: &str, what: &str) -> Result<(), StoryStop> {
        self.hooks.insert(who.to_owned(), what.to_owned());
        for (point, question) in std::mem::take(&mut self.hanging_hooks) {
            match hook_verdict(&self.hooks, &point, &question) {
                Some(verdict) if self.pod.is_some() => {
                    self.feed_input(InputKind::HookReply { point, verdict: Box::new(verdict) })?;
                    self.settle_inputs()?;
                }
                Some(_) => {}
                None => self.hanging_hooks.push((point, question)),
            }
        }
        Ok(())
    }
}

/// Parses one rule of the user, such as `deny git push`; `none` removes all rules.
pub(crate) fn parse_rules(what: &str) -> Result<RuleSet, String> {
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
    let rule = PolicyRule {
        action,
        tool: None,
        command: Some(command.to_owned()),
        path: None,
        host: None,
        matches: Vec::new(),
        not_match: Vec::new(),
    };
    Ok(RuleSet { rules: vec![LayeredRule { layer: RuleLayer::User, origin: "story".to_owned(), rule }] })
}
