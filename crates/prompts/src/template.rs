//! Templates: a text with places for a few variables, other texts included.
//!
//! Here: which words a template may use, rendering it within bounds, what is said when something is wrong. The language is
//! a small part of Jinja: `{{ variable }}`, `{% if %}`, `{% for %}`, `{% include "$user/x" %}`, `{% raw %}`, comments,
//! comparisons, and the filters of `filters`. Nothing in it makes a value larger than those that came in, so steps and
//! output bound time and memory.
//! Invariant: `every_hostile_template_ends_with_an_error`, `an_undefined_variable_is_told_with_its_place`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::asset::{AssetName, Assets, nearest};

/// The longest instruction that a template may become.
pub const INSTRUCTION_BYTES: usize = 128 << 10;
/// Steps of one rendering.
const FUEL: u64 = 200_000;
/// How deep includes and loops go. An include counts ten.
const DEPTH: usize = 200;
/// Words and signs between `{%` and `%}`: the engine reads some of them by recursion.
const TAG_TOKENS: usize = 100;
/// Branches of one template, for the same reason.
const BRANCHES: usize = 200;

/// The variables, all of them.
pub const VARIABLES: [&str; 7] = ["cwd", "date", "language", "model", "platform", "tools", "workspace"];
/// Words that begin a block.
const STATEMENTS: [&str; 9] = ["elif", "else", "endfor", "endif", "endraw", "for", "if", "include", "raw"];
/// Words inside of one.
const WORDS: [&str; 12] =
    ["and", "else", "false", "False", "if", "in", "is", "loop", "none", "not", "or", "true"];
const FILTERS: [&str; 4] = ["join", "length", "lower", "upper"];

/// What a template can speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variables {
    /// The day on which the session was made: `2026-11-16`.
    pub date: String,
    pub cwd: String,
    pub workspace: String,
    /// The language that was set, or words for the person's own.
    pub language: String,
    /// Names of the tools.
    pub tools: Vec<String>,
    pub platform: String,
    /// `provider/model`; empty if none is known.
    pub model: String,
}

/// What is wrong with a prompt, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptError {
    /// The asset in which it is.
    pub asset: String,
    pub line: Option<u32>,
    pub what: String,
    pub hint: Option<String>,
}

impl fmt::Display for PromptError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.asset)?;
        if let Some(line) = self.line {
            write!(out, ":{line}")?;
        }
        write!(out, ": {}", self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, "; {hint}"))
    }
}

impl std::error::Error for PromptError {}

/// The day of a moment, in UTC: `2026-11-16`.
pub fn day(millis: u64) -> String {
    // Years are counted from March, so that a leap day is the last of its year.
    let days = millis / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
}

/// Looks at the words of a template before it is used, and says what it includes, with the lines.
pub(crate) fn look(name: &AssetName, text: &str) -> Result<Vec<(u32, AssetName)>, PromptError> {
    let wrong = |line: u32, what: String, hint: Option<String>| PromptError {
        asset: name.to_string(),
        line: Some(line),
        what,
        hint,
    };
    if let Some(at) = text.find('\0') {
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        return Err(wrong(u32::try_from(line).unwrap_or(u32::MAX), "there is a NUL in it".to_owned(), None));
    }
    let mut reading = Reading::default();
    for token in tokenize(text, false, SyntaxConfig::default()) {
        let (token, span) = token.map_err(|e| told(name, &e))?;
        let line = u32::from(span.start_line);
        reading.take(&token, line).map_err(|(what, hint)| wrong(line, what, hint))?;
    }
    let mut included = Vec::new();
    for (line, path) in reading.included {
        let inner = path.parse::<AssetName>();
        included.push((line, inner.map_err(|e| wrong(line, format!("`{}`: {}", e.asset, e.what), e.hint))?));
    }
    for (variable, line) in reading.names {
        if !VARIABLES.contains(&variable.as_str()) && !reading.own.contains(&variable) {
            let near = nearest(&variable, VARIABLES.into_iter());
            let hint = match near {
                Some(near) => format!("the nearest is `{near}`"),
                None => format!("there are {}", VARIABLES.join(", ")),
            };
            return Err(wrong(line, format!("`{variable}` is no variable"), Some(hint)));
        }
    }
    Ok(included)
}

/// The words of a template, as they come.
#[derive(Default)]
struct Reading {
    /// Words since a tag began, and branches.
    in_tag: usize,
    branches: usize,
    /// A block has just begun.
    begins: bool,
    before: Before,
    included: Vec<(u32, String)>,
    names: Vec<(String, u32)>,
    /// What loops call their values.
    own: BTreeSet<String>,
}

#[derive(Default, PartialEq)]
enum Before {
    #[default]
    Other,
    Dot,
    Pipe,
    Is,
    For,
    Include,
}

type Wrong = (String, Option<String>);

