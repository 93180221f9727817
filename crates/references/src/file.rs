//! Reads the target of `@path` inside the scope, as the Read tool does, without blocking.
//!
//! A text is shortened to a limit at a character boundary, a directory is listed, an image is attached. Other files are
//! refused. Elsewhere: parsing a reference (`path`), the type of a file (`tools::look_at`).
//! Invariant: a cut never splits a character (`a_cut_never_breaks_a_character`).

use std::io::Read;
use std::path::{Path, PathBuf};

use minke_files::{MAX_FILE_BYTES, OpenedFile, ScopedFiles};
use minke_policy::AccessLevel;
use minke_record::{SystemItem, SystemKind};
use minke_tools::{FileContent, classify_content, starts_as_image};
use rustix::fs::FileType;
use serde_json::json;

use crate::path::{PathReference, parse_path_reference, printable_path};

/// The number of bytes in which lines are counted.
const MAX_COUNTED_BYTES: u64 = 8 * 1024 * 1024;
/// The most names of a directory that are shown and that are read.
const MAX_SHOWN_NAMES: usize = 1_000;
const MAX_READ_NAMES: usize = 20_000;

/// The content of a reference.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) item: SystemItem,
    pub(crate) image: Option<minke_tools::Picture>,
}

/// Reads references.
pub(crate) struct ReferenceReader<'a> {
    pub(crate) files: &'a ScopedFiles,
    pub(crate) cwd: &'a Path,
    pub(crate) max_bytes: usize,
}

