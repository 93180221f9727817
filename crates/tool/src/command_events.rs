//! Events of commands while they run. They are live only; the result of the call contains the relevant
//! output.

use std::sync::Arc;

/// An event of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEvent {
    Started {
        command: String,
        cwd: String,
    },
    /// A piece of output. `start` and `end` are byte offsets in its stream.
    Output {
        stream: OutputStream,
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
pub enum OutputStream {
    Stdout,
    Stderr,
    /// Both streams in order of arrival: the command writes them to one pipe or terminal.
    Combined,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    Exited,
    Failed,
    TimedOut,
    Cancelled,
}

type CommandEventHandler = dyn Fn(&str, CommandEvent) + Send + Sync;

/// Receives the events of commands with the command id. Never blocks: the receiver drops events that it
/// cannot process.
#[derive(Clone)]
pub struct CommandEventSink(Arc<CommandEventHandler>);

impl CommandEventSink {
    pub fn new(hear: impl Fn(&str, CommandEvent) + Send + Sync + 'static) -> CommandEventSink {
        CommandEventSink(Arc::new(hear))
    }

    /// Returns a sink that discards all events.
    pub fn discard() -> CommandEventSink {
        CommandEventSink::new(|_, _| {})
    }

    pub fn emit(&self, command_id: &str, news: CommandEvent) {
        (self.0)(command_id, news);
    }
}
