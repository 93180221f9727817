//! The output items of one response, and how much of each has been passed on.
//!
//! The same text comes up to four times: in pieces, with its part, with its item, with the response. Any of them may be
//! missing. Here: what has been said is remembered by length and hash, and only the rest is said. Elsewhere: which
//! events there are (`responses`), what one item is (`items`).
//! Invariant: each part of each item is passed on once, whole (tests in `tests/conformance.rs` and `responses`).

use minke_model::{BlockKind, ModelEvent};
use serde_json::Value;

use super::blocks::Blocks;
pub(crate) use super::items::Part;
use super::items::{Item, ItemKind, Said, arguments};
use super::wire::{CallIds, readable, text_field};

/// Where an event belongs. The index is what counts: ids change between events on some servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<&'a str>,
}

/// All items of one response, in the order in which they were seen.
#[derive(Debug)]
pub(crate) struct Output {
    items: Vec<Item>,
    /// Keyed by the item's place in `items`, and the part's place within the item (0 where an item is one block).
    blocks: Blocks<(usize, u64)>,
    ids: CallIds,
    unknown: u64,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { items: Vec::new(), blocks: Blocks::new(), ids: CallIds::default(), unknown: 0 }
    }

    pub(crate) fn calls(&self) -> bool {
        self.ids.any()
    }

    pub(crate) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// A piece of a part.
    pub(crate) fn piece(&mut self, place: Place<'_>, part: Part, piece: &str, out: &mut Vec<ModelEvent>) {
        let open = self.find(place, &part.owner()).filter(|at| !self.is_finished(*at));
        let at = match open {
            Some(at) => at,
            // A call without a name cannot begin; its arguments come again with its item.
            None if part == Part::Arguments => return,
            None => self.enter(place, part.owner()),
        };
        self.say(at, part, piece, out);
    }

    /// A part as a whole: says what of it has not been said.
    pub(crate) fn whole(
        &mut self,
        place: Place<'_>,
        part: Part,
        whole: Option<String>,
        out: &mut Vec<ModelEvent>,
    ) {
        let Some(whole) = whole else { return };
        let at = match self.find(place, &part.owner()) {
            Some(at) => at,
            None if part == Part::Arguments => return,
            None => self.enter(place, part.owner()),
        };
        self.say_rest(at, part, &whole, out);
    }

    /// A content part is complete. Its block ends with its item, which may know more.
    pub(crate) fn part_done(
        &mut self,
        place: Place<'_>,
        index: u64,
        part: &Value,
        out: &mut Vec<ModelEvent>,
    ) {
        let at = match self.find(place, &ItemKind::Message) {
            Some(at) => at,
            None => self.enter(place, ItemKind::Message),
        };
        self.content(at, index, part, out);
    }

    /// An item begins. One that stands at the same place is another, unless it has the same id or nobody announced it:
    /// some servers give all items the same place.
    pub(crate) fn added(&mut self, place: Place<'_>, item: &Value, out: &mut Vec<ModelEvent>) {
        let place = Place { id: text_field(item, "id").or(place.id), ..place };
        let kind = ItemKind::of(item);
        let known = self.find(place, &kind).filter(|at| {
            self.items.get(*at).is_some_and(|seen| {
                !seen.finished && (!seen.announced || (seen.id.is_some() && seen.id.as_deref() == place.id))
            })
        });
        let at = known.unwrap_or_else(|| self.enter(place, kind));
        if let Some(seen) = self.items.get_mut(at) {
            seen.announced = true;
            seen.given = arguments(item);
        }
        self.call_begins(at, item, out);
    }

    /// An item is complete, or as complete as it gets (`whole` = false: the response was cut off).
    pub(crate) fn done(&mut self, place: Place<'_>, item: &Value, whole: bool, out: &mut Vec<ModelEvent>) {
        let place = Place { id: text_field(item, "id").or(place.id), ..place };
        let kind = ItemKind::of(item);
        let open = self.find(place, &kind).filter(|at| {
            self.items.get(*at).is_some_and(|seen| !seen.finished || seen.id.as_deref() == place.id)
        });
        let at = open.unwrap_or_else(|| self.enter(place, kind));
        self.finish(at, item, whole, out);
    }

    /// The response is over, and these are its items: says what has not been said, and ends all that is open.
    pub(crate) fn settle(&mut self, items: &[Value], whole: bool, out: &mut Vec<ModelEvent>) {
        let seen = self.items.len();
        let mut free: Vec<usize> = (0..seen).collect();
        for (index, item) in (0..).zip(items) {
            let at = match self.known(&free, index, item) {
                Some(at) => {
                    free.retain(|other| *other != at);
                    at
                }
                None => self.enter(Place { index: None, id: text_field(item, "id") }, ItemKind::of(item)),
            };
            self.finish(at, item, whole, out);
        }
        for at in free {
            self.finish(at, &Value::Null, whole, out);
        }
    }

    /// Which of the items that were seen this one is: by id, by call id, by place, by what it says, or because it
    /// is the one that nobody has ended.
    fn known(&self, free: &[usize], index: u64, item: &Value) -> Option<usize> {
        let kind = ItemKind::of(item);
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
            .or_else(|| same().find(|(_, seen)| call_id.is_none() && seen.begins(item)))
            .or_else(|| same().find(|(_, seen)| call_id.is_none() && !seen.finished))
            .map(|(at, _)| at)
    }

    /// The item of this kind that an event belongs to: by place and id, by place alone (ids change between events on
    /// some servers), by id alone, or the last open one. The kind counts, because some servers give a message and the
    /// reasoning before it the same place.
    fn find(&self, place: Place<'_>, kind: &ItemKind) -> Option<usize> {
        let last =
            |is: &dyn Fn(&Item) -> bool| self.items.iter().rposition(|item| item.kind == *kind && is(item));
        let id = place.id.filter(|id| !id.is_empty());
        let same_id = |item: &Item| id.is_some() && item.id.as_deref() == id;
        match place.index {
            Some(_) => last(&|item| item.index == place.index && same_id(item))
                .or_else(|| last(&|item| item.index == place.index))
                .or_else(|| last(&|item| item.index.is_none() && same_id(item))),
            None if id.is_some() => last(&same_id),
            None => last(&|item| !item.finished),
        }
    }

    fn is_finished(&self, at: usize) -> bool {
        self.items.get(at).is_some_and(|item| item.finished)
    }

    /// How many items there are; whoever feeds us bounds it.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    fn enter(&mut self, place: Place<'_>, kind: ItemKind) -> usize {
        self.unknown += u64::from(matches!(kind, ItemKind::Unknown(_)));
        self.items.push(Item {
            index: place.index,
            id: place.id.map(str::to_owned),
            call_id: None,
            kind,
            given: None,
            parts: Vec::new(),
            announced: false,
            finished: false,
        });
        self.items.len() - 1
    }

    fn call_begins(&mut self, at: usize, item: &Value, out: &mut Vec<ModelEvent>) {
        let Some(seen) = self.items.get_mut(at) else { return };
        if seen.kind != ItemKind::Call || self.blocks.is_open(&(at, 0)) {
            return;
        }
        let Some(name) = text_field(item, "name") else { return };
        let call_id = text_field(item, "call_id").or_else(|| text_field(item, "id"));
        seen.call_id = call_id.map(str::to_owned);
        let id = self.ids.take(call_id);
        self.blocks.start((at, 0), BlockKind::ToolCall { id, name: name.to_owned() }, out);
    }

    /// Says a piece of a part, in the block that the part belongs to.
    fn say(&mut self, at: usize, part: Part, piece: &str, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.get_mut(at) else { return };
        if item.finished || item.kind != part.owner() || piece.is_empty() {
            return;
        }
        let key = (at, part.block());
        let first = !item.parts.iter().any(|(seen, _)| *seen == part);
        if first {
            if let Some((shown, _)) = item.parts.first()
                && matches!(
                    (shown, part),
                    (Part::Raw(_), Part::Summary(_)) | (Part::Summary(_), Part::Raw(_))
                )
            {
                return; // the reasoning is shown once: itself or its summary, whichever came first
            }
            let begun = !item.parts.is_empty();
            item.parts.push((part, Said::NOTHING));
            match part {
                Part::Text(_) => self.blocks.start(key, BlockKind::Text, out),
                Part::Refusal(_) => self.blocks.start(key, BlockKind::Refusal, out),
                Part::Summary(_) | Part::Raw(_) if !begun => {
                    self.blocks.start(key, BlockKind::Thinking, out);
                }
                Part::Summary(_) | Part::Raw(_) => {
                    self.blocks.delta(&key, "\n\n", out);
                }
                Part::Arguments | Part::Unknown(_) => {}
            }
        }
        if let Some((_, said)) = item.parts.iter_mut().find(|(seen, _)| *seen == part)
            && self.blocks.delta(&key, piece, out)
        {
            said.add(piece);
        }
    }

    /// Says what is left of a part. What was said in other words stays as it was said.
    fn say_rest(&mut self, at: usize, part: Part, whole: &str, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.get(at) else { return };
        let said = item.parts.iter().find(|(seen, _)| *seen == part).map_or(Said::NOTHING, |(_, said)| *said);
        if let Some(rest) = said.rest(whole) {
            self.say(at, part, rest, out);
        }
    }

    /// One content part of a message, whole.
    fn content(&mut self, at: usize, index: u64, part: &Value, out: &mut Vec<ModelEvent>) {
        match part.get("type").and_then(Value::as_str).unwrap_or_default() {
            "output_text" | "text" => {
                let whole = text_field(part, "text").unwrap_or_default();
                self.say_rest(at, Part::Text(index), whole, out);
            }
            "refusal" => {
                let whole = text_field(part, "refusal").unwrap_or_default();
                self.say_rest(at, Part::Refusal(index), whole, out);
            }
            kind => self.unknown_part(at, index, kind, part, out),
        }
    }

    fn unknown_part(&mut self, at: usize, index: u64, kind: &str, part: &Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.get_mut(at) else { return };
        if item.finished || item.parts.iter().any(|(seen, _)| *seen == Part::Unknown(index)) {
            return;
        }
        item.parts.push((Part::Unknown(index), Said::NOTHING));
        self.unknown += 1;
        let mut text = String::new();
        readable(part, &mut text);
        out.push(ModelEvent::Unknown { kind: kind.to_owned(), text });
    }

    fn finish(&mut self, at: usize, item: &Value, whole: bool, out: &mut Vec<ModelEvent>) {
        let Some(seen) = self.items.get(at) else { return };
        if seen.finished {
            return;
        }
        match seen.kind.clone() {
            ItemKind::Message => {
                let parts = item.get("content").and_then(Value::as_array);
                for (index, part) in (0..).zip(parts.into_iter().flatten()) {
                    self.content(at, index, part, out);
                }
                self.stop_parts(at, out);
            }
            ItemKind::Reasoning => self.finish_reasoning(at, item, out),
            ItemKind::Call => self.finish_call(at, item, whole, out),
            ItemKind::Unknown(kind) => {
                let mut text = String::new();
                readable(item, &mut text);
                out.push(ModelEvent::Unknown { kind, text });
            }
        }
        if let Some(seen) = self.items.get_mut(at) {
            seen.finished = true;
        }
    }

    fn stop_parts(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        let parts = self.items.get(at).map(|item| item.parts.clone()).unwrap_or_default();
        for (part, _) in parts {
            self.blocks.stop(&(at, part.block()), out);
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
            self.say_rest(at, Part::Raw(index), text, out);
        }
        for (index, text) in (0..).zip(&summary) {
            self.say_rest(at, Part::Summary(index), text, out);
        }
        let encrypted = text_field(item, "encrypted_content");
        let key = (at, 0);
        if encrypted.is_some() && !self.blocks.is_open(&key) {
            self.blocks.start(key, BlockKind::Thinking, out);
        }
        if let Some(end) = self.blocks.end_mut(&key) {
            end.encrypted = encrypted.map(str::to_owned);
            end.summary = summary;
        }
        self.blocks.stop(&key, out);
    }

    fn finish_call(&mut self, at: usize, item: &Value, whole: bool, out: &mut Vec<ModelEvent>) {
        self.call_begins(at, item, out);
        if let Some(arguments) = arguments(item) {
            self.say_rest(at, Part::Arguments, &arguments, out);
        }
        let cut_off = item.get("status").and_then(Value::as_str) == Some("incomplete");
        let bare = self.items.get_mut(at).filter(|seen| seen.parts.is_empty());
        if let Some(bare) = bare {
            let given = bare.given.take();
            let none = || if whole && !cut_off { "{}" } else { "" }.to_owned();
            self.say(at, Part::Arguments, &given.unwrap_or_else(none), out);
        }
        self.blocks.stop(&(at, 0), out);
    }
}
