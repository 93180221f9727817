//! Note: appends one line to a file in the working directory.
//!
//! Class once: a line that may or may not have been written is never written again by the machine.
//! Invariant: nothing outside the working directory is ever touched (`a_note_never_leaves_the_working_directory`), and
//! a line is one write (`notes_written_at_once_do_not_mix`).

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute, file_name, off_the_loop, output, parse, shorten, show};
use crate::beneath::open_append;

const DEFAULT_FILE: &str = "NOTES.md";
/// The longest line: a note is a sentence, not a document.
const LINE_BYTES: usize = 16 * 1024;
/// How much of the line the summary repeats.
const SUMMARY_LINE_BYTES: usize = 60;

/// How long a note waits for another one to the same file; each takes microseconds.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(1);

pub(crate) struct Note;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    line: String,
    #[serde(default)]
    file: Option<String>,
}

/// A note that can be written.
struct Checked {
    line: String,
    cwd: PathBuf,
    /// Relative to `cwd`.
    below: PathBuf,
}

impl Checked {
    fn parse(arguments: &str, place: &Place) -> Result<Checked, ToolError> {
        let Arguments { line, file } = parse("Note", arguments)?;
        if line.contains(['\n', '\r']) {
            let what = "`line` holds a line break: Note writes one line; call it once for each line";
            return Err(ToolError::Invalid(what.to_owned()));
        }
        if line.len() > LINE_BYTES {
            let what = format!("`line` has {} bytes: the longest note has {LINE_BYTES}", line.len());
            return Err(ToolError::Invalid(what));
        }
        let file = file.unwrap_or_else(|| DEFAULT_FILE.to_owned());
        let path = absolute("file", &file, &place.cwd)?;
        match path.strip_prefix(&place.cwd) {
            Ok(below) if !below.as_os_str().is_empty() => {
                Ok(Checked { line, cwd: place.cwd.clone(), below: below.to_owned() })
            }
            _ => Err(ToolError::Invalid(format!(
                "`file` is `{}`, which is not a file inside the working directory {}: give one that is",
                show(Path::new(&file)),
                show(&place.cwd)
            ))),
        }
    }

    fn path(&self) -> PathBuf {
        self.cwd.join(&self.below)
    }
}

impl Tool for Note {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Note".into(),
            description:
                "Appends one line to a file in the working directory. The file is made if it is missing; \
                          directories are not."
                    .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "line": { "type": "string", "description": "The line, without a line break." },
                    "file": {
                        "type": "string",
                        "description": format!("The file, relative to the working directory. Default: {DEFAULT_FILE}."),
                    },
                },
                "required": ["line"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError> {
        let path = Checked::parse(arguments, place)?.path();
        let writes = vec![path.to_string_lossy().into_owned()];
        Ok(Action { writes, side_effects: true, ..Action::default() })
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        match Checked::parse(arguments, &call.place) {
            Ok(note) => off_the_loop(move || append(&note)),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn append(note: &Checked) -> Result<ToolOutput, ToolError> {
    let path = note.path();
    let failed = |e: io::Error| ToolError::Failed(explain(&path, &e));
    let mut file = open_append(&note.cwd, &note.below).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        let what =
            format!("cannot write a note to {}: it is not a regular file; choose another one", show(&path));
        return Err(ToolError::Failed(what));
    }
    lock(&file, &path)?;
    let mut bytes = Vec::with_capacity(note.line.len() + 2);
    if lacks_line_break(&file).map_err(failed)? {
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(note.line.as_bytes());
    bytes.push(b'\n');
    // One write, not `write_all`: two pods that append to one file must not mix their lines.
    let written = write_once(&mut file, &bytes).map_err(failed)?;
    if written < bytes.len() {
        return Err(ToolError::Failed(format!(
            "only {written} of {} bytes reached {}: the disk is probably full; free some space, then look at the end \
             of the file before writing the note again",
            bytes.len(),
            show(&path)
        )));
    }
    let name = shorten(&file_name(&path).to_string_lossy(), SUMMARY_LINE_BYTES);
    Ok(output(format!("noted in {name}: {}", beginning(&note.line)), None))
}

/// Notes to one file take turns. The kernel keeps two appends apart by itself, but whoever looks at the end of the
/// file in the middle of another's write sees half a line there.
fn lock(file: &File, path: &Path) -> Result<(), ToolError> {
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            Err(TryLockError::WouldBlock) => {
                return Err(ToolError::Failed(format!(
                    "cannot write a note to {}: another process keeps it locked; nothing was written, try again later",
                    show(path)
                )));
            }
            // A signal in the middle is no answer.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(e)) => return Err(ToolError::Failed(explain(path, &e))),
        }
    }
}

fn write_once(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// Whether the file ends in the middle of a line, as editors may leave it.
fn lacks_line_break(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != [b'\n'])
}

fn beginning(line: &str) -> String {
    let mut text: String = line.chars().take(SUMMARY_LINE_BYTES / 4).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}

fn explain(path: &Path, e: &io::Error) -> String {
    use rustix::io::Errno;
    let what_to_do = match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "its directory does not exist, and Note makes none; choose an existing one",
        Some(Errno::LOOP | Errno::XDEV) => "a symbolic link stands in its path, and Note follows none",
        Some(Errno::ISDIR) => "it is a directory; give the name of a file",
        Some(Errno::NOTDIR) => "something in its path is not a directory",
        Some(Errno::NXIO) => "it is a FIFO or a socket; choose a regular file",
        _ => return format!("cannot write a note to {}: {e}", show(path)),
    };
    format!("cannot write a note to {}: {what_to_do}", show(path))
}
