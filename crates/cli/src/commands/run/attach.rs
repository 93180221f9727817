//! `minke attach`: joins a pod. On a terminal it opens the terminal UI (`tui_backend`). This file is the line
//! mode for pipes and `--plain`: it prints what happens and sends each line of stdin. Leaving never stops the
//! pod.

use std::collections::BTreeSet;
use std::io::BufRead;

use clap::Args;
use minke_client::{Connection, UserHome, find_session};
use minke_launch::{ReferenceScope, reach_pod};
use minke_protocol::{
    Event, EventPosition, Frame, Method, ReplyData, RequestId, Run, RunMode, Snapshot, Status, StatusReply,
    Subscribe,
};
use minke_record::{Entry, Kind, Position, SessionId};
use tokio::sync::mpsc;

use crate::context::{CliContext, client_info, new_ids};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::transcript::{AsideTarget, Transcript};

/// Lines of stdin that wait to be sent. A full channel makes a pipe wait.
const MAX_STDIN_LINES: usize = 64;
/// How many typed lines are remembered; more than a queue can contain.
const MAX_ECHOES: usize = 256;
/// How often a pod that died is restarted before giving up.
const MAX_REJOINS: u32 = 3;

/// Attach to a pod and talk to it; starts the pod if it sleeps
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// A live pod's name, a session's id, or a name that a session had
    pub(crate) name: String,
    /// Print lines instead of opening the terminal UI
    #[arg(long)]
    pub(crate) plain: bool,
}

pub(crate) async fn run(
    attach: AttachArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let session = find_session(&home, &attach.name)?.session;
    if !attach.plain && crate::tui_backend::is_tui_possible(context, output) {
        return crate::tui_backend::run(Some(session), context, output).await;
    }
    crate::scope_conflict::release_session_scope(&home, session).await?;
    let mut lines = read_stdin_lines()?;
    let mut view = AttachedView {
        transcript: Transcript::new(*output, AsideTarget::Stdout),
        output,
        session,
        references: ReferenceScope::for_session(session, &home, &context.env)?,
        position: None,
        activity: AttachedActivity::Running,
        unacknowledged: 0,
        stdin_open: true,
        greeting_shown: false,
        typed_op_ids: context.stdin_terminal.then(BTreeSet::new),
    };
    for _ in 0..=MAX_REJOINS {
        let socket = reach_pod(&home, session).await?.socket;
        let mut connection = Connection::open(&socket, Subscribe::Full, view.position, client_info()).await?;
        match view.run_until_left(&mut connection, &mut lines).await? {
            LeaveReason::UserLeft => return Ok(ExitKind::Success),
            LeaveReason::PodStopped => {
                output.print_note("the pod has stopped; its session remains");
                return Ok(ExitKind::Success);
            }
            LeaveReason::PodDied => {
                output.print_warning("the pod died; restarting it");
                view.position = connection.position();
            }
        }
    }
    Err(CliError::new(ExitKind::Failed, format!("the pod died {} times while attached", MAX_REJOINS + 1))
        .with_hint(format!("its stderr is in {}", pod_stderr_path(&home, session))))
}

fn pod_stderr_path(home: &UserHome, session: SessionId) -> String {
    home.paths.state.join("pods").join(format!("{session}.log")).display().to_string()
}

/// Why the view was left.
enum LeaveReason {
    UserLeft,
    PodStopped,
    PodDied,
}

/// State of the pod as far as this client knows it.
enum AttachedActivity {
    Running,
    /// No run is active at the moment.
    Idle,
    /// A `status` request was sent to check the queue.
    StatusRequested(RequestId),
    /// All runs have ended; `head` is the last entry.
    Finished {
        head: u64,
    },
}

impl AttachedActivity {
    fn from_status(status: &Status) -> AttachedActivity {
        if *status == Status::Running { AttachedActivity::Running } else { AttachedActivity::Idle }
    }
}

struct AttachedView<'a> {
    transcript: Transcript,
    output: &'a CliOutput,
    session: SessionId,
    /// Files, skills and knowledge that input can refer to.
    references: ReferenceScope,
    position: Option<Position>,
    activity: AttachedActivity,
    /// Inputs that were sent and are not acknowledged yet.
    unacknowledged: u64,
    stdin_open: bool,
    greeting_shown: bool,
    /// `op_id`s of input typed here; the terminal already shows that text.
    typed_op_ids: Option<BTreeSet<String>>,
}

