//! Whoever listens to a command: one blocking thread of the runtime's pool that reads its pipe or terminal.
//!
//! A thread and not a task: what a command says without end is covered, counted and written beside the pod's loop,
//! which it never holds up. The thread ends with the output, or at once when its `Ear` is dropped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::task::JoinHandle;

use super::ends::pipe;
use super::heard::Heard;
use super::order::CommandError;

/// As much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// How long the end of the output is waited for after the tree is dead. Only a process outside the tree that was handed
/// the pipe can keep it open.
const DRAIN: Duration = Duration::from_millis(500);

pub(super) type Shared = Arc<Mutex<Heard>>;

/// What was heard so far. A veil that panicked leaves counts and text that are still whole.
pub(super) fn lock(heard: &Shared) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Ear {
    thread: JoinHandle<()>,
    /// The thread ends when this is closed.
    alive: OwnedFd,
}

impl Ear {
    /// Listens on `source`, which must not block, until its end.
    pub(super) fn open(source: OwnedFd, heard: &Shared) -> Result<Ear, CommandError> {
        let (watched, alive) = pipe()
            .map_err(|source| CommandError::Io { what: "make a pipe to listen to a command", source })?;
        let heard = Arc::clone(heard);
        let thread = tokio::task::spawn_blocking(move || listen(&source, &watched, &heard));
        Ok(Ear { thread, alive })
    }

    /// Hears the rest of a command whose tree is dead.
    pub(super) async fn drain(self) -> Result<(), CommandError> {
        let Ear { mut thread, alive } = self;
        let ended = match tokio::time::timeout(DRAIN, &mut thread).await {
            Ok(ended) => ended,
            Err(_) => {
                drop(alive);
                thread.await
            }
        };
        ended.map_err(|e| CommandError::Defect(e.to_string()))
    }
}

fn listen(source: &OwnedFd, watched: &OwnedFd, heard: &Shared) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let wait = lock(heard).due(Instant::now());
        let mut fds = [
            PollFd::from_borrowed_fd(watched.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
        ];
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match rustix::event::poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return deaf(heard, error),
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        if !fds[1].revents().is_empty() {
            match rustix::io::read(source, &mut buffer[..]) {
                Ok(0) => break,
                Ok(count) => lock(heard).take(buffer.get(..count).unwrap_or_default()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // A terminal whose last user has gone says so.
                Err(Errno::IO) => break,
                Err(error) => return deaf(heard, error),
            }
        }
        lock(heard).tell_if_due(Instant::now());
    }
    lock(heard).end();
}

fn deaf(heard: &Shared, error: Errno) {
    let mut heard = lock(heard);
    heard.broke(format!("reading the command's output failed: {error}"));
    heard.end();
}
