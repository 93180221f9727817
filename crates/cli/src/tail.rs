//! `minke tail`: the last entries of a session, and what follows as long as a pod lives on it. Wakes nobody.

use clap::Args;
use minke_client::{Connection, Home, find};
use minke_protocol::{Event, Subscribe};
use minke_record::{Entry, Position, SessionId};

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::transcript::{Asides, Transcript};

/// A page of the log that is read at once.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// How many entries to begin with
    #[arg(long, short = 'n', default_value_t = 20)]
    entries: u64,
    /// With everybody below it, each line after the name of its pod
    #[arg(long, short)]
    tree: bool,
    /// Do not wait for more
    #[arg(long)]
    no_follow: bool,
}

pub(crate) async fn run(tail: Tail, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let found = find(&home, &tail.name)?;
    if tail.tree {
        return crate::chorus::run(&home, found.session, tail.entries, !tail.no_follow, screen).await;
    }
    let mut view = View { transcript: Transcript::new(*screen, Asides::Together), screen };
    let position = show_last(&home, found.session, tail.entries, &mut view)?;
    let Some(live) = found.live.filter(|_| !tail.no_follow) else {
        return Ok(Exit::Done);
    };
    let socket = &live.row.socket;
    let mut connection = match Connection::open(socket, Subscribe::Full, position, introduction()).await {
        Ok(connection) => connection,
        Err(e) if e.is_nobody() => return Ok(gone(screen)),
        Err(e) => return Err(e.into()),
    };
    loop {
        let frame = tokio::select! {
            frame = connection.next() => frame?,
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(|e| Failure::new(Exit::Failed, "cannot listen for signals").why(e))?;
                return Ok(Exit::Signal);
            }
        };
        match frame.map(|frame| frame.event) {
            Some(Event::Shutdown) => return Ok(Exit::Done),
            None => return Ok(gone(screen)),
            Some(Event::Snapshot(snapshot)) => {
                for entry in &snapshot.entries {
                    view.entry(entry)?;
                }
                view.in_flight(&snapshot.in_flight)?;
            }
            Some(Event::Entry(event)) => view.entry(&event.entry)?,
            Some(Event::InFlight(in_flight)) => view.in_flight(&in_flight)?,
            Some(other) => view.live(&other)?,
        }
    }
}

fn gone(screen: &Screen) -> Exit {
    screen.warn("the pod is gone; `minke attach` brings it back");
    Exit::Done
}

/// Entries as the person wants them: plain lines, or the log's own objects.
struct View<'a> {
    transcript: Transcript,
    screen: &'a Screen,
}

impl View<'_> {
    fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        if !self.screen.json {
            return self.transcript.entry(entry);
        }
        let line = serde_json::to_string(entry).map_err(|e| {
            Failure::new(Exit::Failed, format!("entry {} cannot be written", entry.seq)).why(e)
        })?;
        self.screen.json_line(&line)
    }

    fn live(&mut self, event: &Event) -> Result<(), Failure> {
        if self.screen.json { Ok(()) } else { self.transcript.live(event) }
    }

    fn in_flight(&mut self, in_flight: &minke_protocol::InFlight) -> Result<(), Failure> {
        if self.screen.json { Ok(()) } else { self.transcript.in_flight(in_flight) }
    }
}

/// Shows the last entries and says where they end.
fn show_last(
    home: &Home,
    session: SessionId,
    count: u64,
    view: &mut View<'_>,
) -> Result<Option<Position>, Failure> {
    let reader = home.store.reader(session)?;
    let Some(head) = reader.head()? else {
        return Ok(None);
    };
    let mut position = head;
    let mut from = Some((head.seq + 1).saturating_sub(count)).filter(|_| count > 0);
    while let Some(seq) = from {
        let page = reader.page(seq, PAGE_ENTRIES, PAGE_BYTES)?;
        for sealed in &page.entries {
            view.entry(&sealed.entry)?;
            position = Position { seq: sealed.entry.seq, h: sealed.entry.h };
        }
        from = page.next_seq;
    }
    Ok(Some(position))
}
