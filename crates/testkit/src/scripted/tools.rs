//! Scripted tools, one of each class, and the state that they change.
//!
//! `Read` (pure), `Put` (verifiable), `Note` and `Sh` (once; `Sh` is a command, so the sandbox decides
//! whether it needs an ask), internal calls, and counters of started calls. The changed state survives every
//! kill; running calls do not. Elsewhere: the real tools (`tools`).

use std::collections::{BTreeMap, VecDeque};

use minke_pod::{CallEnd, FileCheck, PreparedCall};
use minke_record::{
    Action, Blob, CallId, Class, ExecutedScript, InternalCall, Preview, SnapshotFile, ToolSpec,
};
use serde_json::{Value, json};

/// The file that `Note` writes.
const NOTES_PATH: &str = "/project/NOTES";

/// The external state and the running calls.
#[derive(Debug, Clone, Default)]
pub struct ScriptedTools {
    /// The lines of `NOTES`, in order.
    pub note_lines: Vec<String>,
    /// Files by path.
    pub files: BTreeMap<String, String>,
    /// Number of starts of each call that is not pure.
    pub start_counts: BTreeMap<CallId, u64>,
    /// Number of starts of each tool.
    pub run_counts: BTreeMap<String, u64>,
    /// Calls that repeated a change although the file showed it.
    pub repeated_puts: Vec<CallId>,
    /// Calls end only on request of the story.
    pub hold_calls: bool,
    held_calls: VecDeque<(CallId, CallEnd)>,
}

/// Returns the offered tools, sorted by name.
pub fn tool_specs() -> Vec<ToolSpec> {
    let spec = |name: &str, description: &str, keys: &[&str]| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: json!({
            "type": "object",
            "properties": keys.iter().map(|k| ((*k).to_owned(), json!({"type": "string"}))).collect::<serde_json::Map<_, _>>(),
            "required": keys,
        }),
    };
    let mut specs = vec![
        spec("AskUser", "Asks a person.", &["question"]),
        spec("Note", "Appends a line to NOTES.", &["line"]),
        spec("Put", "Replaces a file.", &["path", "content"]),
        spec("Read", "Reads a file.", &["path"]),
        spec("Sh", "Runs a command.", &["command"]),
        spec("TaskCreate", "Adds a task.", &["subject"]),
        spec("TaskGet", "Shows a task.", &["id"]),
        spec("TaskList", "Shows all tasks.", &[]),
        spec("TaskUpdate", "Changes a task.", &["id", "status"]),
    ];
    specs.extend(crate::scripted::pods::POD_TOOLS.iter().map(|name| spec(name, "Is about other pods.", &[])));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

fn argument(tool: &str, arguments: &str, key: &str) -> Result<String, String> {
    let value: Value =
        serde_json::from_str(arguments).map_err(|e| format!("the arguments of {tool} are not JSON: {e}"))?;
    let text = value.get(key).and_then(Value::as_str);
    text.map(ToOwned::to_owned).ok_or_else(|| format!("{tool} needs `{key}`, a string"))
}

/// Parses an internal call.
fn parse_internal_call(tool: &str, arguments: &str) -> Result<InternalCall, String> {
    let id = || argument(tool, arguments, "id")?.parse().map_err(|e| format!("`id`: {e}"));
    Ok(match tool {
        "AskUser" => {
            InternalCall::AskUser { question: argument(tool, arguments, "question")?, options: Vec::new() }
        }
        "TaskCreate" => {
            InternalCall::TaskCreate { subject: argument(tool, arguments, "subject")?, description: None }
        }
        "TaskUpdate" => InternalCall::TaskUpdate {
            id: id()?,
            subject: None,
            description: None,
            status: Some(argument(tool, arguments, "status")?.as_str().into()),
        },
        "TaskGet" => InternalCall::TaskGet { id: id()? },
        _ => InternalCall::TaskList,
    })
}

fn content_hash(content: &str) -> String {
    Blob::new(content.as_bytes().to_vec()).name.blob
}

/// The tool of acceptance commands.
const ACCEPTANCE_TOOL: &str = "Bash";

impl ScriptedTools {
    /// Returns the scripts that a command names, with the current content.
    pub fn find_scripts(&self, line: &str) -> Vec<ExecutedScript> {
        let named = |word: &str| {
            let path = format!("/project/{word}");
            let text = self.files.get(&path).filter(|_| word.ends_with(".sh"))?;
            let hash = Some(content_hash(text));
            Some(ExecutedScript { path, hash, text: Some(text.clone()), ..ExecutedScript::default() })
        };
        line.split_whitespace().filter_map(named).collect()
    }

