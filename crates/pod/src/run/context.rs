//! The model context: builds the next prompt from log entries.
//!
//! It holds the items of the next request, each with a running hash. Pruning and compaction will be added
//! here.
//! Invariant: the context grows only at its end, except by a recorded reset or rollback, and a request's hash
//! depends on the log alone (`the_same_items_give_the_same_hash`).

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_model::{Prompt, Reasoning, Sampling};
use minke_record::{CallId, Item, Purpose, Route, Text, ToolSpec, to_hex};
use sha2::{Digest, Sha256};

/// Version of the request builder; part of every request hash.
pub(crate) const REQUEST_BUILDER_VERSION: u32 = 2;

/// The items that the next request shows to the model.
#[derive(Debug, Clone, Default)]
pub struct ModelContext {
    items: Vec<Arc<Item>>,
    /// Hash and length of everything up to each item, so that a request reads only new items. Computed when a
    /// request needs it, so that folding a long log stays fast.
    links: Vec<HashLink>,
}

#[derive(Debug, Clone, Copy, Default)]
struct HashLink {
    hash: [u8; 32],
    bytes: u64,
}

/// Compares the items only, not the state of the hash cache.
impl PartialEq for ModelContext {
    fn eq(&self, other: &ModelContext) -> bool {
        self.items == other.items
    }
}

/// The fixed values of a segment.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextSegment {
    pub number: u64,
    /// seq of its `segment_start`.
    pub start: u64,
    pub system_prompt: Text,
    pub tools: Arc<Vec<ToolSpec>>,
    pub config: serde_json::Value,
}

/// The options of a request besides context and segment.
#[derive(Debug, Clone, Default)]
pub struct RequestOptions {
    pub max_tokens: Option<u64>,
    pub reasoning: Option<Reasoning>,
    pub sampling: Sampling,
    pub cache_key: Option<String>,
    /// Number of ended requests of this session.
    pub ended: u64,
}

/// Estimated bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// A request and its hash.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextRequest {
    pub prompt: Arc<Prompt>,
    pub hash: String,
    /// A rough count: bytes ÷ 4, until a provider reports usage.
    pub input_tokens: u64,
}

impl ModelContext {
    pub fn new(items: Vec<Item>) -> ModelContext {
        let mut context = ModelContext::default();
        for item in items {
            context.push(item);
        }
        context
    }

    pub fn push(&mut self, item: Item) {
        self.items.push(Arc::new(item));
    }

    /// Truncates the context for a rollback.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
        self.links.truncate(len);
    }

    fn extend_links(&mut self) -> HashLink {
        let mut last = self.links.last().copied().unwrap_or_default();
        for item in self.items.iter().skip(self.links.len()) {
            let json = serde_json::to_vec(&**item).expect("an item is plain data");
            let mut hash = Sha256::new();
            hash.update(last.hash);
            hash.update(&json);
            last = HashLink { hash: hash.finalize().into(), bytes: last.bytes + json.len() as u64 };
            self.links.push(last);
        }
        last
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn items(&self) -> &[Arc<Item>] {
        &self.items
    }

    pub fn last(&self) -> Option<&Item> {
        self.items.last().map(Arc::as_ref)
    }

    /// Returns a copy of the items for a carry.
    pub fn to_items(&self) -> Vec<Item> {
        self.items.iter().map(|item| item.as_ref().clone()).collect()
    }

    /// Returns a call without a result in the context.
    pub fn orphan_call(&self) -> Option<CallId> {
        let mut open: Vec<&CallId> = Vec::new();
        for item in &self.items {
            match item.as_ref() {
                Item::ToolCall { call_id, .. } => open.push(call_id),
                Item::ToolResult { call_id, .. } => open.retain(|id| *id != call_id),
                Item::Message { .. } | Item::Reasoning { .. } | Item::Unknown => {}
            }
        }
        open.first().map(|id| (*id).clone())
    }

    /// Returns the estimated input tokens of the next request.
    pub fn input_tokens(&mut self, segment: &ContextSegment) -> u64 {
        (self.extend_links().bytes + segment.system_prompt.byte_len()) / BYTES_PER_TOKEN
    }

    /// Builds the next request.
    pub fn build_request(
        &mut self,
        segment: &ContextSegment,
        route: &Route,
        options: RequestOptions,
    ) -> ContextRequest {
        let link = self.extend_links();
        let prompt = Prompt {
            route: route.clone(),
            purpose: Purpose::Turn,
            system: segment.system_prompt.clone(),
            tools: segment.tools.clone(),
            items: self.items.clone(),
            max_tokens: options.max_tokens,
            reasoning: options.reasoning,
            sampling: options.sampling,
            cache_key: options.cache_key,
            images: BTreeMap::new(),
            ended_requests: Some(options.ended),
        };
        let mut hash = Sha256::new();
        hash.update(REQUEST_BUILDER_VERSION.to_be_bytes());
        for part in [
            serde_json::to_vec(route),
            serde_json::to_vec(&segment.system_prompt),
            serde_json::to_vec(&*segment.tools),
            serde_json::to_vec(&options.max_tokens),
            serde_json::to_vec(&options.reasoning),
        ] {
            let part = part.expect("a request is plain data");
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        // Hashed only if set, so that requests of older sessions keep their hash.
        if prompt.sampling != Sampling::default() {
            let part = serde_json::to_vec(&prompt.sampling).expect("a request is plain data");
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(link.hash);
        let input_tokens = (link.bytes + segment.system_prompt.byte_len()) / BYTES_PER_TOKEN;
        ContextRequest { prompt: Arc::new(prompt), hash: to_hex(&hash.finalize()), input_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_segment() -> ContextSegment {
        ContextSegment {
            number: 0,
            start: 1,
            system_prompt: "be brief".into(),
            tools: Arc::new(Vec::new()),
            config: serde_json::Value::Null,
        }
    }

    fn test_route() -> Route {
        Route { provider: "scripted".into(), model: "x".into(), scheme: "scripted".into() }
    }

    #[test]
    fn the_same_items_give_the_same_hash() {
        let hash = |context: &mut ModelContext| {
            context.build_request(&test_segment(), &test_route(), RequestOptions::default()).hash
        };
        let mut a = ModelContext::new(vec![Item::user_message("a"), Item::assistant_message("b")]);
        let mut b = ModelContext::new(vec![
            Item::user_message("a"),
            Item::assistant_message("x"),
            Item::user_message("y"),
        ]);
        assert_ne!(hash(&mut a), hash(&mut b));
        b.truncate(1);
        b.push(Item::assistant_message("b"));
        assert_eq!(hash(&mut a), hash(&mut b));
        assert_eq!(a, b);
    }

    #[test]
    fn a_call_without_its_result_is_an_orphan() {
        let call = Item::ToolCall { call_id: "c1".into(), name: "Read".into(), arguments: "{}".into() };
        let result = Item::ToolResult {
            call_id: "c1".into(),
            summary: "ok".into(),
            content: None,
            is_error: false,
            blob: None,
            images: Vec::new(),
        };
        let mut context = ModelContext::new(vec![Item::user_message("a"), call]);
        assert_eq!(context.orphan_call(), Some("c1".into()));
        context.push(result);
        assert_eq!(context.orphan_call(), None);
    }
}
