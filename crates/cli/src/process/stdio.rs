//! Async stdin and stdout. A separate thread reads stdin, because a blocking read of a terminal cannot be
//! cancelled. Stdout is written directly, because its only reader waits for it.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// Chunks of stdin that wait to be read.
const MAX_PENDING_CHUNKS: usize = 16;
const CHUNK_BYTES: usize = 64 * 1024;

/// Stdin as an async reader.
pub(crate) struct AsyncStdin {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    current: io::Cursor<Vec<u8>>,
}

impl AsyncStdin {
    pub(crate) fn open() -> io::Result<AsyncStdin> {
        let (sender, chunks) = mpsc::channel(MAX_PENDING_CHUNKS);
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = stdin.read(&mut chunk).map(|got| {
                    chunk.truncate(got);
                    chunk
                });
                let last = !matches!(&read, Ok(piece) if !piece.is_empty());
                if sender.blocking_send(read).is_err() || last {
                    return;
                }
            }
        })?;
        Ok(AsyncStdin { chunks, current: io::Cursor::default() })
    }
}

impl AsyncRead for AsyncStdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let got = self.current.read(buffer.initialize_unfilled())?;
            if got > 0 {
                buffer.advance(got);
                return Poll::Ready(Ok(()));
            }
            match std::task::ready!(self.chunks.poll_recv(context)) {
                Some(Ok(chunk)) if !chunk.is_empty() => self.current = io::Cursor::new(chunk),
                Some(Ok(_)) | None => return Poll::Ready(Ok(())),
                Some(Err(e)) => return Poll::Ready(Err(e)),
            }
        }
    }
}

/// Stdout as an async writer.
pub(crate) struct AsyncStdout;

impl AsyncWrite for AsyncStdout {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(io::stdout().lock().write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(io::stdout().lock().flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
