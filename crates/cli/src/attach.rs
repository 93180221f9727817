//! `minke attach`: join a pod. On a terminal by the terminal UI (`face`); here is the plain way, for pipes and with
//! `--plain`: what happens is printed, lines of stdin are said to it. Leaving never stops the pod.

use std::collections::BTreeSet;
use std::io::BufRead;

use clap::Args;
use minke_client::{Connection, Home, find, reach};
use minke_protocol::{
    Event, Frame, Id, Method, Place, ReplyData, Run, RunMode, Snapshot, Status, StatusReply, Subscribe,
};
use minke_record::{Entry, Kind, Position, SessionId};
use tokio::sync::mpsc;

use crate::around::{Surroundings, ids, introduction};
use crate::failure::{Exit, Failure};
use crate::referred::Here;
use crate::screen::Screen;
use crate::transcript::{Asides, Transcript};

/// Lines of stdin that wait to be said: a person types slower, and a pipe can wait.
const LINES: usize = 64;
/// How many typed lines are remembered: more than a queue holds.
const ECHOES: usize = 256;
/// How often a pod that died is started again before giving up.
const REJOINS: u32 = 3;

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// A live pod's name, a session's id, or a name that a session had
    pub(crate) name: String,
    /// Lines instead of the terminal UI
    #[arg(long)]
    pub(crate) plain: bool,
}

pub(crate) async fn run(attach: Attach, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let session = find(&home, &attach.name)?.session;
    if !attach.plain && crate::face::is_possible(around, screen) {
        return crate::face::run(Some(session), around, screen).await;
    }
    crate::held::make_way(&home, session).await?;
    let mut lines = read_lines()?;
    let mut room = Room {
        transcript: Transcript::new(*screen, Asides::Together),
        screen,
        session,
        here: Here::of(session, &home, around)?,
        at: None,
        work: Work::Running,
        waiting: 0,
        stdin_open: true,
        greeted: false,
        echoed: around.stdin_terminal.then(BTreeSet::new),
    };
    for _ in 0..=REJOINS {
        let socket = reach(&home, session).await?.socket;
        let mut connection = Connection::open(&socket, Subscribe::Full, room.at, introduction()).await?;
        match room.stay(&mut connection, &mut lines).await? {
            Left::ByPerson => return Ok(Exit::Done),
            Left::PodStopped => {
                screen.note("the pod has stopped; its session stays");
                return Ok(Exit::Done);
            }
            Left::PodDied => {
                screen.warn("the pod died; starting it again");
                room.at = connection.position();
            }
        }
    }
    Err(Failure::new(Exit::Failed, format!("the pod died {} times while somebody was attached", REJOINS + 1))
        .hint(format!("its last words are in {}", home_words(&home, session))))
}

fn home_words(home: &Home, session: SessionId) -> String {
    home.paths.state.join("pods").join(format!("{session}.log")).display().to_string()
}

/// Why the stay was over.
enum Left {
    ByPerson,
    PodStopped,
    PodDied,
}

/// What the pod is known to do.
enum Work {
    Running,
    /// Nothing at this moment.
    Quiet,
    /// It was asked whether that is all.
    Asked(Id),
    /// That was all, and the last of it is this entry.
    Done {
        head: u64,
    },
}

impl Work {
    fn of(status: &Status) -> Work {
        if *status == Status::Running { Work::Running } else { Work::Quiet }
    }
}

struct Room<'a> {
    transcript: Transcript,
    screen: &'a Screen,
    session: SessionId,
    /// Where what is said refers to.
    here: Here,
    at: Option<Position>,
    work: Work,
    /// What was said and has not been answered by the pod yet.
    waiting: u64,
    stdin_open: bool,
    greeted: bool,
    /// What was typed here, by its `op_id`: a terminal shows it already.
    echoed: Option<BTreeSet<String>>,
}

