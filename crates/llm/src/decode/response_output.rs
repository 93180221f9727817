//! The output items of one response and how much of each has been emitted.
//!
//! The same text arrives up to four times: in pieces, with its part, with its item and with the response, and
//! any of these may be missing. Here: the emitted text is remembered by length and hash, and only the rest is
//! emitted. Elsewhere: the events (`responses`), one item (`output_items`). Invariant: each part of each item
//! is emitted once and completely (tests in `tests/conformance.rs` and `responses`).

use minke_model::{BlockKind, ModelEvent};
use serde_json::Value;

use super::blocks::OpenBlocks;
pub(crate) use super::output_items::ItemPart;
use super::output_items::{EmittedText, OutputItem, OutputItemKind, call_arguments};
use super::wire_event::{CallIdSet, collect_readable, text_field};

/// The position of an event. The index takes precedence: some servers change ids between events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventPosition<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<&'a str>,
}

/// All items of one response in order of their first appearance.
#[derive(Debug)]
pub(crate) struct ResponseOutput {
    items: Vec<OutputItem>,
    /// Keyed by the index in `items` and the index of the part in the item (0 if the item is one block).
    blocks: OpenBlocks<(usize, u64)>,
    call_ids: CallIdSet,
    unknown_count: u64,
}

impl ResponseOutput {
    pub(crate) fn new() -> ResponseOutput {
        ResponseOutput {
            items: Vec::new(),
            blocks: OpenBlocks::new(),
            call_ids: CallIdSet::default(),
            unknown_count: 0,
        }
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.call_ids.has_calls()
    }

    pub(crate) fn count_unknown(&self) -> u64 {
        self.unknown_count
    }

    /// Emits a piece of a part.
    pub(crate) fn push_piece(
        &mut self,
        position: EventPosition<'_>,
        part: ItemPart,
        piece: &str,
        out: &mut Vec<ModelEvent>,
    ) {
        let open = self.find_item(position, &part.item_kind()).filter(|at| !self.is_item_finished(*at));
        let at = match open {
            Some(at) => at,
            // A call without a name cannot start; its arguments arrive again with its item.
            None if part == ItemPart::Arguments => return,
            None => self.insert_item(position, part.item_kind()),
        };
        self.emit_piece(at, part, piece, out);
    }

    /// Emits the rest of a complete part.
    pub(crate) fn push_whole_part(
        &mut self,
        place: EventPosition<'_>,
        part: ItemPart,
        whole: Option<String>,
        out: &mut Vec<ModelEvent>,
    ) {
        let Some(whole) = whole else { return };
        let at = match self.find_item(place, &part.item_kind()) {
            Some(at) => at,
            None if part == ItemPart::Arguments => return,
            None => self.insert_item(place, part.item_kind()),
        };
        self.emit_remaining(at, part, &whole, out);
    }

    /// Handles a complete content part. Its block ends with its item, which may have more.
    pub(crate) fn finish_content_part(
        &mut self,
        position: EventPosition<'_>,
        index: u64,
        part: &Value,
        out: &mut Vec<ModelEvent>,
    ) {
        let at = match self.find_item(position, &OutputItemKind::Message) {
            Some(at) => at,
            None => self.insert_item(position, OutputItemKind::Message),
        };
        self.emit_content(at, index, part, out);
    }

    /// Handles the start of an item. An item at a used position is a new one, unless it has the same id or
    /// the other was not announced: some servers use one position for all items.
    pub(crate) fn add_item(&mut self, position: EventPosition<'_>, item: &Value, out: &mut Vec<ModelEvent>) {
        let place = EventPosition { id: text_field(item, "id").or(position.id), ..position };
        let kind = OutputItemKind::from_item(item);
        let known = self.find_item(place, &kind).filter(|at| {
            self.items.get(*at).is_some_and(|seen| {
                !seen.is_finished
                    && (!seen.is_announced || (seen.id.is_some() && seen.id.as_deref() == place.id))
            })
        });
        let at = known.unwrap_or_else(|| self.insert_item(place, kind));
        if let Some(seen) = self.items.get_mut(at) {
            seen.is_announced = true;
            seen.initial_arguments = call_arguments(item);
        }
        self.start_call(at, item, out);
    }