impl ReferenceReader<'_> {
    /// Reads the target of a reference.
    pub(crate) fn read_reference(&self, text: &str) -> Result<Attachment, String> {
        let mut refused = None;
        for meant in parse_path_reference(text)? {
            let path = resolve_from(self.cwd, &meant.path);
            match self.files.locate_path(&path, AccessLevel::Read) {
                Ok(found) if found.exists => return self.read_path(text, &path, &meant, found.is_dir),
                Ok(_) => {}
                Err(e) => refused = refused.or(Some(e)),
            }
        }
        Err(match refused {
            Some(e) => format!("could not read `@{}`: {e}", printable_path(text)),
            None => format!("there is no file `{}` in {}", printable_path(text), self.cwd.display()),
        })
    }

    fn read_path(
        &self,
        text: &str,
        path: &Path,
        meant: &PathReference,
        is_dir: bool,
    ) -> Result<Attachment, String> {
        let failed = |why: String| format!("could not read `@{}`: {why}", printable_path(text));
        if is_dir {
            if meant.lines.is_some() {
                return Err(failed("it is a directory, which has no lines".to_owned()));
            }
            return self.read_directory(text, path).map_err(failed);
        }
        let opened = self.files.open_file(path).map_err(|e| failed(e.to_string()))?;
        self.read_file(text, opened, meant.lines).map_err(failed)
    }

    fn read_file(
        &self,
        text: &str,
        opened: OpenedFile,
        lines: Option<(u64, u64)>,
    ) -> Result<Attachment, String> {
        let OpenedFile { mut file, path, meta } = opened;
        let most = if lines.is_some() { MAX_COUNTED_BYTES } else { self.max_bytes as u64 };
        let mut bytes = Vec::new();
        let mut take = |bytes: &mut Vec<u8>, most: u64| {
            Read::by_ref(&mut file).take(most).read_to_end(bytes).map_err(|e| e.to_string())
        };
        take(&mut bytes, most + 1)?;
        if starts_as_image(&bytes) {
            let rest = (MAX_FILE_BYTES + 1).saturating_sub(bytes.len() as u64);
            take(&mut bytes, rest)?;
            if bytes.len() as u64 > MAX_FILE_BYTES {
                return Err(format!("it is an image of more than {MAX_FILE_BYTES} bytes"));
            }
        } else if bytes.len() as u64 > most {
            bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
            trim_partial_char(&mut bytes);
        }
        let length = meta.len().max(bytes.len() as u64);
        let place = self.files.shown_path(&path).to_string_lossy().into_owned();
        match classify_content(bytes)? {
            FileContent::Text { text: words, remarks } => {
                let whole = FileText { name: text, path: place, length, remarks, text: words };
                match lines {
                    Some((first, last)) => whole.attach_lines(first, last, self.max_bytes),
                    None => Ok(whole.attach_all(self.max_bytes)),
                }
            }
            FileContent::Image { .. } if lines.is_some() => {
                Err("it is an image, which has no lines".to_owned())
            }
            FileContent::Image { image, description } => {
                let body = format!("[@{text}: {description}; it is shown in the message above]");
                let cause = json!({ "path": place, "bytes": length });
                Ok(Attachment { item: file_item(cause, body), image: Some(image) })
            }
            FileContent::Binary(kind) => Err(format!(
                "it is not text but {kind}, {length} bytes; ask the agent to look at it with a command"
            )),
        }
    }

    /// Lists the readable names of a directory: sorted, directories with a slash.
    fn read_directory(&self, text: &str, path: &Path) -> Result<Attachment, String> {
        let opened = self.files.open_dir(path).map_err(|e| e.to_string())?;
        let listed = rustix::fs::Dir::read_from(&opened.dir).map_err(|e| e.to_string())?;
        let (mut names, mut more) = (Vec::new(), false);
        for (number, found) in listed.enumerate() {
            let found = found.map_err(|e| e.to_string())?;
            if number >= MAX_READ_NAMES {
                more = true;
                break;
            }
            let name = found.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." || !self.files.may_read(&opened.path.join(&name)) {
                continue;
            }
            let slash = if found.file_type() == FileType::Directory { "/" } else { "" };
            names.push(format!(
                "{}{slash}",
                minke_config::trust::sanitize_bytes(name.as_bytes(), MAX_SHOWN_NAMES)
            ));
        }
        names.sort();
        let all = names.len();
        let (mut lines, mut shown_names) = (String::new(), 0);
        for name in names.iter().take(MAX_SHOWN_NAMES) {
            if lines.len() + name.len() >= self.max_bytes {
                break;
            }
            lines.push_str(name);
            lines.push('\n');
            shown_names += 1;
        }
        let count = if more { format!("more than {all}") } else { all.to_string() };
        let cut = more || shown_names < all;
        let mut body = format!("[@{text}: directory with {count} entries]\n{lines}");
        if cut {
            body.push_str(&format!(
                "[cut: {shown_names} of {count} names are shown; Glob finds the others]\n"
            ));
        }
        let cause = json!({ "path": self.files.shown_path(&opened.path).to_string_lossy(), "entries": all, "cut": cut });
        Ok(Attachment { item: file_item(cause, body), image: None })
    }
}

/// Joins a path. Leading `..` is resolved by name, because no link can be in between.
fn resolve_from(cwd: &Path, path: &str) -> PathBuf {
    let (mut dir, mut path) = (cwd, Path::new(path));
    loop {
        if let Ok(rest) = path.strip_prefix("..") {
            (dir, path) = (dir.parent().unwrap_or(dir), rest);
        } else if let Ok(rest) = path.strip_prefix(".") {
            path = rest;
        } else {
            return if path.as_os_str().is_empty() { dir.to_owned() } else { dir.join(path) };
        }
    }
}

/// The text of a file, as far as it was read.
struct FileText<'a> {
    name: &'a str,
    path: String,
    length: u64,
    remarks: Vec<String>,
    text: String,
}

