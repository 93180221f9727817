//! Methods: the one match from what a client asks to what the pod is told, or to an answer that changes nothing.
//!
//! Elsewhere: what an order does in which state (`pod`), the answers (`answers`), errands off the loop (`errands`).

use minke_pod::{Changes, Order, RunMode, ShutdownMode, Until};
use minke_protocol::{
    CallTool, ListCompletions, Method, Read, ReadBlob, Refusal, RestorePod, Rewind, Run, Set,
};
use minke_record::{ErrorCode, PodName};
use serde_json::Value;

/// What a method comes to.
pub(crate) enum Door {
    /// The pod decides.
    Order(Order),
    /// `set`, which may need a model that is not at hand yet.
    Set(Box<Set>),
    Rewind(Rewind),
    Fork {
        at_seq: Option<u64>,
        name: Option<PodName>,
    },
    Status,
    Read(Read),
    ReadBlob(ReadBlob),
    RewindTargets,
    ListCompletions(ListCompletions),
    ListPods,
    RestorePod(RestorePod),
    GetHistory,
    Refused(Refusal),
}

/// Which door a method goes through. `hello` was taken by the reader, which knows whether it came first.
pub(crate) fn door(method: Method, has_id: bool) -> Door {
    Door::Order(match method {
        Method::Run(Run { input, mode, op_id }) => {
            // What it refers to was read before; the loop puts it in.
            Order::Run { input, attached: Ok(Vec::new()), mode: run_mode(mode), op_id }
        }
        Method::Dequeue(dequeue) => Order::Dequeue { id: dequeue.id },
        Method::Notify(notify) => Order::Notify { message: notify.message, auto_run: notify.auto_run },
        Method::PodEvent(report) => {
            Order::PodEvent { event: report.event, from: report.from, from_seq: report.from_seq }
        }
        Method::Resume(detail) => Order::Resume { detail: detail.detail },
        Method::Pause(detail) => Order::Pause { detail: detail.detail },
        Method::Cancel(detail) => Order::Cancel { detail: detail.detail },
        Method::Answer(answer) => {
            Order::Answer { ask: answer.ask, decision: answer.decision, note: answer.note }
        }
        Method::Compact(compact) => Order::Compact { instructions: compact.instructions },
        Method::Undo(undo) => Order::Undo { run: undo.run },
        Method::CallTool(call) => return call_tool(call),
        Method::Checkpoint(checkpoint) => Order::Checkpoint { id: checkpoint.id, state: checkpoint.state },
        Method::Yield => Order::Yield,
        Method::RestartMcp(restart) => Order::RestartMcp { server: restart.server },
        Method::Shutdown(shutdown) => Order::Shutdown {
            mode: match shutdown.mode {
                minke_protocol::ShutdownMode::AfterRun => ShutdownMode::AfterRun,
                minke_protocol::ShutdownMode::Now => ShutdownMode::Now,
            },
        },
        Method::Wait(_) if !has_id => {
            return refused("`wait` needs an `id`: its reply is all that it gives".to_owned());
        }
        Method::Wait(wait) => Order::Wait { until: until(wait.until), timeout_ms: wait.timeout_ms },
        Method::Set(set) => return Door::Set(set),
        Method::Rewind(rewind) => return Door::Rewind(rewind),
        Method::Fork(fork) => return Door::Fork { at_seq: fork.at_seq, name: fork.name },
        Method::Status => return Door::Status,
        Method::Read(read) => return Door::Read(read),
        Method::ReadBlob(read) => return Door::ReadBlob(read),
        Method::RewindTargets => return Door::RewindTargets,
        Method::ListCompletions(list) => return Door::ListCompletions(list),
        Method::ListPods => return Door::ListPods,
        Method::RestorePod(restore) => return Door::RestorePod(restore),
        Method::GetHistory => return Door::GetHistory,
        Method::Hello(_) => {
            return refused("`hello` is only taken as the first line of a connection".to_owned());
        }
    })
}

fn refused(message: String) -> Door {
    Door::Refused(Refusal::new(ErrorCode::InvalidRequest, message))
}

fn run_mode(mode: minke_protocol::RunMode) -> RunMode {
    match mode {
        minke_protocol::RunMode::Reject => RunMode::Reject,
        minke_protocol::RunMode::Queue => RunMode::Queue,
        minke_protocol::RunMode::Steer => RunMode::Steer,
        minke_protocol::RunMode::Interrupt => RunMode::Interrupt,
    }
}

fn until(until: minke_protocol::Until) -> Until {
    match until {
        minke_protocol::Until::Idle => Until::Idle,
        minke_protocol::Until::Ask => Until::Ask,
        minke_protocol::Until::Seq(seq) => Until::Seq(seq),
    }
}

fn call_tool(call: CallTool) -> Door {
    if let Some(cwd) = &call.cwd {
        return refused(format!(
            "params.cwd: `{cwd}`: a call runs in the session's own directory; leave `cwd` out"
        ));
    }
    let arguments = call.arguments_text();
    Door::Order(Order::CallTool { name: call.name, arguments, call_id: call.call_id })
}

/// The changes that a `set` asks for, except the model, which has to be found first.
pub(crate) fn changes(set: &Set) -> Result<Changes, Refusal> {
    let bad = |why: String| Refusal::new(ErrorCode::InvalidRequest, why);
    let mut changes = Changes { name: set.name.clone(), archived: set.archived, ..Changes::default() };
    if let Some(posture) = &set.posture {
        let posture: minke_manifest::Posture =
            posture.parse().map_err(|e| bad(format!("params.posture: {e}")))?;
        changes.config.push(("permissions.posture".to_owned(), Value::from(posture.as_str())));
    }
    if let Some(budget) = &set.budget {
        changes.config.push(("budget".to_owned(), budget.clone()));
    }
    changes.grant = set.grant.as_ref().map(|grant| (grant.rule.clone(), grant.reach.clone()));
    changes.goal = set.goal.clone();
    changes.progress = set.progress.as_ref().map(|progress| (progress.percent, progress.note.clone()));
    Ok(changes)
}
