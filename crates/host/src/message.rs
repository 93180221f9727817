//! Saying something in a thread: it runs, or waits for its turn; the answer comes at once, the words as frames.
//!
//! Invariant: the same `op_id` is acted on once, and messages to a busy thread queue
//! (`two_messages_at_once_are_both_run`).

use std::sync::PoisonError;

use minke_client::{Delivered, Delivery, deliver};
use minke_pod::Visit;
use minke_protocol::{Method, Run, RunMode, RunReply, Set};
use minke_record::limits::{OP_ID_BYTES, TEXT_BYTES};
use minke_record::{Actor, ErrorCode, InputSegment, OpGave, SessionId, Text};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::look::state;
use crate::request::{Message, Override};
use crate::room::make_way;
use crate::visits::{Gave, change, ids, introduction, step_telling};

impl Engine {
    pub(crate) async fn message(&self, message: Message, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&message.thread_id, &Override::default())?;
        let input = self.input(session, &message.input)?;
        let mode = message.mode.unwrap_or(RunMode::Queue);
        let said = self.say(session, Run { input, mode, op_id: message.op_id }, by).await?;
        let data = match said {
            OpGave::Run(run) => json!({ "run": run }),
            OpGave::Queued(id) => json!({ "queued": id }),
        };
        Ok(Answer::new(session, "accepted", data))
    }

    /// Says it, waking the thread, and gives the run or the place in the queue.
    pub(crate) async fn say(&self, session: SessionId, mut run: Run, by: &Actor) -> Result<OpGave, Fault> {
        self.take_out(session, by).await?;
        make_way(&self.home, session, by).await?;
        let op_id = run.op_id.get_or_insert_with(|| ids().next_uuid().to_string()).clone();
        if op_id.is_empty() || op_id.len() > OP_ID_BYTES {
            return Err(Fault::invalid(format!("op_id: has 1 to {OP_ID_BYTES} bytes")));
        }
        let gave = Gave::default();
        // Whatever the mode, a session that sleeps has no run to wait for.
        let left = Visit::Queue { segments: run.input.clone(), op_id: Some(op_id) };
        let visit = step_telling(left, by.clone(), Gave::clone(&gave));
        let delivery =
            Delivery { session, method: Method::Run(run), client: introduction(by), visit: Some(&*visit) };
        match deliver(&self.home, delivery).await? {
            Delivered::Replied { pod, result } => {
                let reply: RunReply = serde_json::from_value(result).map_err(|e| {
                    Fault::new(ErrorCode::Internal, format!("the reply of pod `{pod}` cannot be read: {e}"))
                })?;
                Ok(match reply {
                    RunReply::Run { run } => OpGave::Run(run),
                    RunReply::Queued { queued } => OpGave::Queued(queued),
                })
            }
            Delivered::Visited { launched, .. } => {
                self.keep(launched);
                let gave = gave.lock().unwrap_or_else(PoisonError::into_inner).take();
                gave.ok_or_else(|| {
                    Fault::new(ErrorCode::Internal, format!("nothing was left for thread s_{session}"))
                })
            }
        }
    }

    /// A message to a thread that was put away takes it out again.
    pub(crate) async fn take_out(&self, session: SessionId, by: &Actor) -> Result<(), Fault> {
        if !state(&self.home, session)?.facts.archived {
            return Ok(());
        }
        let set = Set { archived: Some(false), ..Set::default() };
        change(&self.home, session, (Method::Set(Box::new(set)), Visit::Archive(false)), by).await
    }

    /// A text or input segments, without secrets; what is too long for a frame goes to a blob.
    pub(crate) fn input(&self, session: SessionId, input: &Value) -> Result<Vec<InputSegment>, Fault> {
        let mut segments = match input {
            Value::String(text) => vec![InputSegment::text(text.as_str())],
            list @ Value::Array(_) => serde_json::from_value::<Vec<InputSegment>>(list.clone())
                .map_err(|e| Fault::invalid(format!("input: {e}")))?,
            _ => return Err(Fault::invalid("input: is neither a text nor a list of input segments")),
        };
        if segments.iter().all(is_empty) {
            return Err(Fault::invalid("input: there is nothing to say"));
        }
        self.maker.without_secrets(&[&input.to_string()])?;
        for segment in &mut segments {
            if let InputSegment::Text { content } | InputSegment::Paste { content, .. } = segment
                && let Text::Here(text) = content
                && text.len() > TEXT_BYTES
            {
                let text = std::mem::take(text);
                *content = Text::Blob(self.home.store.put_blob(session, text.into_bytes())?);
            }
        }
        Ok(segments)
    }
}

fn is_empty(segment: &InputSegment) -> bool {
    matches!(segment, InputSegment::Text { content: Text::Here(text) } if text.trim().is_empty())
}
