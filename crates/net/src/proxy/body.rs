//! Copies a request body to the server, at exactly the announced length.
//!
//! Chunks are parsed and written anew, so that server and proxy agree on the last one.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::head::BodyFraming;
use super::relay::{BUFFER_BYTES, TrafficMeter};

/// The longest size line of a chunk, including extensions.
const SIZE_LINE_BYTES: usize = 256;
/// The most bytes after the last chunk; they are dropped.
const TRAILER_BYTES: usize = 16 * 1024;
/// The most hexadecimal digits of a chunk size, so that it fits 64 bits.
const SIZE_DIGITS: usize = 15;

/// The remaining input of a client: first the bytes received with the head, then the stream.
pub(super) struct BodySource<R> {
    buffered: Vec<u8>,
    position: usize,
    reader: R,
}

impl<R: AsyncRead + Unpin> BodySource<R> {
    pub(super) fn new(buffered: Vec<u8>, reader: R) -> BodySource<R> {
        BodySource { buffered, position: 0, reader }
    }

    /// Reads at most `most` bytes into the buffer; returns 0 at the end.
    pub(super) async fn read_some(&mut self, buffer: &mut [u8], most: u64) -> io::Result<usize> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
        let room = buffer.get_mut(..most).unwrap_or_default();
        let early = self.buffered.get(self.position..).unwrap_or_default();
        if early.is_empty() {
            return self.reader.read(room).await;
        }
        let count = early.len().min(most);
        for (to, from) in room.iter_mut().zip(early) {
            *to = *from;
        }
        self.position += count;
        Ok(count)
    }

    async fn read_byte(&mut self) -> io::Result<u8> {
        let mut one = [0];
        match self.read_some(&mut one, 1).await? {
            0 => Err(unexpected_end()),
            _ => Ok(one[0]),
        }
    }

    /// Reads a line up to CR LF, which is removed.
    async fn read_line(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.read_byte().await? {
                b'\r' => {
                    return match self.read_byte().await? {
                        b'\n' => Ok(line),
                        _ => Err(invalid_data("a line of a chunk does not end with CR LF")),
                    };
                }
                b'\n' => return Err(invalid_data("a line of a chunk does not end with CR LF")),
                other if line.len() < most => line.push(other),
                _ => return Err(invalid_data("a line of a chunk is too long")),
            }
        }
    }
}

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn unexpected_end() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the body ended too early")
}

/// Copies the body of a request. Leaves the bytes after it unread.
pub(super) async fn relay_body<R, W>(
    from: &mut BodySource<R>,
    to: &mut W,
    body: BodyFraming,
    meter: &TrafficMeter,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match body {
        BodyFraming::Length(length) => relay_exactly(from, to, length, meter).await,
        BodyFraming::Chunked => relay_chunks(from, to, meter).await,
    }
}

async fn relay_exactly<R, W>(
    from: &mut BodySource<R>,
    to: &mut W,
    length: u64,
    meter: &TrafficMeter,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = length;
    while left > 0 {
        let count = from.read_some(&mut buffer, left).await?;
        let piece = buffer.get(..count).filter(|piece| !piece.is_empty()).ok_or_else(unexpected_end)?;
        to.write_all(piece).await?;
        meter.count_up(count);
        left -= count as u64;
    }
    Ok(())
}

async fn relay_chunks<R, W>(from: &mut BodySource<R>, to: &mut W, meter: &TrafficMeter) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let size = parse_chunk_size(&from.read_line(SIZE_LINE_BYTES).await?)?;
        if size == 0 {
            break;
        }
        let line = format!("{size:x}\r\n");
        to.write_all(line.as_bytes()).await?;
        meter.count_up(line.len());
        relay_exactly(from, to, size, meter).await?;
        if !from.read_line(0).await?.is_empty() {
            return Err(invalid_data("a chunk is longer than its size"));
        }
        to.write_all(b"\r\n").await?;
        meter.count_up(2);
    }
    let mut trailers = 0;
    loop {
        let line = from.read_line(SIZE_LINE_BYTES).await?;
        if line.is_empty() {
            break;
        }
        trailers += line.len();
        if trailers > TRAILER_BYTES {
            return Err(invalid_data("too many bytes follow the last chunk"));
        }
    }
    to.write_all(b"0\r\n\r\n").await?;
    meter.count_up(5);
    Ok(())
}

/// Parses the size in a chunk's first line. Text after a semicolon is dropped, because servers treat it differently.
fn parse_chunk_size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).unwrap_or_default();
    let plain = !text.is_empty() && text.len() <= SIZE_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    let size = plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    size.ok_or_else(|| invalid_data("the size of a chunk is not a number"))
}
