//! The line codec: chunk boundaries do not affect the lines.

use minke_protocol::{ClientRequest, LineReadError, LineReader, Method, Run};
use proptest::prelude::*;

type ReadLines = Vec<Result<String, LineReadError>>;

fn drain_lines(reader: &mut LineReader, read: &mut ReadLines) {
    while let Some(line) = reader.next() {
        read.push(line.map(str::to_owned));
    }
}

fn read_pieces(pieces: &[&[u8]], limit: usize) -> ReadLines {
    let mut reader = LineReader::with_limit(limit);
    let mut read = ReadLines::new();
    for piece in pieces {
        reader.push(piece);
        drain_lines(&mut reader, &mut read);
    }
    read
}

/// Returns the lines of a stream by a simple method.
fn expected_lines(stream: &[u8], limit: usize) -> ReadLines {
    let mut lines: Vec<&[u8]> = stream.split(|b| *b == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let mut read: ReadLines = lines
        .into_iter()
        .filter(|line| line.len() > limit || !line.iter().all(u8::is_ascii_whitespace))
        .map(|line| match std::str::from_utf8(line) {
            _ if line.len() > limit => Err(LineReadError::TooLong { limit }),
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(LineReadError::NotUtf8 { at: e.valid_up_to() }),
        })
        .collect();
    // An over-long line is reported at the limit, not at its end.
    if rest.len() > limit {
        read.push(Err(LineReadError::TooLong { limit }));
    }
    read
}

fn byte_stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => "[ -~äß漢]{0,40}".prop_map(String::into_bytes),
        1 => Just(Vec::new()),
        1 => "[ \t\r]{0,4}".prop_map(String::into_bytes),
        1 => (60usize..200).prop_map(|n| vec![b'x'; n]),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ];
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.join(&b'\n'))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cutting_gives_the_same_lines(stream in byte_stream(), cuts in proptest::collection::vec(any::<u16>(), 0..20)) {
        let limit = 50;
        let expected = expected_lines(&stream, limit);
        prop_assert_eq!(&read_pieces(&[&stream], limit), &expected);
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&read_pieces(&single, limit), &expected);
        let mut at: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % (stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&read_pieces(&pieces, limit), &expected);
    }

    #[test]
    fn any_bytes_as_a_line_are_a_request_or_a_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(request) = ClientRequest::parse(&text) {
            prop_assert_eq!(ClientRequest::parse(request.to_line().trim_end()), Ok(request));
        }
    }

    #[test]
    fn any_text_survives_the_line(text in any::<String>()) {
        let request = ClientRequest::new(Method::Run(Run::from_text(&text)));
        let line = request.to_line();
        prop_assert_eq!(line.matches('\n').count(), 1);
        prop_assert_eq!(ClientRequest::parse(line.trim_end_matches('\n')), Ok(request));
    }
}

#[test]
fn requests_cut_at_every_byte_all_arrive() {
    let golden = include_str!("golden/methods.jsonl");
    let whole: Vec<&str> = golden.lines().collect();
    for cut in 0..=golden.len() {
        let (a, b) = golden.as_bytes().split_at(cut);
        let read = read_pieces(&[a, b], 4096);
        assert!(
            read.iter().map(|line| line.as_deref()).eq(whole.iter().map(|line| Ok(*line))),
            "cut at {cut}"
        );
    }
}
