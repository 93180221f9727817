//! Assigns pieces of calls to their calls, although providers number, name and identify them differently.
//!
//! Invariant: pieces of parallel calls do not mix, and no two calls of a reply have the same id (`calls_*` in
//! `mod`).

use super::super::lenient::JsonNesting;

/// One call of the reply. Its key is its position in the list.
#[derive(Debug)]
pub(super) struct PartialCall {
    index: Option<u64>,
    /// The provider's id, or empty so far.
    wire_id: String,
    /// The public id, or empty before the call has a block.
    id: String,
    pub(super) name: String,
    /// Arguments that arrived before the name. A block needs the name to start.
    pub(super) early_arguments: String,
    pub(super) arguments: JsonNesting,
}

/// The identification of a piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLabel<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    /// Whether the piece contains arguments.
    pub(super) has_arguments: bool,
}

/// The calls of a reply in order of their start.
#[derive(Debug, Default)]
pub(super) struct PartialCalls {
    list: Vec<PartialCall>,
}

impl PartialCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PartialCall> {
        self.list.iter()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut PartialCall> {
        self.list.get_mut(at)
    }

    /// Returns the position of the call that the piece belongs to, and starts a new call if needed.
    pub(super) fn find_or_start(&mut self, label: CallLabel<'_>) -> usize {
        let same_index = |call: &PartialCall| label.index.is_none() || call.index == label.index;
        let same_id = |call: &PartialCall| label.id.is_some_and(|id| call.wire_id == id);
        let found = self
            .list
            .iter()
            .rposition(|call| same_index(call) && same_id(call))
            .or_else(|| self.list.iter().rposition(same_index));
        match found {
            Some(at) if !is_another_call(&self.list[at], label) => {
                let call = &mut self.list[at];
                if let Some(id) = label.id {
                    id.clone_into(&mut call.wire_id);
                }
                if let (true, Some(name)) = (call.name.is_empty(), label.name) {
                    name.clone_into(&mut call.name);
                }
                at
            }
            Some(_) | None => {
                self.list.push(PartialCall {
                    index: label.index,
                    wire_id: label.id.unwrap_or_default().to_owned(),
                    id: String::new(),
                    name: label.name.unwrap_or_default().to_owned(),
                    early_arguments: String::new(),
                    arguments: JsonNesting::default(),
                });
                self.list.len() - 1
            }
        }
    }

    /// Assigns an id to a call: the provider's, unless it is missing or used by another call.
    pub(super) fn assign_id(&mut self, at: usize) -> String {
        let wire = self.list.get(at).map(|call| call.wire_id.clone()).unwrap_or_default();
        let free = |id: &String| !id.is_empty() && !self.list.iter().any(|call| call.id == *id);
        let stem = if wire.is_empty() { "call" } else { &wire };
        // There are fewer calls than candidates, so one is free.
        let ours = (at..=at + self.list.len()).map(|number| format!("{stem}_{number}"));
        let id = std::iter::once(wire.clone()).chain(ours).find(free).unwrap_or_default();
        if let Some(call) = self.list.get_mut(at) {
            call.id.clone_from(&id);
        }
        id
    }
}

/// Returns whether a piece starts a new call although its index equals that of `call` or is missing.
fn is_another_call(call: &PartialCall, label: CallLabel<'_>) -> bool {
    if let (Some(id), false) = (label.id, call.wire_id.is_empty()) {
        return id != call.wire_id;
    }
    let Some(name) = label.name else { return false };
    if !call.name.is_empty() && call.name != name {
        return true;
    }
    // Some servers repeat the name in every piece. But complete arguments accept no more text, so more of it
    // belongs to another call.
    !call.name.is_empty() && label.has_arguments && call.arguments.is_complete()
}
