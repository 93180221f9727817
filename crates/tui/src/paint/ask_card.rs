//! Renders the approval card of an ask, and children.
//!
//! The user decides by the card, so it shows everything exactly: command or diff, directory, sandbox, rule.
//! Omitted parts are counted in the warning style.

use minke_record::{Action, AskKind, AskSubject, ChildOutcome, Decision, ExecutedScript, Millis};
use minke_view::{AskCard, AskResponse, ChildCard};
use ratatui::style::Style;
use ratatui::text::Line;

use super::call_block::{command_lines, exact_lines};
use super::diff::{self, diff_lines};
use super::sanitize::Clean;
use super::theme::{StyleRole, Theme};
use super::wrap::{
    LinePrefix, StyledText, WrapMode, prefix_lines, remaining_width, text_columns, truncate_line, wrap_line,
};
use crate::event::{KeyPress, KeySymbol};

/// Rows of a command or a diff in a folded card.
const MAX_CARD_ROWS: usize = 20;
/// Limit for listed paths, hosts and commands.
const MAX_NAMES: usize = 8;
/// Displayed characters of a content hash.
const HASH_CHARS: usize = 12;
/// Displayed lines of a changed script.
const MAX_CHANGED_LINES: usize = 20;

/// Separator between two choices.
const CHOICE_GAP: &str = "   ";

/// The configured keys for the choices of a card; `None` without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CardKeys {
    pub once: Option<KeyPress>,
    pub session: Option<KeyPress>,
    pub rule: Option<KeyPress>,
    pub deny: Option<KeyPress>,
    pub abort: Option<KeyPress>,
    /// Resumes a paused run.
    pub resume: Option<KeyPress>,
}

impl Default for CardKeys {
    fn default() -> CardKeys {
        let letter = |letter| Some(KeyPress::from_letter(letter));
        CardKeys {
            once: letter('y'),
            session: letter('a'),
            rule: letter('r'),
            deny: letter('n'),
            abort: letter('x'),
            resume: Some(KeyPress::from_symbol(KeySymbol::Enter)),
        }
    }
}

impl CardKeys {
    /// Returns the decision of each key.
    fn answer_keys(&self) -> [(Option<KeyPress>, Decision, &'static str); 5] {
        [
            (self.once, Decision::Approved, "once"),
            (self.session, Decision::ApprovedForSession, "this session"),
            (self.rule, Decision::ApprovedRule, "always"),
            (self.deny, Decision::Denied, "no, with a note"),
            (self.abort, Decision::Abort, "end the run"),
        ]
    }
}

pub(super) fn ask_lines(
    card: &AskCard,
    asked: Millis,
    width: u16,
    theme: &Theme,
    open: bool,
) -> Vec<Line<'static>> {
    if !open && (card.answer.is_some() || card.closed) {
        return vec![settled_line(card, width, theme)];
    }
    let style = theme.role_style(StyleRole::Warn);
    let bar = vec![StyledText::from_static("┃ ", style)];
    let before = LinePrefix { first: bar.clone(), rest: bar };
    let inner = remaining_width(width, &before);
    let rows = if open { diff::MAX_DIFF_ROWS } else { MAX_CARD_ROWS };
    let mut lines = wrap_line(&card_title(card, theme), inner, &LinePrefix::default(), WrapMode::Words);
    lines.extend(subject_lines(&card.ask.subject, inner, theme, rows));
    lines.extend(fact_lines(&card_facts(card, asked), inner, theme));
    if card.answer.is_some() || card.closed {
        lines.push(settled_line(card, inner, theme));
    } else {
        lines.extend(key_lines(card, inner, theme));
    }
    prefix_lines(lines, width, &before)
}

