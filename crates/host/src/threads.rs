//! Thread requests: create, start, resume, fork and read.
//!
//! Elsewhere: changing a thread (`thread_update`), sending a message (`message`), lists (`lists`), creating a session
//! (`launch`).

pub(crate) mod asks;
pub(crate) mod conversation;
pub(crate) mod fold;
pub(crate) mod import;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod message;
pub(crate) mod prompt;
pub(crate) mod settings;
pub(crate) mod tool_calls;
pub(crate) mod update;

use std::path::Path;

use minke_launch::{
    DeliverError, SessionChange, canonical_model, change_session, edit_step, new_ids, now_millis,
    random_seed, reach_pod, write_offline_edit,
};
use minke_pod::{ForkRequest, OfflineEdit, State, StepSeed};
use minke_protocol::{Method, Set};
use minke_record::{Actor, ErrorCode, ForkOrigin, PodName, SessionId};
use minke_session::{SealedEntry, StoreError};
use serde_json::{Value, json};

use crate::engine::{Engine, NewThread, run_blocking};
use crate::error::ApiError;
use crate::pods::request_session_scope;
use crate::request::{Fork, New, Read, RequestOverrides, Resume, SandboxAccess};
use crate::response::ThreadResponse;
use crate::threads::import::parse_items;
use crate::threads::log::{ThreadLog, load_state};

impl Engine {
    pub(crate) async fn create_thread(
        &self,
        new: New,
        status: &'static str,
        by: &Actor,
    ) -> Result<ThreadResponse, ApiError> {
        let history = new.history.as_deref().map(parse_items).transpose()?;
        let new_thread = NewThread {
            cwd: Some(require_absolute(new.cwd.as_deref())?.to_owned()),
            model: model_reference(new.model.as_deref(), new.model_provider.as_deref()),
            provider: new.model_provider,
            name: new.name,
            profile: new.profile,
            posture: None,
            metadata: new.metadata,
            mandate: new.mandate,
            ephemeral: new.ephemeral,
            history: history.unwrap_or_default(),
            blobs: Vec::new(),
        };
        self.make_thread(new_thread, status, by).await
    }

    /// Creates a thread with an imported conversation, which the caller has checked. Not available to API clients,
    /// which pass `history` to `create`.
    pub async fn import_thread(&self, new: NewThread, by: &Actor) -> Result<Value, ApiError> {
        self.make_thread(new, "created", by).await?.to_value()
    }

    async fn make_thread(
        &self,
        new_thread: NewThread,
        status: &'static str,
        by: &Actor,
    ) -> Result<ThreadResponse, ApiError> {
        let (engine, by) = (self.clone(), by.clone());
        run_blocking(move || {
            let (session, lease) = engine.create_session(new_thread, &by)?;
            // The pod starts with the first input.
            drop(lease);
            engine.thread_response(session, status)
        })
        .await
        .inspect(|_| self.wake_up())
    }

    /// Returns the response with the thread, its conversation and its last checkpoint.
    fn thread_response(&self, session: SessionId, status: &'static str) -> Result<ThreadResponse, ApiError> {
        let thread_log = ThreadLog::read_session(&self.home, session)?;
        Ok(ThreadResponse::new(session, status, thread_log.response_data()?)
            .with_thread(thread_log.thread_object(&self.home)?))
    }

    pub(crate) async fn read_thread(&self, read: Read) -> Result<ThreadResponse, ApiError> {
        let engine = self.clone();
        run_blocking(move || {
            let session = engine.resolve_session(&read.thread_id, &RequestOverrides::default())?;
            let thread_log = ThreadLog::read_session(&engine.home, session)?;
            let mut data = thread_log.response_data()?;
            let page = thread_log.entries_page(read.from_seq, read.limit)?;
            if let (Value::Object(data), Value::Object(page)) = (&mut data, page) {
                data.extend(page);
            }
            Ok(ThreadResponse::new(session, "ok", data).with_thread(thread_log.thread_object(&engine.home)?))
        })
        .await
    }

    pub(crate) async fn resume_thread(&self, resume: Resume, by: &Actor) -> Result<ThreadResponse, ApiError> {
        let overrides = resume.overrides();
        let session = self.resolve_session(&resume.thread_id, &overrides)?;
        let history = resume.history.as_deref().map(parse_items).transpose()?;
        let changes = self.changes_in_place(session, &overrides)?;
        if let Some(items) = history.filter(|items| !items.is_empty()) {
            self.edit_exclusively(
                session,
                OfflineEdit::Import(items),
                by,
                "could not import history while the thread is in use",
            )?;
        }
        self.apply_changes(session, changes, by).await?;
        request_session_scope(&self.home, session, by).await?;
        let reached = reach_pod(&self.home, session).await?;
        self.track_child(reached.launched);
        let engine = self.clone();
        run_blocking(move || engine.thread_response(session, "resumed")).await
    }

