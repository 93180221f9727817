//! The terminal of `top`: raw while it is held, as it was before when it is let go, also by a panic.
//!
//! Elsewhere: what is shown (`view`).

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure};

/// Another screen, no cursor, long lines cut.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";
/// One frame is shown at once, where the terminal knows how.
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h\x1b[H";
const END_FRAME: &[u8] = b"\x1b[J\x1b[?2026l";
/// What is shown where the terminal does not say how large it is.
const DEFAULT_SIZE: Size = Size { columns: 80, rows: 24 };
/// What is read of keys at once.
const KEYS_BYTES: usize = 1_024;
/// Pieces of typing that wait: nobody types faster than a frame is drawn.
const TYPED_WAITING: usize = 16;

/// How much fits on the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The terminal, held.
pub(super) struct Terminal {
    before: Termios,
    input: Input,
}

impl Terminal {
    pub(super) fn enter() -> Result<Terminal, Failure> {
        let before = tcgetattr(io::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        // What a panic says is to be read, so the terminal is let go before it says it.
        let on_panic = before.clone();
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let_go(&on_panic);
            report(info);
        }));
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw).map_err(failed)?;
        let terminal = Terminal { input: Input::listen().inspect_err(|_| let_go(&before))?, before };
        write(ENTER)?;
        Ok(terminal)
    }

    /// What was typed since; `None` when the terminal is gone.
    pub(super) async fn typed(&mut self) -> Option<Vec<u8>> {
        self.input.typed.recv().await
    }

    pub(super) fn size(&self) -> Result<Size, Failure> {
        let found = tcgetwinsize(io::stdout()).map_err(failed)?;
        if found.ws_col == 0 || found.ws_row == 0 {
            return Ok(DEFAULT_SIZE);
        }
        Ok(Size { columns: found.ws_col.into(), rows: found.ws_row.into() })
    }

    /// Puts a frame in the place of the one before. Its lines are cut, not wrapped.
    pub(super) fn show(&self, lines: &[String]) -> Result<(), Failure> {
        let mut frame = BEGIN_FRAME.to_vec();
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                frame.extend(b"\r\n");
            }
            frame.extend(line.as_bytes());
            frame.extend(b"\x1b[K");
        }
        frame.extend(END_FRAME);
        write(&frame)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let_go(&self.before);
    }
}

/// If even this fails the terminal is gone, and nobody is left to be told.
fn let_go(before: &Termios) {
    drop(write(LEAVE));
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(failed)
}

pub(super) fn failed(e: impl Into<io::Error>) -> Failure {
    let e: io::Error = e.into();
    Failure::new(Exit::Failed, "this terminal cannot be used").why(e).hint("`minke ps --tree` needs none")
}

/// A thread that reads the terminal until it is let go, so that no key is taken from whoever reads it next.
struct Input {
    typed: mpsc::Receiver<Vec<u8>>,
    /// Closing it ends the thread.
    stay: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Input {
    fn listen() -> Result<Input, Failure> {
        let (send, typed) = mpsc::channel(TYPED_WAITING);
        let (stay, theirs) = UnixStream::pair().map_err(failed)?;
        let listen = move || listen(&send, &theirs);
        let thread = std::thread::Builder::new().name("keys".to_owned()).spawn(listen).map_err(failed)?;
        Ok(Input { typed, stay: Some(stay), thread: Some(thread) })
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // A thread that waits for room is let go by this, one that waits for a key by the other.
        self.typed.close();
        drop(self.stay.take());
        // It cannot panic, and if it did the terminal would be let go all the same.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Reads until the other side is closed or the terminal is gone.
fn listen(typed: &mpsc::Sender<Vec<u8>>, stay: &UnixStream) {
    let stdin = io::stdin();
    loop {
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(stay, PollFlags::IN)];
        match poll(&mut wanted, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !wanted[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        let mut bytes = [0; KEYS_BYTES];
        // Past the buffer of the standard library: what lies in there would be lost to the next reader.
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

/// What was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Backspace,
    Escape,
    Up,
    Down,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
}

/// Keys as they come; half a letter waits for its rest.
#[derive(Debug, Default)]
pub(super) struct Keys {
    half: Vec<u8>,
}

impl Keys {
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.half.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let Some(&first) = self.half.first() {
            let (key, length) = match first {
                0x1b => self.escape(),
                b'\r' | b'\n' => (Some(Key::Enter), 1),
                0x08 | 0x7f => (Some(Key::Backspace), 1),
                0x03 | 0x04 => (Some(Key::Interrupt), 1),
                0x00..0x20 => (None, 1),
                _ => match letter(&self.half) {
                    Some((letter, length)) => (letter.map(Key::Char), length),
                    None => return keys,
                },
            };
            keys.extend(key);
            self.half.drain(..length.min(self.half.len()));
        }
        keys
    }

    /// A terminal sends a sequence in one piece, so an escape that comes alone is the key of that name.
    fn escape(&self) -> (Option<Key>, usize) {
        match self.half.get(1) {
            None => (Some(Key::Escape), 1),
            Some(b'[' | b'O') => {
                let rest = self.half.get(2..).unwrap_or_default();
                let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
                let key = match end.and_then(|end| rest.get(end)) {
                    Some(b'A') => Some(Key::Up),
                    Some(b'B') => Some(Key::Down),
                    _ => None,
                };
                (key, end.map_or(self.half.len(), |end| end + 3))
            }
            Some(_) => (None, 2),
        }
    }
}

/// The first letter and its length, `None` if its end is yet to come. What is no letter is skipped.
fn letter(bytes: &[u8]) -> Option<(Option<char>, usize)> {
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
        use Key::*;
        let cases: [(&[&[u8]], &[Key]); 8] = [
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
            let mut keys = Keys::default();
            let read: Vec<Key> = pieces.iter().flat_map(|piece| keys.take(piece)).collect();
            assert_eq!(read, wanted, "{pieces:?}");
        }
    }
}
