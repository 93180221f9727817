//! An ask as a card: everything that the user needs to decide, in a fixed order.
//!
//! Built from the log entry, so that every client shows the same, and the card shows the exact call. Lines of
//! a command or diff are indented, so they cannot imitate a line of the card.

use std::time::{SystemTime, UNIX_EPOCH};

use minke_record::{Action, AskId, AskKind, AskSubject, ExecutedScript, OpenAsk};
use serde_json::{Value, json};

/// Lines of a command or diff on a card; `minke asks --json` has all of them.
const SHOWN_LINES: usize = 40;
/// Characters of a hash that are shown.
const HASH_CHARS: usize = 12;
/// Commands, paths and hosts that a card lists.
const SHOWN_NAMES: usize = 8;

/// Card for an ask.
pub(crate) struct ApprovalCard<'a> {
    pub(crate) id: AskId,
    pub(crate) kind: &'a AskKind,
    pub(crate) subject: &'a AskSubject,
    pub(crate) options: &'a [String],
    pub(crate) expires: Option<u64>,
}

impl<'a> From<&'a OpenAsk> for ApprovalCard<'a> {
    fn from(ask: &'a OpenAsk) -> ApprovalCard<'a> {
        ApprovalCard {
            id: ask.id,
            kind: &ask.ask,
            subject: &ask.subject,
            options: &ask.options,
            expires: ask.expires,
        }
    }
}

impl<'a> From<&'a minke_record::Ask> for ApprovalCard<'a> {
    fn from(ask: &'a minke_record::Ask) -> ApprovalCard<'a> {
        ApprovalCard {
            id: ask.id,
            kind: &ask.ask,
            subject: &ask.subject,
            options: &ask.options,
            expires: ask.expires,
        }
    }
}

impl ApprovalCard<'_> {
    /// Returns the card as lines, without a newline at the end.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = match self.kind {
            AskKind::Approval => self.approval_lines(),
            _ => self.question_lines(),
        };
        if let Some(expires) = self.expires {
            lines.push(format!("  time    {}", format_remaining(expires, now_millis())));
        }
        lines.push(format!("  answer  {}", self.answer_hint()));
        lines.join("\n")
    }

    fn approval_lines(&self) -> Vec<String> {
        let subject = self.subject;
        let tool = subject.tool.as_deref().unwrap_or("a call");
        let mut lines = vec![format!("? {tool} needs an answer")];
        let action = subject.action.as_ref();
        let command = action.and_then(|action| action.command.as_deref());
        match (command, &subject.diff, &subject.text) {
            (Some(command), _, _) => lines.extend(indent_quote(command, "$ ")),
            (None, Some(diff), _) => lines.extend(indent_quote(diff, "")),
            (None, None, Some(text)) => lines.extend(indent_quote(text, "")),
            (None, None, None) => {}
        }
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                lines.push(format!("  {name:<7} {}", escape_newlines(value)));
            }
        };
        field("in", subject.cwd.as_deref().unwrap_or_default());
        if let Some(action) = action {
            for (name, value) in affected_targets(action) {
                field(name, &value);
            }
            field("scripts", &format_scripts(action));
        }
        if let Some(verdict) = &subject.verdict {
            field("why", &verdict.reason);
            let layer = verdict.layer.as_ref().map(|layer| format!(" ({layer})")).unwrap_or_default();
            field("rule", &verdict.rule.as_ref().map(|rule| format!("{rule}{layer}")).unwrap_or_default());
            field("sandbox", verdict.sandbox.name().unwrap_or_default());
        }
        field("always", subject.always.as_deref().unwrap_or_default());
        for script in action.map(|action| action.scripts.as_slice()).unwrap_or_default() {
            if let Some(change) = &script.change {
                lines.push(format!("  changed {}, since it was approved:", escape_newlines(&script.path)));
                lines.extend(indent_quote(change, ""));
            }
        }
        lines
    }

    fn question_lines(&self) -> Vec<String> {
        let mut lines = vec!["? The agent asks".to_owned()];
        lines.extend(indent_quote(self.subject.text.as_deref().unwrap_or("(no text)"), ""));
        if *self.kind == AskKind::Question && !self.options.is_empty() {
            lines.push(format!("  one of  {}", self.options.join(" | ")));
        }
        lines
    }

    /// Returns the command to type.
    fn answer_hint(&self) -> String {
        if *self.kind != AskKind::Approval {
            return format!("`minke answer {} answered --note \"…\"`, or `denied`", self.id);
        }
        let others: Vec<&str> =
            self.options.iter().map(String::as_str).filter(|o| *o != "approved").collect();
        format!("`minke answer {} approved`, or {}", self.id, others.join(", "))
    }

    /// Returns the object of `minke asks --json`; `cwd` is the session's working directory.
    pub(crate) fn to_json(&self, pod: &str, session: &str, cwd: &str) -> Value {
        let subject = self.subject;
        let verdict = subject.verdict.as_ref();
        let command = subject.action.as_ref().and_then(|action| action.command.as_ref());
        json!({
            "id": self.id,
            "pod": pod,
            "session": session,
            "kind": self.kind,
            "summary": subject.text,
            "tool": subject.tool,
            "command": command,
            "diff": subject.diff,
            "cwd": subject.cwd.as_deref().unwrap_or(cwd),
            "action": subject.action,
            "rule": verdict.and_then(|verdict| verdict.rule.as_ref()),
            "layer": verdict.and_then(|verdict| verdict.layer.as_ref()),
            "reason": verdict.map(|verdict| &verdict.reason),
            "sandbox": verdict.and_then(|verdict| verdict.sandbox.name()),
            "always": subject.always,
            "expires": self.expires,
            "options": self.options,
        })
    }
}

