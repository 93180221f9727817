//! Templates: texts with a few variables and includes.
//!
//! The language is a small part of Jinja: `{{ variable }}`, `{% if %}`, `{% for %}`,
//! `{% include "$user/x" %}`, `{% raw %}`, comments, comparisons, and the filters of `filters`. No construct
//! makes a value larger than its inputs, so the limits on steps and output bound time and memory.
//! Invariant: `every_hostile_template_ends_with_an_error`, `an_undefined_variable_is_told_with_its_place`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use minke_text::suggest_name;

use crate::asset::{AssetName, AssetSet};

/// Maximum size of a rendered instruction.
pub const MAX_INSTRUCTION_BYTES: usize = 128 << 10;
/// Maximum number of rendering steps.
const MAX_RENDER_STEPS: u64 = 200_000;
/// Maximum depth of includes and loops. An include counts ten.
const MAX_DEPTH: usize = 200;
/// Maximum number of tokens between `{%` and `%}`, because the engine parses some of them recursively.
const MAX_TAG_TOKENS: usize = 100;
/// Maximum number of branches of one template, for the same reason.
const MAX_BRANCHES: usize = 200;

/// All variables.
pub const VARIABLES: [&str; 7] = ["cwd", "date", "language", "model", "platform", "tools", "workspace"];
/// Keywords that start a block.
const STATEMENT_KEYWORDS: [&str; 9] =
    ["elif", "else", "endfor", "endif", "endraw", "for", "if", "include", "raw"];
/// Keywords within expressions.
const EXPRESSION_KEYWORDS: [&str; 12] =
    ["and", "else", "false", "False", "if", "in", "is", "loop", "none", "not", "or", "true"];
const FILTERS: [&str; 4] = ["join", "length", "lower", "upper"];

/// The variables of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptVariables {
    /// The day on which the session was created: `2026-11-16`.
    pub date: String,
    pub cwd: String,
    pub workspace: String,
    /// The configured language, or a phrase for the user's language.
    pub language: String,
    /// The names of the tools.
    pub tools: Vec<String>,
    pub platform: String,
    /// `provider/model`; empty if unknown.
    pub model: String,
}

/// An error in a prompt and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptError {
    /// The asset with the error.
    pub asset: String,
    pub line: Option<u32>,
    pub message: String,
    pub hint: Option<String>,
}

impl fmt::Display for PromptError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.asset)?;
        if let Some(line) = self.line {
            write!(out, ":{line}")?;
        }
        write!(out, ": {}", self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, "; {hint}"))
    }
}

impl std::error::Error for PromptError {}

/// Formats a time as a day in UTC: `2026-11-16`.
pub fn format_day(millis: u64) -> String {
    // Years start in March, so that a leap day is the last day of its year.
    let days = millis / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
}

/// Checks the tokens of a template and returns its includes with their lines.
pub(crate) fn check_template(name: &AssetName, text: &str) -> Result<Vec<(u32, AssetName)>, PromptError> {
    let error = |line: u32, message: String, hint: Option<String>| PromptError {
        asset: name.to_string(),
        line: Some(line),
        message,
        hint,
    };
    if let Some(at) = text.find('\0') {
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        return Err(error(u32::try_from(line).unwrap_or(u32::MAX), "it contains a NUL".to_owned(), None));
    }
    let mut checker = TemplateChecker::default();
    for token in tokenize(text, false, SyntaxConfig::default()) {
        let (token, span) = token.map_err(|e| template_error(name, &e))?;
        let line = u32::from(span.start_line);
        checker.check_token(&token, line).map_err(|(what, hint)| error(line, what, hint))?;
    }
    let mut included = Vec::new();
    for (line, path) in checker.included {
        let inner = path.parse::<AssetName>();
        included
            .push((line, inner.map_err(|e| error(line, format!("`{}`: {}", e.asset, e.message), e.hint))?));
    }
    for (variable, line) in checker.variable_uses {
        if !VARIABLES.contains(&variable.as_str()) && !checker.loop_variables.contains(&variable) {
            let suggestion = suggest_name(&variable, VARIABLES);
            let hint = match suggestion {
                Some(near) => format!("the nearest is `{near}`"),
                None => format!("there are {}", VARIABLES.join(", ")),
            };
            return Err(error(line, format!("`{variable}` is not a variable"), Some(hint)));
        }
    }
    Ok(included)
}

