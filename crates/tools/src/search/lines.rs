//! Searches one file with ripgrep's engine and converts the matches to rows.
//!
//! As in ripgrep, the search of a file from the walk stops at a zero byte, which marks it as binary; a file
//! given as the path is searched to the end. UTF-16 is detected by its byte order mark.
//! Invariants: rows are the same as with `rg` (`what_is_found_is_what_rg_finds`); an endless line or a huge
//! file needs at most `MAX_HEAP_BYTES` (`an_endless_line_is_counted_as_unreadable`).

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use serde::Deserialize;

use super::first_rows::SearchRow;
use super::walk::StopFlag;

/// The maximum memory for one file: a line must fit, and with `multiline` the whole file.
const MAX_HEAP_BYTES: usize = 32 * 1024 * 1024;
/// The maximum part of a file that is searched, so that a call ends in time.
pub(super) const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// The maximum part of a line in a result.
pub(super) const MAX_LINE_BYTES: usize = 1_024;
/// The part of a shortened line before the match.
const BYTES_BEFORE_MATCH: usize = MAX_LINE_BYTES / 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputMode {
    #[default]
    FilesWithMatches,
    Content,
    Count,
}

/// The parameters of a search.
pub(super) struct SearchQuery {
    pub(super) matcher: RegexMatcher,
    pub(super) mode: OutputMode,
    pub(super) multiline: bool,
    pub(super) numbers: bool,
    pub(super) before: usize,
    pub(super) after: usize,
    /// The maximum number of rows of one file.
    pub(super) max_rows: usize,
}

/// Where a file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSource {
    Walked,
    Named,
}

/// The matches in a file.
#[derive(Default)]
pub(super) struct FileMatches {
    /// The number of matching lines; with `multiline`, of matches.
    pub(super) matches: u64,
    /// The first rows.
    pub(super) rows: Vec<SearchRow>,
    /// The total number of rows.
    pub(super) total: u64,
    /// The file is longer than the searched part.
    pub(super) is_cut: bool,
}

/// The searcher of one thread, with its buffers.
pub(super) struct FileSearcher<'q> {
    query: &'q SearchQuery,
    matcher: RegexMatcher,
    searcher: Searcher,
    source: FileSource,
    stop: StopFlag,
    /// `MAX_FILE_BYTES`, or less in tests.
    max_bytes: u64,
}

impl<'q> FileSearcher<'q> {
    pub(super) fn new(query: &'q SearchQuery, source: FileSource, stop: StopFlag) -> FileSearcher<'q> {
        let binary = match source {
            FileSource::Walked => BinaryDetection::quit(0),
            FileSource::Named => BinaryDetection::convert(0),
        };
        let mut builder = SearcherBuilder::new();
        builder.binary_detection(binary).heap_limit(Some(MAX_HEAP_BYTES)).multi_line(query.multiline);
        builder.line_number(query.mode == OutputMode::Content && query.numbers);
        if query.mode == OutputMode::Content {
            builder.before_context(query.before).after_context(query.after);
        }
        FileSearcher {
            query,
            matcher: query.matcher.clone(),
            searcher: builder.build(),
            source,
            stop,
            max_bytes: MAX_FILE_BYTES,
        }
    }

    /// Searches a file. Keeps `most` rows and counts the others.
    pub(super) fn search_file(&mut self, file: &File, max_rows: usize) -> io::Result<FileMatches> {
        let mut sink = RowSink {
            query: self.query,
            matcher: &self.matcher,
            source: self.source,
            stop: &self.stop,
            max_rows,
            matches: FileMatches::default(),
            binary_offset: None,
        };
        let mut reader = BoundedReader { file, stop: &self.stop, remaining: self.max_bytes, is_cut: false };
        self.searcher.search_reader(&self.matcher, &mut reader, &mut sink)?;
        Ok(FileMatches { is_cut: reader.is_cut, ..sink.matches })
    }
}

/// A file whose reading stops when the search is cancelled or the limit is reached.
struct BoundedReader<'f> {
    file: &'f File,
    stop: &'f StopFlag,
    remaining: u64,
    is_cut: bool,
}

impl Read for BoundedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::Error::other("the search was cancelled"));
        }
        let room = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 && !buffer.is_empty() {
            self.is_cut = self.file.read(&mut [0])? > 0;
            return Ok(0);
        }
        let read = self.file.read(buffer.get_mut(..room).unwrap_or_default())?;
        self.remaining -= read as u64;
        Ok(read)
    }
}

struct RowSink<'s> {
    query: &'s SearchQuery,
    matcher: &'s RegexMatcher,
    source: FileSource,
    stop: &'s StopFlag,
    max_rows: usize,
    matches: FileMatches,
    /// The position of the first zero byte.
    binary_offset: Option<u64>,
}