impl FileText<'_> {
    fn remarks_text(&self) -> String {
        self.remarks.iter().map(|remark| format!(", {remark}")).collect()
    }

    fn attach_all(mut self, max_bytes: usize) -> Attachment {
        let read = self.text.len() as u64;
        truncate_text(&mut self.text, max_bytes);
        let whole = self.text.len() as u64 == read && self.length <= max_bytes as u64;
        let mut body =
            format!("[@{}: file, {} bytes{}]\n{}", self.name, self.length, self.remarks_text(), self.text);
        finish_line(&mut body);
        if whole {
            body.push_str(&format!("[end of @{}]\n", self.name));
        } else {
            let next = self.text.matches('\n').count() + 1;
            body.push_str(&format!(
                "[cut: {} of {} bytes are shown; continue with Read from line {next}]\n",
                self.text.len(),
                self.length
            ));
        }
        let cause = json!({ "path": self.path, "bytes": self.length, "cut": !whole });
        Attachment { item: file_item(cause, body), image: None }
    }

    fn attach_lines(self, first: u64, last: u64, max_bytes: usize) -> Result<Attachment, String> {
        let all = self.text.lines().count() as u64;
        let far = self.length > MAX_COUNTED_BYTES;
        let total = if far { format!("at least {all}") } else { all.to_string() };
        if first > all {
            return Err(format!("it has {total} lines, so there is no line {first}"));
        }
        let skip = usize::try_from(first - 1).unwrap_or(usize::MAX);
        let take = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
        let mut some = String::new();
        for line in self.text.lines().skip(skip).take(take) {
            some.push_str(line);
            some.push('\n');
            if some.len() > max_bytes {
                break;
            }
        }
        let read = some.len();
        truncate_text(&mut some, max_bytes);
        let is_cut = some.len() < read || (far && last > all);
        let last = last.min(all);
        let remarks = self.remarks_text();
        let mut body = format!("[@{}: lines {first} to {last} of {total}{remarks}]\n{some}", self.name);
        finish_line(&mut body);
        body.push_str(&if is_cut {
            format!("[cut: {} bytes are shown; continue with Read]\n", some.len())
        } else {
            format!("[end of @{}]\n", self.name)
        });
        let cause = json!({ "path": self.path, "bytes": self.length, "lines": [first, last], "cut": is_cut });
        Ok(Attachment { item: file_item(cause, body), image: None })
    }
}

fn file_item(cause: serde_json::Value, body: String) -> SystemItem {
    SystemItem { kind: SystemKind::FileAttachment, cause: Some(cause), body: body.into() }
}

/// Ends an incomplete line, so that the following note is on its own line.
pub(crate) fn finish_line(body: &mut String) {
    if !body.ends_with('\n') {
        body.push('\n');
    }
}

/// Shortens a text at a character boundary.
pub(crate) fn truncate_text(text: &mut String, most: usize) {
    text.truncate(minke_text::cut_to_bytes(text, most).len());
}

/// Removes an incomplete UTF-8 character at the end.
fn trim_partial_char(bytes: &mut Vec<u8>) {
    if let Err(e) = std::str::from_utf8(bytes)
        && e.error_len().is_none()
    {
        bytes.truncate(e.valid_up_to());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_up_is_taken_from_the_working_directory() {
        for (path, meant) in [
            ("a", "/w/x/a"),
            ("./a", "/w/x/a"),
            ("../a", "/w/a"),
            ("./../../a", "/a"),
            ("..", "/w"),
            ("../../../../a", "/a"),
            (".", "/w/x"),
            ("/a", "/a"),
            ("a/../b", "/w/x/a/../b"),
        ] {
            assert_eq!(resolve_from(Path::new("/w/x"), path), Path::new(meant), "{path}");
        }
    }

    #[test]
    fn a_cut_never_breaks_a_character() {
        let text = "aé漢🐋".repeat(5);
        for most in 0..text.len() + 2 {
            let mut short = text.clone();
            truncate_text(&mut short, most);
            assert!(short.len() <= most && text.starts_with(&short));
            let mut bytes = text.as_bytes().get(..most.min(text.len())).unwrap().to_vec();
            trim_partial_char(&mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), short);
        }
        // Bytes that are not UTF-8 are left to the decoder.
        let mut bytes = vec![b'a', 0xff, b'b', 0xe6];
        trim_partial_char(&mut bytes);
        assert_eq!(bytes.len(), 4);
    }
}
