//! Decides which rules match the parts of an action.
//!
//! This module splits an action into parts (each command of a line, each file that the shell opens, each
//! path, host and tool), matches rules with a part, and selects the deciding rule of all layers. `command`
//! matches the words of commands, `crate::judge` combines the decisions on all parts. Within a layer the most
//! specific rule decides, among equally specific rules the strictest. Across layers the strictest decision
//! counts.
//! Invariant: an additional layer never loosens a decision (`adding_a_layer_never_loosens`).

use std::cell::RefCell;
use std::collections::HashMap;

use globset::{GlobBuilder, GlobMatcher};
use minke_record::{Action, Judgement};

use crate::PolicyContext;
use crate::judge::is_host_granted;
use crate::scope::{AccessLevel, path_below};
use crate::shell::{ShellCommand, ShellLine, ShellRedirect, ShellWord};

use super::command::{
    RuleMatch, match_allow_rule, match_restricting_rule, names_other_program, parse_rule_words,
};
use super::file_words::{FileMention, collect_file_words, match_mention as mention_concerns, match_redirect};
use super::indirect::{may_launch_command, may_launch_named};
use super::operand::{absolute_path, escaping_paths};
use super::{LayeredRule, PolicyRule, RuleLayer, RuleSet, strictness};

/// The kinds of actions that a rule can name, with their aliases.
pub(super) const ACTION_KINDS: [(&str, &[&str]); 5] = [
    ("Read", &["Glob", "Grep"]),
    ("Write", &["Edit", "MultiEdit"]),
    ("Bash", &[]),
    ("WebFetch", &["WebSearch"]),
    ("SpawnPod", &["SendToPod"]),
];
/// The prefix of the tools of MCP servers.
pub(super) const MCP_PREFIX: &str = "mcp__";
/// The maximum number of compiled globs in the cache; a rule set has fewer.
const MAX_CACHED_GLOBS: usize = 4096;

