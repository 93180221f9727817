//! The control socket between a pod and the helper of one command. Each side notices the death of the other by its
//! close.
//!
//! Here: the frames. The pod first sends the plan and the command's descriptors, for which a spare helper waits; then
//! it may send `Kill` and `Signal`. The helper replies `Running` or an error, and finally the exit status of the
//! command. When the pod dies the socket closes, which means `Kill`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::limits::MAX_FAILURE_BYTES;

/// The number of descriptors with the first frame: plan, standard input, output and error, lock.
pub(super) const DESCRIPTOR_COUNT: usize = 5;

/// A request of the pod to the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlRequest {
    Kill,
    /// Sends a signal to the command's process group.
    Signal(i32),
}

/// A reply of the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ControlReply {
    /// The restrictions are applied and the command has been executed.
    Running,
    /// A restriction could not be applied.
    SetupFailed(String),
    /// The restrictions are applied, but the command could not be executed.
    ExecFailed(String),
    /// The kernel refused a call that would have created a set-ID file. Sent once.
    SetIdRefused,
    Exited(i32),
    Killed(i32),
}

/// A tag byte and a number: an argument, or the length of the text that follows.
const FRAME_HEAD_BYTES: usize = 5;

fn frame_head(letter: u8, number: i32) -> [u8; FRAME_HEAD_BYTES] {
    let [a, b, c, d] = number.to_le_bytes();
    [letter, a, b, c, d]
}

impl ControlRequest {
    pub(super) fn write_to(self, mut line: &UnixStream) -> io::Result<()> {
        let frame = match self {
            ControlRequest::Kill => frame_head(b'K', 0),
            ControlRequest::Signal(signal) => frame_head(b'G', signal),
        };
        line.write_all(&frame)
    }

    /// Returns the next request; `None` if the pod has closed the socket or sends an unknown frame.
    pub(super) fn read_from(mut line: &UnixStream) -> Option<ControlRequest> {
        let mut frame = [0; FRAME_HEAD_BYTES];
        line.read_exact(&mut frame).ok()?;
        let [letter, number @ ..] = frame;
        match letter {
            b'K' => Some(ControlRequest::Kill),
            b'G' => Some(ControlRequest::Signal(i32::from_le_bytes(number))),
            _ => None,
        }
    }
}

impl ControlReply {
    pub(super) fn write_to(&self, mut line: &UnixStream) -> io::Result<()> {
        let (letter, number, text) = match self {
            ControlReply::Running => (b'R', 0, ""),
            ControlReply::SetupFailed(why) => (b'B', 0, why.as_str()),
            ControlReply::ExecFailed(why) => (b'C', 0, why.as_str()),
            ControlReply::SetIdRefused => (b'I', 0, ""),
            ControlReply::Exited(code) => (b'X', *code, ""),
            ControlReply::Killed(signal) => (b'S', *signal, ""),
        };
        if matches!(letter, b'B' | b'C') {
            let kept = text.floor_char_boundary(MAX_FAILURE_BYTES);
            let text = text.get(..kept).unwrap_or_default().as_bytes();
            let length = i32::try_from(text.len()).map_err(io::Error::other)?;
            let mut frame = frame_head(letter, length).to_vec();
            frame.extend_from_slice(text);
            return line.write_all(&frame);
        }
        line.write_all(&frame_head(letter, number))
    }

    /// Removes the first complete frame from the received bytes.
    pub(super) fn decode_frame(read: &mut Vec<u8>) -> io::Result<Option<ControlReply>> {
        let Some((head, rest)) = read.split_at_checked(FRAME_HEAD_BYTES) else { return Ok(None) };
        let &[letter, a, b, c, d] = head else { return Ok(None) };
        let number = i32::from_le_bytes([a, b, c, d]);
        let length = match letter {
            b'B' | b'C' => usize::try_from(number).unwrap_or(0).min(MAX_FAILURE_BYTES),
            _ => 0,
        };
        let Some(text) = rest.get(..length) else { return Ok(None) };
        let text = || String::from_utf8_lossy(text).into_owned();
        let said = match letter {
            b'R' => ControlReply::Running,
            b'B' => ControlReply::SetupFailed(text()),
            b'C' => ControlReply::ExecFailed(text()),
            b'I' => ControlReply::SetIdRefused,
            b'X' => ControlReply::Exited(number),
            b'S' => ControlReply::Killed(number),
            other => {
                return Err(io::Error::other(format!("the sandbox helper sent an unknown frame {other}")));
            }
        };
        read.drain(..FRAME_HEAD_BYTES + length);
        Ok(Some(said))
    }
}

/// Sends at most `DESCRIPTOR_COUNT` descriptors, with one byte of data.
pub(super) fn send_descriptors<const N: usize>(
    line: &UnixStream,
    descriptors: [&OwnedFd; N],
) -> io::Result<()> {
    let borrowed = descriptors.map(|fd| fd.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_COUNT))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("no room for the descriptors of a command"));
    }
    rustix::net::sendmsg(line, &[IoSlice::new(&[DESCRIPTOR_BYTE])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// The data byte that accompanies descriptors.
pub(super) const DESCRIPTOR_BYTE: u8 = b'D';

/// Receives the descriptors of `send_descriptors`, with close-on-exec set. `None` if the peer has closed the socket.
pub(super) fn receive_descriptors(line: &UnixStream) -> io::Result<Option<[OwnedFd; DESCRIPTOR_COUNT]>> {
    let Some((_, received)) = receive_byte(line)? else { return Ok(None) };
    received.try_into().map(Some).map_err(|got: Vec<OwnedFd>| {
        io::Error::other(format!("received {} descriptors instead of {DESCRIPTOR_COUNT}", got.len()))
    })
}

/// Receives the next byte with its descriptors. `None` if the peer has closed the socket.
pub(super) fn receive_byte(line: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_COUNT))];
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
    let mut received = Vec::with_capacity(DESCRIPTOR_COUNT);
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
            ControlReply::Running,
            ControlReply::SetupFailed("mount /proc: Operation not permitted".to_owned()),
            ControlReply::ExecFailed(String::new()),
            ControlReply::SetIdRefused,
            ControlReply::Exited(255),
            ControlReply::Killed(9),
        ];
        let (near, mut far) = UnixStream::pair().unwrap();
        for frame in &said {
            frame.write_to(&near).unwrap();
        }
        drop(near);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        let mut pending = Vec::new();
        let mut seen = Vec::new();
        for byte in bytes {
            pending.push(byte);
            seen.extend(ControlReply::decode_frame(&mut pending).unwrap());
        }
        assert_eq!(seen, said);
        assert_eq!(
            ControlReply::decode_frame(&mut b"Z1234".to_vec()).map_err(|e| e.kind()),
            Err(io::ErrorKind::Other)
        );
    }

    #[test]
    fn a_long_reason_is_cut_at_a_letter() {
        let (near, mut far) = UnixStream::pair().unwrap();
        ControlReply::SetupFailed("ü".repeat(MAX_FAILURE_BYTES)).write_to(&near).unwrap();
        drop(near);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        assert_eq!(
            ControlReply::decode_frame(&mut bytes).unwrap(),
            Some(ControlReply::SetupFailed("ü".repeat(MAX_FAILURE_BYTES / 2)))
        );
    }
}
