//! Grep: which files hold a pattern, and where.
//!
//! Class pure. Rows are in the order of paths and look as `rg --no-heading --with-filename` prints them, so the same tree
//! gives the same result each time.
//! Invariant: the result is what `rg` finds (`what_is_found_is_what_rg_finds`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use minke_files::Files;
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::keep::{Keep, Row};
use super::lines::{FILE_BYTES, LINE_BYTES, Mode, Query, Search, Way};
use super::walk::{Filter, Found, Stop, Tree, Visit};
use super::{
    CONTENT_BYTES, ERROR_BYTES, REMARK_BYTES, Root, number, reads, shown, stoppable, troubles, usable,
};
use crate::arguments::{SHOWN_BYTES, absolute, output, parse, shorten, show};

/// Rows of one result unless the call says otherwise.
const ROWS: u64 = 250;
/// More rows than this never fit into the content.
const ROWS_MOST: u64 = 16_384;
/// Whoever goes on further than this is better served by a narrower search; what lies before is found each time.
const OFFSET_MOST: u64 = 20_000;
/// Lines around a match.
const CONTEXT_MOST: u64 = 1_000;
/// What a compiled pattern and its tables may take, each.
const REGEX_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Grep {
    files: Arc<Files>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    output_mode: Option<Mode>,
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

/// A search that can be made.
struct Checked {
    pattern: String,
    path: PathBuf,
    cwd: PathBuf,
    glob: Option<String>,
    types: Types,
    query: Query,
    offset: usize,
    limit: usize,
}

impl Checked {
    fn parse(arguments: &str, place: &Place) -> Result<Checked, ToolError> {
        let asked: Arguments = parse("Grep", arguments)?;
        usable("pattern", &asked.pattern)?;
        let path = absolute("path", asked.path.as_deref().unwrap_or("."), &place.cwd)?;
        let multiline = asked.multiline.unwrap_or(false);
        let matcher = matcher(&asked.pattern, asked.ignore_case.unwrap_or(false), multiline)?;
        let around = bounded("-C", asked.around, CONTEXT_MOST)?;
        let before = bounded("-B", asked.before, CONTEXT_MOST)?.or(around).unwrap_or(0);
        let after = bounded("-A", asked.after, CONTEXT_MOST)?.or(around).unwrap_or(0);
        let offset = bounded("offset", asked.offset, OFFSET_MOST)?.unwrap_or(0);
        let limit = match asked.head_limit.unwrap_or(ROWS) {
            0 => ROWS_MOST,
            limit => limit.min(ROWS_MOST),
        };
        let limit = usize::try_from(limit).expect("it is at most ROWS_MOST");
        let query = Query {
            matcher,
            mode: asked.output_mode.unwrap_or_default(),
            multiline,
            numbers: asked.numbers.unwrap_or(true),
            before,
            after,
            most: offset + limit,
        };
        let types = asked.kind.as_deref().map_or(Ok(Types::empty()), types)?;
        let (pattern, cwd) = (asked.pattern, place.cwd.clone());
        let checked = Checked { pattern, path, cwd, glob: asked.glob, types, query, offset, limit };
        // A glob that cannot be used is told before anything runs.
        checked.globs(&checked.path)?;
        Ok(checked)
    }

    /// As `rg --glob` from the working directory; from the root if that lies elsewhere.
    fn globs(&self, root: &Path) -> Result<Override, ToolError> {
        let Some(glob) = &self.glob else { return Ok(Override::empty()) };
        usable("glob", glob)?;
        let invalid = |e: ignore::Error| {
            let (glob, why) = (shorten(glob, SHOWN_BYTES), shorten(&e.to_string(), ERROR_BYTES));
            ToolError::Invalid(format!(
                "`glob` is `{glob}`, which cannot be used: {why}; globs look like `*.rs`, `src/**` or `!*.lock`"
            ))
        };
        // Where the path leads through links, the working directory has another name there.
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

fn bounded(key: &str, value: Option<u64>, most: u64) -> Result<Option<usize>, ToolError> {
    let Some(value) = value else { return Ok(None) };
    match usize::try_from(value) {
        Ok(count) if value <= most => Ok(Some(count)),
        _ => {
            let narrow =
                if key == "offset" { "; search a smaller `path` or with a narrower pattern" } else { "" };
            Err(ToolError::Invalid(format!("`{key}` is {value}, but at most {most} is possible{narrow}")))
        }
    }
}

fn matcher(pattern: &str, ignore_case: bool, multiline: bool) -> Result<RegexMatcher, ToolError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).unicode(true).octal(false).case_insensitive(ignore_case);
    builder.size_limit(REGEX_BYTES).dfa_size_limit(REGEX_BYTES).ban_byte(Some(0));
    if multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(pattern).map_err(|e| {
        let text = e.to_string();
        let said = shorten(&text, ERROR_BYTES);
        let hint = match e.kind() {
            ErrorKind::NotAllowed(_) => {
                "a line has no line break in it; set `multiline` to true to match across lines"
            }
            ErrorKind::Banned(_) => "files that hold zero bytes are not searched; leave it out",
            _ if text.contains("look-around") || text.contains("backreference") => {
                "write it without look-around and backreferences, which this engine does not have"
            }
            _ if text.contains("size limit") => "write it with smaller repetitions or fewer alternatives",
            _ => "to find the text as it is, put a backslash before each of . * + ? ( ) [ ] { } ^ $ | \\",
        };
        ToolError::Invalid(format!("`pattern` is not a regular expression that can be used: {said}\n{hint}"))
    })
}

fn types(kind: &str) -> Result<Types, ToolError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    let known = builder.definitions();
    if !known.iter().any(|known| known.name() == kind) {
        let wanted = format!("*.{kind}");
        let near = known.iter().find(|known| known.globs().contains(&wanted));
        let hint = match near {
            Some(near) => format!("`{wanted}` files are of type `{}`", near.name()),
            None => "there are rust, py, js, ts, go, java, c, cpp, json, toml, yaml, md, sh, html, css and others; \
                     use `glob` for the rest"
                .to_owned(),
        };
        return Err(ToolError::Invalid(format!(
            "`type` is `{}`, which is not known: {hint}",
            shorten(kind, SHOWN_BYTES)
        )));
    }
    builder.select(kind);
    builder.build().map_err(|e| ToolError::Internal(format!("the file type {kind} cannot be used: {e}")))
}

