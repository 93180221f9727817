//! Grep: finds the files and lines that match a pattern.
//!
//! Class pure. Rows are ordered by path and have the format of `rg --no-heading --with-filename`, so the same
//! tree always gives the same result.
//! Invariant: the result is the same as with `rg` (`what_is_found_is_what_rg_finds`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use minke_files::ScopedFiles;
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::first_rows::{FirstRows, SearchRow};
use super::lines::{FileSearcher, FileSource, MAX_FILE_BYTES, MAX_LINE_BYTES, OutputMode, SearchQuery};
use super::walk::{FileVisitor, StopFlag, TreeWalk, WalkFilter, WalkedFile};
use super::{
    MAX_CONTENT_BYTES, MAX_ERROR_BYTES, RESERVED_REMARK_BYTES, SearchRoot, check_pattern, count_noun,
    describe_problems, read_action, relative_path, run_stoppable,
};
use crate::arguments::{MAX_ECHO_BYTES, absolute_path, display_path, keep_end, parse_arguments, tool_output};

/// The default number of rows.
const DEFAULT_ROWS: u64 = 250;
/// The maximum number of rows; more never fit into the content.
const MAX_ROWS: u64 = 16_384;
/// The maximum offset. Rows before it are searched each time, so a narrower search is better.
const MAX_OFFSET: u64 = 20_000;
/// The maximum number of context lines.
const MAX_CONTEXT_LINES: u64 = 1_000;
/// The maximum size of the compiled pattern, and of its tables.
const MAX_REGEX_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct GrepTool {
    files: Arc<ScopedFiles>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrepArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    output_mode: Option<OutputMode>,
    #[serde(rename = "-i")]
    ignore_case: Option<bool>,
    #[serde(rename = "-n")]
    numbers: Option<bool>,
    #[serde(rename = "-A")]
    after: Option<u64>,
    #[serde(rename = "-B")]
    before: Option<u64>,
    #[serde(rename = "-C")]
    around: Option<u64>,
    multiline: Option<bool>,
    head_limit: Option<u64>,
    offset: Option<u64>,
}

/// The checked arguments of a call.
struct GrepRequest {
    pattern: String,
    path: PathBuf,
    cwd: PathBuf,
    glob: Option<String>,
    types: Types,
    query: SearchQuery,
    offset: usize,
    limit: usize,
}

impl GrepRequest {
    fn from_arguments(arguments: &str, place: &ToolContext) -> Result<GrepRequest, ToolError> {
        let request: GrepArguments = parse_arguments("Grep", arguments)?;
        check_pattern("pattern", &request.pattern)?;
        let path = absolute_path("path", request.path.as_deref().unwrap_or("."), &place.cwd)?;
        let multiline = request.multiline.unwrap_or(false);
        let matcher = build_matcher(&request.pattern, request.ignore_case.unwrap_or(false), multiline)?;
        let around = check_limit("-C", request.around, MAX_CONTEXT_LINES)?;
        let before = check_limit("-B", request.before, MAX_CONTEXT_LINES)?.or(around).unwrap_or(0);
        let after = check_limit("-A", request.after, MAX_CONTEXT_LINES)?.or(around).unwrap_or(0);
        let offset = check_limit("offset", request.offset, MAX_OFFSET)?.unwrap_or(0);
        let limit = match request.head_limit.unwrap_or(DEFAULT_ROWS) {
            0 => MAX_ROWS,
            limit => limit.min(MAX_ROWS),
        };
        let limit = usize::try_from(limit).expect("it is at most ROWS_MOST");
        let query = SearchQuery {
            matcher,
            mode: request.output_mode.unwrap_or_default(),
            multiline,
            numbers: request.numbers.unwrap_or(true),
            before,
            after,
            max_rows: offset + limit,
        };
        let types = request.kind.as_deref().map_or(Ok(Types::empty()), build_types)?;
        let (pattern, cwd) = (request.pattern, place.cwd.clone());
        let checked = GrepRequest { pattern, path, cwd, glob: request.glob, types, query, offset, limit };
        // Report an invalid glob before anything runs.
        checked.build_override(&checked.path)?;
        Ok(checked)
    }

