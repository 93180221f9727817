//! Parses rule files and reports every error with its line.
//!
//! This module has both layouts (`rule = [ … ]` and `[[rule]]`), all checks and the examples of rules.
//! `driver` finds the files, `append` writes them.
//! Invariant: text that is not understood is an error with file, line and the expected value; it is never
//! ignored (`what_is_not_understood_names_its_line`).

use std::fmt;

use minke_record::{Action, Judgement, Scope};
use toml_edit::{Document, Item, TableLike, Value};

use super::command::{RuleMatch, parse_rule_words};
use super::matching::{
    ACTION_KINDS, ActionPart, MCP_PREFIX, action_parts, compile_glob, rule_allows, rule_concerns,
    tool_matches_kind,
};
use super::{LayeredRule, PolicyRule, RuleLayer, RuleSet, command_table};
use crate::judge::PolicyContext;
use crate::{Posture, SandboxBackend, shell};

/// The maximum size of a rule file.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// The maximum number of rules in a file. Each rule is tried on each part of each call.
pub const MAX_RULES: usize = 2_000;
/// The maximum length of a value.
pub const MAX_VALUE_CHARS: usize = 1_024;
/// The maximum number of examples of each kind in a rule.
const MAX_EXAMPLES: usize = 64;
/// The maximum number of errors in one message.
const MAX_SHOWN_PROBLEMS: usize = 20;
/// The keys of a rule.
const RULE_KEYS: [&str; 7] = ["action", "tool", "command", "path", "host", "match", "not_match"];
/// The keys of a file.
const FILE_KEYS: [&str; 2] = ["rule", "default_action"];
/// The words of `action`.
const ACTION_NAMES: [&str; 3] = ["allow", "ask", "deny"];
/// The working directory of examples.
const EXAMPLE_DIR: &str = "/workspace";

/// An error or a warning about a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    /// `policy.toml:12`.
    pub origin: String,
    pub message: String,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.origin, self.message)
    }
}

impl std::error::Error for RuleProblem {}

/// Why a rule file is invalid; contains at least one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRules {
    pub problems: Vec<RuleProblem>,
}

impl fmt::Display for InvalidRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> =
            self.problems.iter().take(MAX_SHOWN_PROBLEMS).map(ToString::to_string).collect();
        f.write_str(&shown.join("; "))?;
        match self.problems.len().saturating_sub(MAX_SHOWN_PROBLEMS) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for InvalidRules {}

/// Collects the rules and problems of a rule file.
struct RuleFileParser<'t> {
    layer: RuleLayer,
    origin: &'t str,
    text: &'t str,
    rules: Vec<LayeredRule>,
    /// Warnings.
    notes: Vec<RuleProblem>,
    errors: Vec<RuleProblem>,
}

pub(super) fn parse_rule_file(
    layer: RuleLayer,
    origin: &str,
    text: &str,
) -> Result<(RuleSet, Vec<RuleProblem>), InvalidRules> {
    let mut parser =
        RuleFileParser { layer, origin, text, rules: Vec::new(), notes: Vec::new(), errors: Vec::new() };
    if text.len() > MAX_FILE_BYTES {
        parser.report_error(
            None,
            format!("the file has {} bytes; at most {MAX_FILE_BYTES} are read", text.len()),
        );
    } else {
        match Document::parse(text) {
            Err(e) => parser
                .report_error(e.span(), format!("the file is not valid TOML: {}", e.message().trim_end())),
            Ok(document) => parser.parse_document(&document),
        }
    }
    if parser.errors.is_empty() {
        Ok((RuleSet { rules: parser.rules }, parser.notes))
    } else {
        Err(InvalidRules { problems: parser.errors })
    }
}

/// Parses a single rule.
pub(super) fn parse_single_rule(text: &str) -> Result<PolicyRule, RuleProblem> {
    let problem = |message: String| RuleProblem { origin: String::new(), message };
    let text = text.trim();
    let inline = if text.starts_with('{') { text.to_owned() } else { format!("{{ {text} }}") };
    let whole = format!("rule = [{inline}]");
    let (mut set, _) = parse_rule_file(RuleLayer::User, "", &whole).map_err(|bad| {
        match bad.problems.into_iter().next() {
            Some(first) => problem(first.message),
            None => problem("the text is not a rule".to_owned()),
        }
    })?;
    match (set.rules.pop(), set.rules.is_empty()) {
        (Some(layered), true) => Ok(layered.rule),
        _ => Err(problem("the text is not a single rule".to_owned())),
    }
}

