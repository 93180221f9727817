//! Errands: what a client wants that needs the disk and is not the pod's to decide. Each is a task that is kept here and
//! answers by mail.

use minke_pod::{Forking, Moment, RewindScan, State};
use minke_protocol::{ForkReply, ListPodsReply, PodRow, Refusal, ReplyData, Rewind};
use minke_record::{ErrorCode, ForkedFrom, Ids, OpenChild, PodName, SessionId};
use minke_registry::Runtime;
use minke_session::Fork;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::answers::scan_lineage;
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
                };
                make_fork(library, at, id, moment, forking)
            },
            move |result| Mail::Done { asker, result },
        );
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
