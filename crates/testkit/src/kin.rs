//! Kin: the other pods of a story, and the scripted hand that reaches them. They outlive every kill of the story's pod.
//!
//! Here: children that live, say, spend, ask, report and end when the story says so; a parent that hears reports or is
//! away; the calls about pods in the story's own short form. Elsewhere: the real hand (`driver::children`), many real
//! minds at once (`tree`).

use std::collections::{BTreeMap, BTreeSet};

use minke_pod::{CallEnd, Order, Prepared, Request, Sending, State, TreeNews, TreeOrder, What};
use minke_record::{
    Action, Actor, AskKind, AskSubject, ChildOutcome, Class, Entry, ErrorCode, Kind, OpenAsk, Own, Paid,
    Permission, PodEvent, PodName, PodsCall, ScopeRule, SendMode, SessionId, SpawnPod, Spent, WaitUntil,
};
use serde_json::Value;

/// A child of this name does not start.
const UNLUCKY: &str = "unlucky";

/// Another pod.
#[derive(Debug, Clone, Default)]
struct Relative {
    name: String,
    /// How it ended, if it does not live.
    gone: Option<ChildOutcome>,
    spent: Spent,
    said: Vec<String>,
    reports: Vec<PodEvent>,
    heard: BTreeSet<String>,
    asks: u128,
}

/// Everybody else.
#[derive(Debug, Clone, Default)]
pub struct Kin {
    pods: BTreeMap<SessionId, Relative>,
    /// Nobody above hears anything.
    pub parent_away: bool,
    /// Reports that wait for the parent: the one that is in flight.
    waiting: Option<u64>,
    /// What the parent has heard, each number once.
    pub told: Vec<(u64, String)>,
    problems: Vec<String>,
}

impl Kin {
    /// Carries an order out; gives what comes of it.
    pub(crate) fn order(&mut self, order: TreeOrder) -> Vec<What> {
        match order {
            TreeOrder::Spawn(spawning) => {
                if self.pods.contains_key(&spawning.session) {
                    self.problems.push(format!("pod {} was spawned twice", spawning.name));
                }
                if spawning.name.as_str() == UNLUCKY {
                    let (child, code) = (spawning.session, ErrorCode::Internal);
                    return vec![news(TreeNews::NotSpawned {
                        child,
                        code,
                        message: "it did not start".into(),
                    })];
                }
                let name = spawning.name.to_string();
                self.pods.insert(spawning.session, Relative { name, ..Relative::default() });
                vec![lives(spawning.session, None)]
            }
            TreeOrder::Restore { child, send, .. } => {
                let pod = self.pods.entry(child).or_default();
                pod.gone = None;
                vec![lives(child, send.map(|send| pod.hear(send)))]
            }
            TreeOrder::Send { call_id, child, send, .. } => {
                let pod = self.pods.entry(child).or_default();
                let ended = if pod.gone.is_some() {
                    CallEnd::Failed { message: "it does not live".to_owned() }
                } else {
                    CallEnd::done(pod.hear(send), None)
                };
                vec![news(TreeNews::Told { call_id, ended })]
            }
            TreeOrder::Read { call_id, child, since, .. } => {
                let said = self.pods.get(&child).map(|pod| pod.said.as_slice()).unwrap_or_default();
                let from = usize::try_from(since).unwrap_or(usize::MAX).min(said.len());
                let text = said[from..].join("\n\n");
                let summary = if text.is_empty() { "nothing new" } else { "new text" };
                let to_seq = said.len() as u64;
                let ended = CallEnd::done(summary, Some(text));
                vec![news(TreeNews::Read { call_id, child, to_seq, ended })]
            }
            TreeOrder::Stop { call_id, child, after_run, .. } => {
                let ended = CallEnd::done("it will stop", None);
                let told = news(TreeNews::Told { call_id, ended });
                if after_run {
                    return vec![told];
                }
                self.pods.entry(child).or_default().gone = Some(ChildOutcome::Stopped);
                self.ended(child).into_iter().chain([told]).collect()
            }
            TreeOrder::List { call_id, children, .. } => {
                let names: Vec<&str> = children.iter().map(|child| child.name.as_str()).collect();
                let ended = CallEnd::done(format!("pods: {}", names.join(", ")), None);
                vec![news(TreeNews::Told { call_id, ended })]
            }
            TreeOrder::Answer { call_id, decision, .. } => {
                let ended = CallEnd::done(format!("answered: {decision}"), None);
                vec![news(TreeNews::Told { call_id, ended })]
            }
            TreeOrder::Watch { child, .. } => match self.pods.get(&child) {
                None => {
                    let (code, message) = (ErrorCode::Internal, "it never began".to_owned());
                    vec![news(TreeNews::NotSpawned { child, code, message })]
                }
                Some(pod) if pod.gone.is_none() => vec![lives(child, None)],
                Some(_) => self.ended(child).into_iter().collect(),
            },
            TreeOrder::ReadReports { child, since } => {
                let reports = self.pods.get(&child).map(|pod| pod.reports.as_slice()).unwrap_or_default();
                let numbered = (1..).zip(reports).filter(|(number, _)| *number > since);
                numbered.map(|(number, event)| report(child, number, event)).collect()
            }
            TreeOrder::ReadSpending { child } => {
                let pod = self.pods.get(&child);
                let paid = pod.map(|pod| Paid {
                    session: child,
                    under: child,
                    read_to: pod.spent.turns,
                    spent: pod.spent,
                });
                vec![news(TreeNews::Spending { paid: paid.into_iter().collect() })]
            }
            TreeOrder::Report { seq, event, .. } => {
                if self.parent_away {
                    self.waiting = Some(seq);
                    return Vec::new();
                }
                self.hear_report(seq, &event);
                vec![news(TreeNews::Acked { seq })]
            }
            TreeOrder::GiveScope => vec![news(TreeNews::Scope { given: true, problem: None })],
            TreeOrder::TakeScope => vec![news(TreeNews::Scope { given: false, problem: None })],
        }
    }

