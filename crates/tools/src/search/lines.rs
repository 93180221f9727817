//! A search inside one file: ripgrep's own engine, and rows out of what it finds.
//!
//! As in ripgrep, a file that was found by walking ends where a zero byte shows that it is no text; one that was named is
//! searched to its end. UTF-16 is understood by its byte order mark.
//! Invariants: rows are what `rg` prints (`what_is_found_is_what_rg_finds`); one endless line or a huge file costs no more
//! memory than `HEAP_BYTES` (`an_endless_line_is_counted_as_unreadable`).

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use serde::Deserialize;

use super::keep::Row;
use super::walk::Stop;

/// The most memory for the text of one file: a line must fit, and with `multiline` the file.
const HEAP_BYTES: usize = 32 * 1024 * 1024;
/// The most of one file that is searched. A call is to end in its time, whatever lies in its way.
pub(super) const FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// The most of one line that a result shows.
pub(super) const LINE_BYTES: usize = 1_024;
/// How much of that lies before the match.
const LINE_BEFORE: usize = LINE_BYTES / 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    #[default]
    FilesWithMatches,
    Content,
    Count,
}

/// What is looked for, and what is wanted of it.
pub(super) struct Query {
    pub(super) matcher: RegexMatcher,
    pub(super) mode: Mode,
    pub(super) multiline: bool,
    pub(super) numbers: bool,
    pub(super) before: usize,
    pub(super) after: usize,
    /// Rows of one file that may be shown.
    pub(super) most: usize,
}

/// How a file came to be searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Walked,
    Named,
}

/// What is in a file.
#[derive(Default)]
pub(super) struct Seen {
    /// Matching lines; with `multiline`, matches.
    pub(super) matches: u64,
    /// The first rows.
    pub(super) rows: Vec<Row>,
    /// How many rows there are in all.
    pub(super) total: u64,
    /// The file goes on beyond what is searched of one.
    pub(super) short: bool,
}

/// One thread's searcher, with its buffers.
pub(super) struct Search<'q> {
    query: &'q Query,
    matcher: RegexMatcher,
    searcher: Searcher,
    way: Way,
    stop: Stop,
    /// `FILE_BYTES`, or less in tests.
    bytes: u64,
}

impl<'q> Search<'q> {
    pub(super) fn new(query: &'q Query, way: Way, stop: Stop) -> Search<'q> {
        let binary = match way {
            Way::Walked => BinaryDetection::quit(0),
            Way::Named => BinaryDetection::convert(0),
        };
        let mut builder = SearcherBuilder::new();
        builder.binary_detection(binary).heap_limit(Some(HEAP_BYTES)).multi_line(query.multiline);
        builder.line_number(query.mode == Mode::Content && query.numbers);
        if query.mode == Mode::Content {
            builder.before_context(query.before).after_context(query.after);
        }
        Search {
            query,
            matcher: query.matcher.clone(),
            searcher: builder.build(),
            way,
            stop,
            bytes: FILE_BYTES,
        }
    }

    /// Searches a file. `most` rows are kept; the others are counted.
    pub(super) fn file(&mut self, file: &File, most: usize) -> io::Result<Seen> {
        let mut taken = Taken {
            query: self.query,
            matcher: &self.matcher,
            way: self.way,
            stop: &self.stop,
            most,
            seen: Seen::default(),
            binary: None,
        };
        let mut watched = Watched { file, stop: &self.stop, left: self.bytes, short: false };
        self.searcher.search_reader(&self.matcher, &mut watched, &mut taken)?;
        Ok(Seen { short: watched.short, ..taken.seen })
    }
}

/// A file whose reading ends when nobody waits for it, or when enough of it was read.
struct Watched<'f> {
    file: &'f File,
    stop: &'f Stop,
    left: u64,
    short: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.asked() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 && !buffer.is_empty() {
            self.short = self.file.read(&mut [0])? > 0;
            return Ok(0);
        }
        let read = self.file.read(buffer.get_mut(..room).unwrap_or_default())?;
        self.left -= read as u64;
        Ok(read)
    }
}

struct Taken<'s> {
    query: &'s Query,
    matcher: &'s RegexMatcher,
    way: Way,
    stop: &'s Stop,
    most: usize,
    seen: Seen,
    /// Where a zero byte was met.
    binary: Option<u64>,
}

impl Taken<'_> {
    fn row(&mut self, row: impl FnOnce(&Self) -> Row) {
        self.seen.total += 1;
        if self.seen.rows.len() < self.most {
            let row = row(self);
            self.seen.rows.push(row);
        }
    }

    /// Matches within lines that are reported together.
    fn count(&self, found: &SinkMatch<'_>) -> io::Result<u64> {
        /// As far as an expression may look behind the lines of its match.
        const LOOK_AHEAD: usize = 128;
        let range = found.bytes_range_in_buffer();
        let end = found.buffer().len().min(range.end + LOOK_AHEAD);
        let mut count = 0;
        let each = |one: grep_matcher::Match| {
            let inside = one.start() < range.end;
            count += u64::from(inside);
            inside
        };
        self.matcher
            .find_iter_at(&found.buffer()[..end], range.start, each)
            .map_err(|e| io::Error::other(e.to_string()))?;
        Ok(count)
    }

    fn text(&self, line: &[u8]) -> String {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.len() <= LINE_BYTES {
            return String::from_utf8_lossy(line).into_owned();
        }
        let found = self.matcher.find(line).ok().flatten();
        cut(line, found.map_or(0..0, |found| found.start()..found.end()))
    }

    /// Past a zero byte of a named file, whose lines are not shown any more.
    fn past_text(&self) -> bool {
        self.way == Way::Named && self.binary.is_some()
    }
}

