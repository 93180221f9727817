//! Simulated agents: random replies of their models, and the preparation of their calls.
//!
//! Calls spawn (often in a scope of another pod, sometimes beyond their own), send, read, wait, stop, list,
//! answer, ask and run commands. Elsewhere: the product's tools (`tools`), which have their own tests.

use std::collections::VecDeque;

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{BootInfo, PreparedCall};
use minke_policy::RuleSet;
use minke_record::{
    Action, Budget, Class, Decision, InternalCall, Permission, PodName, PodToolCall, ScopeRule, SendMode,
    SpawnPod, ToolSpec, WaitUntil,
};
use serde_json::{Value, json};

use crate::random::SimRandom;
use crate::story::StoryScene;

/// The tool that runs a sandboxed command.
pub(super) const COMMAND_TOOL: &str = "Sh";
/// Working directories; the first ones belong to roots.
pub(super) const WORK_DIRS: [&str; 9] =
    ["/p", "/q", "/p/a", "/p/b", "/p/a/x", "/p/a/y", "/p/b/x", "/q/a", "/p/secret"];
/// Names of children: few, so that conflicts occur.
const CHILD_NAMES: [&str; 12] =
    ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"];

pub(super) fn tool_specs() -> Vec<ToolSpec> {
    let names = [
        "AnswerPod",
        "AskUser",
        "ListPods",
        "ReadPodOutput",
        "SendToPod",
        COMMAND_TOOL,
        "SpawnPod",
        "StopPod",
        "WaitPods",
    ];
    names
        .iter()
        .map(|name| ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            schema: json!({"type": "object"}),
        })
        .collect()
}

/// Returns the boot information.
pub(super) fn boot_info(pid: u32) -> BootInfo {
    let scene = StoryScene { sandbox: Some("namespaces".to_owned()), ..StoryScene::default() };
    BootInfo { pid, tools: tool_specs(), ..crate::scene::boot_info(&scene, RuleSet::default()) }
}

/// Returns a random reply.
pub(super) fn random_reply(
    random: &mut SimRandom,
    is_settling: bool,
    home: &str,
    usage: TokenUsage,
) -> VecDeque<ModelEvent> {
    let mut events = VecDeque::new();
    let mut block = |index: u32, kind: BlockKind, text: String| {
        events.push_back(ModelEvent::BlockStart { index, kind });
        events.push_back(ModelEvent::Delta { index, text });
        events.push_back(ModelEvent::BlockStop { index, end: BlockEnd::default() });
    };
    let calls = if is_settling || random.one_in(3) { 0 } else { 1 + random.below(2) };
    if calls == 0 {
        block(0, BlockKind::Text, "words".to_owned());
    }
    for at in 0..calls {
        let (name, arguments) = random_call(random, home);
        let kind = BlockKind::ToolCall { id: format!("theirs_{at}"), name: name.to_owned() };
        block(u32::try_from(at).unwrap_or(0), kind, arguments.to_string());
    }
    events.push_back(ModelEvent::Usage(usage));
    let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
    events.push_back(ModelEvent::Done { stop });
    events
}

fn pick_word<'a>(random: &mut SimRandom, from: &[&'a str]) -> &'a str {
    from.get(random.below(from.len())).copied().unwrap_or_default()
}

fn random_call(chance: &mut SimRandom, home: &str) -> (&'static str, Value) {
    let name = pick_word(chance, &CHILD_NAMES);
    match chance.below(20) {
        0..=7 => ("SpawnPod", spawn_arguments(chance, home, name)),
        8..=10 => {
            let mode = pick_word(chance, &["queue", "queue", "steer", "interrupt", "reject"]);
            ("SendToPod", json!({"name": name, "message": "continue", "mode": mode}))
        }
        11 => ("ReadPodOutput", json!({"name": name})),
        12..=14 => {
            let until = pick_word(chance, &["any", "all", "ask"]);
            let timeout = 1 + chance.below(60);
            ("WaitPods", json!({"names": [name], "until": until, "timeout_s": timeout}))
        }
        15 => ("StopPod", json!({"name": name, "after_run": chance.one_in(3)})),
        16 => ("ListPods", json!({})),
        17 => ("AskUser", json!({})),
        18 => ("AnswerPod", json!({"name": name})),
        _ => (COMMAND_TOOL, json!({"command": "make"})),
    }
}