    pub(crate) async fn fork_thread(&self, fork: Fork, by: &Actor) -> Result<ThreadResponse, ApiError> {
        let overrides = fork.overrides();
        let parent = self.resolve_session(&fork.thread_id, &overrides)?;
        let name = fork.name.as_deref().map(parse_pod_name).transpose()?;
        let changes = self.override_changes(parent, &overrides)?;
        let cwd = overrides.cwd.as_deref().map(|cwd| self.resolve_fork_cwd(parent, cwd)).transpose()?;
        let (engine, person) = (self.clone(), by.clone());
        let options = ForkOptions { name, cwd, ..ForkOptions::default() };
        let forked = run_blocking(move || engine.fork_session(parent, fork.at_seq, options, person)).await?;
        self.apply_changes(forked, changes, by).await?;
        let engine = self.clone();
        run_blocking(move || engine.thread_response(forked, "forked")).await
    }

    pub(crate) fn fork_session(
        &self,
        parent: SessionId,
        at: Option<u64>,
        options: ForkOptions,
        by: Actor,
    ) -> Result<SessionId, ApiError> {
        let ForkOptions { id, name: wish, cwd, mandate, pause_reason } = options;
        let id = id.unwrap_or_else(|| SessionId(new_ids().next_uuid()));
        let step = |from: &ForkOrigin, entries: &[SealedEntry]| {
            let state = State::replay(entries.iter().map(|sealed| &sealed.entry));
            let parents = || state.facts.name.clone().unwrap_or_else(|| PodName::from_text("fork"));
            let forking = ForkRequest {
                session: id,
                name: wish.unwrap_or_else(parents),
                created_by: by,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                from: from.clone(),
                cwd,
                mandate,
                pause_reason,
            };
            minke_pod::fork_session(&state, StepSeed { now: now_millis(), seed: random_seed() }, forking)
                .map(|written| (written.entries, written.blobs))
                .map_err(|refusal| refusal.message)
        };
        drop(self.home.store.fork(minke_session::ForkSpec { parent, at, id, step: Box::new(step) })?);
        Ok(id)
    }

    /// Determines the changes for a request's settings, before anything is changed.
    fn override_changes(
        &self,
        session: SessionId,
        overrides: &RequestOverrides,
    ) -> Result<Vec<ThreadChange>, ApiError> {
        let state = load_state(&self.home, session)?;
        let about = state.facts.about.as_ref();
        let cwd = about.map(|about| about.cwd.clone()).unwrap_or_default();
        let stored = state.manifest.model.reference.clone();
        let mut changes = Vec::new();
        match (
            model_reference(overrides.model.as_deref(), overrides.model_provider.as_deref()),
            &overrides.model_provider,
        ) {
            (Some(wish), _) => {
                let wish = canonical_model(&wish, Path::new(&cwd), &self.launch_env)?;
                if stored.as_deref() != Some(&wish) {
                    changes.push(ThreadChange::Model(wish));
                }
            }
            (None, Some(provider)) => check_provider(stored.as_deref(), provider)?,
            (None, None) => {}
        }
        if let Some(approval) = overrides.approval_policy
            && state.manifest.permissions.posture != Some(approval.0)
        {
            changes.push(ThreadChange::Posture(approval.0.as_str()));
        }
        if let Some(sandbox) = overrides.sandbox
            && json!(state.manifest.sandbox.mode) != sandbox.as_str()
        {
            changes.push(ThreadChange::Sandbox(sandbox));
        }
        Ok(changes)
    }

    /// The same for a thread that keeps its directory.
    fn changes_in_place(
        &self,
        session: SessionId,
        overrides: &RequestOverrides,
    ) -> Result<Vec<ThreadChange>, ApiError> {
        if let Some(cwd) = &overrides.cwd {
            self.check_same_cwd(session, cwd)?;
        }
        self.override_changes(session, overrides)
    }

    /// Applies a request's settings to a thread.
    pub(crate) async fn apply_overrides(
        &self,
        session: SessionId,
        over: &RequestOverrides,
        by: &Actor,
    ) -> Result<(), ApiError> {
        let changes = self.changes_in_place(session, over)?;
        self.apply_changes(session, changes, by).await
    }

