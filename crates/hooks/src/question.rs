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
    pub fn pod_spawn(name: &str, input: &Value, may_rewrite: bool) -> Question {
        let mut question = Question::new(Event::PodSpawn, json!({ "name": name, "input": input }));
        question.input = Some(input.clone());
        question.may_rewrite = may_rewrite;
        question
    }

    /// A command is about to be started: which variables it is to have.
    pub fn shell_env(command: &str, cwd: &str) -> Question {
        Question::new(Event::ShellEnv, json!({ "command": command, "cwd": cwd }))
    }

    /// Something that could happen, to try hooks with; `sample` is set in it. It is about a call of this tool and this
    /// path where an event has them.
    pub fn sample(event: Event, tool: &str, path: &str) -> Question {
        let mut question = match event {
            Event::UserPrompt => Question::user_prompt("a sample prompt", &Actor::person("cli")),
            Event::BeforeStop => Question::before_stop("a sample reply", 0),
            Event::PodSpawn => Question::pod_spawn("sample", &json!({ "task": "a sample task" }), true),
            Event::ShellEnv => Question::shell_env("true", path),
            _ => Question::new(event, sample_fields(event, tool, path)),
        };
        if event.has_tool() {
            question.tool = Some(tool.to_owned());
            question.paths = vec![path.to_owned()];
        }
        if event == Event::BeforeTool {
            question.input = question.fields.get("input").cloned();
            question.may_rewrite = true;
        }
        question.fields.insert("sample".to_owned(), true.into());
        question
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

fn sample_fields(event: Event, tool: &str, path: &str) -> Value {
    let shell = tool.starts_with("Bash");
    let input = if shell { json!({ "command": "true" }) } else { json!({ "file_path": path }) };
    let action = if shell {
        json!({ "command": "true", "commands": ["true"], "side_effects": true })
    } else {
        json!({ "writes": [path], "side_effects": true })
    };
    let verdict = json!({ "outcome": "allow", "reason": "a sample" });
    match event {
        Event::SessionStart => json!({ "epoch": 1, "version": env!("CARGO_PKG_VERSION") }),
        Event::BeforeTool => json!({ "call_id": "sample", "tool": tool, "input": input, "action": action,
                                     "preview": null, "verdict": verdict, "may_rewrite": true }),
        Event::AfterTool => json!({ "call_id": "sample", "tool": tool, "input": input, "action": action,
                                    "outcome": "done", "is_error": false, "summary": "a sample result" }),
        Event::Ask => json!({ "id": "sample", "kind": "approval", "call_id": "sample", "tool": tool,
                              "text": "may this sample be done?", "action": action, "verdict": verdict,
                              "options": ["approved", "denied"] }),
        Event::RunEnd => json!({ "result": "finished" }),
        Event::PodEnd => json!({ "name": "sample", "outcome": "stopped" }),
        Event::Compact => json!({ "segment": 2, "before": 100_000, "after": 10_000 }),
        Event::Job => json!({ "state": "working", "note": "a sample" }),
        Event::Lifecycle => json!({ "type": "tool_lifecycle", "response_id": "sample", "tool_name": tool,
                                    "phase": "completed", "payload": { "ok": true } }),
        Event::UserPrompt | Event::BeforeStop | Event::PodSpawn | Event::ShellEnv => json!({}),
    }
}