impl RuleFileParser<'_> {
    fn parse_document(&mut self, document: &Document<&str>) {
        for (key, item) in document.iter() {
            match key {
                "rule" => self.parse_rule_list(item),
                "default_action" => self.parse_default_action(item),
                other => {
                    let span = document.key(other).and_then(toml_edit::Key::span);
                    self.report_error(span, unknown_value("key", other, FILE_KEYS));
                }
            }
        }
    }

    fn parse_default_action(&mut self, item: &Item) {
        let span = item.span();
        match item.as_str().and_then(parse_action) {
            Some(action) => self.add_rule(PolicyRule::for_all_tools(action), span),
            None => {
                let value = item.as_str().unwrap_or("this");
                self.report_error(span, unknown_value("default_action", value, ACTION_NAMES));
            }
        }
    }

    fn parse_rule_list(&mut self, item: &Item) {
        match item {
            Item::ArrayOfTables(tables) => {
                tables.iter().for_each(|table| self.parse_rule_table(table, table.span()));
            }
            Item::Value(Value::Array(array)) => {
                for value in array {
                    match value.as_inline_table() {
                        Some(table) => self.parse_rule_table(table, value.span()),
                        None => self.report_error(
                            value.span(),
                            "a rule is a table: { action = …, command = … }".to_owned(),
                        ),
                    }
                }
            }
            other => {
                self.report_error(
                    other.span(),
                    "`rule` is a list: rule = [ … ], or one [[rule]] each".to_owned(),
                );
            }
        }
    }

    fn parse_rule_table(&mut self, table: &dyn TableLike, span: SourceSpan) {
        if self.rules.len() >= MAX_RULES {
            if self.rules.len() == MAX_RULES && self.errors.is_empty() {
                self.report_error(span, format!("a file has at most {MAX_RULES} rules"));
            }
            return;
        }
        let mut rule = PolicyRule::new(Judgement::Other("".into()));
        let before = self.errors.len();
        for (key, item) in table.iter() {
            let at = table
                .key(key)
                .and_then(toml_edit::Key::span)
                .or_else(|| item.span())
                .or_else(|| span.clone());
            if let Err(what) = set_rule_key(&mut rule, key, item) {
                self.report_error(at, what);
            }
        }
        if table.get("action").is_none() {
            self.report_error(span.clone(), format!("a rule needs an action: {}", join_names(ACTION_NAMES)));
        }
        if self.errors.len() > before {
            return;
        }
        match check_rule(&rule) {
            Err(what) => self.report_error(span, format!("{}: {what}", rule.to_toml_line())),
            Ok(()) => self.add_rule(rule, span),
        }
    }

    fn add_rule(&mut self, rule: PolicyRule, span: SourceSpan) {
        let origin = self.origin_at(&span);
        if self.layer == RuleLayer::Workspace && rule.action == Judgement::Allow {
            let message =
                format!("{} is ignored: a workspace rule may ask and deny, not allow", rule.to_toml_line());
            return self.notes.push(RuleProblem { origin, message });
        }
        let twin = self.rules.iter().find(|layered| layered.rule.has_same_conditions(&rule)).cloned();
        if let Some(twin) = twin {
            let same = twin.rule.action == rule.action;
            let then = if same { "only one is used" } else { "the stricter one is used" };
            let message =
                format!("{} has the same conditions as {}; {then}", rule.to_toml_line(), twin.origin);
            self.notes.push(RuleProblem { origin: origin.clone(), message });
            if same {
                return;
            }
        }
        if let Some(what) = bare_interpreter_note(&rule) {
            self.notes.push(RuleProblem { origin: origin.clone(), message: what });
        }
        self.rules.push(LayeredRule { layer: self.layer, origin, rule });
    }

    fn report_error(&mut self, span: SourceSpan, message: String) {
        let origin = self.origin_at(&span);
        self.errors.push(RuleProblem { origin, message });
    }

    /// `policy.toml:12`.
    fn origin_at(&self, span: &SourceSpan) -> String {
        let Some(span) = span else { return self.origin.to_owned() };
        let line = self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}", self.origin)
    }
}

type SourceSpan = Option<std::ops::Range<usize>>;

