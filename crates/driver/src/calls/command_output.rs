//! Command output: forwarded to clients as it arrives; the pod keeps the tail of each command for clients
//! that join later.
//!
//! Invariant: the stored output is bounded (`what_is_kept_of_a_command_is_bounded`).

use std::collections::BTreeMap;

use minke_protocol::{CommandEvent, CommandOutput, CommandStatus, CommandUpdate, OpenCommand, OutputStream};
use minke_record::CallId;
use minke_tool::CommandEnd;

/// The stored tail of a command's output.
const OUTPUT_TAIL_BYTES: usize = 16 * 1024;

/// Running commands by id.
#[derive(Debug, Default)]
pub(crate) struct OpenCommands(BTreeMap<String, OpenCommand>);

impl OpenCommands {
    /// Applies one command event and converts it for the wire.
    pub(crate) fn apply_event(
        &mut self,
        call_id: CallId,
        command_id: String,
        events: minke_tool::CommandEvent,
    ) -> CommandEvent {
        let news = match events {
            minke_tool::CommandEvent::Started { command, cwd } => {
                let open = OpenCommand {
                    command_id: command_id.clone(),
                    call_id: call_id.clone(),
                    command: command.clone().into(),
                    cwd: cwd.clone(),
                    output: Vec::new(),
                };
                self.0.insert(command_id.clone(), open);
                CommandUpdate::Started { command: command.into(), cwd }
            }
            minke_tool::CommandEvent::Output { stream, start, end, text } => {
                let stream = match stream {
                    minke_tool::OutputStream::Stdout => OutputStream::Stdout,
                    minke_tool::OutputStream::Stderr => OutputStream::Stderr,
                    minke_tool::OutputStream::Combined => OutputStream::Both,
                };
                let piece = CommandOutput { stream, start, end, text };
                if let Some(open) = self.0.get_mut(&command_id) {
                    append_output(&mut open.output, piece.clone());
                }
                CommandUpdate::Output(piece)
            }
            minke_tool::CommandEvent::Ended { end, exit_code } => {
                self.0.remove(&command_id);
                let status = match end {
                    CommandEnd::Exited => CommandStatus::Completed,
                    CommandEnd::Failed => CommandStatus::Failed,
                    CommandEnd::TimedOut => CommandStatus::TimedOut,
                    CommandEnd::Cancelled => CommandStatus::Cancelled,
                };
                CommandUpdate::Ended { status, exit_code }
            }
        };
        CommandEvent { command_id, call_id, news: Some(news) }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn to_list(&self) -> Vec<OpenCommand> {
        self.0.values().cloned().collect()
    }
}

/// Appends output; drops the oldest output beyond the limit.
fn append_output(output: &mut Vec<CommandOutput>, piece: CommandOutput) {
    output.push(piece);
    let mut bytes: usize = output.iter().map(|piece| piece.text.len()).sum();
    while bytes > OUTPUT_TAIL_BYTES && output.len() > 1 {
        bytes -= output.remove(0).text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_command_is_bounded() {
        let mut open = OpenCommands::default();
        let mut hear = |events| open.apply_event("c".into(), "x".to_owned(), events);
        hear(minke_tool::CommandEvent::Started { command: "yes".into(), cwd: "/".into() });
        for at in 0..1_000_u64 {
            let (start, end, text) = (at * 1_000, (at + 1) * 1_000, "y".repeat(1_000));
            hear(minke_tool::CommandEvent::Output {
                stream: minke_tool::OutputStream::Combined,
                start,
                end,
                text,
            });
        }
        let kept = open.to_list().remove(0).output;
        assert!(kept.iter().map(|piece| piece.text.len()).sum::<usize>() <= OUTPUT_TAIL_BYTES);
        assert_eq!(kept.last().map(|piece| piece.end), Some(1_000_000));
        let events = minke_tool::CommandEvent::Ended { end: CommandEnd::Exited, exit_code: Some(0) };
        open.apply_event("c".into(), "x".to_owned(), events);
        assert!(open.to_list().is_empty());
    }
}
