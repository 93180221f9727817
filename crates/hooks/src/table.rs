//! One `[[hook]]` of a file: its keys read, and whether they go together.
//!
//! Elsewhere: the file, and what becomes of a hook that cannot be read (`load`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::event::Event;
use crate::hook::{Handler, Hook, Layer, When};
use crate::load::TIMEOUT_DEFAULT;
use crate::near::unknown;

/// The longest name of a hook.
const NAME_CHARS: usize = 64;
/// The longest pattern, address or path.
const WORD_BYTES: usize = 4096;
/// The longest shell line: the same as of any command.
const LINE_BYTES: usize = minke_exec::command::COMMAND_BYTES;
const TIMEOUT_MOST: u64 = 300;
/// The most patterns of one condition.
const PATTERNS_MOST: usize = 64;

const KEYS: [&str; 9] = ["event", "name", "command", "http", "file", "socket", "when", "timeout_s", "strict"];
const HANDLERS: [&str; 4] = ["command", "http", "file", "socket"];
const CONDITIONS: [&str; 3] = ["tool", "path", "job"];

/// One hook while it is read.
pub(crate) struct Reading<'a> {
    pub(crate) text: &'a str,
    pub(crate) layer: Layer,
    pub(crate) file: &'a Path,
    pub(crate) line: usize,
    /// What is wrong with it, each with its line.
    pub(crate) wrong: Vec<(usize, String)>,
}

