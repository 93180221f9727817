//! The library: what clients read of the session on disk, off the loop.
//!
//! Here: snapshots, missed entries, pages, blobs. Each reads what it needs when a client is
//! ready to take it, and never more than a frame. Elsewhere: how the log lies on disk (`session`), what an
//! input brings along (`referring`).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_files::Files;
use minke_protocol::limits::FRAME_BYTES;
use minke_protocol::{Page, Read, ReadBlob, ReadBlobReply, Refusal, ReplyData};
use minke_record::{ErrorCode, Position, SessionId, Text};
use minke_references::{Places, References};
use minke_session::{Reader, ScanEnd, Sealed, Store, StoreError};

use crate::clients::{Join, Work};

/// What a client that catches up is given at once.
const CATCH_UP_ENTRIES: usize = 256;
const CATCH_UP_BYTES: usize = 256 * 1024;
/// No entry is shorter than this, so a frame holds no more than `FRAME_BYTES` divided by it: a snapshot of a long
/// segment need not look at older ones.
const SHORTEST_LINE: u64 = 100;

/// Reads one session. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Library {
    store: Arc<dyn Store>,
    session: SessionId,
    references: Arc<References>,
}

impl Library {
    /// With nothing to refer to.
    pub(crate) fn new(store: Arc<dyn Store>, session: SessionId) -> Library {
        let references = References::new(Arc::new(Files::none()), Places::default());
        Library { store, session, references: Arc::new(references) }
    }

    /// The same, with what inputs may refer to in reach.
    pub(crate) fn with_references(self, references: References) -> Library {
        Library { references: Arc::new(references), ..self }
    }

    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) fn cwd(&self) -> &Path {
        self.references.cwd()
    }

    pub(crate) fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader(self.session)
    }

    /// A text, fetched if it was too long for the log's line.
    pub(crate) async fn text(&self, text: Text) -> Result<String, String> {
        let name = match text {
            Text::Here(text) => return Ok(text),
            Text::Blob(name) => name,
        };
        let read = move |library: &Library| {
            let bytes = usize::try_from(name.bytes).map_err(|e| e.to_string())?;
            let reader = library.reader().map_err(|e| e.to_string())?;
            let content = reader.blob(&name.blob, 0, bytes).map_err(|e| e.to_string())?;
            String::from_utf8(content).map_err(|e| e.to_string())
        };
        self.off_loop(read).await
    }

    /// Runs something that reads files, off the loop.
    pub(crate) async fn off_loop<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Library) -> T + Send + 'static,
    ) -> T {
        let library = self.clone();
        match tokio::task::spawn_blocking(move || work(&library)).await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    pub(crate) async fn work(&self, make: Work) -> Option<Arc<str>> {
        self.off_loop(move |library| make(library)).await
    }

    pub(crate) async fn head(&self) -> Result<u64, StoreError> {
        self.off_loop(|library| Ok(library.reader()?.head()?.map_or(0, |head| head.seq))).await
    }

    /// The lines of entries from `from` to `head` or as far as one bite goes, and where the next bite begins.
    pub(crate) async fn frames(&self, from: u64, head: u64) -> Result<(String, u64), StoreError> {
        self.off_loop(move |library| {
            let page = library.reader()?.page(from, CATCH_UP_ENTRIES, CATCH_UP_BYTES)?;
            let (mut lines, mut next) = (String::new(), from);
            for Sealed { entry, line } in page.entries.iter().filter(|sealed| sealed.entry.seq <= head) {
                for frame in minke_protocol::frames(entry, line) {
                    lines.push_str(&frame);
                }
                next = entry.seq + 1;
            }
            if next == from {
                // An entry that everybody else was shown is not to be read: never go on without it.
                let head = Some(from.saturating_sub(1));
                return Err(StoreError::NoSuchEntry { id: library.session, seq: from, head });
            }
            Ok((lines, next))
        })
        .await
    }

    /// Kept alerts that the snapshot does not hold, then the snapshot.
    pub(crate) async fn snapshot(&self, join: Box<Join>) -> Result<String, StoreError> {
        self.off_loop(move |library| library.snapshot_lines(*join)).await
    }

    fn snapshot_lines(&self, mut join: Join) -> Result<String, StoreError> {
        let reader = self.reader()?;
        let head = join.around.head;
        let since = match join.hello.since {
            Some(since) if since.seq <= head.seq => {
                reader.position(since.seq)?.filter(|position| *position == since)
            }
            Some(_) | None => None,
        };
        let from = since.map_or(join.segment_start, |since| since.seq + 1);
        let bound = head.seq.saturating_sub(FRAME_BYTES as u64 / SHORTEST_LINE);
        let window = window(reader.as_ref(), from.max(bound), head)?;
        let first = window.first.unwrap_or(head.seq + 1);
        join.around.older = first > since.map_or(0, |since| since.seq + 1);
        let lines: Vec<&str> = window.lines.iter().map(AsRef::as_ref).collect();
        let snapshot = minke_protocol::snapshot(&join.around, &lines);
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
    pub(crate) fn page(&self, read: &Read) -> Result<ReplyData, Refusal> {
        let reader = self.reader().map_err(unread)?;
        let mut page = Page::new(read.limit);
        let mut next = None;
        let wanted = |sealed: &Sealed| {
            let name = sealed.entry.kind.name();
            read.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind == name))
        };
        let mut given = false;
        let end = reader
            .scan(read.from_seq, &mut |sealed| {
                if wanted(&sealed) {
                    if !page.push(&sealed.line) {
                        next = Some(sealed.entry.seq);
                        return ControlFlow::Break(());
                    }
                    given = true;
                }
                ControlFlow::Continue(())
            })
            .map_err(unread)?;
        match end {
            // What is intact is given; asking for what comes after it says why there is no more.
            ScanEnd::Damaged(damage) if !given => {
                Err(unread(StoreError::Damaged { id: self.session, damage }))
            }
            ScanEnd::Damaged(damage) => Ok(page.reply(next.or(Some(damage.seq)))),
            ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(page.reply(next)),
        }
    }

    /// The reply to `read_blob`.
    pub(crate) fn blob(&self, read: &ReadBlob) -> Result<ReplyData, Refusal> {
        let reader = self.reader().map_err(unread)?;
        // One byte more than is given, so that the end is known without asking for the length.
        let mut piece = reader.blob(&read.blob, read.offset, read.limit + 1).map_err(unread)?;
        let more = piece.len() > read.limit;
        piece.truncate(read.limit);
        let end = read.offset + piece.len() as u64;
        let bytes = if more { self.blob_length(reader.as_ref(), &read.blob, end)? } else { end };
        let next_offset = more.then_some(end);
        let data = BASE64_STANDARD.encode(&piece);
        Ok(ReplyData::ok(&ReadBlobReply { data, offset: read.offset, bytes, next_offset }))
    }

    /// The length of a blob that is at least `known` long.
    fn blob_length(&self, reader: &dyn Reader, name: &str, known: u64) -> Result<u64, Refusal> {
        let mut end = known;
        loop {
            let piece = reader.blob(name, end, FRAME_BYTES).map_err(unread)?;
            if piece.is_empty() {
                return Ok(end);
            }
            end += piece.len() as u64;
        }
    }
}

