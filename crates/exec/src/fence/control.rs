//! The line between a pod and the helper of one command: one socket, whose end is either side's death.
//!
//! Here: the frames. The pod first sends the plan and the command's descriptors, which a spare helper waits for; then it may send `Kill` and `Signal`.
//! The helper answers `Running` or why not, and at the end how the command ended. A pod that dies closes the line, and
//! a closed line means `Kill`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::limits::FAILURE_BYTES;

/// Descriptors that travel with the first frame: plan, standard input, output and error, lock.
pub(super) const SENT: usize = 5;

/// What a pod asks of a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Kill,
    /// To the command's process group.
    Signal(i32),
}

/// What a helper says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Walls stand and the command has been executed.
    Running,
    /// A wall does not stand.
    Broken(String),
    /// Walls stand, the command cannot be executed.
    Refused(String),
    /// The kernel refused the command a call that would have made a set-id file. Sent once.
    SetIdRefused,
    Exited(i32),
    Killed(i32),
}

/// One letter and a number: an argument, or the length of the text that follows.
const HEAD: usize = 5;

fn head(letter: u8, number: i32) -> [u8; HEAD] {
    let [a, b, c, d] = number.to_le_bytes();
    [letter, a, b, c, d]
}

impl Asked {
    pub(super) fn write(self, mut line: &UnixStream) -> io::Result<()> {
        let frame = match self {
            Asked::Kill => head(b'K', 0),
            Asked::Signal(signal) => head(b'G', signal),
        };
        line.write_all(&frame)
    }

    /// The next request; `None` when the pod is gone. What is not a request of ours counts as the end, too.
    pub(super) fn read(mut line: &UnixStream) -> Option<Asked> {
        let mut frame = [0; HEAD];
        line.read_exact(&mut frame).ok()?;
        let [letter, number @ ..] = frame;
        match letter {
            b'K' => Some(Asked::Kill),
            b'G' => Some(Asked::Signal(i32::from_le_bytes(number))),
            _ => None,
        }
    }
}

impl Said {
    pub(super) fn write(&self, mut line: &UnixStream) -> io::Result<()> {
        let (letter, number, text) = match self {
            Said::Running => (b'R', 0, ""),
            Said::Broken(why) => (b'B', 0, why.as_str()),
            Said::Refused(why) => (b'C', 0, why.as_str()),
            Said::SetIdRefused => (b'I', 0, ""),
            Said::Exited(code) => (b'X', *code, ""),
            Said::Killed(signal) => (b'S', *signal, ""),
        };
        if matches!(letter, b'B' | b'C') {
            let kept = text.floor_char_boundary(FAILURE_BYTES);
            let text = text.get(..kept).unwrap_or_default().as_bytes();
            let length = i32::try_from(text.len()).map_err(io::Error::other)?;
            let mut frame = head(letter, length).to_vec();
            frame.extend_from_slice(text);
            return line.write_all(&frame);
        }
        line.write_all(&head(letter, number))
    }

    /// Splits the first whole frame off what was read so far.
    pub(super) fn take(read: &mut Vec<u8>) -> io::Result<Option<Said>> {
        let Some((head, rest)) = read.split_at_checked(HEAD) else { return Ok(None) };
        let &[letter, a, b, c, d] = head else { return Ok(None) };
        let number = i32::from_le_bytes([a, b, c, d]);
        let length = match letter {
            b'B' | b'C' => usize::try_from(number).unwrap_or(0).min(FAILURE_BYTES),
            _ => 0,
        };
        let Some(text) = rest.get(..length) else { return Ok(None) };
        let text = || String::from_utf8_lossy(text).into_owned();
        let said = match letter {
            b'R' => Said::Running,
            b'B' => Said::Broken(text()),
            b'C' => Said::Refused(text()),
            b'I' => Said::SetIdRefused,
            b'X' => Said::Exited(number),
            b'S' => Said::Killed(number),
            other => {
                return Err(io::Error::other(format!("the fence's helper sent an unknown frame {other}")));
            }
        };
        read.drain(..HEAD + length);
        Ok(Some(said))
    }
}

/// Hands descriptors over, at most `SENT`, with one byte to carry them.
pub(super) fn send_descriptors<const N: usize>(
    line: &UnixStream,
    descriptors: [&OwnedFd; N],
) -> io::Result<()> {
    let borrowed = descriptors.map(|fd| fd.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("no room for the descriptors of a command"));
    }
    rustix::net::sendmsg(line, &[IoSlice::new(&[CARRIER])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// The byte that carries descriptors.
pub(super) const CARRIER: u8 = b'D';

/// The descriptors that `send_descriptors` handed over, closed on the next execution; `None` if the other side is gone.
pub(super) fn receive_descriptors(line: &UnixStream) -> io::Result<Option<[OwnedFd; SENT]>> {
    let Some((_, received)) = receive_byte(line)? else { return Ok(None) };
    received.try_into().map(Some).map_err(|got: Vec<OwnedFd>| {
        io::Error::other(format!("{} descriptors came instead of {SENT}", got.len()))
    })
}

/// The next byte with the descriptors that it carries; `None` if the other side is gone.
pub(super) fn receive_byte(line: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let heard = rustix::net::recvmsg(line, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    if heard.bytes == 0 {
        return Ok(None);
    }
    let mut received = Vec::with_capacity(SENT);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for fd in &received {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(Some((byte[0], received)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let said = [
            Said::Running,
            Said::Broken("mount /proc: Operation not permitted".to_owned()),
            Said::Refused(String::new()),
            Said::SetIdRefused,
            Said::Exited(255),
            Said::Killed(9),
        ];
        let (near, mut far) = UnixStream::pair().unwrap();
        for frame in &said {
            frame.write(&near).unwrap();
        }
        drop(near);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        let mut pending = Vec::new();
        let mut seen = Vec::new();
        for byte in bytes {
            pending.push(byte);
            seen.extend(Said::take(&mut pending).unwrap());
        }
        assert_eq!(seen, said);
        assert_eq!(Said::take(&mut b"Z1234".to_vec()).map_err(|e| e.kind()), Err(io::ErrorKind::Other));
    }

    #[test]
    fn a_long_reason_is_cut_at_a_letter() {
        let (near, mut far) = UnixStream::pair().unwrap();
        Said::Broken("ü".repeat(FAILURE_BYTES)).write(&near).unwrap();
        drop(near);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        assert_eq!(Said::take(&mut bytes).unwrap(), Some(Said::Broken("ü".repeat(FAILURE_BYTES / 2))));
    }
}
