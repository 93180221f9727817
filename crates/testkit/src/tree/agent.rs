//! The agents of the tree: what their models say, decided by chance, and what their tools make of it.
//!
//! Here: calls that spawn (often where somebody else is, sometimes more than they have), send, read, wait, stop, list,
//! answer, ask and run commands. Elsewhere: the product's own arguments (`tools`), which have their own tests.

use std::collections::VecDeque;

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{Boot, Prepared};
use minke_policy::RuleSet;
use minke_record::{
    Action, Budget, Class, Decision, Own, Permission, PodName, PodsCall, ScopeRule, SendMode, SpawnPod,
    ToolSpec, WaitUntil,
};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::story::Scene;

/// The tool that runs a command in a fence.
pub(super) const COMMAND: &str = "Sh";
/// Where agents work; the first ones are roots' own.
pub(super) const PLACES: [&str; 9] =
    ["/p", "/q", "/p/a", "/p/b", "/p/a/x", "/p/a/y", "/p/b/x", "/q/a", "/p/secret"];
/// Names for children: few, so that they are taken.
const NAMES: [&str; 12] =
    ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"];

pub(super) fn specs() -> Vec<ToolSpec> {
    let names = [
        "AnswerPod",
        "AskUser",
        "ListPods",
        "ReadPodOutput",
        "SendToPod",
        COMMAND,
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

/// What a process knows when it begins.
pub(super) fn boot(pid: u32) -> Boot {
    let scene = Scene { fence: Some("A".to_owned()), ..Scene::default() };
    Boot { pid, tools: specs(), ..crate::scene::boot(&scene, RuleSet::default()) }
}

/// What a model says to one request.
pub(super) fn speech(chance: &mut Chance, calm: bool, home: &str, usage: TokenUsage) -> VecDeque<ModelEvent> {
    let mut events = VecDeque::new();
    let mut block = |index: u32, kind: BlockKind, text: String| {
        events.push_back(ModelEvent::BlockStart { index, kind });
        events.push_back(ModelEvent::Delta { index, text });
        events.push_back(ModelEvent::BlockStop { index, end: BlockEnd::default() });
    };
    let calls = if calm || chance.one_in(3) { 0 } else { 1 + chance.below(2) };
    if calls == 0 {
        block(0, BlockKind::Text, "words".to_owned());
    }
    for at in 0..calls {
        let (name, arguments) = call(chance, home);
        let kind = BlockKind::ToolCall { id: format!("theirs_{at}"), name: name.to_owned() };
        block(u32::try_from(at).unwrap_or(0), kind, arguments.to_string());
    }
    events.push_back(ModelEvent::Usage(usage));
    let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
    events.push_back(ModelEvent::Done { stop });
    events
}

fn pick<'a>(chance: &mut Chance, from: &[&'a str]) -> &'a str {
    from.get(chance.below(from.len())).copied().unwrap_or_default()
}

fn call(chance: &mut Chance, home: &str) -> (&'static str, Value) {
    let name = pick(chance, &NAMES);
    match chance.below(20) {
        0..=7 => ("SpawnPod", spawn(chance, home, name)),
        8..=10 => {
            let mode = pick(chance, &["queue", "queue", "steer", "interrupt", "reject"]);
            ("SendToPod", json!({"name": name, "message": "go on", "mode": mode}))
        }
        11 => ("ReadPodOutput", json!({"name": name})),
        12..=14 => {
            let until = pick(chance, &["any", "all", "ask"]);
            let timeout = 1 + chance.below(60);
            ("WaitPods", json!({"names": [name], "until": until, "timeout_s": timeout}))
        }
        15 => ("StopPod", json!({"name": name, "after_run": chance.one_in(3)})),
        16 => ("ListPods", json!({})),
        17 => ("AskUser", json!({})),
        18 => ("AnswerPod", json!({"name": name})),
        _ => (COMMAND, json!({"command": "make"})),
    }
}

