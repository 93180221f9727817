//! Calls: which call a piece belongs to, when providers number, name and identify them as they like.
//!
//! Invariant: pieces of parallel calls do not mix, and no two calls of a reply have the same id (`calls_*` in `mod`).

use super::super::loose::Nesting;

/// One call of the reply. Its place in the list is its key.
#[derive(Debug)]
pub(super) struct Call {
    index: Option<u64>,
    /// The provider's id; empty if it gave none so far.
    wire_id: String,
    /// The id that the rest of the program sees; empty before the call has a block.
    id: String,
    pub(super) name: String,
    /// Arguments that came before the name, which a block needs to begin.
    pub(super) early: String,
    pub(super) arguments: Nesting,
}

/// What a piece says about where it belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    /// It brings arguments.
    pub(super) brings: bool,
}

/// The calls of a reply, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Call>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.list.iter()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Call> {
        self.list.get_mut(at)
    }

    /// The call that the piece belongs to, begun if it is a new one. Gives its place.
    pub(super) fn place(&mut self, label: Label<'_>) -> usize {
        let same_index = |call: &Call| label.index.is_none() || call.index == label.index;
        let same_id = |call: &Call| label.id.is_some_and(|id| call.wire_id == id);
        let found = self
            .list
            .iter()
            .rposition(|call| same_index(call) && same_id(call))
            .or_else(|| self.list.iter().rposition(same_index));
        match found {
            Some(at) if !begins_another(&self.list[at], label) => {
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
                self.list.push(Call {
                    index: label.index,
                    wire_id: label.id.unwrap_or_default().to_owned(),
                    id: String::new(),
                    name: label.name.unwrap_or_default().to_owned(),
                    early: String::new(),
                    arguments: Nesting::default(),
                });
                self.list.len() - 1
            }
        }
    }

    /// Gives the call at a place its id: the provider's, unless it has none or another call has the same.
    pub(super) fn identify(&mut self, at: usize) -> String {
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

/// Whether a piece with the same index as a call, or with none, begins another call all the same.
fn begins_another(call: &Call, label: Label<'_>) -> bool {
    if let (Some(id), false) = (label.id, call.wire_id.is_empty()) {
        return id != call.wire_id;
    }
    let Some(name) = label.name else { return false };
    if !call.name.is_empty() && call.name != name {
        return true;
    }
    // Some repeat the name with every piece. But whole arguments take no more, so more of them are another call's.
    !call.name.is_empty() && label.brings && call.arguments.is_whole()
}
