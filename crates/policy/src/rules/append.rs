//! Appends a rule to a rule file that a user wrote and keeps every other byte of the file.
//!
//! This module computes the new text; `driver` writes the file.
//! Invariant: appending keeps the old text, and the new rule is the last one (`appending_keeps_every_byte`).

use std::fmt;

use toml_edit::{Array, Document, Item, Value};

use super::rule_file::{InvalidRules, parse_rule_file};
use super::{PolicyRule, RuleLayer};

/// Why a rule cannot be appended to a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendRuleError {
    /// The file has errors, so a correct position for the rule is unknown.
    InvalidFile(InvalidRules),
    /// The rule itself is invalid.
    InvalidRule(String),
    /// The changed text would not contain the wanted rules.
    UnsupportedLayout,
}

impl fmt::Display for AppendRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendRuleError::InvalidFile(bad) => {
                write!(f, "could not add a rule to a file with errors; fix the errors first: {bad}")
            }
            AppendRuleError::InvalidRule(what) => write!(f, "the rule is invalid: {what}"),
            AppendRuleError::UnsupportedLayout => {
                f.write_str("could not add a rule to a list with this layout; add the rule by hand")
            }
        }
    }
}

impl std::error::Error for AppendRuleError {}

/// Returns the text with the rule appended, or the same text if it already contains the rule.
pub fn append_rule(text: &str, rule: &PolicyRule) -> Result<String, AppendRuleError> {
    rule.validate().map_err(AppendRuleError::InvalidRule)?;
    let (before, _) =
        parse_rule_file(RuleLayer::User, "policy.toml", text).map_err(AppendRuleError::InvalidFile)?;
    if before.rules.iter().any(|placed| placed.rule == *rule) {
        return Ok(text.to_owned());
    }
    let document = Document::parse(text).map_err(|_| AppendRuleError::UnsupportedLayout)?;
    let after = match document.get("rule") {
        Some(Item::Value(Value::Array(array))) => {
            append_to_array(text, array, rule).ok_or(AppendRuleError::UnsupportedLayout)?
        }
        _ => append_table(text, rule),
    };
    let (read_back, _) = parse_rule_file(RuleLayer::User, "policy.toml", &after)
        .map_err(|_| AppendRuleError::UnsupportedLayout)?;
    let rules =
        |set: super::RuleSet| set.rules.into_iter().map(|placed| placed.rule).collect::<Vec<PolicyRule>>();
    let mut wanted = rules(before);
    // `default_action` is a rule too, and keys come before tables, so the order differs and only the set is
    // compared.
    wanted.push(rule.clone());
    let mut got = rules(read_back);
    let key = |rule: &PolicyRule| rule.to_toml_line();
    wanted.sort_by_key(key);
    got.sort_by_key(key);
    if wanted == got { Ok(after) } else { Err(AppendRuleError::UnsupportedLayout) }
}

/// Returns the line ending of the text.
fn line_ending(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Appends the rule as a `[[rule]]` table at the end.
fn append_table(text: &str, rule: &PolicyRule) -> String {
    let newline = line_ending(text);
    let mut out = text.to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push_str(newline);
    }
    if !out.trim().is_empty() {
        out.push_str(newline);
    }
    out.push_str("[[rule]]");
    for (key, value) in key_values(rule) {
        out.push_str(&format!("{newline}{key} = {value}"));
    }
    out.push_str(newline);
    out
}

/// Appends the rule as the last element of a list.
fn append_to_array(text: &str, array: &Array, rule: &PolicyRule) -> Option<String> {
    let close = array.span()?.end.checked_sub(1)?;
    let new = inline_table(rule);
    let last = array.iter().last();
    let Some(last) = last else {
        let (head, tail) = (text.get(..close)?, text.get(close..)?);
        let newline = line_ending(text);
        let gap = if head.ends_with('\n') { "" } else { newline };
        return Some(format!("{head}{gap}  {new},{newline}{tail}"));
    };
    let end = last.span()?.end;
    // The text after the last element may contain a comma, white space and comments.
    let behind = text.get(end..close)?;
    let comma = has_comma(behind);
    let start = last.span()?.start;
    let line_start = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
    let lead = text.get(line_start..start)?;
    let on_own_line = lead.chars().all(char::is_whitespace);
    let (head, tail) = (text.get(..end)?, text.get(close..)?);
    let between = if comma { behind.to_owned() } else { format!(",{behind}") };
    if on_own_line && behind.contains('\n') {
        let newline = line_ending(text);
        // Keep the white space before the closing bracket.
        let cut = between.rfind('\n')? + 1;
        let (kept, indent) = (between.get(..cut)?, between.get(cut..)?);
        return Some(format!("{head}{kept}{lead}{new},{newline}{indent}{tail}"));
    }
    if behind.contains('#') || behind.contains('\n') {
        let newline = line_ending(text);
        let gap = if between.ends_with('\n') { "" } else { newline };
        return Some(format!("{head}{between}{gap}  {new},{newline}{tail}"));
    }
    let after = if comma { behind.trim_end().to_owned() } else { ",".to_owned() };
    let space: String = behind.chars().rev().take_while(|letter| letter.is_whitespace()).collect();
    Some(format!("{head}{after} {new}{space}{tail}"))
}

/// Returns whether the text contains a comma outside comments.
fn has_comma(text: &str) -> bool {
    text.lines().any(|line| line.split('#').next().is_some_and(|code| code.contains(',')))
}

fn inline_table(rule: &PolicyRule) -> String {
    let pairs: Vec<String> =
        key_values(rule).into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// Returns the keys of a rule with their TOML values, including the examples.
fn key_values(rule: &PolicyRule) -> Vec<(&'static str, String)> {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| super::toml_string(text)).collect();
        (!texts.is_empty()).then(|| format!("[{}]", texts.join(", ")))
    };
    let text = |text: &Option<String>| text.as_deref().map(super::toml_string);
    let all = [
        ("action", Some(super::toml_string(rule.action.as_str()))),
        ("tool", text(&rule.tool)),
        ("command", text(&rule.command)),
        ("path", text(&rule.path)),
        ("host", text(&rule.host)),
        ("match", list(&rule.matches)),
        ("not_match", list(&rule.not_match)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}
