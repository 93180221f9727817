//! Replies: what the model says, live blocks that become entries, and what it costs; histories from elsewhere.

use minke_record::{AssistantItem, Content, Entry, Item, LlmEnd, LlmUsage, Role, Text};

use crate::block::{Body, Notice, NoticeKind, Said, Saying, Words};
use crate::conversation::Conversation;
use crate::facts::CARRIED;
use crate::tell;

/// Blocks that one item can make.
const PARTS: u32 = 256;

impl Conversation {
    /// What was brought along from elsewhere, as if it had been said here.
    pub(crate) fn imported(&mut self, items: &[Item], entry: &Entry) {
        for (part, item) in (0..CARRIED).step_by(PARTS as usize).zip(items) {
            self.item(item, part, entry);
        }
        // Calls that came without a result will have none.
        for id in std::mem::take(&mut self.fold.calls).into_values() {
            self.blocks.change(id, |body| {
                if let Body::Call(call) = body {
                    call.state = crate::CallState::Ended(minke_record::Outcome::Lost);
                }
            });
        }
    }

    /// One piece of history.
    pub(crate) fn item(&mut self, item: &Item, part: u32, entry: &Entry) {
        match item {
            Item::Message { role, content } => {
                for (at, text) in texts(content).take(PARTS as usize).enumerate() {
                    let part = part.saturating_add(u32::try_from(at).unwrap_or(PARTS));
                    let body = match role {
                        Role::User => said_before(text),
                        Role::Assistant | Role::Other(_) => Body::Reply(Words::whole(text)),
                        Role::System => Body::Notice(Notice {
                            kind: NoticeKind::Note,
                            text: tell::beginning(&text.show(), tell::NOTICE_BYTES),
                        }),
                    };
                    self.put(entry, part, body);
                }
            }
            Item::Reasoning { text, summary, .. } => {
                self.put(entry, part, Body::Thinking(thought(text, summary)));
            }
            Item::ToolCall { call_id, name, arguments } => {
                self.call_written(call_id, name, arguments, part, entry);
            }
            Item::ToolResult { .. } => self.result_came(item, entry),
            Item::Unknown => {}
        }
    }

    pub(crate) fn model_said(&mut self, e: &AssistantItem, entry: &Entry) {
        self.standing.retry = None;
        match self.fold.requests.get(&e.call) {
            Some(true) => {}
            Some(false) => return,
            // What was asked stands in an older page.
            None => self.made_loose(entry),
        }
        match &e.item {
            Item::Message { content, .. } => {
                texts(content).for_each(|_| self.close_live(|body| matches!(body, Body::Reply(_))));
            }
            Item::Reasoning { .. } => self.close_live(|body| matches!(body, Body::Thinking(_))),
            Item::ToolCall { call_id, .. } => {
                self.close_live(|body| matches!(body, Body::Call(call) if call.id == *call_id));
            }
            Item::ToolResult { .. } | Item::Unknown => {}
        }
        self.item(&e.item, 0, entry);
    }

    /// The first live block that fits becomes the entry's.
    pub(crate) fn close_live(&mut self, fits: impl Fn(&Body) -> bool) {
        let live = self.blocks.live().iter().find(|block| fits(&block.body)).map(|block| block.id);
        if let Some(id) = live {
            self.blocks.close(id);
        }
    }

    pub(crate) fn usage_counted(&mut self, e: &LlmUsage) {
        let tokens = &mut self.standing.tokens;
        tokens.input = tokens.input.saturating_add(e.input).saturating_add(e.cache_write);
        tokens.output = tokens.output.saturating_add(e.output);
        tokens.cache_read = tokens.cache_read.saturating_add(e.cache_read);
        if self.fold.requests.get(&e.call) != Some(&false) {
            let all = [e.input, e.cache_read, e.cache_write, e.output];
            tokens.context = all.into_iter().fold(0, u64::saturating_add);
        }
        match e.cost_usd.filter(|cost| cost.is_finite()) {
            Some(cost) => self.fold.spent += cost,
            None => self.fold.unpriced = self.fold.unpriced.saturating_add(1),
        }
        self.count_cost();
    }

    pub(crate) fn count_cost(&mut self) {
        let known = self.fold.unpriced == 0;
        self.standing.cost_micros = known.then(|| micros(self.fold.spent));
    }

    pub(crate) fn request_ended(&mut self, e: &LlmEnd) {
        self.fold.requests.remove(&e.call);
        self.reply_over();
    }

    /// What is still live of a reply will not come to be.
    pub(crate) fn reply_over(&mut self) {
        self.blocks.close_all();
        self.standing.retry = None;
    }
}

/// The texts of a message.
pub(crate) fn texts(content: &[Content]) -> impl Iterator<Item = &Text> {
    content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text),
        Content::Image { .. } | Content::Unknown => None,
    })
}

/// Some providers show only a summary of what was thought.
fn thought(text: &Text, summary: &[String]) -> Words {
    if text.is_empty() { Words::whole(&Text::Here(summary.join("\n"))) } else { Words::whole(text) }
}

fn said_before(text: &Text) -> Body {
    let text = text.show().into_owned();
    Body::Said(Said { who: "you".to_owned(), text, chips: Vec::new(), state: Saying::Said })
}

/// Money in whole micro-dollars.
pub(crate) fn micros(usd: f64) -> u64 {
    let micros = (usd * 1e6).round();
    // Saturates at both ends, and what is not a number is nothing.
    micros as u64
}
