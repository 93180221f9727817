//! Parses one `[[hook]]` of a file and checks the combination of its keys.
//!
//! Elsewhere: the file, and the handling of invalid hooks (`load`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::event::HookEvent;
use crate::hook::{Hook, HookCondition, HookHandler, HookLayer};
use crate::load::DEFAULT_TIMEOUT_S;
use crate::suggest::unknown_message;

/// The maximum length of a hook name.
const MAX_NAME_CHARS: usize = 64;
/// The maximum length of a pattern, address or path.
const MAX_WORD_BYTES: usize = 4096;
/// The maximum length of a shell line, as for any command.
const MAX_COMMAND_BYTES: usize = minke_exec::command::MAX_COMMAND_BYTES;
const MAX_TIMEOUT_S: u64 = 300;
/// The maximum number of patterns in a condition.
const MAX_PATTERNS: usize = 64;

const HOOK_KEYS: [&str; 9] =
    ["event", "name", "command", "http", "file", "socket", "when", "timeout_s", "strict"];
const HANDLER_KEYS: [&str; 4] = ["command", "http", "file", "socket"];
const CONDITION_KEYS: [&str; 3] = ["tool", "path", "job"];

/// Parses one hook.
pub(crate) struct HookParser<'a> {
    pub(crate) text: &'a str,
    pub(crate) layer: HookLayer,
    pub(crate) file: &'a Path,
    pub(crate) line: usize,
    /// Problems, each with its line.
    pub(crate) problems: Vec<(usize, String)>,
}