impl Reading<'_> {
    fn wrong(&mut self, at: &Spanned<DeValue<'_>>, why: impl Into<String>) {
        self.wrong.push((line_of(self.text, at.span().start), why.into()));
    }

    pub(crate) fn event(&mut self, value: &DeValue<'_>) -> Option<Event> {
        let Some(word) = value.as_table().and_then(|table| table.get("event")) else {
            let line = self.line;
            self.wrong.push((line, "a hook needs an `event`".to_owned()));
            return None;
        };
        let known: Vec<&str> = Event::ALL.iter().map(|event| event.as_str()).collect();
        match word.get_ref().as_str() {
            Some(name) => {
                let event = Event::parse(name);
                if event.is_none() {
                    self.wrong(word, unknown("event", name, &known));
                }
                event
            }
            None => {
                self.wrong(word, "`event` is a text");
                None
            }
        }
    }

    pub(crate) fn hook(&mut self, value: &DeValue<'_>, event: Option<Event>) -> Option<Hook> {
        let Some(table) = value.as_table() else {
            let line = self.line;
            self.wrong.push((line, "a hook is a table: write `[[hook]]` above it".to_owned()));
            return None;
        };
        for (key, _) in table {
            if !KEYS.contains(&key.get_ref().as_ref()) {
                let line = line_of(self.text, key.span().start);
                self.wrong.push((line, unknown("key", key.get_ref(), &KEYS)));
            }
        }
        let name = self.name(table);
        let strict = self.strict(table);
        let timeout = self.timeout(table);
        let handler = self.handler(table);
        let (event, handler) = (event?, handler?);
        let when = self.when(table, event);
        self.fit(table, event, &handler, strict);
        let name = name.unwrap_or_else(|| format!("{event} at {}:{}", file_name(self.file), self.line));
        let (layer, file, line) = (self.layer, self.file.to_owned(), self.line);
        Some(Hook { event, name, handler, when, timeout, strict, layer, file, line })
    }

    /// Whether event, handler and `strict` go together.
    fn fit(&mut self, table: &DeTable<'_>, event: Event, handler: &Handler, strict: bool) {
        let line = self.line;
        if !handler.answers() && !event.observable() {
            let why = format!(
                "`{event}` needs an answer, which a {} does not give: use command or http",
                handler.kind()
            );
            self.wrong.push((line, why));
        }
        if strict && !(event.steers() && handler.answers()) {
            let why = if event.steers() {
                format!("a {} gives no answer, so it cannot be strict", handler.kind())
            } else {
                format!("`{event}` cannot steer, so its hooks cannot be strict")
            };
            match table.get("strict") {
                Some(strict) => self.wrong(strict, why),
                None => self.wrong.push((line, why)),
            }
        }
    }

    fn name(&mut self, table: &DeTable<'_>) -> Option<String> {
        let value = table.get("name")?;
        let Some(name) = value.get_ref().as_str() else {
            self.wrong(value, "`name` is a text");
            return None;
        };
        if name.trim().is_empty() || name.chars().count() > NAME_CHARS || name.chars().any(char::is_control) {
            self.wrong(value, format!("`name` has 1 to {NAME_CHARS} characters on one line"));
        }
        Some(name.to_owned())
    }

    fn strict(&mut self, table: &DeTable<'_>) -> bool {
        let Some(value) = table.get("strict") else { return false };
        let read = value.get_ref().as_bool();
        if read.is_none() {
            self.wrong(value, "`strict` is true or false");
        }
        read.unwrap_or(true)
    }

    fn timeout(&mut self, table: &DeTable<'_>) -> Duration {
        let Some(value) = table.get("timeout_s") else { return Duration::from_secs(TIMEOUT_DEFAULT) };
        let number = value.get_ref().as_integer();
        let number = number.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        let good = number.filter(|number| (1..=TIMEOUT_MOST).contains(number));
        if good.is_none() {
            self.wrong(value, format!("`timeout_s` is a whole number from 1 to {TIMEOUT_MOST}"));
        }
        Duration::from_secs(good.unwrap_or(TIMEOUT_DEFAULT))
    }

    fn handler(&mut self, table: &DeTable<'_>) -> Option<Handler> {
        let given: Vec<&str> = HANDLERS.into_iter().filter(|key| table.contains_key(*key)).collect();
        let [key] = given[..] else {
            let why = if given.is_empty() {
                "a hook needs one of command, http, file, socket".to_owned()
            } else {
                format!("a hook does one thing, and this one has {}: make several of it", given.join(" and "))
            };
            let line = self.line;
            self.wrong.push((line, why));
            return None;
        };
        let value = table.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            self.wrong(value, format!("`{key}` is a text"));
            return None;
        };
        let most = if key == "command" { LINE_BYTES } else { WORD_BYTES };
        if text.trim().is_empty() || text.len() > most || text.contains('\0') {
            self.wrong(value, format!("`{key}` has 1 to {most} bytes, and no NUL among them"));
            return None;
        }
        match key {
            "command" => Some(Handler::Command(text.to_owned())),
            "http" => match crate::http::check(text) {
                Ok(()) => Some(Handler::Http(text.to_owned())),
                Err(why) => {
                    self.wrong(value, format!("`http`: {why}"));
                    None
                }
            },
            _ => {
                let path = PathBuf::from(text);
                if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
                    self.wrong(value, format!("`{key}` is an absolute path without `..`"));
                    return None;
                }
                Some(if key == "file" {
                    Handler::File(crate::sink::resolved(&path))
                } else {
                    Handler::Socket(path)
                })
            }
        }
    }

    fn when(&mut self, table: &DeTable<'_>, event: Event) -> When {
        let mut when = When::default();
        let Some(value) = table.get("when") else { return when };
        let Some(conditions) = value.get_ref().as_table() else {
            self.wrong(value, "`when` is a table, as in `when = { tool = \"Bash\" }`");
            return when;
        };
        for (key, patterns) in conditions {
            let word: &str = key.get_ref();
            if !CONDITIONS.contains(&word) {
                let line = line_of(self.text, key.span().start);
                self.wrong.push((line, unknown("condition", word, &CONDITIONS)));
            } else if word == "job" {
                when.named = self.named(event, patterns);
            } else if !event.has_tool() {
                let why =
                    format!("`{event}` has no {word}, so this hook would never be called: leave it out");
                self.wrong(patterns, why);
            } else {
                let globs = self.globs(word, patterns);
                *(if word == "tool" { &mut when.tool } else { &mut when.path }) = globs;
            }
        }
        when
    }

    /// `job = "named"`.
    fn named(&mut self, event: Event, value: &Spanned<DeValue<'_>>) -> bool {
        if event != Event::Job {
            self.wrong(value, format!("`{event}` has no job: leave it out, or make the event `job`"));
        } else if value.get_ref().as_str() != Some("named") {
            self.wrong(value, "`job` is \"named\": only jobs whose mandate names this hook in `notify`");
        }
        true
    }

    /// One pattern, or a list of them.
    fn globs(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<GlobMatcher> {
        let one = [value.clone()];
        let list: &[Spanned<DeValue<'_>>] = match value.get_ref().as_array() {
            Some(list) => list,
            None => &one,
        };
        if list.is_empty() || list.len() > PATTERNS_MOST {
            self.wrong(value, format!("`{key}` has 1 to {PATTERNS_MOST} patterns"));
            return Vec::new();
        }
        let mut globs = Vec::new();
        for pattern in list {
            let Some(text) =
                pattern.get_ref().as_str().filter(|text| !text.is_empty() && text.len() <= WORD_BYTES)
            else {
                self.wrong(
                    pattern,
                    format!("`{key}` is a pattern such as \"Bash\" or \"**/*.rs\", or a list of them"),
                );
                continue;
            };
            match GlobBuilder::new(text).literal_separator(key == "path").build() {
                Ok(glob) => globs.push(glob.compile_matcher()),
                Err(error) => self.wrong(pattern, format!("`{key}`: {error}")),
            }
        }
        globs
    }
}

/// The line of a place in a text.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

pub(crate) fn file_name(file: &Path) -> String {
    file.file_name().map_or_else(|| "hooks.toml".to_owned(), |name| name.to_string_lossy().into_owned())
}
