//! JSON-RPC 2.0 on a pair of streams, one message per line, for a program that starts Minke itself.
//!
//! Here: reading and writing lines. Elsewhere: requests, responses and subscriptions (`rpc`), the methods (`engine`).
//! Invariant: lines are written whole, regardless of concurrent responses
//! (`answers_are_whole_lines_however_many_are_on_their_way`).

use minke_record::Actor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use crate::engine::Engine;
use crate::rpc::RpcConnection;

/// The maximum length of a line.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// The capacity of the response queue; a client that sends more requests waits.
const ANSWER_QUEUE: usize = 256;

/// Serves until `input` ends and all responses are written, or `output` is closed.
pub async fn serve_stdio(
    engine: Engine,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    by: Actor,
) -> std::io::Result<()> {
    let (answers, waiting) = mpsc::channel(ANSWER_QUEUE);
    let mut writer = std::pin::pin!(write_answers(output, waiting));
    tokio::select! {
        written = &mut writer => written,
        read = read_requests(RpcConnection::new(engine, by, answers.clone()), BufReader::new(input), answers) => {
            // All responses are written before this returns.
            writer.await?;
            read
        }
    }
}

async fn write_answers(
    mut output: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Value>,
) -> std::io::Result<()> {
    while let Some(answer) = waiting.recv().await {
        output.write_all(format!("{answer}\n").as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

async fn read_requests(
    mut rpc: RpcConnection,
    mut input: impl AsyncBufRead + Unpin,
    answers: mpsc::Sender<Value>,
) -> std::io::Result<()> {
    let read = loop {
        match read_line(&mut input).await {
            Ok(InputLine::Whole(bytes)) if bytes.iter().all(u8::is_ascii_whitespace) => {}
            Ok(InputLine::Whole(bytes)) => Box::pin(rpc.handle_message(&bytes)).await,
            Ok(InputLine::TooLong) => {
                let error = json!({ "code": -32_600, "message": format!("a line may have at most {MAX_LINE_BYTES} bytes") });
                // The client no longer reads, so the response can be dropped.
                drop(answers.send(json!({ "jsonrpc": "2.0", "id": null, "error": error })).await);
            }
            Ok(InputLine::End) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    rpc.finish().await;
    read
}

/// The result of reading one line.
enum InputLine {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads one line; skips the rest of one that is too long.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<InputLine> {
    let (mut bytes, mut too_long) = (Vec::new(), false);
    loop {
        let piece = input.fill_buf().await?;
        if piece.is_empty() {
            return Ok(match (too_long, bytes.is_empty()) {
                (true, _) => InputLine::TooLong,
                (false, true) => InputLine::End,
                (false, false) => InputLine::Whole(bytes),
            });
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let consumed = end.unwrap_or(piece.len());
        if bytes.len() + consumed > MAX_LINE_BYTES {
            (too_long, bytes) = (true, Vec::new());
        } else if !too_long {
            bytes.extend_from_slice(piece.get(..consumed).unwrap_or_default());
        }
        input.consume(end.map_or(consumed, |end| end + 1));
        if end.is_some() {
            return Ok(if too_long { InputLine::TooLong } else { InputLine::Whole(bytes) });
        }
    }
}
