//! Reads `hooks.toml`: valid hooks are used, invalid ones are reported with file and line.
//!
//! Here: the file format. Elsewhere: the meaning (`hook`, `event`), whether a workspace's file is read at all
//! (`trust`, `driver`).
//! Invariant: a strict hook that cannot be parsed blocks its event instead of being ignored
//! (`a_strict_hook_that_cannot_be_read_blocks`).

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::event::HookEvent;
use crate::hook::{Hook, HookCondition, HookHandler, HookLayer};
use crate::hook_parser::{HookParser, file_name, line_number};
use crate::suggest::unknown_message;

/// The maximum size of `hooks.toml`.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// The maximum number of hooks in a file.
pub const MAX_HOOKS: usize = 64;
pub(crate) const DEFAULT_TIMEOUT_S: u64 = 30;

/// The valid hooks, and the problems of the others.
#[derive(Debug, Clone, Default)]
pub struct LoadedHooks {
    pub hooks: Vec<Hook>,
    /// `FILE:LINE: problem`, for the user.
    pub problems: Vec<String>,
}

impl LoadedHooks {
    /// Adds the user's file, if it exists.
    #[must_use]
    pub fn add_user_file(mut self, file: &Path) -> LoadedHooks {
        match read_file(file) {
            Ok(None) => {}
            Ok(Some(text)) => self.parse_file(HookLayer::User, file, &text),
            Err(why) => {
                let why = format!(
                    "{}: {why}; until it can be read, every event that it may deny is blocked",
                    file.display()
                );
                self.add_blocking_hook(HookLayer::User, file, 0, &why, &STEERING_EVENTS);
                self.problems.push(why);
            }
        }
        self
    }

    /// Adds the file of a trusted workspace, from its text.
    #[must_use]
    pub fn add_workspace_file(mut self, file: &Path, text: &str) -> LoadedHooks {
        self.parse_file(HookLayer::Workspace, file, text);
        self
    }

    fn parse_file(&mut self, layer: HookLayer, file: &Path, text: &str) {
        let at = |offset: usize| line_number(text, offset);
        let problem = |line: usize, why: &str| format!("{}:{line}: {why}", file.display());
        let table = match DeTable::parse(text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let line = error.span().map_or(1, |span| at(span.start));
                let why = problem(line, &format!("invalid TOML: {}", error.message()));
                // Any of its hooks may be strict.
                if text.contains("strict") {
                    self.add_blocking_hook(layer, file, line, &why, &STEERING_EVENTS);
                }
                self.problems.push(why);
                return;
            }
        };
        for (key, value) in &table {
            if key.get_ref() != "hook" {
                let line = at(key.span().start);
                let why = problem(line, &unknown_message("key", key.get_ref(), &["hook"]));
                if mentions_strict(value.get_ref()) {
                    self.add_blocking_hook(layer, file, line, &why, &STEERING_EVENTS);
                }
                self.problems.push(why);
            }
        }
        let Some(hooks) = table.get("hook") else { return };
        let line = at(hooks.span().start);
        let Some(hooks) = hooks.get_ref().as_array() else {
            let why = problem(line, "`hook` is a list: write `[[hook]]` above each");
            if hooks.get_ref().as_table().is_some_and(|_| mentions_strict(hooks.get_ref())) {
                self.add_blocking_hook(layer, file, line, &why, &STEERING_EVENTS);
            }
            self.problems.push(why);
            return;
        };
        for (number, hook) in hooks.iter().enumerate() {
            let line = at(hook.span().start);
            let parser = HookParser { text, layer, file, line, problems: Vec::new() };
            if number >= MAX_HOOKS {
                let why =
                    problem(line, &format!("a file has at most {MAX_HOOKS} hooks: this one is ignored"));
                if mentions_strict(hook.get_ref()) {
                    self.add_blocking_hook(layer, file, line, &why, &STEERING_EVENTS);
                }
                self.problems.push(why);
                continue;
            }
            self.parse_hook(parser, hook.get_ref());
        }
    }

    fn parse_hook(&mut self, mut reading: HookParser<'_>, value: &DeValue<'_>) {
        let (layer, file, line) = (reading.layer, reading.file, reading.line);
        let event = reading.parse_event(value);
        let hook = reading.parse_hook(value, event);
        if let Some(hook) = &hook
            && let Some(other) =
                self.hooks.iter().find(|other| other.name == hook.name && other.layer == layer)
        {
            let why = format!("the name `{}` is already used by the hook at line {}", hook.name, other.line);
            reading.problems.push((line, why));
        }
        match hook {
            Some(hook) if reading.problems.is_empty() => self.hooks.push(hook),
            _ => {
                let mut reply: Vec<String> = reading
                    .problems
                    .iter()
                    .map(|(line, why)| format!("{}:{line}: {why}", file.display()))
                    .collect();
                if mentions_strict(value) {
                    let events = match event {
                        Some(event) if event.can_steer() => vec![event],
                        Some(_) => Vec::new(),
                        None => STEERING_EVENTS.to_vec(),
                    };
                    self.add_blocking_hook(layer, file, line, &reply.join("; "), &events);
                    if let Some(last) = reply.last_mut().filter(|_| !events.is_empty()) {
                        last.push_str(" (it is strict: it blocks until it is fixed)");
                    }
                }
                self.problems.append(&mut reply);
            }
        }
    }

    /// Adds a hook that blocks in place of a strict one that cannot be parsed.
    fn add_blocking_hook(
        &mut self,
        layer: HookLayer,
        file: &Path,
        line: usize,
        why: &str,
        events: &[HookEvent],
    ) {
        for event in events {
            self.hooks.push(Hook {
                event: *event,
                name: format!("{event} at {}:{line}", file_name(file)),
                handler: HookHandler::Invalid(why.to_owned()),
                when: HookCondition::default(),
                timeout: Duration::from_secs(DEFAULT_TIMEOUT_S),
                strict: true,
                layer,
                file: file.to_owned(),
                line,
            });
        }
    }
}

const STEERING_EVENTS: [HookEvent; 5] = [
    HookEvent::UserPrompt,
    HookEvent::BeforeTool,
    HookEvent::BeforeStop,
    HookEvent::PodSpawn,
    HookEvent::ShellEnv,
];

/// Whether a value contains `strict` with any value other than `false`.
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

/// The text of the user's own file; symbolic links are followed.
fn read_file(file: &Path) -> Result<Option<String>, String> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file);
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("could not open it: {error}")),
    };
    let meta = opened.metadata().map_err(|error| format!("could not read its metadata: {error}"))?;
    if !meta.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    opened
        .take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("could not read it: {error}"))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| "it is not UTF-8".to_owned())
}