/// One part of an action that rules decide on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ActionPart<'a> {
    /// A command of a shell line, and the command that starts it, if any: `npx tsc` starts `tsc`.
    Command(&'a ShellCommand, Option<&'a ShellCommand>),
    /// A word of a command that may be a file name.
    FileWord(&'a str),
    /// A word that may become a file name or contain one.
    PossibleFile(FileMention<'a>),
    /// A command that may start another command in a way that is not parsed.
    PossibleLaunch(&'a ShellCommand),
    /// A shell line without any visible command.
    EmptyLine,
    /// A file that the shell itself opens.
    Redirect(&'a ShellRedirect),
    Read(&'a str),
    Write(&'a str),
    Host(&'a str),
    Mcp(&'a str),
    Pod(&'a str),
    /// An action that declares nothing.
    Undeclared,
}

impl ActionPart<'_> {
    /// Returns the kinds of the part. A file that the shell opens is also read or written.
    fn kinds(&self) -> [&str; 2] {
        match self {
            ActionPart::Command(..) | ActionPart::PossibleLaunch(_) | ActionPart::EmptyLine => ["Bash", ""],
            ActionPart::FileWord(_) | ActionPart::PossibleFile(_) => ["Read", ""],
            ActionPart::Redirect(redirect) => ["Bash", if redirect.writes { "Write" } else { "Read" }],
            ActionPart::Read(_) => ["Read", ""],
            ActionPart::Write(_) => ["Write", ""],
            ActionPart::Host(_) => ["WebFetch", ""],
            ActionPart::Mcp(name) => [name, ""],
            ActionPart::Pod(_) => ["SpawnPod", ""],
            ActionPart::Undeclared => ["", ""],
        }
    }
}

/// Splits an action into its parts.
pub(crate) fn action_parts<'a>(action: &'a Action, line: Option<&'a ShellLine>) -> Vec<ActionPart<'a>> {
    let mut parts: Vec<ActionPart<'a>> = Vec::new();
    if let Some(line) = line {
        for (at, command) in line.commands.iter().enumerate() {
            parts.push(ActionPart::Command(
                command,
                enclosing_command(line.commands.get(..at).unwrap_or_default(), command),
            ));
            if may_launch_command(command) {
                parts.push(ActionPart::PossibleLaunch(command));
            }
            collect_file_words(line, command, &mut parts);
        }
        if line.commands.is_empty() {
            parts.push(ActionPart::EmptyLine);
        }
        parts.extend(line.redirects.iter().map(ActionPart::Redirect));
    }
    parts.extend(action.reads.iter().map(|path| ActionPart::Read(path)));
    parts.extend(action.writes.iter().map(|path| ActionPart::Write(path)));
    parts.extend(action.hosts.iter().map(|host| ActionPart::Host(host)));
    parts.extend(action.mcp.iter().map(|name| ActionPart::Mcp(name)));
    parts.extend(action.pod.iter().map(|name| ActionPart::Pod(name)));
    if parts.is_empty() {
        parts.push(ActionPart::Undeclared);
    }
    parts
}

/// Returns the command that starts this one: the nearest earlier command whose last words are the words of
/// this one.
fn enclosing_command<'a>(before: &'a [ShellCommand], command: &ShellCommand) -> Option<&'a ShellCommand> {
    let runs = |other: &&ShellCommand| {
        other.words.len() > command.words.len() && other.words.ends_with(&command.words)
    };
    before.iter().rev().find(runs).filter(|_| !command.enclosing.is_empty() && !command.words.is_empty())
}

/// The decision of the rules on a part.
#[derive(Debug, Clone)]
pub(crate) struct RuleDecision<'a> {
    pub(crate) judgement: Judgement,
    pub(crate) source: &'a LayeredRule,
    /// Whether the rule matches is known only at run time, so the decision is to ask.
    pub(crate) is_uncertain: bool,
}

/// Returns the decision of all layers on a part, or `None` if no rule matches.
pub(crate) fn decide_part<'a>(
    context: &PolicyContext<'a>,
    part: &ActionPart<'_>,
) -> Option<RuleDecision<'a>> {
    let mut strictest: Option<RuleDecision<'a>> = None;
    for layer in RuleLayer::ALL {
        let word = decide_in_layer(context, context.rules, layer, part);
        if let Some(word) = word
            && strictest
                .as_ref()
                .is_none_or(|other| strictness(&word.judgement) > strictness(&other.judgement))
        {
            strictest = Some(word);
        }
    }
    strictest
}

/// Returns the decision of one layer: the most specific matching rule, and the strictest among equals.
fn decide_in_layer<'a>(
    context: &PolicyContext<'_>,
    rules: &'a RuleSet,
    layer: RuleLayer,
    part: &ActionPart<'_>,
) -> Option<RuleDecision<'a>> {
    let mut best: Option<((usize, usize, usize, usize), RuleDecision<'a>)> = None;
    for layered in rules.rules.iter().filter(|placed| placed.layer == layer) {
        // Workspace rules never loosen.
        if layer == RuleLayer::Workspace && layered.rule.action == Judgement::Allow {
            continue;
        }
        let Some((judgement, is_uncertain)) = rule_judgement(context, &layered.rule, part) else { continue };
        let specific = specificity(&layered.rule);
        let better = best.as_ref().is_none_or(|(other, decision)| {
            (specific, strictness(&judgement)) > (*other, strictness(&decision.judgement))
        });
        if better {
            best = Some((specific, RuleDecision { judgement, source: layered, is_uncertain }));
        }
    }
    best.map(|(_, decided)| decided)
}

/// Returns the decision of one rule: `allow` matches strictly, `ask` and `deny` match loosely.
fn rule_judgement(
    context: &PolicyContext<'_>,
    rule: &PolicyRule,
    part: &ActionPart<'_>,
) -> Option<(Judgement, bool)> {
    if rule.action == Judgement::Allow {
        return rule_allows(context, rule, part).then_some((Judgement::Allow, false));
    }
    match rule_concerns(context, rule, part) {
        RuleMatch::No => None,
        RuleMatch::Maybe => Some((Judgement::Ask, true)),
        RuleMatch::Yes => Some((rule.action.clone(), false)),
    }
}

/// Returns how specific a rule is: the words of its command, and the literal characters of path, host and
/// tool.
fn specificity(rule: &PolicyRule) -> (usize, usize, usize, usize) {
    let literal = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        text.chars().filter(|letter| !"*?[]{}!".contains(*letter)).count()
    };
    let words = rule.command.as_deref().map_or(0, |command| command.split_whitespace().count());
    (words, literal(&rule.path), literal(&rule.host), literal(&rule.tool))
}