impl Grep {
    pub(super) fn new(files: Arc<Files>) -> Grep {
        Grep { files }
    }
}

impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        let text = |words: &str| json!({ "type": "string", "description": words });
        let yes = |words: &str| json!({ "type": "boolean", "description": words });
        let lines = |words: &str| json!({ "type": "integer", "minimum": 0, "description": words });
        ToolSpec {
            name: "Grep".into(),
            description: format!(
                "Searches file contents with ripgrep's engine; use it instead of grep or rg in Bash. Results are sorted by \
                 path. Hidden and binary files and what ignore files name are left out; a file given as `path` is always \
                 searched. The pattern is a Rust regular expression: `fn \\w+\\(`, `interface\\{{\\}}`; no look-around. Lines \
                 are cut at {LINE_BYTES} bytes."
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
                    "offset": lines("Rows to skip, to go on where a result ended."),
                },
                "required": ["pattern"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Pure
    }

    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError> {
        Ok(reads(&Checked::parse(arguments, place)?.path))
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        let files = self.files.clone();
        match Checked::parse(arguments, &call.place) {
            Ok(asked) => stoppable(move |stop| search(&files, asked, stop)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn search(files: &Arc<Files>, mut asked: Checked, stop: Stop) -> Result<ToolOutput, ToolError> {
    let failed = |e: minke_files::FileError| ToolError::Failed(format!("cannot search {e}"));
    let (tally, troubles) = match Root::open(files, &asked.path).map_err(failed)? {
        Root::File(file) => {
            let mut worker = Worker::new(&asked.query, Way::Named, stop);
            let searched = worker.search(&file, PathBuf::new());
            searched.map_err(|e| ToolError::Failed(format!("cannot search {}: {e}", show(&asked.path))))?;
            (worker.tally, String::new())
        }
        Root::Tree(root) => {
            let filter = Filter {
                globs: asked.globs(&root)?,
                types: std::mem::replace(&mut asked.types, Types::empty()),
                ignores: true,
                hidden: false,
                lead: Vec::new(),
            };
            let tree = Tree { files: files.clone(), root, filter, stop: stop.clone() };
            let walked = tree.walk(|| Worker::new(&asked.query, Way::Walked, stop.clone()));
            let mut tally = Tally::new(asked.query.most);
            walked.visitors.into_iter().for_each(|worker| tally.join(worker.tally));
            let troubles = troubles(tally.unreadable, walked.unreadable, walked.unused_ignores);
            (tally, troubles)
        }
    };
    let troubles = tally.cut_short() + &troubles;
    tally.result(&asked, &troubles)
}

/// What was found so far.
struct Tally {
    keep: Keep,
    searched: u64,
    unreadable: u64,
    /// Files of which only the beginning was searched.
    short: u64,
    /// Files with matches.
    files: u64,
    matches: u64,
    rows: u64,
}

struct Worker<'q> {
    search: Search<'q>,
    query: &'q Query,
    tally: Tally,
}

impl<'q> Worker<'q> {
    fn new(query: &'q Query, way: Way, stop: Stop) -> Worker<'q> {
        Worker { search: Search::new(query, way, stop), query, tally: Tally::new(query.most) }
    }

    fn search(&mut self, file: &std::fs::File, below: PathBuf) -> std::io::Result<()> {
        let tally = &mut self.tally;
        let wanted = tally.keep.wants(&below);
        let seen = self.search.file(file, if wanted { self.query.most } else { 0 })?;
        tally.searched += 1;
        tally.short += u64::from(seen.short);
        if seen.matches == 0 {
            return Ok(());
        }
        tally.files += 1;
        tally.matches += seen.matches;
        let (rows, total) = match self.query.mode {
            Mode::FilesWithMatches => (vec![Row::File], 1),
            Mode::Count => (vec![Row::Count(seen.matches)], 1),
            Mode::Content => (seen.rows, seen.total),
        };
        tally.rows += total;
        if wanted {
            tally.keep.put(below, rows);
        }
        Ok(())
    }
}

impl Visit for Worker<'_> {
    fn file(&mut self, found: &Found<'_>) {
        let searched = found.open().and_then(|file| self.search(&file, found.below()));
        if searched.is_err() {
            self.tally.unreadable += 1;
        }
    }
}

impl Tally {
    fn new(most: usize) -> Tally {
        Tally { keep: Keep::new(most), searched: 0, unreadable: 0, short: 0, files: 0, matches: 0, rows: 0 }
    }

    fn join(&mut self, other: Tally) {
        self.keep.join(other.keep);
        self.searched += other.searched;
        self.unreadable += other.unreadable;
        self.short += other.short;
        self.files += other.files;
        self.matches += other.matches;
        self.rows += other.rows;
    }

    /// What was not searched to its end, in words for a summary.
    fn cut_short(&self) -> String {
        if self.short == 0 {
            return String::new();
        }
        let most = FILE_BYTES / (1024 * 1024 * 1024);
        format!("; of {} only the first {most} GiB was searched", number(self.short, "file", "files"))
    }

    fn result(self, asked: &Checked, troubles: &str) -> Result<ToolOutput, ToolError> {
        let pattern = shorten(&asked.pattern, SHOWN_BYTES / 2);
        if self.files == 0 {
            let searched = number(self.searched, "file", "files");
            return Ok(output(format!("nothing matches `{pattern}` in {searched} searched{troubles}"), None));
        }
        let apart = asked.query.mode == Mode::Content && asked.query.before + asked.query.after > 0;
        let total = self.rows + if apart { self.files - 1 } else { 0 };
        if asked.offset as u64 >= total {
            return Err(ToolError::Failed(format!(
                "there is nothing from `offset` {} on: the result has {}; use a smaller `offset`",
                asked.offset,
                number(total, "row", "rows")
            )));
        }
        let files = number(self.files, "file", "files");
        let mut summary = match asked.query.mode {
            Mode::FilesWithMatches if self.files == 1 => format!("{files} matches `{pattern}`"),
            Mode::FilesWithMatches => format!("{files} match `{pattern}`"),
            Mode::Content => format!("{} of {files} for `{pattern}`", number(self.matches, "line", "lines")),
            Mode::Count => format!("{} in {files} for `{pattern}`", number(self.matches, "match", "matches")),
        };
        let mut page = Page { content: String::new(), skip: asked.offset, left: asked.limit, shown: 0 };
        page.fill(self.keep, asked, apart);
        let next = asked.offset as u64 + page.shown;
        if next < total || asked.offset > 0 {
            let first = asked.offset + 1;
            let go_on = if next < total {
                format!("; go on with offset {next} or search more narrowly")
            } else {
                String::new()
            };
            let rows = format!("rows {first} to {next} of {total} are shown");
            page.content.push_str(&format!("[{rows}{go_on}]\n"));
            summary.push_str(&format!("; {rows}"));
        }
        Ok(output(summary + troubles, Some(page.content)))
    }
}

/// The rows that a result shows.
struct Page {
    content: String,
    skip: usize,
    left: usize,
    shown: u64,
}

impl Page {
    fn fill(&mut self, keep: Keep, asked: &Checked, apart: bool) {
        for (at, (below, rows)) in keep.into_files().enumerate() {
            let path = if below.as_os_str().is_empty() { asked.path.clone() } else { asked.path.join(below) };
            let path = shown(&asked.cwd, &path);
            let between = (apart && at > 0).then_some(Row::Break);
            for row in between.into_iter().chain(rows) {
                if !self.put(|| line(&path, &row)) {
                    return;
                }
            }
        }
    }

    fn put(&mut self, line: impl FnOnce() -> String) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        if self.left == 0 {
            return false;
        }
        let line = line();
        if self.content.len() + line.len() + 1 > CONTENT_BYTES - REMARK_BYTES {
            return false;
        }
        self.content.push_str(&line);
        self.content.push('\n');
        self.left -= 1;
        self.shown += 1;
        true
    }
}

fn line(path: &str, row: &Row) -> String {
    match row {
        Row::File => path.to_owned(),
        Row::Count(count) => format!("{path}:{count}"),
        Row::Match { number: Some(number), text } => format!("{path}:{number}:{text}"),
        Row::Match { number: None, text } => format!("{path}:{text}"),
        Row::Context { number: Some(number), text } => format!("{path}-{number}-{text}"),
        Row::Context { number: None, text } => format!("{path}-{text}"),
        Row::Break => "--".to_owned(),
        Row::Remark(text) => format!("{path}: [{text}]"),
    }
}
