//! Any bytes, cut anywhere: the codec gives the same lines as when they come at once, and every line is a request, a
//! frame or a refusal. Nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minke_protocol::{Frame, LineFault, LineReader, Request};

/// Short, so that over-long lines are found often.
const LIMIT: usize = 512;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, stream) = input;
    let whole = read(stream.chunks(stream.len().max(1)));
    let pieces = read(stream.chunks(usize::from(piece).max(1)));
    assert_eq!(whole, pieces);
    for line in whole.into_iter().flatten() {
        if let Ok(request) = Request::parse(&line) {
            assert_eq!(Request::parse(request.line().trim_end_matches('\n')), Ok(request));
        }
        if let Ok(frame) = Frame::parse(&line) {
            assert!(Frame::parse(frame.line().trim_end_matches('\n')).is_ok());
        }
    }
});

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Result<String, LineFault>> {
    let mut reader = LineReader::with_limit(LIMIT);
    let mut lines = Vec::new();
    for piece in pieces {
        reader.push(piece);
        while let Some(line) = reader.next() {
            lines.push(line.map(str::to_owned));
        }
    }
    lines
}
