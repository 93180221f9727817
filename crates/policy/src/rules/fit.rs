//! Which rules fit what an action would do, part by part.
//!
//! Here: the parts of an action (each command of a line, each file that its shell opens, each path, host, tool), whether
//! a rule fits one, and which rule of all layers has the word. Elsewhere: words of commands (`command`), the verdict
//! over all parts (`crate::judge`).
//! Inside one layer the more specific rule has the word, between equals the stricter; over the layers the strictest.
//! Invariant: a further layer never loosens (`adding_a_layer_never_loosens`).

use std::cell::RefCell;
use std::collections::HashMap;

use globset::{GlobBuilder, GlobMatcher};
use minke_record::{Action, Judgement};

use crate::Judging;
use crate::judge::is_granted;
use crate::scope::{Level, remainder};
use crate::shell::{Command, Line, Redirect, Word};

use super::command::{Fit, is_another, names, vouches, words_of};
use super::hidden::{may_launch, may_run};
use super::mention::{Mention, concerns as mention_concerns, mentions, opens};
use super::word::{absolute, paths_in};
use super::{Layer, Placed, Rule, RuleSet, rank};

/// Every kind of action that a rule can name, and what else it may be called.
pub(super) const KINDS: [(&str, &[&str]); 5] = [
    ("Read", &["Glob", "Grep"]),
    ("Write", &["Edit", "MultiEdit"]),
    ("Bash", &[]),
    ("WebFetch", &["WebSearch"]),
    ("SpawnPod", &["SendToPod"]),
];
/// How the tools of MCP servers begin.
pub(super) const MCP: &str = "mcp__";
/// How many globs are kept ready to be used; a rule set has fewer.
const GLOBS: usize = 4096;