impl HookParser<'_> {
    fn add_problem(&mut self, at: &Spanned<DeValue<'_>>, why: impl Into<String>) {
        self.problems.push((line_number(self.text, at.span().start), why.into()));
    }

    pub(crate) fn parse_event(&mut self, value: &DeValue<'_>) -> Option<HookEvent> {
        let Some(word) = value.as_table().and_then(|table| table.get("event")) else {
            let line = self.line;
            self.problems.push((line, "a hook needs an `event`".to_owned()));
            return None;
        };
        let known: Vec<&str> = HookEvent::ALL.iter().map(|event| event.as_str()).collect();
        match word.get_ref().as_str() {
            Some(name) => {
                let event = HookEvent::from_name(name);
                if event.is_none() {
                    self.add_problem(word, unknown_message("event", name, &known));
                }
                event
            }
            None => {
                self.add_problem(word, "`event` must be a string");
                None
            }
        }
    }

    pub(crate) fn parse_hook(&mut self, value: &DeValue<'_>, event: Option<HookEvent>) -> Option<Hook> {
        let Some(table) = value.as_table() else {
            let line = self.line;
            self.problems.push((line, "a hook must be a table: write `[[hook]]` above it".to_owned()));
            return None;
        };
        for (key, _) in table {
            if !HOOK_KEYS.contains(&key.get_ref().as_ref()) {
                let line = line_number(self.text, key.span().start);
                self.problems.push((line, unknown_message("key", key.get_ref(), &HOOK_KEYS)));
            }
        }
        let name = self.parse_name(table);
        let strict = self.parse_strict(table);
        let timeout = self.parse_timeout(table);
        let handler = self.parse_handler(table);
        let (event, handler) = (event?, handler?);
        let when = self.parse_condition(table, event);
        self.check_combination(table, event, &handler, strict);
        let name = name.unwrap_or_else(|| format!("{event} at {}:{}", file_name(self.file), self.line));
        let (layer, file, line) = (self.layer, self.file.to_owned(), self.line);
        Some(Hook { event, name, handler, when, timeout, strict, layer, file, line })
    }

    /// Checks the combination of event, handler and `strict`.
    fn check_combination(
        &mut self,
        table: &DeTable<'_>,
        event: HookEvent,
        handler: &HookHandler,
        strict: bool,
    ) {
        let line = self.line;
        if !handler.can_answer() && !event.is_observable() {
            let why = format!(
                "`{event}` needs an answer, which a {} cannot return: use command or http",
                handler.kind_name()
            );
            self.problems.push((line, why));
        }
        if strict && !(event.can_steer() && handler.can_answer()) {
            let why = if event.can_steer() {
                format!("a {} cannot answer, so it cannot be strict", handler.kind_name())
            } else {
                format!("`{event}` cannot steer, so its hooks cannot be strict")
            };
            match table.get("strict") {
                Some(strict) => self.add_problem(strict, why),
                None => self.problems.push((line, why)),
            }
        }
    }

    fn parse_name(&mut self, table: &DeTable<'_>) -> Option<String> {
        let value = table.get("name")?;
        let Some(name) = value.get_ref().as_str() else {
            self.add_problem(value, "`name` must be a string");
            return None;
        };
        if name.trim().is_empty()
            || name.chars().count() > MAX_NAME_CHARS
            || name.chars().any(char::is_control)
        {
            self.add_problem(value, format!("`name` must have 1 to {MAX_NAME_CHARS} characters on one line"));
        }
        Some(name.to_owned())
    }

    fn parse_strict(&mut self, table: &DeTable<'_>) -> bool {
        let Some(value) = table.get("strict") else { return false };
        let read = value.get_ref().as_bool();
        if read.is_none() {
            self.add_problem(value, "`strict` must be true or false");
        }
        read.unwrap_or(true)
    }

    fn parse_timeout(&mut self, table: &DeTable<'_>) -> Duration {
        let Some(value) = table.get("timeout_s") else { return Duration::from_secs(DEFAULT_TIMEOUT_S) };
        let number = value.get_ref().as_integer();
        let number = number.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        let good = number.filter(|number| (1..=MAX_TIMEOUT_S).contains(number));
        if good.is_none() {
            self.add_problem(value, format!("`timeout_s` must be an integer from 1 to {MAX_TIMEOUT_S}"));
        }
        Duration::from_secs(good.unwrap_or(DEFAULT_TIMEOUT_S))
    }

    fn parse_handler(&mut self, table: &DeTable<'_>) -> Option<HookHandler> {
        let given: Vec<&str> = HANDLER_KEYS.into_iter().filter(|key| table.contains_key(*key)).collect();
        let [key] = given[..] else {
            let why = if given.is_empty() {
                "a hook needs one of command, http, file, socket".to_owned()
            } else {
                format!("a hook has one handler, and this one has {}: split it", given.join(" and "))
            };
            let line = self.line;
            self.problems.push((line, why));
            return None;
        };
        let value = table.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            self.add_problem(value, format!("`{key}` must be a string"));
            return None;
        };
        let limit = if key == "command" { MAX_COMMAND_BYTES } else { MAX_WORD_BYTES };
        if text.trim().is_empty() || text.len() > limit || text.contains('\0') {
            self.add_problem(value, format!("`{key}` must have 1 to {limit} bytes without NUL"));
            return None;
        }
        match key {
            "command" => Some(HookHandler::Command(text.to_owned())),
            "http" => match crate::http::check_url(text) {
                Ok(()) => Some(HookHandler::Http(text.to_owned())),
                Err(why) => {
                    self.add_problem(value, format!("`http`: {why}"));
                    None
                }
            },
            _ => {
                let path = PathBuf::from(text);
                if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
                    self.add_problem(value, format!("`{key}` must be an absolute path without `..`"));
                    return None;
                }
                Some(if key == "file" {
                    HookHandler::File(crate::sink::resolve_path(&path))
                } else {
                    HookHandler::Socket(path)
                })
            }
        }
    }

    fn parse_condition(&mut self, table: &DeTable<'_>, event: HookEvent) -> HookCondition {
        let mut when = HookCondition::default();
        let Some(value) = table.get("when") else { return when };
        let Some(conditions) = value.get_ref().as_table() else {
            self.add_problem(value, "`when` must be a table, as in `when = { tool = \"Bash\" }`");
            return when;
        };
        for (key, patterns) in conditions {
            let word: &str = key.get_ref();
            if !CONDITION_KEYS.contains(&word) {
                let line = line_number(self.text, key.span().start);
                self.problems.push((line, unknown_message("condition", word, &CONDITION_KEYS)));
            } else if word == "job" {
                when.named_jobs_only = self.parse_job_filter(event, patterns);
            } else if !event.has_tool() {
                let why = format!("`{event}` has no {word}, so this hook would never be called: remove it");
                self.add_problem(patterns, why);
            } else {
                let globs = self.parse_globs(word, patterns);
                *(if word == "tool" { &mut when.tool } else { &mut when.path }) = globs;
            }
        }
        when
    }

    /// `job = "named"`.
    fn parse_job_filter(&mut self, event: HookEvent, value: &Spanned<DeValue<'_>>) -> bool {
        if event != HookEvent::Job {
            self.add_problem(value, format!("`{event}` has no job: remove it, or use the event `job`"));
        } else if value.get_ref().as_str() != Some("named") {
            self.add_problem(
                value,
                "`job` must be \"named\": only jobs whose mandate names this hook in `notify`",
            );
        }
        true
    }

    /// One pattern, or a list of them.
    fn parse_globs(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<GlobMatcher> {
        let one = [value.clone()];
        let list: &[Spanned<DeValue<'_>>] = match value.get_ref().as_array() {
            Some(list) => list,
            None => &one,
        };
        if list.is_empty() || list.len() > MAX_PATTERNS {
            self.add_problem(value, format!("`{key}` has 1 to {MAX_PATTERNS} patterns"));
            return Vec::new();
        }
        let mut globs = Vec::new();
        for pattern in list {
            let Some(text) =
                pattern.get_ref().as_str().filter(|text| !text.is_empty() && text.len() <= MAX_WORD_BYTES)
            else {
                self.add_problem(
                    pattern,
                    format!("`{key}` must be a pattern such as \"Bash\" or \"**/*.rs\", or a list of them"),
                );
                continue;
            };
            match GlobBuilder::new(text).literal_separator(key == "path").build() {
                Ok(glob) => globs.push(glob.compile_matcher()),
                Err(error) => self.add_problem(pattern, format!("`{key}`: {error}")),
            }
        }
        globs
    }
}

/// The line number of an offset.
pub(crate) fn line_number(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

pub(crate) fn file_name(file: &Path) -> String {
    file.file_name().map_or_else(|| "hooks.toml".to_owned(), |name| name.to_string_lossy().into_owned())
}
