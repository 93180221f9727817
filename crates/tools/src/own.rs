//! The pod's own calls: the agent's plan (TaskCreate, TaskUpdate, TaskList, TaskGet) and a question to a person (AskUser).
//!
//! Here: what they are called with. They touch nothing but the pod's log, so the mind carries them out (`pod`), and `run`
//! is never reached. What is kept in the log for good is short, so every text has a bound
//! (`every_bad_argument_is_told_in_words`).

use std::sync::Arc;

use minke_record::{Action, Class, Own, TaskStatus, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{parse, shorten};

/// A task's subject stands in a list, one line each.
const SUBJECT_BYTES: usize = 200;
/// What is to be done for a task: a paragraph or two.
const DESCRIPTION_BYTES: usize = 4 * 1024;
/// A question is read on one screen.
const QUESTION_BYTES: usize = 4 * 1024;
/// More answers than this are not a choice.
const OPTIONS: usize = 8;
const OPTION_BYTES: usize = 200;

/// How much of a wrong word an error repeats.
const SHOWN_BYTES: usize = 60;

/// The tools that a pod's mind carries out itself, sorted by name.
pub fn own_tools() -> Vec<Arc<dyn Tool>> {
    use Which::{AskUser, TaskCreate, TaskGet, TaskList, TaskUpdate};
    let all = [AskUser, TaskCreate, TaskGet, TaskList, TaskUpdate];
    all.into_iter().map(|which| Arc::new(OwnTool(which)) as Arc<dyn Tool>).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    AskUser,
    TaskCreate,
    TaskGet,
    TaskList,
    TaskUpdate,
}

struct OwnTool(Which);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    subject: String,
    #[serde(default)]
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
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
struct Get {
    id: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    question: String,
    #[serde(default)]
    options: Option<Vec<String>>,
}

impl OwnTool {
    fn name(&self) -> &'static str {
        match self.0 {
            Which::AskUser => "AskUser",
            Which::TaskCreate => "TaskCreate",
            Which::TaskGet => "TaskGet",
            Which::TaskList => "TaskList",
            Which::TaskUpdate => "TaskUpdate",
        }
    }

    fn description(&self) -> &'static str {
        match self.0 {
            Which::AskUser => {
                "Asks the person a question and waits for the answer. Use it for a decision that only they can make and \
                 that you cannot find out or undo; otherwise decide yourself and say so. With options they choose one; \
                 without, any words are an answer."
            }
            Which::TaskCreate => {
                "Adds a task to your plan, which the person sees. Plan work of three or more steps; skip it for less. \
                 The result has the task's id. New tasks are pending."
            }
            Which::TaskGet => "Shows one task of your plan with its description.",
            Which::TaskList => "Lists the tasks of your plan with their ids and states.",
            Which::TaskUpdate => {
                "Changes a task of your plan; what you leave out stays. Set in_progress when you begin, completed as soon \
                 as it is done and checked, deleted when it is not needed. Work on one task at a time."
            }
        }
    }

    fn schema(&self) -> Value {
        let id = json!({ "type": "integer", "minimum": 0, "description": "The task's id." });
        let subject = json!({ "type": "string", "description": "What is to be done, in one line." });
        let description =
            json!({ "type": "string", "description": "Details: what belongs to it, when it is done." });
        let words: Vec<&str> = TaskStatus::KNOWN.iter().map(TaskStatus::as_str).collect();
        let (properties, required) = match self.0 {
            Which::AskUser => {
                let options = json!({
                    "type": "array",
                    "items": { "type": "string" },
                    "maxItems": OPTIONS,
                    "description": "Short answers to choose from.",
                });
                (json!({ "question": { "type": "string" }, "options": options }), vec!["question"])
            }
            Which::TaskCreate => (json!({ "subject": subject, "description": description }), vec!["subject"]),
            Which::TaskGet => (json!({ "id": id }), vec!["id"]),
            Which::TaskList => (json!({}), Vec::new()),
            Which::TaskUpdate => {
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

    fn read(&self, arguments: &str) -> Result<Own, ToolError> {
        let name = self.name();
        match self.0 {
            Which::AskUser => {
                let Question { question, options } = parse(name, arguments)?;
                let options = options.unwrap_or_default();
                bounded("question", &question, QUESTION_BYTES)?;
                check_options(&options)?;
                Ok(Own::AskUser { question, options })
            }
            Which::TaskCreate => {
                let Create { subject, description } = parse(name, arguments)?;
                check_task(Some(&subject), description.as_deref())?;
                Ok(Own::TaskCreate { subject, description })
            }
            Which::TaskGet => parse(name, arguments).map(|Get { id }| Own::TaskGet { id }),
            // Some models send no text at all when there is nothing to say.
            Which::TaskList if arguments.trim().is_empty() => Ok(Own::TaskList),
            Which::TaskList => parse(name, arguments).map(|Nothing {}| Own::TaskList),
            Which::TaskUpdate => {
                let Update { id, subject, description, status } = parse(name, arguments)?;
                check_task(subject.as_deref(), description.as_deref())?;
                let status = status.as_deref().map(known_status).transpose()?;
                if subject.is_none() && description.is_none() && status.is_none() {
                    return Err(invalid(format!(
                        "TaskUpdate changes nothing of task {id}: give `status`, `subject` or `description`"
                    )));
                }
                Ok(Own::TaskUpdate { id, subject, description, status })
            }
        }
    }
}

impl Tool for OwnTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name().into(), description: self.description().into(), schema: self.schema() }
    }

    fn class(&self) -> Class {
        Class::Pure
    }

    fn prepare(&self, arguments: &str, _place: &Place) -> Result<Action, ToolError> {
        self.read(arguments).map(|_| Action::default())
    }

    fn own(&self, arguments: &str) -> Result<Option<Own>, ToolError> {
        self.read(arguments).map(Some)
    }

    fn run(&self, _arguments: &str, _call: &Call) -> Running {
        let what = format!(
            "{} was run like a tool with hands, but the pod itself carries it out: this is a defect of Minke",
            self.name()
        );
        Box::pin(std::future::ready(Err(ToolError::Internal(what))))
    }
}

