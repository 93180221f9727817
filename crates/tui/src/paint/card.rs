//! Card: questions that wait for a person, and children.
//!
//! A person answers by what a card shows, so it shows everything exactly: command or diff, where, in which fence, by
//! which rule. What does not fit is counted in the colour of a warning.

use minke_record::{Action, AskKind, AskSubject, ChildOutcome, Decision, Millis, Script};
use minke_view::{Answered, AskCard, ChildCard};
use ratatui::style::Style;
use ratatui::text::Line;

use super::call::{command_lines, exact_lines};
use super::diff::{self, diff};
use super::harmless::Clean;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Piece, columns, cut, indent, room, wrap};
use crate::event::{Code, Key};

/// Rows of a command or a diff before the card is opened.
const ROWS: usize = 20;
/// Paths, hosts and commands that are named one by one.
const NAMED: usize = 8;
/// As much of a hash as tells two contents apart for a person.
const HASH_CHARS: usize = 12;
/// The lines of a script's change that the card shows.
const CHANGED_LINES: usize = 20;

/// What stands between two choices.
const BETWEEN: &str = "   ";

/// The keys that cards name, as the person has them; none for what has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CardKeys {
    pub once: Option<Key>,
    pub session: Option<Key>,
    pub rule: Option<Key>,
    pub deny: Option<Key>,
    pub abort: Option<Key>,
    /// What goes on with a run that was paused.
    pub go_on: Option<Key>,
}

impl Default for CardKeys {
    fn default() -> CardKeys {
        let letter = |letter| Some(Key::char(letter));
        CardKeys {
            once: letter('y'),
            session: letter('a'),
            rule: letter('r'),
            deny: letter('n'),
            abort: letter('x'),
            go_on: Some(Key::plain(Code::Enter)),
        }
    }
}

impl CardKeys {
    /// What each of them answers.
    fn answers(&self) -> [(Option<Key>, Decision, &'static str); 5] {
        [
            (self.once, Decision::Approved, "once"),
            (self.session, Decision::ApprovedForSession, "this session"),
            (self.rule, Decision::ApprovedRule, "always"),
            (self.deny, Decision::Denied, "no, with a note"),
            (self.abort, Decision::Abort, "end the run"),
        ]
    }
}

pub(super) fn ask(block: (&AskCard, Millis), width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let (card, asked) = block;
    if !open && (card.answer.is_some() || card.closed) {
        return vec![settled(card, width, theme)];
    }
    let style = theme.style(Role::Warn);
    let bar = vec![Piece::own("┃ ", style)];
    let before = Before { first: bar.clone(), rest: bar };
    let inner = room(width, &before);
    let rows = if open { diff::ROWS } else { ROWS };
    let mut lines = wrap(&title(card, theme), inner, &Before::default(), Break::Words);
    lines.extend(subject(&card.ask.subject, inner, theme, rows));
    lines.extend(fact_lines(&facts(card, asked), inner, theme));
    if card.answer.is_some() || card.closed {
        lines.push(settled(card, inner, theme));
    } else {
        lines.extend(keys(card, inner, theme));
    }
    indent(lines, width, &before)
}

fn title(card: &AskCard, theme: &Theme) -> Vec<Piece> {
    let style = theme.style(Role::Warn);
    let mut text = Vec::new();
    if let Some(pod) = &card.pod {
        text.push(Piece::new(Clean::line(pod.as_str()), theme.style(Role::Accent)));
        text.push(Piece::own(" ", style));
    }
    text.push(Piece::own("asks: ", style));
    text.push(Piece::new(Clean::line(&question(card)), style));
    text
}

/// The question in words; one that was asked in words says itself.
pub(super) fn question(card: &AskCard) -> String {
    let tool = card.ask.subject.tool.as_deref().unwrap_or("this");
    match card.ask.ask {
        AskKind::Approval => format!("may {tool} run?"),
        AskKind::Question => String::new(),
        AskKind::Elicitation => format!("{tool} would like to know"),
        AskKind::Other(ref word) => word.to_string(),
    }
}

fn subject(subject: &AskSubject, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
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
        lines.extend(diff(text, width, theme, rows));
    }
    lines
}