/// The part of a long line around what was found in it, with the number of bytes that are left out on both sides.
fn cut(line: &[u8], found: Range<usize>) -> String {
    let inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    let mut start = found.start.saturating_sub(LINE_BEFORE).min(line.len().saturating_sub(LINE_BYTES));
    let mut end = (start + LINE_BYTES).min(line.len());
    // A character has four bytes at most; what goes on longer is no text.
    for _ in 0..3 {
        start += usize::from(inside(start));
        end -= usize::from(inside(end));
    }
    let mut text = String::new();
    if start > 0 {
        text.push_str(&format!("[{start} bytes …]"));
    }
    text.push_str(&String::from_utf8_lossy(&line[start..end]));
    if end < line.len() {
        text.push_str(&format!("[… {} bytes]", line.len() - end));
    }
    text
}

impl Sink for &mut Taken<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        match self.query.mode {
            Mode::FilesWithMatches => {
                self.seen.matches += 1;
                return Ok(false);
            }
            Mode::Count if searcher.multi_line_with_matcher(self.matcher) => {
                self.seen.matches += self.count(found)?;
            }
            Mode::Count => self.seen.matches += 1,
            Mode::Content => {
                if self.past_text() {
                    self.seen.matches += 1;
                    return Ok(false);
                }
                for (at, line) in (0..).zip(found.lines()) {
                    self.seen.matches += 1;
                    let number = found.line_number().map(|number| number + at);
                    self.row(|taken| Row::Match { number, text: taken.text(line) });
                }
            }
        }
        Ok(!self.stop.asked())
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> io::Result<bool> {
        if self.past_text() {
            return Ok(false);
        }
        let number = found.line_number();
        self.row(|taken| Row::Context { number, text: taken.text(found.bytes()) });
        Ok(!self.stop.asked())
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.row(|_| Row::Break);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.binary = Some(offset);
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        let Some(offset) = finish.binary_byte_offset() else { return Ok(()) };
        match (self.query.mode, self.way) {
            // Half a count would mislead; a file that turned out not to be text is left out.
            (Mode::FilesWithMatches | Mode::Count, Way::Walked) => self.seen.matches = 0,
            (Mode::FilesWithMatches | Mode::Count, Way::Named) => {}
            (Mode::Content, _) if self.seen.matches == 0 => {}
            (Mode::Content, Way::Walked) => {
                self.row(|_| Row::Remark(format!("the search ends here: not text from byte {offset} on")));
            }
            (Mode::Content, Way::Named) => {
                self.row(|_| Row::Remark(format!("matches, but is not text from byte {offset} on")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many lines match in a file of which so many bytes are searched, and whether it goes on.
    fn searched(content: &str, bytes: u64) -> (u64, bool) {
        use std::io::{Seek, Write};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.rewind().unwrap();
        let query = Query {
            matcher: RegexMatcher::new_line_matcher("x").unwrap(),
            mode: Mode::Count,
            multiline: false,
            numbers: false,
            before: 0,
            after: 0,
            most: 10,
        };
        let mut search = Search { bytes, ..Search::new(&query, Way::Named, Stop::default()) };
        let seen = search.file(&file, 10).unwrap();
        (seen.matches, seen.short)
    }

    #[test]
    fn a_file_is_searched_up_to_a_bound_and_it_is_told() {
        assert_eq!(searched("x\nx\nx\n", 100), (3, false));
        assert_eq!(searched("x\nx\nx\n", 6), (3, false));
        assert_eq!(searched("x\nx\nx\n", 4), (2, true));
        assert_eq!(searched("", 0), (0, false));
    }

    #[test]
    fn a_long_line_is_cut_around_the_match_on_a_character() {
        for (before, after) in [(0, 5_000), (5_000, 0), (5_000, 5_000), (100, 2_000), (1, 1_023)] {
            let line = format!("{}NEEDLE{}", "ä".repeat(before), "€".repeat(after));
            let at = before * 2;
            let text = cut(line.as_bytes(), at..at + 6);
            assert!(text.contains("NEEDLE") && !text.contains('\u{fffd}'), "{before} {after}: {text}");
            assert!(text.len() <= LINE_BYTES + 64, "{}", text.len());
            let (mut left_out, mut rest) = (0, text.as_str());
            if let Some((number, tail)) = text.strip_prefix('[').and_then(|t| t.split_once(" bytes …]")) {
                left_out += number.parse::<usize>().unwrap();
                rest = tail;
            }
            if let Some((head, number)) = rest.split_once("[… ") {
                left_out += number.strip_suffix(" bytes]").unwrap().parse::<usize>().unwrap();
                rest = head;
            }
            assert_eq!(left_out + rest.len(), line.len(), "{before} {after}");
        }
    }
}
