//! Context: from entries to the next prompt.
//!
//! Here: the items that the next request shows, each with a running hash, and the prompt made from them. Pruning and
//! compaction will live here too.
//! Invariant: the context grows only at its end, except by a recorded reset or rollback, and a request's hash is a
//! function of the log alone (`the_same_items_give_the_same_hash`).

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_model::{Prompt, Reasoning, Sampling};
use minke_record::{CallId, Item, Purpose, Route, Text, ToolSpec, hex};
use sha2::{Digest, Sha256};

/// Which way of making requests from a context this is; part of every request hash.
pub const BUILDER: u32 = 2;

/// The items that the next request shows to the model.
#[derive(Debug, Clone, Default)]
pub struct Context {
    items: Vec<Arc<Item>>,
    /// Hash and length of everything up to and including each item, so that a request reads only what is new. Made
    /// when a request needs it: folding a long log must not pay for it.
    links: Vec<Link>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    hash: [u8; 32],
    bytes: u64,
}

/// Two contexts are the same if they show the same; how far the hashes have been made does not matter.
impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        self.items == other.items
    }
}

/// What is fixed within a segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    pub number: u64,
    /// seq of its `segment_start`.
    pub start: u64,
    pub system_prompt: Text,
    pub tools: Arc<Vec<ToolSpec>>,
    pub config: serde_json::Value,
}

/// What a request has beside context and segment.
#[derive(Debug, Clone, Default)]
pub struct Asking {
    pub max_tokens: Option<u64>,
    pub reasoning: Option<Reasoning>,
    pub sampling: Sampling,
    pub cache_key: Option<String>,
    /// How many requests of this session have ended.
    pub ended: u64,
}

/// What a token is estimated by.
const BYTES_A_TOKEN: u64 = 4;

/// A request and its hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub prompt: Arc<Prompt>,
    pub hash: String,
    /// A rough count: bytes ÷ 4, until a provider has said better.
    pub input_tokens: u64,
}

impl Context {
    pub fn new(items: Vec<Item>) -> Context {
        let mut context = Context::default();
        for item in items {
            context.push(item);
        }
        context
    }

    pub fn push(&mut self, item: Item) {
        self.items.push(Arc::new(item));
    }

    /// Goes back to a length; used by a rollback.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
        self.links.truncate(len);
    }

    fn link(&mut self) -> Link {
        let mut last = self.links.last().copied().unwrap_or_default();
        for item in self.items.iter().skip(self.links.len()) {
            let json = serde_json::to_vec(&**item).expect("an item is plain data");
            let mut hash = Sha256::new();
            hash.update(last.hash);
            hash.update(&json);
            last = Link { hash: hash.finalize().into(), bytes: last.bytes + json.len() as u64 };
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

    /// A copy of the items, for a carry.
    pub fn to_items(&self) -> Vec<Item> {
        self.items.iter().map(|item| item.as_ref().clone()).collect()
    }

    /// A call whose result is not in the context.
    pub fn orphan(&self) -> Option<CallId> {
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

    /// What the next request's input is estimated to be, in tokens.
    pub fn input_tokens(&mut self, segment: &Segment) -> u64 {
        (self.link().bytes + segment.system_prompt.bytes()) / BYTES_A_TOKEN
    }

    /// The next request.
    pub fn request(&mut self, segment: &Segment, route: &Route, asking: Asking) -> Request {
        let link = self.link();
        let prompt = Prompt {
            route: route.clone(),
            purpose: Purpose::Turn,
            system: segment.system_prompt.clone(),
            tools: segment.tools.clone(),
            items: self.items.clone(),
            max_tokens: asking.max_tokens,
            reasoning: asking.reasoning,
            sampling: asking.sampling,
            cache_key: asking.cache_key,
            images: BTreeMap::new(),
            ended: Some(asking.ended),
        };
        let mut hash = Sha256::new();
        hash.update(BUILDER.to_be_bytes());
        for part in [
            serde_json::to_vec(route),
            serde_json::to_vec(&segment.system_prompt),
            serde_json::to_vec(&*segment.tools),
            serde_json::to_vec(&asking.max_tokens),
            serde_json::to_vec(&asking.reasoning),
        ] {
            let part = part.expect("a request is plain data");
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        // Only where somebody said something: requests of older sessions keep their hash.
        if prompt.sampling != Sampling::default() {
            let part = serde_json::to_vec(&prompt.sampling).expect("a request is plain data");
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(link.hash);
        let input_tokens = (link.bytes + segment.system_prompt.bytes()) / BYTES_A_TOKEN;
        Request { prompt: Arc::new(prompt), hash: hex(&hash.finalize()), input_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        Segment {
            number: 0,
            start: 1,
            system_prompt: "be brief".into(),
            tools: Arc::new(Vec::new()),
            config: serde_json::Value::Null,
        }
    }

    fn route() -> Route {
        Route { provider: "scripted".into(), model: "x".into(), scheme: "scripted".into() }
    }

    #[test]
    fn the_same_items_give_the_same_hash() {
        let hash = |context: &mut Context| context.request(&segment(), &route(), Asking::default()).hash;
        let mut a = Context::new(vec![Item::user("a"), Item::assistant("b")]);
        let mut b = Context::new(vec![Item::user("a"), Item::assistant("x"), Item::user("y")]);
        assert_ne!(hash(&mut a), hash(&mut b));
        b.truncate(1);
        b.push(Item::assistant("b"));
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
        let mut context = Context::new(vec![Item::user("a"), call]);
        assert_eq!(context.orphan(), Some("c1".into()));
        context.push(result);
        assert_eq!(context.orphan(), None);
    }
}
