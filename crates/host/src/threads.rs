//! Threads begin, go on and part: create, start, resume, fork, read.
//!
//! Elsewhere: changing one (`changes`), saying something in one (`message`), lists (`lists`), how a session is made (the
//! binary's `Maker`).

use std::path::Path;

use minke_client::{DeliverError, reach, visit};
use minke_pod::{Forking, Moment, State, Visit};
use minke_protocol::{Method, Set};
use minke_record::{Actor, ErrorCode, ForkedFrom, PodName, SessionId};
use minke_session::{Sealed, StoreError};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::engine::{Engine, NewThread, off};
use crate::fault::Fault;
use crate::import::items;
use crate::look::{Glance, state};
use crate::request::{Fork, New, Override, Read, Resume, Sandbox};
use crate::room::make_way;
use crate::visits::{change, ids, now, seed, step};

impl Engine {
    pub(crate) async fn create(&self, new: New, status: &'static str, by: &Actor) -> Result<Answer, Fault> {
        let history = new.history.as_deref().map(items).transpose()?;
        let wanted = NewThread {
            cwd: Some(absolute(new.cwd.as_deref())?.to_owned()),
            model: reference(new.model.as_deref(), new.model_provider.as_deref()),
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
        self.made(wanted, status, by).await
    }

    /// Makes a thread with a conversation from elsewhere, which was checked by whoever brings it. No request of programs: they
    /// give `history` to `create`.
    pub async fn import(&self, new: NewThread, by: &Actor) -> Result<Value, Fault> {
        self.made(new, "created", by).await?.value()
    }

    async fn made(&self, wanted: NewThread, status: &'static str, by: &Actor) -> Result<Answer, Fault> {
        let (engine, by) = (self.clone(), by.clone());
        off(move || {
            let (session, lease) = engine.maker.make(wanted, &by)?;
            // No process until the first input.
            drop(lease);
            engine.told(session, status)
        })
        .await
        .inspect(|_| self.nudge())
    }

    /// The answer with the thread, its conversation and its last point.
    fn told(&self, session: SessionId, status: &'static str) -> Result<Answer, Fault> {
        let glance = Glance::of(&self.home, session)?;
        Ok(Answer::new(session, status, glance.data()?).with(glance.thread(&self.home)?))
    }

    pub(crate) async fn read(&self, read: Read) -> Result<Answer, Fault> {
        let engine = self.clone();
        off(move || {
            let session = engine.session(&read.thread_id, &Override::default())?;
            let glance = Glance::of(&engine.home, session)?;
            let mut data = glance.data()?;
            let page = glance.page(read.from_seq, read.limit)?;
            if let (Value::Object(data), Value::Object(page)) = (&mut data, page) {
                data.extend(page);
            }
            Ok(Answer::new(session, "ok", data).with(glance.thread(&engine.home)?))
        })
        .await
    }

    pub(crate) async fn resume(&self, resume: Resume, by: &Actor) -> Result<Answer, Fault> {
        let over = resume.over();
        let session = self.session(&resume.thread_id, &over)?;
        let history = resume.history.as_deref().map(items).transpose()?;
        let changes = self.same_but(session, &over)?;
        if let Some(items) = history.filter(|items| !items.is_empty()) {
            self.alone(session, Visit::Import(items), by, "history goes into a thread that nobody works on")?;
        }
        self.apply(session, changes, by).await?;
        make_way(&self.home, session, by).await?;
        let reached = reach(&self.home, session).await?;
        self.keep(reached.launched);
        let engine = self.clone();
        off(move || engine.told(session, "resumed")).await
    }

    pub(crate) async fn fork(&self, fork: Fork, by: &Actor) -> Result<Answer, Fault> {
        let over = fork.over();
        let parent = self.session(&fork.thread_id, &over)?;
        let name = fork.name.as_deref().map(pod_name).transpose()?;
        let changes = self.changes(parent, &over)?;
        let cwd = over.cwd.as_deref().map(|cwd| self.place_within(parent, cwd)).transpose()?;
        let (engine, person) = (self.clone(), by.clone());
        let again = Again { name, cwd, ..Again::default() };
        let forked = off(move || engine.part(parent, fork.at_seq, again, person)).await?;
        self.apply(forked, changes, by).await?;
        let engine = self.clone();
        off(move || engine.told(forked, "forked")).await
    }

    pub(crate) fn part(
        &self,
        parent: SessionId,
        at: Option<u64>,
        again: Again,
        by: Actor,
    ) -> Result<SessionId, Fault> {
        let Again { id, name: wish, cwd, mandate, rests } = again;
        let id = id.unwrap_or_else(|| SessionId(ids().next_uuid()));
        let step = |from: &ForkedFrom, entries: &[Sealed]| {
            let state = State::replay(entries.iter().map(|sealed| &sealed.entry));
            let parents = || state.facts.name.clone().unwrap_or_else(|| PodName::from_any("fork"));
            let forking = Forking {
                session: id,
                name: wish.unwrap_or_else(parents),
                created_by: by,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                from: from.clone(),
                cwd,
                mandate,
                rests,
            };
            minke_pod::fork(&state, Moment { now: now(), seed: seed() }, forking)
                .map(|written| (written.entries, written.blobs))
                .map_err(|refusal| refusal.message)
        };
        drop(self.home.store.fork(minke_session::Fork { parent, at, id, step: Box::new(step) })?);
        Ok(id)
    }

    /// What is wanted otherwise than it is stored, looked up before anything is changed.
    fn changes(&self, session: SessionId, over: &Override) -> Result<Vec<Change>, Fault> {
        let state = state(&self.home, session)?;
        let about = state.facts.about.as_ref();
        let cwd = about.map(|about| about.cwd.clone()).unwrap_or_default();
        let stored = state.manifest.model.reference.clone();
        let mut changes = Vec::new();
        match (reference(over.model.as_deref(), over.model_provider.as_deref()), &over.model_provider) {
            (Some(wish), _) => {
                let wish = self.maker.model(&wish, Path::new(&cwd))?;
                if stored.as_deref() != Some(&wish) {
                    changes.push(Change::Model(wish));
                }
            }
            (None, Some(provider)) => of_provider(stored.as_deref(), provider)?,
            (None, None) => {}
        }
        if let Some(approval) = over.approval_policy
            && state.manifest.permissions.posture != Some(approval.0)
        {
            changes.push(Change::Posture(approval.0.as_str()));
        }
        if let Some(sandbox) = over.sandbox
            && json!(state.manifest.sandbox.mode) != sandbox.as_str()
        {
            changes.push(Change::Sandbox(sandbox));
        }
        Ok(changes)
    }

    /// The same for a thread that stays where it is.
    fn same_but(&self, session: SessionId, over: &Override) -> Result<Vec<Change>, Fault> {
        if let Some(cwd) = &over.cwd {
            self.same_place(session, cwd)?;
        }
        self.changes(session, over)
    }

    /// Makes a thread what is wanted of it.
    pub(crate) async fn otherwise(
        &self,
        session: SessionId,
        over: &Override,
        by: &Actor,
    ) -> Result<(), Fault> {
        let changes = self.same_but(session, over)?;
        self.apply(session, changes, by).await
    }

    async fn apply(&self, session: SessionId, changes: Vec<Change>, by: &Actor) -> Result<(), Fault> {
        for wish in changes {
            let (set, left) = match wish {
                Change::Model(model) => {
                    (Set { model: Some(model.clone()), ..Set::default() }, Visit::Model(model))
                }
                Change::Posture(word) => (
                    Set { posture: Some(word.to_owned()), ..Set::default() },
                    Visit::Config { key: "permissions.posture".to_owned(), value: json!(word) },
                ),
                Change::Sandbox(sandbox) => {
                    let left =
                        Visit::Config { key: "sandbox.mode".to_owned(), value: json!(sandbox.as_str()) };
                    let why =
                        "sandbox: a live pod keeps the fence that it was started with; `pods/stop` first";
                    self.alone(session, left, by, why)?;
                    continue;
                }
            };
            change(&self.home, session, (Method::Set(Box::new(set)), left), by).await?;
        }
        Ok(())
    }

    /// A change that only somebody can make who has the session to himself.
    fn alone(&self, session: SessionId, left: Visit, by: &Actor, why: &str) -> Result<(), Fault> {
        match visit(&self.home, session, &*step(left, by.clone())) {
            Ok(()) => Ok(()),
            Err(DeliverError::Store(StoreError::Held { who, .. })) => {
                Err(Fault::new(ErrorCode::Conflict, format!("{why} ({who} holds s_{session})")))
            }
            Err(other) => Err(other.into()),
        }
    }

    fn same_place(&self, session: SessionId, cwd: &Path) -> Result<(), Fault> {
        let stored = crate::look::start(&self.home, session)?.cwd;
        let given = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        if given == Path::new(&stored) {
            return Ok(());
        }
        let message = format!(
            "cwd: a thread works where it began ({stored}); `fork` takes another directory of its workspace"
        );
        Err(Fault::new(ErrorCode::Conflict, message))
    }

    /// A directory for a fork: inside the workspace that it has its scope from.
    fn place_within(&self, parent: SessionId, cwd: &Path) -> Result<String, Fault> {
        let start = crate::look::start(&self.home, parent)?;
        let given = absolute(Some(cwd))?
            .canonicalize()
            .map_err(|e| Fault::invalid(format!("cwd: {} cannot be worked in: {e}", cwd.display())))?;
        let inside = given.is_dir() && given.starts_with(&start.workspace);
        match given.to_str().filter(|_| inside) {
            Some(text) => Ok(text.to_owned()),
            None => Err(Fault::invalid(format!(
                "cwd: {} is no directory of the workspace {}, which the fork has its scope from; `start` begins \
                 a thread anywhere",
                given.display(),
                start.workspace
            ))),
        }
    }
}

/// How a fork is to be, where it is not like its parent.
#[derive(Debug, Default)]
pub(crate) struct Again {
    /// Where the id was written down before.
    pub(crate) id: Option<SessionId>,
    pub(crate) name: Option<PodName>,
    pub(crate) cwd: Option<String>,
    /// Of a job that is begun again.
    pub(crate) mandate: Option<Value>,
    /// Why that job is paused from the start.
    pub(crate) rests: Option<String>,
}

/// A stored value that is to be another one.
enum Change {
    Model(String),
    Posture(&'static str),
    Sandbox(Sandbox),
}

/// `provider/model` from what was said of either.
fn reference(model: Option<&str>, provider: Option<&str>) -> Option<String> {
    let model = model?;
    Some(match provider {
        Some(provider) if !model.starts_with(&format!("{provider}/")) => format!("{provider}/{model}"),
        _ => model.to_owned(),
    })
}

/// Whether the stored model is of this provider, where only that was said.
pub fn of_provider(stored: Option<&str>, provider: &str) -> Result<(), Fault> {
    let is = stored.and_then(|stored| stored.split_once('/')).is_some_and(|(have, _)| have == provider);
    if is {
        return Ok(());
    }
    let have = stored.unwrap_or("none");
    Err(Fault::invalid(format!(
        "model_provider: the model would be {have}, which is not of `{}`; name the `model`, too",
        crate::request::quoted(provider)
    )))
}

pub(crate) fn absolute(cwd: Option<&Path>) -> Result<&Path, Fault> {
    match cwd {
        None => Err(Fault::invalid("cwd: is missing: a new thread needs a directory to work in")),
        Some(cwd) if cwd.is_absolute() => Ok(cwd),
        Some(cwd) => Err(Fault::invalid(format!("cwd: {} is not absolute", cwd.display()))),
    }
}

pub(crate) fn pod_name(name: &str) -> Result<PodName, Fault> {
    name.parse().map_err(|e| Fault::invalid(format!("name: {e}")))
}
