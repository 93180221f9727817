//! Asking for something that is not to be seen: a line from the terminal, without its echo.
//!
//! Invariant: the terminal is as it was when this returns, however it returns (`a_key_that_is_typed_is_not_shown`).

use std::io::{self, BufRead};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// What came of the question.
pub(crate) enum Typed {
    Line(Vec<u8>),
    /// The person thought better of it.
    Cancelled,
}

/// Asks on stderr and reads a line of at most `limit` bytes from the terminal on stdin. Keys are read one by one: in
/// the terminal's own line mode a signal in the middle would leave it without echo, and lines end at 4,096 bytes.
pub(crate) fn ask_hidden(question: &str, limit: usize) -> io::Result<Typed> {
    let quiet = Quiet::begin()?;
    crate::screen::ask(question)?;
    let typed = read_line(io::stdin().lock(), limit);
    drop(quiet);
    // The line break that was typed was not shown either.
    crate::screen::ask("\n")?;
    typed
}

/// A terminal that shows nothing and hands on every key; as before when dropped.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin() -> io::Result<Quiet> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        // What was typed before the question was asked was not meant for it.
        tcsetattr(io::stdin(), OptionalActions::Flush, &modes)?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Err(e) = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before) {
            // A terminal that has gone needs no mending, and there is nobody to tell.
            drop(crate::screen::ask(&format!(
                "warning: the terminal could not be set back ({e}): `stty sane` does it\n"
            )));
        }
    }
}

fn read_line(from: impl BufRead, limit: usize) -> io::Result<Typed> {
    // Room for everything at once: a buffer that grows leaves pieces of the key behind.
    let mut line = Vec::with_capacity(limit);
    for byte in from.bytes() {
        match byte? {
            b'\r' | b'\n' | CTRL_D => return Ok(Typed::Line(line)),
            CTRL_C => return Ok(Typed::Cancelled),
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => {
                // A character may be several bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            _ if line.len() == limit => {
                let text = format!("more than {limit} bytes were typed");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            byte => line.push(byte),
        }
    }
    Ok(Typed::Line(line))
}

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const CTRL_U: u8 = 0x15;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(keys: &str) -> Option<String> {
        match read_line(keys.as_bytes(), 10).unwrap() {
            Typed::Line(bytes) => Some(String::from_utf8(bytes).unwrap()),
            Typed::Cancelled => None,
        }
    }

    #[test]
    fn a_line_can_be_mended_and_given_up() {
        assert_eq!(line("key\rrest").as_deref(), Some("key"));
        assert_eq!(line("key").as_deref(), Some("key"));
        assert_eq!(line("kee\u{7f}y\n").as_deref(), Some("key"));
        assert_eq!(line("kä\u{8}ey\u{4}").as_deref(), Some("key"));
        assert_eq!(line("\u{7f}wrong\u{15}key\r").as_deref(), Some("key"));
        assert_eq!(line("ke\u{3}y\r"), None);
        assert!(read_line("12345678901\r".as_bytes(), 10).is_err());
    }
}
