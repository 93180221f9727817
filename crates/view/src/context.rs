//! Estimates what fills the model's context window, by kind.
//!
//! Only the provider counts tokens, and only for a whole request. The parts are therefore estimates at four
//! bytes of text per token and are labelled as such; the provider's count of the last request is shown next
//! to them.
//! Invariant: removed parts of the context are not counted (`what_left_the_context_fills_nothing`).

use minke_record::{
    Content, Entry, History, Item, Kind, Large, Purpose, Role, RunId, RunResult, SegmentReason, Text,
    flatten_input,
};

/// A kind of content in the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextPart {
    SystemPrompt,
    Tools,
    /// Inputs from users and pods.
    Inputs,
    Replies,
    Thinking,
    Calls,
    Results,
    /// Attachments, notifications, reminders.
    Notes,
}

impl ContextPart {
    pub const ALL: [ContextPart; 8] = [
        ContextPart::SystemPrompt,
        ContextPart::Tools,
        ContextPart::Inputs,
        ContextPart::Replies,
        ContextPart::Thinking,
        ContextPart::Calls,
        ContextPart::Results,
        ContextPart::Notes,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ContextPart::SystemPrompt => "system prompt",
            ContextPart::Tools => "tools",
            ContextPart::Inputs => "inputs",
            ContextPart::Replies => "replies",
            ContextPart::Thinking => "thinking",
            ContextPart::Calls => "calls",
            ContextPart::Results => "results",
            ContextPart::Notes => "notes",
        }
    }
}

