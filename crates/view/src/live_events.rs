//! Live events that are not in the log yet.
//!
//! A piece of a reply opens or extends a live block, which its entry replaces later (`apply`). Output of
//! commands is joined by byte offset: repeated pieces are shown once and a gap is reported.

use minke_protocol::{
    CommandEvent, CommandOutput, CommandUpdate, Event, InFlight, LlmRetry, McpServer, StatusEvent,
};
use minke_record::{CallId, Millis};

use crate::block::{Block, BlockBody, BlockId, CallCard, CallState, StreamedText};
use crate::conversation::Conversation;
use crate::format;
use crate::status::{McpServerRow, RetryStatus};

/// Limit for a streaming block. The log stores no more of a text.
const MAX_LIVE_BYTES: usize = 512 * 1024;
/// Limit for the arguments that are searched for the subject of a call.
const SUBJECT_SCAN_BYTES: usize = 4 * 1024;
/// Limit for open blocks of a reply. No model opens that many, but wire data is not trusted.
const MAX_LIVE_BLOCKS: usize = 1_024;
/// Limit for output streams per command; there are three.
const MAX_STREAMS: usize = 8;
/// Limit for listed servers.
const MAX_SERVERS: usize = 256;

impl Conversation {
    /// Applies a live event. Events that are made from an entry are ignored; the entry itself is applied.
    pub fn apply_live(&mut self, event: &Event, now: Millis) {
        match event {
            Event::Entry(event) => self.apply_entry(&event.entry),
            Event::InFlight(in_flight) => self.apply_in_flight(in_flight, now),
            Event::Status(status) => self.apply_status(status),
            Event::LlmRetry(retry) => self.apply_retry(retry, now),
            Event::TextDelta(delta) => self.append_live(StreamKind::Reply, &delta.text, now),
            Event::ThinkingStart if self.is_reply_visible() => {
                self.open_block(
                    BlockBody::Thinking(StreamedText { open: true, ..StreamedText::default() }),
                    now,
                );
            }
            Event::ThinkingDelta(delta) => self.append_live(StreamKind::Thinking, &delta.text, now),
            Event::ToolCallStart(start) => {
                self.begin_live_call(&start.id, &start.name, now);
            }
            Event::ToolCallArgsDelta(delta) => self.append_call_arguments(&delta.id, &delta.json, now),
            Event::Command(command) => self.apply_command(command),
            Event::CompactStart(_) => self.state.status.compacting = true,
            Event::CompactFailed(failed) => {
                self.state.status.compacting = false;
                self.add_warning(&format!("the conversation could not be compacted: {}", failed.error), now);
            }
            Event::McpServer(server) => self.apply_server(server),
            Event::Alert(alert) => self.add_alert(alert),
            Event::Shutdown => {
                self.state.discard_live_blocks();
                self.state.status.has_stopped = true;
                self.state.status.activity = None;
                self.state.status.detail = None;
            }
            // `apply_frame` handles snapshots. The others belong to the caller or repeat an entry.
            Event::ThinkingStart
            | Event::Hello(_)
            | Event::Snapshot(_)
            | Event::Lag(_)
            | Event::Reply(_)
            | Event::Error(_)
            | Event::Completions(_)
            | Event::RewindTargets(_)
            | Event::History(_)
            | Event::InvokeStart(_)
            | Event::UserMessage(_)
            | Event::SystemItem(_)
            | Event::TurnStart(_)
            | Event::TurnEnd(_)
            | Event::RunEnd(_)
            | Event::SegmentRotated(_)
            | Event::LlmCallStart(_)
            | Event::LlmContinuation(_)
            | Event::LlmCallEnd(_)
            | Event::TextDone(_)
            | Event::ThinkingDone(_)
            | Event::ToolCallDone(_)
            | Event::Usage(_)
            | Event::ToolResult(_)
            | Event::Ask(_)
            | Event::Answered(_)
            | Event::ChildStarted(_)
            | Event::ChildEnded(_)
            | Event::CompactDone(_)
            | Event::MemoryWorker(_)
            | Event::Unknown(_) => {}
        }
    }

    fn apply_status(&mut self, status: &StatusEvent) {
        self.state.status.status = Some(status.status.clone());
        self.state.status.activity.clone_from(&status.activity);
        self.state.status.detail.clone_from(&status.detail);
        self.state.status.waiting.clone_from(&status.waiting);
    }

