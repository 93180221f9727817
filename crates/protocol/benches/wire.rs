//! Measures encoding and parsing of streaming messages: the figures in `spec/02-wire.md` "Speed and load".
//!
//! Run with `cargo bench -p minke-protocol`. Each line shows the operation, the nanoseconds per operation and
//! the number of repetitions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use minke_protocol::{
    ClientRequest, Delta, Event, EventPosition, Frame, LineReader, encode_event, entry_frames,
};
use minke_record::{RunId, line};

fn main() {
    let run: RunId = "01970000-0000-7000-8000-000000000005".parse().expect("an id");
    let place = EventPosition::Live { after_seq: 41 };
    let delta = Event::TextDelta(Delta { text: " and then the \"quoted\" word\n".to_owned() });
    measure_time("encode text_delta", 200_000, || encode_event(black_box(&delta), &place, Some(run)));

    let shared: Arc<str> = encode_event(&delta, &place, Some(run));
    measure_time("share with 20 clients", 200_000, || [(); 20].map(|()| Arc::clone(black_box(&shared))));
    measure_time("read text_delta", 100_000, || Frame::parse(black_box(shared.trim_end())).expect("a frame"));

    let method = r#"{"method":"run","params":{"input":[{"kind":"text","content":"list files"}]},"id":"7"}"#;
    measure_time("read run", 100_000, || ClientRequest::parse(black_box(method)).expect("a request"));
    let status = r#"{"method":"status","id":"7"}"#;
    measure_time("read status", 100_000, || ClientRequest::parse(black_box(status)).expect("a request"));

    let text = format!(
        r#"{{"seq":8,"ts":1,"kind":"assistant_item","call":0,"item":{{"kind":"message","role":"assistant","content":[{{"kind":"text","text":"{}"}}]}},"h":"{}"}}"#,
        "word ".repeat(200),
        "0".repeat(32)
    );
    let entry = line::parse_entry(&text).expect("an entry");
    measure_time("frames of a 1 KiB entry", 100_000, || entry_frames(black_box(&entry), &text));

    let stream = shared.repeat(20_000);
    measure_time("20,000 delta lines through the codec", 20, || {
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
fn measure_time<T>(what: &str, times: u32, mut work: impl FnMut() -> T) {
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