impl AttachedView<'_> {
    async fn run_until_left(
        &mut self,
        connection: &mut Connection,
        lines: &mut mpsc::Receiver<String>,
    ) -> Result<LeaveReason, CliError> {
        let mut stopping = false;
        self.activity = AttachedActivity::Running;
        loop {
            if self.check_finished(connection).await? {
                return Ok(LeaveReason::UserLeft);
            }
            tokio::select! {
                frame = connection.next_frame() => match frame? {
                    None => return Ok(if stopping { LeaveReason::PodStopped } else { LeaveReason::PodDied }),
                    Some(frame) if frame.event == Event::Shutdown => stopping = true,
                    Some(frame) => self.handle_frame(&frame)?,
                },
                line = lines.recv(), if self.stdin_open => match line {
                    None => self.stdin_open = false,
                    Some(line) if line.trim().is_empty() => {}
                    Some(line) => self.send_input(line, connection).await?,
                },
                signal = tokio::signal::ctrl_c() => {
                    signal.map_err(|e| CliError::new(ExitKind::Failed, "cannot listen for signals").with_reason(e))?;
                    self.output.print_note(&format!("left; the pod keeps running (s_{})", self.session));
                    return Ok(LeaveReason::UserLeft);
                }
            }
        }
    }

    /// Returns true when stdin is closed and all work is done. A pod is idle for a moment between two runs,
    /// so this asks it whether its queue contains more.
    async fn check_finished(&mut self, connection: &mut Connection) -> Result<bool, CliError> {
        if self.stdin_open || self.unacknowledged > 0 {
            return Ok(false);
        }
        match &self.activity {
            AttachedActivity::Running | AttachedActivity::StatusRequested(_) => Ok(false),
            AttachedActivity::Idle => {
                self.activity = AttachedActivity::StatusRequested(connection.send(Method::Status).await?);
                Ok(false)
            }
            AttachedActivity::Finished { head } => {
                Ok(connection.position().is_some_and(|position| position.seq >= *head))
            }
        }
    }

    async fn send_input(&mut self, line: String, connection: &mut Connection) -> Result<(), CliError> {
        let op_id = new_ids().next_uuid().to_string();
        if let Some(echoed) = &mut self.typed_op_ids {
            // Refused inputs never start; forgetting one only repeats a line.
            if echoed.len() >= MAX_ECHOES {
                echoed.clear();
            }
            echoed.insert(op_id.clone());
        }
        self.unacknowledged += 1;
        let input = self.references.parse_text(&line);
        connection.send(Method::Run(Run { input, mode: RunMode::Queue, op_id: Some(op_id) })).await?;
        Ok(())
    }

    fn handle_frame(&mut self, frame: &Frame) -> Result<(), CliError> {
        match &frame.event {
            Event::Snapshot(snapshot) => self.handle_snapshot(snapshot)?,
            Event::Entry(event) if self.take_echo(&event.entry) => {}
            Event::Entry(event) => self.transcript.print_entry(&event.entry)?,
            Event::InFlight(in_flight) => self.transcript.print_in_flight(in_flight)?,
            Event::Status(status) => self.activity = AttachedActivity::from_status(&status.status),
            Event::Reply(reply) => self.handle_reply(&frame.position, reply)?,
            other => self.transcript.print_event(other)?,
        }
        Ok(())
    }

    fn handle_reply(&mut self, place: &EventPosition, reply: &ReplyData) -> Result<(), CliError> {
        if let (AttachedActivity::StatusRequested(asked), EventPosition::Direct { id: Some(id) }) =
            (&self.activity, place)
            && asked == id
        {
            let answer = reply.parse_result::<StatusReply>().map_err(|e| {
                CliError::new(ExitKind::Failed, "could not read the pod's reply to `status`").with_reason(e)
            })?;
            self.activity = match answer {
                Ok(StatusReply { status: Status::Running, .. }) => AttachedActivity::Running,
                Ok(status) if status.queue.length > 0 && !status.queue.held => AttachedActivity::Running,
                Ok(status) => AttachedActivity::Finished { head: status.head.seq },
                Err(refusal) => return Err(refusal.clone().into()),
            };
            return Ok(());
        }
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        if let ReplyData::Refused(refusal) = reply {
            self.output.print_warning(&refusal.message);
        }
        Ok(())
    }

    /// Returns true for an entry that echoes typed input. Remembers the input until its run starts.
    fn take_echo(&mut self, entry: &Entry) -> bool {
        let Some(echoed) = &mut self.typed_op_ids else { return false };
        match &entry.kind {
            Kind::UserInput(input) => {
                let begins_later = input.queued.is_some();
                input.op_id.as_ref().is_some_and(|op_id| echoed.remove(op_id)) && !begins_later
            }
            _ => false,
        }
    }

    fn handle_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), CliError> {
        if !std::mem::replace(&mut self.greeting_shown, true) {
            let greeting = &snapshot.greeting;
            self.output.print_note(&format!(
                "{} · s_{} · {} · {} (Ctrl-C leaves, the pod keeps running)",
                greeting.pod_name, self.session, greeting.model, snapshot.status
            ));
            for notice in &greeting.notices {
                self.output.print_note(notice);
            }
            let first = snapshot.entries.first().map(|entry| &entry.kind);
            let from_the_beginning = matches!(first, Some(Kind::SegmentStart(start)) if start.segment == 0);
            if snapshot.older && !from_the_beginning {
                self.output.print_note(&format!("older entries: `minke log show s_{}`", self.session));
            }
        }
        for entry in &snapshot.entries {
            self.transcript.print_entry(entry)?;
        }
        self.transcript.print_in_flight(&snapshot.in_flight)?;
        if snapshot.status == Status::Paused {
            self.output
                .print_note("a run is paused: `minke resume` continues it, a new message starts another run");
        }
        self.activity = AttachedActivity::from_status(&snapshot.status);
        Ok(())
    }
}

/// Reads lines of stdin in a separate thread, because a blocking read of a terminal cannot be cancelled.
fn read_stdin_lines() -> Result<mpsc::Receiver<String>, CliError> {
    let (send, receive) = mpsc::channel(MAX_STDIN_LINES);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().lines() {
                // Stops at a line that is not UTF-8 and when the view was left.
                let Ok(line) = line else { return };
                if send.blocking_send(line).is_err() {
                    return;
                }
            }
        })
        .map_err(|e| CliError::new(ExitKind::Failed, "cannot read stdin").with_reason(e))?;
    Ok(receive)
}
