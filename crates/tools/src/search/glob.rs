//! Glob: the files whose path matches a pattern, the newest first.
//!
//! Class pure. Like `rg --files` with a glob, except that the pattern chooses among what the ignore files leave and does
//! not overrule them; and what begins with a dot is looked at only when a part of the pattern does.
//! Invariants: the result is what `rg` lists (`what_is_listed_is_what_rg_lists`); at most `SHOWN` paths are kept, however
//! many there are (`many_files_are_counted_and_the_newest_shown`).

use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::Types;
use minke_files::{FileError, Files};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::walk::{Filter, Found, Stop, Tree, Visit};
use super::{CONTENT_BYTES, ERROR_BYTES, REMARK_BYTES, number, reads, shown, stoppable, troubles, usable};
use crate::arguments::{SHOWN_BYTES, absolute, output, parse, shorten, show};

/// Paths in one result.
const SHOWN: usize = 1_000;

pub(super) struct Glob {
    files: Arc<Files>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    include_ignored: Option<bool>,
}

/// A listing that can be made.
struct Checked {
    pattern: String,
    path: PathBuf,
    cwd: PathBuf,
    include_ignored: bool,
}

impl Checked {
    fn parse(arguments: &str, place: &Place) -> Result<Checked, ToolError> {
        let Arguments { pattern, path, include_ignored } = parse("Glob", arguments)?;
        usable("pattern", &pattern)?;
        let path = absolute("path", path.as_deref().unwrap_or("."), &place.cwd)?;
        let pattern = below(&pattern, &path);
        let include_ignored = include_ignored.unwrap_or(false);
        let checked = Checked { pattern, path, cwd: place.cwd.clone(), include_ignored };
        // A pattern that cannot be used is told before anything runs.
        checked.globs()?;
        Ok(checked)
    }

    /// For paths as they are seen from the root.
    fn globs(&self) -> Result<Override, ToolError> {
        let invalid = |why: String| {
            let (pattern, why) = (shorten(&self.pattern, SHOWN_BYTES), shorten(&why, ERROR_BYTES));
            ToolError::Invalid(format!(
                "`pattern` is `{pattern}`, which cannot be used: {why}; patterns look like `**/*.rs`, \
                 `src/**/*.{{ts,tsx}}` or `Cargo.toml`"
            ))
        };
        if self.pattern.split('/').any(|part| part == "..") {
            return Err(invalid("it climbs with `..`; give the directory as `path`".to_owned()));
        }
        // `!` and `#` mean something else at the beginning of a line of an ignore file.
        let escape = if self.pattern.starts_with(['!', '#']) { "\\" } else { "" };
        let mut builder = OverrideBuilder::new("");
        builder.add(&format!("{escape}{}", self.pattern)).map_err(|e| invalid(e.to_string()))?;
        builder.build().map_err(|e| invalid(e.to_string()))
    }
}

/// The pattern as it is meant below the root: one that spells out the root's own path is cut.
fn below(pattern: &str, root: &Path) -> String {
    let root = root.to_string_lossy();
    let cut = pattern.strip_prefix(&*root).and_then(|rest| rest.strip_prefix('/'));
    let pattern = cut.filter(|rest| !rest.is_empty()).unwrap_or(pattern);
    pattern.strip_prefix("./").unwrap_or(pattern).to_owned()
}

/// Whether a part of the pattern begins with a dot.
fn names_hidden(pattern: &str) -> bool {
    let mut begins = true;
    for c in pattern.chars() {
        if c == '.' && begins {
            return true;
        }
        begins = matches!(c, '/' | '{' | ',' | '\\' | '[');
    }
    false
}

/// The directories that a path must begin with to match: the parts before the first that is not plain text.
fn lead(pattern: &str) -> Vec<OsString> {
    let parts: Vec<&str> = pattern.trim_start_matches('/').split('/').collect();
    let dirs = parts.split_last().map_or(&[][..], |(_, dirs)| dirs);
    let plain = |part: &&&str| !part.is_empty() && !part.contains(['*', '?', '[', ']', '{', '}', '\\', ',']);
    dirs.iter().take_while(plain).map(OsString::from).collect()
}

impl Glob {
    pub(super) fn new(files: Arc<Files>) -> Glob {
        Glob { files }
    }
}

impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Glob".into(),
            description: format!(
                "Finds files by name, the newest first, at most {SHOWN}. `*.rs` matches at any depth, `src/*.rs` only \
                 directly in src, `src/**/*.rs` anywhere below it; `{{a,b}}`, `?` and `[ab]` work. Files that .gitignore, \
                 .ignore or .rgignore leave out are not listed, nor hidden ones unless a part of the pattern begins with \
                 a dot (`.github/**`). To search in files use Grep."
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "description": "What the path matches, seen from `path`." },
                    "path": {
                        "type": "string",
                        "description": "The directory to look in. Default: the working directory.",
                    },
                    "include_ignored": {
                        "type": "boolean",
                        "description": "Lists what ignore files leave out, too. Default: false.",
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

    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError> {
        Ok(reads(&Checked::parse(arguments, place)?.path))
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        let files = self.files.clone();
        match Checked::parse(arguments, &call.place) {
            Ok(asked) => stoppable(move |stop| list(&files, &asked, stop)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn list(files: &Arc<Files>, asked: &Checked, stop: Stop) -> Result<ToolOutput, ToolError> {
    let root = files.open_dir(&asked.path).map_err(|e| refused(files, &asked.path, &e))?.path;
    let globs = asked.globs()?;
    let filter = Filter {
        globs: Override::empty(),
        types: Types::empty(),
        ignores: !asked.include_ignored,
        hidden: names_hidden(&asked.pattern),
        lead: lead(&asked.pattern),
    };
    let tree = Tree { files: files.clone(), root, filter, stop };
    let walked = tree.walk(|| Newest { globs: &globs, kept: BinaryHeap::new(), total: 0, gone: 0 });
    let (mut kept, mut total, mut gone) = (BinaryHeap::new(), 0, 0);
    for newest in walked.visitors {
        (total, gone) = (total + newest.total, gone + newest.gone);
        newest.kept.into_iter().for_each(|file| keep(&mut kept, file));
    }
    let troubles = troubles(gone, walked.unreadable, walked.unused_ignores);
    let pattern = shorten(&asked.pattern, SHOWN_BYTES / 2);
    if kept.is_empty() {
        let hint = hint(asked);
        return Ok(output(
            format!("no file matches `{pattern}` in {}{hint}{troubles}", show(&asked.path)),
            None,
        ));
    }
    let mut content = String::new();
    let mut lines = 0;
    for Aged { below, .. } in kept.into_sorted_vec() {
        let line = shown(&asked.cwd, &asked.path.join(below));
        if content.len() + line.len() + 1 > CONTENT_BYTES - REMARK_BYTES {
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
            "[the {} of {total} are shown; for the others use a narrower pattern or a `path`]\n",
            number(lines, "newest file", "newest files")
        ));
        summary.push_str(&format!(", {total} in all"));
    }
    Ok(output(summary + &troubles, Some(content)))
}

fn refused(files: &Files, path: &Path, error: &FileError) -> ToolError {
    if matches!(error, FileError::NotADirectory { .. }) && files.open(path).is_ok() {
        return ToolError::Failed(format!(
            "cannot look in {}: it is a file; give the directory that it is in as `path`, or look into it with Grep or Read",
            show(path)
        ));
    }
    ToolError::Failed(format!("cannot look in {error}"))
}

/// What may be wrong with a pattern that matches nothing.
fn hint(asked: &Checked) -> &'static str {
    let pattern = &asked.pattern;
    if pattern.starts_with("~/") {
        "; `~` is not the home directory here: give the whole path of a directory as `path`"
    } else if pattern.starts_with('/') {
        "; a pattern is seen from `path`, so give the directory there"
    } else if pattern.ends_with('/') {
        "; only files are listed: end it with `/**`"
    } else if !asked.include_ignored {
        "; ignored files are left out unless `include_ignored` is true"
    } else {
        ""
    }
}

/// A file by its age. The newest is the least, and of equally old ones the first by path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Aged {
    modified: std::cmp::Reverse<(i64, u64)>,
    below: PathBuf,
}

struct Newest<'a> {
    globs: &'a Override,
    kept: BinaryHeap<Aged>,
    total: u64,
    /// Files that were there when their directory was listed and cannot be looked at.
    gone: u64,
}

impl Visit for Newest<'_> {
    fn file(&mut self, found: &Found<'_>) {
        let below = found.below();
        if !self.globs.matched(&below, false).is_whitelist() {
            return;
        }
        let Ok(stat) = found.stat() else {
            self.gone += 1;
            return;
        };
        self.total += 1;
        let modified = std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec));
        keep(&mut self.kept, Aged { modified, below });
    }
}

fn keep(kept: &mut BinaryHeap<Aged>, file: Aged) {
    kept.push(file);
    if kept.len() > SHOWN {
        kept.pop();
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
            assert_eq!(lead(pattern), dirs, "{pattern}");
        }
    }

    #[test]
    fn a_dot_counts_at_the_beginning_of_a_part() {
        for hidden in [".x", "a/.x/b", "**/.env*", "{a,.b}", "{.a,b}/c"] {
            assert!(names_hidden(hidden), "{hidden}");
        }
        for plain in ["*.rs", "a.b/c.d", "**/*.{a,b}", "x.", "a*.b"] {
            assert!(!names_hidden(plain), "{plain}");
        }
    }
}
