//! What a command has said: covered, made text, counted, kept, and told in measured pieces.
//!
//! The text that is counted, the text of the news and the text of the file are the same bytes, so an offset means the
//! same place in all three. Memory is bounded: all that is kept in it is the end. The file is made when the output no
//! longer fits inline, and then holds all of it from the beginning, up to `FILE_BYTES`.
//! Invariant: told pieces join without gap or overlap, and equal the file (`pieces_join_to_what_the_file_holds`), except
//! where a flood is told only in part, which its offsets show (`a_flood_is_told_in_measured_pieces`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minke_tool::{CommandEnd, CommandNews, News, Stream};
use tokio::sync::watch;

use super::order::Veil;
use super::text::Joiner;

/// What is shown inline: the model reads this much of every command.
pub const INLINE_LINES: usize = 80;
pub const INLINE_BYTES: usize = 12 * 1024;
/// What a file of output may hold; the rest is counted.
pub const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The longest piece of news.
const PIECE_BYTES: usize = 8 * 1024;
/// Between two tellings: twenty a second are more than an eye can follow.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// What one telling says at most; of more, the end.
const TELL_BYTES: usize = 8 * PIECE_BYTES;
/// What one look from an offset shows.
const LOOK_BYTES: usize = 64 * 1024;
const FILE_MODE: u32 = 0o600;

pub(super) struct Heard {
    veil: Box<dyn Veil>,
    joiner: Joiner,
    /// Of what is shown.
    bytes: u64,
    breaks: u64,
    /// The end of what is shown; all of it while it fits inline.
    tail: String,
    spill: Spill,
    /// Shown and not told yet.
    untold: String,
    told: Option<Instant>,
    teller: Option<Teller>,
    /// How much is shown, for whoever waits for more.
    progress: watch::Sender<u64>,
    set_id_refused: Arc<AtomicBool>,
}

/// Whom to tell, and of whom.
pub(super) struct Teller {
    pub(super) id: String,
    pub(super) news: News,
}

impl Teller {
    fn tell(&self, news: CommandNews) {
        self.news.tell(&self.id, news);
    }
}

/// The file of an output that does not fit.
struct Spill {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    dropped: u64,
    /// The output no longer fits.
    begun: bool,
    /// Why writing was given up.
    failed: Option<String>,
    /// Nobody will ask for it: none is made.
    unwanted: bool,
}

impl Heard {
    pub(super) fn new(veil: Box<dyn Veil>, path: PathBuf, teller: Teller) -> Heard {
        let spill =
            Spill { path, file: None, written: 0, dropped: 0, begun: false, failed: None, unwanted: false };
        Heard {
            veil,
            joiner: Joiner::default(),
            bytes: 0,
            breaks: 0,
            tail: String::new(),
            spill,
            untold: String::new(),
            told: None,
            teller: Some(teller),
            progress: watch::Sender::new(0),
            set_id_refused: Arc::default(),
        }
    }

    pub(super) fn take(&mut self, raw: &[u8]) {
        let covered = self.veil.take(raw);
        let text = self.joiner.take(&covered);
        self.show(&text);
    }

    /// Nothing more comes: what was held back is shown, and everything is told.
    pub(super) fn end(&mut self) {
        let covered = self.veil.end();
        let mut text = self.joiner.take(&covered);
        text.push_str(&self.joiner.end());
        self.show(&text);
        self.tell_untold();
    }

    fn show(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let shown = self.bytes + byte_count(text);
        let breaks = self.breaks + byte_count_of(b'\n', text);
        if !self.spill.begun && !fits(shown, line_count(breaks, text)) {
            self.spill.begun = true;
            // Until now everything fitted, so the tail is everything.
            self.spill.write(&self.tail);
        }
        self.bytes = shown;
        self.breaks = breaks;
        if self.spill.begun {
            self.spill.write(text);
        }
        push_end(&mut self.tail, text, INLINE_BYTES);
        if self.teller.is_some() {
            push_end(&mut self.untold, text, TELL_BYTES);
        }
        self.progress.send_replace(self.bytes);
    }

