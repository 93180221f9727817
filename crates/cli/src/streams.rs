//! Stdin and stdout for code that waits for neither: stdin is read by a thread of its own, since a read of a terminal
//! cannot be given up; stdout is written as it is, since its only reader waits for it.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// Pieces of stdin that wait to be read.
const WAITING: usize = 16;
const PIECE_BYTES: usize = 64 * 1024;

/// Stdin, piece by piece.
pub(crate) struct Stdin {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: io::Cursor<Vec<u8>>,
}

impl Stdin {
    pub(crate) fn open() -> io::Result<Stdin> {
        let (sender, pieces) = mpsc::channel(WAITING);
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = stdin.read(&mut piece).map(|got| {
                    piece.truncate(got);
                    piece
                });
                let last = !matches!(&read, Ok(piece) if !piece.is_empty());
                if sender.blocking_send(read).is_err() || last {
                    return;
                }
            }
        })?;
        Ok(Stdin { pieces, rest: io::Cursor::default() })
    }
}

impl AsyncRead for Stdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let got = self.rest.read(buffer.initialize_unfilled())?;
            if got > 0 {
                buffer.advance(got);
                return Poll::Ready(Ok(()));
            }
            match std::task::ready!(self.pieces.poll_recv(context)) {
                Some(Ok(piece)) if !piece.is_empty() => self.rest = io::Cursor::new(piece),
                Some(Ok(_)) | None => return Poll::Ready(Ok(())),
                Some(Err(e)) => return Poll::Ready(Err(e)),
            }
        }
    }
}

/// Stdout.
pub(crate) struct Stdout;

impl AsyncWrite for Stdout {
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
