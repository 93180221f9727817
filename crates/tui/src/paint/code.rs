//! Highlights code blocks line by line, within limits.
//!
//! Lines keep every space and have no decoration, so that a copied block is the exact code.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ratatui::text::Line;
use rustix::time::{ClockId, clock_gettime};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use super::sanitize::Clean;
use super::theme::{StyleRole, Theme};
use super::wrap::{LinePrefix, StyledText, WrapMode, truncate_line, wrap_line};

/// Limit for a highlighted block; the rest has no colours.
const MAX_BLOCK_BYTES: usize = 32 * 1024;
/// Limit for a highlighted line. Longer lines are data, and parsing time grows faster than their length.
const MAX_LINE_BYTES: usize = 300;

/// Limit for the CPU time of one block. Some grammars need seconds for a malicious line. Then the rest of the
/// block and later blocks in that language have no colours. Only the thread's own CPU time counts, so a busy
/// machine has no effect.
const MAX_BLOCK_TIME: Duration = Duration::from_millis(300);

/// Loads the grammars in advance, because it takes a moment.
pub fn load_grammars() {
    syntax_set();
    scope_roles();
}

fn syntax_set() -> &'static SyntaxSet {
    static SET: OnceLock<SyntaxSet> = OnceLock::new();
    SET.get_or_init(two_face::syntax::extra_newlines)
}

/// Grammar scopes with their styles, the most specific first.
const SCOPE_ROLES: [(&str, StyleRole); 28] = [
    ("comment", StyleRole::Comment),
    ("punctuation.definition.comment", StyleRole::Comment),
    ("punctuation.definition.string", StyleRole::Literal),
    ("constant.character.escape", StyleRole::Number),
    ("string", StyleRole::Literal),
    ("constant", StyleRole::Number),
    ("keyword.operator.word", StyleRole::Keyword),
    ("keyword.operator", StyleRole::Text),
    ("keyword", StyleRole::Keyword),
    ("storage", StyleRole::Keyword),
    ("variable.language", StyleRole::Keyword),
    ("variable.function", StyleRole::Function),
    ("entity.name.function", StyleRole::Function),
    ("support.function", StyleRole::Function),
    ("support.macro", StyleRole::Function),
    ("entity.name.macro", StyleRole::Function),
    ("entity.name.tag", StyleRole::Keyword),
    ("entity.other.attribute-name", StyleRole::Function),
    ("entity.name.section", StyleRole::Heading),
    ("entity.name", StyleRole::Type),
    ("entity.other.inherited-class", StyleRole::Type),
    ("support.type.property-name", StyleRole::Function),
    ("support.type", StyleRole::Type),
    ("support.class", StyleRole::Type),
    ("support.constant", StyleRole::Number),
    ("markup.inserted", StyleRole::Added),
    ("markup.deleted", StyleRole::Removed),
    ("markup.heading", StyleRole::Heading),
];

fn scope_roles() -> &'static [(Scope, StyleRole)] {
    static ROLES: OnceLock<Vec<(Scope, StyleRole)>> = OnceLock::new();
    ROLES.get_or_init(|| {
        SCOPE_ROLES
            .iter()
            .filter_map(|(name, role)| Scope::new(name).ok().map(|scope| (scope, *role)))
            .collect()
    })
}

fn style_role(stack: &ScopeStack) -> StyleRole {
    let named = |scope: &Scope| {
        scope_roles().iter().find(|(name, _)| name.is_prefix_of(*scope)).map(|(_, role)| *role)
    };
    stack.as_slice().iter().rev().find_map(named).unwrap_or(StyleRole::Text)
}

/// Highlights code line by line and keeps the state between lines, for example inside of a string.
#[derive(Clone)]
pub(super) struct Highlighter {
    state: Option<(ParseState, ScopeStack)>,
    /// Name of the grammar.
    grammar: String,
    bytes: usize,
    cpu_time: Duration,
}