/// Returns whether an `allow` rule matches a part, strictly.
pub(super) fn rule_allows(context: &PolicyContext<'_>, rule: &PolicyRule, part: &ActionPart<'_>) -> bool {
    let [kind, _] = part.kinds();
    if !rule.tool.as_deref().is_none_or(|tool| tool_matches_kind(tool, kind)) {
        return false;
    }
    match part {
        ActionPart::Command(command, wrapper) => {
            rule.path.is_none()
                && rule.host.is_none()
                && match &rule.command {
                    Some(words) => rule_covers_command(context, words, command, *wrapper),
                    // Without `command` the rule matches every command.
                    None => rule.tool.is_some(),
                }
        }
        ActionPart::EmptyLine | ActionPart::Mcp(_) | ActionPart::Pod(_) | ActionPart::Undeclared => {
            rule.tool.is_some() && rule.command.is_none() && rule.path.is_none() && rule.host.is_none()
        }
        // The scope restricts these, not `allow` rules.
        ActionPart::Redirect(_)
        | ActionPart::FileWord(_)
        | ActionPart::PossibleFile(_)
        | ActionPart::PossibleLaunch(_) => false,
        ActionPart::Read(path) | ActionPart::Write(path) => {
            rule.command.is_none()
                && rule.host.is_none()
                && rule
                    .path
                    .as_deref()
                    .is_none_or(|glob| glob_matches(glob, &[path, relative_path(path, context.cwd)]))
                && (rule.path.is_some() || rule.tool.is_some())
        }
        ActionPart::Host(host) => {
            rule.command.is_none()
                && rule.path.is_none()
                && rule.host.as_ref().is_none_or(|wanted| is_host_granted(host, std::slice::from_ref(wanted)))
                && (rule.host.is_some() || rule.tool.is_some())
        }
    }
}

/// Returns whether an `ask` or `deny` rule matches a part, loosely.
pub(super) fn rule_concerns(
    context: &PolicyContext<'_>,
    rule: &PolicyRule,
    part: &ActionPart<'_>,
) -> RuleMatch {
    // Fast checks first, because every rule is tried on every part.
    match (part, &rule.command) {
        (ActionPart::PossibleLaunch(command), Some(words)) => {
            return parse_rule_words(words)
                .map_or(RuleMatch::Maybe, |words| may_launch_named(&words, command));
        }
        (ActionPart::PossibleLaunch(_), None) => return RuleMatch::No,
        (ActionPart::FileWord(_) | ActionPart::PossibleFile(_), _) if rule.path.is_none() => {
            return RuleMatch::No;
        }
        (ActionPart::Command(command, _), Some(words)) if names_other_program(words, command) => {
            return RuleMatch::No;
        }
        _ => {}
    }
    let kinds = part.kinds();
    if let Some(tool) = rule.tool.as_deref()
        && !kinds.into_iter().any(|kind| tool_matches_kind(tool, kind))
    {
        return RuleMatch::No;
    }
    let path = match &rule.path {
        // Rules without a path already matched the command itself.
        None if matches!(part, ActionPart::FileWord(_) | ActionPart::PossibleFile(_)) => RuleMatch::No,
        None => RuleMatch::Yes,
        Some(glob) => glob_concerns(context, glob, part),
    };
    let host = match (&rule.host, part) {
        (None, _) => RuleMatch::Yes,
        (Some(wanted), ActionPart::Host(host)) if is_host_granted(host, std::slice::from_ref(wanted)) => {
            RuleMatch::Yes
        }
        (Some(_), _) => RuleMatch::No,
    };
    let command = match (&rule.command, part) {
        (None, _) => RuleMatch::Yes,
        (Some(words), ActionPart::Command(command, _)) => {
            parse_rule_words(words).map_or(RuleMatch::Maybe, |words| match_restricting_rule(&words, command))
        }
        (Some(_), _) => RuleMatch::No,
    };
    path.min(host).min(command)
}

