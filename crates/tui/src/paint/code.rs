//! Code: colours for what stands in fences, line by line, with an end.
//!
//! Lines keep every space and carry no decoration, so that a copy of them is the code.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ratatui::text::Line;
use rustix::time::{ClockId, clock_gettime};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use super::harmless::Clean;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Piece, cut, wrap};

/// Beyond this a block's code has no colours: a person waits for no highlighter.
const BLOCK_BYTES: usize = 32 * 1024;
/// The same for one line; longer ones are data, and what a grammar takes grows faster than its line.
const LINE_BYTES: usize = 300;

/// What one block's colours may take of the processor. Some grammars need seconds for a line that is made for it: the
/// rest of such a block has no colours, and neither have later ones in that language. The text is never touched, and a
/// machine that is busy with other things changes nothing, because only this thread's own time counts.
const BLOCK_TIME: Duration = Duration::from_millis(300);

/// Loads what colours need, which takes a moment; whoever has one to spare calls it before code comes.
pub fn warm() {
    syntaxes();
    roles();
}

fn syntaxes() -> &'static SyntaxSet {
    static SET: OnceLock<SyntaxSet> = OnceLock::new();
    SET.get_or_init(two_face::syntax::extra_newlines)
}

/// What the grammars call things, the more exact name first.
const NAMES: [(&str, Role); 28] = [
    ("comment", Role::Comment),
    ("punctuation.definition.comment", Role::Comment),
    ("punctuation.definition.string", Role::Literal),
    ("constant.character.escape", Role::Number),
    ("string", Role::Literal),
    ("constant", Role::Number),
    ("keyword.operator.word", Role::Keyword),
    ("keyword.operator", Role::Text),
    ("keyword", Role::Keyword),
    ("storage", Role::Keyword),
    ("variable.language", Role::Keyword),
    ("variable.function", Role::Function),
    ("entity.name.function", Role::Function),
    ("support.function", Role::Function),
    ("support.macro", Role::Function),
    ("entity.name.macro", Role::Function),
    ("entity.name.tag", Role::Keyword),
    ("entity.other.attribute-name", Role::Function),
    ("entity.name.section", Role::Heading),
    ("entity.name", Role::Type),
    ("entity.other.inherited-class", Role::Type),
    ("support.type.property-name", Role::Function),
    ("support.type", Role::Type),
    ("support.class", Role::Type),
    ("support.constant", Role::Number),
    ("markup.inserted", Role::Added),
    ("markup.deleted", Role::Removed),
    ("markup.heading", Role::Heading),
];

fn roles() -> &'static [(Scope, Role)] {
    static ROLES: OnceLock<Vec<(Scope, Role)>> = OnceLock::new();
    ROLES.get_or_init(|| {
        NAMES.iter().filter_map(|(name, role)| Scope::new(name).ok().map(|scope| (scope, *role))).collect()
    })
}

fn role_of(stack: &ScopeStack) -> Role {
    let named =
        |scope: &Scope| roles().iter().find(|(name, _)| name.is_prefix_of(*scope)).map(|(_, role)| *role);
    stack.as_slice().iter().rev().find_map(named).unwrap_or(Role::Text)
}

/// Reads code line by line and remembers where it is: inside of a string, of a comment.
#[derive(Clone)]
pub(super) struct Highlighter {
    state: Option<(ParseState, ScopeStack)>,
    /// The grammar's name.
    grammar: String,
    bytes: usize,
    spent: Duration,
}

/// Grammars that once took too long.
fn slow() -> MutexGuard<'static, BTreeSet<String>> {
    static SLOW: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // A set of names is whole whatever happened to the thread that had it.
    SLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this thread has taken of the processor.
fn processor() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Highlighter {
    /// For the word after a fence; without a known one there are no colours.
    pub(super) fn new(language: &str) -> Highlighter {
        let word = language.split([' ', ',', '{', ':']).next().unwrap_or_default();
        let found =
            if word.is_empty() || word.len() > 40 { None } else { syntaxes().find_syntax_by_token(word) };
        let found = found.filter(|syntax| !slow().contains(&syntax.name));
        Highlighter {
            state: found.map(|syntax| (ParseState::new(syntax), ScopeStack::new())),
            grammar: found.map(|syntax| syntax.name.clone()).unwrap_or_default(),
            bytes: 0,
            spent: Duration::ZERO,
        }
    }

    /// Counts what another one took, which went on from here for a line that has not ended.
    pub(super) fn took(&mut self, other: &Highlighter) {
        self.spent = other.spent;
    }

    /// One line, without its line feed.
    pub(super) fn line(&mut self, text: &Clean, theme: &Theme) -> Vec<Piece> {
        let plain = || vec![Piece::new(text.clone(), theme.style(Role::Text))];
        self.bytes += text.as_str().len();
        if self.bytes > BLOCK_BYTES {
            self.state = None;
        }
        if self.spent > BLOCK_TIME && self.state.take().is_some() {
            slow().insert(std::mem::take(&mut self.grammar));
        }
        let Some((state, stack)) = &mut self.state else { return plain() };
        if text.as_str().len() > LINE_BYTES {
            return plain();
        }
        let line = format!("{}\n", text.as_str());
        let began = processor();
        let changes = state.parse_line(&line, syntaxes());
        self.spent += processor().saturating_sub(began);
        // A grammar that fails says nothing about the code: it is shown without colours from here on.
        let Ok(changes) = changes else {
            self.state = None;
            return plain();
        };
        let mut pieces = Vec::new();
        let mut from = 0;
        for (at, change) in changes {
            let at = at.min(text.as_str().len());
            if at > from {
                pieces.push(Piece::new(text.part(from, at), theme.style(role_of(stack))));
                from = at;
            }
            if stack.apply(&change).is_err() {
                self.state = None;
                return plain();
            }
        }
        pieces.push(Piece::new(text.part(from, text.as_str().len()), theme.style(role_of(stack))));
        pieces
    }
}

/// A whole block of code, between two quiet lines.
pub(super) fn block(code: &Clean, language: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = vec![opening(language, width, theme)];
    let mut highlighter = Highlighter::new(language);
    for text in code.lines() {
        lines.extend(line(&mut highlighter, &text, width, theme));
    }
    lines.push(closing(width, theme));
    lines
}

pub(super) fn line(painter: &mut Highlighter, text: &Clean, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    wrap(&painter.line(text, theme), width, &Before::default(), Break::Anywhere)
}

pub(super) fn opening(language: &str, width: u16, theme: &Theme) -> Line<'static> {
    let style = theme.style(Role::Dim);
    let name = Clean::line(language.split_whitespace().next().unwrap_or_default());
    let mark = match (theme.plain, name.is_empty()) {
        (true, true) => "code:",
        (true, false) => "code: ",
        (false, true) => "┄┄",
        (false, false) => "┄┄ ",
    };
    cut(&[Piece::own(mark, style), Piece::new(name, style)], width)
}

pub(super) fn closing(width: u16, theme: &Theme) -> Line<'static> {
    let mark = if theme.plain { "end of code" } else { "┄┄" };
    cut(&[Piece::own(mark, theme.style(Role::Dim))], width)
}
