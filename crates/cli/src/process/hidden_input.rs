//! Reads a secret line from the terminal without echo.
//!
//! Invariant: the terminal is always restored (`a_key_that_is_typed_is_not_shown`).

use std::io::{self, BufRead};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// Result of a hidden prompt.
pub(crate) enum HiddenInput {
    Line(Vec<u8>),
    /// The user cancelled.
    Cancelled,
}

/// Asks on stderr and reads a line of at most `limit` bytes from the terminal on stdin. Reads single keys: in
/// the terminal's line mode a signal would leave the echo off, and lines are limited to 4,096 bytes.
pub(crate) fn read_hidden(question: &str, limit: usize) -> io::Result<HiddenInput> {
    let guard = EchoGuard::disable_echo()?;
    crate::output::write_prompt(question)?;
    let input = read_line(io::stdin().lock(), limit);
    drop(guard);
    // The typed newline was not echoed.
    crate::output::write_prompt("\n")?;
    input
}

/// Turns off echo and line mode; restores them on drop.
struct EchoGuard {
    saved_modes: Termios,
}

impl EchoGuard {
    fn disable_echo() -> io::Result<EchoGuard> {
        let saved_modes = tcgetattr(io::stdin())?;
        let mut modes = saved_modes.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Discards input from before the question.
        tcsetattr(io::stdin(), OptionalActions::Flush, &modes)?;
        Ok(EchoGuard { saved_modes })
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        if let Err(e) = tcsetattr(io::stdin(), OptionalActions::Drain, &self.saved_modes) {
            // A closed terminal needs no restore, and there is no other place to report it.
            drop(crate::output::write_prompt(&format!(
                "warning: could not restore the terminal ({e}): run `stty sane`\n"
            )));
        }
    }
}

fn read_line(from: impl BufRead, limit: usize) -> io::Result<HiddenInput> {
    // Allocated at once, because a growing buffer would leave copies of parts of the key.
    let mut line = Vec::with_capacity(limit);
    for byte in from.bytes() {
        match byte? {
            b'\r' | b'\n' | CTRL_D => return Ok(HiddenInput::Line(line)),
            CTRL_C => return Ok(HiddenInput::Cancelled),
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => {
                // A character may have several bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            _ if line.len() == limit => {
                let text = format!("more than {limit} bytes were typed");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            byte => line.push(byte),
        }
    }
    Ok(HiddenInput::Line(line))
}

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const CTRL_U: u8 = 0x15;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    fn typed_line(keys: &str) -> Option<String> {
        match read_line(keys.as_bytes(), 10).unwrap() {
            HiddenInput::Line(bytes) => Some(String::from_utf8(bytes).unwrap()),
            HiddenInput::Cancelled => None,
        }
    }

    #[test]
    fn a_line_can_be_mended_and_given_up() {
        assert_eq!(typed_line("key\rrest").as_deref(), Some("key"));
        assert_eq!(typed_line("key").as_deref(), Some("key"));
        assert_eq!(typed_line("kee\u{7f}y\n").as_deref(), Some("key"));
        assert_eq!(typed_line("kä\u{8}ey\u{4}").as_deref(), Some("key"));
        assert_eq!(typed_line("\u{7f}wrong\u{15}key\r").as_deref(), Some("key"));
        assert_eq!(typed_line("ke\u{3}y\r"), None);
        assert!(read_line("12345678901\r".as_bytes(), 10).is_err());
    }
}
