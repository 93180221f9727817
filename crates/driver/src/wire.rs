//! The pod's words in the wire's words: status, live news, open blocks, what an order gave. One match each, no opinion.

use minke_pod::{Given, Live, LiveWhat, OpenBlock, Phase, Reply, Status, Waiting};
use minke_protocol::{
    Activity, AlertEvent, Block, CallReply, CompactFailed, CompactStart, Delta, DequeueReply, Event,
    InFlight, LlmRetry, Nothing, Refusal, ReplyData, RestorePodReply, RewindReply, RunReply, StatusEvent,
    ToolCallArgsDelta, ToolCallStart, WaitReply,
};
use minke_record::{Millis, Position};

use crate::news::OpenCommands;

pub(crate) fn status_word(phase: Phase, run_open: bool) -> minke_protocol::Status {
    match phase {
        Phase::Idle => minke_protocol::Status::Idle,
        Phase::Paused => minke_protocol::Status::Paused,
        Phase::Running | Phase::Compacting => minke_protocol::Status::Running,
        Phase::Stopping if run_open => minke_protocol::Status::Running,
        Phase::Stopping => minke_protocol::Status::Idle,
    }
}

pub(crate) fn activity(status: &Status) -> Option<Activity> {
    status.activity.map(|activity| Activity::from(activity.name()))
}

pub(crate) fn waiting(waiting: &Waiting) -> minke_protocol::Waiting {
    minke_protocol::Waiting { on: waiting.on.clone(), until: waiting.until }
}

pub(crate) fn status_event(status: &Status, run_open: bool) -> StatusEvent {
    StatusEvent {
        status: status_word(status.phase, run_open),
        activity: activity(status),
        detail: status.detail.clone(),
        waiting: status.waiting.as_ref().map(waiting),
    }
}

/// A live event; `None` for `Shutdown`, which is not part of the stream but its end.
pub(crate) fn live_event(live: &Live, now: Millis) -> Option<Event> {
    Some(match &live.what {
        LiveWhat::Status(status) => Event::Status(status_event(status, live.run.is_some())),
        LiveWhat::TextDelta { text } => Event::TextDelta(Delta { text: text.clone() }),
        LiveWhat::ThinkingStart => Event::ThinkingStart,
        LiveWhat::ThinkingDelta { text } => Event::ThinkingDelta(Delta { text: text.clone() }),
        LiveWhat::ToolCallStart { id, name } => {
            Event::ToolCallStart(ToolCallStart { id: id.clone(), name: name.clone() })
        }
        LiveWhat::ToolCallArgs { id, json } => {
            Event::ToolCallArgsDelta(ToolCallArgsDelta { id: id.clone(), json: json.clone() })
        }
        LiveWhat::LlmRetry { call, failed_attempt, max_attempts, wait_ms, status, error } => {
            Event::LlmRetry(LlmRetry {
                llm_call: *call,
                failed_attempt: *failed_attempt,
                max_attempts: *max_attempts,
                wait_ms: *wait_ms,
                status: *status,
                error: error.clone(),
            })
        }
        LiveWhat::CompactStart { reason } => Event::CompactStart(CompactStart { reason: reason.clone() }),
        LiveWhat::CompactFailed { error } => Event::CompactFailed(CompactFailed { error: error.clone() }),
        LiveWhat::Alert { level, source, message } => Event::Alert(AlertEvent {
            level: level.clone(),
            source: source.clone(),
            message: message.clone(),
            timestamp_ms: now,
        }),
        LiveWhat::Shutdown => return None,
    })
}

pub(crate) fn in_flight(blocks: Vec<OpenBlock>, commands: &OpenCommands) -> InFlight {
    let blocks = blocks.into_iter().map(|block| match block {
        OpenBlock::Text { text } => Block::Text { text },
        OpenBlock::Thinking { text } => Block::Thinking { text },
        OpenBlock::ToolCall { id, name, arguments } => Block::ToolCall { id, name, arguments },
    });
    InFlight { blocks: blocks.collect(), commands: commands.all() }
}

/// What the pod answered. `wait` is also told where the pod stands; an input that came back is told in the words of
/// the method that asked for it.
pub(crate) fn reply(
    reply: Reply,
    method: &str,
    status: minke_protocol::Status,
    head: Position,
) -> Result<ReplyData, Refusal> {
    Ok(match reply.result.map_err(|refusal| Refusal { code: refusal.code, message: refusal.message })? {
        Given::Ok => ReplyData::ok(&Nothing {}),
        Given::Run(run) => ReplyData::ok(&RunReply::Run { run }),
        Given::Queued(queued) => ReplyData::ok(&RunReply::Queued { queued }),
        Given::Input(segments) if method == "dequeue" => ReplyData::ok(&DequeueReply { segments }),
        Given::Input(input) => ReplyData::ok(&RewindReply { input }),
        Given::Call(call_id) => ReplyData::ok(&CallReply { call_id }),
        Given::Restored { name, session, socket } => {
            ReplyData::ok(&RestorePodReply { name, session, socket: Some(socket) })
        }
        Given::Waited { reached } => ReplyData::ok(&WaitReply { holds: reached, status, head }),
    })
}
