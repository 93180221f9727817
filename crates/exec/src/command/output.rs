//! Collects the output of a command: redacts it, decodes it to text, counts it, keeps it, and publishes it in chunks.
//!
//! Counts, events and output file refer to the same bytes, so an offset means the same position in all three. Memory is
//! bounded: memory contains only the tail. When the output no longer fits inline, it goes to a file from its first
//! byte on, up to `MAX_FILE_BYTES`.
//! Invariant: published chunks join without gap or overlap and equal the file (`pieces_join_to_what_the_file_holds`). A
//! flood is published only in part; the offsets show the gaps (`a_flood_is_told_in_measured_pieces`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minke_tool::{CommandEnd, CommandEvent, CommandEventSink, OutputStream};
use tokio::sync::watch;

use super::types::OutputFilter;
use super::utf8::Utf8Decoder;

/// Limits of the inline output, which the model reads for every command.
pub const INLINE_LINES: usize = 80;
pub const INLINE_BYTES: usize = 12 * 1024;
/// The size limit of an output file; bytes beyond it are only counted.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The largest chunk of one event.
const PIECE_BYTES: usize = 8 * 1024;
/// The minimum time between two publications: twenty per second are enough for a display.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(50);
/// The most bytes of one publication. If there are more, only the last ones are published.
const PUBLISH_BYTES: usize = 8 * PIECE_BYTES;
/// The most bytes of one read from an offset.
const MAX_READ_BYTES: usize = 64 * 1024;
const FILE_MODE: u32 = 0o600;

pub(super) struct OutputCollector {
    filter: Box<dyn OutputFilter>,
    decoder: Utf8Decoder,
    /// Bytes after redaction and decoding.
    bytes: u64,
    newlines: u64,
    /// The end of the output; all of it while it fits inline.
    tail: String,
    spill: SpillFile,
    /// Collected and not yet published.
    unpublished: String,
    last_published: Option<Instant>,
    publisher: Option<OutputPublisher>,
    /// The number of collected bytes, for tasks that wait for more.
    progress: watch::Sender<u64>,
    set_id_refused: Arc<AtomicBool>,
}

/// Publishes events of one command.
pub(super) struct OutputPublisher {
    pub(super) id: String,
    pub(super) news: CommandEventSink,
}

impl OutputPublisher {
    fn publish(&self, news: CommandEvent) {
        self.news.emit(&self.id, news);
    }
}

/// The file for output that does not fit inline.
struct SpillFile {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    dropped: u64,
    /// Whether the output no longer fits inline.
    is_started: bool,
    /// Why writing stopped.
    error: Option<String>,
    /// No reader is left, so no file is created.
    is_abandoned: bool,
}

impl OutputCollector {
    pub(super) fn new(
        filter: Box<dyn OutputFilter>,
        path: PathBuf,
        teller: OutputPublisher,
    ) -> OutputCollector {
        let spill = SpillFile {
            path,
            file: None,
            written: 0,
            dropped: 0,
            is_started: false,
            error: None,
            is_abandoned: false,
        };
        OutputCollector {
            filter,
            decoder: Utf8Decoder::default(),
            bytes: 0,
            newlines: 0,
            tail: String::new(),
            spill,
            unpublished: String::new(),
            last_published: None,
            publisher: Some(teller),
            progress: watch::Sender::new(0),
            set_id_refused: Arc::default(),
        }
    }

    pub(super) fn push_bytes(&mut self, raw: &[u8]) {
        let covered = self.filter.filter_bytes(raw);
        let text = self.decoder.decode(&covered);
        self.append_text(&text);
    }

    /// Flushes the filter and the decoder, and publishes the rest.
    pub(super) fn finish(&mut self) {
        let covered = self.filter.finish();
        let mut text = self.decoder.decode(&covered);
        text.push_str(&self.decoder.finish());
        self.append_text(&text);
        self.publish_pending();
    }

