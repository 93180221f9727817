//! News of commands: told to clients as they come, and the last of each kept for those who join in the middle.
//!
//! Invariant: what is kept is bounded (`what_is_kept_of_a_command_is_bounded`).

use std::collections::BTreeMap;

use minke_protocol::{CommandEvent, CommandNews, CommandOutput, CommandStatus, OpenCommand, OutputStream};
use minke_record::CallId;
use minke_tool::{CommandEnd, Stream};

/// What is kept of a command's output.
const TAIL_BYTES: usize = 16 * 1024;

/// Commands that run, by their ids.
#[derive(Debug, Default)]
pub(crate) struct OpenCommands(BTreeMap<String, OpenCommand>);

impl OpenCommands {
    /// Takes one piece of news and gives it in the words of the wire.
    pub(crate) fn hear(
        &mut self,
        call_id: CallId,
        command_id: String,
        news: minke_tool::CommandNews,
    ) -> CommandEvent {
        let news = match news {
            minke_tool::CommandNews::Started { command, cwd } => {
                let open = OpenCommand {
                    command_id: command_id.clone(),
                    call_id: call_id.clone(),
                    command: command.clone().into(),
                    cwd: cwd.clone(),
                    output: Vec::new(),
                };
                self.0.insert(command_id.clone(), open);
                CommandNews::Started { command: command.into(), cwd }
            }
            minke_tool::CommandNews::Output { stream, start, end, text } => {
                let stream = match stream {
                    Stream::Stdout => OutputStream::Stdout,
                    Stream::Stderr => OutputStream::Stderr,
                    Stream::Both => OutputStream::Both,
                };
                let piece = CommandOutput { stream, start, end, text };
                if let Some(open) = self.0.get_mut(&command_id) {
                    keep(&mut open.output, piece.clone());
                }
                CommandNews::Output(piece)
            }
            minke_tool::CommandNews::Ended { end, exit_code } => {
                self.0.remove(&command_id);
                let status = match end {
                    CommandEnd::Completed => CommandStatus::Completed,
                    CommandEnd::Failed => CommandStatus::Failed,
                    CommandEnd::TimedOut => CommandStatus::TimedOut,
                    CommandEnd::Cancelled => CommandStatus::Cancelled,
                };
                CommandNews::Ended { status, exit_code }
            }
        };
        CommandEvent { command_id, call_id, news: Some(news) }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn all(&self) -> Vec<OpenCommand> {
        self.0.values().cloned().collect()
    }
}

/// Appends a piece; the oldest go when there is too much.
fn keep(output: &mut Vec<CommandOutput>, piece: CommandOutput) {
    output.push(piece);
    let mut bytes: usize = output.iter().map(|piece| piece.text.len()).sum();
    while bytes > TAIL_BYTES && output.len() > 1 {
        bytes -= output.remove(0).text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_command_is_bounded() {
        let mut open = OpenCommands::default();
        let mut hear = |news| open.hear("c".into(), "x".to_owned(), news);
        hear(minke_tool::CommandNews::Started { command: "yes".into(), cwd: "/".into() });
        for at in 0..1_000_u64 {
            let (start, end, text) = (at * 1_000, (at + 1) * 1_000, "y".repeat(1_000));
            hear(minke_tool::CommandNews::Output { stream: Stream::Both, start, end, text });
        }
        let kept = open.all().remove(0).output;
        assert!(kept.iter().map(|piece| piece.text.len()).sum::<usize>() <= TAIL_BYTES);
        assert_eq!(kept.last().map(|piece| piece.end), Some(1_000_000));
        let news = minke_tool::CommandNews::Ended { end: CommandEnd::Completed, exit_code: Some(0) };
        open.hear("c".into(), "x".to_owned(), news);
        assert!(open.all().is_empty());
    }
}
