//! Log reader: reads the session on disk for clients, off the event loop.
//!
//! Here: snapshots, missed entries, pages, blobs. Each read happens when the client is ready for it and
//! returns at most one frame. Elsewhere: the log files (`session`), the references of an input
//! (`resolve_references`).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_files::ScopedFiles;
use minke_protocol::limits::MAX_FRAME_BYTES;
use minke_protocol::{EntryPage, Read, ReadBlob, ReadBlobReply, Refusal, ReplyData};
use minke_record::{ErrorCode, Position, SessionId, Text};
use minke_references::{ReferenceDirs, ReferenceResolver};
use minke_session::{Reader, ScanEnd, SealedEntry, SessionStore, StoreError};

use crate::clients::{ClientJoin, DeferredLine};

/// The page size for a client that catches up.
const CATCH_UP_ENTRIES: usize = 256;
const CATCH_UP_BYTES: usize = 256 * 1024;
/// No entry is shorter than this, so a frame has at most `FRAME_BYTES` divided by it entries: a snapshot of a
/// long segment can skip older ones.
const MIN_LINE_BYTES: u64 = 100;

/// Reads one session. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionReader {
    store: Arc<dyn SessionStore>,
    session: SessionId,
    references: Arc<ReferenceResolver>,
}

impl SessionReader {
    /// A reader without references.
    pub(crate) fn new(store: Arc<dyn SessionStore>, session: SessionId) -> SessionReader {
        let references =
            ReferenceResolver::new(Arc::new(ScopedFiles::without_grants()), ReferenceDirs::default());
        SessionReader { store, session, references: Arc::new(references) }
    }

    /// Adds the files that inputs may refer to.
    pub(crate) fn with_references(self, references: ReferenceResolver) -> SessionReader {
        SessionReader { references: Arc::new(references), ..self }
    }

    pub(crate) fn references(&self) -> &ReferenceResolver {
        &self.references
    }

    pub(crate) fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) fn cwd(&self) -> &Path {
        self.references.working_dir()
    }

    pub(crate) fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.open_reader(self.session)
    }

    /// A text, loaded from a blob if it was too long for the log line.
    pub(crate) async fn load_text(&self, text: Text) -> Result<String, String> {
        let name = match text {
            Text::Inline(text) => return Ok(text),
            Text::Blob(name) => name,
        };
        let read = move |session_reader: &SessionReader| {
            let bytes = usize::try_from(name.bytes).map_err(|e| e.to_string())?;
            let reader = session_reader.reader().map_err(|e| e.to_string())?;
            let content = reader.read_blob(&name.blob, 0, bytes).map_err(|e| e.to_string())?;
            String::from_utf8(content).map_err(|e| e.to_string())
        };
        self.run_blocking(read).await
    }

    /// Runs blocking work off the event loop.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SessionReader) -> T + Send + 'static,
    ) -> T {
        let session_reader = self.clone();
        match tokio::task::spawn_blocking(move || work(&session_reader)).await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    pub(crate) async fn make_line(&self, make: DeferredLine) -> Option<Arc<str>> {
        self.run_blocking(move |session_reader| make(session_reader)).await
    }

    pub(crate) async fn read_head(&self) -> Result<u64, StoreError> {
        self.run_blocking(|library| Ok(library.reader()?.head_position()?.map_or(0, |head| head.seq))).await
    }

    /// The lines of the entries from `from` to `head`, up to one page, and the start of the next page.
    pub(crate) async fn read_frames(&self, from: u64, head: u64) -> Result<(String, u64), StoreError> {
        self.run_blocking(move |session_reader| {
            let page = session_reader.reader()?.read_page(from, CATCH_UP_ENTRIES, CATCH_UP_BYTES)?;
            let (mut lines, mut next) = (String::new(), from);
            for SealedEntry { entry, line } in page.entries.iter().filter(|sealed| sealed.entry.seq <= head) {
                for frame in minke_protocol::entry_frames(entry, line) {
                    lines.push_str(&frame);
                }
                next = entry.seq + 1;
            }
            if next == from {
                // An entry that other clients have seen cannot be read: never skip it.
                let head = Some(from.saturating_sub(1));
                return Err(StoreError::NoSuchEntry { id: session_reader.session, seq: from, head });
            }
            Ok((lines, next))
        })
        .await
    }

    /// Recorded alerts that are not in the snapshot, then the snapshot.
    pub(crate) async fn load_snapshot(&self, join: Box<ClientJoin>) -> Result<String, StoreError> {
        self.run_blocking(move |session_reader| session_reader.snapshot_lines(*join)).await
    }

    fn snapshot_lines(&self, mut join: ClientJoin) -> Result<String, StoreError> {
        let reader = self.reader()?;
        let head = join.snapshot.head;
        let since = match join.hello.since {
            Some(since) if since.seq <= head.seq => {
                reader.position_of(since.seq)?.filter(|position| *position == since)
            }
            Some(_) | None => None,
        };
        let from = since.map_or(join.segment_start, |since| since.seq + 1);
        let bound = head.seq.saturating_sub(MAX_FRAME_BYTES as u64 / MIN_LINE_BYTES);
        let window = newest_lines(reader.as_ref(), from.max(bound), head)?;
        let first = window.first.unwrap_or(head.seq + 1);
        join.snapshot.older = first > since.map_or(0, |since| since.seq + 1);
        let lines: Vec<&str> = window.lines.iter().map(AsRef::as_ref).collect();
        let snapshot = minke_protocol::encode_snapshot(&join.snapshot, &lines);
        let mut out = String::with_capacity(snapshot.len());
        for (seq, line) in &join.alerts {
            let held = seq.is_some_and(|seq| seq >= first || since.is_some_and(|since| seq <= since.seq));
            if !held {
                out.push_str(line);
            }
        }
        out.push_str(&snapshot);
        Ok(out)
    }

    /// The reply to `read`.
    pub(crate) fn read_page(&self, read: &Read) -> Result<ReplyData, Refusal> {
        let reader = self.reader().map_err(read_refusal)?;
        let mut page = EntryPage::new(read.limit);
        let mut next = None;
        let wanted = |sealed: &SealedEntry| {
            let name = sealed.entry.kind.name();
            read.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind == name))
        };
        let mut given = false;
        let end = reader
            .scan_entries(read.from_seq, &mut |sealed| {
                if wanted(&sealed) {
                    if !page.push(&sealed.line) {
                        next = Some(sealed.entry.seq);
                        return ControlFlow::Break(());
                    }
                    given = true;
                }
                ControlFlow::Continue(())
            })
            .map_err(read_refusal)?;
        match end {
            // Returns the intact entries; a read of the following ones returns the error.
            ScanEnd::Damaged(damage) if !given => {
                Err(read_refusal(StoreError::Damaged { id: self.session, damage }))
            }
            ScanEnd::Damaged(damage) => Ok(page.into_reply(next.or(Some(damage.seq)))),
            ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(page.into_reply(next)),
        }
    }

    /// The reply to `read_blob`.
    pub(crate) fn read_blob(&self, read: &ReadBlob) -> Result<ReplyData, Refusal> {
        let reader = self.reader().map_err(read_refusal)?;
        // One byte more than is returned, to detect the end without a query of the length.
        let mut piece = reader.read_blob(&read.blob, read.offset, read.limit + 1).map_err(read_refusal)?;
        let more = piece.len() > read.limit;
        piece.truncate(read.limit);
        let end = read.offset + piece.len() as u64;
        let bytes = if more { self.blob_length(reader.as_ref(), &read.blob, end)? } else { end };
        let next_offset = more.then_some(end);
        let data = BASE64_STANDARD.encode(&piece);
        Ok(ReplyData::from_result(&ReadBlobReply { data, offset: read.offset, bytes, next_offset }))
    }

    /// The length of a blob that is at least `known` long.
    fn blob_length(&self, reader: &dyn Reader, name: &str, known: u64) -> Result<u64, Refusal> {
        let mut end = known;
        loop {
            let piece = reader.read_blob(name, end, MAX_FRAME_BYTES).map_err(read_refusal)?;
            if piece.is_empty() {
                return Ok(end);
            }
            end += piece.len() as u64;
        }
    }
}

