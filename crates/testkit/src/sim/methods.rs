//! What clients and the model of the simulation come up with, and the wire's words in the pod's.

use minke_pod::{Changes, Given, Order, Refusal, RunMode, ShutdownMode, State};
use minke_protocol::{
    Answer, CallTool, Checkpoint, Dequeue, Detail, Method, Nothing, Notify, ReplyData, Report, Run, Set,
    Shutdown,
};
use minke_record::{Decision, InputSegment, PodEvent, PodName};
use serde_json::json;

use crate::chance::Chance;

/// A call of the model, now and then one that cannot be made.
pub(crate) fn call(chance: &mut Chance) -> (String, String) {
    let n = chance.below(50);
    match chance.below(8) {
        0 | 1 => ("Note".to_owned(), json!({ "line": format!("line {n}") }).to_string()),
        2 | 3 => ("Read".to_owned(), json!({ "path": format!("/project/{}", n % 5) }).to_string()),
        4 | 5 => (
            "Put".to_owned(),
            json!({ "path": format!("/project/{}", n % 5), "content": format!("content {n}") }).to_string(),
        ),
        6 => ("Sh".to_owned(), json!({ "command": format!("make {n}") }).to_string()),
        _ => ("Note".to_owned(), "{\"line\":".to_owned()),
    }
}

/// What a client wants next.
pub(crate) fn method(chance: &mut Chance, state: &State, op: u64) -> Method {
    let detail = Detail { detail: None };
    match chance.below(24) {
        0..=5 => Method::Run(Run {
            input: vec![InputSegment::text(format!("say {op}"))],
            mode: *chance
                .pick(&[
                    minke_protocol::RunMode::Reject,
                    minke_protocol::RunMode::Queue,
                    minke_protocol::RunMode::Steer,
                    minke_protocol::RunMode::Interrupt,
                ])
                .expect("there are modes"),
            op_id: Some(format!("op {op}")),
        }),
        6 | 7 => Method::Notify(Notify { message: format!("note {op}"), auto_run: chance.one_in(2) }),
        8 => Method::Pause(detail),
        9 | 10 => Method::Resume(detail),
        11 => Method::Cancel(detail),
        12..=15 => match state.facts.asks.first() {
            Some(ask) => {
                let decision = chance.pick(&[Decision::Approved, Decision::Denied, Decision::Abort]).cloned();
                Method::Answer(Answer {
                    ask: ask.id,
                    decision: decision.unwrap_or(Decision::Denied),
                    note: None,
                })
            }
            None => Method::Resume(detail),
        },
        16 => match state.facts.queue.front() {
            Some(queued) => Method::Dequeue(Dequeue { id: queued.id }),
            None => Method::Status,
        },
        17 => Method::Set(Box::new(Set {
            name: Some(PodName::from_any(&format!("name-{op}"))),
            ..Set::default()
        })),
        18 => Method::Checkpoint(Checkpoint { id: format!("point {op}"), state: json!({ "op": op }) }),
        19 | 20 => {
            let (name, arguments) = call(chance);
            Method::CallTool(CallTool { name, arguments: arguments.into(), call_id: None, cwd: None })
        }
        21 | 22 => Method::PodEvent(Report {
            event: PodEvent::TurnEnded { pod_name: "child".to_owned(), result: None, wake: None },
            from: Some(crate::scene::CHILD),
            // Repeated and out of order on purpose.
            from_seq: Some(op.saturating_sub(chance.below(4) as u64)),
        }),
        _ => Method::Shutdown(Shutdown::default()),
    }
}

/// The wire's word in the pod's. What changes nothing is not the pod's affair.
pub(crate) fn order(method: Method) -> Option<Order> {
    Some(match method {
        Method::Run(run) => {
            let mode = match run.mode {
                minke_protocol::RunMode::Reject => RunMode::Reject,
                minke_protocol::RunMode::Queue => RunMode::Queue,
                minke_protocol::RunMode::Steer => RunMode::Steer,
                minke_protocol::RunMode::Interrupt => RunMode::Interrupt,
            };
            Order::Run { input: run.input, attached: Ok(Vec::new()), mode, op_id: run.op_id }
        }
        Method::Dequeue(params) => Order::Dequeue { id: params.id },
        Method::Notify(params) => Order::Notify { message: params.message, auto_run: params.auto_run },
        Method::PodEvent(params) => {
            Order::PodEvent { event: params.event, from: params.from, from_seq: params.from_seq }
        }
        Method::Resume(params) => Order::Resume { detail: params.detail },
        Method::Pause(params) => Order::Pause { detail: params.detail },
        Method::Cancel(params) => Order::Cancel { detail: params.detail },
        Method::Answer(params) => {
            Order::Answer { ask: params.ask, decision: params.decision, note: params.note }
        }
        Method::CallTool(params) => {
            let arguments = params.arguments_text();
            Order::CallTool { name: params.name, arguments, call_id: params.call_id }
        }
        Method::Checkpoint(params) => Order::Checkpoint { id: params.id, state: params.state },
        Method::Set(params) => Order::Set(Box::new(Changes { name: params.name, ..Changes::default() })),
        Method::Shutdown(_) => Order::Shutdown { mode: ShutdownMode::Now },
        _ => return None,
    })
}

/// What an order gave, for the wire: the simulation looks only at whether there is one answer.
pub(crate) fn data(result: Result<Given, Refusal>) -> ReplyData {
    match result {
        Ok(_) => ReplyData::ok(&Nothing {}),
        Err(refusal) => ReplyData::Refused(minke_protocol::Refusal::new(refusal.code, refusal.message)),
    }
}