    /// Handles a complete item, or an incomplete one if `whole` is false because the response was truncated.
    pub(crate) fn finish_announced_item(
        &mut self,
        position: EventPosition<'_>,
        item: &Value,
        whole: bool,
        out: &mut Vec<ModelEvent>,
    ) {
        let place = EventPosition { id: text_field(item, "id").or(position.id), ..position };
        let kind = OutputItemKind::from_item(item);
        let open = self.find_item(place, &kind).filter(|at| {
            self.items.get(*at).is_some_and(|seen| !seen.is_finished || seen.id.as_deref() == place.id)
        });
        let at = open.unwrap_or_else(|| self.insert_item(place, kind));
        self.finish_item(at, item, whole, out);
    }

    /// Handles the end of the response: emits the rest of its items and ends all open blocks.
    pub(crate) fn finish_items(&mut self, items: &[Value], whole: bool, out: &mut Vec<ModelEvent>) {
        let seen = self.items.len();
        let mut free: Vec<usize> = (0..seen).collect();
        for (index, item) in (0..).zip(items) {
            let at = match self.matching_item(&free, index, item) {
                Some(at) => {
                    free.retain(|other| *other != at);
                    at
                }
                None => self.insert_item(
                    EventPosition { index: None, id: text_field(item, "id") },
                    OutputItemKind::from_item(item),
                ),
            };
            self.finish_item(at, item, whole, out);
        }
        for at in free {
            self.finish_item(at, &Value::Null, whole, out);
        }
    }

    /// Returns the known item that equals `item`: by id, call id, position or content, or because it is the
    /// only unfinished one.
    fn matching_item(&self, free: &[usize], index: u64, item: &Value) -> Option<usize> {
        let kind = OutputItemKind::from_item(item);
        let (id, call_id) = (text_field(item, "id"), text_field(item, "call_id"));
        let free = || free.iter().filter_map(|at| self.items.get(*at).map(|seen| (*at, seen)));
        let same = || free().filter(|(_, seen)| seen.kind == kind);
        same()
            .find(|(_, seen)| id.is_some() && seen.id.as_deref() == id)
            .or_else(|| same().find(|(_, seen)| call_id.is_some() && seen.call_id.as_deref() == call_id))
            .or_else(|| {
                same().find(|(_, seen)| {
                    seen.index == Some(index) && (call_id.is_none() || seen.call_id.is_none())
                })
            })
            .or_else(|| same().find(|(_, seen)| call_id.is_none() && seen.is_prefix_of(item)))
            .or_else(|| same().find(|(_, seen)| call_id.is_none() && !seen.is_finished))
            .map(|(at, _)| at)
    }

    /// Returns the item of this kind that an event belongs to: by position and id, by position alone (ids
    /// change between events on some servers), by id alone, or the last open one. The kind matters, because
    /// some servers use one position for a message and the reasoning before it.
    fn find_item(&self, position: EventPosition<'_>, kind: &OutputItemKind) -> Option<usize> {
        let last = |is: &dyn Fn(&OutputItem) -> bool| {
            self.items.iter().rposition(|item| item.kind == *kind && is(item))
        };
        let id = position.id.filter(|id| !id.is_empty());
        let same_id = |item: &OutputItem| id.is_some() && item.id.as_deref() == id;
        match position.index {
            Some(_) => last(&|item| item.index == position.index && same_id(item))
                .or_else(|| last(&|item| item.index == position.index))
                .or_else(|| last(&|item| item.index.is_none() && same_id(item))),
            None if id.is_some() => last(&same_id),
            None => last(&|item| !item.is_finished),
        }
    }