    /// Returns the glob relative to the working directory, like `rg --glob`, or to the root if that is
    /// elsewhere.
    fn build_override(&self, root: &Path) -> Result<Override, ToolError> {
        let Some(glob) = &self.glob else { return Ok(Override::empty()) };
        check_pattern("glob", glob)?;
        let invalid = |e: ignore::Error| {
            let (glob, why) = (keep_end(glob, MAX_ECHO_BYTES), keep_end(&e.to_string(), MAX_ERROR_BYTES));
            ToolError::InvalidArguments(format!(
                "`glob` is `{glob}`, which is not valid: {why}; globs look like `*.rs`, `src/**` or `!*.lock`"
            ))
        };
        // If the path contains symbolic links, the working directory has another name there.
        let from = match self.path.strip_prefix(&self.cwd) {
            Ok(below) if root.ends_with(below) => {
                root.ancestors().nth(below.components().count()).unwrap_or(root)
            }
            _ => root,
        };
        let mut builder = OverrideBuilder::new(from);
        builder.add(glob).map_err(invalid)?;
        builder.build().map_err(invalid)
    }
}

fn check_limit(key: &str, value: Option<u64>, most: u64) -> Result<Option<usize>, ToolError> {
    let Some(value) = value else { return Ok(None) };
    match usize::try_from(value) {
        Ok(count) if value <= most => Ok(Some(count)),
        _ => {
            let narrow =
                if key == "offset" { "; search a smaller `path` or with a narrower pattern" } else { "" };
            Err(ToolError::InvalidArguments(format!(
                "`{key}` is {value}, but at most {most} is allowed{narrow}"
            )))
        }
    }
}

fn build_matcher(pattern: &str, ignore_case: bool, multiline: bool) -> Result<RegexMatcher, ToolError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).unicode(true).octal(false).case_insensitive(ignore_case);
    builder.size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).ban_byte(Some(0));
    if multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(pattern).map_err(|e| {
        let text = e.to_string();
        let reason = keep_end(&text, MAX_ERROR_BYTES);
        let hint = match e.kind() {
            ErrorKind::NotAllowed(_) => {
                "lines have no line break; set `multiline` to true to match across lines"
            }
            ErrorKind::Banned(_) => "files with zero bytes are not searched; remove it",
            _ if text.contains("look-around") || text.contains("backreference") => {
                "write it without look-around and backreferences, which are not supported"
            }
            _ if text.contains("size limit") => "write it with smaller repetitions or fewer alternatives",
            _ => "to find the text as it is, put a backslash before each of . * + ? ( ) [ ] { } ^ $ | \\",
        };
        ToolError::InvalidArguments(format!("`pattern` is not a valid regular expression: {reason}\n{hint}"))
    })
}

fn build_types(kind: &str) -> Result<Types, ToolError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    let known = builder.definitions();
    if !known.iter().any(|known| known.name() == kind) {
        let wanted = format!("*.{kind}");
        let definition = known.iter().find(|known| known.globs().contains(&wanted));
        let hint = match definition {
            Some(near) => format!("`{wanted}` files are of type `{}`", near.name()),
            None => "there are rust, py, js, ts, go, java, c, cpp, json, toml, yaml, md, sh, html, css and others; \
                     use `glob` for the rest"
                .to_owned(),
        };
        return Err(ToolError::InvalidArguments(format!(
            "`type` is `{}`, which is not known: {hint}",
            keep_end(kind, MAX_ECHO_BYTES)
        )));
    }
    builder.select(kind);
    builder.build().map_err(|e| ToolError::Internal(format!("could not use the file type {kind}: {e}")))
}

impl GrepTool {
    pub(super) fn new(files: Arc<ScopedFiles>) -> GrepTool {
        GrepTool { files }
    }
}

