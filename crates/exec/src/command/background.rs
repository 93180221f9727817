//! A background command: its unread output, its input, and its exit.

#![expect(
    unsafe_code,
    reason = "`AsyncFd::register` requires the caller to guarantee that the descriptor stays open"
)]

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::output::OutputText;
use super::reader::{SharedOutput, lock_output};
use super::supervise::CommandExit;
use super::table::CommandInfo;
use super::types::{CommandError, CommandStatus, OutputChunk};

/// The longest input of one call: the capacity of a pipe.
pub const MAX_INPUT_BYTES: usize = 64 * 1024;
/// How long to wait for a command that does not read its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(3);
/// The end-of-file character of a terminal; it takes effect at the start of a line.
const EOF_CHARACTER: &[u8] = b"\x04";

/// The status of a command and its running time.
#[derive(Debug, Clone, Copy)]
struct CommandTiming {
    status: CommandStatus,
    elapsed: Duration,
}

pub(super) struct BackgroundCommand {
    pub(super) info: CommandInfo,
    tty: bool,
    output: SharedOutput,
    /// Offset up to which the output has been read.
    read_offset: Mutex<u64>,
    /// An async lock, so that two inputs do not mix while one waits for space in the pipe.
    input: tokio::sync::Mutex<Option<AsyncFd<OwnedFd>>>,
    stop: watch::Sender<bool>,
    status: watch::Sender<(CommandStatus, Duration)>,
    /// The task that supervises the command.
    task: OnceLock<AbortHandle>,
    /// Changes that the command made to repositories.
    notes: OnceLock<Vec<String>>,
}

impl BackgroundCommand {
    /// `input` must be non-blocking.
    pub(super) fn new(
        info: CommandInfo,
        tty: bool,
        output: SharedOutput,
        input: Option<OwnedFd>,
    ) -> Result<BackgroundCommand, CommandError> {
        let input = input
            .map(register_fd)
            .transpose()
            .map_err(|source| CommandError::Io { what: "register the input of a command", source })?;
        Ok(BackgroundCommand {
            info,
            tty,
            output,
            read_offset: Mutex::new(0),
            input: tokio::sync::Mutex::new(input),
            stop: watch::Sender::new(false),
            status: watch::Sender::new((CommandStatus::Running, Duration::ZERO)),
            task: OnceLock::new(),
            notes: OnceLock::new(),
        })
    }

    pub(super) fn set_task(&self, task: AbortHandle) {
        // Set once, by the caller that started it.
        self.task.get_or_init(|| task);
    }

    /// Sets the notes about repositories, after the command has ended.
    pub(super) fn set_notes(&self, notes: Vec<String>) {
        // Set once, by the supervising task.
        self.notes.get_or_init(|| notes);
    }

