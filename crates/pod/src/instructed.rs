//! Instructions of a subtree: told to the model once, when its work moves there.
//!
//! Here: which of them have been told since the context began, and how much of them there may be. Elsewhere: finding and
//! reading them (`sources`, `driver`), those of the directories above (the system prompt).
//! Invariant: each file is told once as long as the model can see it, and all of them stay within their bounds
//! (`instructions_of_a_subtree_are_told_when_work_moves_there_and_once`).

use minke_prompts::Snippet;
use minke_record::{CallId, Instructed, SystemEntry, SystemItem, SystemKind};
use serde_json::{Value, json};

use crate::input::Instructions;
use crate::pod::{Making, Pod};
use crate::state::State;

/// Files that are told in one context.
const FILES: usize = 32;
/// How long they are together. What does not fit is only named.
const BYTES: u64 = 64 << 10;
const PATH: &str = "instructions";
const CALL: &str = "call_id";

/// The file of instructions that an item tells, and the call that led to it.
pub fn instructions_told(item: &SystemItem) -> Option<(&str, &str)> {
    let cause = item.cause.as_ref().filter(|_| item.kind == SystemKind::FileAttachment)?;
    Some((cause.get(PATH)?.as_str()?, cause.get(CALL)?.as_str()?))
}

fn cause(path: &str, call_id: &CallId) -> Value {
    json!({ PATH: path, CALL: call_id.0 })
}

impl Pod {
    /// What lies where a call has worked; told with the next request, when every call has its result.
    pub(crate) fn found_instructions(&mut self, call_id: &CallId, found: Vec<Instructions>) {
        self.life.instructions.extend(found.into_iter().map(|found| (call_id.clone(), found)));
    }

    pub(crate) fn tell_instructions(&mut self, m: &mut Making) {
        for (call_id, Instructions { path, body }) in std::mem::take(&mut self.life.instructions) {
            let told = &self.state.facts.instructed;
            if told.len() >= FILES || told.iter().any(|told| told.path == path) {
                continue;
            }
            let sum: u64 = told.iter().map(|told| told.bytes).sum();
            let fits = sum.saturating_add(body.len() as u64) <= BYTES;
            let body = if fits {
                body
            } else {
                self.state.catalog().say(Snippet::InstructionsNamed, &[("path", &path)])
            };
            let cause = Some(cause(&path, &call_id));
            let item = SystemItem { kind: SystemKind::FileAttachment, cause, body: body.into() };
            self.note(m, SystemEntry { item, note: None });
        }
    }
}

impl State {
    /// Keeps in mind what was told.
    pub(crate) fn instructions_shown(&mut self, item: &SystemItem) {
        if let Some((path, _)) = instructions_told(item) {
            self.facts.instructed.push(Instructed { path: path.to_owned(), bytes: item.body.bytes() });
        }
    }
}
