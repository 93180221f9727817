//! Context: what fills the model's window, by kind.
//!
//! Nobody counts tokens but the provider, and only of a whole request. So the parts are estimates, four bytes of text to
//! a token, and said to be such; the last request's own count is there beside them.
//! Invariant: what left the context is not counted (`what_left_the_context_fills_nothing`).

use minke_record::{
    Content, Entry, History, Item, Kind, Large, Purpose, Role, RunId, RunResult, SegmentReason, Text, flatten,
};

/// What fills a part of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filling {
    SystemPrompt,
    Tools,
    /// What people and pods said.
    Inputs,
    Replies,
    Thinking,
    Calls,
    Results,
    /// Attachments, notifications, reminders.
    Notes,
}

impl Filling {
    pub const ALL: [Filling; 8] = [
        Filling::SystemPrompt,
        Filling::Tools,
        Filling::Inputs,
        Filling::Replies,
        Filling::Thinking,
        Filling::Calls,
        Filling::Results,
        Filling::Notes,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Filling::SystemPrompt => "system prompt",
            Filling::Tools => "tools",
            Filling::Inputs => "inputs",
            Filling::Replies => "replies",
            Filling::Thinking => "thinking",
            Filling::Calls => "calls",
            Filling::Results => "results",
            Filling::Notes => "notes",
        }
    }
}

/// What the next request would show to the model.
#[derive(Debug, Clone, Default)]
pub struct ContextUse {
    /// Everything since the segment began.
    pieces: Vec<Piece>,
    prompt: u64,
    tools: u64,
    /// What the provider counted of the last request, its answer included.
    measured: Option<u64>,
    /// The beginning of the segment was not seen: the parts are less than the whole.
    partial: bool,
    begun: bool,
    /// Where the run that goes on began.
    run: Option<(RunId, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    seq: u64,
    filling: Filling,
    bytes: u64,
    /// What is left of a result when it is pruned.
    short: u64,
}

/// Four bytes of text are about a token.
const BYTES_PER_TOKEN: u64 = 4;
/// Pieces that are held apart; a segment that has more is told by what it began with and the last of them.
const PIECES: usize = 100_000;

impl ContextUse {
    pub fn new() -> ContextUse {
        ContextUse::default()
    }

    /// Takes an entry; they come in the order of the log, from a `segment_start` on.
    pub fn entry(&mut self, entry: &Entry) {
        if !std::mem::replace(&mut self.begun, true) {
            self.partial = !matches!(entry.kind, Kind::SegmentStart(_) | Kind::SessionStart(_));
        }
        match &entry.kind {
            Kind::SegmentStart(start) => {
                self.prompt = start.system_prompt.bytes();
                self.tools = match &start.tools {
                    Large::Here(tools) => tools
                        .iter()
                        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len())
                        .fold(0, |sum, bytes| sum.saturating_add(bytes as u64)),
                    Large::Blob(blob) => blob.bytes,
                };
                self.begin(&start.history, entry.seq);
                if start.reason == SegmentReason::Compaction {
                    self.measured = None;
                }
            }
            Kind::Invoke(_) => self.run = entry.run.map(|run| (run, self.pieces.len())),
            Kind::UserInput(e) => self.item(&flatten(&e.segments), entry.seq),
            Kind::SystemEntry(e) => self.add(Filling::Notes, e.item.body.bytes(), entry.seq),
            Kind::AssistantItem(e) => self.item(&e.item, entry.seq),
            Kind::ToolResult(e) if e.by.is_none() => self.item(&e.item, entry.seq),
            Kind::LlmCall(e) if e.purpose != Purpose::Turn => {}
            Kind::LlmUsage(e) => {
                let all = [e.input, e.cache_read, e.cache_write, e.output];
                self.measured = Some(all.into_iter().fold(0, u64::saturating_add));
            }
            Kind::Pruned(e) => {
                for piece in self.pieces.iter_mut().filter(|piece| piece.seq <= e.to_seq) {
                    piece.bytes = piece.bytes.min(piece.short);
                }
            }
            Kind::RunCompleted(e) => {
                if let Some((run, at)) = self.run.take()
                    && e.result == RunResult::RolledBack
                    && entry.run.is_none_or(|id| id == run)
                {
                    self.pieces.truncate(at);
                }
            }
            _ => {}
        }
    }