    /// When the next telling is due, if there is anything to tell.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        if self.untold.is_empty() {
            return None;
        }
        Some(self.told.map_or(Duration::ZERO, |told| (told + TELL_EVERY).saturating_duration_since(now)))
    }

    pub(super) fn tell_if_due(&mut self, now: Instant) {
        if self.due(now).is_some_and(|wait| wait.is_zero()) {
            self.told = Some(now);
            self.tell_untold();
        }
    }

    fn tell_untold(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        let Some(teller) = &self.teller else { return };
        let mut start = self.bytes - byte_count(&untold);
        let mut rest = untold.as_str();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
            let end = start + byte_count(piece);
            teller.tell(CommandNews::Output { stream: Stream::Both, start, end, text: piece.to_owned() });
            (start, rest) = (end, after);
        }
    }

    pub(super) fn tell_started(&mut self, command: String, cwd: &Path) {
        if let Some(teller) = &self.teller {
            teller.tell(CommandNews::Started { command, cwd: cwd.to_string_lossy().into_owned() });
        }
    }

    /// The last of the news; nothing is told after it.
    pub(super) fn tell_ended(&mut self, end: CommandEnd, exit_code: Option<i32>) {
        self.tell_untold();
        if let Some(teller) = self.teller.take() {
            teller.tell(CommandNews::Ended { end, exit_code });
        }
    }

    /// Says why something may be missing.
    pub(super) fn broke(&mut self, why: String) {
        self.spill.failed.get_or_insert(why);
    }

    /// Nobody will ask for the file: it is removed, and none is made later. One that cannot be removed stays, private and
    /// bounded, until the pod's directory goes.
    pub(super) fn abandon(&mut self) {
        self.spill.unwanted = true;
        if self.spill.file.take().is_some() {
            let _removed = std::fs::remove_file(&self.spill.path);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn lines(&self) -> u64 {
        line_count(self.breaks, &self.tail)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.spill.dropped
    }

    pub(super) fn file(&self) -> Option<PathBuf> {
        (self.spill.written > 0 && !self.spill.unwanted).then(|| self.spill.path.clone())
    }

    /// Where the command's start says whether the kernel refused it a set-id file.
    pub(super) fn learn_of_refusals(&mut self, refused: Arc<AtomicBool>) {
        self.set_id_refused = refused;
    }

    pub(super) fn set_id_refused(&self) -> bool {
        self.set_id_refused.load(Ordering::Relaxed)
    }

    pub(super) fn unkept(&self) -> Option<String> {
        self.spill.failed.clone()
    }

    pub(super) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// The end of what was said after `from`: as much as is shown inline, and where it begins.
    pub(super) fn last(&self, from: u64) -> (u64, String) {
        let begins = self.bytes - byte_count(&self.tail);
        let after = usize::try_from(from.saturating_sub(begins)).unwrap_or(usize::MAX);
        let after = self.tail.ceil_char_boundary(after.min(self.tail.len()));
        let new = self.tail.get(after..).unwrap_or_default();
        let text = new.get(last_lines(new)..).unwrap_or_default();
        (self.bytes - byte_count(text), text.to_owned())
    }

    /// What was said from `from` on, as far as it is kept and one look reaches, and where it begins.
    pub(super) fn from(&self, from: u64) -> io::Result<(u64, String)> {
        let begins = self.bytes - byte_count(&self.tail);
        let from = from.min(self.bytes);
        match &self.spill.file {
            Some(file) if from < begins.min(self.spill.written) => {
                let room = (self.spill.written - from).min(LOOK_BYTES as u64);
                let mut buffer = vec![0; usize::try_from(room).unwrap_or(LOOK_BYTES)];
                file.read_exact_at(&mut buffer, from)?;
                Ok(whole_characters(from, &buffer))
            }
            _ => {
                let start = from.max(begins);
                let at = usize::try_from(start - begins).unwrap_or(usize::MAX);
                let at = self.tail.ceil_char_boundary(at.min(self.tail.len()));
                Ok((begins + at as u64, self.tail.get(at..).unwrap_or_default().to_owned()))
            }
        }
    }
}

impl Spill {
    fn write(&mut self, text: &str) {
        let wanted = byte_count(text);
        if self.unwanted || self.failed.is_some() {
            self.dropped += wanted;
            return;
        }
        let room = usize::try_from(FILE_BYTES - self.written).unwrap_or(usize::MAX);
        let part = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        // Once something was dropped, what follows would stand in a wrong place.
        let part = if self.dropped > 0 { "" } else { part };
        match self.open().and_then(|file| file.write_all(part.as_bytes())) {
            Ok(()) => {
                self.written += byte_count(part);
                self.dropped += wanted - byte_count(part);
            }
            Err(error) => {
                self.failed = Some(format!("writing {} failed: {error}", self.path.display()));
                self.dropped += wanted;
            }
        }
    }

    fn open(&mut self) -> io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            empty => {
                let mut options = OpenOptions::new();
                // `create_new` follows no link and takes no file that stands there.
                let file =
                    options.read(true).write(true).create_new(true).mode(FILE_MODE).open(&self.path)?;
                Ok(empty.insert(file))
            }
        }
    }
}

