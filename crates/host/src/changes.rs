//! What is changed about one thread: its name, whether it is put away, its goal, its named points; and its end.
//!
//! All but the last are logged, by the pod if one lives, else by a visit that wakes nobody.

use minke_pod::Visit;
use minke_protocol::{Checkpoint, Method, Set};
use minke_record::limits::{CHECKPOINT_BYTES, OP_ID_BYTES};
use minke_record::{Actor, ErrorCode, SessionId};
use minke_session::StoreError;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::look::{Glance, state};
use crate::pods::end_of;
use crate::request::{CheckpointLoad, CheckpointSave, GoalSet, One, Override, SetName, quoted};
use crate::story::{LATEST, checkpoint};
use crate::threads::pod_name;
use crate::visits::{change, ids, now};

/// The longest objective.
const OBJECTIVE_BYTES: usize = 16 * 1024;

impl Engine {
    pub(crate) async fn set_name(&self, named: SetName, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&named.thread_id, &Override::default())?;
        let name = pod_name(&named.name)?;
        let set = Set { name: Some(name.clone()), ..Set::default() };
        change(&self.home, session, (Method::Set(Box::new(set)), Visit::Rename(name)), by).await?;
        let home = self.home.clone();
        let thread = off(move || Glance::of(&home, session)?.thread(&home)).await?;
        Ok(Answer::new(session, "ok", json!({})).with(thread))
    }

    pub(crate) async fn archive(&self, one: One, away: bool, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&one.thread_id, &Override::default())?;
        let set = Set { archived: Some(away), ..Set::default() };
        change(&self.home, session, (Method::Set(Box::new(set)), Visit::Archive(away)), by).await?;
        Ok(Answer::new(session, if away { "archived" } else { "unarchived" }, json!({})))
    }

    /// Stops the pod and moves the session to the trash. Refused while a fork needs it.
    pub(crate) async fn delete(&self, one: One, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&one.thread_id, &Override::default())?;
        match self.remove(session).await {
            Err(StoreError::Held { .. }) => {
                end_of(&self.home, session, by).await?;
                self.remove(session).await?;
            }
            other => other?,
        }
        Ok(Answer::new(session, "deleted", json!({})))
    }

    pub(crate) async fn remove(&self, session: SessionId) -> Result<(), StoreError> {
        let home = self.home.clone();
        let removed = tokio::task::spawn_blocking(move || home.store.delete(session)).await;
        match removed {
            // One that goes with its pod may have gone.
            Ok(Ok(()) | Err(StoreError::NotFound { .. })) => Ok(()),
            Ok(other) => other,
            Err(gone) => Err(StoreError::Io {
                what: "remove",
                path: self.home.paths.sessions().join(session.to_string()),
                source: std::io::Error::other(gone),
            }),
        }
    }

    pub(crate) async fn goal_set(&self, goal: GoalSet, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&goal.thread_id, &Override::default())?;
        let objective = goal.objective.trim().to_owned();
        if objective.is_empty() || objective.len() > OBJECTIVE_BYTES {
            return Err(Fault::invalid(format!("objective: has 1 to {OBJECTIVE_BYTES} bytes")));
        }
        self.maker.without_secrets(&[&objective])?;
        // First, so that nothing is begun for the goal that it would not allow.
        if let Some(budget) = goal.budget {
            let left = Visit::Config { key: "budget".to_owned(), value: budget.clone() };
            let set = Set { budget: Some(budget), ..Set::default() };
            change(&self.home, session, (Method::Set(Box::new(set)), left), by).await?;
        }
        let set = Set { goal: Some(Some(objective.clone())), ..Set::default() };
        let left = Visit::Goal(Some(objective));
        change(&self.home, session, (Method::Set(Box::new(set)), left), by).await?;
        self.goal(session, "ok").await
    }

    pub(crate) async fn goal_get(&self, one: One) -> Result<Answer, Fault> {
        let session = self.session(&one.thread_id, &Override::default())?;
        self.goal(session, "ok").await
    }

    async fn goal(&self, session: SessionId, status: &'static str) -> Result<Answer, Fault> {
        let home = self.home.clone();
        let goal = off(move || Ok(Glance::of(&home, session)?.story.goal)).await?;
        Ok(Answer::new(session, status, json!({ "goal": goal })))
    }

    pub(crate) async fn goal_clear(&self, one: One, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&one.thread_id, &Override::default())?;
        if state(&self.home, session)?.facts.goal.is_none() {
            return Ok(Answer::new(session, "empty", json!({ "cleared": false })));
        }
        let set = Set { goal: Some(None), ..Set::default() };
        change(&self.home, session, (Method::Set(Box::new(set)), Visit::Goal(None)), by).await?;
        Ok(Answer::new(session, "cleared", json!({ "cleared": true })))
    }

    pub(crate) async fn checkpoint_save(&self, save: CheckpointSave, by: &Actor) -> Result<Answer, Fault> {
        let session = self.session(&save.thread_id, &Override::default())?;
        let id = save.checkpoint_id.unwrap_or_else(|| ids().next_uuid().to_string());
        if id == LATEST {
            return Err(Fault::invalid("checkpoint_id: `latest` is always the head, and is not saved"));
        }
        let written = save.state.to_string();
        if id.is_empty() || id.len() > OP_ID_BYTES || written.len() > CHECKPOINT_BYTES {
            return Err(Fault::invalid(format!(
                "checkpoint_save: an id has 1 to {OP_ID_BYTES} bytes, and a state at most {CHECKPOINT_BYTES} (this \
                 one: {})",
                written.len()
            )));
        }
        self.maker.without_secrets(&[&id, &written])?;
        let method = Method::Checkpoint(Checkpoint { id: id.clone(), state: save.state.clone() });
        let left = Visit::Checkpoint { id: id.clone(), state: save.state.clone() };
        change(&self.home, session, (method, left), by).await?;
        let saved = checkpoint(&id, &save.state, now());
        Ok(Answer::new(session, "ok", json!({ "checkpoint": saved })))
    }

    pub(crate) async fn checkpoint_load(&self, load: CheckpointLoad) -> Result<Answer, Fault> {
        let session = self.session(&load.thread_id, &Override::default())?;
        let home = self.home.clone();
        let id = load.checkpoint_id.unwrap_or_else(|| LATEST.to_owned());
        let wanted = id.clone();
        let found = off(move || Glance::of(&home, session)?.checkpoint(&wanted)).await?;
        match found {
            Some(point) => Ok(Answer::new(session, "ok", json!({ "checkpoint": point }))),
            // Before the first word there is no head to speak of.
            None if id == LATEST => Ok(Answer::new(session, "ok", json!({ "checkpoint": Value::Null }))),
            None => {
                let message = format!("thread s_{session} has no checkpoint `{}`", quoted(&id));
                Err(Fault::new(ErrorCode::NotFound, message))
            }
        }
    }

    pub(crate) async fn checkpoint_list(&self, one: One) -> Result<Answer, Fault> {
        let session = self.session(&one.thread_id, &Override::default())?;
        let home = self.home.clone();
        let points = off(move || Glance::of(&home, session)?.checkpoints()).await?;
        Ok(Answer::new(session, "ok", json!({ "checkpoints": points })))
    }
}
