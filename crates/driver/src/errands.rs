//! Errands: what a client wants that needs the disk and is not the pod's to decide. Each is a task that is kept here and
//! answers by mail.

use minke_client::above;
use minke_pod::{Forking, Moment, RewindScan, State, Stopped};
use minke_protocol::{ForkReply, ListPodsReply, PodRow, Refusal, ReplyData, RestorePod, Rewind};
use minke_record::{ErrorCode, ForkedFrom, Ids, OpenChild, PodName, SessionId};
use minke_registry::Runtime;
use minke_session::Fork;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::answers::scan_lineage;
use crate::children::{account, granted};
use crate::clients::Asker;
use crate::library::{Library, unread};
use crate::mail::Mail;
use crate::rules::RuleFiles;

pub(crate) struct Errands {
    tasks: JoinSet<()>,
    library: Library,
    runtime: Runtime,
    mail: mpsc::Sender<Mail>,
}

impl Errands {
    pub(crate) fn new(library: Library, runtime: Runtime, mail: mpsc::Sender<Mail>) -> Errands {
        Errands { tasks: JoinSet::new(), library, runtime, mail }
    }

    /// Reads what the context was before the input that a rewind names.
    pub(crate) fn rewind(&mut self, asker: Asker, rewind: &Rewind) {
        let (to_seq, expected_head) = (rewind.to_seq, rewind.expected_head);
        self.run(
            move |library| {
                let mut scan = RewindScan::new(Some(to_seq));
                let reader = library.reader().map_err(unread)?;
                scan_lineage(reader.as_ref(), &mut |entry| scan.see(entry)).map_err(unread)?;
                // Whether the head still fits is for the loop to see, when the pod is told.
                Ok(minke_pod::Rewind { to_seq, head_fits: false, target: scan.finish().1 })
            },
            move |rewind| Mail::Rewind { asker, expected_head, rewind },
        );
    }

    /// Writes a rule into the person's policy.
    pub(crate) fn add_rule(&mut self, files: RuleFiles, rule: String) {
        self.run(
            move |_| files.add(&rule).map_err(|e| format!("{rule} could not be kept: {e}")),
            Mail::RuleAdded,
        );
    }

    /// Makes a session that begins where this one stands, or stood.
    pub(crate) fn fork(&mut self, asker: Asker, at: Option<u64>, name: PodName, moment: Moment) {
        let id = SessionId(Ids::new(moment.now, moment.seed).next_uuid());
        let created_by = asker.client.actor();
        self.run(
            move |library| {
                let forking = move |from: &ForkedFrom| Forking {
                    session: id,
                    name,
                    created_by,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    from: from.clone(),
                    cwd: None,
                    mandate: None,
                    rests: None,
                };
                make_fork(library, at, id, moment, forking)
            },
            move |result| Mail::Done { asker, result },
        );
    }

    /// Checks the whole log: the opening had no time for it, or somebody met damage in it.
    pub(crate) fn check_log(&mut self) {
        self.run(|library| library.reader()?.damage(), Mail::Checked);
    }

    /// Tells when the process at the other end is gone. It never says anything; one that cannot be watched counts as gone.
    pub(crate) fn watch_owner(&mut self, owner: std::io::Result<std::os::unix::net::UnixStream>) {
        let mail = self.mail.clone();
        self.tasks.spawn(async move {
            if let Ok(owner) = owner
                && owner.set_nonblocking(true).is_ok()
                && let Ok(mut owner) = UnixStream::from_std(owner)
            {
                // The end, or an error, which is one too.
                while matches!(owner.read(&mut [0]).await, Ok(1..)) {}
            }
            drop(mail.send(Mail::OwnerGone).await);
        });
    }

    /// The pod's own visible set: its children, and whether they live.
    pub(crate) fn list_pods(&mut self, asker: Asker, children: &[OpenChild]) {
        let runtime = self.runtime.clone();
        let children: Vec<(PodName, SessionId)> =
            children.iter().map(|child| (child.name.clone(), child.session)).collect();
        self.run(
            move |_| {
                let look = runtime.look().map_err(|e| Refusal::new(ErrorCode::Internal, e.to_string()))?;
                let row = |(name, session): (PodName, SessionId)| {
                    let live = look.by_session(session);
                    let socket = live.map(|live| live.row.socket.to_string_lossy().into_owned());
                    PodRow { name, session, live: live.is_some(), socket }
                };
                Ok(ReplyData::ok(&ListPodsReply { pods: children.into_iter().map(row).collect() }))
            },
            move |result| Mail::Done { asker, result },
        );
    }

    /// Reads what is to be known of a pod below this one that is to live again.
    pub(crate) fn restore_pod(&mut self, asker: Asker, restore: RestorePod, children: &[OpenChild]) {
        let known = children.iter().find(|child| child.name == restore.name).map(|child| child.session);
        let Some(session) = restore.session.or(known) else {
            let names: Vec<&str> = children.iter().map(|child| child.name.as_str()).collect();
            let known = if names.is_empty() { "it has spawned none".to_owned() } else { names.join(", ") };
            let message = format!("no spawned pod named {}; known are: {known}", restore.name);
            let stopped = Err(Refusal::new(ErrorCode::NotFound, message));
            return self.run(move |_| stopped, move |stopped| Mail::Restore { asker, stopped });
        };
        self.run(move |library| stopped(library, session), move |stopped| Mail::Restore { asker, stopped });
    }

    fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Library) -> T + Send + 'static,
        tell: impl FnOnce(T) -> Mail + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        let (library, mail) = (self.library.clone(), self.mail.clone());
        self.tasks.spawn(async move {
            let done = library.off_loop(work).await;
            // The loop is gone only when the process ends, and whoever asked with it.
            drop(mail.send(tell(done)).await);
        });
    }
}

/// A pod below this one, as its log says.
fn stopped(library: &Library, session: SessionId) -> Result<Box<Stopped>, Refusal> {
    let store = library.store().as_ref();
    let line = above(store, session).map_err(unread)?;
    if !line.contains(&library.session()) {
        let message = format!("session s_{session} is none of those below this pod");
        return Err(Refusal::new(ErrorCode::NotFound, message));
    }
    let replay = store.reader(session).and_then(|reader| reader.replay()).map_err(unread)?;
    let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
    let budget = granted(&state);
    let paid = account(store, session).map_err(unread)?;
    let line = line.into_iter().take_while(|above| *above != library.session()).collect();
    let found = state.facts.about.zip(state.facts.name).and_then(|(about, name)| {
        let parent = about.parent?;
        Some(Stopped { session, name, scope: about.scope, parent, budget, line, paid })
    });
    found.map(Box::new).ok_or_else(|| {
        Refusal::new(
            ErrorCode::StorageFailed,
            format!("the log of session s_{session} does not say who it is"),
        )
    })
}

fn make_fork(
    library: &Library,
    at: Option<u64>,
    id: SessionId,
    moment: Moment,
    forking: impl FnOnce(&ForkedFrom) -> Forking,
) -> Result<ReplyData, Refusal> {
    let mut name = None;
    let made = library.store().fork(Fork {
        parent: library.session(),
        at,
        id,
        step: Box::new(|from, entries| {
            let state = State::replay(entries.iter().map(|sealed| &sealed.entry));
            let forking = forking(from);
            name = Some(forking.name.clone());
            let written = minke_pod::fork(&state, moment, forking).map_err(|refusal| refusal.message)?;
            Ok((written.entries, written.blobs))
        }),
    });
    // The lease is let go at once: nobody runs the fork yet.
    drop(made.map_err(unread)?);
    Ok(ReplyData::ok(&ForkReply { session: id, name }))
}