fn fact_lines(facts: &[(&'static str, String)], width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (name, value) in facts {
        let text = [
            Piece::own(name, theme.style(Role::Dim)),
            Piece::own(": ", theme.style(Role::Dim)),
            Piece::new(Clean::exact_line(value), theme.style(Role::Text)),
        ];
        let before = Before { first: Vec::new(), rest: vec![Piece::own("  ", Style::new())] };
        lines.extend(wrap(&text, width, &before, Break::Words));
    }
    lines
}

/// Where, what it touches, in which fence, by which rule.
pub(super) fn facts(card: &AskCard, asked: Millis) -> Vec<(&'static str, String)> {
    let subject = &card.ask.subject;
    let mut facts = Vec::new();
    if let Some(cwd) = &subject.cwd {
        facts.push(("in", cwd.clone()));
    }
    if let Some(action) = &subject.action {
        facts.extend(touched(action));
        facts.extend(scripts(action));
    }
    if let Some(verdict) = &subject.verdict {
        facts.extend(verdict.fence.clone().map(|fence| ("fence", fence)));
        let rule = match (&verdict.rule, &verdict.layer) {
            (Some(rule), Some(layer)) => Some(format!("{rule} ({layer})")),
            (Some(rule), None) => Some(rule.clone()),
            // No rule: something else of that name decided.
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
        facts.push(("time", format!("denied if nobody answers within {minutes} min of the question")));
    }
    facts
}

fn touched(action: &Action) -> impl Iterator<Item = (&'static str, String)> {
    let some = |name, all: &[String]| (!all.is_empty()).then(|| (name, named(all)));
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

/// The files that the line would run, each with the beginning of its hash; then what has changed in them.
fn scripts(action: &Action) -> Vec<(&'static str, String)> {
    let known = |script: &Script| match (&script.hash, &script.problem) {
        (Some(hash), _) => format!("{} ({})", script.path, hash.get(..HASH_CHARS).unwrap_or(hash)),
        (None, Some(problem)) => format!("{} (unknown content: {problem})", script.path),
        (None, None) => format!("{} (gone)", script.path),
    };
    let all: Vec<String> = action.scripts.iter().map(known).collect();
    let mut facts: Vec<_> = (!all.is_empty()).then(|| ("scripts", named(&all))).into_iter().collect();
    for script in action.scripts.iter().take(NAMED) {
        let Some(change) = &script.change else { continue };
        facts.push(("changed since it was approved", script.path.clone()));
        facts.extend(change.lines().take(CHANGED_LINES).map(|line| ("  ", line.to_owned())));
        let more = change.lines().count().saturating_sub(CHANGED_LINES);
        facts.extend((more > 0).then(|| ("  ", format!("… {more} more lines in `minke asks`"))));
    }
    facts
}

fn named(all: &[String]) -> String {
    let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED {
        text.push_str(&format!(" and {} more", all.len() - NAMED));
    }
    text
}

/// The keys that answer this question, in their order. What has no key is not offered.
pub(super) fn choices(card: &AskCard, keys: &CardKeys) -> Vec<(String, String)> {
    if card.ask.ask == AskKind::Approval {
        let offered = |decision: &Decision| card.ask.options.iter().any(|option| option == decision.as_str());
        let choice = |(key, decision, told): (Option<Key>, Decision, &str)| {
            let rule = card.ask.subject.always.as_deref().filter(|_| decision == Decision::ApprovedRule);
            let told = rule.map_or_else(|| told.to_owned(), |rule| format!("{told}: {rule}"));
            Some((key?.to_string(), told))
        };
        return keys
            .answers()
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

fn keys(card: &AskCard, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut rows: Vec<Vec<Piece>> = Vec::new();
    for (key, told) in choices(card, &theme.keys) {
        let choice = [
            Piece::new(Clean::exact_line(&key), theme.style(Role::Key)),
            Piece::own(" ", Style::new()),
            Piece::new(Clean::exact_line(&told), theme.style(Role::Text)),
        ];
        // A key and what it does stay together.
        match rows.last_mut() {
            Some(row) if columns(row) + BETWEEN.len() + columns(&choice) <= usize::from(width) => {
                row.push(Piece::own(BETWEEN, Style::new()));
                row.extend(choice);
            }
            Some(_) | None => rows.push(choice.to_vec()),
        }
    }
    rows.iter().flat_map(|row| wrap(row, width, &Before::default(), Break::Words)).collect()
}

/// How a child stands, without marks.
pub(super) fn child_words(child: &ChildCard) -> String {
    child_standing(child).0.trim_start_matches(['✓', '■', '✗', ' ']).to_owned()
}

/// How a question ended, in words; none while it is open.
pub(super) fn end_words(card: &AskCard) -> Option<String> {
    let gone = card.closed.then(|| "no longer asked".to_owned());
    card.answer.as_ref().map(answer_words).or(gone)
}

fn answer_words(answer: &Answered) -> String {
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
        Some(note) => format!("{what} by {}: {note}", answer.by),
        None => format!("{what} by {}", answer.by),
    }
}

/// What it is about, in one line: a diff says nothing there, its files do.
pub(super) fn about(card: &AskCard) -> Option<String> {
    let subject = &card.ask.subject;
    let action = subject.action.as_ref();
    let command = action.and_then(|action| action.command.clone());
    let files = action.filter(|_| subject.diff.is_some()).map(|action| named(&action.writes));
    command.or(files).or_else(|| subject.text.clone())
}

fn settled(card: &AskCard, width: u16, theme: &Theme) -> Line<'static> {
    let (mark, role) = match card.answer.as_ref().map(|answer| answer.decision.approves()) {
        Some(true) => ("✓ ", Role::Good),
        Some(false) => ("✗ ", Role::Error),
        None => ("· ", Role::Dim),
    };
    let mut text = vec![
        Piece::own(mark, theme.style(role)),
        Piece::new(Clean::line(&end_words(card).unwrap_or_default()), theme.style(Role::Text)),
    ];
    let about =
        [card.ask.subject.tool.clone(), about(card)].into_iter().flatten().collect::<Vec<_>>().join(" ");
    if !about.is_empty() {
        text.push(Piece::own("  ", Style::new()));
        text.push(Piece::new(Clean::exact_line(&about), theme.style(Role::Dim)));
    }
    cut(&text, width)
}

pub(super) fn child(child: &ChildCard, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (told, role) = child_standing(child);
    let mut text = vec![
        Piece::own("◆ ", theme.style(role)),
        Piece::new(Clean::line(child.name.as_str()), theme.style(Role::Heading)),
        Piece::own("  ", Style::new()),
        Piece::new(Clean::line(&told), theme.style(role)),
    ];
    if !child.scope.is_empty() {
        text.push(Piece::own("  ", Style::new()));
        text.push(Piece::new(Clean::exact_line(&child.scope), theme.style(Role::Dim)));
    }
    vec![cut(&text, width)]
}

pub(super) fn child_standing(child: &ChildCard) -> (String, Role) {
    let told = child.told.clone();
    match &child.ended {
        None => (if told.is_empty() { "begins".to_owned() } else { told }, Role::Accent),
        Some(outcome) => {
            let (word, role) = match outcome {
                ChildOutcome::Slept => ("✓ done", Role::Good),
                ChildOutcome::Returned => ("✓ back with its parent", Role::Good),
                ChildOutcome::Stopped => ("■ stopped", Role::Warn),
                ChildOutcome::Crashed => ("✗ crashed", Role::Error),
                ChildOutcome::FailedToStart => ("✗ did not start", Role::Error),
                ChildOutcome::Other(word) => (word.as_ref(), Role::Warn),
            };
            (if told.is_empty() { word.to_owned() } else { format!("{word}: {told}") }, role)
        }
    }
}
