//! Collects the lines since the last carry, and parses their entries.
//!
//! Here: finding the last carry, and reading the lines after it. Elsewhere: the lineage of a fork, and the handling of
//! unreadable entries (`replay`).

use minke_record::{History, Kind, line};

use crate::error::StoreError;
use crate::log::head::{self, LineMark, LogHead};
use crate::log::replay::{LogDir, ReplayedLog, UnreadableEntry, fetch_spilled_lists, parse_sealed};
use crate::log::walk::{self, LogFiles, LogLocation, StepLines, WalkEnd, WalkEndReason};
use crate::store::SealedEntry;

/// Collects the lines since the last carry during a walk.
pub(crate) struct ReplayCollector<'a> {
    log: &'a LogDir,
    files: &'a LogFiles,
    limit: Option<u64>,
    pub(crate) cached_head: Option<LogHead>,
    /// The lines since the last carry, concatenated.
    text: Vec<u8>,
    lines: Vec<RawLine>,
    head: Option<LogHead>,
    segment: Option<(LineMark, Vec<u8>)>,
    good_end: Option<LogLocation>,
}

/// The range of a line in the text.
#[derive(Clone, Copy)]
struct RawLine {
    mark: LineMark,
    /// The first entry of its step.
    step_seq: u64,
    from: usize,
    to: usize,
}

/// Whether the head may determine where to begin.
#[derive(Clone, Copy)]
pub(crate) enum CacheUse {
    Use,
    Ignore,
}

pub(crate) enum CollectResult {
    Valid(Box<ReplayedLog>),
    Invalid { location: LogLocation, step_seq: u64, reason: String },
}