pub(crate) fn invalid(what: String) -> ToolError {
    ToolError::Invalid(what)
}

/// A text that says something and fits.
pub(crate) fn bounded(key: &str, text: &str, most: usize) -> Result<(), ToolError> {
    if text.trim().is_empty() {
        return Err(invalid(format!("`{key}` is empty: say something in it")));
    }
    if text.contains('\0') {
        return Err(invalid(format!("`{key}` holds a NUL character: leave it out")));
    }
    if text.len() > most {
        let length = text.len();
        return Err(invalid(format!("`{key}` has {length} bytes, at most {most} fit: say it shorter")));
    }
    Ok(())
}

fn one_line(key: &str, text: &str) -> Result<(), ToolError> {
    if text.contains(['\n', '\r']) {
        return Err(invalid(format!("`{key}` has several lines: give one")));
    }
    Ok(())
}

fn check_task(subject: Option<&str>, description: Option<&str>) -> Result<(), ToolError> {
    if let Some(subject) = subject {
        bounded("subject", subject, SUBJECT_BYTES)?;
        one_line("subject", subject)?;
    }
    // An empty description takes one away.
    match description {
        None | Some("") => Ok(()),
        Some(text) => bounded("description", text, DESCRIPTION_BYTES),
    }
}

fn check_options(options: &[String]) -> Result<(), ToolError> {
    if options.len() > OPTIONS {
        let count = options.len();
        return Err(invalid(format!("`options` has {count} answers, at most {OPTIONS} fit: offer fewer")));
    }
    for (place, option) in options.iter().enumerate() {
        let which = format!("options[{place}]");
        if option.trim().is_empty() {
            let what = format!("`{which}` is empty: give an answer that can be chosen, or leave it out");
            return Err(invalid(what));
        }
        bounded(&which, option, OPTION_BYTES)?;
        one_line(&which, option)?;
        if options.iter().take(place).any(|other| other == option) {
            let shown = shorten(option, SHOWN_BYTES);
            return Err(invalid(format!("`options` has `{shown}` twice: each answer once")));
        }
    }
    Ok(())
}

fn known_status(word: &str) -> Result<TaskStatus, ToolError> {
    match TaskStatus::from(word) {
        TaskStatus::Other(_) => {
            let words: Vec<&str> = TaskStatus::KNOWN.iter().map(TaskStatus::as_str).collect();
            let (shown, words) = (shorten(word, SHOWN_BYTES), words.join(", "));
            Err(invalid(format!("`status` is `{shown}`, which is none of {words}")))
        }
        status => Ok(status),
    }
}
