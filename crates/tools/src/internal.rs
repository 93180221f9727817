//! Internal tools: the agent's plan (TaskCreate, TaskUpdate, TaskList, TaskGet) and a question to the user
//! (AskUser).
//!
//! This module parses their arguments. They change only the pod's log, so the core (`pod`) executes them, and
//! `run` is never called. The log keeps their texts, so every text has a maximum length
//! (`every_bad_argument_is_told_in_words`).

use std::sync::Arc;

use minke_record::{Action, Class, InternalCall, TaskStatus, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{keep_end, parse_arguments};

/// The maximum length of a subject, which is one line of a list.
const MAX_SUBJECT_BYTES: usize = 200;
/// The maximum length of a description: a few paragraphs.
const MAX_DESCRIPTION_BYTES: usize = 4 * 1024;
/// The maximum length of a question: one screen.
const MAX_QUESTION_BYTES: usize = 4 * 1024;
/// The maximum number of options.
const MAX_OPTIONS: usize = 8;
const MAX_OPTION_BYTES: usize = 200;

/// The maximum length of a wrong value in an error.
const MAX_ECHO_BYTES: usize = 60;

/// Returns the tools that the core of a pod executes, sorted by name.
pub fn internal_tools() -> Vec<Arc<dyn Tool>> {
    use InternalToolKind::{AskUser, TaskCreate, TaskGet, TaskList, TaskUpdate};
    let all = [AskUser, TaskCreate, TaskGet, TaskList, TaskUpdate];
    all.into_iter().map(|which| Arc::new(InternalTool(which)) as Arc<dyn Tool>).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InternalToolKind {
    AskUser,
    TaskCreate,
    TaskGet,
    TaskList,
    TaskUpdate,
}

struct InternalTool(InternalToolKind);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskCreateArguments {
    subject: String,
    #[serde(default)]
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskUpdateArguments {
    id: u64,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskGetArguments {
    id: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskListArguments {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskUserArguments {
    question: String,
    #[serde(default)]
    options: Option<Vec<String>>,
}

impl InternalTool {
    fn tool_name(&self) -> &'static str {
        match self.0 {
            InternalToolKind::AskUser => "AskUser",
            InternalToolKind::TaskCreate => "TaskCreate",
            InternalToolKind::TaskGet => "TaskGet",
            InternalToolKind::TaskList => "TaskList",
            InternalToolKind::TaskUpdate => "TaskUpdate",
        }
    }

    fn tool_description(&self) -> &'static str {
        match self.0 {
            InternalToolKind::AskUser => {
                "Asks the person a question and waits for the answer. Use it for a decision that only they can make and \
                 that you cannot find out or undo; otherwise decide yourself and say so. With options they choose one; \
                 without, any words are an answer."
            }
            InternalToolKind::TaskCreate => {
                "Adds a task to your plan, which the person sees. Plan work of three or more steps; skip it for less. \
                 The result has the task's id. New tasks are pending."
            }
            InternalToolKind::TaskGet => "Shows one task of your plan with its description.",
            InternalToolKind::TaskList => "Lists the tasks of your plan with their ids and states.",
            InternalToolKind::TaskUpdate => {
                "Changes a task of your plan; omitted fields stay the same. Set in_progress when you begin, completed as soon \
                 as it is done and checked, deleted when it is not needed. Work on one task at a time."
            }
        }
    }

    fn tool_schema(&self) -> Value {
        let id = json!({ "type": "integer", "minimum": 0, "description": "The task's id." });
        let subject = json!({ "type": "string", "description": "The task in one line." });
        let description = json!({ "type": "string", "description": "Details: the parts of the task, and when it is done." });
        let words: Vec<&str> = TaskStatus::KNOWN.iter().map(TaskStatus::as_str).collect();
        let (properties, required) = match self.0 {
            InternalToolKind::AskUser => {
                let options = json!({
                    "type": "array",
                    "items": { "type": "string" },
                    "maxItems": MAX_OPTIONS,
                    "description": "Short answers to choose from.",
                });
                (json!({ "question": { "type": "string" }, "options": options }), vec!["question"])
            }
            InternalToolKind::TaskCreate => {
                (json!({ "subject": subject, "description": description }), vec!["subject"])
            }
            InternalToolKind::TaskGet => (json!({ "id": id }), vec!["id"]),
            InternalToolKind::TaskList => (json!({}), Vec::new()),
            InternalToolKind::TaskUpdate => {
                let status = json!({ "type": "string", "enum": words });
                let all =
                    json!({ "id": id, "subject": subject, "description": description, "status": status });
                (all, vec!["id"])
            }
        };
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    fn parse_call(&self, arguments: &str) -> Result<InternalCall, ToolError> {
        let name = self.tool_name();
        match self.0 {
            InternalToolKind::AskUser => {
                let AskUserArguments { question, options } = parse_arguments(name, arguments)?;
                let options = options.unwrap_or_default();
                check_text("question", &question, MAX_QUESTION_BYTES)?;
                check_options(&options)?;
                Ok(InternalCall::AskUser { question, options })
            }
            InternalToolKind::TaskCreate => {
                let TaskCreateArguments { subject, description } = parse_arguments(name, arguments)?;
                check_task(Some(&subject), description.as_deref())?;
                Ok(InternalCall::TaskCreate { subject, description })
            }
            InternalToolKind::TaskGet => {
                parse_arguments(name, arguments).map(|TaskGetArguments { id }| InternalCall::TaskGet { id })
            }
            // Some models send an empty text instead of an empty object.
            InternalToolKind::TaskList if arguments.trim().is_empty() => Ok(InternalCall::TaskList),
            InternalToolKind::TaskList => {
                parse_arguments(name, arguments).map(|TaskListArguments {}| InternalCall::TaskList)
            }
            InternalToolKind::TaskUpdate => {
                let TaskUpdateArguments { id, subject, description, status } =
                    parse_arguments(name, arguments)?;
                check_task(subject.as_deref(), description.as_deref())?;
                let status = status.as_deref().map(parse_status).transpose()?;
                if subject.is_none() && description.is_none() && status.is_none() {
                    return Err(invalid_arguments(format!(
                        "TaskUpdate changes nothing of task {id}: give `status`, `subject` or `description`"
                    )));
                }
                Ok(InternalCall::TaskUpdate { id, subject, description, status })
            }
        }
    }
}

impl Tool for InternalTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.tool_name().into(),
            description: self.tool_description().into(),
            schema: self.tool_schema(),
        }
    }

    fn class(&self) -> Class {
        Class::Pure
    }

    fn prepare(&self, arguments: &str, _place: &ToolContext) -> Result<Action, ToolError> {
        self.parse_call(arguments).map(|_| Action::default())
    }

    fn internal_call(&self, arguments: &str) -> Result<Option<InternalCall>, ToolError> {
        self.parse_call(arguments).map(Some)
    }

    fn execute(&self, _arguments: &str, _call: &ToolInvocation) -> ToolFuture {
        let message = format!(
            "{} was run like an ordinary tool, but the pod executes it itself: this is a bug in Minke",
            self.tool_name()
        );
        Box::pin(std::future::ready(Err(ToolError::Internal(message))))
    }
}

pub(crate) fn invalid_arguments(what: String) -> ToolError {
    ToolError::InvalidArguments(what)
}

/// Checks that a text is not empty and not too long.
pub(crate) fn check_text(key: &str, text: &str, most: usize) -> Result<(), ToolError> {
    if text.trim().is_empty() {
        return Err(invalid_arguments(format!("`{key}` is empty: give a text")));
    }
    if text.contains('\0') {
        return Err(invalid_arguments(format!("`{key}` contains a NUL character: remove it")));
    }
    if text.len() > most {
        let length = text.len();
        return Err(invalid_arguments(format!(
            "`{key}` has {length} bytes, at most {most} are allowed: shorten it"
        )));
    }
    Ok(())
}

fn check_one_line(key: &str, text: &str) -> Result<(), ToolError> {
    if text.contains(['\n', '\r']) {
        return Err(invalid_arguments(format!("`{key}` has several lines: give one line")));
    }
    Ok(())
}

fn check_task(subject: Option<&str>, description: Option<&str>) -> Result<(), ToolError> {
    if let Some(subject) = subject {
        check_text("subject", subject, MAX_SUBJECT_BYTES)?;
        check_one_line("subject", subject)?;
    }
    // An empty description removes the existing one.
    match description {
        None | Some("") => Ok(()),
        Some(text) => check_text("description", text, MAX_DESCRIPTION_BYTES),
    }
}

fn check_options(options: &[String]) -> Result<(), ToolError> {
    if options.len() > MAX_OPTIONS {
        let count = options.len();
        return Err(invalid_arguments(format!(
            "`options` has {count} answers, at most {MAX_OPTIONS} are allowed: offer fewer"
        )));
    }
    for (place, option) in options.iter().enumerate() {
        let which = format!("options[{place}]");
        if option.trim().is_empty() {
            let message = format!("`{which}` is empty: give an answer, or remove it");
            return Err(invalid_arguments(message));
        }
        check_text(&which, option, MAX_OPTION_BYTES)?;
        check_one_line(&which, option)?;
        if options.iter().take(place).any(|other| other == option) {
            let shown = keep_end(option, MAX_ECHO_BYTES);
            return Err(invalid_arguments(format!(
                "`options` contains `{shown}` twice: give each answer once"
            )));
        }
    }
    Ok(())
}

fn parse_status(word: &str) -> Result<TaskStatus, ToolError> {
    match TaskStatus::from(word) {
        TaskStatus::Other(_) => {
            let words: Vec<&str> = TaskStatus::KNOWN.iter().map(TaskStatus::as_str).collect();
            let (shown, words) = (keep_end(word, MAX_ECHO_BYTES), words.join(", "));
            Err(invalid_arguments(format!("`status` is `{shown}`, but must be one of {words}")))
        }
        status => Ok(status),
    }
}
