//! How long it takes to write and to read what streams: figures for `spec/02-wire.md` "Speed and load".
//!
//! Run with `cargo bench -p minke-protocol`. Each line: what, nanoseconds for one, how many.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use minke_protocol::{Delta, Event, Frame, LineReader, Place, Request, encode, frames};
use minke_record::{RunId, line};

fn main() {
    let run: RunId = "01970000-0000-7000-8000-000000000005".parse().expect("an id");
    let place = Place::Live { after_seq: 41 };
    let delta = Event::TextDelta(Delta { text: " and then the \"quoted\" word\n".to_owned() });
    time("encode text_delta", 200_000, || encode(black_box(&delta), &place, Some(run)));

    let shared: Arc<str> = encode(&delta, &place, Some(run));
    time("share with 20 clients", 200_000, || [(); 20].map(|()| Arc::clone(black_box(&shared))));
    time("read text_delta", 100_000, || Frame::parse(black_box(shared.trim_end())).expect("a frame"));

    let method = r#"{"method":"run","params":{"input":[{"kind":"text","content":"list files"}]},"id":"7"}"#;
    time("read run", 100_000, || Request::parse(black_box(method)).expect("a request"));
    let status = r#"{"method":"status","id":"7"}"#;
    time("read status", 100_000, || Request::parse(black_box(status)).expect("a request"));

    let text = format!(
        r#"{{"seq":8,"ts":1,"kind":"assistant_item","call":0,"item":{{"kind":"message","role":"assistant","content":[{{"kind":"text","text":"{}"}}]}},"h":"{}"}}"#,
        "word ".repeat(200),
        "0".repeat(32)
    );
    let entry = line::parse(&text).expect("an entry");
    time("frames of a 1 KiB entry", 100_000, || frames(black_box(&entry), &text));

    let stream = shared.repeat(20_000);
    time("20,000 delta lines through the codec", 20, || {
        let mut reader = LineReader::new();
        let mut lines = 0;
        for piece in stream.as_bytes().chunks(64 * 1024) {
            reader.push(piece);
            while let Some(line) = reader.next() {
                lines += usize::from(line.is_ok());
            }
        }
        assert_eq!(lines, 20_000);
    });
}

#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark looks at the clock and prints"
)]
fn time<T>(what: &str, times: u32, mut work: impl FnMut() -> T) {
    for _ in 0..times / 10 {
        black_box(work());
    }
    let start = Instant::now();
    for _ in 0..times {
        black_box(work());
    }
    let each = start.elapsed().as_nanos() / u128::from(times);
    println!("{what}: {each} ns ({times} times)");
}
