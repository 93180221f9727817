//! Reading what is new in one log: from where the index has left it, or whole.
//!
//! Elsewhere: which logs are read, and how what was found is kept (`refresh`).

use std::ops::ControlFlow;

use minke_record::{
    Content, Entry, History, InputSegment, Item, Kind, Position, Role, SegmentReason, SessionId,
};
use minke_session::{ScanEnd, Sealed, Stamp, Store, StoreError};
use minke_thread::Summary;

/// What is kept of one message for searching.
const SAID_BYTES: usize = 64 * 1024;

/// A log that looks different from what the index knows of it.
pub(crate) struct Task {
    pub(crate) session: SessionId,
    /// As it looked before it is read: what is written meanwhile is found the next time.
    pub(crate) stamp: Stamp,
    /// How far it is known, and what it came to there.
    pub(crate) known: Option<(Position, Summary)>,
    /// It has more bytes than it had then; else it is read whole.
    pub(crate) grown: bool,
}

/// What a log has to say.
pub(crate) enum Found {
    New(Box<Update>),
    /// Nothing in it can be read, because of this.
    Nothing(String),
}

/// What a session comes to now.
pub(crate) struct Update {
    pub(crate) session: SessionId,
    pub(crate) summary: Summary,
    pub(crate) at: Position,
    pub(crate) stamp: Stamp,
    pub(crate) said: Vec<Said>,
    /// What was kept of it is to be forgotten first.
    pub(crate) anew: bool,
}

pub(crate) struct Said {
    pub(crate) seq: u64,
    pub(crate) role: &'static str,
    pub(crate) text: String,
}

impl Task {
    pub(crate) fn read(self, store: &dyn Store) -> Result<Found, StoreError> {
        let Task { session, stamp, known, grown } = self;
        let reader = store.reader(session)?;
        let (mut summary, mut at, mut anew) = (Summary::default(), None, true);
        if let Some((position, kept)) = &known
            && grown
            && reader.position(position.seq)? == Some(*position)
        {
            (summary, at, anew) = (kept.clone(), Some(*position), false);
        }
        let from = summary.seq.map_or(0, |seq| seq + 1);
        let mut said = Vec::new();
        let end = reader.scan(from, &mut |sealed: Sealed| {
            summary.apply(&sealed.entry);
            at = Some(Position { seq: sealed.entry.seq, h: sealed.entry.h });
            said.extend(words(&sealed.entry));
            ControlFlow::Continue(())
        })?;
        let damage = match &end {
            ScanEnd::Damaged(damage) => Some(damage.to_string()),
            ScanEnd::Clean { .. } | ScanEnd::Stopped => None,
        };
        summary.damaged.clone_from(&damage);
        Ok(match (at, end) {
            // Nothing of it can be read any more: what was known of it stays, and that it is damaged.
            (None, _) if let (Some((at, mut summary)), Some(_)) = (known.clone(), &damage) => {
                summary.damaged = damage;
                let said = Vec::new();
                Found::New(Box::new(Update { session, summary, at, stamp, said, anew: false }))
            }
            (Some(at), _) => Found::New(Box::new(Update { session, summary, at, stamp, said, anew })),
            (None, ScanEnd::Damaged(damage)) => Found::Nothing(damage.to_string()),
            (None, _) => Found::Nothing("its log has no whole entry".to_owned()),
        })
    }
}

/// What an entry says that somebody may look for. A conversation from elsewhere is many messages in one entry.
fn words(entry: &Entry) -> Vec<Said> {
    let seq = entry.seq;
    match &entry.kind {
        Kind::UserInput(input) => {
            let flat: Vec<Content> = input.segments.iter().map(InputSegment::flatten).collect();
            said(seq, "user", &flat).into_iter().collect()
        }
        Kind::AssistantItem(entry) => {
            message(seq, &entry.item).filter(|said| said.role == "assistant").into_iter().collect()
        }
        Kind::SegmentStart(start) if start.reason == SegmentReason::Import => match &start.history {
            History::Here(items) => items.iter().filter_map(|item| message(seq, item)).collect(),
            History::SameAs { .. } | History::Blob(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn message(seq: u64, item: &Item) -> Option<Said> {
    match item {
        Item::Message { role: Role::User, content } => said(seq, "user", content),
        Item::Message { role: Role::Assistant, content } => said(seq, "assistant", content),
        _ => None,
    }
}

fn said(seq: u64, role: &'static str, content: &[Content]) -> Option<Said> {
    let text = content.iter().filter_map(text_of).collect::<Vec<String>>().join(" ");
    (!text.trim().is_empty()).then_some(Said { seq, role, text })
}

fn text_of(content: &Content) -> Option<String> {
    let Content::Text { text } = content else { return None };
    let text = text.here()?;
    let end =
        text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= SAID_BYTES).last();
    text.get(..end.unwrap_or(0)).map(str::to_owned)
}
