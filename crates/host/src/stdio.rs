//! JSON-RPC 2.0 on a pair of streams, one message a line: the same engine, for a program that starts us itself.
//!
//! Here: lines in, lines out. Elsewhere: requests, answers and subscriptions (`rpc`), what can be asked (`engine`).
//! Invariant: what is written are whole lines, however many answers are on their way
//! (`answers_are_whole_lines_however_many_are_on_their_way`).

use minke_record::Actor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use crate::engine::Engine;
use crate::rpc::Rpc;

/// The longest line that is read.
const LINE_BYTES: usize = 16 * 1024 * 1024;
/// Answers that wait to be written; who asks for more waits.
const WAITING: usize = 256;

/// Answers until `input` ends and everything that was asked is answered, or nobody reads the answers any more.
pub async fn stdio(
    engine: Engine,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    by: Actor,
) -> std::io::Result<()> {
    let (answers, waiting) = mpsc::channel(WAITING);
    let mut writer = std::pin::pin!(write(output, waiting));
    tokio::select! {
        written = &mut writer => written,
        read = listen(Rpc::new(engine, by, answers.clone()), BufReader::new(input), answers) => {
            // What was answered is written before this ends.
            writer.await?;
            read
        }
    }
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Value>,
) -> std::io::Result<()> {
    while let Some(answer) = waiting.recv().await {
        output.write_all(format!("{answer}\n").as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

async fn listen(
    mut rpc: Rpc,
    mut input: impl AsyncBufRead + Unpin,
    answers: mpsc::Sender<Value>,
) -> std::io::Result<()> {
    let read = loop {
        match line(&mut input).await {
            Ok(Line::Whole(bytes)) if bytes.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Line::Whole(bytes)) => Box::pin(rpc.message(&bytes)).await,
            Ok(Line::TooLong) => {
                let error =
                    json!({ "code": -32_600, "message": format!("a line has at most {LINE_BYTES} bytes") });
                // Nobody reads any more: then nobody waits for it either.
                drop(answers.send(json!({ "jsonrpc": "2.0", "id": null, "error": error })).await);
            }
            Ok(Line::End) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    rpc.finish().await;
    read
}

/// What was read.
enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// One line, at most so long; what is longer is skipped to its end.
async fn line(input: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Line> {
    let (mut bytes, mut too_long) = (Vec::new(), false);
    loop {
        let piece = input.fill_buf().await?;
        if piece.is_empty() {
            return Ok(match (too_long, bytes.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Whole(bytes),
            });
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(piece.len());
        if bytes.len() + taken > LINE_BYTES {
            (too_long, bytes) = (true, Vec::new());
        } else if !too_long {
            bytes.extend_from_slice(piece.get(..taken).unwrap_or_default());
        }
        input.consume(end.map_or(taken, |end| end + 1));
        if end.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Whole(bytes) });
        }
    }
}