/// Returns whether the glob of an `ask` or `deny` rule matches a part.
fn glob_concerns(context: &PolicyContext<'_>, glob: &str, part: &ActionPart<'_>) -> RuleMatch {
    match part {
        ActionPart::Read(path) | ActionPart::Write(path) => match_path_glob(context, glob, path),
        ActionPart::Redirect(redirect) => match &redirect.target {
            ShellWord::Known(path) => match_path_glob(context, glob, &absolute_path(context.cwd, path)),
            ShellWord::Unknown { shape, .. } => match_redirect(context, glob, shape),
        },
        ActionPart::PossibleFile(mention) => mention_concerns(context, glob, mention),
        // A command that names a path at least reads it.
        ActionPart::FileWord(word) => match_path_glob(context, glob, &absolute_path(context.cwd, word)),
        ActionPart::Command(..)
        | ActionPart::PossibleLaunch(_)
        | ActionPart::EmptyLine
        | ActionPart::Host(_)
        | ActionPart::Mcp(_)
        | ActionPart::Pod(_)
        | ActionPart::Undeclared => RuleMatch::No,
    }
}

/// Matches a glob with a path: absolute, relative to the working directory, or relative to a grant of the
/// scope.
pub(super) fn match_path_glob(context: &PolicyContext<'_>, glob: &str, path: &str) -> RuleMatch {
    let mut spellings = vec![path, relative_path(path, context.cwd)];
    spellings.extend(context.scope.allow.iter().map(|rule| relative_path(path, &rule.target)));
    if glob_matches_any(glob, &spellings, true) { RuleMatch::Yes } else { RuleMatch::No }
}

/// Returns the path relative to a directory, or an empty text if it is not below it.
fn relative_path<'p>(path: &'p str, directory: &str) -> &'p str {
    path_below(path, directory).unwrap_or_default()
}

/// Returns whether a glob matches one of these spellings. An invalid glob matches nothing; loading rejects
/// it.
fn glob_matches(glob: &str, spellings: &[&str]) -> bool {
    glob_matches_any(glob, spellings, false)
}

/// Returns whether a glob matches one of these spellings, or optionally a path below the glob.
fn glob_matches_any(glob: &str, spellings: &[&str], with_below: bool) -> bool {
    thread_local! {
        // Compiling a glob takes longer than a verdict may. The second matcher of a pair matches paths below
        // the glob.
        static READY: RefCell<HashMap<String, Option<[GlobMatcher; 2]>>> = RefCell::new(HashMap::new());
    }
    READY.with_borrow_mut(|ready| {
        if ready.len() >= MAX_CACHED_GLOBS {
            ready.clear();
        }
        if !ready.contains_key(glob) {
            let below = compile_glob(&format!("{}/**", glob.trim_end_matches('/')));
            let both = compile_glob(glob).and_then(|at| Ok([at, below?]));
            ready.insert(glob.to_owned(), both.ok());
        }
        let Some([at, below]) = ready.get(glob).and_then(Option::as_ref) else { return false };
        let fits = |path: &&&str| at.is_match(path) || (with_below && below.is_match(path));
        spellings.iter().filter(|path| !path.is_empty()).any(|path| fits(&path))
    })
}

/// Compiles the glob of a rule: `*` does not match `/`, `**` does.
pub(super) fn compile_glob(glob: &str) -> Result<GlobMatcher, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).build().map(|glob| glob.compile_matcher())
}

/// Returns whether the `tool` of a rule names a kind of action, by its name or an alias, or by a prefix with
/// `*`.
pub(super) fn tool_matches_kind(tool: &str, kind: &str) -> bool {
    let is = |name: &str| match tool.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == tool,
    };
    if tool == "*" || (!kind.is_empty() && is(kind)) {
        return true;
    }
    ACTION_KINDS.iter().any(|(name, others)| *name == kind && others.iter().any(|other| is(other)))
}

