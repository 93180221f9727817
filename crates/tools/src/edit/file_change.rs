//! File changes by Write, Edit and MultiEdit. Each change is computed twice by the same code: for the
//! preview, and under the lock of the file when it is executed.
//!
//! Invariant: a file is changed only if the model has read its current content
//! (`a_file_must_have_been_read_and_be_unchanged_since`), and two concurrent changes of a file are both
//! applied (`parallel_edits_of_one_file_all_arrive`).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{
    AccessLevel, ExpectedContent, FileError, FileGuard, MAX_FILE_BYTES, ScopedFiles, content_hash,
};
use minke_record::{Action, Preview};
use minke_tool::{CallPreview, FileSnapshot, ToolError, ToolFuture, ToolOutput};

use super::seen_files::SeenFiles;
use crate::arguments::{display_path, run_blocking, tool_output};
use crate::diff::{TextDiff, diff_texts};
use crate::text::{FileText, LineEnding, TextCoding, TextForm, binary_kind, displayable_text, encode_text};

/// The state that the file tools share.
#[derive(Clone)]
pub(crate) struct FileEditor {
    pub(crate) files: Arc<ScopedFiles>,
    pub(crate) seen: Arc<SeenFiles>,
}

/// The content of a file before a change.
pub(crate) enum OldContent {
    Missing,
    Text(FileText),
    /// Binary content of this kind.
    Binary(&'static str),
}

/// The content of a file after a change.
pub(crate) struct NewContent {
    pub(crate) text: String,
    pub(crate) form: TextForm,
    /// Remarks for the model about how the change was applied.
    pub(crate) remarks: Vec<String>,
}

/// A change of a file: computes the new content from the old one, or returns an error text.
pub(crate) trait FileChange: Send + 'static {
    /// The verb in the error: `cannot edit /x: …`.
    const VERB: &'static str;

    /// Returns an error if the change cannot be applied to binary content of this kind.
    fn check_binary(&self, _kind: &str) -> Result<(), String> {
        Ok(())
    }

    fn new_content(&self, old: &OldContent) -> Result<NewContent, String>;
}

/// A computed change.
struct PlannedChange {
    path: PathBuf,
    before: Option<FileSnapshot>,
    before_hash: Option<String>,
    after: Vec<u8>,
    after_hash: String,
    diff: TextDiff,
    remarks: Vec<String>,
}

/// Returns the action of a change of this file.
pub(crate) fn write_action(path: &Path) -> Action {
    let writes = vec![path.to_string_lossy().into_owned()];
    Action { writes, side_effects: true, ..Action::default() }
}

/// Converts a file error to a tool error.
pub(crate) fn file_error(verb: &str, e: &FileError) -> ToolError {
    let words = format!("cannot {verb} {e}");
    match e {
        FileError::RelativePath { .. } | FileError::InvalidPath { .. } => ToolError::InvalidArguments(words),
        _ => ToolError::ExecutionFailed(words),
    }
}

impl FileEditor {
    pub(crate) fn preview<M: FileChange>(
        &self,
        path: &Path,
        change: &M,
    ) -> Result<Option<CallPreview>, ToolError> {
        let guard = self.files.lock_file(path).map_err(|e| file_error(M::VERB, &e))?;
        let PlannedChange { path, before, before_hash, after_hash, diff, .. } =
            self.plan_change(path, &guard, change)?;
        let missing_dir = if before.is_none() { self.missing_directory(&path) } else { None };
        let preview = Preview {
            path: path.to_string_lossy().into_owned(),
            before: before_hash,
            after: after_hash,
            diff: Some(diff.text),
        };
        Ok(Some(CallPreview { preview, before, missing_dir }))
    }

    /// Returns the topmost missing directory above a path.
    fn missing_directory(&self, path: &Path) -> Option<PathBuf> {
        let above = path.ancestors().skip(1);
        above.take_while(|dir| matches!(self.files.path_entry(dir), Ok(None))).last().map(Path::to_owned)
    }

    pub(crate) fn run_change<M: FileChange>(&self, path: PathBuf, change: M) -> ToolFuture {
        let editor = self.clone();
        run_blocking(move || editor.change_file(&path, &change))
    }

    fn change_file<M: FileChange>(&self, path: &Path, make: &M) -> Result<ToolOutput, ToolError> {
        let to_tool_error = |e: FileError| file_error(M::VERB, &e);
        let guard = self.files.lock_file(path).map_err(to_tool_error)?;
        let planned = self.plan_change(path, &guard, make)?;
        if planned.before_hash.as_ref() == Some(&planned.after_hash) {
            return Ok(tool_output(
                format!("{} has this content already; nothing was changed", display_path(path)),
                None,
            ));
        }
        let expect = planned.before_hash.as_deref().map_or(ExpectedContent::Absent, ExpectedContent::Hash);
        let replaced = guard.replace_content(&planned.after, expect).map_err(to_tool_error)?;
        self.seen.remember(&replaced.path, &replaced.new_hash);
        let mut remarks = planned.remarks;
        if replaced.owner_lost {
            remarks.push("the file belonged to another user and is now owned by this user".to_owned());
        }
        Ok(change_output(path, &planned.diff, planned.before.is_none(), &remarks))
    }

