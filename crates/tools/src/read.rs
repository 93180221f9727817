//! Read: numbered lines of a text file, or an image.
//!
//! Class pure. Whatever stands at the path, the call ends soon and its result is bounded: devices and FIFOs are refused
//! without waiting, a file that is too large to be edited is looked at up to `SCAN_BYTES`.
//! Invariant: the content is at most `CONTENT_BYTES` and says what it left out (`a_long_file_is_cut_and_says_so`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _};
use std::path::PathBuf;

use minke_files::{FILE_BYTES, FileError, hash};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute, off_the_loop, output, parse, show};
use crate::edit::change::{Desk, refused};
use crate::image;
use crate::text::{Ending, Text, binary, shown};

/// Lines of one call unless it says otherwise.
const LINES: u64 = 2_000;
/// The most that one call puts into the context, the closing remark included.
const CONTENT_BYTES: usize = 64 * 1024;
/// Room for the remark about what was left out.
const REMARK_BYTES: usize = 256;
/// How far into a file a call looks: a line further on is found by other means than reading to it.
const SCAN_BYTES: u64 = 256 * 1024 * 1024;

pub(crate) struct Read(pub(crate) Desk);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    file_path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
}

/// A read that can be done.
struct Checked {
    path: PathBuf,
    /// The first line, from 1.
    offset: u64,
    limit: u64,
}

impl Checked {
    fn parse(arguments: &str, place: &Place) -> Result<Checked, ToolError> {
        let Arguments { file_path, offset, limit } = parse("Read", arguments)?;
        let path = absolute("file_path", &file_path, &place.cwd)?;
        let (offset, limit) = (offset.unwrap_or(1), limit.unwrap_or(LINES));
        if offset == 0 {
            return Err(ToolError::Invalid("`offset` is 0: lines are counted from 1".to_owned()));
        }
        if limit == 0 {
            return Err(ToolError::Invalid("`limit` is 0: ask for at least one line".to_owned()));
        }
        Ok(Checked { path, offset, limit })
    }
}

impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Read".into(),
            description: "Reads a text file and gives its lines with their numbers, or shows an image (PNG, JPEG, GIF, \
                          WebP). Long files come in parts: go on with offset."
                .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "file_path": {
                        "type": "string",
                        "description": "The file: absolute, or relative to the working directory.",
                    },
                    "offset": { "type": "integer", "minimum": 1, "description": "The first line. Default: 1." },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "description": format!("How many lines. Default: {LINES}."),
                    },
                },
                "required": ["file_path"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Pure
    }

    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError> {
        let path = Checked::parse(arguments, place)?.path;
        Ok(Action { reads: vec![path.to_string_lossy().into_owned()], ..Action::default() })
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        match Checked::parse(arguments, &call.place) {
            Ok(read) => {
                let desk = self.0.clone();
                off_the_loop(move || read_file(&desk, &read))
            }
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn read_file(desk: &Desk, read: &Checked) -> Result<ToolOutput, ToolError> {
    let opened = desk.files.open(&read.path).map_err(|e| refused("read", &e))?;
    let path = show(&read.path);
    let failed = |e: io::Error| ToolError::Failed(format!("cannot read {path}: {e}"));
    let length = opened.meta.len();
    if length > FILE_BYTES {
        return read_large(opened.file, read, length).map_err(failed)?;
    }
    let mut content = Vec::new();
    opened.file.take(FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES {
        let grown = FileError::Changed { path: read.path.clone() };
        return Err(refused("read", &grown));
    }
    let seen = hash(&content);
    let (result, is_text) = match (image::format(&content), binary(&content)) {
        (Some(format), Some(_)) => (show_image(&path, content, format), false),
        (_, Some(kind)) => (Err(not_text(&path, kind, content.len() as u64)), false),
        (_, None) => (read_text(read, &content), true),
    };
    // Of what is no text, what it is is all that there is to see: whoever was told may write something in its place.
    if result.is_ok() || !is_text {
        desk.known.remember(&opened.path, &seen);
    }
    result
}

fn not_text(path: &str, kind: &str, length: u64) -> ToolError {
    ToolError::Failed(format!(
        "cannot read {path}: it is not text but {kind}, {length} bytes; look at it with a command"
    ))
}

fn show_image(path: &str, content: Vec<u8>, format: ::image::ImageFormat) -> Result<ToolOutput, ToolError> {
    let image::Shown { image, what } = image::show(content, format)
        .map_err(|why| ToolError::Failed(format!("cannot read {path}: {why}")))?;
    Ok(ToolOutput { images: vec![image], ..output(format!("{path}: {what}"), None) })
}

fn read_text(read: &Checked, content: &[u8]) -> Result<ToolOutput, ToolError> {
    let Text { text, form, .. } = Text::decode(content);
    let mut remarks = form.remarks();
    let pairs = memchr::memmem::find_iter(text.as_bytes(), "\r\n").count();
    let feeds = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    if pairs > 0 && pairs < feeds {
        remarks.push(format!("{pairs} of {feeds} lines end in CRLF"));
    }
    let text = shown(&text, form.coding);
    let text = if form.ending == Ending::Cr { text.replace('\r', "\n").into() } else { text };
    let page = Page::read(Cursor::new(text.as_bytes()), read.offset, read.limit);
    let page = page.map_err(|e| ToolError::Internal(format!("memory cannot be read: {e}")))?;
    page.result(read, content.len() as u64, &remarks)
}

/// What is too large to be held: only what is shown is kept, and nothing is remembered, because it cannot be edited.
fn read_large(file: File, read: &Checked, length: u64) -> io::Result<Result<ToolOutput, ToolError>> {
    let mut file = BufReader::new(file);
    if let Some(kind) = binary(file.fill_buf()?) {
        return Ok(Err(not_text(&show(&read.path), kind, length)));
    }
    let page = Page::read(file, read.offset, read.limit)?;
    let lossy =
        page.lossy.then(|| "not UTF-8, bytes that are no characters are shown as \u{fffd}".to_owned());
    Ok(page.result(read, length, &lossy.into_iter().collect::<Vec<_>>()))
}

/// Some lines of a file, and what is known of the rest.
#[derive(Default)]
struct Page {
    text: String,
    shown: u64,
    /// Lines seen; all of them unless `far` is set.
    lines: u64,
    /// Bytes of the wanted lines and after them that are not shown.
    left_out: u64,
    /// The content's limit was reached before the wanted lines ended.
    full: bool,
    /// The last shown line is not whole.
    cut_line: bool,
    /// The file goes on beyond what was looked at.
    far: bool,
    lossy: bool,
}

impl Page {
    fn read(file: impl BufRead, offset: u64, limit: u64) -> io::Result<Page> {
        let mut page = Page::default();
        let mut file = file.take(SCAN_BYTES);
        let end = offset.saturating_add(limit);
        loop {
            let number = page.lines + 1;
            let wanted = number >= offset && number < end && !page.full;
            let room = if wanted { CONTENT_BYTES - REMARK_BYTES - page.text.len() } else { 0 };
            let Some(line) = Line::read(&mut file, room)? else { break };
            page.lines = number;
            if wanted {
                page.push(number, &line);
            } else if number >= offset {
                page.left_out += line.bytes;
            }
        }
        page.far = file.limit() == 0;
        Ok(page)
    }

    fn push(&mut self, number: u64, line: &Line) {
        use std::fmt::Write as _;
        let room = CONTENT_BYTES - REMARK_BYTES - self.text.len();
        let mut text = String::new();
        write!(text, "{number:>6}\t").expect("a string takes everything");
        let kept = line.kept.strip_suffix(b"\r").unwrap_or(&line.kept);
        let words = String::from_utf8_lossy(kept);
        self.lossy |= matches!(words, std::borrow::Cow::Owned(_)) && !line.cut();
        text.push_str(&words);
        text.push('\n');
        if text.len() <= room && !line.cut() {
            self.text.push_str(&text);
            self.shown += 1;
            return;
        }
        self.full = true;
        // Part of a line is shown only if it would be the only one; else the next call can have it whole.
        if self.shown == 0 {
            let mut end = room.saturating_sub(1).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            self.left_out += line.bytes.saturating_sub(text.len() as u64);
            self.text = text;
            self.text.push('\n');
            self.shown = 1;
            self.cut_line = true;
        } else {
            self.left_out += line.bytes;
        }
    }

    fn result(self, read: &Checked, length: u64, remarks: &[String]) -> Result<ToolOutput, ToolError> {
        let path = show(&read.path);
        let total = if self.far { format!("at least {}", self.lines) } else { self.lines.to_string() };
        if self.lines == 0 {
            return Ok(output(format!("{path} is empty"), None));
        }
        if self.shown == 0 {
            return Err(ToolError::Failed(format!(
                "cannot read {path} from line {}: it has {total} lines; use a smaller `offset`",
                read.offset
            )));
        }
        let (first, last) = (read.offset, read.offset + self.shown - 1);
        let mut content = self.text;
        if self.cut_line || self.left_out > 0 || self.far {
            let beyond = if self.far { length.saturating_sub(SCAN_BYTES) } else { 0 };
            let left_out = self.left_out + beyond;
            let cut = if self.cut_line { format!("line {last} is cut; ") } else { String::new() };
            content.push_str(&format!(
                "[{cut}lines {first} to {last} of {total} are shown, {left_out} bytes after them are left out; \
                 go on with offset {}]\n",
                last + 1
            ));
        }
        let remarks: String = remarks.iter().map(|remark| format!("; {remark}")).collect();
        Ok(output(format!("{path}: lines {first} to {last} of {total}{remarks}"), Some(content)))
    }
}

/// One line, as much of it as there is room for.
struct Line {
    kept: Vec<u8>,
    /// Its whole length, the line break included.
    bytes: u64,
    text_bytes: u64,
}

impl Line {
    fn cut(&self) -> bool {
        (self.kept.len() as u64) < self.text_bytes
    }

    /// `None` at the end of the file. A line of any length costs no more memory than `room`.
    fn read(file: &mut impl BufRead, room: usize) -> io::Result<Option<Line>> {
        let mut line = Line { kept: Vec::new(), bytes: 0, text_bytes: 0 };
        loop {
            let buffer = match file.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            if buffer.is_empty() {
                return Ok((line.bytes > 0).then_some(line));
            }
            let found = memchr::memchr(b'\n', buffer);
            let text = &buffer[..found.unwrap_or(buffer.len())];
            let fits = text.len().min(room - line.kept.len().min(room));
            line.kept.extend_from_slice(&text[..fits]);
            let used = text.len() + usize::from(found.is_some());
            line.text_bytes += text.len() as u64;
            line.bytes += used as u64;
            file.consume(used);
            if found.is_some() {
                return Ok(Some(line));
            }
        }
    }
}
