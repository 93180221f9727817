//! Every recorded answer of every scheme, through the decoder, against what the vendor's SDK read from it.
//!
//! One suite for all schemes. Fixtures are found by listing folders (`conformance/fixture.rs`); the stream contract is
//! checked while a reply is gathered (`conformance/reply.rs`); the comparison and its rules are in
//! `conformance/oracle.rs`, with a second, plain reading of the wire for what SDKs do not read (`conformance/wire.rs`).

mod common;
#[path = "conformance/fixture.rs"]
mod fixture;
#[path = "conformance/oracle.rs"]
mod oracle;
#[path = "conformance/reply.rs"]
mod reply;
#[path = "conformance/strange.rs"]
mod strange;
#[path = "conformance/wire.rs"]
mod wire;

use minke_llm::{Reason, Scheme};
use minke_model::{BlockKind, ModelEvent};

use fixture::Fixture;
use reply::{Decoded, decode, gather};

/// Random chunkings of each body that an SDK has read, and of each turn of a loop.
const CHUNKINGS: u64 = 200;
const LOOP_CHUNKINGS: u64 = 20;

/// Cuts inside events that are tried of each body, beside those between events.
const BYTE_CUTS: usize = 40;

macro_rules! for_scheme {
    ($name:ident, $scheme:expr) => {
        mod $name {
            use super::Scheme;

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

for_scheme!(anthropic, Scheme::Anthropic);
for_scheme!(openai_responses, Scheme::OpenaiResponses);
for_scheme!(openai_chat, Scheme::OpenaiChat);
for_scheme!(gemini, Scheme::Gemini);

fn what_the_sdk_read_is_what_we_read(scheme: Scheme) {
    let mut wrong = Vec::new();
    let mut used = oracle::Used::new();
    let fixtures = fixture::compared(scheme);
    for fixture in &fixtures {
        let decoded = decode(scheme, [fixture.body.as_slice()]);
        match gather(&decoded) {
            Ok(reply) => wrong.extend(named(fixture, oracle::compare(fixture, &decoded, &reply, &mut used))),
            Err(broken) => wrong.push(format!("{}: {broken}", fixture.name)),
        }
    }
    eprintln!("{scheme:?}: {} bodies compared; rules used: {used:?}", fixtures.len());
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

fn any_chunking_gives_the_same_events(scheme: Scheme) {
    let mut wrong = Vec::new();
    for fixture in fixture::all(scheme) {
        let whole = decode(scheme, [fixture.body.as_slice()]);
        if let Err(broken) = gather(&whole) {
            wrong.push(format!("{}: {broken}", fixture.name));
        }
        if decode(scheme, fixture.body.chunks(1)) != whole {
            wrong.push(format!("{}: byte by byte", fixture.name));
        }
        let mut dice = Dice::new(&fixture.name);
        let rounds = if fixture.expected.is_null() { LOOP_CHUNKINGS } else { CHUNKINGS };
        for round in 0..rounds {
            let chunks = dice.chunks(&fixture.body, round);
            if decode(scheme, chunks.iter().copied()) != whole {
                let sizes: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
                wrong.push(format!("{}: in chunks of {sizes:?}", fixture.name));
                break;
            }
        }
        for (how, body) in other_line_ends(&fixture) {
            if decode(scheme, [body.as_bytes()]) != whole
                || decode(scheme, body.as_bytes().chunks(1)) != whole
            {
                wrong.push(format!("{}: with {how}", fixture.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// The same stream with other line ends, and with a byte order mark.
fn other_line_ends(fixture: &Fixture) -> Vec<(&'static str, String)> {
    if !fixture.is_sse() {
        return Vec::new();
    }
    let plain = fixture.text().replace("\r\n", "\n");
    vec![
        ("LF", plain.clone()),
        ("CRLF", plain.replace('\n', "\r\n")),
        ("CR", plain.replace('\n', "\r")),
        ("a byte order mark", format!("\u{feff}{plain}")),
        ("comments", plain.replace("\n\n", "\n\n: still here\n\n")),
    ]
}

fn a_cut_stream_is_never_an_empty_success(scheme: Scheme) {
    let mut wrong = Vec::new();
    let mut cuts = 0;
    for fixture in fixture::all(scheme) {
        let whole = decode(scheme, [fixture.body.as_slice()]);
        let mut dice = Dice::new(&fixture.name);
        let inside = (0..BYTE_CUTS).map(|_| dice.below(fixture.body.len()));
        for at in boundaries(&fixture).into_iter().chain(inside) {
            cuts += 1;
            let cut = decode(scheme, [fixture.body.split_at(at).0]);
            if let Err(why) = cut_is_safe(&whole, &cut) {
                wrong.push(format!("{} cut at byte {at}: {why}", fixture.name));
                break;
            }
        }
    }
    eprintln!("{scheme:?}: {cuts} cuts");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A cut stream either says all that the whole one says (its last events may say nothing new), or it is a problem, and
/// then it has given exactly what the whole one gives first: finished blocks are there, open ones are open.
fn cut_is_safe(whole: &Decoded, cut: &Decoded) -> Result<(), String> {
    let reply = gather(cut)?;
    match &cut.result {
        Ok(()) => {
            let full = gather(whole)?;
            if whole.result.is_err() || reply.said() != full.said() {
                return Err(format!("a success that is not the whole reply: {:?}", reply.stop));
            }
            Ok(())
        }
        Err(problem) => {
            if whole.result.is_ok() && !matches!(problem.reason, Reason::Cut | Reason::Malformed) {
                return Err(format!("a cut is {:?}: {}", problem.reason, problem.text));
            }
            // Tokens may be told when they are known or when it is over.
            let told = |event: &&ModelEvent| !matches!(event, ModelEvent::Usage(_));
            let first = whole.events.iter().filter(told);
            if !cut.events.iter().filter(told).zip(first).all(|(cut, whole)| cut == whole) {
                let closed = reply.blocks.iter().filter(|block| block.end.is_some());
                let half = closed.filter(|block| matches!(block.kind, BlockKind::ToolCall { .. })).count();
                return Err(format!(
                    "events that the whole stream does not give first ({half} closed calls)"
                ));
            }
            Ok(())
        }
    }
}

/// Where events end, and the very beginning.
fn boundaries(fixture: &Fixture) -> Vec<usize> {
    let mut found = vec![0];
    for end in ["\n\n", "\r\n\r\n"] {
        found.extend(fixture.text().match_indices(end).map(|(at, end)| at + end.len()));
    }
    found
}

fn unknown_events_and_fields_change_nothing(scheme: Scheme) {
    let mut wrong = Vec::new();
    let mut injected = 0;
    for fixture in fixture::all(scheme) {
        let whole = decode(scheme, [fixture.body.as_slice()]);
        let with_fields = decode(scheme, [strange::fields(&fixture).as_bytes()]);
        if (&with_fields.events, with_fields.result.is_ok()) != (&whole.events, whole.result.is_ok()) {
            wrong.push(format!("{}: unknown fields", fixture.name));
        }
        if !fixture.is_sse() {
            continue;
        }
        let (body, added) = strange::events(&fixture);
        let with_events = decode(scheme, [body.as_bytes()]);
        injected += added;
        if (&with_events.events, with_events.result.is_ok()) != (&whole.events, whole.result.is_ok()) {
            wrong.push(format!("{}: unknown events", fixture.name));
        }
        // Those behind the end or behind a problem are not looked at.
        let counted = with_events.unknown.checked_sub(whole.unknown);
        if counted.is_none_or(|counted| counted > added || (added > 1 && counted == 0)) {
            wrong.push(format!("{}: {added} unknown events, {counted:?} counted", fixture.name));
        }
    }
    eprintln!("{scheme:?}: {injected} unknown events injected");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn named(fixture: &Fixture, differences: Vec<String>) -> Vec<String> {
    differences.into_iter().map(|difference| format!("{}: {difference}", fixture.name)).collect()
}

/// Repeatable chance: xorshift, from the name of the fixture.
struct Dice(u64);

impl Dice {
    fn new(seed: &str) -> Dice {
        let seed = seed.bytes().fold(0x9e37_79b9_7f4a_7c15, |seed: u64, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Dice(seed | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (limit.max(1) as u64)).expect("below a usize")
    }

    /// Small pieces, middling ones, a few large ones: by turns.
    fn chunks<'b>(&mut self, body: &'b [u8], round: u64) -> Vec<&'b [u8]> {
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
            let (chunk, more) = rest.split_at((1 + self.below(largest)).min(rest.len()));
            chunks.push(chunk);
            rest = more;
        }
        chunks
    }
}
