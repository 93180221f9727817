//! Rule files: from text to rules that mean something, with the line of everything that does not.
//!
//! Here: the two spellings (`rule = [ … ]` and `[[rule]]`), every check, the examples inside of rules. Elsewhere: which
//! files there are (`driver`), writing them (`append`).
//! Invariant: what is not understood is an error that names file, line and what was meant, and never left out
//! (`what_is_not_understood_names_its_line`).

use std::fmt;

use minke_record::{Action, Judgement, Scope};
use toml_edit::{Document, Item, TableLike, Value};

use crate::judge::Judging;
use crate::shell;
use crate::{Posture, Tier};

use super::command::{Fit, words_of};
use super::fit::{KINDS, MCP, Part, allows, compile, concerns, is_kind, parts};
use super::{Layer, Placed, Rule, RuleSet, table};

/// The longest file that is read.
pub const FILE_BYTES: usize = 1024 * 1024;
/// How many rules a file may have: each is tried on each part of each call.
pub const RULES: usize = 2_000;
/// The longest value of a key.
pub const TEXT_CHARS: usize = 1_024;
/// How many examples a rule may carry of each kind.
const EXAMPLES: usize = 64;
/// How many errors are told at once.
const TOLD: usize = 20;
/// The keys of a rule.
const KEYS: [&str; 7] = ["action", "tool", "command", "path", "host", "match", "not_match"];
/// The keys of a file.
const TOP: [&str; 2] = ["rule", "default_action"];
/// The words of `action`.
const WORDS: [&str; 3] = ["allow", "ask", "deny"];
/// Where the examples of a rule take place.
const PLACE: &str = "/workspace";

/// Something about a rule file that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `policy.toml:12`.
    pub origin: String,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin.is_empty() {
            return f.write_str(&self.what);
        }
        write!(f, "{}: {}", self.origin, self.what)
    }
}

impl std::error::Error for Problem {}

/// Why a rule file cannot be used; at least one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRules {
    pub problems: Vec<Problem>,
}

impl fmt::Display for BadRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.problems.iter().take(TOLD).map(ToString::to_string).collect();
        f.write_str(&told.join("; "))?;
        match self.problems.len().saturating_sub(TOLD) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for BadRules {}

/// What was read so far.
struct Reading<'t> {
    layer: Layer,
    origin: &'t str,
    text: &'t str,
    rules: Vec<Placed>,
    /// Worth knowing.
    notes: Vec<Problem>,
    errors: Vec<Problem>,
}

pub(super) fn read(layer: Layer, origin: &str, text: &str) -> Result<(RuleSet, Vec<Problem>), BadRules> {
    let mut reading =
        Reading { layer, origin, text, rules: Vec::new(), notes: Vec::new(), errors: Vec::new() };
    if text.len() > FILE_BYTES {
        reading.error(None, format!("the file has {} bytes; at most {FILE_BYTES} are read", text.len()));
    } else {
        match Document::parse(text) {
            Err(e) => reading.error(e.span(), format!("this is not TOML: {}", e.message().trim_end())),
            Ok(document) => reading.top(&document),
        }
    }
    if reading.errors.is_empty() {
        Ok((RuleSet { rules: reading.rules }, reading.notes))
    } else {
        Err(BadRules { problems: reading.errors })
    }
}

/// One rule of its own.
pub(super) fn one(text: &str) -> Result<Rule, Problem> {
    let problem = |what: String| Problem { origin: String::new(), what };
    let text = text.trim();
    let inline = if text.starts_with('{') { text.to_owned() } else { format!("{{ {text} }}") };
    let whole = format!("rule = [{inline}]");
    let (mut set, _) =
        read(Layer::User, "", &whole).map_err(|bad| match bad.problems.into_iter().next() {
            Some(first) => problem(first.what),
            None => problem("this is no rule".to_owned()),
        })?;
    match (set.rules.pop(), set.rules.is_empty()) {
        (Some(placed), true) => Ok(placed.rule),
        _ => Err(problem("this is not one rule".to_owned())),
    }
}

