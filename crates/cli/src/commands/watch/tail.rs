//! `minke tail`: prints the last entries of a session, and new ones while a pod is live. Wakes no pod.

use clap::Args;
use minke_client::{Connection, UserHome, find_session};
use minke_protocol::{Event, Subscribe};
use minke_record::{Entry, Position, SessionId};

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::transcript::{AsideTarget, Transcript};

/// Size of one read of the log.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Print the last entries of a session and follow it
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// Number of entries to start with
    #[arg(long, short = 'n', default_value_t = 20)]
    entries: u64,
    /// Include all descendants, each line with the name of its pod
    #[arg(long, short)]
    tree: bool,
    /// Print the last entries and exit
    #[arg(long)]
    no_follow: bool,
}

pub(crate) async fn run(
    tail: TailArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &tail.name)?;
    if tail.tree {
        return crate::commands::watch::tail_tree::run(
            &home,
            found.session,
            tail.entries,
            !tail.no_follow,
            output,
        )
        .await;
    }
    let mut view = TailView { transcript: Transcript::new(*output, AsideTarget::Stdout), output };
    let position = print_last(&home, found.session, tail.entries, &mut view)?;
    let Some(live) = found.live.filter(|_| !tail.no_follow) else {
        return Ok(ExitKind::Success);
    };
    let socket = &live.row.socket;
    let mut connection = match Connection::open(socket, Subscribe::Full, position, client_info()).await {
        Ok(connection) => connection,
        Err(e) if e.is_not_running() => return Ok(report_gone(output)),
        Err(e) => return Err(e.into()),
    };
    loop {
        let frame = tokio::select! {
            frame = connection.next_frame() => frame?,
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(|e| CliError::new(ExitKind::Failed, "cannot listen for signals").with_reason(e))?;
                return Ok(ExitKind::Signal);
            }
        };
        match frame.map(|frame| frame.event) {
            Some(Event::Shutdown) => return Ok(ExitKind::Success),
            None => return Ok(report_gone(output)),
            Some(Event::Snapshot(snapshot)) => {
                for entry in &snapshot.entries {
                    view.print_entry(entry)?;
                }
                view.print_in_flight(&snapshot.in_flight)?;
            }
            Some(Event::Entry(event)) => view.print_entry(&event.entry)?,
            Some(Event::InFlight(in_flight)) => view.print_in_flight(&in_flight)?,
            Some(other) => view.print_live(&other)?,
        }
    }
}

fn report_gone(output: &CliOutput) -> ExitKind {
    output.print_warning("the pod has exited; `minke attach` restarts it");
    ExitKind::Success
}

/// Prints entries as plain lines, or as objects of the log.
struct TailView<'a> {
    transcript: Transcript,
    output: &'a CliOutput,
}

impl TailView<'_> {
    fn print_entry(&mut self, entry: &Entry) -> Result<(), CliError> {
        if !self.output.json {
            return self.transcript.print_entry(entry);
        }
        let line = serde_json::to_string(entry).map_err(|e| {
            CliError::new(ExitKind::Failed, format!("could not write entry {}", entry.seq)).with_reason(e)
        })?;
        self.output.print_json_line(&line)
    }

    fn print_live(&mut self, event: &Event) -> Result<(), CliError> {
        if self.output.json { Ok(()) } else { self.transcript.print_event(event) }
    }

    fn print_in_flight(&mut self, in_flight: &minke_protocol::InFlight) -> Result<(), CliError> {
        if self.output.json { Ok(()) } else { self.transcript.print_in_flight(in_flight) }
    }
}

/// Prints the last entries. Returns the position of the last one.
fn print_last(
    home: &UserHome,
    session: SessionId,
    count: u64,
    view: &mut TailView<'_>,
) -> Result<Option<Position>, CliError> {
    let reader = home.store.open_reader(session)?;
    let Some(head) = reader.head_position()? else {
        return Ok(None);
    };
    let mut position = head;
    let mut from = Some((head.seq + 1).saturating_sub(count)).filter(|_| count > 0);
    while let Some(seq) = from {
        let page = reader.read_page(seq, PAGE_ENTRIES, PAGE_BYTES)?;
        for sealed in &page.entries {
            view.print_entry(&sealed.entry)?;
            position = Position { seq: sealed.entry.seq, h: sealed.entry.h };
        }
        from = page.next_seq;
    }
    Ok(Some(position))
}
