//! What a body gives: decoded in any chunking, and gathered into one reply, with the stream contract checked.

use std::collections::BTreeMap;

use minke_llm::{Decoder, Problem, Scheme};
use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, TokenUsage};

/// What came out of a decoder.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) result: Result<(), Problem>,
    pub(crate) unknown: u64,
}

pub(crate) fn decode<'c>(scheme: Scheme, chunks: impl IntoIterator<Item = &'c [u8]>) -> Decoded {
    let mut decoder = Decoder::new(scheme);
    let mut events = Vec::new();
    let mut result = Ok(());
    for chunk in chunks {
        result = decoder.push(chunk, &mut events);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = decoder.finish(&mut events);
    }
    assert_eq!(decoder.is_done(), result.is_ok(), "done or failed, nothing between");
    // What was said is said: more bytes change nothing.
    let before = events.len();
    let again = decoder.push(b"data: {}\n\n", &mut events).and_then(|()| decoder.finish(&mut events));
    assert_eq!((events.len(), &again), (before, &result), "nothing follows the end");
    Decoded { events, result, unknown: decoder.unknown_events() }
}

/// A block that has begun.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    pub(crate) text: String,
    pub(crate) end: Option<BlockEnd>,
}

/// A reply as it can be compared.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reply {
    pub(crate) blocks: Vec<Block>,
    pub(crate) unknown: Vec<(String, String)>,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) detail: Option<String>,
}

/// Gathers a reply and checks the contract on the way: starts numbered from 0, pieces and stops only of what is open,
/// one stop for each start if the stream ended well, `Done` once and last, ids of calls unique, no empty piece.
pub(crate) fn gather(decoded: &Decoded) -> Result<Reply, String> {
    let mut reply = Reply::default();
    for (at, event) in decoded.events.iter().enumerate() {
        if reply.stop.is_some() {
            return Err(format!("event {at} after Done: {event:?}"));
        }
        take(&mut reply, event).map_err(|e| format!("event {at}: {e}: {event:?}"))?;
    }
    if decoded.result.is_ok() != reply.stop.is_some() {
        return Err(format!("Done: {:?}, result: {:?}", reply.stop, decoded.result));
    }
    let open = reply.blocks.iter().filter(|block| block.end.is_none()).count();
    if reply.stop.is_some() && open > 0 {
        return Err(format!("{open} blocks have no stop"));
    }
    let mut ids = BTreeMap::new();
    for block in &reply.blocks {
        if let BlockKind::ToolCall { id, name } = &block.kind {
            if id.is_empty() || name.is_empty() {
                return Err(format!("a call without id or name: {block:?}"));
            }
            *ids.entry(id).or_insert(0) += 1;
        }
    }
    match ids.iter().find(|(_, times)| **times > 1) {
        Some((id, _)) => Err(format!("the id `{id}` is used twice")),
        None => Ok(reply),
    }
}

fn take(reply: &mut Reply, event: &ModelEvent) -> Result<(), &'static str> {
    let blocks = &mut reply.blocks;
    let open = |blocks: &mut Vec<Block>, index: u32| -> Result<usize, &'static str> {
        let at = usize::try_from(index).expect("32 bits");
        match blocks.get(at) {
            Some(block) if block.end.is_none() => Ok(at),
            _ => Err("the block is not open"),
        }
    };
    match event {
        ModelEvent::BlockStart { index, kind } => {
            if usize::try_from(*index) != Ok(blocks.len()) {
                return Err("blocks are numbered in the order in which they begin");
            }
            blocks.push(Block { kind: kind.clone(), text: String::new(), end: None });
        }
        ModelEvent::Delta { index, text } => {
            let at = open(blocks, *index)?;
            if text.is_empty() {
                return Err("an empty piece");
            }
            blocks[at].text.push_str(text);
        }
        ModelEvent::BlockStop { index, end } => {
            let at = open(blocks, *index)?;
            blocks[at].end = Some(end.clone());
        }
        ModelEvent::Unknown { kind, text } => reply.unknown.push((kind.clone(), text.clone())),
        ModelEvent::Usage(usage) => reply.usage = Some(usage.clone()),
        ModelEvent::Done { stop } => reply.stop = Some(stop.clone()),
        ModelEvent::StopDetail { text } => reply.detail = Some(text.clone()),
        ModelEvent::Tape(_) | ModelEvent::Recorded { .. } => return Err("no business of a decoder"),
    }
    Ok(())
}

impl Reply {
    fn joined(&self, of: impl Fn(&BlockKind) -> bool) -> String {
        self.blocks.iter().filter(|block| of(&block.kind)).map(|block| block.text.as_str()).collect()
    }

    pub(crate) fn text(&self) -> String {
        self.joined(|kind| *kind == BlockKind::Text)
    }

    pub(crate) fn thinking(&self) -> String {
        self.joined(|kind| *kind == BlockKind::Thinking)
    }

    pub(crate) fn refusal(&self) -> String {
        self.joined(|kind| *kind == BlockKind::Refusal)
    }

    fn ends(&self) -> impl Iterator<Item = &BlockEnd> {
        self.blocks.iter().filter_map(|block| block.end.as_ref())
    }

    pub(crate) fn summary(&self) -> String {
        self.ends().flat_map(|end| end.summary.iter().map(String::as_str)).collect()
    }

    pub(crate) fn signatures(&self) -> Vec<&str> {
        self.ends().filter_map(|end| end.signature.as_deref()).collect()
    }

    pub(crate) fn encrypted(&self) -> Vec<&str> {
        self.ends().filter_map(|end| end.encrypted.as_deref()).collect()
    }

    /// Id, name and arguments of the calls, in order.
    pub(crate) fn calls(&self) -> Vec<(&str, &str, &str)> {
        self.blocks
            .iter()
            .filter_map(|block| match &block.kind {
                BlockKind::ToolCall { id, name } => Some((id.as_str(), name.as_str(), block.text.as_str())),
                BlockKind::Text | BlockKind::Thinking | BlockKind::Refusal => None,
            })
            .collect()
    }

    /// The same without what may come after the last word: its tokens.
    pub(crate) fn said(&self) -> (&[Block], &[(String, String)], Option<&StopReason>) {
        (&self.blocks, &self.unknown, self.stop.as_ref())
    }
}