/// Returns the grammars that have exceeded the limit.
fn slow_grammars() -> MutexGuard<'static, BTreeSet<String>> {
    static SLOW: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // The set remains valid after a panic in another thread.
    SLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Highlighter {
    /// Creates a highlighter for a language; unknown languages have no colours.
    pub(super) fn new(language: &str) -> Highlighter {
        let word = language.split([' ', ',', '{', ':']).next().unwrap_or_default();
        let found =
            if word.is_empty() || word.len() > 40 { None } else { syntax_set().find_syntax_by_token(word) };
        let found = found.filter(|syntax| !slow_grammars().contains(&syntax.name));
        Highlighter {
            state: found.map(|syntax| (ParseState::new(syntax), ScopeStack::new())),
            grammar: found.map(|syntax| syntax.name.clone()).unwrap_or_default(),
            bytes: 0,
            cpu_time: Duration::ZERO,
        }
    }

    /// Adds the usage of a copy that highlighted an incomplete line.
    pub(super) fn add_usage(&mut self, other: &Highlighter) {
        self.cpu_time = other.cpu_time;
    }

    /// Highlights one line without its newline.
    pub(super) fn highlight_line(&mut self, text: &Clean, theme: &Theme) -> Vec<StyledText> {
        let plain = || vec![StyledText::new(text.clone(), theme.role_style(StyleRole::Text))];
        self.bytes += text.as_str().len();
        if self.bytes > MAX_BLOCK_BYTES {
            self.state = None;
        }
        if self.cpu_time > MAX_BLOCK_TIME && self.state.take().is_some() {
            slow_grammars().insert(std::mem::take(&mut self.grammar));
        }
        let Some((state, stack)) = &mut self.state else { return plain() };
        if text.as_str().len() > MAX_LINE_BYTES {
            return plain();
        }
        let line = format!("{}\n", text.as_str());
        let began = thread_cpu_time();
        let changes = state.parse_line(&line, syntax_set());
        self.cpu_time += thread_cpu_time().saturating_sub(began);
        // After a grammar error the rest has no colours.
        let Ok(changes) = changes else {
            self.state = None;
            return plain();
        };
        let mut pieces = Vec::new();
        let mut from = 0;
        for (at, change) in changes {
            let at = at.min(text.as_str().len());
            if at > from {
                pieces.push(StyledText::new(text.slice(from, at), theme.role_style(style_role(stack))));
                from = at;
            }
            if stack.apply(&change).is_err() {
                self.state = None;
                return plain();
            }
        }
        pieces.push(StyledText::new(
            text.slice(from, text.as_str().len()),
            theme.role_style(style_role(stack)),
        ));
        pieces
    }
}

/// Renders a code block between two dim lines.
pub(super) fn code_lines(code: &Clean, language: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = vec![opening_line(language, width, theme)];
    let mut highlighter = Highlighter::new(language);
    for text in code.split_lines() {
        lines.extend(code_line(&mut highlighter, &text, width, theme));
    }
    lines.push(closing_line(width, theme));
    lines
}

pub(super) fn code_line(
    painter: &mut Highlighter,
    text: &Clean,
    width: u16,
    theme: &Theme,
) -> Vec<Line<'static>> {
    wrap_line(&painter.highlight_line(text, theme), width, &LinePrefix::default(), WrapMode::Anywhere)
}

pub(super) fn opening_line(language: &str, width: u16, theme: &Theme) -> Line<'static> {
    let style = theme.role_style(StyleRole::Dim);
    let name = Clean::from_prose_line(language.split_whitespace().next().unwrap_or_default());
    let mark = match (theme.plain, name.is_empty()) {
        (true, true) => "code:",
        (true, false) => "code: ",
        (false, true) => "┄┄",
        (false, false) => "┄┄ ",
    };
    truncate_line(&[StyledText::from_static(mark, style), StyledText::new(name, style)], width)
}

pub(super) fn closing_line(width: u16, theme: &Theme) -> Line<'static> {
    let mark = if theme.plain { "end of code" } else { "┄┄" };
    truncate_line(&[StyledText::from_static(mark, theme.role_style(StyleRole::Dim))], width)
}