    fn is_item_finished(&self, at: usize) -> bool {
        self.items.get(at).is_some_and(|item| item.is_finished)
    }

    /// Returns the number of items. The caller limits it.
    pub(crate) fn item_count(&self) -> usize {
        self.items.len()
    }

    fn insert_item(&mut self, position: EventPosition<'_>, kind: OutputItemKind) -> usize {
        self.unknown_count += u64::from(matches!(kind, OutputItemKind::Unknown(_)));
        self.items.push(OutputItem {
            index: position.index,
            id: position.id.map(str::to_owned),
            call_id: None,
            kind,
            initial_arguments: None,
            parts: Vec::new(),
            is_announced: false,
            is_finished: false,
        });
        self.items.len() - 1
    }

    fn start_call(&mut self, at: usize, item: &Value, out: &mut Vec<ModelEvent>) {
        let Some(seen) = self.items.get_mut(at) else { return };
        if seen.kind != OutputItemKind::Call || self.blocks.is_open(&(at, 0)) {
            return;
        }
        let Some(name) = text_field(item, "name") else { return };
        let call_id = text_field(item, "call_id").or_else(|| text_field(item, "id"));
        seen.call_id = call_id.map(str::to_owned);
        let id = self.call_ids.unique_id(call_id);
        self.blocks.start_block((at, 0), BlockKind::ToolCall { id, name: name.to_owned() }, out);
    }

    /// Emits a piece of a part in its block.
    fn emit_piece(&mut self, at: usize, part: ItemPart, piece: &str, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.get_mut(at) else { return };
        if item.is_finished || item.kind != part.item_kind() || piece.is_empty() {
            return;
        }
        let key = (at, part.block_key());
        let first = !item.parts.iter().any(|(seen, _)| *seen == part);
        if first {
            if let Some((shown, _)) = item.parts.first()
                && matches!(
                    (shown, part),
                    (ItemPart::Raw(_), ItemPart::Summary(_)) | (ItemPart::Summary(_), ItemPart::Raw(_))
                )
            {
                return; // show the reasoning or its summary, but not both
            }
            let begun = !item.parts.is_empty();
            item.parts.push((part, EmittedText::EMPTY));
            match part {
                ItemPart::Text(_) => self.blocks.start_block(key, BlockKind::Text, out),
                ItemPart::Refusal(_) => self.blocks.start_block(key, BlockKind::Refusal, out),
                ItemPart::Summary(_) | ItemPart::Raw(_) if !begun => {
                    self.blocks.start_block(key, BlockKind::Thinking, out);
                }
                ItemPart::Summary(_) | ItemPart::Raw(_) => {
                    self.blocks.push_delta(&key, "\n\n", out);
                }
                ItemPart::Arguments | ItemPart::Unknown(_) => {}
            }
        }
        if let Some((_, emitted)) = item.parts.iter_mut().find(|(seen, _)| *seen == part)
            && self.blocks.push_delta(&key, piece, out)
        {
            emitted.append(piece);
        }
    }

    /// Emits the rest of a part. A text with another beginning adds nothing.
    fn emit_remaining(&mut self, at: usize, part: ItemPart, whole: &str, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.get(at) else { return };
        let emitted =
            item.parts.iter().find(|(seen, _)| *seen == part).map_or(EmittedText::EMPTY, |(_, said)| *said);
        if let Some(rest) = emitted.remaining(whole) {
            self.emit_piece(at, part, rest, out);
        }
    }

    /// Emits one complete content part of a message.
    fn emit_content(&mut self, at: usize, index: u64, part: &Value, out: &mut Vec<ModelEvent>) {
        match part.get("type").and_then(Value::as_str).unwrap_or_default() {
            "output_text" | "text" => {
                let whole = text_field(part, "text").unwrap_or_default();
                self.emit_remaining(at, ItemPart::Text(index), whole, out);
            }
            "refusal" => {
                let whole = text_field(part, "refusal").unwrap_or_default();
                self.emit_remaining(at, ItemPart::Refusal(index), whole, out);
            }
            kind => self.report_unknown_part(at, index, kind, part, out),
        }
    }

