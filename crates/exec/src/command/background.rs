//! One command in the background: what it said since the last look, its input, and its end.

#![expect(unsafe_code, reason = "the runtime asks whoever gives it a descriptor to watch to vouch for it")]

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::attend::End;
use super::listen::{Shared, lock};
use super::order::{CommandError, Piece, Status};
use super::table::Row;

/// The longest input of one call: as much as a pipe holds.
pub const INPUT_BYTES: usize = 64 * 1024;
/// How long a command that does not read is waited for.
const INPUT_WAIT: Duration = Duration::from_secs(3);
/// What a terminal takes for the end of input, at the start of a line.
const END_OF_INPUT: &[u8] = b"\x04";

pub(super) struct Background {
    pub(super) row: Row,
    tty: bool,
    heard: Shared,
    /// How far it was looked at.
    looked: Mutex<u64>,
    /// Async: two inputs do not mix while one of them waits for room.
    input: tokio::sync::Mutex<Option<AsyncFd<OwnedFd>>>,
    stop: watch::Sender<bool>,
    status: watch::Sender<(Status, Duration)>,
    /// Whoever attends to it.
    task: OnceLock<AbortHandle>,
    /// What it did to repositories.
    notes: OnceLock<Vec<String>>,
}

impl Background {
    /// `input` must not block.
    pub(super) fn new(
        row: Row,
        tty: bool,
        heard: Shared,
        input: Option<OwnedFd>,
    ) -> Result<Background, CommandError> {
        let input = input
            .map(watched)
            .transpose()
            .map_err(|source| CommandError::Io { what: "watch the input of a command", source })?;
        Ok(Background {
            row,
            tty,
            heard,
            looked: Mutex::new(0),
            input: tokio::sync::Mutex::new(input),
            stop: watch::Sender::new(false),
            status: watch::Sender::new((Status::Running, Duration::ZERO)),
            task: OnceLock::new(),
            notes: OnceLock::new(),
        })
    }

    pub(super) fn attended_by(&self, task: AbortHandle) {
        // Set once, by whoever started it.
        self.task.get_or_init(|| task);
    }

    /// What was found when it had ended.
    pub(super) fn learn(&self, notes: Vec<String>) {
        // Set once, by the task that attends to it.
        self.notes.get_or_init(|| notes);
    }

    /// Gives it up without waiting: its tree is killed when the task that attends to it is dropped.
    pub(super) fn give_up(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    pub(super) fn status(&self) -> Status {
        self.status.borrow().0
    }

    /// It is over, and all that it said has been heard.
    pub(super) async fn ended(&self, end: End) {
        let status = Status::Ended { exit: end.exit, timed_out: end.timed_out, killed: end.killed };
        self.status.send_replace((status, self.row.since.elapsed()));
        *self.input.lock().await = None;
    }

    /// Asks for its end.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Comes when its end was asked for.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut asked = self.stop.subscribe();
        async move {
            if asked.wait_for(|asked| *asked).await.is_err() {
                // Nobody is left who could ask.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Asks for its end and waits for it.
    pub(super) async fn kill(&self) -> Status {
        let mut status = self.status.subscribe();
        self.stop();
        // The task that attends to it always says how it ended, unless it is dropped with the pod.
        match status.wait_for(|(status, _)| *status != Status::Running).await {
            Ok(ended) => ended.0,
            Err(_) => self.status(),
        }
    }

    /// What it said since the last look: as much of the end as is shown inline.
    pub(super) fn look(&self) -> Piece {
        // First the status: of one that has ended everything has been heard.
        let (status, elapsed) = self.status_and_time();
        let heard = lock(&self.heard);
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = heard.last(*looked);
        let piece = self.piece(&heard, (status, elapsed), *looked, shown);
        *looked = piece.end;
        piece
    }

    /// What it said from an offset on. The next look is not changed by it.
    pub(super) fn look_from(&self, from: u64) -> Result<Piece, CommandError> {
        let status = self.status_and_time();
        let heard = lock(&self.heard);
        let shown = heard
            .from(from)
            .map_err(|source| CommandError::Io { what: "read the file of a command's output", source })?;
        Ok(self.piece(&heard, status, from, shown))
    }

    fn piece(
        &self,
        heard: &super::heard::Heard,
        (status, elapsed): (Status, Duration),
        asked: u64,
        (start, text): (u64, String),
    ) -> Piece {
        Piece {
            notes: self.notes.get().cloned().unwrap_or_default(),
            command: self.row.command.clone(),
            status,
            elapsed,
            start,
            end: start + text.len() as u64,
            skipped: start.saturating_sub(asked),
            text,
            bytes: heard.bytes(),
            file: heard.file(),
            unkept: heard.unkept(),
            set_id_refused: heard.set_id_refused(),
        }
    }

    fn status_and_time(&self) -> (Status, Duration) {
        let (status, took) = *self.status.borrow();
        (status, if status == Status::Running { self.row.since.elapsed() } else { took })
    }

    /// Comes when there is something that was not looked at, or it has ended.
    pub(super) async fn news_or_end(&self) {
        let mut said = lock(&self.heard).progress();
        let mut status = self.status.subscribe();
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        tokio::select! {
            _ = said.wait_for(|bytes| *bytes > looked) => {}
            _ = status.wait_for(|(status, _)| *status != Status::Running) => {}
        }
    }

    pub(super) async fn input(&self, bytes: &[u8]) -> Result<(), CommandError> {
        let id = || self.row.id.clone();
        let given = bytes.len();
        if given > INPUT_BYTES {
            return Err(CommandError::BadOrder(format!(
                "the input has {given} bytes and may have {INPUT_BYTES}: send it in parts"
            )));
        }
        let open = self.input.lock().await;
        let Some(pipe) = open.as_ref() else {
            let ended = self.status() != Status::Running;
            return Err(if ended {
                CommandError::Ended { id: id() }
            } else {
                CommandError::Closed { id: id() }
            });
        };
        let mut taken = 0;
        let write = async {
            while taken < given {
                let rest = bytes.get(taken..).unwrap_or_default();
                taken += write_some(pipe, rest).await?;
            }
            io::Result::Ok(())
        };
        match tokio::time::timeout(INPUT_WAIT, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if gone(&error) => Err(CommandError::Closed { id: id() }),
            Ok(Err(source)) => Err(CommandError::Io { what: "write to a command's input", source }),
            Err(_) => Err(CommandError::Full { id: id(), taken, given }),
        }
    }

    pub(super) async fn end_input(&self) -> Result<(), CommandError> {
        if self.tty {
            return self.input(END_OF_INPUT).await;
        }
        match self.input.lock().await.take() {
            Some(_) => Ok(()),
            None if self.status() == Status::Running => Err(CommandError::Closed { id: self.row.id.clone() }),
            None => Err(CommandError::Ended { id: self.row.id.clone() }),
        }
    }
}

fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and the same descriptor until it is dropped, which is with the `AsyncFd`.
    let watched = unsafe { AsyncFd::register(fd) };
    watched.map_err(|error| error.into_parts().1)
}

async fn write_some(pipe: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = pipe.writable().await?;
        let written = ready.try_io(|pipe| rustix::io::write(pipe, bytes).map_err(io::Error::from));
        match written {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(written) => return written,
            // It was not ready after all.
            Err(_) => {}
        }
    }
}

/// Whether nobody is left to read.
fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::PIPE | Errno::IO))
}
