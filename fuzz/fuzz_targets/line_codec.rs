//! Any bytes, cut anywhere: the codec returns the same lines as for the whole input, and every line is a request, a frame
//! or a refusal. Nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minke_protocol::{ClientRequest, Frame, LineReadError, LineReader};

/// Short, so that many lines are too long.
const LIMIT: usize = 512;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, stream) = input;
    let whole = read_lines(stream.chunks(stream.len().max(1)));
    let pieces = read_lines(stream.chunks(usize::from(piece).max(1)));
    assert_eq!(whole, pieces);
    for line in whole.into_iter().flatten() {
        if let Ok(request) = ClientRequest::parse(&line) {
            assert_eq!(ClientRequest::parse(request.to_line().trim_end_matches('\n')), Ok(request));
        }
        if let Ok(frame) = Frame::parse(&line) {
            assert!(Frame::parse(frame.to_line().trim_end_matches('\n')).is_ok());
        }
    }
});

fn read_lines<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Result<String, LineReadError>> {
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
