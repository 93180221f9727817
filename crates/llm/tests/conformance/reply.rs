//! Decodes a body in any chunking, gathers the reply and checks the stream contract.

use std::collections::BTreeMap;

use minke_llm::{ProviderError, ReplyDecoder, WireScheme};
use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, TokenUsage};

/// The output of a decoder.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedStream {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) result: Result<(), ProviderError>,
    pub(crate) unknown: u64,
}

pub(crate) fn decode_chunks<'c>(
    scheme: WireScheme,
    chunks: impl IntoIterator<Item = &'c [u8]>,
) -> DecodedStream {
    let mut decoder = ReplyDecoder::new(scheme);
    let mut events = Vec::new();
    let mut result = Ok(());
    for chunk in chunks {
        result = decoder.push_bytes(chunk, &mut events);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = decoder.finish(&mut events);
    }
    assert_eq!(decoder.is_done(), result.is_ok(), "either done or failed");
    // More bytes do not change the result.
    let before = events.len();
    let again = decoder.push_bytes(b"data: {}\n\n", &mut events).and_then(|()| decoder.finish(&mut events));
    assert_eq!((events.len(), &again), (before, &result), "nothing follows the end");
    DecodedStream { events, result, unknown: decoder.unknown_events() }
}

/// A started block.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplyBlock {
    pub(crate) kind: BlockKind,
    pub(crate) text: String,
    pub(crate) end: Option<BlockEnd>,
}

/// A reply in a comparable form.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GatheredReply {
    pub(crate) blocks: Vec<ReplyBlock>,
    pub(crate) unknown: Vec<(String, String)>,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) detail: Option<String>,
}

/// Gathers a reply and checks the contract: starts are numbered from 0, pieces and stops refer to open
/// blocks, each start has one stop if the stream ended well, `Done` comes once and last, ids of calls are
/// unique, no piece is empty.
pub(crate) fn gather_reply(decoded: &DecodedStream) -> Result<GatheredReply, String> {
    let mut reply = GatheredReply::default();
    for (at, event) in decoded.events.iter().enumerate() {
        if reply.stop.is_some() {
            return Err(format!("event {at} after Done: {event:?}"));
        }
        apply_event(&mut reply, event).map_err(|e| format!("event {at}: {e}: {event:?}"))?;
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

fn apply_event(reply: &mut GatheredReply, event: &ModelEvent) -> Result<(), &'static str> {
    let blocks = &mut reply.blocks;
    let open = |blocks: &mut Vec<ReplyBlock>, index: u32| -> Result<usize, &'static str> {
        let at = usize::try_from(index).expect("32 bits");
        match blocks.get(at) {
            Some(block) if block.end.is_none() => Ok(at),
            _ => Err("the block is not open"),
        }
    };
    match event {
        ModelEvent::BlockStart { index, kind } => {
            if usize::try_from(*index) != Ok(blocks.len()) {
                return Err("blocks must be numbered in the order of their starts");
            }
            blocks.push(ReplyBlock { kind: kind.clone(), text: String::new(), end: None });
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
        ModelEvent::RecordingPart(_) | ModelEvent::Recording { .. } => {
            return Err("an event that no decoder emits");
        }
    }
    Ok(())
}

impl GatheredReply {
    fn joined_text(&self, of: impl Fn(&BlockKind) -> bool) -> String {
        self.blocks.iter().filter(|block| of(&block.kind)).map(|block| block.text.as_str()).collect()
    }

    pub(crate) fn answer_text(&self) -> String {
        self.joined_text(|kind| *kind == BlockKind::Text)
    }

    pub(crate) fn thinking_text(&self) -> String {
        self.joined_text(|kind| *kind == BlockKind::Thinking)
    }

    pub(crate) fn refusal_text(&self) -> String {
        self.joined_text(|kind| *kind == BlockKind::Refusal)
    }

    fn block_ends(&self) -> impl Iterator<Item = &BlockEnd> {
        self.blocks.iter().filter_map(|block| block.end.as_ref())
    }

    pub(crate) fn summary_text(&self) -> String {
        self.block_ends().flat_map(|end| end.summary.iter().map(String::as_str)).collect()
    }

    pub(crate) fn signatures(&self) -> Vec<&str> {
        self.block_ends().filter_map(|end| end.signature.as_deref()).collect()
    }

    pub(crate) fn encrypted(&self) -> Vec<&str> {
        self.block_ends().filter_map(|end| end.encrypted.as_deref()).collect()
    }

    /// Returns id, name and arguments of the calls in order.
    pub(crate) fn call_blocks(&self) -> Vec<(&str, &str, &str)> {
        self.blocks
            .iter()
            .filter_map(|block| match &block.kind {
                BlockKind::ToolCall { id, name } => Some((id.as_str(), name.as_str(), block.text.as_str())),
                BlockKind::Text | BlockKind::Thinking | BlockKind::Refusal => None,
            })
            .collect()
    }

    /// Returns the content without the usage, which may follow the last event.
    pub(crate) fn final_content(&self) -> (&[ReplyBlock], &[(String, String)], Option<&StopReason>) {
        (&self.blocks, &self.unknown, self.stop.as_ref())
    }
}
