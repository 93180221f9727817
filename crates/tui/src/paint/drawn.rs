//! Drawn: lines that were laid out already, by block, with an end.
//!
//! A reply that grows keeps its stream: new words cost about themselves, not the whole reply again.

use std::collections::HashMap;

use minke_view::{Block, BlockId, Body};
use ratatui::text::Line;

use super::block::{block, left_out};
use super::stream::Stream;
use super::theme::Theme;

/// Lines that are kept in all: some megabytes. The blocks that were asked for longest ago go first.
const LINES: usize = 60_000;

/// What was drawn of blocks.
pub struct Drawn {
    kept: HashMap<BlockId, Kept>,
    /// Counts questions; a block's age is the count at which it was last asked for.
    clock: u64,
    lines: usize,
    limit: usize,
    painted: u64,
    grown: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    version: u64,
    width: u16,
    theme: Theme,
    open: bool,
}

struct Kept {
    key: Key,
    used: u64,
    what: What,
}

enum What {
    Lines(Vec<Line<'static>>),
    Growing {
        stream: Box<Stream>,
        /// The text that the stream has.
        text: String,
    },
}

impl What {
    fn count(&self) -> usize {
        match self {
            What::Lines(lines) => lines.len(),
            What::Growing { stream, .. } => stream.kept(),
        }
    }
}

impl Default for Drawn {
    fn default() -> Drawn {
        Drawn::new(LINES)
    }
}

impl Drawn {
    /// Keeps about so many lines.
    pub fn new(limit: usize) -> Drawn {
        Drawn { kept: HashMap::new(), clock: 0, lines: 0, limit, painted: 0, grown: 0 }
    }

    /// The lines of a block, as [`block`] gives them.
    pub fn lines(&mut self, told: &Block, width: u16, theme: &Theme, open: bool) -> &[Line<'static>] {
        self.clock += 1;
        let key = Key { version: told.version, width, theme: *theme, open };
        let mut kept = self.kept.remove(&told.id);
        if let Some(kept) = &kept {
            self.lines = self.lines.saturating_sub(kept.what.count());
        }
        if kept.as_ref().is_none_or(|kept| kept.key != key) {
            self.painted += 1;
            let (what, more) = match grown(kept.take(), told, key) {
                Some(grown) => grown,
                None => (What::Lines(block(told, width, theme, open)), false),
            };
            self.grown += u64::from(more);
            kept = Some(Kept { key, used: self.clock, what });
        }
        let kept = kept.map(|kept| Kept { used: self.clock, ..kept });
        self.lines += kept.as_ref().map_or(0, |kept| kept.what.count());
        self.forget();
        self.kept.extend(kept.map(|kept| (told.id, kept)));
        match self.kept.get_mut(&told.id).map(|kept| &mut kept.what) {
            Some(What::Lines(lines)) => lines,
            Some(What::Growing { stream, .. }) => stream.lines(true),
            None => &[],
        }
    }

    /// How often something was laid out rather than found.
    pub fn painted(&self) -> u64 {
        self.painted
    }

    /// How often only what is new was laid out.
    pub fn grown(&self) -> u64 {
        self.grown
    }

    /// How many lines are kept.
    pub fn kept(&self) -> usize {
        self.lines
    }

    pub fn clear(&mut self) {
        self.kept.clear();
        self.lines = 0;
    }

    /// Lets the older half go once there are too many; half, so that this is seldom.
    fn forget(&mut self) {
        if self.lines <= self.limit {
            return;
        }
        let mut ages: Vec<(u64, BlockId)> = self.kept.iter().map(|(id, kept)| (kept.used, *id)).collect();
        ages.sort_unstable();
        for (_, id) in ages {
            if self.lines <= self.limit / 2 {
                break;
            }
            let gone = self.kept.remove(&id).map_or(0, |kept| kept.what.count());
            self.lines = self.lines.saturating_sub(gone);
        }
    }
}

/// A reply that is still coming, and whether it was gone on with from where it was, as its text has only grown.
fn grown(kept: Option<Kept>, told: &Block, key: Key) -> Option<(What, bool)> {
    let Body::Reply(words) = &told.body else { return None };
    if !words.open || key.theme.plain {
        return None;
    }
    let note = left_out(words, key.width, &key.theme);
    let same = |old: Key| old.width == key.width && old.theme == key.theme;
    if let Some(Kept { key: old, what: What::Growing { mut stream, mut text }, .. }) = kept
        && same(old)
        && let Some(more) = words.text.strip_prefix(text.as_str())
    {
        stream.push(more);
        text.push_str(more);
        stream.note(note);
        stream.lines(true);
        return Some((What::Growing { stream, text }, true));
    }
    let mut stream = Box::new(Stream::new(key.width, key.theme));
    stream.push(&words.text);
    stream.note(note);
    stream.lines(true);
    Some((What::Growing { stream, text: words.text.clone() }, false))
}
