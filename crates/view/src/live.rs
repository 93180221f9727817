//! Live news: what is on its way and stands in no log yet.
//!
//! A piece of a reply makes or grows a live block; its entry takes that block's place (`entries`). What a command says
//! is joined by byte position, so that a piece that comes twice is shown once and a gap is told.

use minke_protocol::{
    CommandEvent, CommandNews, CommandOutput, Event, InFlight, LlmRetry, McpServer, StatusEvent,
};
use minke_record::{CallId, Millis};

use crate::block::{Block, BlockId, Body, Call, CallState, Words};
use crate::conversation::Conversation;
use crate::standing::{Retry, Server};
use crate::tell;

/// A block that streams is held up to this; the log holds no more of a text itself.
const LIVE_BYTES: usize = 512 * 1024;
/// Until then it is looked for what a call that is being written is about.
const TELLING_BYTES: usize = 4 * 1024;
/// Blocks of a reply that are open at once: no model writes so many, but what comes over a wire is not trusted.
const LIVE_BLOCKS: usize = 1_024;
/// Streams of a command: there are three.
const STREAMS: usize = 8;
/// Servers that are listed.
const SERVERS: usize = 256;

impl Conversation {
    /// Takes a live event. Those that are made from an entry change nothing: the entry itself does.
    pub fn live(&mut self, event: &Event, now: Millis) {
        match event {
            Event::Entry(event) => self.entry(&event.entry),
            Event::InFlight(in_flight) => self.in_flight(in_flight, now),
            Event::Status(status) => self.status(status),
            Event::LlmRetry(retry) => self.retried(retry, now),
            Event::TextDelta(delta) => self.grow(Kind::Reply, &delta.text, now),
            Event::ThinkingStart if self.shown() => {
                self.begin(Body::Thinking(Words { open: true, ..Words::default() }), now);
            }
            Event::ThinkingDelta(delta) => self.grow(Kind::Thinking, &delta.text, now),
            Event::ToolCallStart(start) => {
                self.call_begins(&start.id, &start.name, now);
            }
            Event::ToolCallArgsDelta(delta) => self.call_grows(&delta.id, &delta.json, now),
            Event::Command(command) => self.command(command),
            Event::CompactStart(_) => self.standing.compacting = true,
            Event::CompactFailed(failed) => {
                self.standing.compacting = false;
                self.warn(&format!("the conversation could not be compacted: {}", failed.error), now);
            }
            Event::McpServer(server) => self.server(server),
            Event::Alert(alert) => self.alert(alert),
            Event::Shutdown => {
                self.reply_over();
                self.standing.gone = true;
                self.standing.activity = None;
                self.standing.detail = None;
            }
            // `frame` takes snapshots; the rest is the asker's, or is made from an entry that comes with it.
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

    fn status(&mut self, status: &StatusEvent) {
        self.standing.status = Some(status.status.clone());
        self.standing.activity.clone_from(&status.activity);
        self.standing.detail.clone_from(&status.detail);
        self.standing.waiting.clone_from(&status.waiting);
    }

    fn retried(&mut self, retry: &LlmRetry, now: Millis) {
        self.standing.retry = Some(Retry {
            failed_attempt: retry.failed_attempt,
            max_attempts: retry.max_attempts,
            wait_ms: retry.wait_ms,
            told: now,
            error: tell::beginning(&retry.error, tell::NOTICE_BYTES),
        });
    }

    fn server(&mut self, news: &McpServer) {
        let row =
            Server { name: news.server.clone(), status: news.status.clone(), error: news.error.clone() };
        let servers = &mut self.standing.servers;
        if let Some(server) = servers.iter_mut().find(|server| server.name == row.name) {
            *server = row;
        } else if servers.len() < SERVERS {
            servers.push(row);
        }
    }

    /// Whether what the model says now is part of the conversation: a summary of it is not.
    fn shown(&self) -> bool {
        self.fold.requests.values().next_back().copied().unwrap_or(true)
    }

    fn begin(&mut self, body: Body, now: Millis) -> BlockId {
        self.standing.retry = None;
        if self.blocks.live().len() >= LIVE_BLOCKS
            && let Some(oldest) = self.blocks.live().first().map(|block| block.id)
        {
            self.blocks.close(oldest);
        }
        let next = self.next_seq();
        self.blocks.open(next, now, body)
    }

    fn grow(&mut self, kind: Kind, text: &str, now: Millis) {
        if text.is_empty() || !self.shown() {
            return;
        }
        let open = self.blocks.live().iter().rev().find(|block| kind.is(&block.body)).map(|block| block.id);
        let id = open.unwrap_or_else(|| self.begin(kind.with(Words { open: true, ..Words::default() }), now));
        self.blocks.change(id, |body| {
            let (Body::Reply(words) | Body::Thinking(words)) = body else { return };
            if words.text.len() + text.len() <= LIVE_BYTES {
                words.text.push_str(text);
            } else {
                words.left_out = words.left_out.saturating_add(text.len() as u64);
            }
        });
    }

    fn live_call(&self, id: &CallId) -> Option<BlockId> {
        let is = |block: &&Block| matches!(&block.body, Body::Call(call) if call.id == *id);
        self.blocks.live().iter().find(is).map(|block| block.id)
    }

    fn call_begins(&mut self, id: &CallId, name: &str, now: Millis) -> Option<BlockId> {
        if !self.shown() || self.fold.calls.contains_key(id) {
            return None;
        }
        let known = self.live_call(id);
        Some(known.unwrap_or_else(|| self.begin(Body::Call(Box::new(Call::new(id.clone(), name))), now)))
    }

    fn call_grows(&mut self, id: &CallId, json: &str, now: Millis) {
        let Some(block) = self.live_call(id).or_else(|| self.call_begins(id, "", now)) else { return };
        let cwd = self.fold.cwd.clone();
        self.blocks.change(block, |body| {
            let Body::Call(call) = body else { return };
            if call.arguments.len() + json.len() <= LIVE_BYTES {
                call.arguments.push_str(json);
            }
            if call.about.is_empty() && call.arguments.len() <= TELLING_BYTES {
                call.about = tell::written_about(&call.arguments, &cwd);
            }
        });
    }

    /// What is open right now takes the place of what was thought to be.
    pub(crate) fn in_flight(&mut self, in_flight: &InFlight, now: Millis) {
        let mut was = self.blocks.close_all();
        let shown = self.shown();
        for block in in_flight.blocks.iter().filter(|_| shown) {
            let body = match block {
                minke_protocol::Block::Text { text } => Kind::Reply.with(streaming(text)),
                minke_protocol::Block::Thinking { text } => Kind::Thinking.with(streaming(text)),
                minke_protocol::Block::ToolCall { id, name, arguments } => {
                    let mut call = Call::new(id.clone(), name);
                    call.about = tell::written_about(arguments, &self.fold.cwd);
                    call.arguments.clone_from(arguments);
                    Body::Call(Box::new(call))
                }
                minke_protocol::Block::Unknown => continue,
            };
            // The same block keeps its id, so that nothing jumps.
            match was.iter().position(|known| same(&known.body, &body)) {
                Some(at) => {
                    let known = was.remove(at);
                    self.blocks.reopen(Block { body, ..known });
                }
                None => {
                    self.begin(body, now);
                }
            }
        }
        for command in &in_flight.commands {
            self.fold.heard.remove(&command.call_id);
            self.command_text(&command.call_id, &command.command.show());
            self.on_call(&command.call_id, |call| call.output = crate::Tail::default());
            for piece in &command.output {
                self.hear(&command.call_id, piece);
            }
        }
    }

    fn command(&mut self, event: &CommandEvent) {
        match &event.news {
            Some(CommandNews::Started { command, .. }) => self.command_text(&event.call_id, &command.show()),
            Some(CommandNews::Output(piece)) => self.hear(&event.call_id, piece),
            Some(CommandNews::Ended { exit_code, .. }) => {
                self.on_call(&event.call_id, |call| call.exit = *exit_code);
                if self.fold.behind.remove(&event.call_id).is_some() {
                    self.fold.heard.remove(&event.call_id);
                }
            }
            None => {}
        }
    }

    fn command_text(&mut self, call: &CallId, command: &str) {
        self.on_call(call, |call| {
            if call.command.is_none() {
                call.command = Some(command.to_owned());
            }
        });
    }

    /// A piece of a command's output, joined by where it stands in its stream.
    fn hear(&mut self, id: &CallId, piece: &CommandOutput) {
        let open = self.fold.calls.contains_key(id) || self.fold.behind.contains_key(id);
        if !open {
            return;
        }
        let heard = self.fold.heard.entry(id.clone()).or_default();
        if heard.len() >= STREAMS && !heard.contains_key(piece.stream.as_str()) {
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
        self.on_call(id, |call| {
            if joined && call.output.text.is_empty() {
                call.output.left_out = piece.start;
            }
            if missed > 0 {
                call.output.push(&format!("\n[{missed} bytes were not shown]\n"));
            }
            call.output.push(text);
        });
    }

    /// Changes a call that runs, or whose command goes on behind it.
    fn on_call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        let block = self.fold.calls.get(id).or_else(|| self.fold.behind.get(id)).copied();
        let Some(block) = block else { return };
        self.blocks.change(block, |body| {
            if let Body::Call(call) = body {
                if !matches!(call.state, CallState::Ended(_)) {
                    call.state = CallState::Running;
                }
                change(call);
            }
        });
    }
}

/// Text that streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reply,
    Thinking,
}

impl Kind {
    fn is(self, body: &Body) -> bool {
        match self {
            Kind::Reply => matches!(body, Body::Reply(_)),
            Kind::Thinking => matches!(body, Body::Thinking(_)),
        }
    }

    fn with(self, words: Words) -> Body {
        match self {
            Kind::Reply => Body::Reply(words),
            Kind::Thinking => Body::Thinking(words),
        }
    }
}

fn streaming(text: &str) -> Words {
    Words { text: text.to_owned(), open: true, ..Words::default() }
}

/// Whether both are the same block of a reply, however far each has come.
fn same(a: &Body, b: &Body) -> bool {
    match (a, b) {
        (Body::Reply(_), Body::Reply(_)) | (Body::Thinking(_), Body::Thinking(_)) => true,
        (Body::Call(a), Body::Call(b)) => a.id == b.id,
        _ => false,
    }
}
