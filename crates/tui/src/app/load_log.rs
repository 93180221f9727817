//! Views of the whole log, which are shown once all pages are read.

use minke_protocol::{Method, ReadReply};
use minke_view::{ContextUsage, SessionChanges};

use super::views::overlay::Overlay;
use super::{App, PendingReply};
use crate::app::{SessionLink, UiOutput};
use crate::panes::{ContextPane, DiffPane};

/// Limit for the pages of one view: 500,000 entries.
const MAX_PAGES: usize = 500;

/// A view of the whole log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogViewKind {
    Changes,
    Context,
}

/// A log that is being read.
#[derive(Debug, Clone)]
pub(super) struct LogLoad {
    kind: LogViewKind,
    changes: SessionChanges,
    context: ContextUsage,
    pages: usize,
}

impl SessionLink {
    /// Reads the whole log page by page for a view.
    pub(in crate::app) fn load_log(&mut self, output: &mut UiOutput, kind: LogViewKind) {
        let gathering =
            LogLoad { kind, changes: SessionChanges::new(), context: ContextUsage::new(), pages: 0 };
        self.load_log_from(output, 0, gathering);
    }

    pub(in crate::app) fn load_log_from(&mut self, output: &mut UiOutput, from_seq: u64, gathering: LogLoad) {
        let read =
            minke_protocol::Read { from_seq, limit: minke_protocol::limits::MAX_PAGE_ENTRIES, kinds: None };
        self.send_method(output, Method::Read(read), PendingReply::LogPage(Box::new(gathering)));
    }
}

impl App {
    pub(super) fn apply_log_page(&mut self, mut gathering: LogLoad, page: &ReadReply) {
        for entry in &page.entries {
            match gathering.kind {
                LogViewKind::Changes => gathering.changes.apply_entry(entry),
                LogViewKind::Context => gathering.context.apply_entry(entry),
            }
        }
        gathering.pages += 1;
        match page.next_seq {
            Some(next) if gathering.pages < MAX_PAGES => {
                return self.link.load_log_from(&mut self.output, next, gathering);
            }
            Some(_) => self.output.show_note("the session is very long: the newest entries are missing"),
            None => {}
        }
        self.lists.overlay = Some(match gathering.kind {
            LogViewKind::Changes => Overlay::Diff(Box::new(DiffPane::new(gathering.changes))),
            LogViewKind::Context => {
                Overlay::Context { pane: ContextPane::default(), context: Box::new(gathering.context) }
            }
        });
    }
}
