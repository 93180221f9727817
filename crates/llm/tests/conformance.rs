//! Decodes every recorded response of every scheme and compares it with the result of the vendor's SDK.
//!
//! One suite for all schemes. Fixtures are found by listing directories (`conformance/fixture.rs`); the
//! stream contract is checked while a reply is gathered (`conformance/reply.rs`); the comparison and its
//! exceptions are in `conformance/oracle.rs`, with a second, simple parser of the wire for data that SDKs do
//! not read (`conformance/wire.rs`).

mod common;
#[path = "conformance/fixture.rs"]
mod fixture;
#[path = "conformance/strange.rs"]
mod mutations;
#[path = "conformance/oracle.rs"]
mod oracle;
#[path = "conformance/reply.rs"]
mod reply;
#[path = "conformance/wire.rs"]
mod wire_facts;

use minke_llm::{ProviderErrorKind, WireScheme};
use minke_model::{BlockKind, ModelEvent};

use fixture::RecordedResponse;
use reply::{DecodedStream, decode_chunks, gather_reply};

/// Random chunkings of each body with an SDK result, and of each turn of a loop.
const BODY_CHUNKINGS: u64 = 200;
const LOOP_CHUNKINGS: u64 = 20;

/// Cuts inside events that are tested for each body, in addition to those between events.
const MAX_BYTE_CUTS: usize = 40;

macro_rules! for_scheme {
    ($name:ident, $scheme:expr) => {
        mod $name {
            use super::WireScheme;

            #[test]
            fn what_the_sdk_read_is_what_we_read() {
                super::what_the_sdk_read_is_what_we_read($scheme);
            }

            #[test]
            fn any_chunking_gives_the_same_events() {
                super::any_chunking_gives_the_same_events($scheme);
            }

            #[test]
            fn a_cut_stream_is_never_an_empty_success() {
                super::a_cut_stream_is_never_an_empty_success($scheme);
            }

            #[test]
            fn unknown_events_and_fields_change_nothing() {
                super::unknown_events_and_fields_change_nothing($scheme);
            }
        }
    };
}

for_scheme!(anthropic, WireScheme::Anthropic);
for_scheme!(openai_responses, WireScheme::OpenaiResponses);
for_scheme!(openai_chat, WireScheme::OpenaiChat);
for_scheme!(gemini, WireScheme::Gemini);

