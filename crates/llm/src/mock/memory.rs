//! Memory: which conversation a request goes on with, and how often it was made.
//!
//! A pod tells the scripted model how many of its requests have ended; over HTTP there is only the history in the
//! request. Replies in it can be counted, but a request that failed, or was cut off before a block ended, leaves none.
//! So the newest request of each conversation is kept, by a hash of its history, with what came of it.
//! Invariant: a conversation over HTTP gets the turns that it would get inside a pod
//! (`a_request_that_left_nothing_behind_has_used_a_turn`).

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use minke_model::{ATTEMPTS, FailureKind};
use minke_record::{Item, Role};

use crate::scripted::text_of;

/// Conversations that are kept; the one that was asked longest ago is forgotten first.
const CONVERSATIONS: usize = 1_024;

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole,
    Cut,
    Failed { retryable: bool },
}

impl From<FailureKind> for Outcome {
    fn from(kind: FailureKind) -> Outcome {
        match kind {
            FailureKind::Cut => Outcome::Cut,
            FailureKind::Transient | FailureKind::Permanent | FailureKind::TooLong | FailureKind::Refused => {
                Outcome::Failed { retryable: kind.retryable() }
            }
        }
    }
}

/// Where a request stands in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// Requests that ended before this one.
    pub(super) ended: u64,
    /// Attempts of this request before this one.
    pub(super) attempt: u32,
    key: u64,
    route: u64,
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    ended: u64,
    attempt: u32,
    route: u64,
    outcome: Outcome,
    at: u64,
}

/// The newest request of each conversation.
#[derive(Debug, Default)]
pub(super) struct Memory {
    newest: HashMap<u64, Newest>,
    clock: u64,
}

impl Memory {
    /// Finds out where a request stands. What comes of it must be told with `note`.
    pub(super) fn find(&mut self, route: &str, items: &[Arc<Item>]) -> Standing {
        let chain = Chain::new(items);
        let key = chain.links.last().map_or(0, |link| link.hash);
        let route = hash_of(route);
        if let Some(known) = self.newest.get(&key) {
            let (ended, attempt) = again(known, &chain, route);
            return Standing { ended, attempt, key, route };
        }
        let known = chain.links.iter().enumerate().rev().find_map(|(at, link)| {
            // The conversation has moved on: the same beginning is a new conversation from now on.
            self.newest.remove(&link.hash).map(|known| (at, known))
        });
        let ended = match known {
            // Whatever came of it, the earlier request has used one turn; the first reply after it was its own.
            Some((at, known)) => known.ended + 1 + chain.replies_after(at),
            None => chain.replies(),
        };
        Standing { ended, attempt: 0, key, route }
    }

    pub(super) fn note(&mut self, standing: Standing, outcome: Outcome) {
        self.clock += 1;
        if self.newest.len() >= CONVERSATIONS {
            let oldest = self.newest.iter().min_by_key(|(_, known)| known.at).map(|(key, _)| *key);
            oldest.and_then(|key| self.newest.remove(&key));
        }
        let Standing { ended, attempt, key, route } = standing;
        self.newest.insert(key, Newest { ended, attempt, route, outcome, at: self.clock });
    }
}

