//! Reads a command's pipe or terminal on one blocking thread of the runtime's pool.
//!
//! A thread, not a task: endless output is redacted, counted and written without blocking the pod's event loop. The
//! thread ends with the output, or at once when its `ReaderThread` is dropped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::task::JoinHandle;

use super::output::OutputCollector;
use super::stdio::create_pipe;
use super::types::CommandError;

/// The capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;
/// How long to wait for the end of the output after the process tree was killed. Only a process outside the tree that
/// received the pipe can keep it open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) type SharedOutput = Arc<Mutex<OutputCollector>>;

/// Locks the collected output. If a filter panicked, counts and text are still consistent.
pub(super) fn lock_output(output: &SharedOutput) -> MutexGuard<'_, OutputCollector> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct ReaderThread {
    thread: JoinHandle<()>,
    /// Closing this pipe ends the thread.
    alive: OwnedFd,
}

impl ReaderThread {
    /// Reads from `source`, which must be non-blocking, until its end.
    pub(super) fn spawn_reader(source: OwnedFd, output: &SharedOutput) -> Result<ReaderThread, CommandError> {
        let (watched, alive) = create_pipe().map_err(|source| CommandError::Io {
            what: "create a pipe for the reader of a command",
            source,
        })?;
        let heard = Arc::clone(output);
        let thread = tokio::task::spawn_blocking(move || read_until_closed(&source, &watched, &heard));
        Ok(ReaderThread { thread, alive })
    }

    /// Reads the remaining output of a command whose process tree was killed.
    pub(super) async fn drain_output(self) -> Result<(), CommandError> {
        let ReaderThread { mut thread, alive } = self;
        let ended = match tokio::time::timeout(DRAIN_TIMEOUT, &mut thread).await {
            Ok(ended) => ended,
            Err(_) => {
                drop(alive);
                thread.await
            }
        };
        ended.map_err(|e| CommandError::Internal(e.to_string()))
    }
}

fn read_until_closed(source: &OwnedFd, watched: &OwnedFd, output: &SharedOutput) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let wait = lock_output(output).publish_delay(Instant::now());
        let mut fds = [
            PollFd::from_borrowed_fd(watched.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
        ];
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match rustix::event::poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return report_read_error(output, error),
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        if !fds[1].revents().is_empty() {
            match rustix::io::read(source, &mut buffer[..]) {
                Ok(0) => break,
                Ok(count) => lock_output(output).push_bytes(buffer.get(..count).unwrap_or_default()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // A terminal returns EIO after its last user has closed it.
                Err(Errno::IO) => break,
                Err(error) => return report_read_error(output, error),
            }
        }
        lock_output(output).publish_if_due(Instant::now());
    }
    lock_output(output).finish();
}

fn report_read_error(heard: &SharedOutput, error: Errno) {
    let mut heard = lock_output(heard);
    heard.record_error(format!("could not read the command's output: {error}"));
    heard.finish();
}