/// Estimates the content of the next model request.
#[derive(Debug, Clone, Default)]
pub struct ContextUsage {
    /// Pieces since the start of the segment.
    pieces: Vec<ContextPiece>,
    prompt: u64,
    tools: u64,
    /// Token count that the provider reported for the last request and its reply.
    measured_tokens: Option<u64>,
    /// The start of the segment was not seen, so the parts are incomplete.
    partial: bool,
    has_started: bool,
    /// The active run and the index of its first piece.
    open_run: Option<(RunId, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct ContextPiece {
    seq: u64,
    part: ContextPart,
    part_bytes: u64,
    /// Bytes of a result after pruning.
    pruned_bytes: u64,
}

/// Estimated bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;
/// Limit for separately stored pieces. Beyond it the oldest pieces are merged.
const MAX_PIECES: usize = 100_000;

impl ContextUsage {
    pub fn new() -> ContextUsage {
        ContextUsage::default()
    }

    /// Applies an entry. Entries must arrive in log order, beginning with a `segment_start`.
    pub fn apply_entry(&mut self, entry: &Entry) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.partial = !matches!(entry.kind, Kind::SegmentStart(_) | Kind::SessionStart(_));
        }
        match &entry.kind {
            Kind::SegmentStart(start) => {
                self.prompt = start.system_prompt.byte_len();
                self.tools = match &start.tools {
                    Large::Here(tools) => tools
                        .iter()
                        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len())
                        .fold(0, |sum, bytes| sum.saturating_add(bytes as u64)),
                    Large::Blob(blob) => blob.bytes,
                };
                self.begin_segment(&start.history, entry.seq);
                if start.reason == SegmentReason::Compaction {
                    self.measured_tokens = None;
                }
            }
            Kind::Invoke(_) => self.open_run = entry.run.map(|run| (run, self.pieces.len())),
            Kind::UserInput(e) => self.add_item(&flatten_input(&e.segments), entry.seq),
            Kind::SystemEntry(e) => self.add_piece(ContextPart::Notes, e.item.body.byte_len(), entry.seq),
            Kind::AssistantItem(e) => self.add_item(&e.item, entry.seq),
            Kind::ToolResult(e) if e.by.is_none() => self.add_item(&e.item, entry.seq),
            Kind::LlmCall(e) if e.purpose != Purpose::Turn => {}
            Kind::LlmUsage(e) => {
                let all = [e.input, e.cache_read, e.cache_write, e.output];
                self.measured_tokens = Some(all.into_iter().fold(0, u64::saturating_add));
            }
            Kind::Pruned(e) => {
                for piece in self.pieces.iter_mut().filter(|piece| piece.seq <= e.to_seq) {
                    piece.part_bytes = piece.part_bytes.min(piece.pruned_bytes);
                }
            }
            Kind::RunCompleted(e) => {
                if let Some((run, at)) = self.open_run.take()
                    && e.result == RunResult::RolledBack
                    && entry.run.is_none_or(|id| id == run)
                {
                    self.pieces.truncate(at);
                }
            }
            _ => {}
        }
    }

    /// Returns the estimated tokens of each part in a fixed order, including empty parts.
    pub fn token_parts(&self) -> Vec<(ContextPart, u64)> {
        ContextPart::ALL
            .into_iter()
            .map(|filling| (filling, self.part_bytes(filling) / BYTES_PER_TOKEN))
            .collect()
    }

    /// Returns the estimated total of tokens.
    pub fn estimated_tokens(&self) -> u64 {
        let bytes = ContextPart::ALL.into_iter().map(|filling| self.part_bytes(filling));
        bytes.fold(0, u64::saturating_add) / BYTES_PER_TOKEN
    }

    /// Returns the provider's count of the last request. Later content is not included.
    pub fn measured_tokens(&self) -> Option<u64> {
        self.measured_tokens
    }

    /// Returns the free tokens of a window, from the provider's count if there is one, else from the
    /// estimate.
    pub fn free_tokens(&self, window: u64) -> u64 {
        window.saturating_sub(self.measured_tokens.unwrap_or_else(|| self.estimated_tokens()))
    }

    /// Returns whether entries are missing, so that the parts are incomplete.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    fn part_bytes(&self, filling: ContextPart) -> u64 {
        match filling {
            ContextPart::SystemPrompt => self.prompt,
            ContextPart::Tools => self.tools,
            _ => {
                let of_kind = self.pieces.iter().filter(|piece| piece.part == filling);
                of_kind.fold(0, |sum, piece| sum.saturating_add(piece.part_bytes))
            }
        }
    }

    fn begin_segment(&mut self, history: &History, seq: u64) {
        self.open_run = None;
        match history {
            History::Here(items) => {
                self.partial = false;
                self.pieces.clear();
                items.iter().for_each(|item| self.add_item(item, seq));
            }
            History::Blob(blob) => {
                self.pieces.clear();
                self.add_piece(ContextPart::Notes, blob.bytes, seq);
            }
            // The context stays the same. In a fork it belongs to the parent and is unknown here.
            History::SameAs { .. } => self.partial |= self.pieces.is_empty() && seq <= 2,
        }
    }

    fn add_item(&mut self, item: &Item, seq: u64) {
        match item {
            Item::Message { role, content } => {
                let filling = match role {
                    Role::User => ContextPart::Inputs,
                    Role::Assistant | Role::Other(_) => ContextPart::Replies,
                    Role::System => ContextPart::Notes,
                };
                self.add_piece(filling, content.iter().map(content_bytes).fold(0, u64::saturating_add), seq);
            }
            Item::Reasoning { text, summary, encrypted, .. } => {
                let summary = summary.iter().map(|line| line.len() as u64).fold(0, u64::saturating_add);
                let hidden = encrypted.as_ref().map_or(0, Text::byte_len);
                self.add_piece(ContextPart::Thinking, text.byte_len().max(summary).max(hidden), seq);
            }
            Item::ToolCall { name, arguments, .. } => {
                self.add_piece(
                    ContextPart::Calls,
                    arguments.byte_len().saturating_add(name.len() as u64),
                    seq,
                );
            }
            Item::ToolResult { summary, content, .. } => {
                let short = summary.len() as u64;
                let bytes = content.as_ref().map_or(short, Text::byte_len);
                self.add_piece(ContextPart::Results, bytes, seq);
                if let Some(piece) = self.pieces.last_mut() {
                    piece.pruned_bytes = short;
                }
            }
            Item::Unknown => {}
        }
    }

    fn add_piece(&mut self, part: ContextPart, part_bytes: u64, seq: u64) {
        self.pieces.push(ContextPiece { seq, part, part_bytes, pruned_bytes: part_bytes });
        if self.pieces.len() > MAX_PIECES {
            self.merge_oldest();
        }
    }

    /// Merges the older half of the pieces into one piece per kind.
    fn merge_oldest(&mut self) {
        let rest = self.pieces.split_off(MAX_PIECES / 2);
        let old = std::mem::take(&mut self.pieces);
        for part in ContextPart::ALL {
            let of_kind = old.iter().filter(|piece| piece.part == part);
            let part_bytes = of_kind.fold(0_u64, |sum, piece| sum.saturating_add(piece.part_bytes));
            self.pieces.push(ContextPiece { seq: 0, part, part_bytes, pruned_bytes: part_bytes });
        }
        self.open_run = self
            .open_run
            .map(|(run, at)| (run, at.saturating_sub(MAX_PIECES / 2).saturating_add(ContextPart::ALL.len())));
        self.pieces.extend(rest);
    }
}

fn content_bytes(part: &Content) -> u64 {
    /// Estimated size of an image in bytes of text, from the usual count of providers.
    const IMAGE_BYTES: u64 = 1_500 * BYTES_PER_TOKEN;
    match part {
        Content::Text { text } | Content::Refusal { text } => text.byte_len(),
        Content::Image { .. } => IMAGE_BYTES,
        Content::Unknown => 0,
    }
}