impl Room<'_> {
    async fn stay(
        &mut self,
        connection: &mut Connection,
        lines: &mut mpsc::Receiver<String>,
    ) -> Result<Left, Failure> {
        let mut stopping = false;
        self.work = Work::Running;
        loop {
            if self.is_over(connection).await? {
                return Ok(Left::ByPerson);
            }
            tokio::select! {
                frame = connection.next() => match frame? {
                    None => return Ok(if stopping { Left::PodStopped } else { Left::PodDied }),
                    Some(frame) if frame.event == Event::Shutdown => stopping = true,
                    Some(frame) => self.frame(&frame)?,
                },
                line = lines.recv(), if self.stdin_open => match line {
                    None => self.stdin_open = false,
                    Some(line) if line.trim().is_empty() => {}
                    Some(line) => self.say(line, connection).await?,
                },
                signal = tokio::signal::ctrl_c() => {
                    signal.map_err(|e| Failure::new(Exit::Failed, "cannot listen for signals").why(e))?;
                    self.screen.note(&format!("left; the pod goes on (s_{})", self.session));
                    return Ok(Left::ByPerson);
                }
            }
        }
    }

    /// A pipe that has said all it has to say leaves when everything is done. A pod is idle for a moment between two
    /// runs, so it is asked whether something waits in its queue.
    async fn is_over(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        if self.stdin_open || self.waiting > 0 {
            return Ok(false);
        }
        match &self.work {
            Work::Running | Work::Asked(_) => Ok(false),
            Work::Quiet => {
                self.work = Work::Asked(connection.send(Method::Status).await?);
                Ok(false)
            }
            Work::Done { head } => Ok(connection.position().is_some_and(|position| position.seq >= *head)),
        }
    }

    async fn say(&mut self, line: String, connection: &mut Connection) -> Result<(), Failure> {
        let op_id = ids().next_uuid().to_string();
        if let Some(echoed) = &mut self.echoed {
            // Those that were refused never begin; forgetting one costs a repeated line.
            if echoed.len() >= ECHOES {
                echoed.clear();
            }
            echoed.insert(op_id.clone());
        }
        self.waiting += 1;
        let input = self.here.said(&line);
        connection.send(Method::Run(Run { input, mode: RunMode::Queue, op_id: Some(op_id) })).await?;
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Failure> {
        match &frame.event {
            Event::Snapshot(snapshot) => self.snapshot(snapshot)?,
            Event::Entry(event) if self.is_echo(&event.entry) => {}
            Event::Entry(event) => self.transcript.entry(&event.entry)?,
            Event::InFlight(in_flight) => self.transcript.in_flight(in_flight)?,
            Event::Status(status) => self.work = Work::of(&status.status),
            Event::Reply(reply) => self.reply(&frame.place, reply)?,
            other => self.transcript.live(other)?,
        }
        Ok(())
    }

    fn reply(&mut self, place: &Place, reply: &ReplyData) -> Result<(), Failure> {
        if let (Work::Asked(asked), Place::One { id: Some(id) }) = (&self.work, place)
            && asked == id
        {
            let answer = reply.result::<StatusReply>().map_err(|e| {
                Failure::new(Exit::Failed, "the pod's reply to `status` cannot be read").why(e)
            })?;
            self.work = match answer {
                Ok(StatusReply { status: Status::Running, .. }) => Work::Running,
                Ok(status) if status.queue.length > 0 && !status.queue.held => Work::Running,
                Ok(status) => Work::Done { head: status.head.seq },
                Err(refusal) => return Err(refusal.clone().into()),
            };
            return Ok(());
        }
        self.waiting = self.waiting.saturating_sub(1);
        if let ReplyData::Refused(refusal) = reply {
            self.screen.warn(&refusal.message);
        }
        Ok(())
    }

    /// An input is remembered until its run begins, which is the last that is heard of it.
    fn is_echo(&mut self, entry: &Entry) -> bool {
        let Some(echoed) = &mut self.echoed else { return false };
        match &entry.kind {
            Kind::UserInput(input) => {
                let begins_later = input.queued.is_some();
                input.op_id.as_ref().is_some_and(|op_id| echoed.remove(op_id)) && !begins_later
            }
            _ => false,
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.greeted, true) {
            let greeting = &snapshot.greeting;
            self.screen.note(&format!(
                "{} · s_{} · {} · {} (Ctrl-C leaves, the pod goes on)",
                greeting.pod_name, self.session, greeting.model, snapshot.status
            ));
            for notice in &greeting.notices {
                self.screen.note(notice);
            }
            let first = snapshot.entries.first().map(|entry| &entry.kind);
            let from_the_beginning = matches!(first, Some(Kind::SegmentStart(start)) if start.segment == 0);
            if snapshot.older && !from_the_beginning {
                self.screen.note(&format!("older entries: `minke log show s_{}`", self.session));
            }
        }
        for entry in &snapshot.entries {
            self.transcript.entry(entry)?;
        }
        self.transcript.in_flight(&snapshot.in_flight)?;
        if snapshot.status == Status::Paused {
            self.screen
                .note("a run is paused: `minke resume` goes on with it, saying something begins a new one");
        }
        self.work = Work::of(&snapshot.status);
        Ok(())
    }
}

/// Lines of stdin, read by a thread of their own: a read of a terminal cannot be given up.
fn read_lines() -> Result<mpsc::Receiver<String>, Failure> {
    let (send, receive) = mpsc::channel(LINES);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().lines() {
                // A line that is no text, and a room that was left, end it.
                let Ok(line) = line else { return };
                if send.blocking_send(line).is_err() {
                    return;
                }
            }
        })
        .map_err(|e| Failure::new(Exit::Failed, "cannot read stdin").why(e))?;
    Ok(receive)
}
