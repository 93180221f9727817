//! Scripted pods: the other pods of a story, and the execution of commands about them. They survive every
//! kill of the story's pod.
//!
//! Children run, produce text, spend, ask, report and end as the story says; the parent can be away; calls
//! about pods have a short form. Elsewhere: the real execution (`driver::children`), many real pods at once
//! (`tree`).

use std::collections::{BTreeMap, BTreeSet};

use minke_pod::{
    CallEnd, ChildCommand, ChildEvent, CommandRequest, InputKind, OutgoingMessage, PodCommand, PreparedCall,
    State,
};
use minke_record::{
    Action, Actor, AskKind, AskSubject, ChildOutcome, Class, Entry, ErrorCode, InternalCall, Kind, OpenAsk,
    Permission, PodEvent, PodName, PodSpend, PodToolCall, ScopeRule, SendMode, SessionId, SpawnPod, Spend,
    WaitUntil,
};
use serde_json::Value;

/// A child with this name fails to start.
const UNLUCKY_NAME: &str = "unlucky";

/// Another pod.
#[derive(Debug, Clone, Default)]
struct ScriptedPod {
    name: String,
    /// How it ended, if it has ended.
    outcome: Option<ChildOutcome>,
    spent: Spend,
    texts: Vec<String>,
    reports: Vec<PodEvent>,
    received: BTreeSet<String>,
    asks: u128,
}

/// All other pods.
#[derive(Debug, Clone, Default)]
pub struct ScriptedPods {
    pods: BTreeMap<SessionId, ScriptedPod>,
    /// The parent receives no reports.
    pub is_parent_away: bool,
    /// The report in flight.
    waiting_report: Option<u64>,
    /// The reports that the parent has received, each number once.
    pub parent_received: Vec<(u64, String)>,
    problems: Vec<String>,
}

impl ScriptedPods {
    /// Runs a command and returns the resulting inputs.
    pub(crate) fn run_command(&mut self, order: ChildCommand) -> Vec<InputKind> {
        match order {
            ChildCommand::Spawn(request) => {
                if self.pods.contains_key(&request.session) {
                    self.problems.push(format!("pod {} was spawned twice", request.name));
                }
                if request.name.as_str() == UNLUCKY_NAME {
                    let (child, code) = (request.session, ErrorCode::Internal);
                    return vec![child_event(ChildEvent::SpawnFailed {
                        child,
                        code,
                        message: "it did not start".into(),
                    })];
                }
                let name = request.name.to_string();
                self.pods.insert(request.session, ScriptedPod { name, ..ScriptedPod::default() });
                vec![spawned_event(request.session, None)]
            }
            ChildCommand::Restore { child, message, .. } => {
                let pod = self.pods.entry(child).or_default();
                pod.outcome = None;
                vec![spawned_event(child, message.map(|send| pod.receive_message(send)))]
            }
            ChildCommand::Send { call_id, child, message: send, .. } => {
                let pod = self.pods.entry(child).or_default();
                let ended = if pod.outcome.is_some() {
                    CallEnd::Failed { message: "it does not live".to_owned() }
                } else {
                    CallEnd::done(pod.receive_message(send), None)
                };
                vec![child_event(ChildEvent::CallFinished { call_id, ended })]
            }
            ChildCommand::Read { call_id, child, since, .. } => {
                let said = self.pods.get(&child).map(|pod| pod.texts.as_slice()).unwrap_or_default();
                let from = usize::try_from(since).unwrap_or(usize::MAX).min(said.len());
                let text = said[from..].join("\n\n");
                let summary = if text.is_empty() { "nothing new" } else { "new text" };
                let to_seq = said.len() as u64;
                let ended = CallEnd::done(summary, Some(text));
                vec![child_event(ChildEvent::Read { call_id, child, to_seq, ended })]
            }
            ChildCommand::Stop { call_id, child, after_run, .. } => {
                let ended = CallEnd::done("it will stop", None);
                let told = child_event(ChildEvent::CallFinished { call_id, ended });
                if after_run {
                    return vec![told];
                }
                self.pods.entry(child).or_default().outcome = Some(ChildOutcome::Stopped);
                self.end_event(child).into_iter().chain([told]).collect()
            }
            ChildCommand::List { call_id, children, .. } => {
                let names: Vec<&str> = children.iter().map(|child| child.name.as_str()).collect();
                let ended = CallEnd::done(format!("pods: {}", names.join(", ")), None);
                vec![child_event(ChildEvent::CallFinished { call_id, ended })]
            }
            ChildCommand::Answer { call_id, decision, .. } => {
                let ended = CallEnd::done(format!("answered: {decision}"), None);
                vec![child_event(ChildEvent::CallFinished { call_id, ended })]
            }
            ChildCommand::Watch { child, .. } => match self.pods.get(&child) {
                None => {
                    let (code, message) = (ErrorCode::Internal, "it never began".to_owned());
                    vec![child_event(ChildEvent::SpawnFailed { child, code, message })]
                }
                Some(pod) if pod.outcome.is_none() => vec![spawned_event(child, None)],
                Some(_) => self.end_event(child).into_iter().collect(),
            },
            ChildCommand::ReadReports { child, since } => {
                let reports = self.pods.get(&child).map(|pod| pod.reports.as_slice()).unwrap_or_default();
                let numbered = (1..).zip(reports).filter(|(number, _)| *number > since);
                numbered.map(|(number, event)| report_command(child, number, event)).collect()
            }
            ChildCommand::ReadSpending { child } => {
                let pod = self.pods.get(&child);
                let paid = pod.map(|pod| PodSpend {
                    session: child,
                    under: child,
                    read_to: pod.spent.turns,
                    spent: pod.spent,
                });
                vec![child_event(ChildEvent::Spending { paid: paid.into_iter().collect() })]
            }
            ChildCommand::Report { seq, event, .. } => {
                if self.is_parent_away {
                    self.waiting_report = Some(seq);
                    return Vec::new();
                }
                self.receive_report(seq, &event);
                vec![child_event(ChildEvent::ReportAcked { seq })]
            }
            ChildCommand::ReleaseScope => {
                vec![child_event(ChildEvent::Scope { released: true, problem: None })]
            }
            ChildCommand::AcquireScope => {
                vec![child_event(ChildEvent::Scope { released: false, problem: None })]
            }
        }
    }

