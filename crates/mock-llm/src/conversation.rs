//! Assigns a request to its conversation and counts its attempts.
//!
//! A pod tells the scripted model how many requests have ended. Over HTTP there is only the history in the
//! request. Its replies can be counted, but a failed request, or one that was truncated before a block ended,
//! leaves none. So the latest request of each conversation is stored with its outcome, keyed by a hash of its
//! history. Invariant: a conversation over HTTP gets the same turns as inside a pod
//! (`a_request_that_left_nothing_behind_has_used_a_turn`).

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use minke_model::{MAX_ATTEMPTS, ModelErrorKind};
use minke_record::{Item, Role};

use minke_llm::item_text;

/// The most stored conversations. The least recently used one is evicted.
const MAX_CONVERSATIONS: usize = 1_024;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Completed,
    Interrupted,
    Failed { retryable: bool },
}

impl From<ModelErrorKind> for RequestOutcome {
    fn from(kind: ModelErrorKind) -> RequestOutcome {
        match kind {
            ModelErrorKind::Interrupted => RequestOutcome::Interrupted,
            ModelErrorKind::Transient
            | ModelErrorKind::Permanent
            | ModelErrorKind::ContextTooLong
            | ModelErrorKind::Refused => RequestOutcome::Failed { retryable: kind.is_retryable() },
        }
    }
}

/// The position of a request in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestPosition {
    /// Requests that ended earlier.
    pub(crate) ended: u64,
    /// Earlier attempts of this request.
    pub(crate) attempt: u32,
    key: u64,
    route: u64,
}

#[derive(Debug, Clone, Copy)]
struct LatestRequest {
    ended: u64,
    attempt: u32,
    route: u64,
    outcome: RequestOutcome,
    last_used: u64,
}

/// The latest request of each conversation.
#[derive(Debug, Default)]
pub(crate) struct ConversationTracker {
    latest: HashMap<u64, LatestRequest>,
    tick: u64,
}

impl ConversationTracker {
    /// Returns the position of a request. Its outcome must be recorded with `record_outcome`.
    pub(crate) fn locate_request(&mut self, route: &str, items: &[Arc<Item>]) -> RequestPosition {
        let chain = HistoryChain::new(items);
        let key = chain.links.last().map_or(0, |link| link.hash);
        let route = hash_text(route);
        if let Some(latest_request) = self.latest.get(&key) {
            let (ended, attempt) = position_after(latest_request, &chain, route);
            return RequestPosition { ended, attempt, key, route };
        }
        let known = chain.links.iter().enumerate().rev().find_map(|(at, link)| {
            // The conversation has continued, so the same start is a new conversation from now on.
            self.latest.remove(&link.hash).map(|latest_request| (at, latest_request))
        });
        let ended = match known {
            // The earlier request has used one turn, whatever its outcome; the first reply after it is its
            // own.
            Some((at, known)) => known.ended + 1 + chain.count_replies_after(at),
            None => chain.count_replies(),
        };
        RequestPosition { ended, attempt: 0, key, route }
    }

    pub(crate) fn record_outcome(&mut self, standing: RequestPosition, outcome: RequestOutcome) {
        self.tick += 1;
        if self.latest.len() >= MAX_CONVERSATIONS {
            let oldest = self
                .latest
                .iter()
                .min_by_key(|(_, latest_request)| latest_request.last_used)
                .map(|(key, _)| *key);
            oldest.and_then(|key| self.latest.remove(&key));
        }
        let RequestPosition { ended, attempt, key, route } = standing;
        self.latest.insert(key, LatestRequest { ended, attempt, route, outcome, last_used: self.tick });
    }
}

/// Returns the ended requests and the attempt of a repeated request: another attempt, the continuation after
/// an empty reply, a fallback to another model, or a new conversation with the same start.
fn position_after(latest_request: &LatestRequest, chain: &HistoryChain, route: u64) -> (u64, u32) {
    match latest_request.outcome {
        RequestOutcome::Failed { retryable: true }
            if route == latest_request.route && latest_request.attempt + 1 < MAX_ATTEMPTS =>
        {
            (latest_request.ended, latest_request.attempt + 1)
        }
        RequestOutcome::Interrupted => (latest_request.ended + 1, 0),
        RequestOutcome::Failed { .. } if route != latest_request.route => (latest_request.ended + 1, 0),
        RequestOutcome::Failed { .. } | RequestOutcome::Completed => (chain.count_replies(), 0),
    }
}

fn hash_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A history as a chain of hashes, without content that is not sent to other providers.
struct HistoryChain {
    links: Vec<ChainLink>,
}

struct ChainLink {
    /// Hash of the history up to here.
    hash: u64,
    is_reply: bool,
}

impl HistoryChain {
    fn new(items: &[Arc<Item>]) -> HistoryChain {
        let mut hasher = DefaultHasher::new();
        let mut links = Vec::with_capacity(items.len());
        for item in items {
            let is_reply = match &**item {
                Item::Message { role, .. } => {
                    role.as_str().hash(&mut hasher);
                    *role == Role::Assistant
                }
                Item::ToolCall { name, .. } => {
                    name.hash(&mut hasher);
                    true
                }
                Item::ToolResult { is_error, .. } => {
                    is_error.hash(&mut hasher);
                    false
                }
                // Dropped when the session switches to another provider.
                Item::Reasoning { .. } | Item::Unknown => continue,
            };
            item_text(item).hash(&mut hasher);
            links.push(ChainLink { hash: hasher.finish(), is_reply });
        }
        HistoryChain { links }
    }