impl Reading<'_> {
    fn top(&mut self, document: &Document<&str>) {
        for (key, item) in document.iter() {
            match key {
                "rule" => self.list(item),
                "default_action" => self.default_action(item),
                other => {
                    let span = document.key(other).and_then(toml_edit::Key::span);
                    self.error(span, unknown("key", other, TOP));
                }
            }
        }
    }

    fn default_action(&mut self, item: &Item) {
        let span = item.span();
        match item.as_str().and_then(word) {
            Some(action) => self.place(Rule::everything(action), span),
            None => {
                let said = item.as_str().unwrap_or("this");
                self.error(span, unknown("default_action", said, WORDS));
            }
        }
    }

    fn list(&mut self, item: &Item) {
        match item {
            Item::ArrayOfTables(tables) => {
                tables.iter().for_each(|table| self.rule(table, table.span()));
            }
            Item::Value(Value::Array(array)) => {
                for value in array {
                    match value.as_inline_table() {
                        Some(table) => self.rule(table, value.span()),
                        None => self
                            .error(value.span(), "a rule is a table: { action = …, command = … }".to_owned()),
                    }
                }
            }
            other => {
                self.error(other.span(), "`rule` is a list: rule = [ … ], or one [[rule]] each".to_owned());
            }
        }
    }

    fn rule(&mut self, table: &dyn TableLike, span: Span) {
        if self.rules.len() >= RULES {
            if self.rules.len() == RULES && self.errors.is_empty() {
                self.error(span, format!("a file has at most {RULES} rules"));
            }
            return;
        }
        let mut rule = Rule::new(Judgement::Other("".into()));
        let before = self.errors.len();
        for (key, item) in table.iter() {
            let at = table
                .key(key)
                .and_then(toml_edit::Key::span)
                .or_else(|| item.span())
                .or_else(|| span.clone());
            if let Err(what) = take(&mut rule, key, item) {
                self.error(at, what);
            }
        }
        if table.get("action").is_none() {
            self.error(span.clone(), format!("a rule says an action: {}", listed(WORDS)));
        }
        if self.errors.len() > before {
            return;
        }
        match check(&rule) {
            Err(what) => self.error(span, format!("{}: {what}", rule.line())),
            Ok(()) => self.place(rule, span),
        }
    }

    fn place(&mut self, rule: Rule, span: Span) {
        let origin = self.at(&span);
        if self.layer == Layer::Workspace && rule.action == Judgement::Allow {
            let what = format!("{} is left out: a workspace may ask and deny, not allow", rule.line());
            return self.notes.push(Problem { origin, what });
        }
        let twin = self.rules.iter().find(|placed| placed.rule.is_about_the_same(&rule)).cloned();
        if let Some(twin) = twin {
            let same = twin.rule.action == rule.action;
            let then = if same { "it counts once" } else { "the stricter of the two counts" };
            let what = format!("{} says something about the same as {}; {then}", rule.line(), twin.origin);
            self.notes.push(Problem { origin: origin.clone(), what });
            if same {
                return;
            }
        }
        if let Some(what) = too_bare(&rule) {
            self.notes.push(Problem { origin: origin.clone(), what });
        }
        self.rules.push(Placed { layer: self.layer, origin, rule });
    }

    fn error(&mut self, span: Span, what: String) {
        let origin = self.at(&span);
        self.errors.push(Problem { origin, what });
    }

    /// `policy.toml:12`.
    fn at(&self, span: &Span) -> String {
        let Some(span) = span else { return self.origin.to_owned() };
        let line = self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}", self.origin)
    }
}

type Span = Option<std::ops::Range<usize>>;

/// Takes one key of a rule over.
fn take(rule: &mut Rule, key: &str, item: &Item) -> Result<(), String> {
    let text = || {
        let text = item.as_str().ok_or_else(|| format!("`{key}` is text"))?;
        if text.chars().count() > TEXT_CHARS {
            return Err(format!("`{key}` is longer than {TEXT_CHARS} characters"));
        }
        Ok(Some(text.to_owned()))
    };
    let list = || {
        let wrong = || format!("`{key}` is a list of text");
        let array = item.as_array().ok_or_else(wrong)?;
        if array.len() > EXAMPLES {
            return Err(format!("`{key}` has more than {EXAMPLES} examples"));
        }
        array.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    };
    match key {
        "action" => {
            let said = item.as_str().unwrap_or("this");
            rule.action = word(said).ok_or_else(|| unknown("action", said, WORDS))?;
        }
        "tool" => rule.tool = text()?,
        "command" => rule.command = text()?,
        "path" => rule.path = text()?,
        "host" => rule.host = text()?,
        "match" => rule.matches = list()?,
        "not_match" => rule.not_match = list()?,
        other => return Err(unknown("key", other, KEYS)),
    }
    Ok(())
}

