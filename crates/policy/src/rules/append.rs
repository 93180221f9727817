//! Adding a rule to a rule file that a person wrote: everything else in it stays as it is, byte for byte.
//!
//! Here: where the new text goes. Elsewhere: putting the file in place (`driver`).
//! Invariant: what was there before is there after, and the new rule is the last (`appending_keeps_every_byte`).

use std::fmt;

use toml_edit::{Array, Document, Item, Value};

use super::file::{BadRules, read};
use super::{Layer, Rule};

/// Why a rule cannot be added to a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendError {
    /// The file is broken already: to write into it would be to guess.
    Broken(BadRules),
    /// The rule itself means nothing.
    BadRule(String),
    /// The file would not say what was meant.
    NotSaid,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Broken(bad) => {
                write!(f, "nothing is added to a file with errors; mend it first: {bad}")
            }
            AppendError::BadRule(what) => write!(f, "the rule means nothing: {what}"),
            AppendError::NotSaid => {
                f.write_str("the list of rules has a shape that nothing is added to; add the rule by hand")
            }
        }
    }
}

impl std::error::Error for AppendError {}

/// The text with one more rule at its end; the same text if the rule is in it already.
pub fn append(text: &str, rule: &Rule) -> Result<String, AppendError> {
    rule.check().map_err(AppendError::BadRule)?;
    let (before, _) = read(Layer::User, "policy.toml", text).map_err(AppendError::Broken)?;
    if before.rules.iter().any(|placed| placed.rule == *rule) {
        return Ok(text.to_owned());
    }
    let document = Document::parse(text).map_err(|_| AppendError::NotSaid)?;
    let after = match document.get("rule") {
        Some(Item::Value(Value::Array(array))) => {
            into_array(text, array, rule).ok_or(AppendError::NotSaid)?
        }
        _ => at_the_end(text, rule),
    };
    let (read_back, _) = read(Layer::User, "policy.toml", &after).map_err(|_| AppendError::NotSaid)?;
    let rules = |set: super::RuleSet| set.rules.into_iter().map(|placed| placed.rule).collect::<Vec<Rule>>();
    let mut wanted = rules(before);
    // `default_action` is a rule of the file, and keys come before tables: order among the others is what counts.
    wanted.push(rule.clone());
    let mut got = rules(read_back);
    let key = |rule: &Rule| rule.line();
    wanted.sort_by_key(key);
    got.sort_by_key(key);
    if wanted == got { Ok(after) } else { Err(AppendError::NotSaid) }
}

/// Lines of this text end like this.
fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// As a table of its own, behind everything else.
fn at_the_end(text: &str, rule: &Rule) -> String {
    let newline = newline(text);
    let mut out = text.to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push_str(newline);
    }
    if !out.trim().is_empty() {
        out.push_str(newline);
    }
    out.push_str("[[rule]]");
    for (key, value) in pairs(rule) {
        out.push_str(&format!("{newline}{key} = {value}"));
    }
    out.push_str(newline);
    out
}

/// As the last element of a list.
fn into_array(text: &str, array: &Array, rule: &Rule) -> Option<String> {
    let close = array.span()?.end.checked_sub(1)?;
    let new = inline(rule);
    let last = array.iter().last();
    let Some(last) = last else {
        let (head, tail) = (text.get(..close)?, text.get(close..)?);
        let newline = newline(text);
        let gap = if head.ends_with('\n') { "" } else { newline };
        return Some(format!("{head}{gap}  {new},{newline}{tail}"));
    };
    let end = last.span()?.end;
    // What stands behind the last element: perhaps a comma, white space, comments.
    let behind = text.get(end..close)?;
    let comma = has_comma(behind);
    let start = last.span()?.start;
    let line_start = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
    let lead = text.get(line_start..start)?;
    let on_own_line = lead.chars().all(char::is_whitespace);
    let (head, tail) = (text.get(..end)?, text.get(close..)?);
    let between = if comma { behind.to_owned() } else { format!(",{behind}") };
    if on_own_line && behind.contains('\n') {
        let newline = newline(text);
        // The closing bracket keeps the white space before it.
        let cut = between.rfind('\n')? + 1;
        let (kept, indent) = (between.get(..cut)?, between.get(cut..)?);
        return Some(format!("{head}{kept}{lead}{new},{newline}{indent}{tail}"));
    }
    if behind.contains('#') || behind.contains('\n') {
        let newline = newline(text);
        let gap = if between.ends_with('\n') { "" } else { newline };
        return Some(format!("{head}{between}{gap}  {new},{newline}{tail}"));
    }
    let after = if comma { behind.trim_end().to_owned() } else { ",".to_owned() };
    let space: String = behind.chars().rev().take_while(|letter| letter.is_whitespace()).collect();
    Some(format!("{head}{after} {new}{space}{tail}"))
}

/// Whether a comma stands there, outside of comments.
fn has_comma(text: &str) -> bool {
    text.lines().any(|line| line.split('#').next().is_some_and(|code| code.contains(',')))
}

fn inline(rule: &Rule) -> String {
    let pairs: Vec<String> = pairs(rule).into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// The keys of a rule with their values in TOML, examples too.
fn pairs(rule: &Rule) -> Vec<(&'static str, String)> {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| super::quoted(text)).collect();
        (!texts.is_empty()).then(|| format!("[{}]", texts.join(", ")))
    };
    let text = |text: &Option<String>| text.as_deref().map(super::quoted);
    let all = [
        ("action", Some(super::quoted(rule.action.as_str()))),
        ("tool", text(&rule.tool)),
        ("command", text(&rule.command)),
        ("path", text(&rule.path)),
        ("host", text(&rule.host)),
        ("match", list(&rule.matches)),
        ("not_match", list(&rule.not_match)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}
