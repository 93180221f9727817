//! Replies of the model: live blocks that become entries, their cost, and imported histories.

use minke_record::{AssistantItem, Content, Entry, Item, LlmEnd, LlmUsage, Role, Text};

use crate::block::{BlockBody, InputBlock, InputState, NoticeKind, NoticeLine, StreamedText};
use crate::carry::FIRST_CARRY_PART;
use crate::conversation::ConversationState;
use crate::format;

/// Limit for blocks of one item.
const MAX_ITEM_PARTS: u32 = 256;

impl ConversationState {
    /// Adds an imported history as if it had taken place here.
    pub(crate) fn add_imported(&mut self, items: &[Item], entry: &Entry) {
        for (part, item) in (0..FIRST_CARRY_PART).step_by(MAX_ITEM_PARTS as usize).zip(items) {
            self.add_item(item, part, entry);
        }
        // Imported calls without a result will not get one.
        for id in std::mem::take(&mut self.fold.calls).into_values() {
            self.blocks.change_block(id, |body| {
                if let BlockBody::CallCard(call) = body {
                    call.state = crate::CallState::RunEndNotice(minke_record::Outcome::Lost);
                }
            });
        }
    }

    /// Adds one item of a history.
    pub(crate) fn add_item(&mut self, item: &Item, part: u32, entry: &Entry) {
        match item {
            Item::Message { role, content } => {
                for (at, text) in message_texts(content).take(MAX_ITEM_PARTS as usize).enumerate() {
                    let part = part.saturating_add(u32::try_from(at).unwrap_or(MAX_ITEM_PARTS));
                    let body = match role {
                        Role::User => imported_input(text),
                        Role::Assistant | Role::Other(_) => {
                            BlockBody::Reply(StreamedText::complete_text(text))
                        }
                        Role::System => BlockBody::NoticeLine(NoticeLine {
                            kind: NoticeKind::ClientNote,
                            text: format::truncate_text(&text.display_text(), format::MAX_NOTICE_BYTES),
                        }),
                    };
                    self.put_block(entry, part, body);
                }
            }
            Item::Reasoning { text, summary, .. } => {
                self.put_block(entry, part, BlockBody::Thinking(thinking_text(text, summary)));
            }
            Item::ToolCall { call_id, name, arguments } => {
                self.add_written_call(call_id, name, arguments, part, entry);
            }
            Item::ToolResult { .. } => self.add_imported_result(item, entry),
            Item::Unknown => {}
        }
    }

    pub(crate) fn apply_assistant_item(&mut self, e: &AssistantItem, entry: &Entry) {
        self.status.retry = None;
        match self.fold.open_requests.get(&e.call) {
            Some(true) => {}
            Some(false) => return,
            // The request is in an older page.
            None => self.mark_unmatched(entry),
        }
        match &e.item {
            Item::Message { content, .. } => {
                message_texts(content)
                    .for_each(|_| self.close_live_block(|body| matches!(body, BlockBody::Reply(_))));
            }
            Item::Reasoning { .. } => self.close_live_block(|body| matches!(body, BlockBody::Thinking(_))),
            Item::ToolCall { call_id, .. } => {
                self.close_live_block(
                    |body| matches!(body, BlockBody::CallCard(call) if call.id == *call_id),
                );
            }
            Item::ToolResult { .. } | Item::Unknown => {}
        }
        self.add_item(&e.item, 0, entry);
    }

    /// Closes the first matching live block; the entry replaces it.
    pub(crate) fn close_live_block(&mut self, fits: impl Fn(&BlockBody) -> bool) {
        let live = self.blocks.live_blocks().iter().find(|block| fits(&block.body)).map(|block| block.id);
        if let Some(id) = live {
            self.blocks.close_live(id);
        }
    }

    pub(crate) fn apply_usage(&mut self, e: &LlmUsage) {
        let tokens = &mut self.status.tokens;
        tokens.input = tokens.input.saturating_add(e.input).saturating_add(e.cache_write);
        tokens.output = tokens.output.saturating_add(e.output);
        tokens.cache_read = tokens.cache_read.saturating_add(e.cache_read);
        if self.fold.open_requests.get(&e.call) != Some(&false) {
            let all = [e.input, e.cache_read, e.cache_write, e.output];
            tokens.context_tokens = all.into_iter().fold(0, u64::saturating_add);
        }
        match e.cost_usd.filter(|cost| cost.is_finite()) {
            Some(cost) => self.fold.spent_usd += cost,
            None => self.fold.unpriced = self.fold.unpriced.saturating_add(1),
        }
        self.update_cost();
    }

    pub(crate) fn update_cost(&mut self) {
        let known = self.fold.unpriced == 0;
        self.status.cost_micros = known.then(|| to_micros(self.fold.spent_usd));
    }

    pub(crate) fn apply_llm_end(&mut self, e: &LlmEnd) {
        self.fold.open_requests.remove(&e.call);
        self.discard_live_blocks();
    }

    /// Discards the live blocks of an ended reply.
    pub(crate) fn discard_live_blocks(&mut self) {
        self.blocks.close_all_live();
        self.status.retry = None;
    }
}

/// Returns the texts of a message.
pub(crate) fn message_texts(content: &[Content]) -> impl Iterator<Item = &Text> {
    content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text),
        Content::Image { .. } | Content::Unknown => None,
    })
}

/// Some providers only return a summary of the thinking.
fn thinking_text(text: &Text, summary: &[String]) -> StreamedText {
    if text.is_empty() {
        StreamedText::complete_text(&Text::Inline(summary.join("\n")))
    } else {
        StreamedText::complete_text(text)
    }
}

fn imported_input(text: &Text) -> BlockBody {
    let text = text.display_text().into_owned();
    BlockBody::Input(InputBlock {
        sender: "you".to_owned(),
        text,
        attachments: Vec::new(),
        state: InputState::Delivered,
    })
}

/// Converts dollars to whole micro-dollars.
pub(crate) fn to_micros(usd: f64) -> u64 {
    let micros = (usd * 1e6).round();
    // Saturates at both ends; NaN becomes 0.
    micros as u64
}