    async fn apply_changes(
        &self,
        session: SessionId,
        changes: Vec<ThreadChange>,
        by: &Actor,
    ) -> Result<(), ApiError> {
        for wish in changes {
            let (set, edit) = match wish {
                ThreadChange::Model(model) => {
                    (Set { model: Some(model.clone()), ..Set::default() }, OfflineEdit::Model(model))
                }
                ThreadChange::Posture(word) => (
                    Set { posture: Some(word.to_owned()), ..Set::default() },
                    OfflineEdit::Config { key: "permissions.posture".to_owned(), value: json!(word) },
                ),
                ThreadChange::Sandbox(sandbox) => {
                    let left = OfflineEdit::Config {
                        key: "sandbox.mode".to_owned(),
                        value: json!(sandbox.as_str()),
                    };
                    let why = "sandbox: a live pod keeps the sandbox that it was started with; use `pods/stop` first";
                    self.edit_exclusively(session, left, by, why)?;
                    continue;
                }
            };
            change_session(
                &self.home,
                session,
                SessionChange { method: Method::Set(Box::new(set)), edit },
                by,
            )
            .await?;
        }
        Ok(())
    }

    /// Makes an offline edit, which needs the session lease.
    fn edit_exclusively(
        &self,
        session: SessionId,
        left: OfflineEdit,
        by: &Actor,
        why: &str,
    ) -> Result<(), ApiError> {
        match write_offline_edit(&self.home, session, &*edit_step(left, by.clone())) {
            Ok(()) => Ok(()),
            Err(DeliverError::Store(StoreError::Held { who, .. })) => {
                Err(ApiError::new(ErrorCode::Conflict, format!("{why} ({who} holds s_{session})")))
            }
            Err(other) => Err(other.into()),
        }
    }

    fn check_same_cwd(&self, session: SessionId, cwd: &Path) -> Result<(), ApiError> {
        let stored = crate::threads::log::read_session_start(&self.home, session)?.cwd;
        let requested_cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        if requested_cwd == Path::new(&stored) {
            return Ok(());
        }
        let message = format!(
            "cwd: the directory of a thread is fixed ({stored}); `fork` can use another directory of its workspace"
        );
        Err(ApiError::new(ErrorCode::Conflict, message))
    }

    /// Returns the directory for a fork, which must be inside the workspace of its scope.
    fn resolve_fork_cwd(&self, parent: SessionId, cwd: &Path) -> Result<String, ApiError> {
        let start = crate::threads::log::read_session_start(&self.home, parent)?;
        let requested_cwd = require_absolute(Some(cwd))?
            .canonicalize()
            .map_err(|e| ApiError::invalid(format!("cwd: could not open {}: {e}", cwd.display())))?;
        let inside = requested_cwd.is_dir() && requested_cwd.starts_with(&start.workspace);
        match requested_cwd.to_str().filter(|_| inside) {
            Some(text) => Ok(text.to_owned()),
            None => Err(ApiError::invalid(format!(
                "cwd: {} is not a directory of the workspace {}, from which the fork has its scope; `start` begins \
                 a thread anywhere",
                requested_cwd.display(),
                start.workspace
            ))),
        }
    }
}

/// The properties of a fork that differ from its parent.
#[derive(Debug, Default)]
pub(crate) struct ForkOptions {
    /// The id, if it was logged before.
    pub(crate) id: Option<SessionId>,
    pub(crate) name: Option<PodName>,
    pub(crate) cwd: Option<String>,
    /// The mandate of a restarted job.
    pub(crate) mandate: Option<Value>,
    /// Why the restarted job begins paused.
    pub(crate) pause_reason: Option<String>,
}

/// A change of a stored setting.
enum ThreadChange {
    Model(String),
    Posture(&'static str),
    Sandbox(SandboxAccess),
}

/// Returns `provider/model` from either or both.
fn model_reference(model: Option<&str>, provider: Option<&str>) -> Option<String> {
    let model = model?;
    Some(match provider {
        Some(provider) if !model.starts_with(&format!("{provider}/")) => format!("{provider}/{model}"),
        _ => model.to_owned(),
    })
}

/// Checks that the stored model belongs to this provider, if only the provider was specified.
pub(crate) fn check_provider(stored: Option<&str>, provider: &str) -> Result<(), ApiError> {
    let is = stored.and_then(|stored| stored.split_once('/')).is_some_and(|(have, _)| have == provider);
    if is {
        return Ok(());
    }
    let have = stored.unwrap_or("none");
    Err(ApiError::invalid(format!(
        "model_provider: the model would be {have}, which does not belong to `{}`; specify `model` too",
        crate::request::quote_input(provider)
    )))
}

pub(crate) fn require_absolute(cwd: Option<&Path>) -> Result<&Path, ApiError> {
    match cwd {
        None => Err(ApiError::invalid("cwd: is missing; a new thread needs a working directory")),
        Some(cwd) if cwd.is_absolute() => Ok(cwd),
        Some(cwd) => Err(ApiError::invalid(format!("cwd: {} is not absolute", cwd.display()))),
    }
}

pub(crate) fn parse_pod_name(name: &str) -> Result<PodName, ApiError> {
    name.parse().map_err(|e| ApiError::invalid(format!("name: {e}")))
}