    fn hear_report(&mut self, seq: u64, event: &PodEvent) {
        if self.told.iter().all(|(heard, _)| *heard != seq) {
            self.told.push((seq, kind_of(event)));
        }
    }

    /// The parent is back, and hears what was on its way.
    pub(crate) fn parent_is_back(&mut self, state: &State) -> Vec<What> {
        self.parent_away = false;
        let Some(seq) = self.waiting.take() else { return Vec::new() };
        match state.facts.outbox.iter().find(|waits| waits.seq == seq) {
            Some(waits) => {
                self.hear_report(seq, &waits.event.clone());
                vec![news(TreeNews::Acked { seq })]
            }
            None => Vec::new(),
        }
    }

    fn ended(&self, child: SessionId) -> Option<What> {
        let pod = self.pods.get(&child)?;
        let outcome = pod.gone.clone()?;
        let exit = (outcome != ChildOutcome::Crashed).then_some(0);
        // Who spawned it does not matter to a pod that has no grandchildren.
        let paid = Paid { session: child, under: child, read_to: pod.spent.turns, spent: pod.spent };
        Some(news(TreeNews::Ended { child, outcome, exit, paid: vec![paid] }))
    }

    /// A line of the story: a child does something. Gives what the story's pod hears of it, if it lives.
    pub(crate) fn does(&mut self, name: &str, what: &str) -> Result<Vec<What>, String> {
        let found = self.pods.iter_mut().rev().find(|(_, pod)| pod.name == name);
        let Some((session, pod)) = found else { return Err(format!("there is no pod `{name}`")) };
        let session = *session;
        if pod.gone.is_some() {
            return Ok(Vec::new()); // the dead do nothing
        }
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        let pod_name = name.to_owned();
        let event = match word {
            "says" => {
                pod.said.push(rest.to_owned());
                return Ok(Vec::new());
            }
            "spends" => {
                let tokens: u64 = rest.parse().map_err(|e| format!("{rest}: {e}"))?;
                pod.spent.tokens += tokens;
                pod.spent.turns += 1;
                return Ok(Vec::new());
            }
            "crashes" | "sleeps" | "stops" => {
                pod.gone = Some(match word {
                    "crashes" => ChildOutcome::Crashed,
                    "sleeps" => ChildOutcome::Slept,
                    _ => ChildOutcome::Stopped,
                });
                return Ok(self.ended(session).into_iter().collect());
            }
            "ends" => PodEvent::TurnEnded { pod_name, result: Some("finished".into()), wake: None },
            "fails" => PodEvent::Errored { pod_name, message: rest.to_owned(), wake: None },
            "asks" => {
                pod.asks += 1;
                let ask = question(pod.asks, rest);
                PodEvent::Asked { pod_name, ask, socket: "/run/child.sock".into(), wake: None }
            }
            "lends" => PodEvent::ScopeSubDelegated {
                parent_pod: pod_name,
                sub_pod: rest.to_owned(),
                sub_socket: "/run/sub.sock".into(),
                scope: Vec::new(),
            },
            _ => return Err(format!("a pod does not `{what}`")),
        };
        pod.reports.push(event.clone());
        Ok(vec![report(session, pod.reports.len() as u64, &event)])
    }

