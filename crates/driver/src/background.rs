//! Background tasks: client requests that need the disk but no decision of the pod. Each is a task that
//! replies with an event.

use minke_client::find_ancestors;
use minke_pod::{ForkRequest, RewindScan, State, StepSeed, StoppedPod};
use minke_protocol::{ForkReply, ListPodsReply, PodRow, Refusal, ReplyData, RestorePod, Rewind};
use minke_record::{ErrorCode, ForkOrigin, IdGenerator, OpenChild, PodName, SessionId};
use minke_registry::RuntimeDir;
use minke_session::ForkSpec;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::children::{collect_spending, granted_budget};
use crate::clients::ReplyHandle;
use crate::clients::log_reader::{SessionReader, read_refusal};
use crate::clients::queries::scan_lineage;
use crate::event_loop::event::LoopEvent;
use crate::policy::rules::RuleFiles;

pub(crate) struct BackgroundTasks {
    tasks: JoinSet<()>,
    session_reader: SessionReader,
    runtime: RuntimeDir,
    events: mpsc::Sender<LoopEvent>,
}

impl BackgroundTasks {
    pub(crate) fn new(
        session_reader: SessionReader,
        runtime: RuntimeDir,
        events: mpsc::Sender<LoopEvent>,
    ) -> BackgroundTasks {
        BackgroundTasks { tasks: JoinSet::new(), session_reader, runtime, events }
    }

    /// Reads the context before the input that a rewind names.
    pub(crate) fn prepare_rewind(&mut self, reply_handle: ReplyHandle, rewind: &Rewind) {
        let (to_seq, expected_head) = (rewind.to_seq, rewind.expected_head);
        self.run_task(
            move |session_reader| {
                let mut scan = RewindScan::new(Some(to_seq));
                let reader = session_reader.reader().map_err(read_refusal)?;
                scan_lineage(reader.as_ref(), &mut |entry| scan.scan_entry(entry)).map_err(read_refusal)?;
                // The event loop checks the head again before it passes the rewind to the pod.
                Ok(minke_pod::RewindRequest { to_seq, head_matches: false, target: scan.into_targets().1 })
            },
            move |rewind| LoopEvent::RewindRead { reply_handle, expected_head, rewind },
        );
    }

    /// Writes a rule to the user's policy.
    pub(crate) fn add_rule(&mut self, files: RuleFiles, rule: String) {
        self.run_task(
            move |_| files.add_rule(&rule).map_err(|e| format!("could not store {rule}: {e}")),
            LoopEvent::RuleAdded,
        );
    }

    /// Creates a session that forks from the current or an earlier state of this one.
    pub(crate) fn fork_session(
        &mut self,
        reply_handle: ReplyHandle,
        at: Option<u64>,
        name: PodName,
        moment: StepSeed,
    ) {
        let id = SessionId(IdGenerator::new(moment.now, moment.seed).next_uuid());
        let created_by = reply_handle.client.actor();
        self.run_task(
            move |session_reader| {
                let forking = move |from: &ForkOrigin| ForkRequest {
                    session: id,
                    name,
                    created_by,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    from: from.clone(),
                    cwd: None,
                    mandate: None,
                    pause_reason: None,
                };
                create_fork(session_reader, at, id, moment, forking)
            },
            move |result| LoopEvent::BackgroundDone { reply_handle, result },
        );
    }

    /// Checks the whole log: opening checks only its end, or a reader has found damage.
    pub(crate) fn check_log(&mut self) {
        self.run_task(|session_reader| session_reader.reader()?.find_damage(), LoopEvent::LogChecked);
    }

    /// Sends an event when the owning process has closed its end of the socket. The owner never writes; an
    /// error counts as closed.
    pub(crate) fn watch_owner(&mut self, owner: std::io::Result<std::os::unix::net::UnixStream>) {
        let events = self.events.clone();
        self.tasks.spawn(async move {
            if let Ok(owner) = owner
                && owner.set_nonblocking(true).is_ok()
                && let Ok(mut owner) = UnixStream::from_std(owner)
            {
                // End of file or an error; both mean that the owner is gone.
                while matches!(owner.read(&mut [0]).await, Ok(1..)) {}
            }
            drop(events.send(LoopEvent::OwnerGone).await);
        });
    }

