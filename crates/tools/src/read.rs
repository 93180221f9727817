//! Read: numbered lines of a text file, or an image.
//!
//! Class pure. The call ends quickly with a result of limited size for any kind of path: devices and FIFOs
//! are rejected without waiting, and a file that is too large to edit is scanned up to `MAX_SCAN_BYTES`.
//! Invariant: the content has at most `MAX_CONTENT_BYTES` and a note about omitted lines
//! (`a_long_file_is_cut_and_says_so`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _};
use std::path::PathBuf;

use minke_files::{FileError, MAX_FILE_BYTES, content_hash};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute_path, display_path, parse_arguments, run_blocking, tool_output};
use crate::edit::file_change::{FileEditor, file_error};
use crate::image;
use crate::text::{FileText, LineEnding, binary_kind, displayable_text};

/// The default number of lines.
const DEFAULT_LINES: u64 = 2_000;
/// The maximum content of one result, including the closing remark.
const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// Reserved for the remark about omitted lines.
const RESERVED_REMARK_BYTES: usize = 256;
/// The maximum part of a file that one call scans.
const MAX_SCAN_BYTES: u64 = 256 * 1024 * 1024;

pub(crate) struct ReadTool(pub(crate) FileEditor);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    file_path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
}

/// The checked arguments of a call.
struct ReadRequest {
    path: PathBuf,
    /// The first line, from 1.
    offset: u64,
    limit: u64,
}

impl ReadRequest {
    fn from_arguments(arguments: &str, place: &ToolContext) -> Result<ReadRequest, ToolError> {
        let ReadArguments { file_path, offset, limit } = parse_arguments("Read", arguments)?;
        let path = absolute_path("file_path", &file_path, &place.cwd)?;
        let (offset, limit) = (offset.unwrap_or(1), limit.unwrap_or(DEFAULT_LINES));
        if offset == 0 {
            return Err(ToolError::InvalidArguments("`offset` is 0: lines are numbered from 1".to_owned()));
        }
        if limit == 0 {
            return Err(ToolError::InvalidArguments("`limit` is 0: read at least one line".to_owned()));
        }
        Ok(ReadRequest { path, offset, limit })
    }
}

