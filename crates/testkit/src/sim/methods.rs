//! Random methods of clients and calls of the model, and the conversion of wire methods to commands.

use minke_pod::{CommandRefusal, PodCommand, ReplyBody, RunMode, SessionUpdate, ShutdownMode, State};
use minke_protocol::{
    Answer, CallTool, Checkpoint, Dequeue, Detail, Method, Nothing, Notify, ReplyData, Report, Run, Set,
    Shutdown,
};
use minke_record::{Decision, InputSegment, PodEvent, PodName};
use serde_json::json;

use crate::random::SimRandom;

/// Returns a random call of the model, sometimes an invalid one.
pub(crate) fn random_call(random: &mut SimRandom) -> (String, String) {
    let n = random.below(50);
    match random.below(8) {
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

/// Returns the next random method of a client.
pub(crate) fn random_method(random: &mut SimRandom, state: &State, op: u64) -> Method {
    let detail = Detail { detail: None };
    match random.below(24) {
        0..=5 => Method::Run(Run {
            input: vec![InputSegment::from_text(format!("say {op}"))],
            mode: *random
                .pick(&[
                    minke_protocol::RunMode::Reject,
                    minke_protocol::RunMode::Queue,
                    minke_protocol::RunMode::Steer,
                    minke_protocol::RunMode::Interrupt,
                ])
                .expect("there are modes"),
            op_id: Some(format!("op {op}")),
        }),
        6 | 7 => Method::Notify(Notify { message: format!("note {op}"), auto_run: random.one_in(2) }),
        8 => Method::Pause(detail),
        9 | 10 => Method::Resume(detail),
        11 => Method::Cancel(detail),
        12..=15 => match state.facts.asks.first() {
            Some(ask) => {
                let decision = random.pick(&[Decision::Approved, Decision::Denied, Decision::Abort]).cloned();
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
            name: Some(PodName::from_text(&format!("name-{op}"))),
            ..Set::default()
        })),
        18 => Method::Checkpoint(Checkpoint { id: format!("point {op}"), state: json!({ "op": op }) }),
        19 | 20 => {
            let (name, arguments) = random_call(random);
            Method::CallTool(CallTool { name, arguments: arguments.into(), call_id: None, cwd: None })
        }
        21 | 22 => Method::PodEvent(Report {
            event: PodEvent::TurnEnded { pod_name: "child".to_owned(), result: None, wake: None },
            from: Some(crate::scene::CHILD),
            // Repeated and out of order on purpose.
            from_seq: Some(op.saturating_sub(random.below(4) as u64)),
        }),
        _ => Method::Shutdown(Shutdown::default()),
    }
}

/// Converts a wire method to a command. Methods that change nothing are not sent to the pod.
pub(crate) fn to_command(method: Method) -> Option<PodCommand> {
    Some(match method {
        Method::Run(run) => {
            let mode = match run.mode {
                minke_protocol::RunMode::Reject => RunMode::Reject,
                minke_protocol::RunMode::Queue => RunMode::Queue,
                minke_protocol::RunMode::Steer => RunMode::Steer,
                minke_protocol::RunMode::Interrupt => RunMode::Interrupt,
            };
            PodCommand::Run { input: run.input, attached: Ok(Vec::new()), mode, op_id: run.op_id }
        }
        Method::Dequeue(params) => PodCommand::Dequeue { id: params.id },
        Method::Notify(params) => PodCommand::Notify { message: params.message, auto_run: params.auto_run },
        Method::PodEvent(params) => {
            PodCommand::PodEvent { event: params.event, from: params.from, from_seq: params.from_seq }
        }
        Method::Resume(params) => PodCommand::Resume { detail: params.detail },
        Method::Pause(params) => PodCommand::Pause { detail: params.detail },
        Method::Cancel(params) => PodCommand::Cancel { detail: params.detail },
        Method::Answer(params) => {
            PodCommand::Answer { ask: params.ask, decision: params.decision, note: params.note }
        }
        Method::CallTool(params) => {
            let arguments = params.arguments_text();
            PodCommand::CallTool { name: params.name, arguments, call_id: params.call_id }
        }
        Method::Checkpoint(params) => PodCommand::Checkpoint { id: params.id, state: params.state },
        Method::Set(params) => {
            PodCommand::Set(Box::new(SessionUpdate { name: params.name, ..SessionUpdate::default() }))
        }
        Method::Shutdown(_) => PodCommand::Shutdown { mode: ShutdownMode::Now },
        _ => return None,
    })
}

/// Converts a result for the wire; the simulation only counts replies.
pub(crate) fn reply_data(result: Result<ReplyBody, CommandRefusal>) -> ReplyData {
    match result {
        Ok(_) => ReplyData::from_result(&Nothing {}),
        Err(refusal) => ReplyData::Refused(minke_protocol::Refusal::new(refusal.code, refusal.message)),
    }
}