    /// What must be true of everybody at the end, given what the story's pod knows.
    pub(crate) fn judge(&self, state: &State, entries: &[Entry], lives: bool) -> Result<(), String> {
        let mut problems = self.problems.clone();
        let mut seen = BTreeSet::new();
        for entry in entries {
            if let Kind::Inbox(e) = &entry.kind
                && let (Some(from), Some(seq)) = (e.from.session, e.from_seq)
                && !seen.insert((from, seq))
            {
                problems.push(format!("report {seq} of {from} was taken twice"));
            }
        }
        let mut counted = 0u64;
        for (session, pod) in &self.pods {
            let known = state.facts.children.iter().find(|child| child.session == *session);
            let Some(known) = known else {
                problems.push(format!("pod {} is nobody's child", pod.name));
                continue;
            };
            if lives && known.ended.is_some() != pod.gone.is_some() {
                problems
                    .push(format!("pod {} {:?}, and its parent knows {:?}", pod.name, pod.gone, known.ended));
            }
            let booked = state.spent_by(*session);
            if known.ended.is_some() && booked.tokens != pod.spent.tokens {
                problems.push(format!("pod {} spent {:?}, booked {booked:?}", pod.name, pod.spent));
            }
            counted += booked.tokens;
            let heard = state.facts.heard.get(session).copied().unwrap_or(0);
            if lives && heard < pod.reports.len() as u64 {
                problems.push(format!("pod {} reported {}, heard {heard}", pod.name, pod.reports.len()));
            }
        }
        for child in
            state.facts.children.iter().filter(|child| lives && !self.pods.contains_key(&child.session))
        {
            problems.push(format!("child {} is nowhere", child.name));
        }
        if counted != state.facts.children_spent.tokens {
            problems.push(format!("children spent {counted}, booked {}", state.facts.children_spent.tokens));
        }
        let (granted, left) = (state.granted().tokens, state.left().tokens);
        let held = state.live_children().filter_map(|child| {
            Some(child.budget?.tokens?.saturating_sub(state.spent_by(child.session).tokens))
        });
        let all = state.spent().tokens + held.sum::<u64>();
        if granted.is_some_and(|granted| left != Some(granted.saturating_sub(all))) {
            problems.push(format!("granted {granted:?}, spent and held {all}, left {left:?}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

impl Relative {
    fn hear(&mut self, send: Sending) -> String {
        // The same message again is the same message.
        self.heard.insert(send.op_id);
        "started".to_owned()
    }
}

fn news(news: TreeNews) -> What {
    What::Tree(Box::new(news))
}

fn lives(child: SessionId, sent: Option<String>) -> What {
    news(TreeNews::Spawned { child, socket: "/run/child.sock".to_owned(), clone: None, sent })
}

fn report(from: SessionId, number: u64, event: &PodEvent) -> What {
    let order = Order::PodEvent { event: event.clone(), from: Some(from), from_seq: Some(number) };
    What::Order(Box::new(Request { from: Actor::pod(from), reply: None, order }))
}

pub(crate) fn kind_of(event: &PodEvent) -> String {
    let word = match event {
        PodEvent::TurnEnded { result, .. } => {
            return format!("turn_ended({})", result.as_deref().unwrap_or(""));
        }
        PodEvent::Errored { .. } => "errored",
        PodEvent::ShutDown { .. } => "shut_down",
        PodEvent::Asked { .. } => "asked",
        PodEvent::ScopeSubDelegated { .. } => "scope_sub_delegated",
        PodEvent::Unknown => "unknown",
    };
    word.to_owned()
}

/// A question about a command (`Sh …`) or a file (`Note`).
fn question(number: u128, text: &str) -> Value {
    let action = match text.strip_prefix("Sh ") {
        Some(command) => {
            Action { command: Some(command.to_owned()), side_effects: true, ..Action::default() }
        }
        None => Action { writes: vec!["/project/x".to_owned()], side_effects: true, ..Action::default() },
    };
    let ask = OpenAsk {
        id: minke_record::AskId(uuid::Uuid::from_u128(number)),
        ask: AskKind::Approval,
        subject: AskSubject { text: Some(text.to_owned()), action: Some(action), ..AskSubject::default() },
        options: vec!["approved".to_owned(), "denied".to_owned()],
        expires: None,
    };
    serde_json::to_value(ask).expect("a question is plain data")
}

/// What a call about pods says, in the story's short form, or `None` for another tool.
pub(crate) fn prepare(tool: &str, arguments: &str) -> Option<Result<Prepared, String>> {
    if !TOOLS.contains(&tool) {
        return None;
    }
    Some(read(tool, arguments).map(|call| {
        let (pod, class) = match &call {
            PodsCall::Spawn(spawn) => (Some(spawn.name.to_string()), Class::Once),
            PodsCall::Send { name, .. } | PodsCall::Stop { name, .. } | PodsCall::Answer { name, .. } => {
                (Some(name.to_string()), Class::Once)
            }
            PodsCall::Read { name, .. } => (Some(name.to_string()), Class::Pure),
            PodsCall::Wait { .. } | PodsCall::List { .. } => (None, Class::Pure),
        };
        let action = Action { pod, side_effects: class == Class::Once, ..Action::default() };
        Prepared { own: Some(Own::Pods(Box::new(call))), ..Prepared::new(class, action) }
    }))
}

/// The calls about pods that a story knows, sorted.
pub(crate) const TOOLS: [&str; 7] =
    ["AnswerPod", "ListPods", "ReadPodOutput", "SendToPod", "SpawnPod", "StopPod", "WaitPods"];

fn read(tool: &str, arguments: &str) -> Result<PodsCall, String> {
    let value: Value = serde_json::from_str(arguments).map_err(|e| format!("not JSON: {e}"))?;
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let named = |text: Option<&str>| -> Result<PodName, String> {
        text.ok_or("`name` is missing")?.parse().map_err(|e| format!("{e}"))
    };
    let name = || named(text("name"));
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    Ok(match tool {
        "SpawnPod" => {
            let rule = |permission: Permission, key: &str| {
                let target = text(key)?.to_owned();
                Some(ScopeRule { target, permission, recursive: true })
            };
            let scope = [rule(Permission::Write, "write"), rule(Permission::Read, "read")];
            PodsCall::Spawn(SpawnPod {
                name: name()?,
                task: text("task").unwrap_or("work").to_owned(),
                scope: scope.into_iter().flatten().collect(),
                profile: text("profile").map(ToOwned::to_owned),
                instruction: None,
                cwd: text("cwd").map(ToOwned::to_owned),
                budget: number("tokens")
                    .map(|tokens| minke_record::Budget { tokens: Some(tokens), ..Default::default() }),
                clone: value.get("clone").is_some(),
                wait: value.get("wait").is_some(),
            })
        }
        "SendToPod" => {
            let message = text("message").unwrap_or("go on").to_owned();
            PodsCall::Send { name: name()?, message, mode: SendMode::Queue }
        }
        "ReadPodOutput" => {
            PodsCall::Read { name: name()?, since: number("since"), max_bytes: 4_096, detail: false }
        }
        "WaitPods" => {
            let names = value.get("names").and_then(Value::as_array).cloned().unwrap_or_default();
            let names = names.iter().map(|name| named(name.as_str())).collect::<Result<_, _>>()?;
            let until = match text("until").unwrap_or("any") {
                "all" => WaitUntil::All,
                "ask" => WaitUntil::Ask,
                _ => WaitUntil::Any,
            };
            PodsCall::Wait { names, until, timeout_s: number("timeout_s").unwrap_or(600) }
        }
        "StopPod" => PodsCall::Stop { name: name()?, after_run: value.get("after_run").is_some() },
        "ListPods" => PodsCall::List { tree: false },
        _ => {
            let ask = number("ask").map(u128::from).unwrap_or_default();
            let decision = text("decision").unwrap_or("approved").into();
            PodsCall::Answer { name: name()?, ask: minke_record::AskId(uuid::Uuid::from_u128(ask)), decision }
        }
    })
}