    /// Prepares a call without side effects.
    pub fn prepare_call(&self, tool: &str, arguments: &str) -> Result<PreparedCall, String> {
        if let Some(prepared) = crate::scripted::pods::prepare_pods_call(tool, arguments) {
            return prepared;
        }
        match tool {
            "Note" => {
                argument(tool, arguments, "line")?;
                let action =
                    Action { writes: vec![NOTES_PATH.to_owned()], side_effects: true, ..Action::default() };
                Ok(PreparedCall::new(Class::Once, action))
            }
            "Read" => {
                let path = argument(tool, arguments, "path")?;
                Ok(PreparedCall::new(Class::Pure, Action { reads: vec![path], ..Action::default() }))
            }
            "Sh" | ACCEPTANCE_TOOL => {
                let command = argument(tool, arguments, "command")?;
                let scripts = self.find_scripts(&command);
                let action =
                    Action { command: Some(command), scripts, side_effects: true, ..Action::default() };
                Ok(PreparedCall::new(Class::Once, action))
            }
            "Put" => {
                let path = argument(tool, arguments, "path")?;
                let content = argument(tool, arguments, "content")?;
                let before = self.files.get(&path).map(|content| content_hash(content));
                let file = SnapshotFile {
                    path: path.clone(),
                    mode: 0o100_644,
                    hash: before.clone().unwrap_or_default(),
                    blob: None,
                    at: None,
                    bytes: None,
                };
                let preview =
                    Preview { path: path.clone(), before, after: content_hash(&content), diff: None };
                let action = Action { writes: vec![path], side_effects: true, ..Action::default() };
                let prepared = PreparedCall::new(Class::Verifiable, action);
                Ok(PreparedCall { preview: Some(preview), file_before: Some(file), ..prepared })
            }
            "AskUser" | "TaskCreate" | "TaskGet" | "TaskList" | "TaskUpdate" => {
                let internal_call = Some(parse_internal_call(tool, arguments)?);
                Ok(PreparedCall { internal_call, ..PreparedCall::new(Class::Pure, Action::default()) })
            }
            other => Err(format!("there is no tool `{other}`; there are Note, Put, Read and Sh")),
        }
    }

    /// Starts a call and applies its change immediately; `hold_calls` delays the result.
    pub fn start_call(&mut self, call: &CallId, tool: &str, arguments: &str) -> Option<CallEnd> {
        *self.run_counts.entry(tool.to_owned()).or_default() += 1;
        if tool != "Read" {
            *self.start_counts.entry(call.clone()).or_default() += 1;
        }
        let again = self.start_counts.get(call).is_some_and(|times| *times > 1);
        if again && tool == "Put" && self.is_put_done(arguments) {
            self.repeated_puts.push(call.clone());
        }
        let end = match self.apply_change(tool, arguments) {
            Ok(summary) => CallEnd::done(summary, None),
            Err(message) => CallEnd::Failed { message },
        };
        if self.hold_calls {
            self.held_calls.push_back((call.clone(), end));
            return None;
        }
        Some(end)
    }

    fn apply_change(&mut self, tool: &str, arguments: &str) -> Result<String, String> {
        match tool {
            "Note" => {
                self.note_lines.push(argument(tool, arguments, "line")?);
                Ok("noted".to_owned())
            }
            "Read" => {
                let path = argument(tool, arguments, "path")?;
                let content = self.files.get(&path).ok_or_else(|| format!("there is no file {path}"))?;
                Ok(format!("{path}: {content}"))
            }
            "Sh" => Ok(format!("ran {}", argument(tool, arguments, "command")?)),
            // `test PATH`: whether the file exists.
            ACCEPTANCE_TOOL => {
                let command = argument(tool, arguments, "command")?;
                let path = command.strip_prefix("test ").unwrap_or_default();
                let code = i32::from(!self.files.contains_key(path));
                Ok(format!("$ {command} (exit {code})"))
            }
            "Put" => {
                let path = argument(tool, arguments, "path")?;
                let content = argument(tool, arguments, "content")?;
                self.files.insert(path.clone(), content);
                Ok(format!("wrote {path}"))
            }
            other => Err(format!("there is no tool `{other}`")),
        }
    }

    fn is_put_done(&self, arguments: &str) -> bool {
        let path = argument("Put", arguments, "path");
        let content = argument("Put", arguments, "content");
        path.is_ok_and(|path| content.ok().as_ref() == self.files.get(&path))
    }

    /// Checks the file of a verifiable call.
    pub fn check_file(&self, preview: &Preview) -> FileCheck {
        let now = self.files.get(&preview.path).map(|content| content_hash(content));
        if now.as_ref() == Some(&preview.after) {
            FileCheck::After
        } else if now == preview.before {
            FileCheck::Before
        } else {
            FileCheck::Neither
        }
    }

    /// Returns the oldest held call.
    pub fn release_call(&mut self) -> Option<(CallId, CallEnd)> {
        self.held_calls.pop_front()
    }

    pub fn has_held_calls(&self) -> bool {
        !self.held_calls.is_empty()
    }

    /// Stops a call; its result is dropped.
    pub fn stop_call(&mut self, call: &CallId) {
        self.held_calls.retain(|(id, _)| id != call);
    }

    /// Drops all running calls after a crash.
    pub fn drop_calls(&mut self) {
        self.held_calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_whether_a_put_took_effect() {
        let mut tools = ScriptedTools::default();
        let arguments = r#"{"path":"/a","content":"x"}"#;
        let preview = tools.prepare_call("Put", arguments).unwrap().preview.unwrap();
        assert_eq!(tools.check_file(&preview), FileCheck::Before);
        tools.start_call(&"c".into(), "Put", arguments);
        assert_eq!(tools.check_file(&preview), FileCheck::After);
        tools.files.insert("/a".into(), "y".into());
        assert_eq!(tools.check_file(&preview), FileCheck::Neither);
        assert!(tools.prepare_call("Put", "{").is_err());
        assert!(tools.prepare_call("Song", "{}").is_err());
    }
}