    fn receive_report(&mut self, seq: u64, event: &PodEvent) {
        if self.parent_received.iter().all(|(heard, _)| *heard != seq) {
            self.parent_received.push((seq, event_name(event)));
        }
    }

    /// The parent is available again and receives the report in flight.
    pub(crate) fn restore_parent(&mut self, state: &State) -> Vec<InputKind> {
        self.is_parent_away = false;
        let Some(seq) = self.waiting_report.take() else { return Vec::new() };
        match state.facts.outbox.iter().find(|waits| waits.seq == seq) {
            Some(waits) => {
                self.receive_report(seq, &waits.event.clone());
                vec![child_event(ChildEvent::ReportAcked { seq })]
            }
            None => Vec::new(),
        }
    }

    fn end_event(&self, child: SessionId) -> Option<InputKind> {
        let pod = self.pods.get(&child)?;
        let outcome = pod.outcome.clone()?;
        let exit = (outcome != ChildOutcome::Crashed).then_some(0);
        // The spawning pod does not matter, because there are no grandchildren.
        let paid = PodSpend { session: child, under: child, read_to: pod.spent.turns, spent: pod.spent };
        Some(child_event(ChildEvent::Ended { child, outcome, exit, paid: vec![paid] }))
    }

    /// Runs a story line of a child. Returns the inputs for the story's pod.
    pub(crate) fn run_line(&mut self, name: &str, what: &str) -> Result<Vec<InputKind>, String> {
        let found = self.pods.iter_mut().rev().find(|(_, pod)| pod.name == name);
        let Some((session, pod)) = found else { return Err(format!("there is no pod `{name}`")) };
        let session = *session;
        if pod.outcome.is_some() {
            return Ok(Vec::new()); // an ended pod does nothing
        }
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        let pod_name = name.to_owned();
        let event = match word {
            "says" => {
                pod.texts.push(rest.to_owned());
                return Ok(Vec::new());
            }
            "spends" => {
                let tokens: u64 = rest.parse().map_err(|e| format!("{rest}: {e}"))?;
                pod.spent.tokens += tokens;
                pod.spent.turns += 1;
                return Ok(Vec::new());
            }
            "crashes" | "sleeps" | "stops" => {
                pod.outcome = Some(match word {
                    "crashes" => ChildOutcome::Crashed,
                    "sleeps" => ChildOutcome::Slept,
                    _ => ChildOutcome::Stopped,
                });
                return Ok(self.end_event(session).into_iter().collect());
            }
            "ends" => PodEvent::TurnEnded { pod_name, result: Some("finished".into()), wake: None },
            "fails" => PodEvent::Errored { pod_name, message: rest.to_owned(), wake: None },
            "asks" => {
                pod.asks += 1;
                let ask = ask_value(pod.asks, rest);
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
        Ok(vec![report_command(session, pod.reports.len() as u64, &event)])
    }

    /// Checks the pods at the end against the state of the story's pod.
    pub(crate) fn check_pods(&self, state: &State, entries: &[Entry], lives: bool) -> Result<(), String> {
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
                problems.push(format!("pod {} has no parent", pod.name));
                continue;
            };
            if lives && known.ended.is_some() != pod.outcome.is_some() {
                problems.push(format!(
                    "pod {} {:?}, and its parent knows {:?}",
                    pod.name, pod.outcome, known.ended
                ));
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
        let (granted, left) = (state.granted_budget().tokens, state.remaining_budget().tokens);
        let held = state.live_children().filter_map(|child| {
            Some(child.budget?.tokens?.saturating_sub(state.spent_by(child.session).tokens))
        });
        let all = state.total_spent().tokens + held.sum::<u64>();
        if granted.is_some_and(|granted| left != Some(granted.saturating_sub(all))) {
            problems.push(format!("granted {granted:?}, spent and held {all}, left {left:?}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

impl ScriptedPod {
    fn receive_message(&mut self, send: OutgoingMessage) -> String {
        // A repeated message is ignored.
        self.received.insert(send.op_id);
        "started".to_owned()
    }
}

fn child_event(news: ChildEvent) -> InputKind {
    InputKind::Child(Box::new(news))
}

fn spawned_event(child: SessionId, delivery: Option<String>) -> InputKind {
    child_event(ChildEvent::Spawned { child, socket: "/run/child.sock".to_owned(), clone: None, delivery })
}

fn report_command(from: SessionId, number: u64, event: &PodEvent) -> InputKind {
    let command = PodCommand::PodEvent { event: event.clone(), from: Some(from), from_seq: Some(number) };
    InputKind::Command(Box::new(CommandRequest { from: Actor::from_pod(from), reply: None, command }))
}

pub(crate) fn event_name(event: &PodEvent) -> String {
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

/// Returns an ask about a command (`Sh …`) or a file (`Note`).
fn ask_value(number: u128, text: &str) -> Value {
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

/// Prepares a call about pods in the story's short form, or returns `None` for another tool.
pub(crate) fn prepare_pods_call(tool: &str, arguments: &str) -> Option<Result<PreparedCall, String>> {
    if !POD_TOOLS.contains(&tool) {
        return None;
    }
    Some(parse_pods_call(tool, arguments).map(|call| {
        let (pod, class) = match &call {
            PodToolCall::Spawn(spawn) => (Some(spawn.name.to_string()), Class::Once),
            PodToolCall::Send { name, .. }
            | PodToolCall::Stop { name, .. }
            | PodToolCall::Answer { name, .. } => (Some(name.to_string()), Class::Once),
            PodToolCall::Read { name, .. } => (Some(name.to_string()), Class::Pure),
            PodToolCall::Wait { .. } | PodToolCall::List { .. } => (None, Class::Pure),
        };
        let action = Action { pod, side_effects: class == Class::Once, ..Action::default() };
        PreparedCall {
            internal_call: Some(InternalCall::Pods(Box::new(call))),
            ..PreparedCall::new(class, action)
        }
    }))
}

/// The calls about pods in stories, sorted.
pub(crate) const POD_TOOLS: [&str; 7] =
    ["AnswerPod", "ListPods", "ReadPodOutput", "SendToPod", "SpawnPod", "StopPod", "WaitPods"];

fn parse_pods_call(tool: &str, arguments: &str) -> Result<PodToolCall, String> {
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
            PodToolCall::Spawn(SpawnPod {
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
            PodToolCall::Send { name: name()?, message, mode: SendMode::Queue }
        }
        "ReadPodOutput" => {
            PodToolCall::Read { name: name()?, since: number("since"), max_bytes: 4_096, detail: false }
        }
        "WaitPods" => {
            let names = value.get("names").and_then(Value::as_array).cloned().unwrap_or_default();
            let names = names.iter().map(|name| named(name.as_str())).collect::<Result<_, _>>()?;
            let until = match text("until").unwrap_or("any") {
                "all" => WaitUntil::All,
                "ask" => WaitUntil::Ask,
                _ => WaitUntil::Any,
            };
            PodToolCall::Wait { names, until, timeout_s: number("timeout_s").unwrap_or(600) }
        }
        "StopPod" => PodToolCall::Stop { name: name()?, after_run: value.get("after_run").is_some() },
        "ListPods" => PodToolCall::List { tree: false },
        _ => {
            let ask = number("ask").map(u128::from).unwrap_or_default();
            let decision = text("decision").unwrap_or("approved").into();
            PodToolCall::Answer {
                name: name()?,
                ask: minke_record::AskId(uuid::Uuid::from_u128(ask)),
                decision,
            }
        }
    })
}