impl RowSink<'_> {
    fn push_row(&mut self, row: impl FnOnce(&Self) -> SearchRow) {
        self.matches.total += 1;
        if self.matches.rows.len() < self.max_rows {
            let row = row(self);
            self.matches.rows.push(row);
        }
    }

    /// Counts the matches within lines that are reported together.
    fn count_matches(&self, found: &SinkMatch<'_>) -> io::Result<u64> {
        /// How many bytes after its lines a regular expression may examine.
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

    fn line_text(&self, line: &[u8]) -> String {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.len() <= MAX_LINE_BYTES {
            return String::from_utf8_lossy(line).into_owned();
        }
        let found = self.matcher.find(line).ok().flatten();
        cut_around(line, found.map_or(0..0, |found| found.start()..found.end()))
    }

    /// Returns whether a zero byte precedes the current position of a named file; its lines are not shown any
    /// more.
    fn is_past_text(&self) -> bool {
        self.source == FileSource::Named && self.binary_offset.is_some()
    }
}

/// Returns the part of a long line around its match, with the number of omitted bytes on both sides.
fn cut_around(line: &[u8], found: Range<usize>) -> String {
    let inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    let mut start =
        found.start.saturating_sub(BYTES_BEFORE_MATCH).min(line.len().saturating_sub(MAX_LINE_BYTES));
    let mut end = (start + MAX_LINE_BYTES).min(line.len());
    // A character has at most four bytes; a longer sequence is not text.
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

impl Sink for &mut RowSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        match self.query.mode {
            OutputMode::FilesWithMatches => {
                self.matches.matches += 1;
                return Ok(false);
            }
            OutputMode::Count if searcher.multi_line_with_matcher(self.matcher) => {
                self.matches.matches += self.count_matches(found)?;
            }
            OutputMode::Count => self.matches.matches += 1,
            OutputMode::Content => {
                if self.is_past_text() {
                    self.matches.matches += 1;
                    return Ok(false);
                }
                for (at, line) in (0..).zip(found.lines()) {
                    self.matches.matches += 1;
                    let number = found.line_number().map(|number| number + at);
                    self.push_row(|sink| SearchRow::Match { number, text: sink.line_text(line) });
                }
            }
        }
        Ok(!self.stop.is_set())
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> io::Result<bool> {
        if self.is_past_text() {
            return Ok(false);
        }
        let number = found.line_number();
        self.push_row(|sink| SearchRow::Context { number, text: sink.line_text(found.bytes()) });
        Ok(!self.stop.is_set())
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.push_row(|_| SearchRow::Break);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.binary_offset = Some(offset);
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        let Some(offset) = finish.binary_byte_offset() else { return Ok(()) };
        match (self.query.mode, self.source) {
            // A partial count would mislead, so omit a file that turned out to be binary.
            (OutputMode::FilesWithMatches | OutputMode::Count, FileSource::Walked) => {
                self.matches.matches = 0
            }
            (OutputMode::FilesWithMatches | OutputMode::Count, FileSource::Named) => {}
            (OutputMode::Content, _) if self.matches.matches == 0 => {}
            (OutputMode::Content, FileSource::Walked) => {
                self.push_row(|_| {
                    SearchRow::Remark(format!("the search ends here: not text from byte {offset} on"))
                });
            }
            (OutputMode::Content, FileSource::Named) => {
                self.push_row(|_| {
                    SearchRow::Remark(format!("matches, but is not text from byte {offset} on"))
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many lines match in a file with a limit of `bytes`, and whether the file is longer.
    fn search_text(content: &str, max_bytes: u64) -> (u64, bool) {
        use std::io::{Seek, Write};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.rewind().unwrap();
        let query = SearchQuery {
            matcher: RegexMatcher::new_line_matcher("x").unwrap(),
            mode: OutputMode::Count,
            multiline: false,
            numbers: false,
            before: 0,
            after: 0,
            max_rows: 10,
        };
        let mut search =
            FileSearcher { max_bytes, ..FileSearcher::new(&query, FileSource::Named, StopFlag::default()) };
        let seen = search.search_file(&file, 10).unwrap();
        (seen.matches, seen.is_cut)
    }

    #[test]
    fn a_file_is_searched_up_to_a_bound_and_it_is_told() {
        assert_eq!(search_text("x\nx\nx\n", 100), (3, false));
        assert_eq!(search_text("x\nx\nx\n", 6), (3, false));
        assert_eq!(search_text("x\nx\nx\n", 4), (2, true));
        assert_eq!(search_text("", 0), (0, false));
    }

    #[test]
    fn a_long_line_is_cut_around_the_match_on_a_character() {
        for (before, after) in [(0, 5_000), (5_000, 0), (5_000, 5_000), (100, 2_000), (1, 1_023)] {
            let line = format!("{}NEEDLE{}", "ä".repeat(before), "€".repeat(after));
            let at = before * 2;
            let text = cut_around(line.as_bytes(), at..at + 6);
            assert!(text.contains("NEEDLE") && !text.contains('\u{fffd}'), "{before} {after}: {text}");
            assert!(text.len() <= MAX_LINE_BYTES + 64, "{}", text.len());
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