impl Tool for ReadTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Read".into(),
            description: "Reads a text file and returns its lines with their numbers, or shows an image (PNG, JPEG, GIF, \
                          WebP). Long files come in parts: continue with offset."
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
                        "description": format!("How many lines. Default: {DEFAULT_LINES}."),
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

    fn prepare(&self, arguments: &str, place: &ToolContext) -> Result<Action, ToolError> {
        let path = ReadRequest::from_arguments(arguments, place)?.path;
        Ok(Action { reads: vec![path.to_string_lossy().into_owned()], ..Action::default() })
    }

    fn execute(&self, arguments: &str, call: &ToolInvocation) -> ToolFuture {
        match ReadRequest::from_arguments(arguments, &call.context) {
            Ok(request) => {
                let editor = self.0.clone();
                run_blocking(move || read_path(&editor, &request))
            }
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn read_path(desk: &FileEditor, read: &ReadRequest) -> Result<ToolOutput, ToolError> {
    let opened = desk.files.open_file(&read.path).map_err(|e| file_error("read", &e))?;
    let path = display_path(&read.path);
    let failed = |e: io::Error| ToolError::ExecutionFailed(format!("cannot read {path}: {e}"));
    let length = opened.meta.len();
    if length > MAX_FILE_BYTES {
        return read_large(opened.file, read, length).map_err(failed)?;
    }
    let mut content = Vec::new();
    opened.file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let grown = FileError::Changed { path: read.path.clone() };
        return Err(file_error("read", &grown));
    }
    let seen = content_hash(&content);
    let (result, is_text) = match (image::image_format(&content), binary_kind(&content)) {
        (Some(format), Some(_)) => (show_image(&path, content, format), false),
        (_, Some(kind)) => (Err(not_text_error(&path, kind, content.len() as u64)), false),
        (_, None) => (read_text(read, &content), true),
    };
    // The kind of a binary file is all that Read can show, so reading it permits replacing it.
    if result.is_ok() || !is_text {
        desk.seen.remember(&opened.path, &seen);
    }
    result
}

fn not_text_error(path: &str, kind: &str, length: u64) -> ToolError {
    ToolError::ExecutionFailed(format!(
        "cannot read {path}: it is not text but {kind}, {length} bytes; inspect it with a command"
    ))
}

fn show_image(path: &str, content: Vec<u8>, format: ::image::ImageFormat) -> Result<ToolOutput, ToolError> {
    let image::PreparedImage { image, description } = image::prepare_image(content, format)
        .map_err(|why| ToolError::ExecutionFailed(format!("cannot read {path}: {why}")))?;
    Ok(ToolOutput { images: vec![image], ..tool_output(format!("{path}: {description}"), None) })
}

fn read_text(request: &ReadRequest, content: &[u8]) -> Result<ToolOutput, ToolError> {
    let FileText { text, form, .. } = FileText::decode(content);
    let mut remarks = form.remarks();
    let pairs = memchr::memmem::find_iter(text.as_bytes(), "\r\n").count();
    let feeds = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    if pairs > 0 && pairs < feeds {
        remarks.push(format!("{pairs} of {feeds} lines end in CRLF"));
    }
    let text = displayable_text(&text, form.coding);
    let text = if form.ending == LineEnding::Cr { text.replace('\r', "\n").into() } else { text };
    let page = LinePage::from_reader(Cursor::new(text.as_bytes()), request.offset, request.limit);
    let page = page.map_err(|e| ToolError::Internal(format!("could not read memory: {e}")))?;
    page.into_output(request, content.len() as u64, &remarks)
}

/// Reads a file that is too large to edit: keeps only the shown lines and does not record it as read.
fn read_large(file: File, read: &ReadRequest, length: u64) -> io::Result<Result<ToolOutput, ToolError>> {
    let mut file = BufReader::new(file);
    if let Some(kind) = binary_kind(file.fill_buf()?) {
        return Ok(Err(not_text_error(&display_path(&read.path), kind, length)));
    }
    let page = LinePage::from_reader(file, read.offset, read.limit)?;
    let lossy = page.is_lossy.then(|| "not UTF-8, undecodable bytes are shown as \u{fffd}".to_owned());
    Ok(page.into_output(read, length, &lossy.into_iter().collect::<Vec<_>>()))
}

/// Some lines of a file, with statistics of the rest.
#[derive(Default)]
struct LinePage {
    text: String,
    shown: u64,
    /// The number of lines seen; all lines unless `has_more` is set.
    lines: u64,
    /// The number of omitted bytes from the first requested line on.
    omitted_bytes: u64,
    /// The content limit was reached before the requested lines ended.
    is_full: bool,
    /// The last shown line is incomplete.
    has_cut_line: bool,
    /// The file continues beyond the scanned part.
    has_more: bool,
    is_lossy: bool,
}

impl LinePage {
    fn from_reader(file: impl BufRead, offset: u64, limit: u64) -> io::Result<LinePage> {
        let mut page = LinePage::default();
        let mut file = file.take(MAX_SCAN_BYTES);
        let end = offset.saturating_add(limit);
        loop {
            let number = page.lines + 1;
            let wanted = number >= offset && number < end && !page.is_full;
            let room = if wanted { MAX_CONTENT_BYTES - RESERVED_REMARK_BYTES - page.text.len() } else { 0 };
            let Some(line) = PageLine::read_from(&mut file, room)? else { break };
            page.lines = number;
            if wanted {
                page.push_line(number, &line);
            } else if number >= offset {
                page.omitted_bytes += line.bytes;
            }
        }
        page.has_more = file.limit() == 0;
        Ok(page)
    }

    fn push_line(&mut self, number: u64, line: &PageLine) {
        use std::fmt::Write as _;
        let room = MAX_CONTENT_BYTES - RESERVED_REMARK_BYTES - self.text.len();
        let mut text = String::new();
        write!(text, "{number:>6}\t").expect("a string takes everything");
        let bytes_kept = line.bytes_kept.strip_suffix(b"\r").unwrap_or(&line.bytes_kept);
        let words = String::from_utf8_lossy(bytes_kept);
        self.is_lossy |= matches!(words, std::borrow::Cow::Owned(_)) && !line.is_cut();
        text.push_str(&words);
        text.push('\n');
        if text.len() <= room && !line.is_cut() {
            self.text.push_str(&text);
            self.shown += 1;
            return;
        }
        self.is_full = true;
        // Show a part of a line only if it is the first; otherwise the next call can show the whole line.
        if self.shown == 0 {
            let mut end = room.saturating_sub(1).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            self.omitted_bytes += line.bytes.saturating_sub(text.len() as u64);
            self.text = text;
            self.text.push('\n');
            self.shown = 1;
            self.has_cut_line = true;
        } else {
            self.omitted_bytes += line.bytes;
        }
    }

    fn into_output(
        self,
        request: &ReadRequest,
        length: u64,
        remarks: &[String],
    ) -> Result<ToolOutput, ToolError> {
        let path = display_path(&request.path);
        let total = if self.has_more { format!("at least {}", self.lines) } else { self.lines.to_string() };
        if self.lines == 0 {
            return Ok(tool_output(format!("{path} is empty"), None));
        }
        if self.shown == 0 {
            return Err(ToolError::ExecutionFailed(format!(
                "cannot read {path} from line {}: it has {total} lines; use a smaller `offset`",
                request.offset
            )));
        }
        let (first, last) = (request.offset, request.offset + self.shown - 1);
        let mut content = self.text;
        if self.has_cut_line || self.omitted_bytes > 0 || self.has_more {
            let beyond = if self.has_more { length.saturating_sub(MAX_SCAN_BYTES) } else { 0 };
            let left_out = self.omitted_bytes + beyond;
            let cut = if self.has_cut_line { format!("line {last} is cut; ") } else { String::new() };
            content.push_str(&format!(
                "[{cut}lines {first} to {last} of {total} are shown, {left_out} bytes after them are left out; \
                 continue with offset {}]\n",
                last + 1
            ));
        }
        let remarks: String = remarks.iter().map(|remark| format!("; {remark}")).collect();
        Ok(tool_output(format!("{path}: lines {first} to {last} of {total}{remarks}"), Some(content)))
    }
}

/// A line, as much of it as there is room for.
struct PageLine {
    bytes_kept: Vec<u8>,
    /// Its total length, including the line break.
    bytes: u64,
    text_bytes: u64,
}

impl PageLine {
    fn is_cut(&self) -> bool {
        (self.bytes_kept.len() as u64) < self.text_bytes
    }

    /// Returns `None` at the end of the file. Keeps at most `room` bytes of a line.
    fn read_from(file: &mut impl BufRead, room: usize) -> io::Result<Option<PageLine>> {
        let mut line = PageLine { bytes_kept: Vec::new(), bytes: 0, text_bytes: 0 };
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
            let fits = text.len().min(room - line.bytes_kept.len().min(room));
            line.bytes_kept.extend_from_slice(&text[..fits]);
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
