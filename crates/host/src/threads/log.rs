//! Reads one thread's log: its fold, and pages of its entries.
//!
//! Elsewhere: the fold (`thread_fold`), lists of threads (`lists`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use minke_client::UserHome;
use minke_pod::State;
use minke_policy::{Posture, SandboxBackend, default_posture};
use minke_record::{Entry, ErrorCode, Kind, SessionId, SessionStart};
use minke_session::{Reader, ScanEnd, SealedEntry, StoreError};
use minke_thread::{SessionSummary, ThreadObject};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::threads::fold::{
    HistoryRow, LATEST_CHECKPOINT, MAX_HISTORY, ThreadFold, checkpoint_value, history_rows,
};

/// The maximum size of the entries in one page, and of the conversation in one response.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum and the default number of entries in one page.
const MAX_PAGE_ENTRIES: usize = 1_000;
const DEFAULT_PAGE_ENTRIES: usize = 100;
/// The maximum number of fork levels that are read for earlier conversation.
pub(crate) const MAX_LINEAGE: usize = 64;
/// The maximum number of listed checkpoints.
const MAX_CHECKPOINTS: usize = 100;

/// The readable part of one thread's log.
pub(crate) struct ThreadLog {
    pub(crate) session: SessionId,
    pub(crate) fold: ThreadFold,
    reader: Box<dyn Reader>,
}

impl ThreadLog {
    /// Reads the whole log once; only the good prefix of a damaged one.
    pub(crate) fn read_session(home: &UserHome, session: SessionId) -> Result<ThreadLog, ApiError> {
        let reader = home.store.open_reader(session)?;
        let fold = fold_log(&*reader)?;
        if fold.summary.session.is_none() {
            let message =
                format!("could not read thread s_{session}; `minke log verify s_{session}` shows the reason");
            return Err(ApiError::new(ErrorCode::StorageFailed, message));
        }
        Ok(ThreadLog { session, fold, reader })
    }

    pub(crate) fn thread_object(&self, home: &UserHome) -> Result<ThreadObject, ApiError> {
        thread_object(home, &self.fold.summary)?.ok_or_else(|| {
            ApiError::new(ErrorCode::Conflict, format!("thread s_{} was deleted meanwhile", self.session))
        })
    }

    /// Returns `data` of create, start, resume, fork and read.
    pub(crate) fn response_data(&self) -> Result<Value, ApiError> {
        let history = self.history()?;
        Ok(json!({
            "history": history,
            "checkpoint": self.fold.latest_checkpoint(),
        }))
    }

    /// Returns the newest items of the conversation, oldest first, including those of the threads that it was forked
    /// from.
    fn history(&self) -> Result<Vec<HistoryRow>, ApiError> {
        let mut newest = collect_history(&*self.reader, &self.fold, None)?;
        let mut parent = self.reader.parent_reader()?;
        for _ in 0..MAX_LINEAGE {
            if newest.len() >= MAX_HISTORY {
                break;
            }
            let Some(reader) = parent else { break };
            let mut before = collect_history(&*reader, &fold_log(&*reader)?, Some(reader.session_id()))?;
            before.append(&mut newest);
            newest = before;
            parent = reader.parent_reader()?;
        }
        let mut bytes = 0usize;
        let recent = newest
            .iter()
            .rev()
            .take(MAX_HISTORY)
            .take_while(|row| {
                bytes = bytes.saturating_add(row.content.len().saturating_mul(2));
                bytes <= MAX_PAGE_BYTES
            })
            .count();
        Ok(newest.split_off(newest.len() - recent))
    }

    /// Returns a page of this thread's own entries, and the end of the log.
    pub(crate) fn entries_page(&self, from: Option<u64>, limit: Option<usize>) -> Result<Value, ApiError> {
        let limit = limit.unwrap_or(DEFAULT_PAGE_ENTRIES).clamp(1, MAX_PAGE_ENTRIES);
        let page = self.reader.read_page(from.unwrap_or(0), limit, MAX_PAGE_BYTES)?;
        let mut entries = Vec::with_capacity(page.entries.len());
        for sealed in &page.entries {
            let line: Value = serde_json::from_str(&sealed.line).map_err(|e| {
                let message = format!("could not serialize entry {}: {e}", sealed.entry.seq);
                ApiError::new(ErrorCode::Internal, message)
            })?;
            entries.push(line);
        }
        let mut data = json!({ "entries": entries, "head": self.fold.head });
        if let (Some(next), Some(data)) = (page.next_seq, data.as_object_mut()) {
            data.insert("next_seq".to_owned(), json!(next));
        }
        Ok(data)
    }

    /// Returns one checkpoint; `latest` is not stored but computed.
    pub(crate) fn find_checkpoint(&self, id: &str) -> Result<Option<Value>, ApiError> {
        if id == LATEST_CHECKPOINT {
            return Ok(self.fold.latest_checkpoint());
        }
        match self.fold.checkpoints.get(id) {
            Some((seq, _)) => self.saved_checkpoint(*seq),
            None => Ok(None),
        }
    }

    fn saved_checkpoint(&self, seq: u64) -> Result<Option<Value>, ApiError> {
        let page = self.reader.read_page(seq, 1, MAX_PAGE_BYTES)?;
        Ok(page.entries.first().and_then(|sealed| match &sealed.entry.kind {
            Kind::Checkpoint(point) => Some(checkpoint_value(&point.id, &point.state, sealed.entry.ts)),
            _ => None,
        }))
    }

