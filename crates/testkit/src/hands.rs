//! Scripted tools, one of each class, and the outside world that they change.
//!
//! Here: `Read` (pure), `Put` (verifiable), `Note` and `Sh` (once; `Sh` is a command, so the fence decides whether it is
//! asked about), those that the mind carries out itself, and a counter of what was really started. The outside world
//! outlives every kill; calls that are still running do not. Elsewhere: the real tools (`tools`).

use std::collections::{BTreeMap, VecDeque};

use minke_pod::{CallEnd, FileFound, Prepared};
use minke_record::{Action, Blob, CallId, Class, Own, Preview, Script, SnapshotFile, ToolSpec};
use serde_json::{Value, json};

/// Where `Note` writes.
const NOTES: &str = "/project/NOTES";

/// What is outside of the pod, and the calls that are running.
#[derive(Debug, Clone, Default)]
pub struct Hands {
    /// The lines of `NOTES`, in order.
    pub noted: Vec<String>,
    /// Files by path.
    pub files: BTreeMap<String, String>,
    /// How often each call that is not pure was started.
    pub started: BTreeMap<CallId, u64>,
    /// How often each tool was started.
    pub ran: BTreeMap<String, u64>,
    /// Calls whose change was made a second time although the file showed the first.
    pub repeated: Vec<CallId>,
    /// Calls end only when the story says so.
    pub hold: bool,
    held: VecDeque<(CallId, CallEnd)>,
}

