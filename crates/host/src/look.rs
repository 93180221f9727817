//! Reading one thread's log: the story that it tells, and pages of it.
//!
//! Elsewhere: what is made of the entries (`story`), lists of many threads (`lists`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use minke_client::Home;
use minke_pod::State;
use minke_policy::{Posture, Tier, default_posture};
use minke_record::{Entry, ErrorCode, Kind, SessionId, SessionStart};
use minke_session::{Reader, ScanEnd, Sealed, StoreError};
use minke_thread::{Summary, Thread};
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::story::{HISTORY, LATEST, Row, Story, checkpoint, rows};

/// The most bytes of entries in one page, and of the conversation in one answer.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The most entries in one page, and how many there are if nobody says.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_DEFAULT: usize = 100;
/// How many forks of forks are read through for the conversation before this one.
pub(crate) const LINEAGE: usize = 64;
/// The most named points that are listed.
const CHECKPOINTS: usize = 100;

/// One thread, as far as its log can be read.
pub(crate) struct Glance {
    pub(crate) session: SessionId,
    pub(crate) story: Story,
    reader: Box<dyn Reader>,
}

impl Glance {
    /// Reads the whole log once. Of a damaged one the good beginning counts.
    pub(crate) fn of(home: &Home, session: SessionId) -> Result<Glance, Fault> {
        let reader = home.store.reader(session)?;
        let story = story(&*reader)?;
        if story.summary.session.is_none() {
            let message =
                format!("nothing can be read of thread s_{session}; `minke log verify s_{session}` says why");
            return Err(Fault::new(ErrorCode::StorageFailed, message));
        }
        Ok(Glance { session, story, reader })
    }

    pub(crate) fn thread(&self, home: &Home) -> Result<Thread, Fault> {
        thread(home, &self.story.summary)?.ok_or_else(|| {
            Fault::new(ErrorCode::Conflict, format!("thread s_{} was deleted meanwhile", self.session))
        })
    }

    /// `data` of create, start, resume, fork and read.
    pub(crate) fn data(&self) -> Result<Value, Fault> {
        let history = self.history()?;
        Ok(json!({
            "history": history,
            "checkpoint": self.story.latest(),
        }))
    }

    /// The newest items of the conversation, oldest first, through those that this thread was forked from.
    fn history(&self) -> Result<Vec<Row>, Fault> {
        let mut newest = gather(&*self.reader, &self.story, None)?;
        let mut parent = self.reader.parent()?;
        for _ in 0..LINEAGE {
            if newest.len() >= HISTORY {
                break;
            }
            let Some(reader) = parent else { break };
            let mut before = gather(&*reader, &story(&*reader)?, Some(reader.id()))?;
            before.append(&mut newest);
            newest = before;
            parent = reader.parent()?;
        }
        let mut bytes = 0usize;
        let kept = newest
            .iter()
            .rev()
            .take(HISTORY)
            .take_while(|row| {
                bytes = bytes.saturating_add(row.content.len().saturating_mul(2));
                bytes <= PAGE_BYTES
            })
            .count();
        Ok(newest.split_off(newest.len() - kept))
    }

    /// A page of this thread's own entries, and where the log ends.
    pub(crate) fn page(&self, from: Option<u64>, limit: Option<usize>) -> Result<Value, Fault> {
        let limit = limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_ENTRIES);
        let page = self.reader.page(from.unwrap_or(0), limit, PAGE_BYTES)?;
        let mut entries = Vec::with_capacity(page.entries.len());
        for sealed in &page.entries {
            let line: Value = serde_json::from_str(&sealed.line).map_err(|e| {
                let message = format!("entry {} cannot be written: {e}", sealed.entry.seq);
                Fault::new(ErrorCode::Internal, message)
            })?;
            entries.push(line);
        }
        let mut data = json!({ "entries": entries, "head": self.story.head });
        if let (Some(next), Some(data)) = (page.next_seq, data.as_object_mut()) {
            data.insert("next_seq".to_owned(), json!(next));
        }
        Ok(data)
    }

    /// One named point; `latest` is the one that is not stored.
    pub(crate) fn checkpoint(&self, id: &str) -> Result<Option<Value>, Fault> {
        if id == LATEST {
            return Ok(self.story.latest());
        }
        match self.story.checkpoints.get(id) {
            Some((seq, _)) => self.saved(*seq),
            None => Ok(None),
        }
    }

    fn saved(&self, seq: u64) -> Result<Option<Value>, Fault> {
        let page = self.reader.page(seq, 1, PAGE_BYTES)?;
        Ok(page.entries.first().and_then(|sealed| match &sealed.entry.kind {
            Kind::Checkpoint(point) => Some(checkpoint(&point.id, &point.state, sealed.entry.ts)),
            _ => None,
        }))
    }

    /// The newest named points, newest first.
    pub(crate) fn checkpoints(&self) -> Result<Vec<Value>, Fault> {
        let mut seqs: Vec<u64> = self.story.checkpoints.values().map(|(seq, _)| *seq).collect();
        seqs.sort_unstable_by(|a, b| b.cmp(a));
        let (mut points, mut bytes) = (Vec::new(), 0usize);
        for seq in seqs.into_iter().take(CHECKPOINTS) {
            let Some(point) = self.saved(seq)? else { continue };
            bytes = bytes.saturating_add(point.to_string().len());
            if bytes > PAGE_BYTES && !points.is_empty() {
                break;
            }
            points.push(point);
        }
        Ok(points)
    }
}