fn card_title(card: &AskCard, theme: &Theme) -> Vec<StyledText> {
    let style = theme.role_style(StyleRole::Warn);
    let mut text = Vec::new();
    if let Some(pod) = &card.pod {
        text.push(StyledText::new(Clean::from_prose_line(pod.as_str()), theme.role_style(StyleRole::Accent)));
        text.push(StyledText::from_static(" ", style));
    }
    text.push(StyledText::from_static("asks: ", style));
    text.push(StyledText::new(Clean::from_prose_line(&question_text(card)), style));
    text
}

/// Returns the question as text. An elicitation has its own text.
pub(super) fn question_text(card: &AskCard) -> String {
    let tool = card.ask.subject.tool.as_deref().unwrap_or("this");
    match card.ask.ask {
        AskKind::Approval => format!("allow {tool} to run?"),
        AskKind::Question => String::new(),
        AskKind::Elicitation => format!("{tool} asks"),
        AskKind::Other(ref word) => word.to_string(),
    }
}

fn subject_lines(subject: &AskSubject, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let command = subject.action.as_ref().and_then(|action| action.command.as_deref());
    if let Some(command) = command {
        lines.extend(command_lines(command, width, theme, rows));
    }
    if let Some(text) =
        subject.text.as_deref().filter(|text| Some(*text) != command && subject.diff.as_deref() != Some(text))
    {
        lines.extend(exact_lines(text, width, theme, rows));
    }
    if let Some(text) = &subject.diff {
        lines.extend(diff_lines(text, width, theme, rows));
    }
    lines
}

fn fact_lines(facts: &[(&'static str, String)], width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (name, value) in facts {
        let text = [
            StyledText::from_static(name, theme.role_style(StyleRole::Dim)),
            StyledText::from_static(": ", theme.role_style(StyleRole::Dim)),
            StyledText::new(Clean::from_exact_line(value), theme.role_style(StyleRole::Text)),
        ];
        let before =
            LinePrefix { first: Vec::new(), rest: vec![StyledText::from_static("  ", Style::new())] };
        lines.extend(wrap_line(&text, width, &before, WrapMode::Words));
    }
    lines
}

/// Returns the facts of an ask: directory, effects, sandbox, rule.
pub(super) fn card_facts(card: &AskCard, asked: Millis) -> Vec<(&'static str, String)> {
    let subject = &card.ask.subject;
    let mut facts = Vec::new();
    if let Some(cwd) = &subject.cwd {
        facts.push(("in", cwd.clone()));
    }
    if let Some(action) = &subject.action {
        facts.extend(touched_facts(action));
        facts.extend(script_facts(action));
    }
    if let Some(verdict) = &subject.verdict {
        facts.extend(verdict.sandbox.name().map(|name| ("sandbox", name.to_owned())));
        let rule = match (&verdict.rule, &verdict.layer) {
            (Some(rule), Some(layer)) => Some(format!("{rule} ({layer})")),
            (Some(rule), None) => Some(rule.clone()),
            // Not a rule, but another layer decided.
            (None, Some(layer)) => Some(format!("none; the {layer} decides")),
            (None, None) => None,
        };
        facts.extend(rule.map(|rule| ("rule", rule)));
        if !verdict.reason.is_empty() {
            facts.push(("why", verdict.reason.clone()));
        }
    }
    let minutes = card.ask.expires.and_then(|until| until.checked_sub(asked)).map(|ms| ms.div_ceil(60_000));
    let open = card.answer.is_none() && !card.closed && asked > 0;
    if let Some(minutes) = minutes.filter(|_| open) {
        facts.push(("time", format!("denied without an answer within {minutes} min of the question")));
    }
    facts
}

fn touched_facts(action: &Action) -> impl Iterator<Item = (&'static str, String)> {
    let some = |name, all: &[String]| (!all.is_empty()).then(|| (name, join_names(all)));
    let alone = action.commands.len() == 1 && action.commands.first() == action.command.as_ref();
    [
        if alone { None } else { some("runs", &action.commands) },
        some("writes", &action.writes),
        some("hosts", &action.hosts),
        action.mcp.clone().map(|tool| ("calls", tool)),
        action.pod.clone().map(|pod| ("pod", pod)),
    ]
    .into_iter()
    .flatten()
}

/// Lists the scripts that the command would run with a prefix of their hash, and the changes in them.
fn script_facts(action: &Action) -> Vec<(&'static str, String)> {
    let known = |script: &ExecutedScript| match (&script.hash, &script.problem) {
        (Some(hash), _) => format!("{} ({})", script.path, hash.get(..HASH_CHARS).unwrap_or(hash)),
        (None, Some(problem)) => format!("{} (unknown content: {problem})", script.path),
        (None, None) => format!("{} (missing)", script.path),
    };
    let all: Vec<String> = action.scripts.iter().map(known).collect();
    let mut facts: Vec<_> = (!all.is_empty()).then(|| ("scripts", join_names(&all))).into_iter().collect();
    for script in action.scripts.iter().take(MAX_NAMES) {
        let Some(change) = &script.change else { continue };
        facts.push(("changed since it was approved", script.path.clone()));
        facts.extend(change.lines().take(MAX_CHANGED_LINES).map(|line| ("  ", line.to_owned())));
        let more = change.lines().count().saturating_sub(MAX_CHANGED_LINES);
        facts.extend((more > 0).then(|| ("  ", format!("… {more} more lines in `minke asks`"))));
    }
    facts
}

fn join_names(all: &[String]) -> String {
    let mut text = all.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", all.len() - MAX_NAMES));
    }
    text
}

