//! Read: numbered lines of a text file.
//!
//! Class pure. Whatever stands at the path, the call ends soon and its result is bounded: devices and FIFOs are refused
//! without waiting, long files are looked at up to `SCAN_BYTES`.
//! Invariant: the content is at most `CONTENT_BYTES` and says what it left out (`a_long_file_is_cut_and_says_so`).

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute, off_the_loop, output, parse, show};

/// Lines of one call unless it says otherwise.
const LINES: u64 = 2_000;
/// The most that one call puts into the context, the closing remark included.
const CONTENT_BYTES: usize = 64 * 1024;
/// Room for the remark about what was left out.
const REMARK_BYTES: usize = 256;
/// How far into a file a call looks: a line further on is found by other means than reading to it.
const SCAN_BYTES: u64 = 256 * 1024 * 1024;
/// Where a file shows whether it is text.
const HEAD_BYTES: usize = 8 * 1024;

pub(crate) struct Read;

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
            description: "Reads a text file and gives its lines with their numbers.".into(),
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
            Ok(read) => off_the_loop(move || read_file(&read)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn read_file(read: &Checked) -> Result<ToolOutput, ToolError> {
    let path = &read.path;
    let failed = |e: io::Error| ToolError::Failed(explain(path, &e));
    // Before opening, because opening some devices does something.
    refuse_special(path, fs::metadata(path).map_err(failed)?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).expect("open flags fit the kernel's own type");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    // And after it, because another file may have taken the place meanwhile.
    let found = file.metadata().map_err(failed)?;
    refuse_special(path, found.file_type())?;
    let page = Page::read(BufReader::new(file), read.offset, read.limit).map_err(failed)?;
    page.result(read, found.len())
}

fn refuse_special(path: &Path, kind: FileType) -> Result<(), ToolError> {
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "is a directory; give a file in it"
    } else if kind.is_fifo() {
        "is a FIFO, which would make the call wait; give a regular file"
    } else if kind.is_char_device() || kind.is_block_device() {
        "is a device; give a regular file"
    } else {
        "is a socket or something else that has no lines; give a regular file"
    };
    Err(ToolError::Failed(format!("cannot read {}: it {what}", show(path))))
}

/// Some lines of a file, and what is known of the rest.
#[derive(Default)]
struct Page {
    text: String,
    /// The kind of binary content that was found instead of text.
    binary: Option<&'static str>,
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
    fn read(mut file: BufReader<File>, offset: u64, limit: u64) -> io::Result<Page> {
        let mut page = Page::default();
        if let Some(kind) = binary(head(&mut file)?) {
            page.binary = Some(kind);
            return Ok(page);
        }
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
        let words = String::from_utf8_lossy(&line.kept);
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

    fn result(self, read: &Checked, length: u64) -> Result<ToolOutput, ToolError> {
        let path = show(&read.path);
        if let Some(kind) = self.binary {
            return Err(ToolError::Failed(format!(
                "cannot read {path}: it is not text but {kind}, {length} bytes"
            )));
        }
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
        let lossy =
            if self.lossy { "; not UTF-8, bytes that are no characters are shown as \u{fffd}" } else { "" };
        Ok(output(format!("{path}: lines {first} to {last} of {total}{lossy}"), Some(content)))
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

/// The beginning of the file, still to be read.
fn head(file: &mut BufReader<File>) -> io::Result<&[u8]> {
    let buffer = file.fill_buf()?;
    Ok(&buffer[..buffer.len().min(HEAD_BYTES)])
}

/// What kind of binary content this is, if it is not text.
fn binary(head: &[u8]) -> Option<&'static str> {
    const KINDS: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"\x7fELF", "an ELF program"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"SQLite format 3\0", "an SQLite database"),
    ];
    if let Some((_, kind)) = KINDS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(kind);
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some("a WebP image");
    }
    memchr::memchr(0, head).is_some().then_some("binary data of an unknown kind")
}

fn explain(path: &Path, e: &io::Error) -> String {
    let path = show(path);
    match e.kind() {
        io::ErrorKind::NotFound => format!("cannot read {path}: there is no such file; check the path"),
        io::ErrorKind::PermissionDenied => format!("cannot read {path}: its permissions forbid it"),
        io::ErrorKind::NotADirectory => {
            format!("cannot read {path}: something in its path is not a directory")
        }
        _ => format!("cannot read {path}: {e}"),
    }
}