fn word(text: &str) -> Option<Judgement> {
    match text {
        "allow" => Some(Judgement::Allow),
        "ask" => Some(Judgement::Ask),
        "deny" => Some(Judgement::Deny),
        _ => None,
    }
}

/// Whether a rule can ever fit what it seems to mean.
pub(super) fn check(rule: &Rule) -> Result<(), String> {
    if matches!(rule.action, Judgement::Other(_)) {
        return Err(unknown("action", rule.action.as_str(), WORDS));
    }
    if let Some(tool) = &rule.tool {
        check_tool(tool)?;
    }
    if let Some(words) = &rule.command {
        words_of(words).map_err(|what| format!("command: {what}"))?;
    }
    if let Some(path) = &rule.path {
        check_path(path)?;
    }
    if let Some(host) = &rule.host {
        check_host(host)?;
    }
    check_together(rule)?;
    check_examples(rule)
}

/// Whether the keys of a rule can fit one and the same thing.
fn check_together(rule: &Rule) -> Result<(), String> {
    let keys = [("command", &rule.command), ("path", &rule.path), ("host", &rule.host)];
    let given: Vec<&str> = keys.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| *key).collect();
    let tool = rule.tool.as_deref();
    let is = |kind: &str| tool.is_none_or(|tool| is_kind(tool, kind));
    match given.as_slice() {
        [] if tool.is_none() => Err("a rule is about something: tool, command, path or host".to_owned()),
        [_, _, ..] => Err(format!("nothing has {} at once; write a rule for each", given.join(" and "))),
        ["command"] if !is("Bash") => Err("`command` fits only tool \"Bash\"".to_owned()),
        ["host"] if !is("WebFetch") => {
            Err("`host` fits only tool \"WebFetch\"; which hosts commands reach is said by sandbox.network"
                .to_owned())
        }
        ["path"] if !is("Read") && !is("Write") && !is("Bash") => {
            Err("`path` fits only tools \"Read\", \"Write\" and \"Bash\"".to_owned())
        }
        ["path"] if rule.action == Judgement::Allow && !is("Read") && !is("Write") => {
            Err("no path allows a command; allow the command, and put the path in the scope".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_tool(tool: &str) -> Result<(), String> {
    if let Some(name) = tool.strip_prefix(MCP) {
        let name = name.strip_suffix('*').unwrap_or(name);
        let plain = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
        return match name.chars().find(|letter| !plain(*letter)) {
            Some(letter) => {
                Err(format!("`{letter}` is in no name of a tool; only a `*` at the end stands for more"))
            }
            None => Ok(()),
        };
    }
    let names =
        || KINDS.iter().flat_map(|(name, others)| std::iter::once(name).chain(others.iter())).copied();
    if tool == "*"
        || KINDS.iter().any(|(name, _)| is_kind(tool, name))
        || "mcp__".starts_with(tool.trim_end_matches('*')) && tool.ends_with('*')
    {
        return Ok(());
    }
    if tool == "AskUser" {
        return Err("AskUser is a question itself, so no rule is about it".to_owned());
    }
    Err(format!(
        "`{tool}` is no kind of action{}; there are {}, mcp__SERVER__TOOL, and a `*` at the end for more",
        nearest(tool, names()),
        listed(names())
    ))
}

fn check_path(path: &str) -> Result<(), String> {
    if path.starts_with('~') {
        return Err("`path` has no `~`; write the directory out".to_owned());
    }
    if path.is_empty() || path.split('/').any(|part| part == ".." || part == ".") {
        return Err("`path` is a glob without `.` and `..`: from the root, or from the workspace".to_owned());
    }
    compile(path).map(drop).map_err(|e| format!("`path` is no glob: {e}"))
}

fn check_host(host: &str) -> Result<(), String> {
    let name = host.strip_prefix("*.").unwrap_or(if host == "*" { "x" } else { host });
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    let scheme = name.contains("//") || name.ends_with(':');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) || scheme {
        return Err(format!(
            "`{host}` is no host: a name such as docs.rs, `*.example.org` for all below a name, without scheme, port \
             and path"
        ));
    }
    Ok(())
}

/// A rule that allows less than it seems to.
fn too_bare(rule: &Rule) -> Option<String> {
    let words = words_of(rule.command.as_deref()?).ok()?;
    let [name] = words.as_slice() else { return None };
    (rule.action == Judgement::Allow && table::runs(name)).then(|| {
        format!(
            "{} allows `{name}` with a script that is named and nothing that hands it code; say more words for more",
            rule.line()
        )
    })
}

/// Whether the examples of a rule are true.
fn check_examples(rule: &Rule) -> Result<(), String> {
    let wrong = |example: &String, wanted: bool| {
        let (key, says) = if wanted { ("match", "does not fit") } else { ("not_match", "fits") };
        format!("{key} = {example:?} is wrong: the rule {says} it")
    };
    let matches = rule.matches.iter().map(|example| (example, true));
    for (example, wanted) in matches.chain(rule.not_match.iter().map(|example| (example, false))) {
        if fits_example(rule, example) != wanted {
            return Err(wrong(example, wanted));
        }
    }
    Ok(())
}

/// Whether a rule fits an example: a shell line, a path, a host or a tool, whatever the rule is about.
fn fits_example(rule: &Rule, example: &str) -> bool {
    let scope = Scope::write(PLACE);
    let by = Judging { cwd: PLACE, ..Judging::new(Posture::Ask, &scope, Tier::A) };
    let text = || vec![example.to_owned()];
    let path = || vec![super::word::absolute(PLACE, example)];
    let action = if rule.command.is_some() {
        Action { command: Some(example.to_owned()), ..Action::default() }
    } else if rule.host.is_some() {
        Action { hosts: text(), ..Action::default() }
    } else if rule.path.is_some() {
        let is = |kind: &str| rule.tool.as_deref().is_some_and(|tool| is_kind(tool, kind));
        if is("Write") && !is("Read") {
            Action { writes: path(), ..Action::default() }
        } else {
            Action { reads: path(), ..Action::default() }
        }
    } else if example.starts_with(MCP) {
        Action { mcp: Some(example.to_owned()), ..Action::default() }
    } else {
        Action { command: Some(example.to_owned()), ..Action::default() }
    };
    let line = action.command.as_deref().map(shell::read);
    let parts = parts(&action, line.as_ref());
    if rule.action == Judgement::Allow {
        let sure = line.as_ref().is_none_or(|line| line.unsure.is_none());
        let mut told = parts.iter().filter(|part| {
            !matches!(part, Part::Opens(_) | Part::Mentions(_) | Part::MayMention(_) | Part::MayRun(_))
        });
        return sure && told.all(|part| allows(&by, rule, part));
    }
    parts.iter().any(|part| concerns(&by, rule, part) == Fit::Yes)
}

/// A word that is not known, with the one that was probably meant.
fn unknown<'n>(what: &str, said: &str, known: impl IntoIterator<Item = &'n str> + Clone) -> String {
    let near = nearest(said, known.clone());
    format!("{what} `{said}` is not known{near}; there are {}", listed(known))
}

fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    names.into_iter().collect::<Vec<&str>>().join(", ")
}

/// `, did you mean …?`, if something is near.
fn nearest<'n>(said: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let lower = said.to_lowercase();
    let distances = known.into_iter().map(|name| (distance(&lower, &name.to_lowercase()), name));
    match distances.min() {
        Some((far, name)) if far <= 2 && far < said.chars().count() => format!(", did you mean `{name}`?"),
        _ => String::new(),
    }
}

/// How many letters must be changed, added or left out.
fn distance(a: &str, b: &str) -> usize {
    // Nothing that long is a misspelt key.
    const LONGEST: usize = 64;
    if a.chars().count() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (above, letter) in a.chars().enumerate() {
        let mut left = above + 1;
        let mut next = vec![left];
        for (at, other) in b.chars().enumerate() {
            let corner = row.get(at).copied().unwrap_or(LONGEST) + usize::from(letter != other);
            let over = row.get(at + 1).copied().unwrap_or(LONGEST) + 1;
            left = corner.min(over).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(LONGEST)
}