    fn append_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let shown = self.bytes + byte_count(text);
        let breaks = self.newlines + count_byte(b'\n', text);
        if !self.spill.is_started && !fits_inline(shown, line_count(breaks, text)) {
            self.spill.is_started = true;
            // Until now everything fitted inline, so the tail is the complete output.
            self.spill.write_text(&self.tail);
        }
        self.bytes = shown;
        self.newlines = breaks;
        if self.spill.is_started {
            self.spill.write_text(text);
        }
        push_tail(&mut self.tail, text, INLINE_BYTES);
        if self.publisher.is_some() {
            push_tail(&mut self.unpublished, text, PUBLISH_BYTES);
        }
        self.progress.send_replace(self.bytes);
    }

    /// Returns the time until the next publication, if there is anything to publish.
    pub(super) fn publish_delay(&self, now: Instant) -> Option<Duration> {
        if self.unpublished.is_empty() {
            return None;
        }
        Some(
            self.last_published
                .map_or(Duration::ZERO, |told| (told + PUBLISH_INTERVAL).saturating_duration_since(now)),
        )
    }

    pub(super) fn publish_if_due(&mut self, now: Instant) {
        if self.publish_delay(now).is_some_and(|wait| wait.is_zero()) {
            self.last_published = Some(now);
            self.publish_pending();
        }
    }

    fn publish_pending(&mut self) {
        let unpublished = std::mem::take(&mut self.unpublished);
        let Some(teller) = &self.publisher else { return };
        let mut start = self.bytes - byte_count(&unpublished);
        let mut rest = unpublished.as_str();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
            let end = start + byte_count(piece);
            teller.publish(CommandEvent::Output {
                stream: OutputStream::Combined,
                start,
                end,
                text: piece.to_owned(),
            });
            (start, rest) = (end, after);
        }
    }

    pub(super) fn publish_started(&mut self, command: String, cwd: &Path) {
        if let Some(teller) = &self.publisher {
            teller.publish(CommandEvent::Started { command, cwd: cwd.to_string_lossy().into_owned() });
        }
    }

    /// Publishes the last event of the command; nothing is published after it.
    pub(super) fn publish_ended(&mut self, end: CommandEnd, exit_code: Option<i32>) {
        self.publish_pending();
        if let Some(teller) = self.publisher.take() {
            teller.publish(CommandEvent::Ended { end, exit_code });
        }
    }

    /// Records why output may be missing.
    pub(super) fn record_error(&mut self, why: String) {
        self.spill.error.get_or_insert(why);
    }

    /// Removes the file and creates none later. A file that cannot be removed stays, private and bounded in size, until
    /// the pod's directory is removed.
    pub(super) fn abandon(&mut self) {
        self.spill.is_abandoned = true;
        if self.spill.file.take().is_some() {
            let _removed = std::fs::remove_file(&self.spill.path);
        }
    }

    pub(super) fn byte_total(&self) -> u64 {
        self.bytes
    }

    pub(super) fn line_total(&self) -> u64 {
        line_count(self.newlines, &self.tail)
    }

    pub(super) fn dropped_bytes(&self) -> u64 {
        self.spill.dropped
    }

    pub(super) fn spill_path(&self) -> Option<PathBuf> {
        (self.spill.written > 0 && !self.spill.is_abandoned).then(|| self.spill.path.clone())
    }

    /// Sets the flag that is raised when the kernel refuses the command a set-id file.
    pub(super) fn set_refusal_flag(&mut self, refused: Arc<AtomicBool>) {
        self.set_id_refused = refused;
    }

    pub(super) fn set_id_refused(&self) -> bool {
        self.set_id_refused.load(Ordering::Relaxed)
    }

    pub(super) fn spill_error(&self) -> Option<String> {
        self.spill.error.clone()
    }

    pub(super) fn subscribe_progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Returns the end of the output after `from`, limited to the inline size, and its offset.
    pub(super) fn tail_since(&self, from: u64) -> OutputText {
        let begins = self.bytes - byte_count(&self.tail);
        let after = usize::try_from(from.saturating_sub(begins)).unwrap_or(usize::MAX);
        let after = self.tail.ceil_char_boundary(after.min(self.tail.len()));
        let new = self.tail.get(after..).unwrap_or_default();
        let text = new.get(tail_start(new)..).unwrap_or_default();
        OutputText { start: self.bytes - byte_count(text), text: text.to_owned() }
    }

    /// Returns the kept output from `from` on, limited to one read, and its offset.
    pub(super) fn read_from(&self, from: u64) -> io::Result<OutputText> {
        let begins = self.bytes - byte_count(&self.tail);
        let from = from.min(self.bytes);
        match &self.spill.file {
            Some(file) if from < begins.min(self.spill.written) => {
                let room = (self.spill.written - from).min(MAX_READ_BYTES as u64);
                let mut buffer = vec![0; usize::try_from(room).unwrap_or(MAX_READ_BYTES)];
                file.read_exact_at(&mut buffer, from)?;
                Ok(decode_whole_chars(from, &buffer))
            }
            _ => {
                let start = from.max(begins);
                let at = usize::try_from(start - begins).unwrap_or(usize::MAX);
                let at = self.tail.ceil_char_boundary(at.min(self.tail.len()));
                let text = self.tail.get(at..).unwrap_or_default().to_owned();
                Ok(OutputText { start: begins + at as u64, text })
            }
        }
    }
}