/// One thing that an action would do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// A command of a shell line, and the one that runs it by name, if one does: `npx tsc` runs `tsc`.
    Command(&'a Command, Option<&'a Command>),
    /// A word of a command that is the name of a file, if it is one.
    Mentions(&'a str),
    /// A word that may become the name of a file, or hold one.
    MayMention(Mention<'a>),
    /// A command that may start another one, in a way that is not read.
    MayRun(&'a Command),
    /// A shell line without any command that can be seen.
    Line,
    /// A file that the shell itself opens.
    Opens(&'a Redirect),
    Reads(&'a str),
    Writes(&'a str),
    Host(&'a str),
    Mcp(&'a str),
    Pod(&'a str),
    /// It does not say what it would do.
    Silent,
}

impl Part<'_> {
    /// What kind of action it is; what the shell opens is read or written as well.
    fn kinds(&self) -> [&str; 2] {
        match self {
            Part::Command(..) | Part::MayRun(_) | Part::Line => ["Bash", ""],
            Part::Mentions(_) | Part::MayMention(_) => ["Read", ""],
            Part::Opens(redirect) => ["Bash", if redirect.writes { "Write" } else { "Read" }],
            Part::Reads(_) => ["Read", ""],
            Part::Writes(_) => ["Write", ""],
            Part::Host(_) => ["WebFetch", ""],
            Part::Mcp(name) => [name, ""],
            Part::Pod(_) => ["SpawnPod", ""],
            Part::Silent => ["", ""],
        }
    }
}

/// What an action would do, one by one.
pub(crate) fn parts<'a>(action: &'a Action, line: Option<&'a Line>) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    if let Some(line) = line {
        for (at, command) in line.commands.iter().enumerate() {
            parts.push(Part::Command(command, wrapper(line.commands.get(..at).unwrap_or_default(), command)));
            if may_launch(command) {
                parts.push(Part::MayRun(command));
            }
            mentions(line, command, &mut parts);
        }
        if line.commands.is_empty() {
            parts.push(Part::Line);
        }
        parts.extend(line.redirects.iter().map(Part::Opens));
    }
    parts.extend(action.reads.iter().map(|path| Part::Reads(path)));
    parts.extend(action.writes.iter().map(|path| Part::Writes(path)));
    parts.extend(action.hosts.iter().map(|host| Part::Host(host)));
    parts.extend(action.mcp.iter().map(|name| Part::Mcp(name)));
    parts.extend(action.pod.iter().map(|name| Part::Pod(name)));
    if parts.is_empty() {
        parts.push(Part::Silent);
    }
    parts
}

/// The command that runs another one by name: the nearest before it whose last words are its words.
fn wrapper<'a>(before: &'a [Command], command: &Command) -> Option<&'a Command> {
    let runs =
        |other: &&Command| other.words.len() > command.words.len() && other.words.ends_with(&command.words);
    before.iter().rev().find(runs).filter(|_| !command.inside.is_empty() && !command.words.is_empty())
}

/// What the rules say to a part.
#[derive(Debug, Clone)]
pub(crate) struct Decided<'a> {
    pub(crate) word: Judgement,
    pub(crate) placed: &'a Placed,
    /// Whether the rule fits cannot be told before the line runs, so its word is a question.
    pub(crate) maybe: bool,
}

/// The word of all layers on one part, if any has one.
pub(crate) fn decide<'a>(by: &Judging<'a>, part: &Part<'_>) -> Option<Decided<'a>> {
    let mut strictest: Option<Decided<'a>> = None;
    for layer in Layer::ALL {
        let word = layer_word(by, by.rules, layer, part);
        if let Some(word) = word
            && strictest.as_ref().is_none_or(|other| rank(&word.word) > rank(&other.word))
        {
            strictest = Some(word);
        }
    }
    strictest
}

/// The word of one layer: the most specific rule that fits, the strictest of equals.
fn layer_word<'a>(
    by: &Judging<'_>,
    rules: &'a RuleSet,
    layer: Layer,
    part: &Part<'_>,
) -> Option<Decided<'a>> {
    let mut best: Option<((usize, usize, usize, usize), Decided<'a>)> = None;
    for placed in rules.rules.iter().filter(|placed| placed.layer == layer) {
        // Only people loosen.
        if layer == Layer::Workspace && placed.rule.action == Judgement::Allow {
            continue;
        }
        let Some((word, maybe)) = word_of(by, &placed.rule, part) else { continue };
        let specific = specific(&placed.rule);
        let better = best
            .as_ref()
            .is_none_or(|(other, decided)| (specific, rank(&word)) > (*other, rank(&decided.word)));
        if better {
            best = Some((specific, Decided { word, placed, maybe }));
        }
    }
    best.map(|(_, decided)| decided)
}

/// What a rule says to a part: it allows by the strict reading, and asks and denies by the loose one.
fn word_of(by: &Judging<'_>, rule: &Rule, part: &Part<'_>) -> Option<(Judgement, bool)> {
    if rule.action == Judgement::Allow {
        return allows(by, rule, part).then_some((Judgement::Allow, false));
    }
    match concerns(by, rule, part) {
        Fit::No => None,
        Fit::Maybe => Some((Judgement::Ask, true)),
        Fit::Yes => Some((rule.action.clone(), false)),
    }
}

/// How much a rule says, to be compared with others: words of a command, letters of a path, of a host, of a tool.
fn specific(rule: &Rule) -> (usize, usize, usize, usize) {
    let literal = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        text.chars().filter(|letter| !"*?[]{}!".contains(*letter)).count()
    };
    let words = rule.command.as_deref().map_or(0, |command| command.split_whitespace().count());
    (words, literal(&rule.path), literal(&rule.host), literal(&rule.tool))
}

/// The strict reading.
pub(super) fn allows(by: &Judging<'_>, rule: &Rule, part: &Part<'_>) -> bool {
    let [kind, _] = part.kinds();
    if !rule.tool.as_deref().is_none_or(|tool| is_kind(tool, kind)) {
        return false;
    }
    match part {
        Part::Command(command, wrapper) => {
            rule.path.is_none()
                && rule.host.is_none()
                && match &rule.command {
                    Some(words) => is_vouched_for(by, words, command, *wrapper),
                    // Every command, so it does not matter which it is.
                    None => rule.tool.is_some(),
                }
        }
        Part::Line | Part::Mcp(_) | Part::Pod(_) | Part::Silent => {
            rule.tool.is_some() && rule.command.is_none() && rule.path.is_none() && rule.host.is_none()
        }
        // Held to the scope, not to rules.
        Part::Opens(_) | Part::Mentions(_) | Part::MayMention(_) | Part::MayRun(_) => false,
        Part::Reads(path) | Part::Writes(path) => {
            rule.command.is_none()
                && rule.host.is_none()
                && rule.path.as_deref().is_none_or(|glob| is_path(glob, &[path, below(path, by.cwd)]))
                && (rule.path.is_some() || rule.tool.is_some())
        }
        Part::Host(host) => {
            rule.command.is_none()
                && rule.path.is_none()
                && rule.host.as_ref().is_none_or(|wanted| is_granted(host, std::slice::from_ref(wanted)))
                && (rule.host.is_some() || rule.tool.is_some())
        }
    }
}

