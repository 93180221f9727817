//! Questions: what is asked of hooks at a point where they may steer.
//!
//! Elsewhere: asking (`steer`), what happened afterwards (`map`).

use minke_record::{Action, Actor, CallId, Preview, Verdict};
use serde_json::{Map, Value, json};

use crate::event::Event;

/// A question at one point.
#[derive(Debug, Clone)]
pub struct Question {
    pub(crate) event: Event,
    pub(crate) tool: Option<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) fields: Map<String, Value>,
    /// The arguments as they are, if they can be rewritten at all.
    pub(crate) input: Option<Value>,
    pub(crate) may_rewrite: bool,
}

/// A call that is about to be dispatched.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub call_id: &'a CallId,
    pub tool: &'a str,
    /// The JSON text.
    pub arguments: &'a str,
    pub action: &'a Action,
    pub preview: Option<&'a Preview>,
    /// What policy said of it.
    pub verdict: &'a Verdict,
    /// False if they are rewritten already.
    pub may_rewrite: bool,
}

impl Question {
    pub fn event(&self) -> Event {
        self.event
    }

    pub fn user_prompt(text: &str, from: &Actor) -> Question {
        Question::new(Event::UserPrompt, json!({ "text": text, "from": from }))
    }

    pub fn before_tool(call: Call<'_>) -> Question {
        let Call { call_id, tool, arguments, action, preview, verdict, may_rewrite } = call;
        // What is no JSON is told as it is; the pod has refused such a call before.
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        let mut question = Question::new(
            Event::BeforeTool,
            json!({
                "call_id": call_id,
                "tool": tool,
                "input": input,
                "action": action,
                "preview": preview,
                "verdict": verdict,
                "may_rewrite": may_rewrite,
            }),
        );
        question.tool = Some(tool.to_owned());
        question.paths = action.reads.iter().chain(&action.writes).cloned().collect();
        question.input = Some(input);
        question.may_rewrite = may_rewrite;
        question
    }

    /// `text` is what the model said last, `again` how often this run was told to go on already.
    pub fn before_stop(text: &str, again: u32) -> Question {
        Question::new(Event::BeforeStop, json!({ "text": text, "again": again }))
    }

    /// A child is about to be started with this input of its call.
    pub fn pod_spawn(name: &str, input: &Value) -> Question {
        let mut question = Question::new(Event::PodSpawn, json!({ "name": name, "input": input }));
        question.input = Some(input.clone());
        question.may_rewrite = true;
        question
    }

    /// A command is about to be started: which variables it is to have.
    pub fn shell_env(command: &str, cwd: &str) -> Question {
        Question::new(Event::ShellEnv, json!({ "command": command, "cwd": cwd }))
    }

    fn new(event: Event, fields: Value) -> Question {
        let mut all = Map::new();
        all.insert("type".to_owned(), event.as_str().into());
        if let Value::Object(fields) = fields {
            all.extend(fields);
        }
        Question {
            event,
            tool: None,
            paths: Vec::new(),
            fields: all,
            input: None,
            may_rewrite: event == Event::UserPrompt,
        }
    }
}
