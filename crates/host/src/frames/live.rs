//! Derives frames from live events: deltas, and the open blocks for a new subscriber.
//!
//! Elsewhere: frames of logged entries (`frames::fold`); an event that repeats an entry has no frame here.

use minke_protocol::{CommandEvent, CommandUpdate, Event, InFlight, McpServer, StreamingBlock};
use minke_record::{Millis, RunId};

use crate::frames::{
    Frame, FrameContent, FrameFold, FramePosition, McpServerStatus, McpServerUpdate, OutputChannel,
    ThreadFrame,
};

impl FrameFold {
    /// Returns the frames of a live event of this run, received at `now`.
    pub fn live_event_frames(&mut self, event: &Event, run: Option<RunId>, now: Millis) -> Vec<Frame> {
        let contents: Vec<ThreadFrame> = match event {
            Event::TextDelta(delta) => {
                self.delta_frame(run, OutputChannel::Text, &delta.text).into_iter().collect()
            }
            Event::ThinkingDelta(delta) => {
                self.delta_frame(run, OutputChannel::Reasoning, &delta.text).into_iter().collect()
            }
            // The request is retried: the output of its blocks is discarded.
            Event::LlmRetry(_) => self.discarded_frames(run),
            Event::Command(command) => self.command_frame(command).into_iter().collect(),
            Event::McpServer(server) => vec![mcp_frame(server)],
            _ => Vec::new(),
        };
        contents.into_iter().map(|told| self.frame_after_head(told, now)).collect()
    }

    /// Returns one frame for each open block with its text so far.
    pub fn in_flight_frames(&mut self, open: &InFlight, now: Millis) -> Vec<Frame> {
        let run = self.open_run;
        let mut contents = Vec::new();
        for block in &open.blocks {
            let (channel, text) = match block {
                StreamingBlock::Text { text } => (OutputChannel::Text, text),
                StreamingBlock::Thinking { text } => (OutputChannel::Reasoning, text),
                // A call is shown only once it is complete.
                StreamingBlock::ToolCall { .. } | StreamingBlock::Unknown => continue,
            };
            contents.extend(self.delta_frame(run, channel, text).map(as_complete));
        }
        for command in &open.commands {
            let delta: String = command.output.iter().map(|piece| piece.text.as_str()).collect();
            if !delta.is_empty() {
                contents.push(ThreadFrame::ExecCommandOutputDelta {
                    call_id: command.call_id.clone(),
                    command: command.command.display_text().into_owned(),
                    delta,
                    whole: true,
                });
            }
        }
        contents.into_iter().map(|told| self.frame_after_head(told, now)).collect()
    }

    fn delta_frame(&mut self, run: Option<RunId>, channel: OutputChannel, text: &str) -> Option<ThreadFrame> {
        let response_id = run?.to_string();
        if !self.live_channels.contains(&channel) {
            self.live_channels.push(channel);
        }
        Some(ThreadFrame::ResponseDelta {
            response_id,
            delta: text.to_owned(),
            channel,
            whole: false,
            blob: None,
        })
    }

    fn discarded_frames(&mut self, run: Option<RunId>) -> Vec<ThreadFrame> {
        let channels = std::mem::take(&mut self.live_channels);
        let nothing =
            channels.into_iter().filter_map(|channel| self.delta_frame(run, channel, "").map(as_complete));
        let contents = nothing.collect();
        self.live_channels.clear();
        contents
    }

    fn command_frame(&mut self, command: &CommandEvent) -> Option<ThreadFrame> {
        let call_id = command.call_id.clone();
        match command.news.as_ref()? {
            CommandUpdate::Output(piece) => {
                let line = self.command_of_call(&call_id).unwrap_or_default().to_owned();
                let delta = piece.text.clone();
                Some(ThreadFrame::ExecCommandOutputDelta { call_id, command: line, delta, whole: false })
            }
            // While its call is open, the call's result reports the end.
            CommandUpdate::Ended { exit_code, .. } => {
                let command = self.background_commands.remove(&call_id)?;
                Some(ThreadFrame::ExecCommandEnd { call_id, command, exit_code: *exit_code })
            }
            CommandUpdate::Started { .. } => None,
        }
    }

    fn frame_after_head(&self, contents: ThreadFrame, ts: Millis) -> Frame {
        let after = self.head().map_or(0, |head| head.seq);
        Frame {
            position: FramePosition::AfterEntry(after),
            thread: self.thread,
            ts,
            content: FrameContent::Thread(contents),
        }
    }
}

fn as_complete(frame: ThreadFrame) -> ThreadFrame {
    match frame {
        ThreadFrame::ResponseDelta { response_id, delta, channel, blob, .. } => {
            ThreadFrame::ResponseDelta { response_id, delta, channel, whole: true, blob }
        }
        other => other,
    }
}

fn mcp_frame(server: &McpServer) -> ThreadFrame {
    use minke_protocol::McpStatus as Word;
    let error = || server.error.clone().unwrap_or_default();
    let status = match &server.status {
        Word::Starting => McpServerStatus::Starting,
        Word::Ready => McpServerStatus::Ready,
        Word::Cancelled => McpServerStatus::Cancelled,
        Word::Failed => McpServerStatus::Failed { error: error() },
        Word::Other(word) => McpServerStatus::Failed { error: format!("{word} {}", error()) },
    };
    ThreadFrame::McpStartupUpdate { update: McpServerUpdate { server_name: server.server.clone(), status } }
}