impl<'a> ReplayCollector<'a> {
    pub(crate) fn new(log: &'a LogDir, files: &'a LogFiles, limit: Option<u64>) -> ReplayCollector<'a> {
        let (text, lines) = (Vec::new(), Vec::new());
        ReplayCollector {
            log,
            files,
            limit,
            cached_head: None,
            text,
            lines,
            head: None,
            segment: None,
            good_end: None,
        }
    }

    /// Walks from the carry that the cache names, or from the beginning.
    pub(crate) fn walk_log(&mut self, cache: CacheUse) -> std::io::Result<WalkEnd> {
        let cached = match cache {
            CacheUse::Use => head::load_head(self.log.disk(), self.files, self.log.id),
            CacheUse::Ignore => None,
        };
        let cached = cached.filter(|head| self.limit.is_none_or(|limit| head.carry.seq <= limit));
        if let Some(cached) = cached
            && let Some(text) = head::read_line_at(self.log.disk(), self.files, &cached.start)?
        {
            self.segment = Some((cached.start, text));
            let end = self.walk_from(cached.carry.location())?;
            if self.head.is_some() {
                self.cached_head = Some(cached);
                return Ok(end);
            }
            // The cache named a line that is not a carry, or one of an unfinished step.
            self.clear_lines();
            self.segment = None;
            self.good_end = None;
        }
        self.walk_from(LogLocation::ORIGIN)
    }

    /// Returns the last carry so far.
    pub(crate) fn last_carry(&self) -> Option<LineMark> {
        self.head.map(|head| head.carry)
    }

    fn walk_from(&mut self, from: LogLocation) -> std::io::Result<WalkEnd> {
        let end = walk::walk_steps(self.log.disk(), self.files, from, &mut |step| {
            for line in &step.lines {
                if self.limit.is_some_and(|limit| line.location.seq > limit) {
                    self.good_end = Some(line.location);
                    return Ok(false);
                }
                self.add_line(step, line);
            }
            Ok(true)
        })?;
        let stopped = self.good_end.unwrap_or(from);
        Ok(end.unwrap_or(WalkEnd { good_end: stopped, reason: WalkEndReason::Tail(0) }))
    }

    fn add_line(&mut self, step: &StepLines, line: &walk::StepLine) {
        let text = step.line_bytes(line);
        let first = step.lines.first().map_or(line.location.seq, |first| first.location.seq);
        let mark = LineMark::new(line.location, line.h);
        let named = line::scan_envelope(text).map(|(_, kind)| kind);
        if named.is_none_or(|kind| kind == "segment_start" || kind == "carry") {
            self.start_at_carry(mark, text);
        }
        self.keep_line(mark, first, text);
    }

    /// Drops the lines before a carry. An unreadable carry is detected in `into_replayed`.
    fn start_at_carry(&mut self, mark: LineMark, text: &[u8]) {
        match parse_sealed(text).map(|sealed| sealed.entry.kind) {
            Ok(Kind::SegmentStart(start)) => {
                self.segment = Some((mark, text.to_vec()));
                if has_full_history(&start.history) {
                    self.clear_lines();
                    self.head = Some(LogHead { carry: mark, start: mark });
                }
            }
            Ok(Kind::Carry(carry)) if has_full_history(&carry.history) => {
                let segment = self.segment.clone().filter(|(start, _)| start.seq == carry.start);
                if let Some((start, segment)) = segment {
                    self.clear_lines();
                    self.keep_line(start, start.seq, &segment);
                    self.head = Some(LogHead { carry: mark, start });
                }
            }
            _ => {}
        }
    }

    fn keep_line(&mut self, mark: LineMark, step_seq: u64, text: &[u8]) {
        let from = self.text.len();
        self.text.extend_from_slice(text);
        self.lines.push(RawLine { mark, step_seq, from, to: self.text.len() });
    }

    fn clear_lines(&mut self) {
        self.lines.clear();
        self.text.clear();
    }

    /// Parses the entries of the lines and restores spilled lists.
    pub(crate) fn into_replayed(self, end: WalkEnd) -> Result<CollectResult, StoreError> {
        let mut entries = Vec::with_capacity(self.lines.len());
        for (raw, read) in self.lines.iter().zip(self.parse_all()) {
            let fetched = read.map_err(UnreadableEntry::Invalid).and_then(|mut sealed| {
                fetch_spilled_lists(self.log, &mut sealed.entry)?;
                Ok(sealed)
            });
            match fetched {
                Ok(sealed) => entries.push(sealed),
                Err(UnreadableEntry::Invalid(reason)) => {
                    return Ok(CollectResult::Invalid {
                        location: raw.mark.location(),
                        step_seq: raw.step_seq,
                        reason,
                    });
                }
                Err(UnreadableEntry::Disk(error)) => return Err(error),
            }
        }
        let last_ts = entries.last().map_or(0, |last| last.entry.ts);
        let (tail_bytes, damage) = match end.reason {
            WalkEndReason::Tail(tail) => (tail, None),
            WalkEndReason::Damage(damage) => (0, Some(damage)),
        };
        Ok(CollectResult::Valid(Box::new(ReplayedLog {
            entries,
            good_end: end.good_end,
            tail_bytes,
            damage,
            is_cache_stale: self.head != self.cached_head,
            head: self.head,
            segment: self.segment.map(|(mark, _)| mark),
            last_ts,
            is_unchecked: false,
        })))
    }

    /// Parses all lines. Uses several threads for many lines.
    fn parse_all(&self) -> Vec<Result<SealedEntry, String>> {
        let read = |lines: &[RawLine]| -> Vec<Result<SealedEntry, String>> {
            lines.iter().map(|raw| parse_sealed(&self.text[raw.from..raw.to])).collect()
        };
        let helpers = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_HELPER_THREADS));
        if self.lines.len() < MIN_LINES_PER_THREAD || helpers < 2 {
            return read(&self.lines);
        }
        let share = self.lines.len().div_ceil(helpers);
        std::thread::scope(|scope| {
            let (ours, theirs) = self.lines.split_at(share);
            let threads: Vec<_> =
                theirs.chunks(share).map(|part| (part, scope.spawn(move || read(part)))).collect();
            let mut all = read(ours);
            for (part, thread) in threads {
                // The part of a panicked thread is parsed again here, so that the panic happens in this thread.
                all.extend(thread.join().unwrap_or_else(|_| read(part)));
            }
            all
        })
    }
}

/// The minimum number of lines per thread.
const MIN_LINES_PER_THREAD: usize = 512;
/// The maximum number of threads. Pods are small processes.
const MAX_HELPER_THREADS: usize = 4;

fn has_full_history(history: &History) -> bool {
    !matches!(history, History::SameAs { .. })
}