/// Returns the choices of an ask in order. Choices without a key are omitted.
pub(super) fn key_choices(card: &AskCard, keys: &CardKeys) -> Vec<(String, String)> {
    if card.ask.ask == AskKind::Approval {
        let offered = |decision: &Decision| card.ask.options.iter().any(|option| option == decision.as_str());
        let choice = |(key, decision, told): (Option<KeyPress>, Decision, &str)| {
            let rule = card.ask.subject.always.as_deref().filter(|_| decision == Decision::ApprovedRule);
            let told = rule.map_or_else(|| told.to_owned(), |rule| format!("{told}: {rule}"));
            Some((key?.to_string(), told))
        };
        return keys
            .answer_keys()
            .into_iter()
            .filter(|(_, decision, _)| offered(decision))
            .filter_map(choice)
            .collect();
    }
    let numbered =
        card.ask.options.iter().enumerate().map(|(at, option)| ((at + 1).to_string(), option.clone()));
    let mut all: Vec<_> = numbered.collect();
    let words = all.is_empty().then_some((keys.once, "answer in words"));
    let others = [words, Some((keys.deny, "no answer")), Some((keys.abort, "end the run"))];
    all.extend(
        others.into_iter().flatten().filter_map(|(key, told)| Some((key?.to_string(), told.to_owned()))),
    );
    all
}

fn key_lines(card: &AskCard, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut rows: Vec<Vec<StyledText>> = Vec::new();
    for (key, told) in key_choices(card, &theme.keys) {
        let choice = [
            StyledText::new(Clean::from_exact_line(&key), theme.role_style(StyleRole::Key)),
            StyledText::from_static(" ", Style::new()),
            StyledText::new(Clean::from_exact_line(&told), theme.role_style(StyleRole::Text)),
        ];
        // Keep a key and its label on one line.
        match rows.last_mut() {
            Some(row)
                if text_columns(row) + CHOICE_GAP.len() + text_columns(&choice) <= usize::from(width) =>
            {
                row.push(StyledText::from_static(CHOICE_GAP, Style::new()));
                row.extend(choice);
            }
            Some(_) | None => rows.push(choice.to_vec()),
        }
    }
    rows.iter().flat_map(|row| wrap_line(row, width, &LinePrefix::default(), WrapMode::Words)).collect()
}

/// Returns the state of a child without marks.
pub(super) fn child_status_text(child: &ChildCard) -> String {
    child_state(child).0.trim_start_matches(['✓', '■', '✗', ' ']).to_owned()
}

