//! Instruction files of subdirectories: shown to the model once, when its work enters their directory.
//!
//! Elsewhere: finding and reading them (`sources`, `driver`), the files of parent directories (the system
//! prompt).
//! Invariant: each file is shown once while it stays in the context, and all of them stay within their limits
//! (`instructions_of_a_subtree_are_told_when_work_moves_there_and_once`).

use minke_prompts::Snippet;
use minke_record::{CallId, Instructed, SystemEntry, SystemItem, SystemKind};
use serde_json::{Value, json};

use crate::calls::table::CallTable;
use crate::input::NestedInstructions;
use crate::state::State;
use crate::step_builder::StepBuilder;

/// Maximum number of files in one context.
const MAX_FILES: usize = 32;
/// Maximum total size. Larger files are only named.
const MAX_BYTES: u64 = 64 << 10;
const PATH_KEY: &str = "instructions";
const CALL_KEY: &str = "call_id";

/// Returns path and call id of an instruction file that an item shows.
pub fn shown_instructions(item: &SystemItem) -> Option<(&str, &str)> {
    let cause = item.cause.as_ref().filter(|_| item.kind == SystemKind::FileAttachment)?;
    Some((cause.get(PATH_KEY)?.as_str()?, cause.get(CALL_KEY)?.as_str()?))
}

fn instructions_cause(path: &str, call_id: &CallId) -> Value {
    json!({ PATH_KEY: path, CALL_KEY: call_id.0 })
}

impl CallTable {
    /// Adds instruction files that a call has found. The next request shows them, after all results.
    pub(crate) fn add_instructions(&mut self, call_id: &CallId, instructions: Vec<NestedInstructions>) {
        self.pending_instructions.extend(instructions.into_iter().map(|found| (call_id.clone(), found)));
    }

    pub(crate) fn append_instructions(&mut self, step: &mut StepBuilder<'_>) {
        for (call_id, NestedInstructions { path, body }) in std::mem::take(&mut self.pending_instructions) {
            let shown = &step.state.facts.instructed;
            if shown.len() >= MAX_FILES || shown.iter().any(|told| told.path == path) {
                continue;
            }
            let sum: u64 = shown.iter().map(|told| told.bytes).sum();
            let fits = sum.saturating_add(body.len() as u64) <= MAX_BYTES;
            let body = if fits {
                body
            } else {
                step.state.session_catalog().render(Snippet::InstructionsNamed, &[("path", &path)])
            };
            let cause = Some(instructions_cause(&path, &call_id));
            let item = SystemItem { kind: SystemKind::FileAttachment, cause, body: body.into() };
            step.append_entry(SystemEntry { item, note: None });
        }
    }
}

impl State {
    /// Remembers the shown instruction file.
    pub(crate) fn remember_instructions(&mut self, item: &SystemItem) {
        if let Some((path, _)) = shown_instructions(item) {
            self.facts.instructed.push(Instructed { path: path.to_owned(), bytes: item.body.byte_len() });
        }
    }
}
