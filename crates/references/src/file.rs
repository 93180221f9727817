//! Files: what `@path` gives, read inside the scope as Read does it, without waiting for anything.
//!
//! Text is given up to a bound and cut between characters, a directory as its names, an image as an image. What is none of
//! these is refused. Elsewhere: what a reference can mean (`path`), what a file holds (`tools::look_at`).
//! Invariant: a cut never breaks a character (`a_cut_never_breaks_a_character`).

use std::io::Read;
use std::path::{Path, PathBuf};

use minke_files::{FILE_BYTES, Files, Opened};
use minke_policy::Level;
use minke_record::{SystemItem, SystemKind};
use minke_tools::{Sight, begins_as_image, look_at};
use rustix::fs::FileType;
use serde_json::json;

use crate::path::{Meant, readings, shown};

/// How far into a file its lines are counted.
const COUNTED_BYTES: u64 = 8 * 1024 * 1024;
/// Names of a directory that are shown, and that are looked at.
const NAMES: usize = 1_000;
const NAMES_LOOKED_AT: usize = 20_000;

/// Something that was read.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) item: SystemItem,
    pub(crate) image: Option<minke_tools::Picture>,
}

/// Where to read, and how much.
pub(crate) struct Reading<'a> {
    pub(crate) files: &'a Files,
    pub(crate) cwd: &'a Path,
    pub(crate) max_bytes: usize,
}

impl Reading<'_> {
    /// What a reference means, and what is there.
    pub(crate) fn attach(&self, text: &str) -> Result<Attached, String> {
        let mut refused = None;
        for meant in readings(text)? {
            let path = from(self.cwd, &meant.path);
            match self.files.locate(&path, Level::Read) {
                Ok(found) if found.exists => return self.read(text, &path, &meant, found.is_dir),
                Ok(_) => {}
                Err(e) => refused = refused.or(Some(e)),
            }
        }
        Err(match refused {
            Some(e) => format!("`@{}` cannot be read: {e}", shown(text)),
            None => format!("there is no file `{}` in {}", shown(text), self.cwd.display()),
        })
    }

    fn read(&self, text: &str, path: &Path, meant: &Meant, is_dir: bool) -> Result<Attached, String> {
        let failed = |why: String| format!("`@{}` cannot be read: {why}", shown(text));
        if is_dir {
            if meant.lines.is_some() {
                return Err(failed("it is a directory, which has no lines".to_owned()));
            }
            return self.directory(text, path).map_err(failed);
        }
        let opened = self.files.open(path).map_err(|e| failed(e.to_string()))?;
        self.file(text, opened, meant.lines).map_err(failed)
    }

    fn file(&self, text: &str, opened: Opened, lines: Option<(u64, u64)>) -> Result<Attached, String> {
        let Opened { mut file, path, meta } = opened;
        let most = if lines.is_some() { COUNTED_BYTES } else { self.max_bytes as u64 };
        let mut bytes = Vec::new();
        let mut take = |bytes: &mut Vec<u8>, most: u64| {
            Read::by_ref(&mut file).take(most).read_to_end(bytes).map_err(|e| e.to_string())
        };
        take(&mut bytes, most + 1)?;
        if begins_as_image(&bytes) {
            let rest = (FILE_BYTES + 1).saturating_sub(bytes.len() as u64);
            take(&mut bytes, rest)?;
            if bytes.len() as u64 > FILE_BYTES {
                return Err(format!("it is an image of more than {FILE_BYTES} bytes"));
            }
        } else if bytes.len() as u64 > most {
            bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
            trim(&mut bytes);
        }
        let length = meta.len().max(bytes.len() as u64);
        let place = self.files.shown(&path).to_string_lossy().into_owned();
        match look_at(bytes)? {
            Sight::Text { text: words, remarks } => {
                let whole = Words { name: text, place, length, remarks, words };
                match lines {
                    Some(lines) => whole.lines(lines, self.max_bytes),
                    None => Ok(whole.all(self.max_bytes)),
                }
            }
            Sight::Image { .. } if lines.is_some() => Err("it is an image, which has no lines".to_owned()),
            Sight::Image { image, what } => {
                let body = format!("[@{text}: {what}; it is shown in the message above]");
                let cause = json!({ "path": place, "bytes": length });
                Ok(Attached { item: item(cause, body), image: Some(image) })
            }
            Sight::Binary(kind) => Err(format!(
                "it is not text but {kind}, {length} bytes; have the agent look at it with a command"
            )),
        }
    }

    /// The names directly in a directory, as far as they may be read: sorted, directories with a slash.
    fn directory(&self, text: &str, path: &Path) -> Result<Attached, String> {
        let opened = self.files.open_dir(path).map_err(|e| e.to_string())?;
        let listed = rustix::fs::Dir::read_from(&opened.dir).map_err(|e| e.to_string())?;
        let (mut names, mut more) = (Vec::new(), false);
        for (number, found) in listed.enumerate() {
            let found = found.map_err(|e| e.to_string())?;
            if number >= NAMES_LOOKED_AT {
                more = true;
                break;
            }
            let name = found.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." || !self.files.may_read(&opened.path.join(&name)) {
                continue;
            }
            let slash = if found.file_type() == FileType::Directory { "/" } else { "" };
            names.push(format!("{}{slash}", minke_trust::shown(name.as_bytes(), NAMES)));
        }
        names.sort();
        let all = names.len();
        let (mut lines, mut shown_names) = (String::new(), 0);
        for name in names.iter().take(NAMES) {
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
        let cause =
            json!({ "path": self.files.shown(&opened.path).to_string_lossy(), "entries": all, "cut": cut });
        Ok(Attached { item: item(cause, body), image: None })
    }
}