    /// Aborts the supervising task without waiting. Dropping that task kills the process tree.
    pub(super) fn abort_task(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    pub(super) fn status(&self) -> CommandStatus {
        self.status.borrow().0
    }

    /// Records the exit, after all output has been read.
    pub(super) async fn set_ended(&self, end: CommandExit) {
        let status = CommandStatus::Ended { exit: end.exit, timed_out: end.timed_out, killed: end.killed };
        self.status.send_replace((status, self.info.started_at.elapsed()));
        *self.input.lock().await = None;
    }

    /// Requests the end of the command.
    pub(super) fn request_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Completes when the end of the command is requested.
    pub(super) fn stop_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut asked = self.stop.subscribe();
        async move {
            if asked.wait_for(|asked| *asked).await.is_err() {
                // The sender is gone, so no request can come.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Requests the end of the command and waits for its exit.
    pub(super) async fn kill_and_wait(&self) -> CommandStatus {
        let mut status = self.status.subscribe();
        self.request_stop();
        // The supervising task always records an exit, unless it is dropped with the pod.
        match status.wait_for(|(status, _)| *status != CommandStatus::Running).await {
            Ok(ended) => ended.0,
            Err(_) => self.status(),
        }
    }

    /// Returns the end of the output since the last call, limited to the inline size.
    pub(super) fn read_new_output(&self) -> OutputChunk {
        // Read the status first: once a command has ended, its output is complete.
        let timing = self.status_and_elapsed();
        let output = lock_output(&self.output);
        let mut read_offset = self.read_offset.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = output.tail_since(*read_offset);
        let piece = self.output_chunk(&output, timing, *read_offset, shown);
        *read_offset = piece.end;
        piece
    }

    /// Returns output from an offset on. Does not change the start of the next `read_new_output`.
    pub(super) fn read_output_from(&self, from: u64) -> Result<OutputChunk, CommandError> {
        let timing = self.status_and_elapsed();
        let output = lock_output(&self.output);
        let shown = output
            .read_from(from)
            .map_err(|source| CommandError::Io { what: "read the output file of a command", source })?;
        Ok(self.output_chunk(&output, timing, from, shown))
    }

    fn output_chunk(
        &self,
        heard: &super::output::OutputCollector,
        timing: CommandTiming,
        asked: u64,
        shown: OutputText,
    ) -> OutputChunk {
        let OutputText { start, text } = shown;
        OutputChunk {
            notes: self.notes.get().cloned().unwrap_or_default(),
            command: self.info.command.clone(),
            status: timing.status,
            elapsed: timing.elapsed,
            start,
            end: start + text.len() as u64,
            skipped: start.saturating_sub(asked),
            text,
            bytes: heard.byte_total(),
            file: heard.spill_path(),
            spill_error: heard.spill_error(),
            set_id_refused: heard.set_id_refused(),
        }
    }

    fn status_and_elapsed(&self) -> CommandTiming {
        let (status, took) = *self.status.borrow();
        let elapsed = if status == CommandStatus::Running { self.info.started_at.elapsed() } else { took };
        CommandTiming { status, elapsed }
    }

    /// Completes when there is unread output or the command has ended.
    pub(super) async fn wait_for_output(&self) {
        let mut said = lock_output(&self.output).subscribe_progress();
        let mut status = self.status.subscribe();
        let read_offset = *self.read_offset.lock().unwrap_or_else(PoisonError::into_inner);
        tokio::select! {
            _ = said.wait_for(|bytes| *bytes > read_offset) => {}
            _ = status.wait_for(|(status, _)| *status != CommandStatus::Running) => {}
        }
    }

    pub(super) async fn write_input(&self, bytes: &[u8]) -> Result<(), CommandError> {
        let id = || self.info.id.clone();
        let given = bytes.len();
        if given > MAX_INPUT_BYTES {
            return Err(CommandError::InvalidCommand(format!(
                "the input has {given} bytes, the limit is {MAX_INPUT_BYTES}: send it in parts"
            )));
        }
        let open = self.input.lock().await;
        let Some(pipe) = open.as_ref() else {
            let ended = self.status() != CommandStatus::Running;
            return Err(if ended {
                CommandError::Ended { id: id() }
            } else {
                CommandError::InputClosed { id: id() }
            });
        };
        let mut taken = 0;
        let write = async {
            while taken < given {
                let rest = bytes.get(taken..).unwrap_or_default();
                taken += write_available(pipe, rest).await?;
            }
            io::Result::Ok(())
        };
        match tokio::time::timeout(INPUT_TIMEOUT, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_disconnected(&error) => Err(CommandError::InputClosed { id: id() }),
            Ok(Err(source)) => Err(CommandError::Io { what: "write to a command's input", source }),
            Err(_) => Err(CommandError::InputFull { id: id(), taken, given }),
        }
    }

    pub(super) async fn close_input(&self) -> Result<(), CommandError> {
        if self.tty {
            return self.write_input(EOF_CHARACTER).await;
        }
        match self.input.lock().await.take() {
            Some(_) => Ok(()),
            None if self.status() == CommandStatus::Running => {
                Err(CommandError::InputClosed { id: self.info.id.clone() })
            }
            None => Err(CommandError::Ended { id: self.info.id.clone() }),
        }
    }
}

fn register_fd(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open and unchanged until it is dropped, and the `AsyncFd` drops it.
    let watched = unsafe { AsyncFd::register(fd) };
    watched.map_err(|error| error.into_parts().1)
}

async fn write_available(pipe: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = pipe.writable().await?;
        let written = ready.try_io(|pipe| rustix::io::write(pipe, bytes).map_err(io::Error::from));
        match written {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(written) => return written,
            // The readiness was spurious.
            Err(_) => {}
        }
    }
}

/// Whether the reading end of the pipe is closed.
fn is_disconnected(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::PIPE | Errno::IO))
}