fn spawn_arguments(random: &mut SimRandom, home: &str, name: &str) -> Value {
    let rules: Vec<Value> = (0..=random.below(2))
        .map(|_| {
            let permission = if random.one_in(4) { "read" } else { "write" };
            let within = format!("{home}/{}", pick_word(random, &["a", "b", "x", "y"]));
            let target = if random.one_in(3) { pick_word(random, &WORK_DIRS) } else { within.as_str() };
            json!({"target": target, "permission": permission, "recursive": !random.one_in(8)})
        })
        .collect();
    let tokens = random.one_in(2).then(|| 2_000 + 1_000 * random.below(40));
    let children = random.one_in(6).then(|| random.below(3));
    json!({"name": name, "scope": rules, "tokens": tokens, "children": children, "wait": random.one_in(5)})
}

/// Prepares a call like the tools.
pub(super) fn prepare_call(tool: &str, arguments: &str) -> Result<PreparedCall, String> {
    let said: Value = serde_json::from_str(arguments).map_err(|why| why.to_string())?;
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = || PodName::from_text(text("name"));
    let pods = match tool {
        "SpawnPod" => PodToolCall::Spawn(SpawnPod {
            name: name(),
            task: "work".to_owned(),
            scope: said
                .get("scope")
                .and_then(Value::as_array)
                .map(|rules| rules.iter().map(parse_scope_rule).collect())
                .unwrap_or_default(),
            profile: Some("inherit".to_owned()),
            instruction: None,
            cwd: None,
            budget: parse_budget(&said),
            clone: false,
            wait: said.get("wait") == Some(&Value::Bool(true)),
        }),
        "SendToPod" => {
            let mode = match text("mode") {
                "steer" => SendMode::Steer,
                "interrupt" => SendMode::Interrupt,
                "reject" => SendMode::Reject,
                _ => SendMode::Queue,
            };
            PodToolCall::Send { name: name(), message: text("message").to_owned(), mode }
        }
        "ReadPodOutput" => PodToolCall::Read { name: name(), since: None, max_bytes: 10_000, detail: false },
        "WaitPods" => {
            let until = match text("until") {
                "all" => WaitUntil::All,
                "ask" => WaitUntil::Ask,
                _ => WaitUntil::Any,
            };
            let names = said.get("names").and_then(Value::as_array).into_iter().flatten();
            let names = names.filter_map(Value::as_str).map(PodName::from_text).collect();
            PodToolCall::Wait {
                names,
                until,
                timeout_s: said.get("timeout_s").and_then(Value::as_u64).unwrap_or(1),
            }
        }
        "StopPod" => {
            PodToolCall::Stop { name: name(), after_run: said.get("after_run") == Some(&Value::Bool(true)) }
        }
        "ListPods" => PodToolCall::List { tree: false },
        "AnswerPod" => PodToolCall::Answer {
            name: name(),
            ask: minke_record::AskId(uuid::Uuid::nil()),
            decision: Decision::Approved,
        },
        "AskUser" => {
            let internal_call =
                Some(InternalCall::AskUser { question: "which?".to_owned(), options: Vec::new() });
            return Ok(PreparedCall { internal_call, ..PreparedCall::new(Class::Pure, Action::default()) });
        }
        _ => {
            let action = Action { command: Some("make".to_owned()), side_effects: true, ..Action::default() };
            return Ok(PreparedCall::new(Class::Once, action));
        }
    };
    let pure = matches!(tool, "ReadPodOutput" | "WaitPods" | "ListPods");
    let class = if pure { Class::Pure } else { Class::Once };
    let action = Action {
        pod: Some(text("name").to_owned()).filter(|_| !pure),
        side_effects: !pure,
        ..Action::default()
    };
    Ok(PreparedCall {
        internal_call: Some(InternalCall::Pods(Box::new(pods))),
        ..PreparedCall::new(class, action)
    })
}

fn parse_scope_rule(said: &Value) -> ScopeRule {
    let write = said.get("permission").and_then(Value::as_str) == Some("write");
    ScopeRule {
        target: said.get("target").and_then(Value::as_str).unwrap_or_default().to_owned(),
        permission: if write { Permission::Write } else { Permission::Read },
        recursive: said.get("recursive") == Some(&Value::Bool(true)),
    }
}

fn parse_budget(said: &Value) -> Option<Budget> {
    let tokens = said.get("tokens").and_then(Value::as_u64);
    let children = said.get("children").and_then(Value::as_u64);
    let budget = Budget { tokens, children, ..Budget::default() };
    (!budget.is_empty()).then_some(budget)
}