/// The loose reading.
pub(super) fn concerns(by: &Judging<'_>, rule: &Rule, part: &Part<'_>) -> Fit {
    // At a glance, because every rule is tried on every part.
    match (part, &rule.command) {
        (Part::MayRun(command), Some(words)) => {
            return words_of(words).map_or(Fit::Maybe, |words| may_run(&words, command));
        }
        (Part::MayRun(_), None) => return Fit::No,
        (Part::Mentions(_) | Part::MayMention(_), _) if rule.path.is_none() => return Fit::No,
        (Part::Command(command, _), Some(words)) if is_another(words, command) => return Fit::No,
        _ => {}
    }
    let kinds = part.kinds();
    if let Some(tool) = rule.tool.as_deref()
        && !kinds.into_iter().any(|kind| is_kind(tool, kind))
    {
        return Fit::No;
    }
    let path = match &rule.path {
        // Every rule about commands has been asked already.
        None if matches!(part, Part::Mentions(_) | Part::MayMention(_)) => Fit::No,
        None => Fit::Yes,
        Some(glob) => path_concerns(by, glob, part),
    };
    let host = match (&rule.host, part) {
        (None, _) => Fit::Yes,
        (Some(wanted), Part::Host(host)) if is_granted(host, std::slice::from_ref(wanted)) => Fit::Yes,
        (Some(_), _) => Fit::No,
    };
    let command = match (&rule.command, part) {
        (None, _) => Fit::Yes,
        (Some(words), Part::Command(command, _)) => {
            words_of(words).map_or(Fit::Maybe, |words| names(&words, command))
        }
        (Some(_), _) => Fit::No,
    };
    path.min(host).min(command)
}

/// Whether a glob of a rule that asks or denies is about a part.
fn path_concerns(by: &Judging<'_>, glob: &str, part: &Part<'_>) -> Fit {
    match part {
        Part::Reads(path) | Part::Writes(path) => is_about(by, glob, path),
        Part::Opens(redirect) => match &redirect.target {
            Word::Known(path) => is_about(by, glob, &absolute(by.cwd, path)),
            Word::Unknown { shape, .. } => opens(by, glob, shape),
        },
        Part::MayMention(mention) => mention_concerns(by, glob, mention),
        // A command that names a path reads it at least.
        Part::Mentions(word) => is_about(by, glob, &absolute(by.cwd, word)),
        Part::Command(..)
        | Part::MayRun(_)
        | Part::Line
        | Part::Host(_)
        | Part::Mcp(_)
        | Part::Pod(_)
        | Part::Silent => Fit::No,
    }
}

/// Whether a glob is about a path: by its whole spelling, from the working directory, or from a grant of the scope.
pub(super) fn is_about(by: &Judging<'_>, glob: &str, path: &str) -> Fit {
    let mut spellings = vec![path, below(path, by.cwd)];
    spellings.extend(by.scope.allow.iter().map(|rule| below(path, &rule.target)));
    if is_named(glob, &spellings, true) { Fit::Yes } else { Fit::No }
}

/// The path from a directory, or nothing if it does not lie below.
fn below<'p>(path: &'p str, directory: &str) -> &'p str {
    remainder(path, directory).unwrap_or_default()
}

/// Whether a glob fits one of these spellings. A glob that is none fits nothing; loading has refused it.
fn is_path(glob: &str, spellings: &[&str]) -> bool {
    is_named(glob, spellings, false)
}

/// The same, with what lies below if that is wanted.
fn is_named(glob: &str, spellings: &[&str], with_below: bool) -> bool {
    thread_local! {
        // Compiling one takes longer than a verdict may. The second of a pair fits what lies below.
        static READY: RefCell<HashMap<String, Option<[GlobMatcher; 2]>>> = RefCell::new(HashMap::new());
    }
    READY.with_borrow_mut(|ready| {
        if ready.len() >= GLOBS {
            ready.clear();
        }
        if !ready.contains_key(glob) {
            let below = compile(&format!("{}/**", glob.trim_end_matches('/')));
            let both = compile(glob).and_then(|at| Ok([at, below?]));
            ready.insert(glob.to_owned(), both.ok());
        }
        let Some([at, below]) = ready.get(glob).and_then(Option::as_ref) else { return false };
        let fits = |path: &&&str| at.is_match(path) || (with_below && below.is_match(path));
        spellings.iter().filter(|path| !path.is_empty()).any(|path| fits(&path))
    })
}

