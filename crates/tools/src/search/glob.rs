//! Glob: the files whose path matches a pattern, newest first.
//!
//! Class pure. Works like `rg --files` with a glob, except that the pattern does not override ignore files,
//! and hidden files are listed only if a component of the pattern begins with a dot.
//! Invariants: the result is the same as with `rg` (`what_is_listed_is_what_rg_lists`); at most `MAX_PATHS`
//! paths are in memory (`many_files_are_counted_and_the_newest_shown`).

use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::Types;
use minke_files::{FileError, ScopedFiles};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::walk::{FileVisitor, StopFlag, TreeWalk, WalkFilter, WalkedFile};
use super::{
    MAX_CONTENT_BYTES, MAX_ERROR_BYTES, RESERVED_REMARK_BYTES, check_pattern, count_noun, describe_problems,
    read_action, relative_path, run_stoppable,
};
use crate::arguments::{MAX_ECHO_BYTES, absolute_path, display_path, keep_end, parse_arguments, tool_output};

/// The maximum number of paths in a result.
const MAX_PATHS: usize = 1_000;

pub(super) struct GlobTool {
    files: Arc<ScopedFiles>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobArguments {
    pattern: String,
    path: Option<String>,
    include_ignored: Option<bool>,
}

/// The checked arguments of a call.
struct GlobRequest {
    pattern: String,
    path: PathBuf,
    cwd: PathBuf,
    include_ignored: bool,
}

impl GlobRequest {
    fn from_arguments(arguments: &str, place: &ToolContext) -> Result<GlobRequest, ToolError> {
        let GlobArguments { pattern, path, include_ignored } = parse_arguments("Glob", arguments)?;
        check_pattern("pattern", &pattern)?;
        let path = absolute_path("path", path.as_deref().unwrap_or("."), &place.cwd)?;
        let pattern = relative_pattern(&pattern, &path);
        let include_ignored = include_ignored.unwrap_or(false);
        let checked = GlobRequest { pattern, path, cwd: place.cwd.clone(), include_ignored };
        // Report an invalid pattern before anything runs.
        checked.build_override()?;
        Ok(checked)
    }