/// Checks template tokens in order.
#[derive(Default)]
struct TemplateChecker {
    /// Tokens since the tag began, and branches.
    in_tag: usize,
    branches: usize,
    /// A block has just begun.
    at_block_start: bool,
    preceding: PrecedingToken,
    included: Vec<(u32, String)>,
    variable_uses: Vec<(String, u32)>,
    /// Loop variables.
    loop_variables: BTreeSet<String>,
}

#[derive(Default, PartialEq)]
enum PrecedingToken {
    #[default]
    Other,
    Dot,
    Pipe,
    Is,
    For,
    Include,
}

type TemplateProblem = (String, Option<String>);

impl TemplateChecker {
    fn check_token(&mut self, token: &Token<'_>, line: u32) -> Result<(), TemplateProblem> {
        let before = std::mem::take(&mut self.preceding);
        self.in_tag = match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => 0,
            _ => self.in_tag + 1,
        };
        if self.in_tag > MAX_TAG_TOKENS {
            return Err((format!("more than {MAX_TAG_TOKENS} tokens in one tag"), None));
        }
        if before == PrecedingToken::Include && !matches!(token, Token::Str(_) | Token::String(_)) {
            return Err(("`include` needs an asset name in quotes".to_owned(), None));
        }
        match token {
            Token::BlockStart => self.at_block_start = true,
            Token::Ident(word) if self.at_block_start => self.check_statement(word)?,
            Token::Ident(word) => self.check_word(word, &before, line)?,
            Token::Str(path) if before == PrecedingToken::Include => {
                self.included.push((line, (*path).to_owned()))
            }
            Token::String(path) if before == PrecedingToken::Include => {
                self.included.push((line, path.to_string()))
            }
            Token::Dot => self.preceding = PrecedingToken::Dot,
            Token::Pipe => self.preceding = PrecedingToken::Pipe,
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
            // Other tokens could make a value larger than its inputs.
            other => return Err((format!("templates of prompts have no {other}"), None)),
        }
        Ok(())
    }

    fn check_statement(&mut self, word: &str) -> Result<(), TemplateProblem> {
        self.at_block_start = false;
        if !STATEMENT_KEYWORDS.contains(&word) {
            let suggestion =
                suggest_name(word, STATEMENT_KEYWORDS).map(|near| format!("the nearest is `{near}`"));
            let hint = suggestion.or_else(|| Some("there are if, for, include and raw".to_owned()));
            return Err((format!("templates of prompts have no `{{% {} %}}`", word.escape_debug()), hint));
        }
        self.branches += usize::from(word == "elif");
        if self.branches > MAX_BRANCHES {
            return Err((format!("there are more than {MAX_BRANCHES} `elif` in it"), None));
        }
        self.preceding = match word {
            "for" => PrecedingToken::For,
            "include" => PrecedingToken::Include,
            _ => PrecedingToken::Other,
        };
        Ok(())
    }

    fn check_word(&mut self, word: &str, before: &PrecedingToken, line: u32) -> Result<(), TemplateProblem> {
        match before {
            PrecedingToken::Dot => {}
            PrecedingToken::Pipe if FILTERS.contains(&word) => {}
            PrecedingToken::Pipe => {
                let suggestion = suggest_name(word, FILTERS).map(|near| format!("the nearest is `{near}`"));
                let hint = suggestion.unwrap_or_else(|| format!("there are {}", FILTERS.join(", ")));
                return Err((format!("`{word}` is not a filter"), Some(hint)));
            }
            PrecedingToken::Is => {
                return Err(("templates of prompts have no tests with `is`".to_owned(), None));
            }
            PrecedingToken::For => {
                self.loop_variables.insert(word.to_owned());
            }
            PrecedingToken::Include | PrecedingToken::Other if word == "is" => {
                self.preceding = PrecedingToken::Is
            }
            PrecedingToken::Include | PrecedingToken::Other if EXPRESSION_KEYWORDS.contains(&word) => {}
            PrecedingToken::Include | PrecedingToken::Other => {
                self.variable_uses.push((word.to_owned(), line))
            }
        }
        Ok(())
    }
}

