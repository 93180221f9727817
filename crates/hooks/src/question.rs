//! Questions to hooks that may steer.
//!
//! Elsewhere: asking (`steer`), log events (`mapper`).

use minke_record::{Action, Actor, CallId, PolicyVerdict, Preview};
use serde_json::{Map, Value, json};

use crate::event::HookEvent;

/// A question at one point.
#[derive(Debug, Clone)]
pub struct SteeringRequest {
    pub(crate) event: HookEvent,
    pub(crate) tool: Option<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) fields: Map<String, Value>,
    /// The arguments, if a hook may rewrite them.
    pub(crate) input: Option<Value>,
    pub(crate) may_rewrite: bool,
}

/// A call that is about to be dispatched.
#[derive(Debug, Clone, Copy)]
pub struct PendingToolCall<'a> {
    pub call_id: &'a CallId,
    pub tool: &'a str,
    /// The JSON text.
    pub arguments: &'a str,
    pub action: &'a Action,
    pub preview: Option<&'a Preview>,
    /// The verdict of the policy.
    pub verdict: &'a PolicyVerdict,
    /// False if the arguments were rewritten already.
    pub may_rewrite: bool,
}

impl SteeringRequest {
    pub fn event(&self) -> HookEvent {
        self.event
    }

    pub fn user_prompt(text: &str, from: &Actor) -> SteeringRequest {
        SteeringRequest::new(HookEvent::UserPrompt, json!({ "text": text, "from": from }))
    }

    pub fn before_tool(call: PendingToolCall<'_>) -> SteeringRequest {
        let PendingToolCall { call_id, tool, arguments, action, preview, verdict, may_rewrite } = call;
        // Invalid JSON is passed unchanged; the pod has refused such a call before.
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        let mut question = SteeringRequest::new(
            HookEvent::BeforeTool,
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

    /// `text` is the model's last message, `again` the number of times that hooks have made this run
    /// continue.
    pub fn before_stop(text: &str, again: u32) -> SteeringRequest {
        SteeringRequest::new(HookEvent::BeforeStop, json!({ "text": text, "again": again }))
    }

    /// A child is about to be spawned with this input of its call.
    pub fn pod_spawn(name: &str, input: &Value, may_rewrite: bool) -> SteeringRequest {
        let mut question = SteeringRequest::new(HookEvent::PodSpawn, json!({ "name": name, "input": input }));
        question.input = Some(input.clone());
        question.may_rewrite = may_rewrite;
        question
    }

    /// A command is about to start: asks for its environment variables.
    pub fn shell_env(command: &str, cwd: &str) -> SteeringRequest {
        SteeringRequest::new(HookEvent::ShellEnv, json!({ "command": command, "cwd": cwd }))
    }

    /// A sample of an event to test hooks; it contains `sample`. Uses this tool and path where the event has
    /// them.
    pub fn sample_event(event: HookEvent, tool: &str, path: &str) -> SteeringRequest {
        let mut question = match event {
            HookEvent::UserPrompt => {
                SteeringRequest::user_prompt("a sample prompt", &Actor::from_person("cli"))
            }
            HookEvent::BeforeStop => SteeringRequest::before_stop("a sample reply", 0),
            HookEvent::PodSpawn => {
                SteeringRequest::pod_spawn("sample", &json!({ "task": "a sample task" }), true)
            }
            HookEvent::ShellEnv => SteeringRequest::shell_env("true", path),
            _ => SteeringRequest::new(event, sample_fields(event, tool, path)),
        };
        if event.has_tool() {
            question.tool = Some(tool.to_owned());
            question.paths = vec![path.to_owned()];
        }
        if event == HookEvent::BeforeTool {
            question.input = question.fields.get("input").cloned();
            question.may_rewrite = true;
        }
        question.fields.insert("sample".to_owned(), true.into());
        question
    }

    fn new(event: HookEvent, fields: Value) -> SteeringRequest {
        let mut all = Map::new();
        all.insert("type".to_owned(), event.as_str().into());
        if let Value::Object(fields) = fields {
            all.extend(fields);
        }
        SteeringRequest {
            event,
            tool: None,
            paths: Vec::new(),
            fields: all,
            input: None,
            may_rewrite: event == HookEvent::UserPrompt,
        }
    }
}

fn sample_fields(event: HookEvent, tool: &str, path: &str) -> Value {
    let shell = tool.starts_with("Bash");
    let input = if shell { json!({ "command": "true" }) } else { json!({ "file_path": path }) };
    let action = if shell {
        json!({ "command": "true", "commands": ["true"], "side_effects": true })
    } else {
        json!({ "writes": [path], "side_effects": true })
    };
    let verdict = json!({ "outcome": "allow", "reason": "a sample" });
    match event {
        HookEvent::SessionStart => json!({ "epoch": 1, "version": env!("CARGO_PKG_VERSION") }),
        HookEvent::BeforeTool => json!({ "call_id": "sample", "tool": tool, "input": input, "action": action,
                                     "preview": null, "verdict": verdict, "may_rewrite": true }),
        HookEvent::AfterTool => json!({ "call_id": "sample", "tool": tool, "input": input, "action": action,
                                    "outcome": "done", "is_error": false, "summary": "a sample result" }),
        HookEvent::Ask => json!({ "id": "sample", "kind": "approval", "call_id": "sample", "tool": tool,
                              "text": "may this sample be done?", "action": action, "verdict": verdict,
                              "options": ["approved", "denied"] }),
        HookEvent::RunEnd => json!({ "result": "finished" }),
        HookEvent::PodEnd => json!({ "name": "sample", "outcome": "stopped" }),
        HookEvent::Compact => json!({ "segment": 2, "before": 100_000, "after": 10_000 }),
        HookEvent::Job => json!({ "state": "working", "note": "a sample" }),
        HookEvent::Lifecycle => json!({ "type": "tool_lifecycle", "response_id": "sample", "tool_name": tool,
                                    "phase": "completed", "payload": { "ok": true } }),
        HookEvent::UserPrompt | HookEvent::BeforeStop | HookEvent::PodSpawn | HookEvent::ShellEnv => {
            json!({})
        }
    }
}
