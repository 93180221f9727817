//! The terminal of `top`: in raw mode while in use, and restored on drop and on a panic.
//!
//! Elsewhere: the content (`view`).

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use crate::error::{CliError, ExitKind};

/// Switches to the alternate screen, hides the cursor, cuts long lines.
const ENTER_SEQUENCE: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE_SEQUENCE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Marks a frame for terminals with synchronized updates.
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h\x1b[H";
const END_FRAME: &[u8] = b"\x1b[J\x1b[?2026l";
/// Size to assume if the terminal does not report one.
const DEFAULT_SIZE: ScreenSize = ScreenSize { columns: 80, rows: 24 };
/// How much key input is read at once.
const READ_BYTES: usize = 1_024;
/// Reads of key input that may wait.
const MAX_PENDING_READS: usize = 16;

/// Size of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The terminal in raw mode.
pub(super) struct RawTerminal {
    saved_modes: Termios,
    input: KeyReader,
}

impl RawTerminal {
    pub(super) fn enter() -> Result<RawTerminal, CliError> {
        let saved = tcgetattr(io::stdin()).map_err(terminal_error)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // A panic message must be readable, so the terminal is restored before it is printed.
        let on_panic = saved.clone();
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore_terminal(&on_panic);
            report(info);
        }));
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw).map_err(terminal_error)?;
        let terminal = RawTerminal {
            input: KeyReader::start().inspect_err(|_| restore_terminal(&saved))?,
            saved_modes: saved,
        };
        write_stdout(ENTER_SEQUENCE)?;
        Ok(terminal)
    }

    /// Returns the typed bytes, or `None` when the terminal is closed.
    pub(super) async fn next_input(&mut self) -> Option<Vec<u8>> {
        self.input.typed.recv().await
    }

    pub(super) fn size(&self) -> Result<ScreenSize, CliError> {
        let found = tcgetwinsize(io::stdout()).map_err(terminal_error)?;
        if found.ws_col == 0 || found.ws_row == 0 {
            return Ok(DEFAULT_SIZE);
        }
        Ok(ScreenSize { columns: found.ws_col.into(), rows: found.ws_row.into() })
    }

    /// Replaces the current frame. Cuts long lines.
    pub(super) fn draw_frame(&self, lines: &[String]) -> Result<(), CliError> {
        let mut frame = BEGIN_FRAME.to_vec();
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                frame.extend(b"\r\n");
            }
            frame.extend(line.as_bytes());
            frame.extend(b"\x1b[K");
        }
        frame.extend(END_FRAME);
        write_stdout(&frame)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore_terminal(&self.saved_modes);
    }
}

/// Restores the terminal. Ignores errors: the terminal is closed then.
fn restore_terminal(saved: &Termios) {
    drop(write_stdout(LEAVE_SEQUENCE));
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, saved);
}

fn write_stdout(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(terminal_error)
}

pub(super) fn terminal_error(e: impl Into<io::Error>) -> CliError {
    let e: io::Error = e.into();
    CliError::new(ExitKind::Failed, "could not use this terminal")
        .with_reason(e)
        .with_hint("`minke ps --tree` works without one")
}

