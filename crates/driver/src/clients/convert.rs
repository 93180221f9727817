//! Converts the pod's types to wire types: status, live events, open blocks, replies. Makes no decisions.

use minke_pod::{
    CommandReply, LiveEvent, LiveEventKind, OpenBlock, PodPhase, ReplyBody, StatusReport, WaitStatus,
};
use minke_protocol::{
    Activity, AlertEvent, CallReply, CompactFailed, CompactStart, Delta, DequeueReply, Event, InFlight,
    LlmRetry, Nothing, Refusal, ReplyData, RestorePodReply, RewindReply, RunReply, StatusEvent,
    StreamingBlock, ToolCallArgsDelta, ToolCallStart, WaitReply,
};
use minke_record::{Millis, Position};

use crate::calls::command_output::OpenCommands;

pub(crate) fn convert_status(phase: PodPhase, run_open: bool) -> minke_protocol::Status {
    match phase {
        PodPhase::Idle => minke_protocol::Status::Idle,
        PodPhase::Paused => minke_protocol::Status::Paused,
        PodPhase::Running | PodPhase::Compacting => minke_protocol::Status::Running,
        PodPhase::Stopping if run_open => minke_protocol::Status::Running,
        PodPhase::Stopping => minke_protocol::Status::Idle,
    }
}

pub(crate) fn convert_activity(status: &StatusReport) -> Option<Activity> {
    status.activity.map(|activity| Activity::from(activity.name()))
}

pub(crate) fn convert_waiting(waiting: &WaitStatus) -> minke_protocol::WaitState {
    minke_protocol::WaitState { on: waiting.on.clone(), until: waiting.until }
}

pub(crate) fn status_event(status: &StatusReport, run_open: bool) -> StatusEvent {
    StatusEvent {
        status: convert_status(status.phase, run_open),
        activity: convert_activity(status),
        detail: status.detail.clone(),
        waiting: status.waiting.as_ref().map(convert_waiting),
    }
}

/// Converts a live event; `None` for `Shutdown`, which ends the stream.
pub(crate) fn live_event(live: &LiveEvent, now: Millis) -> Option<Event> {
    Some(match &live.kind {
        LiveEventKind::Status(status) => Event::Status(status_event(status, live.run.is_some())),
        LiveEventKind::TextDelta { text } => Event::TextDelta(Delta { text: text.clone() }),
        LiveEventKind::ThinkingStart => Event::ThinkingStart,
        LiveEventKind::ThinkingDelta { text } => Event::ThinkingDelta(Delta { text: text.clone() }),
        LiveEventKind::ToolCallStart { id, name } => {
            Event::ToolCallStart(ToolCallStart { id: id.clone(), name: name.clone() })
        }
        LiveEventKind::ToolCallArgs { id, json } => {
            Event::ToolCallArgsDelta(ToolCallArgsDelta { id: id.clone(), json: json.clone() })
        }
        LiveEventKind::LlmRetry { call, failed_attempt, max_attempts, wait_ms, status, error } => {
            Event::LlmRetry(LlmRetry {
                llm_call: *call,
                failed_attempt: *failed_attempt,
                max_attempts: *max_attempts,
                wait_ms: *wait_ms,
                status: *status,
                error: error.clone(),
            })
        }
        LiveEventKind::CompactStart { reason } => {
            Event::CompactStart(CompactStart { reason: reason.clone() })
        }
        LiveEventKind::CompactFailed { error } => {
            Event::CompactFailed(CompactFailed { error: error.clone() })
        }
        LiveEventKind::Alert { level, source, message } => Event::Alert(AlertEvent {
            level: level.clone(),
            source: source.clone(),
            message: message.clone(),
            timestamp_ms: now,
        }),
        LiveEventKind::Shutdown => return None,
    })
}

pub(crate) fn convert_in_flight(blocks: Vec<OpenBlock>, commands: &OpenCommands) -> InFlight {
    let blocks = blocks.into_iter().map(|block| match block {
        OpenBlock::Text { text } => StreamingBlock::Text { text },
        OpenBlock::Thinking { text } => StreamingBlock::Thinking { text },
        OpenBlock::ToolCall { id, name, arguments } => StreamingBlock::ToolCall { id, name, arguments },
    });
    InFlight { blocks: blocks.collect(), commands: commands.to_list() }
}

/// Converts the pod's reply. `wait` also gets the pod's status; a returned input is described in the terms of
/// the method that requested it.
pub(crate) fn convert_reply(
    reply: CommandReply,
    method: &str,
    status: minke_protocol::Status,
    head: Position,
) -> Result<ReplyData, Refusal> {
    Ok(match reply.result.map_err(|refusal| Refusal { code: refusal.code, message: refusal.message })? {
        ReplyBody::Ok => ReplyData::from_result(&Nothing {}),
        ReplyBody::Run(run) => ReplyData::from_result(&RunReply::Run { run }),
        ReplyBody::Queued(queued) => ReplyData::from_result(&RunReply::Queued { queued }),
        ReplyBody::Input(segments) if method == "dequeue" => {
            ReplyData::from_result(&DequeueReply { segments })
        }
        ReplyBody::Input(input) => ReplyData::from_result(&RewindReply { input }),
        ReplyBody::Call(call_id) => ReplyData::from_result(&CallReply { call_id }),
        ReplyBody::Restored { name, session, socket } => {
            ReplyData::from_result(&RestorePodReply { name, session, socket: Some(socket) })
        }
        ReplyBody::Waited { reached } => ReplyData::from_result(&WaitReply { holds: reached, status, head }),
    })
}