    fn apply_retry(&mut self, retry: &LlmRetry, now: Millis) {
        self.state.status.retry = Some(RetryStatus {
            failed_attempt: retry.failed_attempt,
            max_attempts: retry.max_attempts,
            wait_ms: retry.wait_ms,
            received_at: now,
            error: format::truncate_text(&retry.error, format::MAX_NOTICE_BYTES),
        });
    }

    fn apply_server(&mut self, update: &McpServer) {
        let row = McpServerRow {
            name: update.server.clone(),
            status: update.status.clone(),
            error: update.error.clone(),
        };
        let servers = &mut self.state.status.servers;
        if let Some(server) = servers.iter_mut().find(|server| server.name == row.name) {
            *server = row;
        } else if servers.len() < MAX_SERVERS {
            servers.push(row);
        }
    }

    /// Returns whether the current reply is part of the conversation. A compaction summary is not.
    fn is_reply_visible(&self) -> bool {
        self.state.fold.open_requests.values().next_back().copied().unwrap_or(true)
    }

    fn open_block(&mut self, body: BlockBody, now: Millis) -> BlockId {
        self.state.status.retry = None;
        if self.state.blocks.live_blocks().len() >= MAX_LIVE_BLOCKS
            && let Some(oldest) = self.state.blocks.live_blocks().first().map(|block| block.id)
        {
            self.state.blocks.close_live(oldest);
        }
        let next = self.next_seq();
        self.state.blocks.open_live(next, now, body)
    }

    fn append_live(&mut self, kind: StreamKind, text: &str, now: Millis) {
        if text.is_empty() || !self.is_reply_visible() {
            return;
        }
        let open = self
            .state
            .blocks
            .live_blocks()
            .iter()
            .rev()
            .find(|block| kind.matches(&block.body))
            .map(|block| block.id);
        let id = open.unwrap_or_else(|| {
            self.open_block(kind.into_body(StreamedText { open: true, ..StreamedText::default() }), now)
        });
        self.state.blocks.change_block(id, |body| {
            let (BlockBody::Reply(words) | BlockBody::Thinking(words)) = body else { return };
            if words.text.len() + text.len() <= MAX_LIVE_BYTES {
                words.text.push_str(text);
            } else {
                words.omitted_bytes = words.omitted_bytes.saturating_add(text.len() as u64);
            }
        });
    }

    fn find_live_call(&self, id: &CallId) -> Option<BlockId> {
        let is = |block: &&Block| matches!(&block.body, BlockBody::CallCard(call) if call.id == *id);
        self.state.blocks.live_blocks().iter().find(is).map(|block| block.id)
    }

    fn begin_live_call(&mut self, id: &CallId, name: &str, now: Millis) -> Option<BlockId> {
        if !self.is_reply_visible() || self.state.fold.calls.contains_key(id) {
            return None;
        }
        let known = self.find_live_call(id);
        Some(known.unwrap_or_else(|| {
            self.open_block(BlockBody::CallCard(Box::new(CallCard::new(id.clone(), name))), now)
        }))
    }

    fn append_call_arguments(&mut self, id: &CallId, json: &str, now: Millis) {
        let Some(block) = self.find_live_call(id).or_else(|| self.begin_live_call(id, "", now)) else {
            return;
        };
        let cwd = self.state.fold.cwd.clone();
        self.state.blocks.change_block(block, |body| {
            let BlockBody::CallCard(call) = body else { return };
            if call.arguments.len() + json.len() <= MAX_LIVE_BYTES {
                call.arguments.push_str(json);
            }
            if call.subject.is_empty() && call.arguments.len() <= SUBJECT_SCAN_BYTES {
                call.subject = format::arguments_subject(&call.arguments, &cwd);
            }
        });
    }

    /// Replaces the assumed open blocks by the actual ones.
    pub(crate) fn apply_in_flight(&mut self, in_flight: &InFlight, now: Millis) {
        let mut was = self.state.blocks.close_all_live();
        let shown = self.is_reply_visible();
        for block in in_flight.blocks.iter().filter(|_| shown) {
            let body = match block {
                minke_protocol::StreamingBlock::Text { text } => {
                    StreamKind::Reply.into_body(streaming_text(text))
                }
                minke_protocol::StreamingBlock::Thinking { text } => {
                    StreamKind::Thinking.into_body(streaming_text(text))
                }
                minke_protocol::StreamingBlock::ToolCall { id, name, arguments } => {
                    let mut call = CallCard::new(id.clone(), name);
                    call.subject = format::arguments_subject(arguments, &self.state.fold.cwd);
                    call.arguments.clone_from(arguments);
                    BlockBody::CallCard(Box::new(call))
                }
                minke_protocol::StreamingBlock::Unknown => continue,
            };
            // The same block keeps its id, so that the display does not jump.
            match was.iter().position(|known| is_same_block(&known.body, &body)) {
                Some(at) => {
                    let known = was.remove(at);
                    self.state.blocks.reopen_live(Block { body, ..known });
                }
                None => {
                    self.open_block(body, now);
                }
            }
        }
        for command in &in_flight.commands {
            self.state.fold.output_offsets.remove(&command.call_id);
            self.set_command(&command.call_id, &command.command.display_text());
            self.change_call(&command.call_id, |call| call.output = crate::TextTail::default());
            for piece in &command.output {
                self.append_output(&command.call_id, piece);
            }
        }
    }