    /// Returns the newest checkpoints, newest first.
    pub(crate) fn list_checkpoints(&self) -> Result<Vec<Value>, ApiError> {
        let mut seqs: Vec<u64> = self.fold.checkpoints.values().map(|(seq, _)| *seq).collect();
        seqs.sort_unstable_by(|a, b| b.cmp(a));
        let (mut points, mut bytes) = (Vec::new(), 0usize);
        for seq in seqs.into_iter().take(MAX_CHECKPOINTS) {
            let Some(point) = self.saved_checkpoint(seq)? else { continue };
            bytes = bytes.saturating_add(point.to_string().len());
            if bytes > MAX_PAGE_BYTES && !points.is_empty() {
                break;
            }
            points.push(point);
        }
        Ok(points)
    }
}

pub(crate) fn fold_log(reader: &dyn Reader) -> Result<ThreadFold, ApiError> {
    let mut fold = ThreadFold::default();
    let end = reader.scan_entries(0, &mut |sealed: SealedEntry| {
        fold.apply(&sealed.entry);
        ControlFlow::Continue(())
    })?;
    if let ScanEnd::Damaged(damage) = end {
        fold.summary.damaged = Some(damage.to_string());
    }
    Ok(fold)
}

/// Returns the newest items of one log's own conversation.
fn collect_history(
    reader: &dyn Reader,
    story: &ThreadFold,
    of: Option<SessionId>,
) -> Result<Vec<HistoryRow>, ApiError> {
    let wanted: BTreeSet<u64> = story.newest_entries(MAX_HISTORY).into_iter().collect();
    let (Some(first), Some(last)) = (wanted.first().copied(), wanted.last().copied()) else {
        return Ok(Vec::new());
    };
    let mut items_found = Vec::new();
    reader.scan_entries(first, &mut |sealed: SealedEntry| {
        if wanted.contains(&sealed.entry.seq) {
            items_found.extend(history_rows(&sealed.entry, of));
        }
        if sealed.entry.seq >= last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(items_found)
}

/// Returns the thread object, including whether its session is held now; `None` if it is gone.
pub(crate) fn thread_object(
    home: &UserHome,
    summary: &SessionSummary,
) -> Result<Option<ThreadObject>, ApiError> {
    let Some(session) = summary.session else { return Ok(None) };
    let is_held = match home.store.lease_holder(session) {
        Ok(holder) => holder.is_some(),
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    let ephemeral = is_ephemeral(home, session);
    let path = home.store.session_path(session).map(|path| path.to_string_lossy().into_owned());
    let Some(thread) = summary.thread_object(is_held, path) else {
        return Ok(None);
    };
    let approval_mode = match (thread.approval_mode.as_str(), summary.backend.as_deref()) {
        // No pod has chosen a sandbox for it yet: the engine knows the backend of a new pod (`Engine::fill_postures`).
        ("", None) => String::new(),
        ("", Some(backend)) => posture_for_backend(backend.parse().ok()).as_str().to_owned(),
        _ => thread.approval_mode.clone(),
    };
    let preview = match summary.shows_parent_preview() {
        true => last_text_before_fork(&*home.store.open_reader(session)?)?
            .unwrap_or_else(|| thread.preview.clone()),
        false => thread.preview.clone(),
    };
    Ok(Some(ThreadObject { ephemeral, approval_mode, preview, ..thread }))
}

/// Returns the default posture, which depends on the sandbox backend. With an unknown backend it asks.
pub(crate) fn posture_for_backend(backend: Option<SandboxBackend>) -> Posture {
    backend.map_or(Posture::Ask, default_posture)
}

/// Returns the last text of the conversation before a fork.
fn last_text_before_fork(fork: &dyn Reader) -> Result<Option<String>, ApiError> {
    let mut parent = fork.parent_reader()?;
    for _ in 0..MAX_LINEAGE {
        let Some(reader) = parent else { break };
        let summary = fold_log(&*reader)?.summary;
        if !summary.shows_parent_preview() {
            return Ok(Some(summary.preview));
        }
        parent = reader.parent_reader()?;
    }
    Ok(None)
}

/// Returns whether a session is ephemeral.
pub(crate) fn is_ephemeral(home: &UserHome, session: SessionId) -> bool {
    home.paths.ephemeral_sessions_dir().join(session.to_string()).is_dir()
}

/// Returns the state that a pod would have for the session, starting at its last carry.
pub(crate) fn load_state(home: &UserHome, session: SessionId) -> Result<State, ApiError> {
    let replay = home.store.open_reader(session)?.read_replay()?;
    Ok(State::replay(replay.iter().map(|sealed| &sealed.entry)))
}

/// Returns the first entry.
pub(crate) fn read_session_start(home: &UserHome, session: SessionId) -> Result<SessionStart, ApiError> {
    let first = home.store.open_reader(session)?.read_page(0, 1, usize::MAX)?.entries.into_iter().next();
    match first.map(|SealedEntry { entry: Entry { kind, .. }, .. }| kind) {
        Some(Kind::SessionStart(start)) => Ok(start),
        _ => {
            Err(ApiError::new(ErrorCode::StorageFailed, format!("the log of s_{session} has no first entry")))
        }
    }
}

/// Returns whether the session exists.
pub(crate) fn session_exists(home: &UserHome, session: SessionId) -> Result<bool, ApiError> {
    match home.store.log_stamp(session) {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}
