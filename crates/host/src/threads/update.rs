//! Changes of one thread: its name, archive flag, goal and checkpoints; and its deletion.
//!
//! All but the deletion are logged, by the live pod or else by an offline edit, which starts no pod.

use minke_launch::{SessionChange, change_session, new_ids, now_millis};
use minke_pod::OfflineEdit;
use minke_protocol::{Checkpoint, Method, Set};
use minke_record::limits::{CHECKPOINT_BYTES, OP_ID_BYTES};
use minke_record::{Actor, ErrorCode, SessionId};
use minke_session::StoreError;
use serde_json::{Value, json};

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::pods::stop_pod_of_session;
use crate::request::{CheckpointLoad, CheckpointSave, GoalSet, One, RequestOverrides, SetName, quote_input};
use crate::response::ThreadResponse;
use crate::threads::fold::{LATEST_CHECKPOINT, checkpoint_value};
use crate::threads::log::{ThreadLog, load_state};
use crate::threads::parse_pod_name;

/// The maximum length of an objective.
const OBJECTIVE_BYTES: usize = 16 * 1024;

impl Engine {
    pub(crate) async fn set_thread_name(
        &self,
        request: SetName,
        by: &Actor,
    ) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&request.thread_id, &RequestOverrides::default())?;
        let name = parse_pod_name(&request.name)?;
        let set = Set { name: Some(name.clone()), ..Set::default() };
        change_session(
            &self.home,
            session,
            SessionChange { method: Method::Set(Box::new(set)), edit: OfflineEdit::Rename(name) },
            by,
        )
        .await?;
        let home = self.home.clone();
        let thread =
            run_blocking(move || ThreadLog::read_session(&home, session)?.thread_object(&home)).await?;
        Ok(ThreadResponse::new(session, "ok", json!({})).with_thread(thread))
    }

    pub(crate) async fn archive_thread(
        &self,
        one: One,
        away: bool,
        by: &Actor,
    ) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&one.thread_id, &RequestOverrides::default())?;
        let set = Set { archived: Some(away), ..Set::default() };
        change_session(
            &self.home,
            session,
            SessionChange { method: Method::Set(Box::new(set)), edit: OfflineEdit::Archive(away) },
            by,
        )
        .await?;
        Ok(ThreadResponse::new(session, if away { "archived" } else { "unarchived" }, json!({})))
    }

    /// Stops the pod and moves the session to the trash. Refused while a fork needs it.
    pub(crate) async fn delete_thread(&self, one: One, by: &Actor) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&one.thread_id, &RequestOverrides::default())?;
        match self.move_to_trash(session).await {
            Err(StoreError::Held { .. }) => {
                stop_pod_of_session(&self.home, session, by).await?;
                self.move_to_trash(session).await?;
            }
            other => other?,
        }
        Ok(ThreadResponse::new(session, "deleted", json!({})))
    }

    pub(crate) async fn move_to_trash(&self, session: SessionId) -> Result<(), StoreError> {
        let home = self.home.clone();
        let removed = tokio::task::spawn_blocking(move || home.store.delete(session)).await;
        match removed {
            // An ephemeral session may have ended with its pod.
            Ok(Ok(()) | Err(StoreError::NotFound { .. })) => Ok(()),
            Ok(other) => other,
            Err(gone) => Err(StoreError::Io {
                what: "remove",
                path: self.home.paths.sessions_dir().join(session.to_string()),
                source: std::io::Error::other(gone),
            }),
        }
    }

    pub(crate) async fn set_goal(&self, goal: GoalSet, by: &Actor) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&goal.thread_id, &RequestOverrides::default())?;
        let objective = goal.objective.trim().to_owned();
        if objective.is_empty() || objective.len() > OBJECTIVE_BYTES {
            return Err(ApiError::invalid(format!("objective: must have 1 to {OBJECTIVE_BYTES} bytes")));
        }
        self.reject_secrets(&[&objective])?;
        // First, so that no run starts for the goal that the budget would not allow.
        if let Some(budget) = goal.budget {
            let edit = OfflineEdit::Config { key: "budget".to_owned(), value: budget.clone() };
            let set = Set { budget: Some(budget), ..Set::default() };
            change_session(
                &self.home,
                session,
                SessionChange { method: Method::Set(Box::new(set)), edit },
                by,
            )
            .await?;
        }
        let set = Set { goal: Some(Some(objective.clone())), ..Set::default() };
        let left = OfflineEdit::Goal(Some(objective));
        change_session(
            &self.home,
            session,
            SessionChange { method: Method::Set(Box::new(set)), edit: left },
            by,
        )
        .await?;
        self.goal_response(session, "ok").await
    }

    pub(crate) async fn get_goal(&self, one: One) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&one.thread_id, &RequestOverrides::default())?;
        self.goal_response(session, "ok").await
    }

    async fn goal_response(
        &self,
        session: SessionId,
        status: &'static str,
    ) -> Result<ThreadResponse, ApiError> {
        let home = self.home.clone();
        let goal = run_blocking(move || Ok(ThreadLog::read_session(&home, session)?.fold.goal)).await?;
        Ok(ThreadResponse::new(session, status, json!({ "goal": goal })))
    }

    pub(crate) async fn clear_goal(&self, one: One, by: &Actor) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&one.thread_id, &RequestOverrides::default())?;
        if load_state(&self.home, session)?.facts.goal.is_none() {
            return Ok(ThreadResponse::new(session, "empty", json!({ "cleared": false })));
        }
        let set = Set { goal: Some(None), ..Set::default() };
        change_session(
            &self.home,
            session,
            SessionChange { method: Method::Set(Box::new(set)), edit: OfflineEdit::Goal(None) },
            by,
        )
        .await?;
        Ok(ThreadResponse::new(session, "cleared", json!({ "cleared": true })))
    }

    pub(crate) async fn save_checkpoint(
        &self,
        save: CheckpointSave,
        by: &Actor,
    ) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&save.thread_id, &RequestOverrides::default())?;
        let id = save.checkpoint_id.unwrap_or_else(|| new_ids().next_uuid().to_string());
        if id == LATEST_CHECKPOINT {
            return Err(ApiError::invalid("checkpoint_id: `latest` is always the head and cannot be saved"));
        }
        let state_text = save.state.to_string();
        if id.is_empty() || id.len() > OP_ID_BYTES || state_text.len() > CHECKPOINT_BYTES {
            return Err(ApiError::invalid(format!(
                "checkpoint_save: an id has 1 to {OP_ID_BYTES} bytes, and a state at most {CHECKPOINT_BYTES} (this \
                 one: {})",
                state_text.len()
            )));
        }
        self.reject_secrets(&[&id, &state_text])?;
        let method = Method::Checkpoint(Checkpoint { id: id.clone(), state: save.state.clone() });
        let edit = OfflineEdit::Checkpoint { id: id.clone(), state: save.state.clone() };
        change_session(&self.home, session, SessionChange { method, edit }, by).await?;
        let saved = checkpoint_value(&id, &save.state, now_millis());
        Ok(ThreadResponse::new(session, "ok", json!({ "checkpoint": saved })))
    }

    pub(crate) async fn load_checkpoint(&self, load: CheckpointLoad) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&load.thread_id, &RequestOverrides::default())?;
        let home = self.home.clone();
        let id = load.checkpoint_id.unwrap_or_else(|| LATEST_CHECKPOINT.to_owned());
        let wanted = id.clone();
        let found =
            run_blocking(move || ThreadLog::read_session(&home, session)?.find_checkpoint(&wanted)).await?;
        match found {
            Some(point) => Ok(ThreadResponse::new(session, "ok", json!({ "checkpoint": point }))),
            // A thread without a conversation has no head.
            None if id == LATEST_CHECKPOINT => {
                Ok(ThreadResponse::new(session, "ok", json!({ "checkpoint": Value::Null })))
            }
            None => {
                let message = format!("thread s_{session} has no checkpoint `{}`", quote_input(&id));
                Err(ApiError::new(ErrorCode::NotFound, message))
            }
        }
    }

    pub(crate) async fn list_checkpoints(&self, one: One) -> Result<ThreadResponse, ApiError> {
        let session = self.resolve_session(&one.thread_id, &RequestOverrides::default())?;
        let home = self.home.clone();
        let points =
            run_blocking(move || ThreadLog::read_session(&home, session)?.list_checkpoints()).await?;
        Ok(ThreadResponse::new(session, "ok", json!({ "checkpoints": points })))
    }
}
