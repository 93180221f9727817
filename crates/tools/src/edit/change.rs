//! Change: how Write, Edit and MultiEdit change a file. Worked out twice with the same code: for the preview, and under
//! the file's lock when it is done.
//!
//! Invariant: a file is changed only if its content is what the model has seen
//! (`a_file_must_have_been_read_and_be_unchanged_since`), and two changes of one file never lose one
//! (`parallel_edits_of_one_file_all_arrive`).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{Expect, FILE_BYTES, FileError, Files, Guard, Level, hash};
use minke_record::{Action, Preview};
use minke_tool::{Before, Previewed, Running, ToolError, ToolOutput};

use super::known::Known;
use crate::arguments::{off_the_loop, output, show};
use crate::diff::{Diff, diff};
use crate::text::{Coding, Ending, Form, Text, binary, encode, shown};

/// What the file tools share.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) files: Arc<Files>,
    pub(crate) known: Arc<Known>,
}

/// A file as a change finds it.
pub(crate) enum Old {
    Missing,
    Text(Text),
    /// Not text but this.
    Binary(&'static str),
}

/// What a change makes of it.
pub(crate) struct New {
    pub(crate) text: String,
    pub(crate) form: Form,
    /// What the model should know about how it was done.
    pub(crate) remarks: Vec<String>,
}

/// A change that can be made: the new content from the old one, or words about why not.
pub(crate) trait Make: Send + 'static {
    /// As the error has it: `cannot edit /x: …`.
    const VERB: &'static str;

    /// Whether it can be made of what is not text but this.
    fn suits(&self, _kind: &str) -> Result<(), String> {
        Ok(())
    }

    fn make(&self, old: &Old) -> Result<New, String>;
}

/// A change that has been worked out.
struct Planned {
    path: PathBuf,
    before: Option<Before>,
    before_hash: Option<String>,
    after: Vec<u8>,
    after_hash: String,
    diff: Diff,
    remarks: Vec<String>,
}

/// What a change of this file touches.
pub(crate) fn writes(path: &Path) -> Action {
    let writes = vec![path.to_string_lossy().into_owned()];
    Action { writes, side_effects: true, ..Action::default() }
}

/// A file's refusal in the words of a tool.
pub(crate) fn refused(verb: &str, e: &FileError) -> ToolError {
    let words = format!("cannot {verb} {e}");
    match e {
        FileError::RelativePath { .. } | FileError::InvalidPath { .. } => ToolError::Invalid(words),
        _ => ToolError::Failed(words),
    }
}

impl Desk {
    pub(crate) fn preview<M: Make>(&self, path: &Path, make: &M) -> Result<Option<Previewed>, ToolError> {
        let guard = self.files.lock(path).map_err(|e| refused(M::VERB, &e))?;
        let Planned { path, before, before_hash, after_hash, diff, .. } = self.plan(path, &guard, make)?;
        let missing = if before.is_none() { self.missing(&path) } else { None };
        let preview = Preview {
            path: path.to_string_lossy().into_owned(),
            before: before_hash,
            after: after_hash,
            diff: Some(diff.text),
        };
        Ok(Some(Previewed { preview, before, missing }))
    }

    /// The outermost directory above a path that is not there.
    fn missing(&self, path: &Path) -> Option<PathBuf> {
        let above = path.ancestors().skip(1);
        above.take_while(|dir| matches!(self.files.entry(dir), Ok(None))).last().map(Path::to_owned)
    }

    pub(crate) fn run<M: Make>(&self, path: PathBuf, make: M) -> Running {
        let desk = self.clone();
        off_the_loop(move || desk.change(&path, &make))
    }

    fn change<M: Make>(&self, path: &Path, make: &M) -> Result<ToolOutput, ToolError> {
        let failed = |e: FileError| refused(M::VERB, &e);
        let guard = self.files.lock(path).map_err(failed)?;
        let planned = self.plan(path, &guard, make)?;
        if planned.before_hash.as_ref() == Some(&planned.after_hash) {
            return Ok(output(format!("{} has this content already; nothing was changed", show(path)), None));
        }
        let expect = planned.before_hash.as_deref().map_or(Expect::Absent, Expect::Hash);
        let replaced = guard.replace(&planned.after, expect).map_err(failed)?;
        self.known.remember(&replaced.path, &replaced.hash);
        let mut remarks = planned.remarks;
        if replaced.owner_lost {
            remarks.push("the file belonged to somebody else and is now owned by this user".to_owned());
        }
        Ok(tell(path, &planned.diff, planned.before.is_none(), &remarks))
    }

