//! Dispatch: maps each client method to an input of the pod or to a read-only reply.
//!
//! Elsewhere: the effect of an order in each state (`pod`), the replies (`queries`), work off the event loop
//! (`background`).

use minke_pod::{PodCommand, RunMode, SessionUpdate, ShutdownMode, WaitCondition};
use minke_protocol::{
    CallTool, ListCompletions, Method, Read, ReadBlob, Refusal, RestorePod, Rewind, Run, Set,
};
use minke_record::{ErrorCode, PodName};
use serde_json::Value;

/// The handler of a method.
pub(crate) enum Dispatch {
    /// The pod decides.
    Order(PodCommand),
    /// `set`, which may need a model that is not resolved yet.
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

/// Selects the handler of a method. `hello` is handled by the reader, which knows whether it is the first
/// line.
pub(crate) fn dispatch_method(method: Method, has_id: bool) -> Dispatch {
    Dispatch::Order(match method {
        Method::Run(Run { input, mode, op_id }) => {
            // The references were read before; the event loop adds them.
            PodCommand::Run { input, attached: Ok(Vec::new()), mode: convert_run_mode(mode), op_id }
        }
        Method::Dequeue(dequeue) => PodCommand::Dequeue { id: dequeue.id },
        Method::Notify(notify) => PodCommand::Notify { message: notify.message, auto_run: notify.auto_run },
        Method::PodEvent(report) => {
            PodCommand::PodEvent { event: report.event, from: report.from, from_seq: report.from_seq }
        }
        Method::Resume(detail) => PodCommand::Resume { detail: detail.detail },
        Method::Pause(detail) => PodCommand::Pause { detail: detail.detail },
        Method::Cancel(detail) => PodCommand::Cancel { detail: detail.detail },
        Method::Answer(answer) => {
            PodCommand::Answer { ask: answer.ask, decision: answer.decision, note: answer.note }
        }
        Method::Compact(compact) => PodCommand::Compact { instructions: compact.instructions },
        Method::Undo(undo) => PodCommand::Undo { run: undo.run },
        Method::CallTool(call) => return dispatch_call(call),
        Method::Checkpoint(checkpoint) => {
            PodCommand::Checkpoint { id: checkpoint.id, state: checkpoint.state }
        }
        Method::Yield => PodCommand::Yield,
        Method::RestartMcp(restart) => PodCommand::RestartMcp { server: restart.server },
        Method::Shutdown(shutdown) => PodCommand::Shutdown {
            mode: match shutdown.mode {
                minke_protocol::ShutdownMode::AfterRun => ShutdownMode::AfterRun,
                minke_protocol::ShutdownMode::Now => ShutdownMode::Now,
            },
        },
        Method::Wait(_) if !has_id => {
            return refuse_method("`wait` needs an `id`: its only result is the reply".to_owned());
        }
        Method::Wait(wait) => {
            PodCommand::Wait { until: convert_until(wait.until), timeout_ms: wait.timeout_ms }
        }
        Method::Set(set) => return Dispatch::Set(set),
        Method::Rewind(rewind) => return Dispatch::Rewind(rewind),
        Method::Fork(fork) => return Dispatch::Fork { at_seq: fork.at_seq, name: fork.name },
        Method::Status => return Dispatch::Status,
        Method::Read(read) => return Dispatch::Read(read),
        Method::ReadBlob(read) => return Dispatch::ReadBlob(read),
        Method::RewindTargets => return Dispatch::RewindTargets,
        Method::ListCompletions(list) => return Dispatch::ListCompletions(list),
        Method::ListPods => return Dispatch::ListPods,
        Method::RestorePod(restore) => return Dispatch::RestorePod(restore),
        Method::GetHistory => return Dispatch::GetHistory,
        Method::Hello(_) => {
            return refuse_method("`hello` is only allowed as the first line of a connection".to_owned());
        }
    })
}

fn refuse_method(message: String) -> Dispatch {
    Dispatch::Refused(Refusal::new(ErrorCode::InvalidRequest, message))
}

fn convert_run_mode(mode: minke_protocol::RunMode) -> RunMode {
    match mode {
        minke_protocol::RunMode::Reject => RunMode::Reject,
        minke_protocol::RunMode::Queue => RunMode::Queue,
        minke_protocol::RunMode::Steer => RunMode::Steer,
        minke_protocol::RunMode::Interrupt => RunMode::Interrupt,
    }
}

fn convert_until(until: minke_protocol::Until) -> WaitCondition {
    match until {
        minke_protocol::Until::Idle => WaitCondition::Idle,
        minke_protocol::Until::Ask => WaitCondition::Ask,
        minke_protocol::Until::Seq(seq) => WaitCondition::Seq(seq),
    }
}

fn dispatch_call(call: CallTool) -> Dispatch {
    if let Some(cwd) = &call.cwd {
        return refuse_method(format!(
            "params.cwd: `{cwd}`: calls run in the session's directory; omit `cwd`"
        ));
    }
    let arguments = call.arguments_text();
    Dispatch::Order(PodCommand::CallTool { name: call.name, arguments, call_id: call.call_id })
}

/// The changes of a `set` request, except the model, which must be resolved first.
pub(crate) fn requested_changes(set: &Set) -> Result<SessionUpdate, Refusal> {
    let bad = |why: String| Refusal::new(ErrorCode::InvalidRequest, why);
    let mut changes =
        SessionUpdate { name: set.name.clone(), archived: set.archived, ..SessionUpdate::default() };
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