/// The tools that are offered, sorted by name.
pub fn specs() -> Vec<ToolSpec> {
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
    specs.extend(crate::kin::TOOLS.iter().map(|name| spec(name, "Is about other pods.", &[])));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

fn field(tool: &str, arguments: &str, key: &str) -> Result<String, String> {
    let value: Value =
        serde_json::from_str(arguments).map_err(|e| format!("the arguments of {tool} are not JSON: {e}"))?;
    let text = value.get(key).and_then(Value::as_str);
    text.map(ToOwned::to_owned).ok_or_else(|| format!("{tool} needs `{key}`, a string"))
}

/// What a call asks of the pod itself.
fn own(tool: &str, arguments: &str) -> Result<Own, String> {
    let id = || field(tool, arguments, "id")?.parse().map_err(|e| format!("`id`: {e}"));
    Ok(match tool {
        "AskUser" => Own::AskUser { question: field(tool, arguments, "question")?, options: Vec::new() },
        "TaskCreate" => Own::TaskCreate { subject: field(tool, arguments, "subject")?, description: None },
        "TaskUpdate" => Own::TaskUpdate {
            id: id()?,
            subject: None,
            description: None,
            status: Some(field(tool, arguments, "status")?.as_str().into()),
        },
        "TaskGet" => Own::TaskGet { id: id()? },
        _ => Own::TaskList,
    })
}

fn hash(content: &str) -> String {
    Blob::new(content.as_bytes().to_vec()).name.blob
}

/// What a job's acceptance command is run with.
const ACCEPTANCE: &str = "Bash";

impl Hands {
    /// The scripts that a line names, as their files are now.
    pub fn scripts(&self, line: &str) -> Vec<Script> {
        let named = |word: &str| {
            let path = format!("/project/{word}");
            let text = self.files.get(&path).filter(|_| word.ends_with(".sh"))?;
            let hash = Some(hash(text));
            Some(Script { path, hash, text: Some(text.clone()), ..Script::default() })
        };
        line.split_whitespace().filter_map(named).collect()
    }

    /// What a call would touch. Looks only.
    pub fn prepare(&self, tool: &str, arguments: &str) -> Result<Prepared, String> {
        if let Some(prepared) = crate::kin::prepare(tool, arguments) {
            return prepared;
        }
        match tool {
            "Note" => {
                field(tool, arguments, "line")?;
                let action =
                    Action { writes: vec![NOTES.to_owned()], side_effects: true, ..Action::default() };
                Ok(Prepared::new(Class::Once, action))
            }
            "Read" => {
                let path = field(tool, arguments, "path")?;
                Ok(Prepared::new(Class::Pure, Action { reads: vec![path], ..Action::default() }))
            }
            "Sh" | ACCEPTANCE => {
                let command = field(tool, arguments, "command")?;
                let scripts = self.scripts(&command);
                let action =
                    Action { command: Some(command), scripts, side_effects: true, ..Action::default() };
                Ok(Prepared::new(Class::Once, action))
            }
            "Put" => {
                let path = field(tool, arguments, "path")?;
                let content = field(tool, arguments, "content")?;
                let before = self.files.get(&path).map(|content| hash(content));
                let file = SnapshotFile {
                    path: path.clone(),
                    mode: 0o100_644,
                    hash: before.clone().unwrap_or_default(),
                    blob: None,
                    at: None,
                    bytes: None,
                };
                let preview = Preview { path: path.clone(), before, after: hash(&content), diff: None };
                let action = Action { writes: vec![path], side_effects: true, ..Action::default() };
                let prepared = Prepared::new(Class::Verifiable, action);
                Ok(Prepared { preview: Some(preview), before: Some(file), ..prepared })
            }
            "AskUser" | "TaskCreate" | "TaskGet" | "TaskList" | "TaskUpdate" => {
                let own = Some(own(tool, arguments)?);
                Ok(Prepared { own, ..Prepared::new(Class::Pure, Action::default()) })
            }
            other => Err(format!("there is no tool `{other}`; there are Note, Put, Read and Sh")),
        }
    }

    /// Starts a call. What it changes is changed at once; when it is heard of depends on `hold`.
    pub fn start(&mut self, call: &CallId, tool: &str, arguments: &str) -> Option<CallEnd> {
        *self.ran.entry(tool.to_owned()).or_default() += 1;
        if tool != "Read" {
            *self.started.entry(call.clone()).or_default() += 1;
        }
        let again = self.started.get(call).is_some_and(|times| *times > 1);
        if again && tool == "Put" && self.is_put(arguments) {
            self.repeated.push(call.clone());
        }
        let end = match self.change(tool, arguments) {
            Ok(summary) => CallEnd::done(summary, None),
            Err(message) => CallEnd::Failed { message },
        };
        if self.hold {
            self.held.push_back((call.clone(), end));
            return None;
        }
        Some(end)
    }

    fn change(&mut self, tool: &str, arguments: &str) -> Result<String, String> {
        match tool {
            "Note" => {
                self.noted.push(field(tool, arguments, "line")?);
                Ok("noted".to_owned())
            }
            "Read" => {
                let path = field(tool, arguments, "path")?;
                let content = self.files.get(&path).ok_or_else(|| format!("there is no file {path}"))?;
                Ok(format!("{path}: {content}"))
            }
            "Sh" => Ok(format!("ran {}", field(tool, arguments, "command")?)),
            // `test PATH`: whether that file is there.
            ACCEPTANCE => {
                let command = field(tool, arguments, "command")?;
                let path = command.strip_prefix("test ").unwrap_or_default();
                let code = i32::from(!self.files.contains_key(path));
                Ok(format!("$ {command} (exit {code})"))
            }
            "Put" => {
                let path = field(tool, arguments, "path")?;
                let content = field(tool, arguments, "content")?;
                self.files.insert(path.clone(), content);
                Ok(format!("wrote {path}"))
            }
            other => Err(format!("there is no tool `{other}`")),
        }
    }

    fn is_put(&self, arguments: &str) -> bool {
        let path = field("Put", arguments, "path");
        let content = field("Put", arguments, "content");
        path.is_ok_and(|path| content.ok().as_ref() == self.files.get(&path))
    }

    /// What the file of a verifiable call says.
    pub fn check_file(&self, preview: &Preview) -> FileFound {
        let now = self.files.get(&preview.path).map(|content| hash(content));
        if now.as_ref() == Some(&preview.after) {
            FileFound::After
        } else if now == preview.before {
            FileFound::Before
        } else {
            FileFound::Neither
        }
    }

    /// The oldest call that is held.
    pub fn release(&mut self) -> Option<(CallId, CallEnd)> {
        self.held.pop_front()
    }

    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// A call is stopped: nothing more is heard of it.
    pub fn stop(&mut self, call: &CallId) {
        self.held.retain(|(id, _)| id != call);
    }

    /// The process is gone, and with it everything that was running.
    pub fn die(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_whether_a_put_took_effect() {
        let mut hands = Hands::default();
        let arguments = r#"{"path":"/a","content":"x"}"#;
        let preview = hands.prepare("Put", arguments).unwrap().preview.unwrap();
        assert_eq!(hands.check_file(&preview), FileFound::Before);
        hands.start(&"c".into(), "Put", arguments);
        assert_eq!(hands.check_file(&preview), FileFound::After);
        hands.files.insert("/a".into(), "y".into());
        assert_eq!(hands.check_file(&preview), FileFound::Neither);
        assert!(hands.prepare("Put", "{").is_err());
        assert!(hands.prepare("Song", "{}").is_err());
    }
}