/// Returns whether a rule with these words allows a command and all of its arguments.
fn rule_covers_command(
    context: &PolicyContext<'_>,
    words: &str,
    command: &ShellCommand,
    wrapper: Option<&ShellCommand>,
) -> bool {
    if names_other_program(words, command)
        && wrapper.is_none_or(|wrapper| names_other_program(words, wrapper))
    {
        return false;
    }
    let Ok(words) = parse_rule_words(words) else { return false };
    allows_in_scope(context, &words, command)
        || wrapper.is_some_and(|wrapper| allows_wrapped_command(context, &words, wrapper, command))
}

/// Returns whether a rule allows a command and no argument leads outside the scope.
fn allows_in_scope(by: &PolicyContext<'_>, words: &[String], command: &ShellCommand) -> bool {
    let Some(allowed) = match_allow_rule(words, command) else { return false };
    if allowed.is_text {
        return true;
    }
    let goes_home =
        words.len() == 1 && words.first().is_some_and(|word| word == "cd") && allowed.rest.is_empty();
    let others = allowed.rest.iter().enumerate().filter(|(at, _)| Some(*at) != allowed.pattern_index);
    !goes_home && others.map(|(_, word)| word).all(|word| stays_in_scope(by, word))
}

/// Returns whether a rule for a launcher (`npx tsc`) also names the launched command, and so allows both.
fn allows_wrapped_command(
    context: &PolicyContext<'_>,
    words: &[String],
    wrapper: &ShellCommand,
    command: &ShellCommand,
) -> bool {
    let Some(allowed) = match_allow_rule(words, wrapper) else { return false };
    let named_words = wrapper.words.len() - allowed.rest.len();
    let before = wrapper.words.len() - command.words.len();
    let inside = command.words.get(..named_words.saturating_sub(before)).unwrap_or_default();
    let inside: Option<Vec<String>> = inside.iter().map(|word| word.as_known().map(str::to_owned)).collect();
    inside.is_some_and(|inside| !inside.is_empty() && allows_in_scope(context, &inside, command))
}

/// Returns whether a word of a command stays inside the scope.
fn stays_in_scope(by: &PolicyContext<'_>, word: &ShellWord) -> bool {
    match word {
        ShellWord::Known(word) => escaping_paths(word).all(|path| {
            !path.starts_with('~') && by.command_access(&absolute_path(by.cwd, path)) > AccessLevel::None
        }),
        // Only plain globs remain here.
        ShellWord::Unknown { .. } => true,
    }
}

/// Whether a rule may allow a line that opens this file.
pub(crate) enum RedirectCheck<'a> {
    /// The file is inside the scope.
    Inside,
    /// The file is outside the scope or has a protected name.
    Outside(String),
    /// The path is known only at run time.
    Unknown(&'a str),
}

/// Checks the target of a redirection against the scope.
pub(crate) fn check_redirect<'a>(
    context: &PolicyContext<'_>,
    redirect: &'a ShellRedirect,
) -> RedirectCheck<'a> {
    let path = match &redirect.target {
        ShellWord::Known(path) => absolute_path(context.cwd, path),
        ShellWord::Unknown { raw, .. } => return RedirectCheck::Unknown(raw),
    };
    let wanted = if redirect.writes { AccessLevel::Write } else { AccessLevel::Read };
    let protected = redirect.writes && context.protected_name(&path).is_some();
    if context.command_access(&path) >= wanted && !protected {
        RedirectCheck::Inside
    } else {
        RedirectCheck::Outside(path)
    }
}

/// Returns an `ask` or `deny` rule that a line which cannot be parsed could violate unseen.
pub(crate) fn first_restricting_rule(rules: &RuleSet) -> Option<&LayeredRule> {
    rules.rules.iter().find(|layered| {
        let rule = &layered.rule;
        rule.action != Judgement::Allow && (rule.command.is_some() || rule.path.is_some())
    })
}
