//! News of commands: what a call's processes say while they run. Live only; the result holds what counts.

use std::sync::Arc;

/// What happened to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandNews {
    Started {
        command: String,
        cwd: String,
    },
    /// A piece of output; `start` and `end` count the bytes of its stream.
    Output {
        stream: Stream,
        start: u64,
        end: u64,
        text: String,
    },
    Ended {
        end: CommandEnd,
        exit_code: Option<i32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
    /// Both in the order in which they came: a command's two streams are one pipe, or a terminal.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    Completed,
    Failed,
    TimedOut,
    Cancelled,
}

type Hear = dyn Fn(&str, CommandNews) + Send + Sync;

/// Whom to tell, by the command's id. Never waits: news that nobody can take are dropped by whoever hears them.
#[derive(Clone)]
pub struct News(Arc<Hear>);

impl News {
    pub fn new(hear: impl Fn(&str, CommandNews) + Send + Sync + 'static) -> News {
        News(Arc::new(hear))
    }

    /// For callers that want none.
    pub fn nobody() -> News {
        News::new(|_, _| {})
    }

    pub fn tell(&self, command_id: &str, news: CommandNews) {
        (self.0)(command_id, news);
    }
}
