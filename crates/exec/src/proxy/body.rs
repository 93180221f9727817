//! The body of a request on its way to the server: exactly as long as it said, not a byte more.
//!
//! Chunks are taken apart and written anew, so that server and proxy cannot differ on where the last one ends.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::carry::{BUFFER_BYTES, Meter};
use super::head::Body;

/// The longest line with the size of a chunk, extensions included.
const SIZE_LINE_BYTES: usize = 256;
/// The most that may follow the last chunk; it is dropped.
const TRAILER_BYTES: usize = 16 * 1024;
/// A chunk's size in hexadecimal digits: more would not fit 64 bits with room to count.
const SIZE_DIGITS: usize = 15;

/// What a client still has to say: first what came with its head, then what comes.
pub(super) struct Source<R> {
    early: Vec<u8>,
    at: usize,
    from: R,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(super) fn new(early: Vec<u8>, from: R) -> Source<R> {
        Source { early, at: 0, from }
    }

    /// At most `most` bytes into the buffer; none at the end.
    pub(super) async fn read(&mut self, buffer: &mut [u8], most: u64) -> io::Result<usize> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
        let room = buffer.get_mut(..most).unwrap_or_default();
        let early = self.early.get(self.at..).unwrap_or_default();
        if early.is_empty() {
            return self.from.read(room).await;
        }
        let count = early.len().min(most);
        for (to, from) in room.iter_mut().zip(early) {
            *to = *from;
        }
        self.at += count;
        Ok(count)
    }

    async fn byte(&mut self) -> io::Result<u8> {
        let mut one = [0];
        match self.read(&mut one, 1).await? {
            0 => Err(cut_short()),
            _ => Ok(one[0]),
        }
    }

    /// A line that ends with CR LF, without them.
    async fn line(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.byte().await? {
                b'\r' => {
                    return match self.byte().await? {
                        b'\n' => Ok(line),
                        _ => Err(bad("a line of a chunk does not end with CR LF")),
                    };
                }
                b'\n' => return Err(bad("a line of a chunk does not end with CR LF")),
                other if line.len() < most => line.push(other),
                _ => return Err(bad("a line of a chunk is too long")),
            }
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the body ended before its time")
}

/// Carries the body of a request. What follows it stays where it is.
pub(super) async fn carry<R, W>(from: &mut Source<R>, to: &mut W, body: Body, meter: &Meter) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match body {
        Body::Length(length) => exactly(from, to, length, meter).await,
        Body::Chunked => chunks(from, to, meter).await,
    }
}

async fn exactly<R, W>(from: &mut Source<R>, to: &mut W, length: u64, meter: &Meter) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = length;
    while left > 0 {
        let count = from.read(&mut buffer, left).await?;
        let piece = buffer.get(..count).filter(|piece| !piece.is_empty()).ok_or_else(cut_short)?;
        to.write_all(piece).await?;
        meter.count_up(count);
        left -= count as u64;
    }
    Ok(())
}

async fn chunks<R, W>(from: &mut Source<R>, to: &mut W, meter: &Meter) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let size = chunk_size(&from.line(SIZE_LINE_BYTES).await?)?;
        if size == 0 {
            break;
        }
        let line = format!("{size:x}\r\n");
        to.write_all(line.as_bytes()).await?;
        meter.count_up(line.len());
        exactly(from, to, size, meter).await?;
        if !from.line(0).await?.is_empty() {
            return Err(bad("a chunk is longer than it said"));
        }
        to.write_all(b"\r\n").await?;
        meter.count_up(2);
    }
    let mut trailers = 0;
    loop {
        let line = from.line(SIZE_LINE_BYTES).await?;
        if line.is_empty() {
            break;
        }
        trailers += line.len();
        if trailers > TRAILER_BYTES {
            return Err(bad("too much follows the last chunk"));
        }
    }
    to.write_all(b"0\r\n\r\n").await?;
    meter.count_up(5);
    Ok(())
}

/// The size in a chunk's first line. What follows a semicolon is dropped: servers disagree on it.
fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).unwrap_or_default();
    let plain = !text.is_empty() && text.len() <= SIZE_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    let size = plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    size.ok_or_else(|| bad("the size of a chunk is not a number"))
}