/// Returns the commands, paths and hosts that the call would use.
fn affected_targets(action: &Action) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if action.commands.len() > 1 {
        fields.push(("runs", join_names(&action.commands)));
    }
    for (name, list) in [("writes", &action.writes), ("reads", &action.reads), ("reaches", &action.hosts)] {
        fields.push((name, join_names(list)));
    }
    fields.push(("calls", action.mcp.clone().unwrap_or_default()));
    fields.push(("pod", action.pod.clone().unwrap_or_default()));
    fields
}

/// Lists the files that the command would run, each with the start of its hash: the approval covers only this
/// content.
fn format_scripts(action: &Action) -> String {
    let named = |script: &ExecutedScript| match (&script.hash, &script.problem) {
        (Some(hash), _) => format!("{} ({})", script.path, hash.get(..HASH_CHARS).unwrap_or(hash)),
        (None, Some(problem)) => format!("{} (unknown content: {problem})", script.path),
        (None, None) => format!("{} (gone)", script.path),
    };
    join_names(&action.scripts.iter().map(named).collect::<Vec<_>>())
}

fn escape_newlines(text: &str) -> String {
    text.replace('\n', "␊")
}

fn join_names(list: &[String]) -> String {
    let mut shown: Vec<&str> = list.iter().map(String::as_str).take(SHOWN_NAMES).collect();
    let more = list.len().saturating_sub(SHOWN_NAMES);
    let more = format!("and {more} more");
    if list.len() > SHOWN_NAMES {
        shown.push(&more);
    }
    shown.join(", ")
}

/// Indents text from a model or file and marks its first line.
fn indent_quote(text: &str, mark: &str) -> Vec<String> {
    let total = text.lines().count();
    let blank = " ".repeat(mark.len());
    let line = |(at, line): (usize, &str)| format!("    {}{line}", if at == 0 { mark } else { &blank });
    let mut lines: Vec<String> = text.lines().take(SHOWN_LINES).enumerate().map(line).collect();
    if total > SHOWN_LINES {
        let more = total - SHOWN_LINES;
        lines.push(format!("    … {more} more lines; `minke asks --json` prints all of them"));
    }
    lines
}

/// Formats the remaining time.
fn format_remaining(expires: u64, now: u64) -> String {
    match expires.saturating_sub(now) / 1_000 {
        0 => "expired: denied".to_owned(),
        seconds @ 1..=120 => format!("denied in {seconds} s without an answer"),
        seconds => format!("denied in {} min without an answer", seconds / 60),
    }
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use minke_record::{Judgement, PolicyVerdict};

    use super::*;

    fn sample_subject() -> AskSubject {
        AskSubject {
            tool: Some("Bash".into()),
            cwd: Some("/p".into()),
            action: Some(Action {
                command: Some("make x &&\n  sandbox none".into()),
                commands: vec!["make x".into(), "sandbox none".into()],
                ..Action::default()
            }),
            verdict: Some(PolicyVerdict {
                outcome: Judgement::Ask,
                rule: Some("{ action = \"ask\", command = \"make\" }".into()),
                layer: Some("user".into()),
                reason: "a rule asks".into(),
                sandbox: minke_record::LoggedBackend::new("namespaces"),
            }),
            always: Some("{ action = \"allow\", command = \"make\" }".into()),
            ..AskSubject::default()
        }
    }

    #[test]
    fn a_card_shows_everything_and_a_command_cannot_pass_for_a_line_of_it() {
        let subject = sample_subject();
        let options: Vec<String> = ["approved", "denied", "abort"].map(String::from).to_vec();
        let id: AskId = "00000000-0000-7000-8000-000000000007".parse().unwrap();
        let card = ApprovalCard {
            id,
            kind: &AskKind::Approval,
            subject: &subject,
            options: &options,
            expires: Some(0),
        };
        let text = card.to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "? Bash needs an answer",
                "    $ make x &&",
                "        sandbox none",
                "  in      /p",
                "  runs    make x, sandbox none",
                "  why     a rule asks",
                "  rule    { action = \"ask\", command = \"make\" } (user)",
                "  sandbox namespaces",
                "  always  { action = \"allow\", command = \"make\" }",
                "  time    expired: denied",
                &format!("  answer  `minke answer {id} approved`, or denied, abort"),
            ]
        );
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let diff: String = (0..100).map(|n| format!("+line {n}\n")).collect();
        let subject = AskSubject { diff: Some(diff), tool: Some("Write".into()), ..AskSubject::default() };
        let id: AskId = "00000000-0000-7000-8000-000000000007".parse().unwrap();
        let card =
            ApprovalCard { id, kind: &AskKind::Approval, subject: &subject, options: &[], expires: None };
        assert!(card.to_text().contains("60 more lines"), "{}", card.to_text());
    }
}