    /// Returns the pattern for paths relative to the root.
    fn build_override(&self) -> Result<Override, ToolError> {
        let invalid = |why: String| {
            let (pattern, why) = (keep_end(&self.pattern, MAX_ECHO_BYTES), keep_end(&why, MAX_ERROR_BYTES));
            ToolError::InvalidArguments(format!(
                "`pattern` is `{pattern}`, which is not valid: {why}; patterns look like `**/*.rs`, \
                 `src/**/*.{{ts,tsx}}` or `Cargo.toml`"
            ))
        };
        if self.pattern.split('/').any(|part| part == "..") {
            return Err(invalid(
                "it leaves the directory with `..`; give the directory as `path`".to_owned(),
            ));
        }
        // `!` and `#` have a special meaning at the start of a line of an ignore file.
        let escape = if self.pattern.starts_with(['!', '#']) { "\\" } else { "" };
        let mut builder = OverrideBuilder::new("");
        builder.add(&format!("{escape}{}", self.pattern)).map_err(|e| invalid(e.to_string()))?;
        builder.build().map_err(|e| invalid(e.to_string()))
    }
}

/// Returns the pattern relative to the root, without the root's own path.
fn relative_pattern(pattern: &str, root: &Path) -> String {
    let root = root.to_string_lossy();
    let cut = pattern.strip_prefix(&*root).and_then(|rest| rest.strip_prefix('/'));
    let pattern = cut.filter(|rest| !rest.is_empty()).unwrap_or(pattern);
    pattern.strip_prefix("./").unwrap_or(pattern).to_owned()
}

/// Returns whether a component of the pattern begins with a dot.
fn matches_hidden(pattern: &str) -> bool {
    let mut begins = true;
    for c in pattern.chars() {
        if c == '.' && begins {
            return true;
        }
        begins = matches!(c, '/' | '{' | ',' | '\\' | '[');
    }
    false
}

/// Returns the directories that a matching path begins with: the components before the first one with a
/// wildcard.
fn literal_directories(pattern: &str) -> Vec<OsString> {
    let parts: Vec<&str> = pattern.trim_start_matches('/').split('/').collect();
    let dirs = parts.split_last().map_or(&[][..], |(_, dirs)| dirs);
    let plain = |part: &&&str| !part.is_empty() && !part.contains(['*', '?', '[', ']', '{', '}', '\\', ',']);
    dirs.iter().take_while(plain).map(OsString::from).collect()
}

impl GlobTool {
    pub(super) fn new(files: Arc<ScopedFiles>) -> GlobTool {
        GlobTool { files }
    }
}

impl Tool for GlobTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Glob".into(),
            description: format!(
                "Finds files by name, the newest first, at most {MAX_PATHS}. `*.rs` matches at any depth, `src/*.rs` only \
                 directly in src, `src/**/*.rs` anywhere below it; `{{a,b}}`, `?` and `[ab]` work. Files that .gitignore, \
                 .ignore or .rgignore exclude are not listed, nor hidden ones unless a part of the pattern begins with \
                 a dot (`.github/**`). To search in files use Grep."
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "description": "The pattern for paths relative to `path`." },
                    "path": {
                        "type": "string",
                        "description": "The directory to look in. Default: the working directory.",
                    },
                    "include_ignored": {
                        "type": "boolean",
                        "description": "Lists ignored files too. Default: false.",
                    },
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
        Ok(read_action(&GlobRequest::from_arguments(arguments, place)?.path))
    }

    fn execute(&self, arguments: &str, call: &ToolInvocation) -> ToolFuture {
        let files = self.files.clone();
        match GlobRequest::from_arguments(arguments, &call.context) {
            Ok(request) => run_stoppable(move |stop| list_matches(&files, &request, stop)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn list_matches(
    files: &Arc<ScopedFiles>,
    asked: &GlobRequest,
    stop: StopFlag,
) -> Result<ToolOutput, ToolError> {
    let root = files.open_dir(&asked.path).map_err(|e| open_error(files, &asked.path, &e))?.path;
    let globs = asked.build_override()?;
    let filter = WalkFilter {
        globs: Override::empty(),
        types: Types::empty(),
        ignores: !asked.include_ignored,
        hidden: matches_hidden(&asked.pattern),
        literal_directories: literal_directories(&asked.pattern),
    };
    let tree = TreeWalk { files: files.clone(), root, filter, stop };
    let walked =
        tree.visit_all(|| NewestFiles { globs: &globs, files: BinaryHeap::new(), total: 0, vanished: 0 });
    let (mut kept_files, mut total, mut vanished) = (BinaryHeap::new(), 0, 0);
    for newest in walked.visitors {
        (total, vanished) = (total + newest.total, vanished + newest.vanished);
        newest.files.into_iter().for_each(|file| keep_newest(&mut kept_files, file));
    }
    let problems = describe_problems(vanished, walked.unreadable, walked.unused_ignores);
    let pattern = keep_end(&asked.pattern, MAX_ECHO_BYTES / 2);
    if kept_files.is_empty() {
        let hint = no_match_hint(asked);
        return Ok(tool_output(
            format!("no file matches `{pattern}` in {}{hint}{problems}", display_path(&asked.path)),
            None,
        ));
    }
    let mut content = String::new();
    let mut lines = 0;
    for AgedFile { below, .. } in kept_files.into_sorted_vec() {
        let line = relative_path(&asked.cwd, &asked.path.join(below));
        if content.len() + line.len() + 1 > MAX_CONTENT_BYTES - RESERVED_REMARK_BYTES {
            break;
        }
        content.push_str(&line);
        content.push('\n');
        lines += 1;
    }
    let count = if lines < total { format!("{lines}+") } else { total.to_string() };
    let files = if total == 1 { "file matches" } else { "files match" };
    let mut summary = format!("{count} {files} `{pattern}`");
    if lines < total {
        content.push_str(&format!(
            "[the {} of {total} are shown; use a narrower pattern or a `path` for the others]\n",
            count_noun(lines, "newest file", "newest files")
        ));
        summary.push_str(&format!(", {total} in all"));
    }
    Ok(tool_output(summary + &problems, Some(content)))
}

fn open_error(files: &ScopedFiles, path: &Path, error: &FileError) -> ToolError {
    if matches!(error, FileError::NotADirectory { .. }) && files.open_file(path).is_ok() {
        return ToolError::ExecutionFailed(format!(
            "cannot look in {}: it is a file; give the directory that it is in as `path`, or look into it with Grep or Read",
            display_path(path)
        ));
    }
    ToolError::ExecutionFailed(format!("cannot look in {error}"))
}

/// Returns a hint for a pattern that matches nothing.
fn no_match_hint(request: &GlobRequest) -> &'static str {
    let pattern = &request.pattern;
    if pattern.starts_with("~/") {
        "; `~` is not the home directory here: give the whole path of a directory as `path`"
    } else if pattern.starts_with('/') {
        "; a pattern is relative to `path`, so give the directory there"
    } else if pattern.ends_with('/') {
        "; only files are listed: end it with `/**`"
    } else if !request.include_ignored {
        "; ignored files are omitted unless `include_ignored` is true"
    } else {
        ""
    }
}

/// A file with its time. The newest is the smallest; files of the same time are ordered by path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct AgedFile {
    modified: std::cmp::Reverse<(i64, u64)>,
    below: PathBuf,
}

struct NewestFiles<'a> {
    globs: &'a Override,
    files: BinaryHeap<AgedFile>,
    total: u64,
    /// Files that could not be examined after their directory was listed.
    vanished: u64,
}

impl FileVisitor for NewestFiles<'_> {
    fn visit_file(&mut self, found: &WalkedFile<'_>) {
        let below = found.relative_path();
        if !self.globs.matched(&below, false).is_whitelist() {
            return;
        }
        let Ok(stat) = found.file_stat() else {
            self.vanished += 1;
            return;
        };
        self.total += 1;
        let modified = std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec));
        keep_newest(&mut self.files, AgedFile { modified, below });
    }
}

fn keep_newest(kept_files: &mut BinaryHeap<AgedFile>, file: AgedFile) {
    kept_files.push(file);
    if kept_files.len() > MAX_PATHS {
        kept_files.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_a_match_is_plain_text_before_the_first_pattern() {
        for (pattern, dirs) in [
            ("*.rs", &[][..]),
            ("src/*.rs", &["src"]),
            ("/a/b/c", &["a", "b"]),
            ("a/b*/c/d", &["a"]),
            ("**/x", &[]),
            ("a/**", &["a"]),
            ("x", &[]),
            ("{a,b}/c", &[]),
            ("a\\*/b", &[]),
        ] {
            assert_eq!(literal_directories(pattern), dirs, "{pattern}");
        }
    }

    #[test]
    fn a_dot_counts_at_the_beginning_of_a_part() {
        for hidden in [".x", "a/.x/b", "**/.env*", "{a,.b}", "{.a,b}/c"] {
            assert!(matches_hidden(hidden), "{hidden}");
        }
        for plain in ["*.rs", "a.b/c.d", "**/*.{a,b}", "x.", "a*.b"] {
            assert!(!matches_hidden(plain), "{plain}");
        }
    }
}