    fn apply_command(&mut self, event: &CommandEvent) {
        match &event.news {
            Some(CommandUpdate::Started { command, .. }) => {
                self.set_command(&event.call_id, &command.display_text())
            }
            Some(CommandUpdate::Output(piece)) => self.append_output(&event.call_id, piece),
            Some(CommandUpdate::Ended { exit_code, .. }) => {
                self.change_call(&event.call_id, |call| call.exit = *exit_code);
                if self.state.fold.background.remove(&event.call_id).is_some() {
                    self.state.fold.output_offsets.remove(&event.call_id);
                }
            }
            None => {}
        }
    }

    fn set_command(&mut self, call: &CallId, command: &str) {
        self.change_call(call, |call| {
            if call.command.is_none() {
                call.command = Some(command.to_owned());
            }
        });
    }

    /// Appends a piece of a command's output at its offset in the stream.
    fn append_output(&mut self, id: &CallId, piece: &CommandOutput) {
        let open = self.state.fold.calls.contains_key(id) || self.state.fold.background.contains_key(id);
        if !open {
            return;
        }
        let heard = self.state.fold.output_offsets.entry(id.clone()).or_default();
        if heard.len() >= MAX_STREAMS && !heard.contains_key(piece.stream.as_str()) {
            return;
        }
        let joined = heard.is_empty() && piece.start > 0;
        let at = heard.entry(piece.stream.to_string()).or_insert(piece.start);
        let known = at.saturating_sub(piece.start);
        let missed = piece.start.saturating_sub(*at);
        if piece.end <= *at && piece.end > piece.start {
            return;
        }
        *at = piece.end.max(*at);
        let from = usize::try_from(known).unwrap_or(usize::MAX);
        let text = piece.text.get(from..).unwrap_or(&piece.text);
        self.change_call(id, |call| {
            if joined && call.output.text.is_empty() {
                call.output.omitted_bytes = piece.start;
            }
            if missed > 0 {
                call.output.push_text(&format!("\n[{missed} bytes were not shown]\n"));
            }
            call.output.push_text(text);
        });
    }

    /// Changes a running call, or an ended call whose command is still running.
    fn change_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallCard)) {
        let block = self.state.fold.calls.get(id).or_else(|| self.state.fold.background.get(id)).copied();
        let Some(block) = block else { return };
        self.state.blocks.change_block(block, |body| {
            if let BlockBody::CallCard(call) = body {
                if !matches!(call.state, CallState::RunEndNotice(_)) {
                    call.state = CallState::Running;
                }
                change(call);
            }
        });
    }
}

/// A kind of streaming text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Reply,
    Thinking,
}

impl StreamKind {
    fn matches(self, body: &BlockBody) -> bool {
        match self {
            StreamKind::Reply => matches!(body, BlockBody::Reply(_)),
            StreamKind::Thinking => matches!(body, BlockBody::Thinking(_)),
        }
    }

    fn into_body(self, words: StreamedText) -> BlockBody {
        match self {
            StreamKind::Reply => BlockBody::Reply(words),
            StreamKind::Thinking => BlockBody::Thinking(words),
        }
    }
}

fn streaming_text(text: &str) -> StreamedText {
    StreamedText { text: text.to_owned(), open: true, ..StreamedText::default() }
}

/// Returns whether both are the same block of a reply, at any progress.
fn is_same_block(a: &BlockBody, b: &BlockBody) -> bool {
    match (a, b) {
        (BlockBody::Reply(_), BlockBody::Reply(_)) | (BlockBody::Thinking(_), BlockBody::Thinking(_)) => true,
        (BlockBody::CallCard(a), BlockBody::CallCard(b)) => a.id == b.id,
        _ => false,
    }
}