/// A glob of a rule: `*` stays inside one name, `**` does not.
pub(super) fn compile(glob: &str) -> Result<GlobMatcher, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).build().map(|glob| glob.compile_matcher())
}

/// Whether the `tool` of a rule names a kind of action, by its own or another name, whole or up to a `*`.
pub(super) fn is_kind(tool: &str, kind: &str) -> bool {
    let is = |name: &str| match tool.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == tool,
    };
    if tool == "*" || (!kind.is_empty() && is(kind)) {
        return true;
    }
    KINDS.iter().any(|(name, others)| *name == kind && others.iter().any(|other| is(other)))
}

/// Whether a rule for these words vouches for a command, with all that follows them.
fn is_vouched_for(by: &Judging<'_>, words: &str, command: &Command, wrapper: Option<&Command>) -> bool {
    if is_another(words, command) && wrapper.is_none_or(|wrapper| is_another(words, wrapper)) {
        return false;
    }
    let Ok(words) = words_of(words) else { return false };
    vouches_inside(by, &words, command)
        || wrapper.is_some_and(|wrapper| reaches_into(by, &words, wrapper, command))
}

/// Whether a rule vouches for a command and nothing of it leads outside.
fn vouches_inside(by: &Judging<'_>, words: &[String], command: &Command) -> bool {
    let Some(vouched) = vouches(words, command) else { return false };
    if vouched.text {
        return true;
    }
    let goes_home =
        words.len() == 1 && words.first().is_some_and(|word| word == "cd") && vouched.rest.is_empty();
    let others = vouched.rest.iter().enumerate().filter(|(at, _)| Some(*at) != vouched.pattern);
    !goes_home && others.map(|(_, word)| word).all(|word| stays(by, word))
}

/// Whether a rule for what runs a command (`npx tsc`) names that command too, and so vouches for both.
fn reaches_into(by: &Judging<'_>, words: &[String], wrapper: &Command, command: &Command) -> bool {
    let Some(vouched) = vouches(words, wrapper) else { return false };
    let said = wrapper.words.len() - vouched.rest.len();
    let before = wrapper.words.len() - command.words.len();
    let inside = command.words.get(..said.saturating_sub(before)).unwrap_or_default();
    let inside: Option<Vec<String>> = inside.iter().map(|word| word.known().map(str::to_owned)).collect();
    inside.is_some_and(|inside| !inside.is_empty() && vouches_inside(by, &inside, command))
}

/// Whether a word of a command leads nowhere outside of the scope.
fn stays(by: &Judging<'_>, word: &Word) -> bool {
    match word {
        Word::Known(word) => paths_in(word)
            .all(|path| !path.starts_with('~') && by.reach(&absolute(by.cwd, path)) > Level::None),
        // Only plain globs come here.
        Word::Unknown { .. } => true,
    }
}

/// What stands in the way of opening a file, as far as a rule is asked to vouch for the line.
pub(crate) enum Opening<'a> {
    /// Inside the scope.
    Fine,
    /// Outside, or a protected name.
    Away(String),
    /// It depends on what is only known when the line runs.
    Unknown(&'a str),
}

/// Where a redirection leads.
pub(crate) fn openings<'a>(by: &Judging<'_>, redirect: &'a Redirect) -> Opening<'a> {
    let path = match &redirect.target {
        Word::Known(path) => absolute(by.cwd, path),
        Word::Unknown { raw, .. } => return Opening::Unknown(raw),
    };
    let wanted = if redirect.writes { Level::Write } else { Level::Read };
    let protected = redirect.writes && by.protected(&path).is_some();
    if by.reach(&path) >= wanted && !protected { Opening::Fine } else { Opening::Away(path) }
}

/// Whether a line that cannot be read could hide a command that a rule asks about or denies.
pub(crate) fn hides_rules(rules: &RuleSet) -> Option<&Placed> {
    rules.rules.iter().find(|placed| {
        let rule = &placed.rule;
        rule.action != Judgement::Allow && (rule.command.is_some() || rule.path.is_some())
    })
}