    fn plan_change<M: FileChange>(
        &self,
        path: &Path,
        guard: &FileGuard<'_>,
        change: &M,
    ) -> Result<PlannedChange, ToolError> {
        let to_tool_error = |e: FileError| file_error(M::VERB, &e);
        let words = |why: String| {
            ToolError::ExecutionFailed(format!("cannot {} {}: {why}", M::VERB, display_path(path)))
        };
        let located = self.files.locate_path(path, AccessLevel::Write).map_err(to_tool_error)?;
        if located.is_dir {
            return Err(to_tool_error(FileError::IsDirectory { path: path.to_owned() }));
        }
        let current = guard.read_content().map_err(to_tool_error)?;
        let before_hash = current.as_ref().map(|(content, _)| content_hash(content));
        let old = match &current {
            None => OldContent::Missing,
            Some((content, _)) => match binary_kind(content) {
                Some(kind) => OldContent::Binary(kind),
                None => OldContent::Text(FileText::decode(content)),
            },
        };
        // A file that cannot be changed at all need not be read first.
        if let OldContent::Binary(kind) = &old {
            change.check_binary(kind).map_err(words)?;
        }
        if let (Some((content, _)), Some(hash)) = (&current, &before_hash)
            && !content.is_empty()
        {
            self.seen.check_unchanged(&located.path, hash, path)?;
        }
        let NewContent { text, form, mut remarks } = change.new_content(&old).map_err(words)?;
        let after = encode_text(&text, form).map_err(|c| words(encoding_error(c, form.coding)))?;
        if after.len() as u64 > MAX_FILE_BYTES {
            let most = MAX_FILE_BYTES / (1024 * 1024);
            return Err(words(format!("it would have {} bytes, and the maximum is {most} MiB", after.len())));
        }
        remarks.extend(kept_form(&old, form));
        let before_text = match &old {
            OldContent::Text(old) => diff_text(old.text.as_str(), old.form),
            OldContent::Missing | OldContent::Binary(_) => String::new(),
        };
        let diff = diff_texts(&path.to_string_lossy(), &before_text, &diff_text(&text, form));
        let before =
            current.map(|(content, meta)| FileSnapshot { mode: meta.permissions().mode() & 0o7777, content });
        let after_hash = content_hash(&after);
        Ok(PlannedChange { path: located.path, before, before_hash, after, after_hash, diff, remarks })
    }
}

fn encoding_error(c: char, coding: TextCoding) -> String {
    let name = match coding {
        TextCoding::Other(encoding) => encoding.name(),
        _ => "its encoding",
    };
    format!(
        "the file is written in {name}, which has no `{c}`; use other characters or convert the file first"
    )
}

/// Returns a remark about properties of the old file that the model cannot see and that the change keeps.
fn kept_form(old: &OldContent, form: TextForm) -> Option<String> {
    let OldContent::Text(old) = old else { return None };
    if old.form != form {
        return None;
    }
    let remarks = form.remarks();
    (!remarks.is_empty()).then(|| format!("kept as it was: {}", remarks.join(", ")))
}

/// Returns a text for a diff: with LF line endings, and with replacement characters for undecodable bytes.
fn diff_text(text: &str, form: TextForm) -> String {
    let text = displayable_text(text, form.coding);
    match form.ending {
        LineEnding::Cr => text.replace('\r', "\n"),
        LineEnding::Lf | LineEnding::CrLf => text.replace("\r\n", "\n"),
    }
}

fn change_output(path: &Path, diff: &TextDiff, created: bool, remarks: &[String]) -> ToolOutput {
    let TextDiff { text, added, removed, line } = diff;
    let path = display_path(path);
    if created {
        let remarks = (!remarks.is_empty()).then(|| remarks.join("\n"));
        let s = if *added == 1 { "" } else { "s" };
        return tool_output(format!("created {path}: {added} line{s}"), remarks);
    }
    let summary = match line {
        0 => format!("changed {path}: only in how its lines end or its characters are written"),
        line => format!("changed {path} at line {line}: {added} in, {removed} out"),
    };
    let mut content = text.clone();
    for remark in remarks {
        content.push_str(&format!("[{remark}]\n"));
    }
    tool_output(summary, Some(content))
}
