//! Tools for other pods: SpawnPod, SendToPod, ReadPodOutput, WaitPods, StopPod, ListPods, AnswerPod.
//!
//! This module parses and checks their arguments in the documented order (arguments, name, scope, profile).
//! The core (`pod`) knows the children and executes the calls, so `run` is never called. `registry` has the
//! scopes, `driver` starts and contacts pods. Every text has a maximum length
//! (`every_bad_argument_is_told_in_words`).

use std::sync::Arc;

use minke_manifest::profiles::{INHERIT, ProfileCatalog, ProfileChoice};
use minke_policy::is_canonical;
use minke_record::{
    Action, AskId, Budget, Class, Decision, InternalCall, Permission, PodName, PodToolCall, ScopeRule,
    SendMode, SpawnPod, ToolSpec, WaitUntil,
};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{keep_end, parse_arguments};
use crate::internal::{check_text, invalid_arguments};

/// The maximum length of a task or message.
const MAX_TASK_BYTES: usize = 64 * 1024;
const MAX_INSTRUCTION_BYTES: usize = 16 * 1024;
/// The maximum number of scope rules.
const MAX_SCOPE_RULES: usize = 64;
/// The maximum number of names; the default maximum of children.
const MAX_NAMES: usize = 64;
const DEFAULT_READ_BYTES: u64 = 16 * 1024;
const MAX_READ_BYTES: u64 = 128 * 1024;
const DEFAULT_WAIT_SECONDS: u64 = 600;
const MAX_WAIT_SECONDS: u64 = 86_400;
/// Precedes the profiles in the description of SpawnPod. The text after it depends on the installation.
pub const PROFILES_LABEL: &str = " Profiles: ";
/// The maximum length of a wrong value in an error.
const MAX_ECHO_BYTES: usize = 60;

