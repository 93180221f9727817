//! Reads the new part of one log: from where the index ends, or the whole log.
//!
//! Elsewhere: the choice of logs, and storing the result (`refresh`).

use std::ops::ControlFlow;

use minke_record::{
    Content, Entry, History, InputSegment, Item, Kind, Position, Role, SegmentReason, SessionId,
};
use minke_session::{LogStamp, ScanEnd, SealedEntry, SessionStore, StoreError};
use minke_thread::SessionSummary;

/// The maximum indexed size of one message.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// A log whose stamp differs from the indexed one.
pub(crate) struct ReadTask {
    pub(crate) session: SessionId,
    /// The stamp before reading: later writes are found by the next refresh.
    pub(crate) stamp: LogStamp,
    /// The indexed position, and the summary up to it.
    pub(crate) indexed: Option<(Position, SessionSummary)>,
    /// It has more bytes than the indexed stamp; otherwise it is read whole.
    pub(crate) has_grown: bool,
}

/// The result of reading a log.
pub(crate) enum LogUpdate {
    Changed(Box<IndexUpdate>),
    /// The log is unreadable, with the reason.
    Unreadable(String),
}

/// The new data of a session.
pub(crate) struct IndexUpdate {
    pub(crate) session: SessionId,
    pub(crate) summary: SessionSummary,
    pub(crate) at: Position,
    pub(crate) stamp: LogStamp,
    pub(crate) messages: Vec<IndexedMessage>,
    /// The indexed data is replaced instead of extended.
    pub(crate) replaces_all: bool,
}

pub(crate) struct IndexedMessage {
    pub(crate) seq: u64,
    pub(crate) role: &'static str,
    pub(crate) text: String,
}

impl ReadTask {
    pub(crate) fn read_log(self, store: &dyn SessionStore) -> Result<LogUpdate, StoreError> {
        let ReadTask { session, stamp, indexed, has_grown } = self;
        let reader = store.open_reader(session)?;
        let (mut summary, mut at, mut replaces_all) = (SessionSummary::default(), None, true);
        if let Some((position, kept)) = &indexed
            && has_grown
            && reader.position_of(position.seq)? == Some(*position)
        {
            (summary, at, replaces_all) = (kept.clone(), Some(*position), false);
        }
        let from = summary.seq.map_or(0, |seq| seq + 1);
        let mut messages = Vec::new();
        let end = reader.scan_entries(from, &mut |sealed: SealedEntry| {
            summary.apply_entry(&sealed.entry);
            at = Some(Position { seq: sealed.entry.seq, h: sealed.entry.h });
            messages.extend(entry_messages(&sealed.entry));
            ControlFlow::Continue(())
        })?;
        let damage = match &end {
            ScanEnd::Damaged(damage) => Some(damage.to_string()),
            ScanEnd::Clean { .. } | ScanEnd::Stopped => None,
        };
        summary.damaged.clone_from(&damage);
        Ok(match (at, end) {
            // The log is now unreadable: keep the indexed data and mark it as damaged.
            (None, _) if let (Some((at, mut summary)), Some(_)) = (indexed.clone(), &damage) => {
                summary.damaged = damage;
                let said = Vec::new();
                LogUpdate::Changed(Box::new(IndexUpdate {
                    session,
                    summary,
                    at,
                    stamp,
                    messages: said,
                    replaces_all: false,
                }))
            }
            (Some(at), _) => LogUpdate::Changed(Box::new(IndexUpdate {
                session,
                summary,
                at,
                stamp,
                messages,
                replaces_all,
            })),
            (None, ScanEnd::Damaged(damage)) => LogUpdate::Unreadable(damage.to_string()),
            (None, _) => LogUpdate::Unreadable("its log has no whole entry".to_owned()),
        })
    }
}

/// Returns the searchable messages of an entry. An imported conversation has many messages in one entry.
fn entry_messages(entry: &Entry) -> Vec<IndexedMessage> {
    let seq = entry.seq;
    match &entry.kind {
        Kind::UserInput(input) => {
            let flat: Vec<Content> = input.segments.iter().map(InputSegment::to_content).collect();
            text_message(seq, "user", &flat).into_iter().collect()
        }
        Kind::AssistantItem(entry) => item_message(seq, &entry.item)
            .filter(|messages| messages.role == "assistant")
            .into_iter()
            .collect(),
        Kind::SegmentStart(start) if start.reason == SegmentReason::Import => match &start.history {
            History::Here(items) => items.iter().filter_map(|item| item_message(seq, item)).collect(),
            History::SameAs { .. } | History::Blob(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn item_message(seq: u64, item: &Item) -> Option<IndexedMessage> {
    match item {
        Item::Message { role: Role::User, content } => text_message(seq, "user", content),
        Item::Message { role: Role::Assistant, content } => text_message(seq, "assistant", content),
        _ => None,
    }
}

fn text_message(seq: u64, role: &'static str, content: &[Content]) -> Option<IndexedMessage> {
    let text = content.iter().filter_map(content_text).collect::<Vec<String>>().join(" ");
    (!text.trim().is_empty()).then_some(IndexedMessage { seq, role, text })
}

fn content_text(content: &Content) -> Option<String> {
    let Content::Text { text } = content else { return None };
    let text = text.inline()?;
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= MAX_MESSAGE_BYTES)
        .last();
    text.get(..end.unwrap_or(0)).map(str::to_owned)
}
