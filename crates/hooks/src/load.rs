//! Reading `hooks.toml`: what is good counts, what is not is named with file and line.
//!
//! Here: the words of the file. Elsewhere: what they mean (`hook`, `event`), whether a workspace's file is read at all
//! (`trust`, `driver`).
//! Invariant: a strict hook never vanishes because it cannot be read; it blocks instead
//! (`a_strict_hook_that_cannot_be_read_blocks`).

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::event::Event;
use crate::hook::{Handler, Hook, Layer, When};
use crate::near::unknown;
use crate::table::{Reading, file_name, line_of};

/// The largest `hooks.toml`.
pub const FILE_BYTES: usize = 256 * 1024;
/// The most hooks of one file.
pub const HOOKS_MOST: usize = 64;
pub(crate) const TIMEOUT_DEFAULT: u64 = 30;

/// The hooks that count, and what is wrong with the others.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    pub hooks: Vec<Hook>,
    /// `FILE:LINE: what is wrong`, for the person.
    pub problems: Vec<String>,
}

impl Loaded {
    /// Adds the user's file; one that is not there says nothing.
    #[must_use]
    pub fn user(mut self, file: &Path) -> Loaded {
        match read(file) {
            Ok(None) => {}
            Ok(Some(text)) => self.take(Layer::User, file, &text),
            Err(why) => {
                let why =
                    format!("{}: {why}; until it can be read, what it may forbid is blocked", file.display());
                self.block(Layer::User, (file, 0), &why, &STEERING);
                self.problems.push(why);
            }
        }
        self
    }

    /// Adds the file of a workspace that is trusted, as it was read.
    #[must_use]
    pub fn workspace(mut self, file: &Path, text: &str) -> Loaded {
        self.take(Layer::Workspace, file, text);
        self
    }

    fn take(&mut self, layer: Layer, file: &Path, text: &str) {
        let at = |offset: usize| line_of(text, offset);
        let problem = |line: usize, why: &str| format!("{}:{line}: {why}", file.display());
        let table = match DeTable::parse(text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let line = error.span().map_or(1, |span| at(span.start));
                let why = problem(line, &format!("this is no TOML: {}", error.message()));
                // Nobody knows which of its hooks are strict.
                if text.contains("strict") {
                    self.block(layer, (file, line), &why, &STEERING);
                }
                self.problems.push(why);
                return;
            }
        };
        for (key, value) in &table {
            if key.get_ref() != "hook" {
                let line = at(key.span().start);
                let why = problem(line, &unknown("key", key.get_ref(), &["hook"]));
                if mentions_strict(value.get_ref()) {
                    self.block(layer, (file, line), &why, &STEERING);
                }
                self.problems.push(why);
            }
        }
        let Some(hooks) = table.get("hook") else { return };
        let line = at(hooks.span().start);
        let Some(hooks) = hooks.get_ref().as_array() else {
            let why = problem(line, "`hook` is a list: write `[[hook]]` above each");
            if hooks.get_ref().as_table().is_some_and(|_| mentions_strict(hooks.get_ref())) {
                self.block(layer, (file, line), &why, &STEERING);
            }
            self.problems.push(why);
            return;
        };
        for (number, hook) in hooks.iter().enumerate() {
            let line = at(hook.span().start);
            let reading = Reading { text, layer, file, line, wrong: Vec::new() };
            if number >= HOOKS_MOST {
                let why =
                    problem(line, &format!("a file has at most {HOOKS_MOST} hooks: this one is left out"));
                if mentions_strict(hook.get_ref()) {
                    self.block(layer, (file, line), &why, &STEERING);
                }
                self.problems.push(why);
                continue;
            }
            self.take_hook(reading, hook.get_ref());
        }
    }

    fn take_hook(&mut self, mut reading: Reading<'_>, value: &DeValue<'_>) {
        let (layer, file, line) = (reading.layer, reading.file, reading.line);
        let event = reading.event(value);
        let hook = reading.hook(value, event);
        if let Some(hook) = &hook
            && let Some(other) =
                self.hooks.iter().find(|other| other.name == hook.name && other.layer == layer)
        {
            let why = format!("the name `{}` is taken by the hook at line {}", hook.name, other.line);
            reading.wrong.push((line, why));
        }
        match hook {
            Some(hook) if reading.wrong.is_empty() => self.hooks.push(hook),
            _ => {
                let mut said: Vec<String> = reading
                    .wrong
                    .iter()
                    .map(|(line, why)| format!("{}:{line}: {why}", file.display()))
                    .collect();
                if mentions_strict(value) {
                    let events = match event {
                        Some(event) if event.steers() => vec![event],
                        Some(_) => Vec::new(),
                        None => STEERING.to_vec(),
                    };
                    self.block(layer, (file, line), &said.join("; "), &events);
                    if let Some(last) = said.last_mut().filter(|_| !events.is_empty()) {
                        last.push_str(" (it is strict: until it is mended, it blocks)");
                    }
                }
                self.problems.append(&mut said);
            }
        }
    }

    /// In the place of a strict hook that cannot be read.
    fn block(&mut self, layer: Layer, (file, line): (&Path, usize), why: &str, events: &[Event]) {
        for event in events {
            self.hooks.push(Hook {
                event: *event,
                name: format!("{event} at {}:{line}", file_name(file)),
                handler: Handler::Broken(why.to_owned()),
                when: When::default(),
                timeout: Duration::from_secs(TIMEOUT_DEFAULT),
                strict: true,
                layer,
                file: file.to_owned(),
                line,
            });
        }
    }
}

const STEERING: [Event; 5] =
    [Event::UserPrompt, Event::BeforeTool, Event::BeforeStop, Event::PodSpawn, Event::ShellEnv];

/// Whether a table in it says `strict`, whatever it says besides `false`.
fn mentions_strict(value: &DeValue<'_>) -> bool {
    if let Some(list) = value.as_array() {
        return list.iter().any(|one| mentions_strict(one.get_ref()));
    }
    value.as_table().is_some_and(|table| {
        table.iter().any(|(key, value)| {
            (key.get_ref() == "strict" && value.get_ref().as_bool() != Some(false))
                || mentions_strict(value.get_ref())
        })
    })
}

/// The text of the user's own file; a link is followed, since people keep such files elsewhere.
fn read(file: &Path) -> Result<Option<String>, String> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file);
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be opened: {error}")),
    };
    let meta = opened.metadata().map_err(|error| format!("it cannot be looked at: {error}"))?;
    if !meta.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    opened
        .take(FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() > FILE_BYTES {
        return Err(format!("it has more than {FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| "it is not UTF-8".to_owned())
}