/// A thread that reads the terminal. It is joined on drop, so that it takes no key from the next reader.
struct KeyReader {
    typed: mpsc::Receiver<Vec<u8>>,
    /// Closing it ends the thread.
    shutdown: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl KeyReader {
    fn start() -> Result<KeyReader, CliError> {
        let (send, typed) = mpsc::channel(MAX_PENDING_READS);
        let (shutdown, theirs) = UnixStream::pair().map_err(terminal_error)?;
        let listen = move || read_keys(&send, &theirs);
        let thread =
            std::thread::Builder::new().name("keys".to_owned()).spawn(listen).map_err(terminal_error)?;
        Ok(KeyReader { typed, shutdown: Some(shutdown), thread: Some(thread) })
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        // The first close releases a thread that waits for room, the second one that waits for a key.
        self.typed.close();
        drop(self.shutdown.take());
        // The thread cannot panic; even then the terminal would be restored.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Reads until the other end is closed or the terminal is closed.
fn read_keys(typed: &mpsc::Sender<Vec<u8>>, shutdown: &UnixStream) {
    let stdin = io::stdin();
    loop {
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(shutdown, PollFlags::IN)];
        match poll(&mut wanted, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !wanted[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        let mut bytes = [0; READ_BYTES];
        // Bypasses the buffer of the standard library, whose contents the next reader would miss.
        match rustix::io::read(&stdin, &mut bytes) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if typed.blocking_send(bytes.get(..count).unwrap_or_default().to_vec()).is_err() {
                    return;
                }
            }
        }
    }
}

/// A key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalKey {
    Char(char),
    Enter,
    Backspace,
    Escape,
    Up,
    Down,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
}

/// Decodes keys; keeps an incomplete character until its rest arrives.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    pending: Vec<u8>,
}

impl KeyDecoder {
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Vec<TerminalKey> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let Some(&first) = self.pending.first() {
            let (key, length) = match first {
                0x1b => self.decode_escape(),
                b'\r' | b'\n' => (Some(TerminalKey::Enter), 1),
                0x08 | 0x7f => (Some(TerminalKey::Backspace), 1),
                0x03 | 0x04 => (Some(TerminalKey::Interrupt), 1),
                0x00..0x20 => (None, 1),
                _ => match decode_char(&self.pending) {
                    Some((letter, length)) => (letter.map(TerminalKey::Char), length),
                    None => return keys,
                },
            };
            keys.extend(key);
            self.pending.drain(..length.min(self.pending.len()));
        }
        keys
    }

    /// Decodes an escape sequence. Terminals send sequences in one piece, so a lone escape byte is the Escape
    /// key.
    fn decode_escape(&self) -> (Option<TerminalKey>, usize) {
        match self.pending.get(1) {
            None => (Some(TerminalKey::Escape), 1),
            Some(b'[' | b'O') => {
                let rest = self.pending.get(2..).unwrap_or_default();
                let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
                let key = match end.and_then(|end| rest.get(end)) {
                    Some(b'A') => Some(TerminalKey::Up),
                    Some(b'B') => Some(TerminalKey::Down),
                    _ => None,
                };
                (key, end.map_or(self.pending.len(), |end| end + 3))
            }
            Some(_) => (None, 2),
        }
    }
}

/// Returns the first character and its length, or `None` if it is incomplete. Invalid bytes are skipped.
fn decode_char(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let length = match bytes.first()? {
        0x00..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((None, 1)),
    };
    let whole = bytes.get(..length)?;
    match std::str::from_utf8(whole) {
        Ok(text) => Some((text.chars().next(), length)),
        Err(_) => Some((None, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_what_a_terminal_sends() {
        use TerminalKey::*;
        let cases: [(&[&[u8]], &[TerminalKey]); 8] = [
            (&[b"q"], &[Char('q')]),
            (&[b"\x1b[A\x1bOB"], &[Up, Down]),
            (&[b"\x1b"], &[Escape]),
            (&[b"\x03\r\x7f"], &[Interrupt, Enter, Backspace]),
            (&[b"\xc3", b"\xa9x"], &[Char('é'), Char('x')]),
            (&[b"\xff\xc3(a"], &[Char('('), Char('a')]),
            (&[b"\x1b[1;5Hj\x1b[200~"], &[Char('j')]),
            (&[b"\x07\x1bxa"], &[Char('a')]),
        ];
        for (pieces, wanted) in cases {
            let mut keys = KeyDecoder::default();
            let read: Vec<TerminalKey> = pieces.iter().flat_map(|piece| keys.decode(piece)).collect();
            assert_eq!(read, wanted, "{pieces:?}");
        }
    }
}