pub(crate) fn story(reader: &dyn Reader) -> Result<Story, Fault> {
    let mut story = Story::default();
    let end = reader.scan(0, &mut |sealed: Sealed| {
        story.apply(&sealed.entry);
        ControlFlow::Continue(())
    })?;
    if let ScanEnd::Damaged(damage) = end {
        story.summary.damaged = Some(damage.to_string());
    }
    Ok(story)
}

/// The newest items of one log's own conversation.
fn gather(reader: &dyn Reader, story: &Story, of: Option<SessionId>) -> Result<Vec<Row>, Fault> {
    let wanted: BTreeSet<u64> = story.newest(HISTORY).into_iter().collect();
    let (Some(first), Some(last)) = (wanted.first().copied(), wanted.last().copied()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    reader.scan(first, &mut |sealed: Sealed| {
        if wanted.contains(&sealed.entry.seq) {
            found.extend(rows(&sealed.entry, of));
        }
        if sealed.entry.seq >= last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// The thread object, with whether somebody holds the session now; `None` if it is gone.
pub(crate) fn thread(home: &Home, summary: &Summary) -> Result<Option<Thread>, Fault> {
    let Some(session) = summary.session else { return Ok(None) };
    let held = match home.store.holder(session) {
        Ok(holder) => holder.is_some(),
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    let ephemeral = passes(home, session);
    let path = home.store.lies_at(session).map(|path| path.to_string_lossy().into_owned());
    let Some(thread) = summary.thread(held, path) else {
        return Ok(None);
    };
    let approval_mode = match (thread.approval_mode.as_str(), summary.fence.as_deref()) {
        // No pod has tried a sandbox for it yet: the engine knows which one a new pod gets (`Engine::choose_postures`).
        ("", None) => String::new(),
        ("", Some(fence)) => posture_in(fence.parse().ok()).as_str().to_owned(),
        _ => thread.approval_mode.clone(),
    };
    let preview = match summary.is_untold() {
        true => told_before(&*home.store.reader(session)?)?.unwrap_or_else(|| thread.preview.clone()),
        false => thread.preview.clone(),
    };
    Ok(Some(Thread { ephemeral, approval_mode, preview, ..thread }))
}

/// The posture of a pod for which none was chosen depends on its sandbox. Without a known one it asks.
pub(crate) fn posture_in(tier: Option<Tier>) -> Posture {
    tier.map_or(Posture::Ask, default_posture)
}

/// What was said last before a fork parted from those above it.
fn told_before(fork: &dyn Reader) -> Result<Option<String>, Fault> {
    let mut parent = fork.parent()?;
    for _ in 0..LINEAGE {
        let Some(reader) = parent else { break };
        let summary = story(&*reader)?.summary;
        if !summary.is_untold() {
            return Ok(Some(summary.preview));
        }
        parent = reader.parent()?;
    }
    Ok(None)
}

/// Whether a session goes with its pod.
pub(crate) fn passes(home: &Home, session: SessionId) -> bool {
    home.paths.passing().join(session.to_string()).is_dir()
}

/// What a pod would know of the session: from its last carry on.
pub(crate) fn state(home: &Home, session: SessionId) -> Result<State, Fault> {
    let replay = home.store.reader(session)?.replay()?;
    Ok(State::replay(replay.iter().map(|sealed| &sealed.entry)))
}

/// The first entry.
pub(crate) fn start(home: &Home, session: SessionId) -> Result<SessionStart, Fault> {
    let first = home.store.reader(session)?.page(0, 1, usize::MAX)?.entries.into_iter().next();
    match first.map(|Sealed { entry: Entry { kind, .. }, .. }| kind) {
        Some(Kind::SessionStart(start)) => Ok(start),
        _ => Err(Fault::new(ErrorCode::StorageFailed, format!("the log of s_{session} has no beginning"))),
    }
}

/// Whether there is such a session.
pub(crate) fn exists(home: &Home, session: SessionId) -> Result<bool, Fault> {
    match home.store.stamp(session) {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}
