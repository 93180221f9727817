//! From live events to frames: the twin of the fold over entries. Deltas, and what is open for whoever joins.
//!
//! Elsewhere: whatever stands in the log (`frames::fold`); an event that was made from an entry makes nothing here.

use minke_protocol::{Block, CommandEvent, CommandNews, Event, InFlight, McpServer};
use minke_record::{Millis, RunId};

use crate::frames::{Channel, Frame, Frames, McpStatus, McpUpdate, Place, ThreadFrame, Told};

impl Frames {
    /// What a live event tells. It came within a run, or not, at a time that the caller knows.
    pub fn live(&mut self, event: &Event, run: Option<RunId>, now: Millis) -> Vec<Frame> {
        let told: Vec<ThreadFrame> = match event {
            Event::TextDelta(delta) => self.delta(run, Channel::Text, &delta.text).into_iter().collect(),
            Event::ThinkingDelta(delta) => {
                self.delta(run, Channel::Reasoning, &delta.text).into_iter().collect()
            }
            // The request is made anew: what was shown of its blocks never happened.
            Event::LlmRetry(_) => self.taken_back(run),
            Event::Command(command) => self.command(command).into_iter().collect(),
            Event::McpServer(server) => vec![mcp(server)],
            _ => Vec::new(),
        };
        told.into_iter().map(|told| self.after(told, now)).collect()
    }

    /// Each open block once, as it stands.
    pub fn in_flight(&mut self, open: &InFlight, now: Millis) -> Vec<Frame> {
        let run = self.run;
        let mut told = Vec::new();
        for block in &open.blocks {
            let (channel, text) = match block {
                Block::Text { text } => (Channel::Text, text),
                Block::Thinking { text } => (Channel::Reasoning, text),
                // Nothing is told of a call before it is whole.
                Block::ToolCall { .. } | Block::Unknown => continue,
            };
            told.extend(self.delta(run, channel, text).map(as_whole));
        }
        for command in &open.commands {
            let delta: String = command.output.iter().map(|piece| piece.text.as_str()).collect();
            if !delta.is_empty() {
                told.push(ThreadFrame::ExecCommandOutputDelta {
                    call_id: command.call_id.clone(),
                    command: command.command.show().into_owned(),
                    delta,
                    whole: true,
                });
            }
        }
        told.into_iter().map(|told| self.after(told, now)).collect()
    }

    fn delta(&mut self, run: Option<RunId>, channel: Channel, text: &str) -> Option<ThreadFrame> {
        let response_id = run?.to_string();
        if !self.shown.contains(&channel) {
            self.shown.push(channel);
        }
        Some(ThreadFrame::ResponseDelta {
            response_id,
            delta: text.to_owned(),
            channel,
            whole: false,
            blob: None,
        })
    }

    fn taken_back(&mut self, run: Option<RunId>) -> Vec<ThreadFrame> {
        let shown = std::mem::take(&mut self.shown);
        let nothing = shown.into_iter().filter_map(|channel| self.delta(run, channel, "").map(as_whole));
        let told = nothing.collect();
        self.shown.clear();
        told
    }

    fn command(&mut self, command: &CommandEvent) -> Option<ThreadFrame> {
        let call_id = command.call_id.clone();
        match command.news.as_ref()? {
            CommandNews::Output(piece) => {
                let line = self.command_of(&call_id).unwrap_or_default().to_owned();
                let delta = piece.text.clone();
                Some(ThreadFrame::ExecCommandOutputDelta { call_id, command: line, delta, whole: false })
            }
            // As long as its call is open the call's result says it, for everybody.
            CommandNews::Ended { exit_code, .. } => {
                let command = self.behind.remove(&call_id)?;
                Some(ThreadFrame::ExecCommandEnd { call_id, command, exit_code: *exit_code })
            }
            CommandNews::Started { .. } => None,
        }
    }

    fn after(&self, told: ThreadFrame, ts: Millis) -> Frame {
        let after = self.head().map_or(0, |head| head.seq);
        Frame { place: Place::After(after), thread: self.thread, ts, told: Told::Thread(told) }
    }
}

fn as_whole(frame: ThreadFrame) -> ThreadFrame {
    match frame {
        ThreadFrame::ResponseDelta { response_id, delta, channel, blob, .. } => {
            ThreadFrame::ResponseDelta { response_id, delta, channel, whole: true, blob }
        }
        other => other,
    }
}

fn mcp(server: &McpServer) -> ThreadFrame {
    use minke_protocol::McpStatus as Word;
    let error = || server.error.clone().unwrap_or_default();
    let status = match &server.status {
        Word::Starting => McpStatus::Starting,
        Word::Ready => McpStatus::Ready,
        Word::Cancelled => McpStatus::Cancelled,
        Word::Failed => McpStatus::Failed { error: error() },
        Word::Other(word) => McpStatus::Failed { error: format!("{word} {}", error()) },
    };
    ThreadFrame::McpStartupUpdate { update: McpUpdate { server_name: server.server.clone(), status } }
}