/// The same request once more: another attempt, the continuation of a reply that left nothing, a fallback to another
/// model, or a new conversation that begins like an old one. Gives the ended requests and the attempt.
fn again(known: &Newest, chain: &Chain, route: u64) -> (u64, u32) {
    match known.outcome {
        Outcome::Failed { retryable: true } if route == known.route && known.attempt + 1 < ATTEMPTS => {
            (known.ended, known.attempt + 1)
        }
        Outcome::Cut => (known.ended + 1, 0),
        Outcome::Failed { .. } if route != known.route => (known.ended + 1, 0),
        Outcome::Failed { .. } | Outcome::Whole => (chain.replies(), 0),
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A history as a chain of hashes, without what another provider is not sent.
struct Chain {
    links: Vec<Link>,
}

struct Link {
    /// Of everything up to here.
    hash: u64,
    reply: bool,
}

impl Chain {
    fn new(items: &[Arc<Item>]) -> Chain {
        let mut hasher = DefaultHasher::new();
        let mut links = Vec::with_capacity(items.len());
        for item in items {
            let reply = match &**item {
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
                // It is dropped when the session moves to another provider.
                Item::Reasoning { .. } | Item::Unknown => continue,
            };
            text_of(item).hash(&mut hasher);
            links.push(Link { hash: hasher.finish(), reply });
        }
        Chain { links }
    }

    /// Unbroken rows of what the assistant said.
    fn replies(&self) -> u64 {
        self.rows(0, false)
    }

    /// The rows after a link, without the one that follows it directly.
    fn replies_after(&self, at: usize) -> u64 {
        self.rows(at + 1, true)
    }

    fn rows(&self, from: usize, mut in_reply: bool) -> u64 {
        let mut rows = 0;
        for link in self.links.iter().skip(from) {
            rows += u64::from(link.reply && !in_reply);
            in_reply = link.reply;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Arc<Item> {
        Arc::new(Item::user(text))
    }
    fn said(text: &str) -> Arc<Item> {
        Arc::new(Item::assistant(text))
    }

    /// `(ended, attempt)` of each request in a row, with what comes of it.
    fn asked(requests: &[(&[Arc<Item>], Outcome)]) -> Vec<(u64, u32)> {
        let mut memory = Memory::default();
        let mut seen = Vec::new();
        for (items, outcome) in requests {
            let standing = memory.find("anthropic/m", items);
            seen.push((standing.ended, standing.attempt));
            memory.note(standing, *outcome);
        }
        seen
    }

    const BUSY: Outcome = Outcome::Failed { retryable: true };
    const REFUSED: Outcome = Outcome::Failed { retryable: false };

    #[test]
    fn attempts_of_one_request_are_counted() {
        let first: &[_] = &[user("a")];
        let second: &[_] = &[user("a"), said("b"), user("c")];
        let seen = asked(&[(first, BUSY), (first, BUSY), (first, Outcome::Whole), (second, Outcome::Whole)]);
        assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }

    #[test]
    fn a_request_that_left_nothing_behind_has_used_a_turn() {
        let first: &[_] = &[user("a")];
        let second: &[_] = &[user("a"), user("b")];
        assert_eq!(asked(&[(first, Outcome::Cut), (first, Outcome::Whole)]), [(0, 0), (1, 0)]);
        assert_eq!(asked(&[(first, REFUSED), (second, Outcome::Whole)]), [(0, 0), (1, 0)]);
        let third: &[_] = &[user("a"), said("kept"), user("go on")];
        let fourth: &[_] = &[user("a"), said("kept"), user("go on"), said("x"), user("y")];
        let seen = asked(&[(first, Outcome::Cut), (third, Outcome::Whole), (fourth, Outcome::Whole)]);
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn the_same_beginning_again_is_a_new_conversation() {
        let first: &[_] = &[user("a")];
        let second: &[_] = &[user("a"), said("b"), user("c")];
        let seen =
            asked(&[(first, Outcome::Whole), (second, Outcome::Whole), (first, BUSY), (first, REFUSED)]);
        assert_eq!(seen, [(0, 0), (1, 0), (0, 0), (0, 1)]);
        assert_eq!(asked(&[(first, REFUSED), (first, BUSY)]), [(0, 0), (0, 0)]);
    }

    #[test]
    fn another_model_after_a_failure_is_a_fallback() {
        let items = [user("a")];
        let mut memory = Memory::default();
        let standing = memory.find("anthropic/m", &items);
        memory.note(standing, BUSY);
        let standing = memory.find("gemini/n", &items);
        assert_eq!((standing.ended, standing.attempt), (1, 0));
        memory.note(standing, Outcome::Whole);
        assert_eq!(memory.find("gemini/n", &[user("a"), said("b"), user("c")]).ended, 2);
    }

    #[test]
    fn a_history_from_elsewhere_is_counted_by_its_replies() {
        let call = Arc::new(Item::ToolCall {
            call_id: minke_record::CallId("1".into()),
            name: "Read".into(),
            arguments: "{}".into(),
        });
        assert_eq!(
            asked(&[(&[user("a"), said("b"), call, user("c"), said("d"), user("e")], BUSY)]),
            [(2, 0)]
        );
    }

    #[test]
    fn only_so_many_conversations_are_kept() {
        let mut memory = Memory::default();
        for number in 0..2 * CONVERSATIONS {
            let standing = memory.find("r", &[user(&number.to_string())]);
            memory.note(standing, BUSY);
        }
        assert_eq!(memory.newest.len(), CONVERSATIONS);
        assert_eq!(memory.find("r", &[user("0")]).attempt, 0);
        assert_eq!(memory.find("r", &[user(&(2 * CONVERSATIONS - 1).to_string())]).attempt, 1);
    }
}