    /// Counts the contiguous groups of assistant items.
    fn count_replies(&self) -> u64 {
        self.count_reply_groups(0, false)
    }

    /// Counts the groups after a link, except one directly after it.
    fn count_replies_after(&self, at: usize) -> u64 {
        self.count_reply_groups(at + 1, true)
    }

    fn count_reply_groups(&self, from: usize, mut in_reply: bool) -> u64 {
        let mut rows = 0;
        for link in self.links.iter().skip(from) {
            rows += u64::from(link.is_reply && !in_reply);
            in_reply = link.is_reply;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_item(text: &str) -> Arc<Item> {
        Arc::new(Item::user_message(text))
    }
    fn assistant_item(text: &str) -> Arc<Item> {
        Arc::new(Item::assistant_message(text))
    }

    /// Returns `(ended, attempt)` of each request in a sequence with the given outcomes.
    fn request_positions(requests: &[(&[Arc<Item>], RequestOutcome)]) -> Vec<(u64, u32)> {
        let mut memory = ConversationTracker::default();
        let mut seen = Vec::new();
        for (items, outcome) in requests {
            let standing = memory.locate_request("anthropic/m", items);
            seen.push((standing.ended, standing.attempt));
            memory.record_outcome(standing, *outcome);
        }
        seen
    }

    const BUSY: RequestOutcome = RequestOutcome::Failed { retryable: true };
    const REFUSED: RequestOutcome = RequestOutcome::Failed { retryable: false };

    #[test]
    fn attempts_of_one_request_are_counted() {
        let first: &[_] = &[user_item("a")];
        let second: &[_] = &[user_item("a"), assistant_item("b"), user_item("c")];
        let seen = request_positions(&[
            (first, BUSY),
            (first, BUSY),
            (first, RequestOutcome::Completed),
            (second, RequestOutcome::Completed),
        ]);
        assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }

    #[test]
    fn a_request_that_left_nothing_behind_has_used_a_turn() {
        let first: &[_] = &[user_item("a")];
        let second: &[_] = &[user_item("a"), user_item("b")];
        assert_eq!(
            request_positions(&[(first, RequestOutcome::Interrupted), (first, RequestOutcome::Completed)]),
            [(0, 0), (1, 0)]
        );
        assert_eq!(
            request_positions(&[(first, REFUSED), (second, RequestOutcome::Completed)]),
            [(0, 0), (1, 0)]
        );
        let third: &[_] = &[user_item("a"), assistant_item("kept"), user_item("continue")];
        let fourth: &[_] = &[
            user_item("a"),
            assistant_item("kept"),
            user_item("continue"),
            assistant_item("x"),
            user_item("y"),
        ];
        let seen = request_positions(&[
            (first, RequestOutcome::Interrupted),
            (third, RequestOutcome::Completed),
            (fourth, RequestOutcome::Completed),
        ]);
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn the_same_beginning_again_is_a_new_conversation() {
        let first: &[_] = &[user_item("a")];
        let second: &[_] = &[user_item("a"), assistant_item("b"), user_item("c")];
        let seen = request_positions(&[
            (first, RequestOutcome::Completed),
            (second, RequestOutcome::Completed),
            (first, BUSY),
            (first, REFUSED),
        ]);
        assert_eq!(seen, [(0, 0), (1, 0), (0, 0), (0, 1)]);
        assert_eq!(request_positions(&[(first, REFUSED), (first, BUSY)]), [(0, 0), (0, 0)]);
    }

    #[test]
    fn another_model_after_a_failure_is_a_fallback() {
        let items = [user_item("a")];
        let mut memory = ConversationTracker::default();
        let standing = memory.locate_request("anthropic/m", &items);
        memory.record_outcome(standing, BUSY);
        let standing = memory.locate_request("gemini/n", &items);
        assert_eq!((standing.ended, standing.attempt), (1, 0));
        memory.record_outcome(standing, RequestOutcome::Completed);
        assert_eq!(
            memory.locate_request("gemini/n", &[user_item("a"), assistant_item("b"), user_item("c")]).ended,
            2
        );
    }

    #[test]
    fn a_history_from_elsewhere_is_counted_by_its_replies() {
        let call = Arc::new(Item::ToolCall {
            call_id: minke_record::CallId("1".into()),
            name: "Read".into(),
            arguments: "{}".into(),
        });
        assert_eq!(
            request_positions(&[(
                &[
                    user_item("a"),
                    assistant_item("b"),
                    call,
                    user_item("c"),
                    assistant_item("d"),
                    user_item("e")
                ],
                BUSY
            )]),
            [(2, 0)]
        );
    }

    #[test]
    fn only_so_many_conversations_are_kept() {
        let mut memory = ConversationTracker::default();
        for number in 0..2 * MAX_CONVERSATIONS {
            let standing = memory.locate_request("r", &[user_item(&number.to_string())]);
            memory.record_outcome(standing, BUSY);
        }
        assert_eq!(memory.latest.len(), MAX_CONVERSATIONS);
        assert_eq!(memory.locate_request("r", &[user_item("0")]).attempt, 0);
        assert_eq!(
            memory.locate_request("r", &[user_item(&(2 * MAX_CONVERSATIONS - 1).to_string())]).attempt,
            1
        );
    }
}