/// Returns the tools for other pods, sorted by name.
pub fn pod_tools(profiles: &Arc<ProfileCatalog>) -> Vec<Arc<dyn Tool>> {
    use PodToolKind::{Answer, List, Read, Send, Spawn, Stop, Wait};
    let all = [Answer, List, Read, Send, Spawn, Stop, Wait];
    let tool = |kind| Arc::new(PodTool { kind, profiles: Arc::clone(profiles) }) as Arc<dyn Tool>;
    all.into_iter().map(tool).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodToolKind {
    Answer,
    List,
    Read,
    Send,
    Spawn,
    Stop,
    Wait,
}

struct PodTool {
    kind: PodToolKind,
    /// The profiles that SpawnPod offers.
    profiles: Arc<ProfileCatalog>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnPodArguments {
    name: String,
    task: String,
    #[serde(default)]
    scope: Vec<ScopeRuleArguments>,
    #[serde(default)]
    profile: Option<String>,
    #[serde(default)]
    instruction: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    budget: Option<Budget>,
    #[serde(default)]
    isolation: Option<String>,
    #[serde(default)]
    wait: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeRuleArguments {
    target: String,
    permission: String,
    #[serde(default = "yes")]
    recursive: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendToPodArguments {
    name: String,
    message: String,
    #[serde(default)]
    mode: SendMode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadPodArguments {
    name: String,
    #[serde(default)]
    since: Option<u64>,
    #[serde(default)]
    max_bytes: Option<u64>,
    #[serde(default)]
    detail: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitPodsArguments {
    names: Vec<String>,
    until: WaitUntil,
    #[serde(default)]
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopPodArguments {
    name: String,
    #[serde(default)]
    mode: StopPodMode,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum StopPodMode {
    #[default]
    Now,
    AfterRun,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListPodsArguments {
    #[serde(default)]
    scope: ListPodsScope,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum ListPodsScope {
    #[default]
    Children,
    Tree,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerPodArguments {
    name: String,
    ask: AskId,
    decision: Decision,
}

impl PodTool {
    fn tool_name(&self) -> &'static str {
        match self.kind {
            PodToolKind::Answer => "AnswerPod",
            PodToolKind::List => "ListPods",
            PodToolKind::Read => "ReadPodOutput",
            PodToolKind::Send => "SendToPod",
            PodToolKind::Spawn => "SpawnPod",
            PodToolKind::Stop => "StopPod",
            PodToolKind::Wait => "WaitPods",
        }
    }

    fn tool_description(&self) -> String {
        match self.kind {
            PodToolKind::Answer => "Answers an approval request of a pod below you, if you are permitted to.".to_owned(),
            PodToolKind::List => {
                "Lists the pods that you have spawned: state, scope, budget, last event. A stopped pod stays in the list."
                    .to_owned()
            }
            PodToolKind::Read => {
                "Returns the output of a pod since your last read, and its state. Works on a stopped pod."
                    .to_owned()
            }
            PodToolKind::Send => {
                "Sends another input to a pod below you and does not wait for its answer; a stopped pod is started again."
                    .to_owned()
            }
            PodToolKind::Spawn => {
                format!(
                    "Starts another agent on a part of the work, in its own process. It sees only `task`: include everything \
                     it needs. It can access only what `scope` lists; you cannot write where it may write until it has \
                     stopped. isolation `clone` gives it its own clone and branch instead. You get a message when its run \
                     ends; WaitPods waits for it.{PROFILES_LABEL}{}.",
                    self.profiles.describe()
                )
            }
            PodToolKind::Stop => {
                "Stops a pod below you and takes back the scope that you lent to it. Its conversation stays.".to_owned()
            }
            PodToolKind::Wait => "Waits without cost until one (any) or all of these pods have ended their run, or one needs an \
                            approval (ask). Earlier events count."
                .to_owned(),
        }
    }

    fn tool_schema(&self) -> Value {
        let name = json!({ "type": "string", "description": "The name you gave it." });
        let text = json!({ "type": "string" });
        let (properties, required): (Value, &[&str]) = match self.kind {
            PodToolKind::Answer => {
                let decisions: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
                let decision = json!({ "type": "string", "enum": decisions });
                (json!({ "name": name, "ask": text, "decision": decision }), &["name", "ask", "decision"])
            }
            PodToolKind::List => {
                (json!({ "scope": { "type": "string", "enum": ["children", "tree"] } }), &[])
            }
            PodToolKind::Read => {
                let number = json!({ "type": "integer", "minimum": 0 });
                let detail = json!({ "type": "boolean", "description": "Include tool calls, shortened." });
                (json!({ "name": name, "since": number, "max_bytes": number, "detail": detail }), &["name"])
            }
            PodToolKind::Send => {
                let mode = json!({ "type": "string", "enum": ["queue", "steer", "interrupt", "reject"] });
                (json!({ "name": name, "message": text, "mode": mode }), &["name", "message"])
            }
            PodToolKind::Spawn => (spawn_schema(), &["name", "task", "scope"]),
            PodToolKind::Stop => {
                let mode = json!({ "type": "string", "enum": ["now", "after_run"] });
                (json!({ "name": name, "mode": mode }), &["name"])
            }
            PodToolKind::Wait => {
                let names = json!({ "type": "array", "items": { "type": "string" } });
                let until = json!({ "type": "string", "enum": ["any", "all", "ask"] });
                let seconds = json!({ "type": "integer", "minimum": 0, "maximum": MAX_WAIT_SECONDS });
                (json!({ "names": names, "until": until, "timeout_s": seconds }), &["names", "until"])
            }
        };
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    fn parse_call(&self, arguments: &str) -> Result<PodToolCall, ToolError> {
        let tool = self.tool_name();
        match self.kind {
            PodToolKind::Spawn => parse_arguments(tool, arguments)
                .and_then(|requested| check_spawn(requested, &self.profiles))
                .map(PodToolCall::Spawn),
            PodToolKind::Send => {
                let SendToPodArguments { name, message, mode } = parse_arguments(tool, arguments)?;
                check_text("message", &message, MAX_TASK_BYTES)?;
                Ok(PodToolCall::Send { name: parse_pod_name(&name)?, message, mode })
            }
            PodToolKind::Read => {
                let ReadPodArguments { name, since, max_bytes, detail } = parse_arguments(tool, arguments)?;
                let max_bytes = max_bytes.unwrap_or(DEFAULT_READ_BYTES).clamp(1, MAX_READ_BYTES);
                Ok(PodToolCall::Read { name: parse_pod_name(&name)?, since, max_bytes, detail })
            }
            PodToolKind::Wait => {
                let WaitPodsArguments { names, until, timeout_s } = parse_arguments(tool, arguments)?;
                if names.is_empty() || names.len() > MAX_NAMES {
                    let count = names.len();
                    return Err(invalid_arguments(format!(
                        "`names` has {count} names: give 1 to {MAX_NAMES}"
                    )));
                }
                let names = names.iter().map(|name| parse_pod_name(name)).collect::<Result<_, _>>()?;
                let timeout_s = timeout_s.unwrap_or(DEFAULT_WAIT_SECONDS).min(MAX_WAIT_SECONDS);
                Ok(PodToolCall::Wait { names, until, timeout_s })
            }
            PodToolKind::Stop => {
                let StopPodArguments { name, mode } = parse_arguments(tool, arguments)?;
                Ok(PodToolCall::Stop {
                    name: parse_pod_name(&name)?,
                    after_run: mode == StopPodMode::AfterRun,
                })
            }
            // Some models send an empty text instead of an empty object.
            PodToolKind::List if arguments.trim().is_empty() => Ok(PodToolCall::List { tree: false }),
            PodToolKind::List => {
                let ListPodsArguments { scope } = parse_arguments(tool, arguments)?;
                Ok(PodToolCall::List { tree: scope == ListPodsScope::Tree })
            }
            PodToolKind::Answer => {
                let AnswerPodArguments { name, ask, decision } = parse_arguments(tool, arguments)?;
                if let Decision::Other(word) = &decision {
                    let words: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
                    let (word, words) = (keep_end(word, MAX_ECHO_BYTES), words.join(", "));
                    return Err(invalid_arguments(format!(
                        "`decision` is `{word}`, but must be one of {words}"
                    )));
                }
                Ok(PodToolCall::Answer { name: parse_pod_name(&name)?, ask, decision })
            }
        }
    }
}

impl Tool for PodTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.tool_name().into(),
            description: self.tool_description(),
            schema: self.tool_schema(),
        }
    }

    fn class(&self) -> Class {
        match self.kind {
            PodToolKind::Read | PodToolKind::Wait | PodToolKind::List => Class::Pure,
            PodToolKind::Answer | PodToolKind::Send | PodToolKind::Spawn | PodToolKind::Stop => Class::Once,
        }
    }

    fn prepare(&self, arguments: &str, _place: &ToolContext) -> Result<Action, ToolError> {
        let about = |name: PodName| Some(name.to_string());
        Ok(match self.parse_call(arguments)? {
            PodToolCall::Spawn(SpawnPod { name, .. })
            | PodToolCall::Send { name, .. }
            | PodToolCall::Stop { name, .. }
            | PodToolCall::Answer { name, .. } => {
                Action { pod: about(name), side_effects: true, ..Action::default() }
            }
            PodToolCall::Read { name, .. } => Action { pod: about(name), ..Action::default() },
            PodToolCall::Wait { .. } | PodToolCall::List { .. } => Action::default(),
        })
    }

    fn internal_call(&self, arguments: &str) -> Result<Option<InternalCall>, ToolError> {
        self.parse_call(arguments).map(|call| Some(InternalCall::Pods(Box::new(call))))
    }

    fn execute(&self, _arguments: &str, _call: &ToolInvocation) -> ToolFuture {
        let message = format!(
            "{} was run like an ordinary tool, but the pod executes it itself: this is a bug in Minke",
            self.tool_name()
        );
        Box::pin(std::future::ready(Err(ToolError::Internal(message))))
    }
}

fn spawn_schema() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let rule = json!({
        "type": "object",
        "properties": {
            "target": { "type": "string", "description": "Absolute path." },
            "permission": { "type": "string", "enum": ["read", "write"] },
            "recursive": { "type": "boolean" },
        },
        "required": ["target", "permission"],
        "additionalProperties": false,
    });
    let budget = json!({
        "type": "object",
        "properties": {
            "usd": { "type": "number", "minimum": 0 },
            "tokens": number, "turns": number, "wall_s": number, "children": number,
        },
        "additionalProperties": false,
    });
    json!({
        "name": { "type": "string", "description": "a-z, 0-9 and -, at most 40." },
        "task": text,
        "scope": { "type": "array", "items": rule },
        "profile": text,
        "instruction": { "type": "string", "description": "Replaces the profile's instruction." },
        "cwd": text,
        "budget": budget,
        "isolation": { "type": "string", "enum": ["shared", "clone"] },
        "wait": { "type": "boolean", "description": "Wait for the end of its first run." },
    })
}

/// Checks the arguments of SpawnPod, as far as possible without other pods, in the documented order.
fn check_spawn(requested: SpawnPodArguments, profiles: &ProfileCatalog) -> Result<SpawnPod, ToolError> {
    let name = parse_pod_name(&requested.name)?;
    check_text("task", &requested.task, MAX_TASK_BYTES)?;
    let clone = match requested.isolation.as_deref() {
        None | Some("shared") => false,
        Some("clone" | "worktree") => true,
        Some(other) => {
            let other = keep_end(other, MAX_ECHO_BYTES);
            return Err(invalid_arguments(format!(
                "`isolation` is `{other}`, but must be `shared` or `clone`"
            )));
        }
    };
    let scope = check_scope(&requested.scope, clone)?;
    // An absent profile stays absent: the default is looked up when the child is created.
    let profile = requested.profile.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let chosen = profiles.select(profile).map_err(|e| invalid_arguments(e.to_string()))?;
    let profile = profile.map(|_| match chosen {
        ProfileChoice::Inherit => INHERIT.to_owned(),
        ProfileChoice::Profile(name) => name.to_string(),
    });
    if let Some(instruction) = &requested.instruction {
        check_text("instruction", instruction, MAX_INSTRUCTION_BYTES)?;
    }
    if let Some(cwd) = requested.cwd.as_deref().filter(|cwd| !is_canonical(cwd)) {
        let cwd = keep_end(cwd, MAX_ECHO_BYTES);
        return Err(invalid_arguments(format!(
            "`cwd` is `{cwd}`: give an absolute path without `.` and `..`"
        )));
    }
    if let Some(usd) = requested.budget.and_then(|budget| budget.usd).filter(|usd| !(0.0..=1e9).contains(usd))
    {
        return Err(invalid_arguments(format!("`budget.usd` is {usd}: give an amount of dollars")));
    }
    Ok(SpawnPod {
        name,
        task: requested.task,
        scope,
        profile,
        instruction: requested.instruction,
        cwd: requested.cwd,
        budget: requested.budget.filter(|budget| !budget.is_empty()),
        clone,
        wait: requested.wait,
    })
}

fn check_scope(said: &[ScopeRuleArguments], clone: bool) -> Result<Vec<ScopeRule>, ToolError> {
    if said.is_empty() && !clone {
        return Err(invalid_arguments(
            "`scope` is empty: list the paths that the pod may read and write, e.g. \
             [{\"target\": \"/the/directory\", \"permission\": \"write\"}]"
                .to_owned(),
        ));
    }
    if said.len() > MAX_SCOPE_RULES {
        let count = said.len();
        return Err(invalid_arguments(format!(
            "`scope` has {count} rules, at most {MAX_SCOPE_RULES} are allowed: name directories"
        )));
    }
    said.iter().enumerate().map(|(at, rule)| check_scope_rule(at, rule, clone)).collect()
}

fn check_scope_rule(at: usize, rule: &ScopeRuleArguments, clone: bool) -> Result<ScopeRule, ToolError> {
    let target = keep_end(&rule.target, MAX_ECHO_BYTES);
    if !rule.target.starts_with('/') {
        return Err(invalid_arguments(format!(
            "`scope[{at}].target` is `{target}`, which is relative: give the absolute path"
        )));
    }
    if !is_canonical(&rule.target) {
        return Err(invalid_arguments(format!(
            "`scope[{at}].target` is `{target}`: give the path without `.`, `..`, `//` and a `/` at its end"
        )));
    }
    let permission = match rule.permission.as_str() {
        "read" => Permission::Read,
        "write" if clone => {
            return Err(invalid_arguments(format!(
                "`scope[{at}]` is a write rule for `{target}`, but a pod in its own clone writes only there; remove write \
                 rules, or use isolation `shared`"
            )));
        }
        "write" => Permission::Write,
        other => {
            let other = keep_end(other, MAX_ECHO_BYTES);
            return Err(invalid_arguments(format!(
                "`scope[{at}].permission` is `{other}`, but must be `read` or `write`"
            )));
        }
    };
    Ok(ScopeRule { target: rule.target.clone(), permission, recursive: rule.recursive })
}

fn parse_pod_name(requested: &str) -> Result<PodName, ToolError> {
    requested.parse().map_err(|e| invalid_arguments(format!("`name`: {e}")))
}