    fn report_unknown_part(
        &mut self,
        at: usize,
        index: u64,
        kind: &str,
        part: &Value,
        out: &mut Vec<ModelEvent>,
    ) {
        let Some(item) = self.items.get_mut(at) else { return };
        if item.is_finished || item.parts.iter().any(|(seen, _)| *seen == ItemPart::Unknown(index)) {
            return;
        }
        item.parts.push((ItemPart::Unknown(index), EmittedText::EMPTY));
        self.unknown_count += 1;
        let mut text = String::new();
        collect_readable(part, &mut text);
        out.push(ModelEvent::Unknown { kind: kind.to_owned(), text });
    }

    fn finish_item(&mut self, at: usize, item: &Value, whole: bool, out: &mut Vec<ModelEvent>) {
        let Some(seen) = self.items.get(at) else { return };
        if seen.is_finished {
            return;
        }
        match seen.kind.clone() {
            OutputItemKind::Message => {
                let parts = item.get("content").and_then(Value::as_array);
                for (index, part) in (0..).zip(parts.into_iter().flatten()) {
                    self.emit_content(at, index, part, out);
                }
                self.stop_open_parts(at, out);
            }
            OutputItemKind::Reasoning => self.finish_reasoning(at, item, out),
            OutputItemKind::Call => self.finish_call(at, item, whole, out),
            OutputItemKind::Unknown(kind) => {
                let mut text = String::new();
                collect_readable(item, &mut text);
                out.push(ModelEvent::Unknown { kind, text });
            }
        }
        if let Some(seen) = self.items.get_mut(at) {
            seen.is_finished = true;
        }
    }

    fn stop_open_parts(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        let parts = self.items.get(at).map(|item| item.parts.clone()).unwrap_or_default();
        for (part, _) in parts {
            self.blocks.stop_block(&(at, part.block_key()), out);
        }
    }

    fn finish_reasoning(&mut self, at: usize, item: &Value, out: &mut Vec<ModelEvent>) {
        let texts = |field: &str| -> Vec<String> {
            let parts = item.get(field).and_then(Value::as_array);
            parts
                .into_iter()
                .flatten()
                .filter_map(|part| text_field(part, "text"))
                .map(str::to_owned)
                .collect()
        };
        let (summary, raw) = (texts("summary"), texts("content"));
        for (index, text) in (0..).zip(&raw) {
            self.emit_remaining(at, ItemPart::Raw(index), text, out);
        }
        for (index, text) in (0..).zip(&summary) {
            self.emit_remaining(at, ItemPart::Summary(index), text, out);
        }
        let encrypted = text_field(item, "encrypted_content");
        let key = (at, 0);
        if encrypted.is_some() && !self.blocks.is_open(&key) {
            self.blocks.start_block(key, BlockKind::Thinking, out);
        }
        if let Some(end) = self.blocks.block_end_mut(&key) {
            end.encrypted = encrypted.map(str::to_owned);
            end.summary = summary;
        }
        self.blocks.stop_block(&key, out);
    }

    fn finish_call(&mut self, at: usize, item: &Value, whole: bool, out: &mut Vec<ModelEvent>) {
        self.start_call(at, item, out);
        if let Some(arguments) = call_arguments(item) {
            self.emit_remaining(at, ItemPart::Arguments, &arguments, out);
        }
        let cut_off = item.get("status").and_then(Value::as_str) == Some("incomplete");
        let bare = self.items.get_mut(at).filter(|seen| seen.parts.is_empty());
        if let Some(bare) = bare {
            let given = bare.initial_arguments.take();
            let none = || if whole && !cut_off { "{}" } else { "" }.to_owned();
            self.emit_piece(at, ItemPart::Arguments, &given.unwrap_or_else(none), out);
        }
        self.blocks.stop_block(&(at, 0), out);
    }
}