    /// Lists the pod's children and whether they are running.
    pub(crate) fn list_pods(&mut self, reply_handle: ReplyHandle, children: &[OpenChild]) {
        let runtime = self.runtime.clone();
        let children: Vec<(PodName, SessionId)> =
            children.iter().map(|child| (child.name.clone(), child.session)).collect();
        self.run_task(
            move |_| {
                let look =
                    runtime.take_snapshot().map_err(|e| Refusal::new(ErrorCode::Internal, e.to_string()))?;
                let row = |(name, session): (PodName, SessionId)| {
                    let live = look.find_by_session(session);
                    let socket = live.map(|live| live.row.socket.to_string_lossy().into_owned());
                    PodRow { name, session, live: live.is_some(), socket }
                };
                Ok(ReplyData::from_result(&ListPodsReply { pods: children.into_iter().map(row).collect() }))
            },
            move |result| LoopEvent::BackgroundDone { reply_handle, result },
        );
    }

    /// Reads the log of a stopped descendant that is to be started again.
    pub(crate) fn restore_pod(&mut self, asker: ReplyHandle, restore: RestorePod, children: &[OpenChild]) {
        let known = children.iter().find(|child| child.name == restore.name).map(|child| child.session);
        let Some(session) = restore.session.or(known) else {
            let names: Vec<&str> = children.iter().map(|child| child.name.as_str()).collect();
            let known = if names.is_empty() { "it has spawned none".to_owned() } else { names.join(", ") };
            let message = format!("no spawned pod named {}; known pods: {known}", restore.name);
            let stopped = Err(Refusal::new(ErrorCode::NotFound, message));
            return self.run_task(
                move |_| stopped,
                move |stopped| LoopEvent::RestoreRead { reply_handle: asker, stopped },
            );
        };
        self.run_task(
            move |session_reader| read_stopped(session_reader, session),
            move |stopped| LoopEvent::RestoreRead { reply_handle: asker, stopped },
        );
    }

    fn run_task<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&SessionReader) -> T + Send + 'static,
        tell: impl FnOnce(T) -> LoopEvent + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        let (session_reader, events) = (self.session_reader.clone(), self.events.clone());
        self.tasks.spawn(async move {
            let done = session_reader.run_blocking(work).await;
            // The receiver is dropped only when the process ends.
            drop(events.send(tell(done)).await);
        });
    }
}

/// A descendant of this pod, read from its log.
fn read_stopped(session_reader: &SessionReader, session: SessionId) -> Result<Box<StoppedPod>, Refusal> {
    let store = session_reader.store().as_ref();
    let line = find_ancestors(store, session).map_err(read_refusal)?;
    if !line.contains(&session_reader.session()) {
        let message = format!("session s_{session} is not a descendant of this pod");
        return Err(Refusal::new(ErrorCode::NotFound, message));
    }
    let replay = store.open_reader(session).and_then(|reader| reader.read_replay()).map_err(read_refusal)?;
    let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
    let budget = granted_budget(&state);
    let paid = collect_spending(store, session).map_err(read_refusal)?;
    let ancestors = line.into_iter().take_while(|above| *above != session_reader.session()).collect();
    let found = state.facts.about.zip(state.facts.name).and_then(|(about, name)| {
        let parent = about.parent?;
        Some(StoppedPod { session, name, scope: about.scope, parent, budget, ancestors, paid })
    });
    found.map(Box::new).ok_or_else(|| {
        Refusal::new(ErrorCode::StorageFailed, format!("the log of session s_{session} has no session_start"))
    })
}

fn create_fork(
    session_reader: &SessionReader,
    at: Option<u64>,
    id: SessionId,
    moment: StepSeed,
    forking: impl FnOnce(&ForkOrigin) -> ForkRequest,
) -> Result<ReplyData, Refusal> {
    let mut name = None;
    let made = session_reader.store().fork(ForkSpec {
        parent: session_reader.session(),
        at,
        id,
        step: Box::new(|from, entries| {
            let state = State::replay(entries.iter().map(|sealed| &sealed.entry));
            let forking = forking(from);
            name = Some(forking.name.clone());
            let written =
                minke_pod::fork_session(&state, moment, forking).map_err(|refusal| refusal.message)?;
            Ok((written.entries, written.blobs))
        }),
    });
    // The lease is released immediately: no pod runs on the fork yet.
    drop(made.map_err(read_refusal)?);
    Ok(ReplyData::from_result(&ForkReply { session: id, name }))
}
