//! The logs of the tour, as anybody could read them: sessions, lives, calls and what came of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use minke_client::Home;
use minke_record::{CallId, Entry, Holder, Item, Kind, Opened, Outcome, SessionId};
use serde_json::Value;

use super::place::{FORBIDDEN, TARGET};
use crate::failure::Failure;

/// The sessions of the tour, oldest first, each with all its entries.
pub(super) struct Logs {
    pub(super) sessions: Vec<(SessionId, Vec<Entry>)>,
}

impl Logs {
    pub(super) fn read(home: &Home) -> Result<Logs, Failure> {
        let mut sessions = Vec::new();
        for session in home.store.list()? {
            let mut entries = Vec::new();
            home.store.reader(session)?.scan(0, &mut |sealed| {
                entries.push(sealed.entry);
                ControlFlow::Continue(())
            })?;
            sessions.push((session, entries));
        }
        Ok(Logs { sessions })
    }

    pub(super) fn of(&self, session: SessionId) -> &[Entry] {
        self.sessions.iter().find(|(id, _)| *id == session).map_or(&[], |(_, entries)| entries)
    }

    pub(super) fn named(&self, name: &str) -> Option<(SessionId, &[Entry])> {
        let named = |entries: &[Entry]| matches!(entries.first().map(|entry| &entry.kind), Some(Kind::SessionStart(start)) if start.name.as_str() == name);
        self.sessions
            .iter()
            .find(|(_, entries)| named(entries))
            .map(|(id, entries)| (*id, entries.as_slice()))
    }
}

/// How the newest life of a session's pod began.
pub(super) fn last_opened(home: &Home, session: SessionId) -> Result<Option<Opened>, Failure> {
    let mut last = None;
    home.store.reader(session)?.scan(0, &mut |sealed| {
        if let Kind::Opened(opened) = sealed.entry.kind
            && opened.holder == Holder::Pod
        {
            last = Some(opened);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// A call and what came of it, as they stand in a log.
#[derive(Debug)]
pub(super) struct Called<'a> {
    pub(super) tool: String,
    pub(super) args: Value,
    pub(super) outcome: Outcome,
    pub(super) summary: &'a str,
    pub(super) said: &'a str,
    pub(super) is_error: bool,
}

/// The calls of a log that have a result, oldest first.
pub(super) fn results(entries: &[Entry]) -> Vec<Called<'_>> {
    let mut wishes: BTreeMap<&CallId, (&str, Value)> = BTreeMap::new();
    let mut called = Vec::new();
    for entry in entries {
        match &entry.kind {
            Kind::AssistantItem(assistant) => {
                if let Item::ToolCall { call_id, name, arguments } = &assistant.item {
                    let args = arguments.here().and_then(|text| serde_json::from_str(text).ok());
                    wishes.insert(call_id, (name, args.unwrap_or_default()));
                }
            }
            Kind::ToolResult(result) => {
                let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
                    continue;
                };
                let Some((tool, args)) = wishes.remove(call_id) else { continue };
                called.push(Called {
                    tool: tool.to_owned(),
                    args,
                    outcome: result.outcome.clone(),
                    summary,
                    said: content.as_ref().and_then(|text| text.here()).unwrap_or_default(),
                    is_error: *is_error,
                });
            }
            _ => {}
        }
    }
    called
}

/// The entries of each life of a session's pod, each beginning with its `opened`.
pub(super) fn lives(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let mut lives: Vec<Vec<&Entry>> = Vec::new();
    for entry in entries {
        if matches!(&entry.kind, Kind::Opened(opened) if opened.holder == Holder::Pod) {
            lives.push(Vec::new());
        }
        if let Some(life) = lives.last_mut() {
            life.push(entry);
        }
    }
    lives
}

/// The exit code in a command's summary.
pub(super) fn exit_of(summary: &str) -> Option<i32> {
    let (_, rest) = summary.rsplit_once("exit ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The error of the kernel in the words that C libraries have for it.
pub(super) fn errno(said: &str) -> Option<&'static str> {
    const WORDS: [(&str, &str); 3] = [
        ("Read-only file system", "EROFS"),
        ("Permission denied", "EACCES"),
        ("Operation not permitted", "EPERM"),
    ];
    WORDS.iter().find(|(words, _)| said.contains(words)).map(|(_, name)| *name)
}

/// Whether a call tries to write outside the loan of the pod that makes it.
pub(super) fn is_escape(tool: &str, args: &Value) -> bool {
    match tool {
        "Bash" => args["command"].as_str().is_some_and(|line| line.contains(&format!("/{TARGET}"))),
        "Write" => ends_with(args, FORBIDDEN[1]),
        _ => false,
    }
}

/// Whether a call is about this file of the workspace.
pub(super) fn ends_with(args: &Value, name: &str) -> bool {
    args["file_path"].as_str().is_some_and(|path| path.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_read_from_a_summary() {
        assert_eq!(exit_of("echo exit 7 (exit 1)"), Some(1));
        assert_eq!(exit_of("sh test.sh (exit 0)"), Some(0));
        assert_eq!(exit_of("sh test.sh (killed)"), None);
        assert_eq!(exit_of("exit"), None);
    }
}
