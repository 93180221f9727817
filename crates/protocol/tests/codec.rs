//! The line codec: how the bytes are cut must not change what is read.

use minke_protocol::{LineFault, LineReader, Method, Request, Run};
use proptest::prelude::*;

type Read = Vec<Result<String, LineFault>>;

fn drain(reader: &mut LineReader, read: &mut Read) {
    while let Some(line) = reader.next() {
        read.push(line.map(str::to_owned));
    }
}

fn read_in(pieces: &[&[u8]], limit: usize) -> Read {
    let mut reader = LineReader::with_limit(limit);
    let mut read = Read::new();
    for piece in pieces {
        reader.push(piece);
        drain(&mut reader, &mut read);
    }
    read
}

/// What the lines of a stream are, found the plain way.
fn lines_of(stream: &[u8], limit: usize) -> Read {
    let mut lines: Vec<&[u8]> = stream.split(|b| *b == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let mut read: Read = lines
        .into_iter()
        .filter(|line| line.len() > limit || !line.iter().all(u8::is_ascii_whitespace))
        .map(|line| match std::str::from_utf8(line) {
            _ if line.len() > limit => Err(LineFault::TooLong { limit }),
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(LineFault::NotUtf8 { at: e.valid_up_to() }),
        })
        .collect();
    // An over-long line is reported when it is too long, not when it ends.
    if rest.len() > limit {
        read.push(Err(LineFault::TooLong { limit }));
    }
    read
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
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
    fn any_cutting_gives_the_same_lines(stream in stream(), cuts in proptest::collection::vec(any::<u16>(), 0..20)) {
        let limit = 50;
        let expected = lines_of(&stream, limit);
        prop_assert_eq!(&read_in(&[&stream], limit), &expected);
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&read_in(&single, limit), &expected);
        let mut at: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % (stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&read_in(&pieces, limit), &expected);
    }

    #[test]
    fn any_bytes_as_a_line_are_a_request_or_a_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(request) = Request::parse(&text) {
            prop_assert_eq!(Request::parse(request.line().trim_end()), Ok(request));
        }
    }

    #[test]
    fn any_text_survives_the_line(text in any::<String>()) {
        let request = Request::new(Method::Run(Run::text(&text)));
        let line = request.line();
        prop_assert_eq!(line.matches('\n').count(), 1);
        prop_assert_eq!(Request::parse(line.trim_end_matches('\n')), Ok(request));
    }
}

#[test]
fn requests_cut_at_every_byte_all_arrive() {
    let golden = include_str!("golden/methods.jsonl");
    let whole: Vec<&str> = golden.lines().collect();
    for cut in 0..=golden.len() {
        let (a, b) = golden.as_bytes().split_at(cut);
        let read = read_in(&[a, b], 4096);
        assert!(
            read.iter().map(|line| line.as_deref()).eq(whole.iter().map(|line| Ok(*line))),
            "cut at {cut}"
        );
    }
}
