//! Views of the whole log: it is read page by page, and shown when the last page is there.

use minke_protocol::{Method, ReadReply};
use minke_view::{Changes, ContextUse};

use super::over::Over;
use super::{App, Pending};
use crate::panes::{ContextPane, DiffPane};

/// Pages of a log that one view reads: 500,000 entries.
const PAGES: usize = 500;

/// What a view of the whole log is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gathered {
    Changes,
    Context,
}

/// A log that is being read.
#[derive(Debug, Clone)]
pub(super) struct Gathering {
    what: Gathered,
    changes: Changes,
    context: ContextUse,
    pages: usize,
}

impl App {
    /// Reads the whole log for a view of all of it, page by page.
    pub(super) fn gather(&mut self, what: Gathered) {
        let gathering = Gathering { what, changes: Changes::new(), context: ContextUse::new(), pages: 0 };
        self.gather_from(0, gathering);
    }

    fn gather_from(&mut self, from_seq: u64, gathering: Gathering) {
        let read =
            minke_protocol::Read { from_seq, limit: minke_protocol::limits::PAGE_ENTRIES, kinds: None };
        self.send(Method::Read(read), Pending::Gather(Box::new(gathering)));
    }

    pub(super) fn gathered(&mut self, mut gathering: Gathering, page: &ReadReply) {
        for entry in &page.entries {
            match gathering.what {
                Gathered::Changes => gathering.changes.entry(entry),
                Gathered::Context => gathering.context.entry(entry),
            }
        }
        gathering.pages += 1;
        match page.next_seq {
            Some(next) if gathering.pages < PAGES => return self.gather_from(next, gathering),
            Some(_) => self.say("the session is very long: what is newest is not in here"),
            None => {}
        }
        self.over = Some(match gathering.what {
            Gathered::Changes => Over::Diff(Box::new(DiffPane::new(gathering.changes))),
            Gathered::Context => {
                Over::Context { pane: ContextPane::default(), context: Box::new(gathering.context) }
            }
        });
    }
}