fn spawn(chance: &mut Chance, home: &str, name: &str) -> Value {
    let rules: Vec<Value> = (0..=chance.below(2))
        .map(|_| {
            let permission = if chance.one_in(4) { "read" } else { "write" };
            let within = format!("{home}/{}", pick(chance, &["a", "b", "x", "y"]));
            let target = if chance.one_in(3) { pick(chance, &PLACES) } else { within.as_str() };
            json!({"target": target, "permission": permission, "recursive": !chance.one_in(8)})
        })
        .collect();
    let tokens = chance.one_in(2).then(|| 2_000 + 1_000 * chance.below(40));
    let children = chance.one_in(6).then(|| chance.below(3));
    json!({"name": name, "scope": rules, "tokens": tokens, "children": children, "wait": chance.one_in(5)})
}

/// What a call would do, as the tools say it.
pub(super) fn prepare(tool: &str, arguments: &str) -> Result<Prepared, String> {
    let said: Value = serde_json::from_str(arguments).map_err(|why| why.to_string())?;
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = || PodName::from_any(text("name"));
    let pods = match tool {
        "SpawnPod" => PodsCall::Spawn(SpawnPod {
            name: name(),
            task: "work".to_owned(),
            scope: said
                .get("scope")
                .and_then(Value::as_array)
                .map(|rules| rules.iter().map(rule).collect())
                .unwrap_or_default(),
            profile: Some("inherit".to_owned()),
            instruction: None,
            cwd: None,
            budget: budget(&said),
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
            PodsCall::Send { name: name(), message: text("message").to_owned(), mode }
        }
        "ReadPodOutput" => PodsCall::Read { name: name(), since: None, max_bytes: 10_000, detail: false },
        "WaitPods" => {
            let until = match text("until") {
                "all" => WaitUntil::All,
                "ask" => WaitUntil::Ask,
                _ => WaitUntil::Any,
            };
            let names = said.get("names").and_then(Value::as_array).into_iter().flatten();
            let names = names.filter_map(Value::as_str).map(PodName::from_any).collect();
            PodsCall::Wait {
                names,
                until,
                timeout_s: said.get("timeout_s").and_then(Value::as_u64).unwrap_or(1),
            }
        }
        "StopPod" => {
            PodsCall::Stop { name: name(), after_run: said.get("after_run") == Some(&Value::Bool(true)) }
        }
        "ListPods" => PodsCall::List { tree: false },
        "AnswerPod" => PodsCall::Answer {
            name: name(),
            ask: minke_record::AskId(uuid::Uuid::nil()),
            decision: Decision::Approved,
        },
        "AskUser" => {
            let own = Some(Own::AskUser { question: "which?".to_owned(), options: Vec::new() });
            return Ok(Prepared { own, ..Prepared::new(Class::Pure, Action::default()) });
        }
        _ => {
            let action = Action { command: Some("make".to_owned()), side_effects: true, ..Action::default() };
            return Ok(Prepared::new(Class::Once, action));
        }
    };
    let pure = matches!(tool, "ReadPodOutput" | "WaitPods" | "ListPods");
    let class = if pure { Class::Pure } else { Class::Once };
    let action = Action {
        pod: Some(text("name").to_owned()).filter(|_| !pure),
        side_effects: !pure,
        ..Action::default()
    };
    Ok(Prepared { own: Some(Own::Pods(Box::new(pods))), ..Prepared::new(class, action) })
}

fn rule(said: &Value) -> ScopeRule {
    let write = said.get("permission").and_then(Value::as_str) == Some("write");
    ScopeRule {
        target: said.get("target").and_then(Value::as_str).unwrap_or_default().to_owned(),
        permission: if write { Permission::Write } else { Permission::Read },
        recursive: said.get("recursive") == Some(&Value::Bool(true)),
    }
}

fn budget(said: &Value) -> Option<Budget> {
    let tokens = said.get("tokens").and_then(Value::as_u64);
    let children = said.get("children").and_then(Value::as_u64);
    let budget = Budget { tokens, children, ..Budget::default() };
    (!budget.is_empty()).then_some(budget)
}