impl Reading {
    fn take(&mut self, token: &Token<'_>, line: u32) -> Result<(), Wrong> {
        let before = std::mem::take(&mut self.before);
        self.in_tag = match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => 0,
            _ => self.in_tag + 1,
        };
        if self.in_tag > TAG_TOKENS {
            return Err((format!("more than {TAG_TOKENS} words and signs stand in one tag"), None));
        }
        if before == Before::Include && !matches!(token, Token::Str(_) | Token::String(_)) {
            return Err(("`include` wants the name of an asset in quotes".to_owned(), None));
        }
        match token {
            Token::BlockStart => self.begins = true,
            Token::Ident(word) if self.begins => self.begin(word)?,
            Token::Ident(word) => self.word(word, &before, line)?,
            Token::Str(path) if before == Before::Include => self.included.push((line, (*path).to_owned())),
            Token::String(path) if before == Before::Include => self.included.push((line, path.to_string())),
            Token::Dot => self.before = Before::Dot,
            Token::Pipe => self.before = Before::Pipe,
            Token::TemplateData(_)
            | Token::VariableStart
            | Token::VariableEnd
            | Token::BlockEnd
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Eq
            | Token::Ne
            | Token::Gt
            | Token::Gte
            | Token::Lt
            | Token::Lte
            | Token::ParenOpen
            | Token::ParenClose => {}
            // Whatever could make a value larger than those that came in.
            other => return Err((format!("templates of prompts have no {other}"), None)),
        }
        Ok(())
    }

    fn begin(&mut self, word: &str) -> Result<(), Wrong> {
        self.begins = false;
        if !STATEMENTS.contains(&word) {
            let near = nearest(word, STATEMENTS.into_iter()).map(|near| format!("the nearest is `{near}`"));
            let hint = near.or_else(|| Some("there are if, for, include and raw".to_owned()));
            return Err((format!("templates of prompts have no `{{% {} %}}`", word.escape_debug()), hint));
        }
        self.branches += usize::from(word == "elif");
        if self.branches > BRANCHES {
            return Err((format!("there are more than {BRANCHES} `elif` in it"), None));
        }
        self.before = match word {
            "for" => Before::For,
            "include" => Before::Include,
            _ => Before::Other,
        };
        Ok(())
    }

    fn word(&mut self, word: &str, before: &Before, line: u32) -> Result<(), Wrong> {
        match before {
            Before::Dot => {}
            Before::Pipe if FILTERS.contains(&word) => {}
            Before::Pipe => {
                let near = nearest(word, FILTERS.into_iter()).map(|near| format!("the nearest is `{near}`"));
                let hint = near.unwrap_or_else(|| format!("there are {}", FILTERS.join(", ")));
                return Err((format!("`{word}` is no filter"), Some(hint)));
            }
            Before::Is => return Err(("templates of prompts have no tests with `is`".to_owned(), None)),
            Before::For => {
                self.own.insert(word.to_owned());
            }
            Before::Include | Before::Other if word == "is" => self.before = Before::Is,
            Before::Include | Before::Other if WORDS.contains(&word) => {}
            Before::Include | Before::Other => self.names.push((word.to_owned(), line)),
        }
        Ok(())
    }
}

/// The text that an asset becomes.
pub fn render(name: &AssetName, assets: &Assets, variables: &Variables) -> Result<String, PromptError> {
    let env = environment(assets)?;
    let template = env.get_template(&name.to_string()).map_err(|e| told(name, &e))?;
    let mut out = Bounded { bytes: Vec::new(), full: false };
    match template.render_captured_to(values(variables), &mut out) {
        Ok(_) => {}
        Err(_) if out.full => {
            let what = format!("it becomes longer than {INSTRUCTION_BYTES} bytes");
            return Err(PromptError { asset: name.to_string(), line: None, what, hint: None });
        }
        Err(e) => return Err(told(name, &e)),
    }
    let text = String::from_utf8(out.bytes).map_err(|e| PromptError {
        asset: name.to_string(),
        line: None,
        what: format!("it became no text: {e}"),
        hint: None,
    })?;
    Ok(text.trim_end().to_owned())
}

fn environment(assets: &Assets) -> Result<Environment<'_>, PromptError> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(DEPTH);
    env.add_filter("join", join);
    env.add_filter("length", |value: Value| value.len());
    env.add_filter("lower", |text: String| text.to_lowercase());
    env.add_filter("upper", |text: String| text.to_uppercase());
    for (name, text) in &assets.texts {
        env.add_template_owned(name.to_string(), text.as_str()).map_err(|e| told(name, &e))?;
    }
    Ok(env)
}

/// The one filter by which a value could become larger than it was.
fn join(list: Vec<String>, between: Option<String>) -> Result<String, Error> {
    let between = between.unwrap_or_default();
    let bytes = list.iter().map(String::len).sum::<usize>() + between.len() * list.len();
    if bytes > INSTRUCTION_BYTES {
        let what = format!("it would give more than {INSTRUCTION_BYTES} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, what));
    }
    Ok(list.join(&between))
}

fn values(variables: &Variables) -> Value {
    let Variables { date, cwd, workspace, language, tools, platform, model } = variables;
    let texts = [
        ("date", date),
        ("cwd", cwd),
        ("workspace", workspace),
        ("language", language),
        ("platform", platform),
        ("model", model),
    ];
    let mut values: BTreeMap<&str, Value> =
        texts.into_iter().map(|(name, text)| (name, Value::from(text.as_str()))).collect();
    values.insert("tools", tools.iter().map(String::as_str).collect());
    Value::from(values)
}

/// The engine's words, with the innermost place that it knows.
fn told(name: &AssetName, error: &Error) -> PromptError {
    let mut inner = error;
    while let Some(deeper) = std::error::Error::source(inner).and_then(|e| e.downcast_ref::<Error>()) {
        inner = deeper;
    }
    let asset =
        inner.name().filter(|name| name.starts_with('$')).map_or_else(|| name.to_string(), str::to_owned);
    let line = inner.line().and_then(|line| u32::try_from(line).ok());
    let what = match inner.kind() {
        ErrorKind::OutOfFuel => format!("it takes more than {FUEL} steps"),
        kind => match inner.detail() {
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        },
    };
    PromptError { asset, line, what, hint: None }
}

/// Takes so much and no more.
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > INSTRUCTION_BYTES {
            self.full = true;
            return Err(io::Error::other("full"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