/// The newest lines from `from` to `head` that fit a frame.
struct LineWindow {
    first: Option<u64>,
    lines: VecDeque<Arc<str>>,
}

fn newest_lines(reader: &dyn Reader, from: u64, head: Position) -> Result<LineWindow, StoreError> {
    let mut window = LineWindow { first: None, lines: VecDeque::new() };
    if from > head.seq {
        return Ok(window);
    }
    let mut bytes = 0;
    let mut next = from;
    let end = reader.scan_entries(from, &mut |sealed| {
        let seq = sealed.entry.seq;
        if seq > head.seq {
            return ControlFlow::Break(());
        }
        next = seq + 1;
        bytes += sealed.line.len();
        window.first.get_or_insert(seq);
        window.lines.push_back(sealed.line);
        while bytes > MAX_FRAME_BYTES
            && let Some(oldest) = window.lines.pop_front()
        {
            bytes -= oldest.len();
            window.first = window.first.map(|first| first + 1);
        }
        ControlFlow::Continue(())
    })?;
    match end {
        ScanEnd::Damaged(damage) => Err(StoreError::Damaged { id: reader.session_id(), damage }),
        // An entry that the pod has written cannot be read: never skip it.
        ScanEnd::Clean { .. } | ScanEnd::Stopped if next <= head.seq => {
            Err(StoreError::NoSuchEntry { id: reader.session_id(), seq: next, head: next.checked_sub(1) })
        }
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(window),
    }
}

/// Converts a read error to a refusal.
pub(crate) fn read_refusal(error: StoreError) -> Refusal {
    let code = match &error {
        StoreError::NotFound { .. } | StoreError::NoSuchEntry { .. } | StoreError::Blob { .. } => {
            ErrorCode::NotFound
        }
        StoreError::Held { .. }
        | StoreError::HeldByOtherHome { .. }
        | StoreError::WorkspaceOnOtherHost { .. }
        | StoreError::Exists { .. }
        | StoreError::HasForks { .. }
        | StoreError::CannotFork { .. } => ErrorCode::Conflict,
        StoreError::WrongLease { .. } | StoreError::NewerFormat { .. } => ErrorCode::InvalidRequest,
        StoreError::Damaged { .. }
        | StoreError::Lineage { .. }
        | StoreError::Io { .. }
        | StoreError::Append { .. } => ErrorCode::StorageFailed,
    };
    Refusal::new(code, format!("{error}; {}", error.hint()))
}