impl Tool for GrepTool {
    fn spec(&self) -> ToolSpec {
        let text = |words: &str| json!({ "type": "string", "description": words });
        let yes = |words: &str| json!({ "type": "boolean", "description": words });
        let lines = |words: &str| json!({ "type": "integer", "minimum": 0, "description": words });
        ToolSpec {
            name: "Grep".into(),
            description: format!(
                "Searches file contents with ripgrep's engine; use it instead of grep or rg in Bash. Results are sorted by \
                 path. Hidden, binary and ignored files are skipped; a file given as `path` is always \
                 searched. The pattern is a Rust regular expression: `fn \\w+\\(`, `interface\\{{\\}}`; no look-around. Lines \
                 are cut at {MAX_LINE_BYTES} bytes."
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "pattern": text("The regular expression."),
                    "path": text("The file or directory to search. Default: the working directory."),
                    "glob": text("Only these files, as with rg --glob: `*.{ts,tsx}`, `!*.lock`."),
                    "type": text("Only files of this type, as with rg --type: rust, py, js, ts, go …"),
                    "output_mode": {
                        "type": "string",
                        "enum": ["files_with_matches", "content", "count"],
                        "description": "`files_with_matches` (default): paths. `content`: lines. `count`: path:lines.",
                    },
                    "-i": yes("Ignore case."),
                    "-n": yes("Line numbers in `content`. Default: true."),
                    "-A": lines("Lines after each match in `content`."),
                    "-B": lines("Lines before each match in `content`."),
                    "-C": lines("Lines before and after each match in `content`."),
                    "multiline": yes("Matches may span lines, and `.` matches a line break (rg -U --multiline-dotall)."),
                    "head_limit": lines("Rows of output, 0 for as many as fit. Default: 250."),
                    "offset": lines("Rows to skip, to continue a result."),
                },
                "required": ["pattern"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Pure
    }

    fn prepare(&self, arguments: &str, place: &ToolContext) -> Result<Action, ToolError> {
        Ok(read_action(&GrepRequest::from_arguments(arguments, place)?.path))
    }

    fn execute(&self, arguments: &str, call: &ToolInvocation) -> ToolFuture {
        let files = self.files.clone();
        match GrepRequest::from_arguments(arguments, &call.context) {
            Ok(request) => run_stoppable(move |stop| run_search(&files, request, stop)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn run_search(
    files: &Arc<ScopedFiles>,
    mut asked: GrepRequest,
    stop: StopFlag,
) -> Result<ToolOutput, ToolError> {
    let failed = |e: minke_files::FileError| ToolError::ExecutionFailed(format!("cannot search {e}"));
    let (tally, problems) = match SearchRoot::open_root(files, &asked.path).map_err(failed)? {
        SearchRoot::File(file) => {
            let mut worker = GrepWorker::new(&asked.query, FileSource::Named, stop);
            let searched = worker.search_file(&file, PathBuf::new());
            searched.map_err(|e| {
                ToolError::ExecutionFailed(format!("cannot search {}: {e}", display_path(&asked.path)))
            })?;
            (worker.tally, String::new())
        }
        SearchRoot::Tree(root) => {
            let filter = WalkFilter {
                globs: asked.build_override(&root)?,
                types: std::mem::replace(&mut asked.types, Types::empty()),
                ignores: true,
                hidden: false,
                literal_directories: Vec::new(),
            };
            let tree = TreeWalk { files: files.clone(), root, filter, stop: stop.clone() };
            let walked = tree.visit_all(|| GrepWorker::new(&asked.query, FileSource::Walked, stop.clone()));
            let mut tally = GrepTally::new(asked.query.max_rows);
            walked.visitors.into_iter().for_each(|worker| tally.merge(worker.tally));
            let troubles = describe_problems(tally.unreadable, walked.unreadable, walked.unused_ignores);
            (tally, troubles)
        }
    };
    let troubles = tally.cut_note() + &problems;
    tally.into_output(&asked, &troubles)
}

/// The results so far.
struct GrepTally {
    first_rows: FirstRows,
    searched: u64,
    unreadable: u64,
    /// Files of which only the beginning was searched.
    cut_files: u64,
    /// Files with matches.
    files: u64,
    matches: u64,
    rows: u64,
}

struct GrepWorker<'q> {
    searcher: FileSearcher<'q>,
    query: &'q SearchQuery,
    tally: GrepTally,
}

impl<'q> GrepWorker<'q> {
    fn new(query: &'q SearchQuery, way: FileSource, stop: StopFlag) -> GrepWorker<'q> {
        GrepWorker {
            searcher: FileSearcher::new(query, way, stop),
            query,
            tally: GrepTally::new(query.max_rows),
        }
    }

    fn search_file(&mut self, file: &std::fs::File, below: PathBuf) -> std::io::Result<()> {
        let tally = &mut self.tally;
        let wanted = tally.first_rows.has_room_for(&below);
        let seen = self.searcher.search_file(file, if wanted { self.query.max_rows } else { 0 })?;
        tally.searched += 1;
        tally.cut_files += u64::from(seen.is_cut);
        if seen.matches == 0 {
            return Ok(());
        }
        tally.files += 1;
        tally.matches += seen.matches;
        let (rows, total) = match self.query.mode {
            OutputMode::FilesWithMatches => (vec![SearchRow::File], 1),
            OutputMode::Count => (vec![SearchRow::Count(seen.matches)], 1),
            OutputMode::Content => (seen.rows, seen.total),
        };
        tally.rows += total;
        if wanted {
            tally.first_rows.insert(below, rows);
        }
        Ok(())
    }
}

impl FileVisitor for GrepWorker<'_> {
    fn visit_file(&mut self, found: &WalkedFile<'_>) {
        let searched = found.open_file().and_then(|file| self.search_file(&file, found.relative_path()));
        if searched.is_err() {
            self.tally.unreadable += 1;
        }
    }
}

impl GrepTally {
    fn new(most: usize) -> GrepTally {
        GrepTally {
            first_rows: FirstRows::new(most),
            searched: 0,
            unreadable: 0,
            cut_files: 0,
            files: 0,
            matches: 0,
            rows: 0,
        }
    }

    fn merge(&mut self, other: GrepTally) {
        self.first_rows.merge(other.first_rows);
        self.searched += other.searched;
        self.unreadable += other.unreadable;
        self.cut_files += other.cut_files;
        self.files += other.files;
        self.matches += other.matches;
        self.rows += other.rows;
    }

    /// Returns a note about files that were not searched to the end.
    fn cut_note(&self) -> String {
        if self.cut_files == 0 {
            return String::new();
        }
        let most = MAX_FILE_BYTES / (1024 * 1024 * 1024);
        format!("; of {} only the first {most} GiB was searched", count_noun(self.cut_files, "file", "files"))
    }

    fn into_output(self, request: &GrepRequest, problems: &str) -> Result<ToolOutput, ToolError> {
        let pattern = keep_end(&request.pattern, MAX_ECHO_BYTES / 2);
        if self.files == 0 {
            let searched = count_noun(self.searched, "file", "files");
            return Ok(tool_output(
                format!("nothing matches `{pattern}` in {searched} searched{problems}"),
                None,
            ));
        }
        let apart =
            request.query.mode == OutputMode::Content && request.query.before + request.query.after > 0;
        let total = self.rows + if apart { self.files - 1 } else { 0 };
        if request.offset as u64 >= total {
            return Err(ToolError::ExecutionFailed(format!(
                "there is nothing from `offset` {} on: the result has {}; use a smaller `offset`",
                request.offset,
                count_noun(total, "row", "rows")
            )));
        }
        let files = count_noun(self.files, "file", "files");
        let mut summary = match request.query.mode {
            OutputMode::FilesWithMatches if self.files == 1 => format!("{files} matches `{pattern}`"),
            OutputMode::FilesWithMatches => format!("{files} match `{pattern}`"),
            OutputMode::Content => {
                format!("{} of {files} for `{pattern}`", count_noun(self.matches, "line", "lines"))
            }
            OutputMode::Count => {
                format!("{} in {files} for `{pattern}`", count_noun(self.matches, "match", "matches"))
            }
        };
        let mut page =
            GrepPage { content: String::new(), skip: request.offset, left: request.limit, shown: 0 };
        page.fill_rows(self.first_rows, request, apart);
        let next = request.offset as u64 + page.shown;
        if next < total || request.offset > 0 {
            let first = request.offset + 1;
            let next_hint = if next < total {
                format!("; continue with offset {next} or search more narrowly")
            } else {
                String::new()
            };
            let rows = format!("rows {first} to {next} of {total} are shown");
            page.content.push_str(&format!("[{rows}{next_hint}]\n"));
            summary.push_str(&format!("; {rows}"));
        }
        Ok(tool_output(summary + problems, Some(page.content)))
    }
}

/// Collects the rows of a result page.
struct GrepPage {
    content: String,
    skip: usize,
    left: usize,
    shown: u64,
}

impl GrepPage {
    fn fill_rows(&mut self, keep: FirstRows, request: &GrepRequest, apart: bool) {
        for (at, (below, rows)) in keep.into_files().enumerate() {
            let path =
                if below.as_os_str().is_empty() { request.path.clone() } else { request.path.join(below) };
            let path = relative_path(&request.cwd, &path);
            let between = (apart && at > 0).then_some(SearchRow::Break);
            for row in between.into_iter().chain(rows) {
                if !self.push_line(|| format_row(&path, &row)) {
                    return;
                }
            }
        }
    }

    fn push_line(&mut self, line: impl FnOnce() -> String) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        if self.left == 0 {
            return false;
        }
        let line = line();
        if self.content.len() + line.len() + 1 > MAX_CONTENT_BYTES - RESERVED_REMARK_BYTES {
            return false;
        }
        self.content.push_str(&line);
        self.content.push('\n');
        self.left -= 1;
        self.shown += 1;
        true
    }
}

fn format_row(path: &str, row: &SearchRow) -> String {
    match row {
        SearchRow::File => path.to_owned(),
        SearchRow::Count(count) => format!("{path}:{count}"),
        SearchRow::Match { number: Some(number), text } => format!("{path}:{number}:{text}"),
        SearchRow::Match { number: None, text } => format!("{path}:{text}"),
        SearchRow::Context { number: Some(number), text } => format!("{path}-{number}-{text}"),
        SearchRow::Context { number: None, text } => format!("{path}-{text}"),
        SearchRow::Break => "--".to_owned(),
        SearchRow::Remark(text) => format!("{path}: [{text}]"),
    }
}
