//! Calls about other pods: SpawnPod, SendToPod, ReadPodOutput, WaitPods, StopPod, ListPods, AnswerPod.
//!
//! Here: what they are called with, checked for form in the order of the page (arguments, name, scope, profile). The mind
//! knows the children and carries the calls out (`pod`), so `run` is never reached. Elsewhere: who holds what (`registry`),
//! starting and reaching pods (`driver`). Every text has a bound (`every_bad_argument_is_told_in_words`).

use std::sync::Arc;

use minke_manifest::profiles::{Choice, INHERIT, Offer};
use minke_policy::is_canonical;
use minke_record::{
    Action, AskId, Budget, Class, Decision, Own, Permission, PodName, PodsCall, ScopeRule, SendMode,
    SpawnPod, ToolSpec, WaitUntil,
};
use minke_tool::{Call, Place, Running, Tool, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{parse, shorten};
use crate::own::{bounded, invalid};

/// A task, or a message: what a person would write, with a file's worth of details.
const TASK_BYTES: usize = 64 * 1024;
const INSTRUCTION_BYTES: usize = 16 * 1024;
/// More rules than this say that the work was not divided.
const RULES: usize = 64;
/// As many as a pod may have children by default.
const NAMES: usize = 64;
const READ_BYTES: u64 = 16 * 1024;
const READ_BYTES_MOST: u64 = 128 * 1024;
const WAIT_SECONDS: u64 = 600;
const WAIT_SECONDS_MOST: u64 = 86_400;
/// Before the profiles in the description of SpawnPod: what follows depends on the house, what is before does not.
pub const PROFILES: &str = " Profiles: ";
/// How much of a wrong word an error repeats.
const SHOWN_BYTES: usize = 60;

/// The tools about other pods, sorted by name.
pub fn pod_tools(profiles: &Arc<Offer>) -> Vec<Arc<dyn Tool>> {
    use Which::{Answer, List, Read, Send, Spawn, Stop, Wait};
    let all = [Answer, List, Read, Send, Spawn, Stop, Wait];
    let tool = |which| Arc::new(PodTool { which, profiles: Arc::clone(profiles) }) as Arc<dyn Tool>;
    all.into_iter().map(tool).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Answer,
    List,
    Read,
    Send,
    Spawn,
    Stop,
    Wait,
}

struct PodTool {
    which: Which,
    /// What SpawnPod can be told to make a child from.
    profiles: Arc<Offer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnArguments {
    name: String,
    task: String,
    #[serde(default)]
    scope: Vec<RuleArguments>,
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
struct RuleArguments {
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
struct SendArguments {
    name: String,
    message: String,
    #[serde(default)]
    mode: SendMode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
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
struct WaitArguments {
    names: Vec<String>,
    until: WaitUntil,
    #[serde(default)]
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopArguments {
    name: String,
    #[serde(default)]
    mode: StopMode,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum StopMode {
    #[default]
    Now,
    AfterRun,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    #[serde(default)]
    scope: ListScope,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum ListScope {
    #[default]
    Children,
    Tree,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerArguments {
    name: String,
    ask: AskId,
    decision: Decision,
}

impl PodTool {
    fn name(&self) -> &'static str {
        match self.which {
            Which::Answer => "AnswerPod",
            Which::List => "ListPods",
            Which::Read => "ReadPodOutput",
            Which::Send => "SendToPod",
            Which::Spawn => "SpawnPod",
            Which::Stop => "StopPod",
            Which::Wait => "WaitPods",
        }
    }

    fn description(&self) -> String {
        match self.which {
            Which::Answer => "Answers a question of a pod below you, if you may.".to_owned(),
            Which::List => {
                "Lists the pods that you have spawned: state, scope, budget, last event. A stopped one stays listed."
                    .to_owned()
            }
            Which::Read => {
                "Gives what a pod has said since you last read it, and its state. Works on a stopped pod."
                    .to_owned()
            }
            Which::Send => {
                "Gives a pod below you another input and does not wait for its answer; a stopped one is started again."
                    .to_owned()
            }
            Which::Spawn => {
                format!(
                    "Starts another agent on a part of the work, in its own process. It sees only `task`: say all that \
                     it needs. It gets what `scope` lists and nothing else; what you let it write you cannot write \
                     until it has stopped. isolation `clone` gives it its own clone and branch instead. When its run \
                     ends you are told; WaitPods waits for it.{PROFILES}{}.",
                    self.profiles.listing()
                )
            }
            Which::Stop => {
                "Stops a pod below you and takes back what it was lent. Its conversation stays.".to_owned()
            }
            Which::Wait => "Waits without cost until one (any) or all of these pods have ended their run, or one asks \
                            something (ask). What has happened already counts."
                .to_owned(),
        }
    }

    fn schema(&self) -> Value {
        let name = json!({ "type": "string", "description": "The name you gave it." });
        let text = json!({ "type": "string" });
        let (properties, required): (Value, &[&str]) = match self.which {
            Which::Answer => {
                let decisions: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
                let decision = json!({ "type": "string", "enum": decisions });
                (json!({ "name": name, "ask": text, "decision": decision }), &["name", "ask", "decision"])
            }
            Which::List => (json!({ "scope": { "type": "string", "enum": ["children", "tree"] } }), &[]),
            Which::Read => {
                let number = json!({ "type": "integer", "minimum": 0 });
                let detail = json!({ "type": "boolean", "description": "With tool calls, in short." });
                (json!({ "name": name, "since": number, "max_bytes": number, "detail": detail }), &["name"])
            }
            Which::Send => {
                let mode = json!({ "type": "string", "enum": ["queue", "steer", "interrupt", "reject"] });
                (json!({ "name": name, "message": text, "mode": mode }), &["name", "message"])
            }
            Which::Spawn => (spawn_schema(), &["name", "task", "scope"]),
            Which::Stop => {
                let mode = json!({ "type": "string", "enum": ["now", "after_run"] });
                (json!({ "name": name, "mode": mode }), &["name"])
            }
            Which::Wait => {
                let names = json!({ "type": "array", "items": { "type": "string" } });
                let until = json!({ "type": "string", "enum": ["any", "all", "ask"] });
                let seconds = json!({ "type": "integer", "minimum": 0, "maximum": WAIT_SECONDS_MOST });
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

    fn read(&self, arguments: &str) -> Result<PodsCall, ToolError> {
        let tool = self.name();
        match self.which {
            Which::Spawn => {
                parse(tool, arguments).and_then(|said| spawn(said, &self.profiles)).map(PodsCall::Spawn)
            }
            Which::Send => {
                let SendArguments { name, message, mode } = parse(tool, arguments)?;
                bounded("message", &message, TASK_BYTES)?;
                Ok(PodsCall::Send { name: pod_name(&name)?, message, mode })
            }
            Which::Read => {
                let ReadArguments { name, since, max_bytes, detail } = parse(tool, arguments)?;
                let max_bytes = max_bytes.unwrap_or(READ_BYTES).clamp(1, READ_BYTES_MOST);
                Ok(PodsCall::Read { name: pod_name(&name)?, since, max_bytes, detail })
            }
            Which::Wait => {
                let WaitArguments { names, until, timeout_s } = parse(tool, arguments)?;
                if names.is_empty() || names.len() > NAMES {
                    let count = names.len();
                    return Err(invalid(format!("`names` has {count} names: give 1 to {NAMES}")));
                }
                let names = names.iter().map(|name| pod_name(name)).collect::<Result<_, _>>()?;
                let timeout_s = timeout_s.unwrap_or(WAIT_SECONDS).min(WAIT_SECONDS_MOST);
                Ok(PodsCall::Wait { names, until, timeout_s })
            }
            Which::Stop => {
                let StopArguments { name, mode } = parse(tool, arguments)?;
                Ok(PodsCall::Stop { name: pod_name(&name)?, after_run: mode == StopMode::AfterRun })
            }
            // Some models send no text at all when there is nothing to say.
            Which::List if arguments.trim().is_empty() => Ok(PodsCall::List { tree: false }),
            Which::List => {
                let ListArguments { scope } = parse(tool, arguments)?;
                Ok(PodsCall::List { tree: scope == ListScope::Tree })
            }
            Which::Answer => {
                let AnswerArguments { name, ask, decision } = parse(tool, arguments)?;
                if let Decision::Other(word) = &decision {
                    let words: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
                    let (word, words) = (shorten(word, SHOWN_BYTES), words.join(", "));
                    return Err(invalid(format!("`decision` is `{word}`: it is one of {words}")));
                }
                Ok(PodsCall::Answer { name: pod_name(&name)?, ask, decision })
            }
        }
    }
}

impl Tool for PodTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name().into(), description: self.description(), schema: self.schema() }
    }

    fn class(&self) -> Class {
        match self.which {
            Which::Read | Which::Wait | Which::List => Class::Pure,
            Which::Answer | Which::Send | Which::Spawn | Which::Stop => Class::Once,
        }
    }

    fn prepare(&self, arguments: &str, _place: &Place) -> Result<Action, ToolError> {
        let about = |name: PodName| Some(name.to_string());
        Ok(match self.read(arguments)? {
            PodsCall::Spawn(SpawnPod { name, .. })
            | PodsCall::Send { name, .. }
            | PodsCall::Stop { name, .. }
            | PodsCall::Answer { name, .. } => {
                Action { pod: about(name), side_effects: true, ..Action::default() }
            }
            PodsCall::Read { name, .. } => Action { pod: about(name), ..Action::default() },
            PodsCall::Wait { .. } | PodsCall::List { .. } => Action::default(),
        })
    }

    fn own(&self, arguments: &str) -> Result<Option<Own>, ToolError> {
        self.read(arguments).map(|call| Some(Own::Pods(Box::new(call))))
    }

    fn run(&self, _arguments: &str, _call: &Call) -> Running {
        let what = format!(
            "{} was run like a tool with hands, but the pod itself carries it out: this is a defect of Minke",
            self.name()
        );
        Box::pin(std::future::ready(Err(ToolError::Internal(what))))
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
        "instruction": { "type": "string", "description": "Instead of the profile's instruction." },
        "cwd": text,
        "budget": budget,
        "isolation": { "type": "string", "enum": ["shared", "clone"] },
        "wait": { "type": "boolean", "description": "Wait for the end of its first run." },
    })
}

/// The checks that need nobody else, in the order of the page.
fn spawn(said: SpawnArguments, profiles: &Offer) -> Result<SpawnPod, ToolError> {
    let name = pod_name(&said.name)?;
    bounded("task", &said.task, TASK_BYTES)?;
    let clone = match said.isolation.as_deref() {
        None | Some("shared") => false,
        Some("clone" | "worktree") => true,
        Some(other) => {
            let other = shorten(other, SHOWN_BYTES);
            return Err(invalid(format!("`isolation` is `{other}`: it is `shared` or `clone`")));
        }
    };
    let scope = rules(&said.scope, clone)?;
    // Absent stays absent: the default is a name, too, and is looked up when the child is made.
    let profile = said.profile.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let chosen = profiles.choose(profile).map_err(|e| invalid(e.to_string()))?;
    let profile = profile.map(|_| match chosen {
        Choice::Inherit => INHERIT.to_owned(),
        Choice::Profile(name) => name.to_string(),
    });
    if let Some(instruction) = &said.instruction {
        bounded("instruction", instruction, INSTRUCTION_BYTES)?;
    }
    if let Some(cwd) = said.cwd.as_deref().filter(|cwd| !is_canonical(cwd)) {
        let cwd = shorten(cwd, SHOWN_BYTES);
        return Err(invalid(format!("`cwd` is `{cwd}`: give an absolute path without `.` and `..`")));
    }
    if let Some(usd) = said.budget.and_then(|budget| budget.usd).filter(|usd| !(0.0..=1e9).contains(usd)) {
        return Err(invalid(format!("`budget.usd` is {usd}: give an amount of dollars")));
    }
    Ok(SpawnPod {
        name,
        task: said.task,
        scope,
        profile,
        instruction: said.instruction,
        cwd: said.cwd,
        budget: said.budget.filter(|budget| !budget.is_empty()),
        clone,
        wait: said.wait,
    })
}

fn rules(said: &[RuleArguments], clone: bool) -> Result<Vec<ScopeRule>, ToolError> {
    if said.is_empty() && !clone {
        return Err(invalid(
            "`scope` is empty: list what the pod may read and write, e.g. \
             [{\"target\": \"/the/directory\", \"permission\": \"write\"}]"
                .to_owned(),
        ));
    }
    if said.len() > RULES {
        let count = said.len();
        return Err(invalid(format!("`scope` has {count} rules, at most {RULES} fit: name directories")));
    }
    said.iter().enumerate().map(|(at, rule)| one_rule(at, rule, clone)).collect()
}

fn one_rule(at: usize, rule: &RuleArguments, clone: bool) -> Result<ScopeRule, ToolError> {
    let target = shorten(&rule.target, SHOWN_BYTES);
    if !rule.target.starts_with('/') {
        return Err(invalid(format!(
            "`scope[{at}].target` is `{target}`, which is relative: give the absolute path"
        )));
    }
    if !is_canonical(&rule.target) {
        return Err(invalid(format!(
            "`scope[{at}].target` is `{target}`: give the path without `.`, `..`, `//` and a `/` at its end"
        )));
    }
    let permission = match rule.permission.as_str() {
        "read" => Permission::Read,
        "write" if clone => {
            return Err(invalid(format!(
                "`scope[{at}]` is a write rule for `{target}`: a pod in its own clone writes there alone; leave write \
                 rules out, or use isolation `shared`"
            )));
        }
        "write" => Permission::Write,
        other => {
            let other = shorten(other, SHOWN_BYTES);
            return Err(invalid(format!("`scope[{at}].permission` is `{other}`: it is `read` or `write`")));
        }
    };
    Ok(ScopeRule { target: rule.target.clone(), permission, recursive: rule.recursive })
}

fn pod_name(said: &str) -> Result<PodName, ToolError> {
    said.parse().map_err(|e| invalid(format!("`name`: {e}")))
}