/// A path as it is meant in a directory: steps up at its beginning are taken at once, since nobody can put a link there.
fn from(cwd: &Path, path: &str) -> PathBuf {
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

/// A file's text, as far as it was read.
struct Words<'a> {
    name: &'a str,
    place: String,
    length: u64,
    remarks: Vec<String>,
    words: String,
}

impl Words<'_> {
    fn remarks(&self) -> String {
        self.remarks.iter().map(|remark| format!(", {remark}")).collect()
    }

    fn all(mut self, max_bytes: usize) -> Attached {
        let read = self.words.len() as u64;
        cut(&mut self.words, max_bytes);
        let whole = self.words.len() as u64 == read && self.length <= max_bytes as u64;
        let mut body =
            format!("[@{}: file, {} bytes{}]\n{}", self.name, self.length, self.remarks(), self.words);
        end_line(&mut body);
        if whole {
            body.push_str(&format!("[end of @{}]\n", self.name));
        } else {
            let next = self.words.matches('\n').count() + 1;
            body.push_str(&format!(
                "[cut: {} of {} bytes are shown; go on with Read from line {next}]\n",
                self.words.len(),
                self.length
            ));
        }
        let cause = json!({ "path": self.place, "bytes": self.length, "cut": !whole });
        Attached { item: item(cause, body), image: None }
    }

    fn lines(self, (first, last): (u64, u64), max_bytes: usize) -> Result<Attached, String> {
        let all = self.words.lines().count() as u64;
        let far = self.length > COUNTED_BYTES;
        let total = if far { format!("at least {all}") } else { all.to_string() };
        if first > all {
            return Err(format!("it has {total} lines, so there is no line {first}"));
        }
        let skip = usize::try_from(first - 1).unwrap_or(usize::MAX);
        let take = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
        let mut some = String::new();
        for line in self.words.lines().skip(skip).take(take) {
            some.push_str(line);
            some.push('\n');
            if some.len() > max_bytes {
                break;
            }
        }
        let read = some.len();
        cut(&mut some, max_bytes);
        let is_cut = some.len() < read || (far && last > all);
        let last = last.min(all);
        let remarks = self.remarks();
        let mut body = format!("[@{}: lines {first} to {last} of {total}{remarks}]\n{some}", self.name);
        end_line(&mut body);
        body.push_str(&if is_cut {
            format!("[cut: {} bytes are shown; go on with Read]\n", some.len())
        } else {
            format!("[end of @{}]\n", self.name)
        });
        let cause =
            json!({ "path": self.place, "bytes": self.length, "lines": [first, last], "cut": is_cut });
        Ok(Attached { item: item(cause, body), image: None })
    }
}

fn item(cause: serde_json::Value, body: String) -> SystemItem {
    SystemItem { kind: SystemKind::FileAttachment, cause: Some(cause), body: body.into() }
}

/// A line that is not ended must not run into what is said of the file.
pub(crate) fn end_line(body: &mut String) {
    if !body.ends_with('\n') {
        body.push('\n');
    }
}

/// Cuts a text between characters.
pub(crate) fn cut(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Takes away a character of UTF-8 that was cut in two at the end.
fn trim(bytes: &mut Vec<u8>) {
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
            assert_eq!(from(Path::new("/w/x"), path), Path::new(meant), "{path}");
        }
    }

    #[test]
    fn a_cut_never_breaks_a_character() {
        let text = "aé漢🐋".repeat(5);
        for most in 0..text.len() + 2 {
            let mut short = text.clone();
            cut(&mut short, most);
            assert!(short.len() <= most && text.starts_with(&short));
            let mut bytes = text.as_bytes().get(..most.min(text.len())).unwrap().to_vec();
            trim(&mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), short);
        }
        // What never was UTF-8 is left to whoever decodes it.
        let mut bytes = vec![b'a', 0xff, b'b', 0xe6];
        trim(&mut bytes);
        assert_eq!(bytes.len(), 4);
    }
}