    fn plan<M: Make>(&self, path: &Path, guard: &Guard<'_>, make: &M) -> Result<Planned, ToolError> {
        let failed = |e: FileError| refused(M::VERB, &e);
        let words = |why: String| ToolError::Failed(format!("cannot {} {}: {why}", M::VERB, show(path)));
        let located = self.files.locate(path, Level::Write).map_err(failed)?;
        if located.is_dir {
            return Err(failed(FileError::IsDirectory { path: path.to_owned() }));
        }
        let found = guard.read().map_err(failed)?;
        let before_hash = found.as_ref().map(|(content, _)| hash(content));
        let old = match &found {
            None => Old::Missing,
            Some((content, _)) => match binary(content) {
                Some(kind) => Old::Binary(kind),
                None => Old::Text(Text::decode(content)),
            },
        };
        // What cannot be changed at all is not to be read first.
        if let Old::Binary(kind) = &old {
            make.suits(kind).map_err(words)?;
        }
        if let (Some((content, _)), Some(hash)) = (&found, &before_hash)
            && !content.is_empty()
        {
            self.known.check(&located.path, hash, path)?;
        }
        let New { text, form, mut remarks } = make.make(&old).map_err(words)?;
        let after = encode(&text, form).map_err(|c| words(lacking(c, form.coding)))?;
        if after.len() as u64 > FILE_BYTES {
            let most = FILE_BYTES / (1024 * 1024);
            return Err(words(format!(
                "it would have {} bytes, and the largest file has {most} MiB",
                after.len()
            )));
        }
        remarks.extend(kept(&old, form));
        let before_text = match &old {
            Old::Text(old) => flat(old.text.as_str(), old.form),
            Old::Missing | Old::Binary(_) => String::new(),
        };
        let diff = diff(&path.to_string_lossy(), &before_text, &flat(&text, form));
        let before =
            found.map(|(content, meta)| Before { mode: meta.permissions().mode() & 0o7777, content });
        let after_hash = hash(&after);
        Ok(Planned { path: located.path, before, before_hash, after, after_hash, diff, remarks })
    }
}

fn lacking(c: char, coding: Coding) -> String {
    let name = match coding {
        Coding::Other(encoding) => encoding.name(),
        _ => "its encoding",
    };
    format!(
        "the file is written in {name}, which has no `{c}`; use other characters or convert the file first"
    )
}

/// What of the old file was kept, where the model could not see it.
fn kept(old: &Old, form: Form) -> Option<String> {
    let Old::Text(old) = old else { return None };
    if old.form != form {
        return None;
    }
    let remarks = form.remarks();
    (!remarks.is_empty()).then(|| format!("kept as it was: {}", remarks.join(", ")))
}

/// For a diff: lines end in LF, and what is no character is shown as such.
fn flat(text: &str, form: Form) -> String {
    let text = shown(text, form.coding);
    match form.ending {
        Ending::Cr => text.replace('\r', "\n"),
        Ending::Lf | Ending::CrLf => text.replace("\r\n", "\n"),
    }
}

fn tell(path: &Path, diff: &Diff, created: bool, remarks: &[String]) -> ToolOutput {
    let Diff { text, added, removed, line } = diff;
    let path = show(path);
    if created {
        let remarks = (!remarks.is_empty()).then(|| remarks.join("\n"));
        let s = if *added == 1 { "" } else { "s" };
        return output(format!("created {path}: {added} line{s}"), remarks);
    }
    let summary = match line {
        0 => format!("changed {path}: only in how its lines end or its characters are written"),
        line => format!("changed {path} at line {line}: {added} in, {removed} out"),
    };
    let mut content = text.clone();
    for remark in remarks {
        content.push_str(&format!("[{remark}]\n"));
    }
    output(summary, Some(content))
}
