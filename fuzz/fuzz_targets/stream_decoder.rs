//! Any bytes as a provider's response, in any scheme, cut anywhere: nothing panics, the cuts change nothing, and the stream
//! keeps its contract: starts have increasing numbers, pieces and stops belong to open blocks, a complete reply has no open
//! block, `Done` is last.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the modules belong to a crate that uses more of them")]

use libfuzzer_sys::fuzz_target;
use minke_model::{BlockKind, ModelEvent};

// Included by path, because their crate depends on an HTTP stack and a fuzz target should build quickly.
#[path = "../../crates/llm/src/classify/mod.rs"]
mod classify;
#[path = "../../crates/llm/src/decode/mod.rs"]
mod decode;
#[path = "../../crates/llm/src/error.rs"]
mod error;
#[path = "../../crates/llm/src/settings.rs"]
mod settings;

use decode::ReplyDecoder;
use error::ProviderError;
use settings::WireScheme;

const SCHEMES: [WireScheme; 5] = [
    WireScheme::Anthropic,
    WireScheme::OpenaiResponses,
    WireScheme::OpenaiChat,
    WireScheme::Gemini,
    WireScheme::Scripted,
];

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (which, piece, body) = input;
    let scheme = SCHEMES[usize::from(which) % SCHEMES.len()];
    let whole = decode_pieces(scheme, [body].into_iter());
    assert_eq!(whole, decode_pieces(scheme, body.chunks(usize::from(piece).max(1))), "{scheme:?}");
    check_contract(&whole.0, &whole.1);
});

type DecodedReply = (Vec<ModelEvent>, Result<(), ProviderError>, u64);

fn decode_pieces<'a>(scheme: WireScheme, pieces: impl Iterator<Item = &'a [u8]>) -> DecodedReply {
    let mut decoder = ReplyDecoder::new(scheme);
    let mut events = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        result = decoder.push_bytes(piece, &mut events);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = decoder.finish(&mut events);
    }
    (events, result, decoder.unknown_events())
}

fn check_contract(events: &[ModelEvent], result: &Result<(), ProviderError>) {
    let mut open: Vec<bool> = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    let at = |index: u32| usize::try_from(index).expect("32 bits");
    for (number, event) in events.iter().enumerate() {
        match event {
            ModelEvent::BlockStart { index, kind } => {
                assert_eq!(at(*index), open.len());
                open.push(true);
                if let BlockKind::ToolCall { id, .. } = kind {
                    assert!(!ids.contains(&id.as_str()), "{id} twice");
                    ids.push(id);
                }
            }
            ModelEvent::Delta { index, text } => assert!(open[at(*index)] && !text.is_empty()),
            ModelEvent::BlockStop { index, .. } => assert!(std::mem::replace(&mut open[at(*index)], false)),
            ModelEvent::Done { .. } => {
                assert_eq!(number + 1, events.len());
                assert!(!open.contains(&true));
            }
            ModelEvent::Usage(_) | ModelEvent::Unknown { .. } | ModelEvent::StopDetail { .. } => {}
            ModelEvent::RecordingPart(_) | ModelEvent::Recording { .. } => panic!("a decoder records nothing"),
        }
    }
    let done = matches!(events.last(), Some(ModelEvent::Done { .. }));
    assert_eq!(done, result.is_ok());
}
