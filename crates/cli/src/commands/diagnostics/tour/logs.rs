//! Logs of the tour: sessions, processes, calls and results, from the public log format.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use minke_client::UserHome;
use minke_record::{CallId, Entry, Holder, Item, Kind, Opened, Outcome, SessionId};
use serde_json::Value;

use super::workspace::{FORBIDDEN_FILES, TARGET_FILE};
use crate::error::CliError;

/// The sessions of the tour, oldest first, each with all entries.
pub(super) struct TourLogs {
    pub(super) sessions: Vec<(SessionId, Vec<Entry>)>,
}

impl TourLogs {
    pub(super) fn load(home: &UserHome) -> Result<TourLogs, CliError> {
        let mut sessions = Vec::new();
        for session in home.store.list_sessions()? {
            let mut entries = Vec::new();
            home.store.open_reader(session)?.scan_entries(0, &mut |sealed| {
                entries.push(sealed.entry);
                ControlFlow::Continue(())
            })?;
            sessions.push((session, entries));
        }
        Ok(TourLogs { sessions })
    }

    pub(super) fn entries_of(&self, session: SessionId) -> &[Entry] {
        self.sessions.iter().find(|(id, _)| *id == session).map_or(&[], |(_, entries)| entries)
    }

    pub(super) fn find_by_name(&self, name: &str) -> Option<(SessionId, &[Entry])> {
        let named = |entries: &[Entry]| matches!(entries.first().map(|entry| &entry.kind), Some(Kind::SessionStart(start)) if start.name.as_str() == name);
        self.sessions
            .iter()
            .find(|(_, entries)| named(entries))
            .map(|(id, entries)| (*id, entries.as_slice()))
    }
}

/// Returns the `opened` entry of the newest pod process of a session.
pub(super) fn last_opened(home: &UserHome, session: SessionId) -> Result<Option<Opened>, CliError> {
    let mut last = None;
    home.store.open_reader(session)?.scan_entries(0, &mut |sealed| {
        if let Kind::Opened(opened) = sealed.entry.kind
            && opened.holder == Holder::Pod
        {
            last = Some(opened);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// A call and its result in a log.
#[derive(Debug)]
pub(super) struct CompletedCall<'a> {
    pub(super) tool: String,
    pub(super) args: Value,
    pub(super) outcome: Outcome,
    pub(super) summary: &'a str,
    pub(super) output: &'a str,
    pub(super) is_error: bool,
}

/// Returns the calls of a log that have a result, oldest first.
pub(super) fn completed_calls(entries: &[Entry]) -> Vec<CompletedCall<'_>> {
    let mut requested: BTreeMap<&CallId, (&str, Value)> = BTreeMap::new();
    let mut completed = Vec::new();
    for entry in entries {
        match &entry.kind {
            Kind::AssistantItem(assistant) => {
                if let Item::ToolCall { call_id, name, arguments } = &assistant.item {
                    let args = arguments.inline().and_then(|text| serde_json::from_str(text).ok());
                    requested.insert(call_id, (name, args.unwrap_or_default()));
                }
            }
            Kind::ToolResult(result) => {
                let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
                    continue;
                };
                let Some((tool, args)) = requested.remove(call_id) else { continue };
                completed.push(CompletedCall {
                    tool: tool.to_owned(),
                    args,
                    outcome: result.outcome.clone(),
                    summary,
                    output: content.as_ref().and_then(|text| text.inline()).unwrap_or_default(),
                    is_error: *is_error,
                });
            }
            _ => {}
        }
    }
    completed
}

/// Splits the entries of a session by pod process; each part starts with its `opened`.
pub(super) fn split_by_process(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let mut processes: Vec<Vec<&Entry>> = Vec::new();
    for entry in entries {
        if matches!(&entry.kind, Kind::Opened(opened) if opened.holder == Holder::Pod) {
            processes.push(Vec::new());
        }
        if let Some(process) = processes.last_mut() {
            process.push(entry);
        }
    }
    processes
}

/// Parses the exit code in a command's summary.
pub(super) fn exit_code(summary: &str) -> Option<i32> {
    let (_, rest) = summary.rsplit_once("exit ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the name of the kernel error in a C library's message.
pub(super) fn errno_name(output: &str) -> Option<&'static str> {
    const WORDS: [(&str, &str); 3] = [
        ("Read-only file system", "EROFS"),
        ("Permission denied", "EACCES"),
        ("Operation not permitted", "EPERM"),
    ];
    WORDS.iter().find(|(words, _)| output.contains(words)).map(|(_, name)| *name)
}

/// Returns true for a call that tries to write outside the pod's loan.
pub(super) fn is_escape_attempt(tool: &str, args: &Value) -> bool {
    match tool {
        "Bash" => args["command"].as_str().is_some_and(|line| line.contains(&format!("/{TARGET_FILE}"))),
        "Write" => is_file_call(args, FORBIDDEN_FILES[1]),
        _ => false,
    }
}

/// Returns true for a call about this file of the workspace.
pub(super) fn is_file_call(args: &Value, name: &str) -> bool {
    args["file_path"].as_str().is_some_and(|path| path.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_read_from_a_summary() {
        assert_eq!(exit_code("echo exit 7 (exit 1)"), Some(1));
        assert_eq!(exit_code("sh test.sh (exit 0)"), Some(0));
        assert_eq!(exit_code("sh test.sh (killed)"), None);
        assert_eq!(exit_code("exit"), None);
    }
}
