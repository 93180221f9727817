//! Messages to a thread: starts a run or queues the input. The response comes at once, the output as frames.
//!
//! Invariant: the same `op_id` takes effect once, and messages to a busy thread are queued
//! (`two_messages_at_once_are_both_run`).

use std::sync::PoisonError;

use minke_launch::{
    Delivery, DeliveryOutcome, OfflineReply, SessionChange, change_session, client_info, deliver_method,
    edit_step_with_reply, new_ids,
};
use minke_pod::OfflineEdit;
use minke_protocol::{Method, Run, RunMode, RunReply, Set};
use minke_record::limits::{OP_ID_BYTES, TEXT_BYTES};
use minke_record::{Actor, ErrorCode, InputSegment, OpOutcome, SessionId, Text};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::error::ApiError;
use crate::pods::request_session_scope;
use crate::request::{Message, RequestOverrides};
use crate::response::ThreadResponse;
use crate::threads::log::load_state;

impl Engine {
    pub(crate) async fn send_message(
        &self,
        message: Message,
        by: &Actor,
    ) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&message.thread_id, &RequestOverrides::default())?;
        let input = self.prepare_input(session, &message.input)?;
        let mode = message.mode.unwrap_or(RunMode::Queue);
        let outcome = self.deliver_message(session, Run { input, mode, op_id: message.op_id }, by).await?;
        let data = match outcome {
            OpOutcome::Run(run) => json!({ "run": run }),
            OpOutcome::Queued(id) => json!({ "queued": id }),
        };
        Ok(ThreadResponse::new(session, "accepted", data))
    }

    /// Delivers an input, starting the pod if necessary, and returns the run or the position in the queue.
    pub(crate) async fn deliver_message(
        &self,
        session: SessionId,
        mut run: Run,
        by: &Actor,
    ) -> Result<OpOutcome, ApiError> {
        self.unarchive_for_message(session, by).await?;
        request_session_scope(&self.home, session, by).await?;
        let op_id = run.op_id.get_or_insert_with(|| new_ids().next_uuid().to_string()).clone();
        if op_id.is_empty() || op_id.len() > OP_ID_BYTES {
            return Err(ApiError::invalid(format!("op_id: must have 1 to {OP_ID_BYTES} bytes")));
        }
        let gave = OfflineReply::default();
        // The mode does not matter: a sleeping session has no run to wait for.
        let edit = OfflineEdit::Queue { segments: run.input.clone(), op_id: Some(op_id) };
        let step_fn = edit_step_with_reply(edit, by.clone(), OfflineReply::clone(&gave));
        let delivery = Delivery {
            session,
            method: Method::Run(run),
            client: client_info(by),
            offline_step: Some(&*step_fn),
        };
        match deliver_method(&self.home, delivery).await? {
            DeliveryOutcome::Replied { pod, result } => {
                let reply: RunReply = serde_json::from_value(result).map_err(|e| {
                    ApiError::new(
                        ErrorCode::Internal,
                        format!("could not parse the reply of pod `{pod}`: {e}"),
                    )
                })?;
                Ok(match reply {
                    RunReply::Run { run } => OpOutcome::Run(run),
                    RunReply::Queued { queued } => OpOutcome::Queued(queued),
                })
            }
            DeliveryOutcome::WrittenOffline { launched, .. } => {
                self.track_child(launched);
                let gave = gave.lock().unwrap_or_else(PoisonError::into_inner).take();
                gave.ok_or_else(|| {
                    ApiError::new(
                        ErrorCode::Internal,
                        format!("the input of thread s_{session} was not stored"),
                    )
                })
            }
        }
    }

    /// Unarchives an archived thread that gets a message.
    pub(crate) async fn unarchive_for_message(&self, session: SessionId, by: &Actor) -> Result<(), ApiError> {
        if !load_state(&self.home, session)?.facts.archived {
            return Ok(());
        }
        let set = Set { archived: Some(false), ..Set::default() };
        Ok(change_session(
            &self.home,
            session,
            SessionChange { method: Method::Set(Box::new(set)), edit: OfflineEdit::Archive(false) },
            by,
        )
        .await?)
    }

    /// Converts a text or input segments and refuses secrets; moves texts that are too long for a frame to blobs.
    pub(crate) fn prepare_input(
        &self,
        session: SessionId,
        input: &Value,
    ) -> Result<Vec<InputSegment>, ApiError> {
        let mut segments = match input {
            Value::String(text) => vec![InputSegment::from_text(text.as_str())],
            list @ Value::Array(_) => serde_json::from_value::<Vec<InputSegment>>(list.clone())
                .map_err(|e| ApiError::invalid(format!("input: {e}")))?,
            _ => return Err(ApiError::invalid("input: must be a text or a list of input segments")),
        };
        if segments.iter().all(is_empty_segment) {
            return Err(ApiError::invalid("input: is empty"));
        }
        self.reject_secrets(&[&input.to_string()])?;
        for segment in &mut segments {
            if let InputSegment::Text { content } | InputSegment::Paste { content, .. } = segment
                && let Text::Inline(text) = content
                && text.len() > TEXT_BYTES
            {
                let text = std::mem::take(text);
                *content = Text::Blob(self.home.store.put_blob(session, text.into_bytes())?);
            }
        }
        Ok(segments)
    }
}

fn is_empty_segment(segment: &InputSegment) -> bool {
    matches!(segment, InputSegment::Text { content: Text::Inline(text) } if text.trim().is_empty())
}