    /// About how many tokens each part fills, in a fixed order; parts that are empty included.
    pub fn parts(&self) -> Vec<(Filling, u64)> {
        Filling::ALL.into_iter().map(|filling| (filling, self.bytes(filling) / BYTES_PER_TOKEN)).collect()
    }

    /// About how many tokens all of it fills.
    pub fn estimate(&self) -> u64 {
        let bytes = Filling::ALL.into_iter().map(|filling| self.bytes(filling));
        bytes.fold(0, u64::saturating_add) / BYTES_PER_TOKEN
    }

    /// What the provider counted of the last request; what came after it is not in there.
    pub fn measured(&self) -> Option<u64> {
        self.measured
    }

    /// What is left of a window: by the provider's count if there is one, else by the estimate.
    pub fn free(&self, window: u64) -> u64 {
        window.saturating_sub(self.measured.unwrap_or_else(|| self.estimate()))
    }

    /// Entries are missing, so the parts are less than the whole.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    fn bytes(&self, filling: Filling) -> u64 {
        match filling {
            Filling::SystemPrompt => self.prompt,
            Filling::Tools => self.tools,
            _ => {
                let of_kind = self.pieces.iter().filter(|piece| piece.filling == filling);
                of_kind.fold(0, |sum, piece| sum.saturating_add(piece.bytes))
            }
        }
    }

    fn begin(&mut self, history: &History, seq: u64) {
        self.run = None;
        match history {
            History::Here(items) => {
                self.partial = false;
                self.pieces.clear();
                items.iter().for_each(|item| self.item(item, seq));
            }
            History::Blob(blob) => {
                self.pieces.clear();
                self.add(Filling::Notes, blob.bytes, seq);
            }
            // The context stays as it is; in a fork it is the parent's, of which nothing is known here.
            History::SameAs { .. } => self.partial |= self.pieces.is_empty() && seq <= 2,
        }
    }

    fn item(&mut self, item: &Item, seq: u64) {
        match item {
            Item::Message { role, content } => {
                let filling = match role {
                    Role::User => Filling::Inputs,
                    Role::Assistant | Role::Other(_) => Filling::Replies,
                    Role::System => Filling::Notes,
                };
                self.add(filling, content.iter().map(part_bytes).fold(0, u64::saturating_add), seq);
            }
            Item::Reasoning { text, summary, encrypted, .. } => {
                let summary = summary.iter().map(|line| line.len() as u64).fold(0, u64::saturating_add);
                let hidden = encrypted.as_ref().map_or(0, Text::bytes);
                self.add(Filling::Thinking, text.bytes().max(summary).max(hidden), seq);
            }
            Item::ToolCall { name, arguments, .. } => {
                self.add(Filling::Calls, arguments.bytes().saturating_add(name.len() as u64), seq);
            }
            Item::ToolResult { summary, content, .. } => {
                let short = summary.len() as u64;
                let bytes = content.as_ref().map_or(short, Text::bytes);
                self.add(Filling::Results, bytes, seq);
                if let Some(piece) = self.pieces.last_mut() {
                    piece.short = short;
                }
            }
            Item::Unknown => {}
        }
    }

    fn add(&mut self, filling: Filling, bytes: u64, seq: u64) {
        self.pieces.push(Piece { seq, filling, bytes, short: bytes });
        if self.pieces.len() > PIECES {
            self.join_oldest();
        }
    }

    /// The older half becomes one piece of each kind.
    fn join_oldest(&mut self) {
        let rest = self.pieces.split_off(PIECES / 2);
        let old = std::mem::take(&mut self.pieces);
        for filling in Filling::ALL {
            let of_kind = old.iter().filter(|piece| piece.filling == filling);
            let bytes = of_kind.fold(0_u64, |sum, piece| sum.saturating_add(piece.bytes));
            self.pieces.push(Piece { seq: 0, filling, bytes, short: bytes });
        }
        self.run =
            self.run.map(|(run, at)| (run, at.saturating_sub(PIECES / 2).saturating_add(Filling::ALL.len())));
        self.pieces.extend(rest);
    }
}

fn part_bytes(part: &Content) -> u64 {
    /// What providers count for an image of common size, in bytes of text.
    const IMAGE_BYTES: u64 = 1_500 * BYTES_PER_TOKEN;
    match part {
        Content::Text { text } | Content::Refusal { text } => text.bytes(),
        Content::Image { .. } => IMAGE_BYTES,
        Content::Unknown => 0,
    }
}