/// Stores the value of one key in a rule.
fn set_rule_key(rule: &mut PolicyRule, key: &str, item: &Item) -> Result<(), String> {
    let text = || {
        let text = item.as_str().ok_or_else(|| format!("`{key}` must be a string"))?;
        if text.chars().count() > MAX_VALUE_CHARS {
            return Err(format!("`{key}` is longer than {MAX_VALUE_CHARS} characters"));
        }
        Ok(Some(text.to_owned()))
    };
    let list = || {
        let wrong = || format!("`{key}` must be a list of strings");
        let array = item.as_array().ok_or_else(wrong)?;
        if array.len() > MAX_EXAMPLES {
            return Err(format!("`{key}` has more than {MAX_EXAMPLES} examples"));
        }
        array.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    };
    match key {
        "action" => {
            let said = item.as_str().unwrap_or("this");
            rule.action = parse_action(said).ok_or_else(|| unknown_value("action", said, ACTION_NAMES))?;
        }
        "tool" => rule.tool = text()?,
        "command" => rule.command = text()?,
        "path" => rule.path = text()?,
        "host" => rule.host = text()?,
        "match" => rule.matches = list()?,
        "not_match" => rule.not_match = list()?,
        other => return Err(unknown_value("key", other, RULE_KEYS)),
    }
    Ok(())
}

fn parse_action(text: &str) -> Option<Judgement> {
    match text {
        "allow" => Some(Judgement::Allow),
        "ask" => Some(Judgement::Ask),
        "deny" => Some(Judgement::Deny),
        _ => None,
    }
}

/// Checks that a rule is valid and can match an action.
pub(super) fn check_rule(rule: &PolicyRule) -> Result<(), String> {
    if matches!(rule.action, Judgement::Other(_)) {
        return Err(unknown_value("action", rule.action.as_str(), ACTION_NAMES));
    }
    if let Some(tool) = &rule.tool {
        check_tool(tool)?;
    }
    if let Some(words) = &rule.command {
        parse_rule_words(words).map_err(|what| format!("command: {what}"))?;
    }
    if let Some(path) = &rule.path {
        check_path(path)?;
    }
    if let Some(host) = &rule.host {
        check_host(host)?;
    }
    check_conditions(rule)?;
    check_examples(rule)
}

/// Checks that the keys of a rule can match the same action.
fn check_conditions(rule: &PolicyRule) -> Result<(), String> {
    let keys = [("command", &rule.command), ("path", &rule.path), ("host", &rule.host)];
    let given: Vec<&str> = keys.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| *key).collect();
    let tool = rule.tool.as_deref();
    let is = |kind: &str| tool.is_none_or(|tool| tool_matches_kind(tool, kind));
    match given.as_slice() {
        [] if tool.is_none() => Err("a rule needs a condition: tool, command, path or host".to_owned()),
        [_, _, ..] => Err(format!("no action has {} at once; write a rule for each", given.join(" and "))),
        ["command"] if !is("Bash") => Err("`command` applies only to tool \"Bash\"".to_owned()),
        ["host"] if !is("WebFetch") => {
            Err("`host` applies only to tool \"WebFetch\"; sandbox.network sets the hosts of commands"
                .to_owned())
        }
        ["path"] if !is("Read") && !is("Write") && !is("Bash") => {
            Err("`path` applies only to tools \"Read\", \"Write\" and \"Bash\"".to_owned())
        }
        ["path"] if rule.action == Judgement::Allow && !is("Read") && !is("Write") => {
            Err("a `path` cannot allow a command; allow the command, and add the path to the scope"
                .to_owned())
        }
        _ => Ok(()),
    }
}

fn check_tool(tool: &str) -> Result<(), String> {
    if let Some(name) = tool.strip_prefix(MCP_PREFIX) {
        let name = name.strip_suffix('*').unwrap_or(name);
        let plain = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
        return match name.chars().find(|letter| !plain(*letter)) {
            Some(letter) => {
                Err(format!("`{letter}` is not allowed in a tool name; only a `*` at the end is a wildcard"))
            }
            None => Ok(()),
        };
    }
    let names =
        || ACTION_KINDS.iter().flat_map(|(name, others)| std::iter::once(name).chain(others.iter())).copied();
    if tool == "*"
        || ACTION_KINDS.iter().any(|(name, _)| tool_matches_kind(tool, name))
        || "mcp__".starts_with(tool.trim_end_matches('*')) && tool.ends_with('*')
    {
        return Ok(());
    }
    if tool == "AskUser" {
        return Err("AskUser itself asks the user, so rules cannot match it".to_owned());
    }
    Err(format!(
        "`{tool}` is not a kind of action{}; use {}, mcp__SERVER__TOOL, or a prefix with `*`",
        suggestion(tool, names()),
        join_names(names())
    ))
}