/// A part of the output and its offset.
pub(super) struct OutputText {
    pub(super) start: u64,
    pub(super) text: String,
}

impl SpillFile {
    fn write_text(&mut self, text: &str) {
        let wanted = byte_count(text);
        if self.is_abandoned || self.error.is_some() {
            self.dropped += wanted;
            return;
        }
        let room = usize::try_from(MAX_FILE_BYTES - self.written).unwrap_or(usize::MAX);
        let part = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        // After a gap, appending would put text at a wrong offset.
        let part = if self.dropped > 0 { "" } else { part };
        match self.open_file().and_then(|file| file.write_all(part.as_bytes())) {
            Ok(()) => {
                self.written += byte_count(part);
                self.dropped += wanted - byte_count(part);
            }
            Err(error) => {
                self.error = Some(format!("could not write {}: {error}", self.path.display()));
                self.dropped += wanted;
            }
        }
    }

    fn open_file(&mut self) -> io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            empty => {
                let mut options = OpenOptions::new();
                // `create_new` follows no link and opens no existing file.
                let file =
                    options.read(true).write(true).create_new(true).mode(FILE_MODE).open(&self.path)?;
                Ok(empty.insert(file))
            }
        }
    }
}

/// Decodes bytes that may begin and end within a character. Returns the text and its offset.
fn decode_whole_chars(from: u64, bytes: &[u8]) -> OutputText {
    let continues = |byte: &u8| byte & 0xc0 == 0x80;
    let skipped = bytes.iter().take(3).take_while(|byte| continues(byte)).count();
    let bytes = bytes.get(skipped..).unwrap_or_default();
    // The file holds UTF-8, so only the two ends of the read part can be invalid.
    let text = bytes.utf8_chunks().next().map(|chunk| chunk.valid().to_owned()).unwrap_or_default();
    OutputText { start: from + skipped as u64, text }
}

fn fits_inline(bytes: u64, lines: u64) -> bool {
    bytes <= INLINE_BYTES as u64 && lines <= INLINE_LINES as u64
}

/// Returns the number of lines of a text that ends in `end`. A last line without a line break counts.
fn line_count(breaks: u64, end: &str) -> u64 {
    breaks + u64::from(!end.is_empty() && !end.ends_with('\n'))
}

/// Returns the offset of the last `INLINE_LINES` lines.
fn tail_start(text: &str) -> usize {
    let body = text.strip_suffix('\n').unwrap_or(text);
    memchr::memrchr_iter(b'\n', body.as_bytes()).nth(INLINE_LINES - 1).map_or(0, |at| at + 1)
}

/// Appends text and keeps only the last `most` bytes, or up to three less at a character boundary.
fn push_tail(kept: &mut String, text: &str, most: usize) {
    let surplus = (kept.len() + text.len()).saturating_sub(most);
    if surplus < kept.len() {
        kept.drain(..kept.ceil_char_boundary(surplus));
        kept.push_str(text);
    } else {
        // Keeping a rest of the old text would leave a gap between it and the new text.
        let from = text.ceil_char_boundary(text.len().saturating_sub(most));
        *kept = text.get(from..).unwrap_or_default().to_owned();
    }
}

fn byte_count(text: &str) -> u64 {
    text.len() as u64
}

fn count_byte(byte: u8, text: &str) -> u64 {
    memchr::memchr_iter(byte, text.as_bytes()).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_the_end_of_what_was_said() {
        let words = ["", "a", "é", "€€", "🐋", "plain", "éa€b🐋c", "€€€€€€€€"];
        for most in 1..20 {
            for one in words {
                for two in words {
                    for three in words {
                        let (mut kept, mut all) = (String::new(), String::new());
                        for word in [one, two, three] {
                            push_tail(&mut kept, word, most);
                            all.push_str(word);
                            assert!(all.ends_with(&kept) && kept.len() <= most, "{most}: {all} {kept}");
                            assert!(kept.len() + 3 >= most.min(all.len()), "{most}: {all} {kept}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_lines_are_whole() {
        let lines = |count: usize| "x\n".repeat(count);
        assert_eq!(tail_start(&lines(INLINE_LINES)), 0);
        assert_eq!(tail_start(&lines(INLINE_LINES + 1)), 2);
        assert_eq!(tail_start(&format!("{}x", lines(INLINE_LINES))), 2);
        assert_eq!(tail_start(""), 0);
    }
}