/// The newest lines from `from` to `head` that fit a frame.
struct Window {
    first: Option<u64>,
    lines: VecDeque<Arc<str>>,
}

fn window(reader: &dyn Reader, from: u64, head: Position) -> Result<Window, StoreError> {
    let mut window = Window { first: None, lines: VecDeque::new() };
    if from > head.seq {
        return Ok(window);
    }
    let mut bytes = 0;
    let mut next = from;
    let end = reader.scan(from, &mut |sealed| {
        let seq = sealed.entry.seq;
        if seq > head.seq {
            return ControlFlow::Break(());
        }
        next = seq + 1;
        bytes += sealed.line.len();
        window.first.get_or_insert(seq);
        window.lines.push_back(sealed.line);
        while bytes > FRAME_BYTES
            && let Some(oldest) = window.lines.pop_front()
        {
            bytes -= oldest.len();
            window.first = window.first.map(|first| first + 1);
        }
        ControlFlow::Continue(())
    })?;
    match end {
        ScanEnd::Damaged(damage) => Err(StoreError::Damaged { id: reader.id(), damage }),
        // An entry that the pod has written is not to be read: a client never goes on without it.
        ScanEnd::Clean { .. } | ScanEnd::Stopped if next <= head.seq => {
            Err(StoreError::NoSuchEntry { id: reader.id(), seq: next, head: next.checked_sub(1) })
        }
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(window),
    }
}

/// Why something on disk could not be given, as a refusal.
pub(crate) fn unread(error: StoreError) -> Refusal {
    let code = match &error {
        StoreError::NotFound { .. } | StoreError::NoSuchEntry { .. } | StoreError::Blob { .. } => {
            ErrorCode::NotFound
        }
        StoreError::Held { .. }
        | StoreError::HeldElsewhere { .. }
        | StoreError::WorkspaceElsewhere { .. }
        | StoreError::Exists { .. }
        | StoreError::HasForks { .. }
        | StoreError::NoFork { .. } => ErrorCode::Conflict,
        StoreError::NotTheLease { .. } | StoreError::NewerFormat { .. } => ErrorCode::InvalidRequest,
        StoreError::Damaged { .. }
        | StoreError::Lineage { .. }
        | StoreError::Io { .. }
        | StoreError::Append { .. } => ErrorCode::StorageFailed,
    };
    Refusal::new(code, format!("{error}; {}", error.hint()))
}