/// A text, with its offset, from bytes that may begin and end within a character.
fn whole_characters(from: u64, bytes: &[u8]) -> (u64, String) {
    let continues = |byte: &u8| byte & 0xc0 == 0x80;
    let skipped = bytes.iter().take(3).take_while(|byte| continues(byte)).count();
    let bytes = bytes.get(skipped..).unwrap_or_default();
    // The file holds what was a `String`, so only its cut ends can be no text.
    let text = bytes.utf8_chunks().next().map(|chunk| chunk.valid().to_owned()).unwrap_or_default();
    (from + skipped as u64, text)
}

fn fits(bytes: u64, lines: u64) -> bool {
    bytes <= INLINE_BYTES as u64 && lines <= INLINE_LINES as u64
}

/// Lines of a text that ends in `end`: a last one without a break counts.
fn line_count(breaks: u64, end: &str) -> u64 {
    breaks + u64::from(!end.is_empty() && !end.ends_with('\n'))
}

/// Where the last `INLINE_LINES` lines begin.
fn last_lines(text: &str) -> usize {
    let body = text.strip_suffix('\n').unwrap_or(text);
    memchr::memrchr_iter(b'\n', body.as_bytes()).nth(INLINE_LINES - 1).map_or(0, |at| at + 1)
}

/// Appends, and keeps only the last `most` bytes, or a few less where a character would be cut.
fn push_end(kept: &mut String, text: &str, most: usize) {
    let surplus = (kept.len() + text.len()).saturating_sub(most);
    if surplus < kept.len() {
        kept.drain(..kept.ceil_char_boundary(surplus));
        kept.push_str(text);
    } else {
        // Nothing of what was kept stays, not even where the cut text leaves room: there would be a gap between them.
        let from = text.ceil_char_boundary(text.len().saturating_sub(most));
        *kept = text.get(from..).unwrap_or_default().to_owned();
    }
}

fn byte_count(text: &str) -> u64 {
    text.len() as u64
}

fn byte_count_of(byte: u8, text: &str) -> u64 {
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
                            push_end(&mut kept, word, most);
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
        assert_eq!(last_lines(&lines(INLINE_LINES)), 0);
        assert_eq!(last_lines(&lines(INLINE_LINES + 1)), 2);
        assert_eq!(last_lines(&format!("{}x", lines(INLINE_LINES))), 2);
        assert_eq!(last_lines(""), 0);
    }
}