/// Returns how an ask ended, or `None` while it is open.
pub(super) fn ask_end_text(card: &AskCard) -> Option<String> {
    let gone = card.closed.then(|| "no longer asked".to_owned());
    card.answer.as_ref().map(answer_text).or(gone)
}

fn answer_text(answer: &AskResponse) -> String {
    let what = match &answer.decision {
        Decision::Approved => "approved once",
        Decision::ApprovedForSession => "approved for this session",
        Decision::ApprovedRule => "approved by a new rule",
        Decision::Answered => "answered",
        Decision::Denied => "denied",
        Decision::Abort => "run ended",
        Decision::Other(word) => word,
    };
    match &answer.note {
        Some(note) => format!("{what} by {}: {note}", answer.answered_by),
        None => format!("{what} by {}", answer.answered_by),
    }
}

/// Returns the one-line subject: for a diff, the files.
pub(super) fn card_subject(card: &AskCard) -> Option<String> {
    let subject = &card.ask.subject;
    let action = subject.action.as_ref();
    let command = action.and_then(|action| action.command.clone());
    let files = action.filter(|_| subject.diff.is_some()).map(|action| join_names(&action.writes));
    command.or(files).or_else(|| subject.text.clone())
}

fn settled_line(card: &AskCard, width: u16, theme: &Theme) -> Line<'static> {
    let (mark, role) = match card.answer.as_ref().map(|answer| answer.decision.is_approval()) {
        Some(true) => ("✓ ", StyleRole::Good),
        Some(false) => ("✗ ", StyleRole::Error),
        None => ("· ", StyleRole::Dim),
    };
    let mut text = vec![
        StyledText::from_static(mark, theme.role_style(role)),
        StyledText::new(
            Clean::from_prose_line(&ask_end_text(card).unwrap_or_default()),
            theme.role_style(StyleRole::Text),
        ),
    ];
    let about = [card.ask.subject.tool.clone(), card_subject(card)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ");
    if !about.is_empty() {
        text.push(StyledText::from_static("  ", Style::new()));
        text.push(StyledText::new(Clean::from_exact_line(&about), theme.role_style(StyleRole::Dim)));
    }
    truncate_line(&text, width)
}

pub(super) fn child_lines(child: &ChildCard, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (told, role) = child_state(child);
    let mut text = vec![
        StyledText::from_static("◆ ", theme.role_style(role)),
        StyledText::new(Clean::from_prose_line(child.name.as_str()), theme.role_style(StyleRole::Heading)),
        StyledText::from_static("  ", Style::new()),
        StyledText::new(Clean::from_prose_line(&told), theme.role_style(role)),
    ];
    if !child.scope.is_empty() {
        text.push(StyledText::from_static("  ", Style::new()));
        text.push(StyledText::new(Clean::from_exact_line(&child.scope), theme.role_style(StyleRole::Dim)));
    }
    vec![truncate_line(&text, width)]
}

pub(super) fn child_state(child: &ChildCard) -> (String, StyleRole) {
    let told = child.status_text.clone();
    match &child.outcome {
        None => (if told.is_empty() { "begins".to_owned() } else { told }, StyleRole::Accent),
        Some(outcome) => {
            let (word, role) = match outcome {
                ChildOutcome::Slept => ("✓ done", StyleRole::Good),
                ChildOutcome::Returned => ("✓ returned to its parent", StyleRole::Good),
                ChildOutcome::Stopped => ("■ stopped", StyleRole::Warn),
                ChildOutcome::Crashed => ("✗ crashed", StyleRole::Error),
                ChildOutcome::FailedToStart => ("✗ could not start", StyleRole::Error),
                ChildOutcome::Other(word) => (word.as_ref(), StyleRole::Warn),
            };
            (if told.is_empty() { word.to_owned() } else { format!("{word}: {told}") }, role)
        }
    }
}