fn check_path(path: &str) -> Result<(), String> {
    if path.starts_with('~') {
        return Err("`path` does not expand `~`; write the full directory".to_owned());
    }
    if path.is_empty() || path.split('/').any(|part| part == ".." || part == ".") {
        return Err(
            "`path` must be a glob without `.` and `..`, from the root or from the workspace".to_owned()
        );
    }
    compile_glob(path).map(drop).map_err(|e| format!("`path` is not a valid glob: {e}"))
}

fn check_host(host: &str) -> Result<(), String> {
    let name = host.strip_prefix("*.").unwrap_or(if host == "*" { "x" } else { host });
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    let scheme = name.contains("//") || name.ends_with(':');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) || scheme {
        return Err(format!(
            "`{host}` is not a host: use a name such as docs.rs or `*.example.org` for all subdomains, without scheme, \
             port and path"
        ));
    }
    Ok(())
}

/// Returns a warning for a rule that allows less than it seems to.
fn bare_interpreter_note(rule: &PolicyRule) -> Option<String> {
    let words = parse_rule_words(rule.command.as_deref()?).ok()?;
    let [name] = words.as_slice() else { return None };
    (rule.action == Judgement::Allow && command_table::is_launcher(name)).then(|| {
        format!(
            "{} allows `{name}` only with a script file and no inline code; add words to allow more",
            rule.to_toml_line()
        )
    })
}

/// Checks the examples of a rule.
fn check_examples(rule: &PolicyRule) -> Result<(), String> {
    let wrong = |example: &String, wanted: bool| {
        let (key, says) = if wanted { ("match", "does not fit") } else { ("not_match", "fits") };
        format!("{key} = {example:?} is wrong: the rule {says} it")
    };
    let matches = rule.matches.iter().map(|example| (example, true));
    for (example, wanted) in matches.chain(rule.not_match.iter().map(|example| (example, false))) {
        if matches_example(rule, example) != wanted {
            return Err(wrong(example, wanted));
        }
    }
    Ok(())
}

/// Returns whether a rule matches an example: a shell line, a path, a host or a tool, depending on the rule.
fn matches_example(rule: &PolicyRule, example: &str) -> bool {
    let scope = Scope::writable(EXAMPLE_DIR);
    let context = PolicyContext {
        cwd: EXAMPLE_DIR,
        ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
    };
    let text = || vec![example.to_owned()];
    let path = || vec![super::operand::absolute_path(EXAMPLE_DIR, example)];
    let action = if rule.command.is_some() {
        Action { command: Some(example.to_owned()), ..Action::default() }
    } else if rule.host.is_some() {
        Action { hosts: text(), ..Action::default() }
    } else if rule.path.is_some() {
        let is = |kind: &str| rule.tool.as_deref().is_some_and(|tool| tool_matches_kind(tool, kind));
        if is("Write") && !is("Read") {
            Action { writes: path(), ..Action::default() }
        } else {
            Action { reads: path(), ..Action::default() }
        }
    } else if example.starts_with(MCP_PREFIX) {
        Action { mcp: Some(example.to_owned()), ..Action::default() }
    } else {
        Action { command: Some(example.to_owned()), ..Action::default() }
    };
    let line = action.command.as_deref().map(shell::parse_shell_line);
    let parts = action_parts(&action, line.as_ref());
    if rule.action == Judgement::Allow {
        let sure = line.as_ref().is_none_or(|line| line.uncertain_reason.is_none());
        let mut shown = parts.iter().filter(|part| {
            !matches!(
                part,
                ActionPart::Redirect(_)
                    | ActionPart::FileWord(_)
                    | ActionPart::PossibleFile(_)
                    | ActionPart::PossibleLaunch(_)
            )
        });
        return sure && shown.all(|part| rule_allows(&context, rule, part));
    }
    parts.iter().any(|part| rule_concerns(&context, rule, part) == RuleMatch::Yes)
}

/// Describes an unknown value and suggests the closest known one.
fn unknown_value<'n>(what: &str, value: &str, known: impl IntoIterator<Item = &'n str> + Clone) -> String {
    let near = suggestion(value, known.clone());
    format!("{what} `{value}` is not known{near}; use {}", join_names(known))
}

fn join_names<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    names.into_iter().collect::<Vec<&str>>().join(", ")
}

/// Returns `, did you mean …?` if a known name is close.
fn suggestion<'n>(value: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let lower = value.to_lowercase();
    let distances =
        known.into_iter().map(|name| (minke_text::edit_distance(&lower, &name.to_lowercase()), name));
    match distances.min() {
        Some((far, name)) if far <= 2 && far < value.chars().count() => format!(", did you mean `{name}`?"),
        _ => String::new(),
    }
}