/// Renders an asset.
pub fn render_asset(
    name: &AssetName,
    assets: &AssetSet,
    variables: &PromptVariables,
) -> Result<String, PromptError> {
    let env = template_environment(assets)?;
    let template = env.get_template(&name.to_string()).map_err(|e| template_error(name, &e))?;
    let mut out = LimitedBuffer { bytes: Vec::new(), is_full: false };
    match template.render_captured_to(template_values(variables), &mut out) {
        Ok(_) => {}
        Err(_) if out.is_full => {
            let message = format!("it becomes longer than {MAX_INSTRUCTION_BYTES} bytes");
            return Err(PromptError { asset: name.to_string(), line: None, message, hint: None });
        }
        Err(e) => return Err(template_error(name, &e)),
    }
    let text = String::from_utf8(out.bytes).map_err(|e| PromptError {
        asset: name.to_string(),
        line: None,
        message: format!("the result is not UTF-8: {e}"),
        hint: None,
    })?;
    Ok(text.trim_end().to_owned())
}

fn template_environment(assets: &AssetSet) -> Result<Environment<'_>, PromptError> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(MAX_RENDER_STEPS));
    env.set_recursion_limit(MAX_DEPTH);
    env.add_filter("join", join_filter);
    env.add_filter("length", |value: Value| value.len());
    env.add_filter("lower", |text: String| text.to_lowercase());
    env.add_filter("upper", |text: String| text.to_uppercase());
    for (name, text) in &assets.texts {
        env.add_template_owned(name.to_string(), text.as_str()).map_err(|e| template_error(name, &e))?;
    }
    Ok(env)
}

/// The only filter that could make a value larger than its inputs.
fn join_filter(list: Vec<String>, between: Option<String>) -> Result<String, Error> {
    let between = between.unwrap_or_default();
    let bytes = list.iter().map(String::len).sum::<usize>() + between.len() * list.len();
    if bytes > MAX_INSTRUCTION_BYTES {
        let what = format!("it would give more than {MAX_INSTRUCTION_BYTES} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, what));
    }
    Ok(list.join(&between))
}

fn template_values(variables: &PromptVariables) -> Value {
    let PromptVariables { date, cwd, workspace, language, tools, platform, model } = variables;
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

/// Converts an engine error, with the innermost known location.
fn template_error(name: &AssetName, error: &Error) -> PromptError {
    let mut inner = error;
    while let Some(deeper) = std::error::Error::source(inner).and_then(|e| e.downcast_ref::<Error>()) {
        inner = deeper;
    }
    let asset =
        inner.name().filter(|name| name.starts_with('$')).map_or_else(|| name.to_string(), str::to_owned);
    let line = inner.line().and_then(|line| u32::try_from(line).ok());
    let message = match inner.kind() {
        ErrorKind::OutOfFuel => format!("it takes more than {MAX_RENDER_STEPS} steps"),
        kind => match inner.detail() {
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        },
    };
    PromptError { asset, line, message, hint: None }
}

/// A writer with a size limit.
struct LimitedBuffer {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for LimitedBuffer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > MAX_INSTRUCTION_BYTES {
            self.is_full = true;
            return Err(io::Error::other("full"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
