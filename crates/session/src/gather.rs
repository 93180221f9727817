//! Gathering: the lines since the last carry, and the entries in them.
//!
//! Here: which line is the last carry, and reading what follows it. Elsewhere: the lineage of a fork, and what is
//! done about an entry that cannot be read (`replay`).

use minke_record::{History, Kind, line};

use crate::error::StoreError;
use crate::head::{self, Head, Mark};
use crate::replay::{LogDir, Replayed, Unreadable, fetch_lists, sealed};
use crate::store::Sealed;
use crate::walk::{self, End, LogFiles, Place, Step, Why};

/// Collects the lines since the last carry while walking.
pub(crate) struct Gather<'a> {
    log: &'a LogDir,
    files: &'a LogFiles,
    limit: Option<u64>,
    pub(crate) cached: Option<Head>,
    /// The lines since the last carry, one behind the other.
    text: Vec<u8>,
    lines: Vec<Raw>,
    head: Option<Head>,
    segment: Option<(Mark, Vec<u8>)>,
    good: Option<Place>,
}

/// Where a line stands in the text.
#[derive(Clone, Copy)]
struct Raw {
    mark: Mark,
    /// The first entry of its step.
    step: u64,
    from: usize,
    to: usize,
}

/// Whether the head may say where to begin.
#[derive(Clone, Copy)]
pub(crate) enum Cache {
    Use,
    Ignore,
}

pub(crate) enum Finished {
    Good(Box<Replayed>),
    Bad { place: Place, step: u64, reason: String },
}

impl<'a> Gather<'a> {
    pub(crate) fn new(log: &'a LogDir, files: &'a LogFiles, limit: Option<u64>) -> Gather<'a> {
        let (text, lines) = (Vec::new(), Vec::new());
        Gather { log, files, limit, cached: None, text, lines, head: None, segment: None, good: None }
    }

    /// From the carry that the cache names, or from the beginning.
    pub(crate) fn walk(&mut self, cache: Cache) -> std::io::Result<End> {
        let cached = match cache {
            Cache::Use => head::load(self.log.disk(), self.files, self.log.id),
            Cache::Ignore => None,
        };
        let cached = cached.filter(|head| self.limit.is_none_or(|limit| head.carry.seq <= limit));
        if let Some(cached) = cached
            && let Some(text) = head::line_at(self.log.disk(), self.files, &cached.start)?
        {
            self.segment = Some((cached.start, text));
            let end = self.walk_from(cached.carry.place())?;
            if self.head.is_some() {
                self.cached = Some(cached);
                return Ok(end);
            }
            // The cache named a line that is no carry, or one whose step was never finished.
            self.forget();
            self.segment = None;
            self.good = None;
        }
        self.walk_from(Place::ORIGIN)
    }

    /// The last carry that the walk has met.
    pub(crate) fn carry(&self) -> Option<Mark> {
        self.head.map(|head| head.carry)
    }

    fn walk_from(&mut self, from: Place) -> std::io::Result<End> {
        let end = walk::walk(self.log.disk(), self.files, from, &mut |step| {
            for line in &step.lines {
                if self.limit.is_some_and(|limit| line.place.seq > limit) {
                    self.good = Some(line.place);
                    return Ok(false);
                }
                self.take(step, line);
            }
            Ok(true)
        })?;
        let stopped = self.good.unwrap_or(from);
        Ok(end.unwrap_or(End { good: stopped, why: Why::Tail(0) }))
    }

    fn take(&mut self, step: &Step, line: &walk::LineAt) {
        let text = step.text(line);
        let first = step.lines.first().map_or(line.place.seq, |first| first.place.seq);
        let mark = Mark::new(line.place, line.h);
        let named = line::glance(text).map(|(_, kind)| kind);
        if named.is_none_or(|kind| kind == "segment_start" || kind == "carry") {
            self.take_carry(mark, text);
        }
        self.keep(mark, first, text);
    }

    /// Forgets what came before if this line is a carry. One that cannot be read is found again by `finish`.
    fn take_carry(&mut self, mark: Mark, text: &[u8]) {
        match sealed(text).map(|sealed| sealed.entry.kind) {
            Ok(Kind::SegmentStart(start)) => {
                self.segment = Some((mark, text.to_vec()));
                if whole(&start.history) {
                    self.forget();
                    self.head = Some(Head { carry: mark, start: mark });
                }
            }
            Ok(Kind::Carry(carry)) if whole(&carry.history) => {
                let segment = self.segment.clone().filter(|(start, _)| start.seq == carry.start);
                if let Some((start, segment)) = segment {
                    self.forget();
                    self.keep(start, start.seq, &segment);
                    self.head = Some(Head { carry: mark, start });
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, mark: Mark, step: u64, text: &[u8]) {
        let from = self.text.len();
        self.text.extend_from_slice(text);
        self.lines.push(Raw { mark, step, from, to: self.text.len() });
    }

    fn forget(&mut self) {
        self.lines.clear();
        self.text.clear();
    }

    /// Reads the entries out of the lines and puts spilled lists back.
    pub(crate) fn finish(self, end: End) -> Result<Finished, StoreError> {
        let mut entries = Vec::with_capacity(self.lines.len());
        for (raw, read) in self.lines.iter().zip(self.read_all()) {
            let fetched = read.map_err(Unreadable::Here).and_then(|mut sealed| {
                fetch_lists(self.log, &mut sealed.entry)?;
                Ok(sealed)
            });
            match fetched {
                Ok(sealed) => entries.push(sealed),
                Err(Unreadable::Here(reason)) => {
                    return Ok(Finished::Bad { place: raw.mark.place(), step: raw.step, reason });
                }
                Err(Unreadable::Disk(error)) => return Err(error),
            }
        }
        let last_ts = entries.last().map_or(0, |last| last.entry.ts);
        let (tail, damage) = match end.why {
            Why::Tail(tail) => (tail, None),
            Why::Damage(damage) => (0, Some(damage)),
        };
        Ok(Finished::Good(Box::new(Replayed {
            entries,
            good: end.good,
            tail,
            damage,
            stale: self.head != self.cached,
            head: self.head,
            segment: self.segment.map(|(mark, _)| mark),
            last_ts,
            unchecked: false,
        })))
    }

    /// Reading is pure, so where there is much of it every processor helps.
    fn read_all(&self) -> Vec<Result<Sealed, String>> {
        let read = |lines: &[Raw]| -> Vec<Result<Sealed, String>> {
            lines.iter().map(|raw| sealed(&self.text[raw.from..raw.to])).collect()
        };
        let helpers = std::thread::available_parallelism().map_or(1, |n| n.get().min(HELPERS));
        if self.lines.len() < HELP_FROM || helpers < 2 {
            return read(&self.lines);
        }
        let share = self.lines.len().div_ceil(helpers);
        std::thread::scope(|scope| {
            let (ours, theirs) = self.lines.split_at(share);
            let threads: Vec<_> =
                theirs.chunks(share).map(|part| (part, scope.spawn(move || read(part)))).collect();
            let mut all = read(ours);
            for (part, thread) in threads {
                // A thread that panicked leaves its part to us; then the panic is ours.
                all.extend(thread.join().unwrap_or_else(|_| read(part)));
            }
            all
        })
    }
}

/// So many lines are worth a thread.
const HELP_FROM: usize = 512;
/// A pod is small; opening one takes no more processors than this.
const HELPERS: usize = 4;

fn whole(history: &History) -> bool {
    !matches!(history, History::SameAs { .. })
}