fn what_the_sdk_read_is_what_we_read(scheme: WireScheme) {
    let mut wrong = Vec::new();
    let mut used = oracle::ExceptionCounts::new();
    let fixtures = fixture::responses_with_expectation(scheme);
    for fixture in &fixtures {
        let decoded = decode_chunks(scheme, [fixture.body.as_slice()]);
        match gather_reply(&decoded) {
            Ok(reply) => wrong.extend(prefix_fixture_name(
                fixture,
                oracle::compare_reply(fixture, &decoded, &reply, &mut used),
            )),
            Err(broken) => wrong.push(format!("{}: {broken}", fixture.name)),
        }
    }
    eprintln!("{scheme:?}: {} bodies compared; rules used: {used:?}", fixtures.len());
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

fn any_chunking_gives_the_same_events(scheme: WireScheme) {
    let mut wrong = Vec::new();
    for fixture in fixture::all_responses(scheme) {
        let whole = decode_chunks(scheme, [fixture.body.as_slice()]);
        if let Err(broken) = gather_reply(&whole) {
            wrong.push(format!("{}: {broken}", fixture.name));
        }
        if decode_chunks(scheme, fixture.body.chunks(1)) != whole {
            wrong.push(format!("{}: byte by byte", fixture.name));
        }
        let mut dice = TestRng::new(&fixture.name);
        let rounds = if fixture.expected.is_null() { LOOP_CHUNKINGS } else { BODY_CHUNKINGS };
        for round in 0..rounds {
            let chunks = dice.random_chunks(&fixture.body, round);
            if decode_chunks(scheme, chunks.iter().copied()) != whole {
                let sizes: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
                wrong.push(format!("{}: in chunks of {sizes:?}", fixture.name));
                break;
            }
        }
        for (how, body) in line_end_variants(&fixture) {
            if decode_chunks(scheme, [body.as_bytes()]) != whole
                || decode_chunks(scheme, body.as_bytes().chunks(1)) != whole
            {
                wrong.push(format!("{}: with {how}", fixture.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the stream with other line ends and with a byte order mark.
fn line_end_variants(fixture: &RecordedResponse) -> Vec<(&'static str, String)> {
    if !fixture.is_sse() {
        return Vec::new();
    }
    let plain = fixture.body_text().replace("\r\n", "\n");
    vec![
        ("LF", plain.clone()),
        ("CRLF", plain.replace('\n', "\r\n")),
        ("CR", plain.replace('\n', "\r")),
        ("a byte order mark", format!("\u{feff}{plain}")),
        ("comments", plain.replace("\n\n", "\n\n: still here\n\n")),
    ]
}

fn a_cut_stream_is_never_an_empty_success(scheme: WireScheme) {
    let mut wrong = Vec::new();
    let mut cuts = 0;
    for fixture in fixture::all_responses(scheme) {
        let whole = decode_chunks(scheme, [fixture.body.as_slice()]);
        let mut dice = TestRng::new(&fixture.name);
        let inside = (0..MAX_BYTE_CUTS).map(|_| dice.next_below(fixture.body.len()));
        for at in event_boundaries(&fixture).into_iter().chain(inside) {
            cuts += 1;
            let cut = decode_chunks(scheme, [fixture.body.split_at(at).0]);
            if let Err(why) = check_cut(&whole, &cut) {
                wrong.push(format!("{} cut at byte {at}: {why}", fixture.name));
                break;
            }
        }
    }
    eprintln!("{scheme:?}: {cuts} cuts");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks a cut stream: either it is complete (its last events may be redundant), or it is an error after
/// exactly the first events of the complete stream. Finished blocks are present, open ones are open.
fn check_cut(whole: &DecodedStream, cut: &DecodedStream) -> Result<(), String> {
    let reply = gather_reply(cut)?;
    match &cut.result {
        Ok(()) => {
            let full = gather_reply(whole)?;
            if whole.result.is_err() || reply.final_content() != full.final_content() {
                return Err(format!("success without the complete reply: {:?}", reply.stop));
            }
            Ok(())
        }
        Err(problem) => {
            if whole.result.is_ok()
                && !matches!(problem.kind, ProviderErrorKind::Interrupted | ProviderErrorKind::Malformed)
            {
                return Err(format!("a cut is {:?}: {}", problem.kind, problem.text));
            }
            // The usage may be sent when it is known or at the end.
            let told = |event: &&ModelEvent| !matches!(event, ModelEvent::Usage(_));
            let first = whole.events.iter().filter(told);
            if !cut.events.iter().filter(told).zip(first).all(|(cut, whole)| cut == whole) {
                let closed = reply.blocks.iter().filter(|block| block.end.is_some());
                let half = closed.filter(|block| matches!(block.kind, BlockKind::ToolCall { .. })).count();
                return Err(format!(
                    "events that the complete stream does not start with ({half} closed calls)"
                ));
            }
            Ok(())
        }
    }
}

/// Returns the ends of all events, and 0.
fn event_boundaries(fixture: &RecordedResponse) -> Vec<usize> {
    let mut found = vec![0];
    for end in ["\n\n", "\r\n\r\n"] {
        found.extend(fixture.body_text().match_indices(end).map(|(at, end)| at + end.len()));
    }
    found
}

fn unknown_events_and_fields_change_nothing(scheme: WireScheme) {
    let mut wrong = Vec::new();
    let mut injected = 0;
    for fixture in fixture::all_responses(scheme) {
        let whole = decode_chunks(scheme, [fixture.body.as_slice()]);
        let with_fields = decode_chunks(scheme, [mutations::with_unknown_fields(&fixture).as_bytes()]);
        if (&with_fields.events, with_fields.result.is_ok()) != (&whole.events, whole.result.is_ok()) {
            wrong.push(format!("{}: unknown fields", fixture.name));
        }
        if !fixture.is_sse() {
            continue;
        }
        let (body, added) = mutations::with_unknown_events(&fixture);
        let with_events = decode_chunks(scheme, [body.as_bytes()]);
        injected += added;
        if (&with_events.events, with_events.result.is_ok()) != (&whole.events, whole.result.is_ok()) {
            wrong.push(format!("{}: unknown events", fixture.name));
        }
        // Events after the end or after an error are ignored.
        let counted = with_events.unknown.checked_sub(whole.unknown);
        if counted.is_none_or(|counted| counted > added || (added > 1 && counted == 0)) {
            wrong.push(format!("{}: {added} unknown events, {counted:?} counted", fixture.name));
        }
    }
    eprintln!("{scheme:?}: {injected} unknown events injected");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn prefix_fixture_name(fixture: &RecordedResponse, differences: Vec<String>) -> Vec<String> {
    differences.into_iter().map(|difference| format!("{}: {difference}", fixture.name)).collect()
}

/// Reproducible random numbers: xorshift, seeded with the name of the fixture.
struct TestRng(u64);

impl TestRng {
    fn new(seed: &str) -> TestRng {
        let seed = seed.bytes().fold(0x9e37_79b9_7f4a_7c15, |seed: u64, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        TestRng(seed | 1)
    }

    fn next_below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (limit.max(1) as u64)).expect("below a usize")
    }

    /// Alternates between small, medium and few large pieces.
    fn random_chunks<'b>(&mut self, body: &'b [u8], round: u64) -> Vec<&'b [u8]> {
        let largest = match round % 5 {
            0 => 7,
            1 => 64,
            2 => 512,
            3 => 4096,
            _ => body.len() / 2,
        };
        let mut chunks = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at((1 + self.next_below(largest)).min(rest.len()));
            chunks.push(chunk);
            rest = more;
        }
        chunks
    }
}
