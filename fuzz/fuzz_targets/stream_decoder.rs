//! Any bytes as a provider's answer, in any scheme, cut anywhere: nothing panics, the cuts do not show, and the stream
//! contract holds: starts are numbered, pieces and stops belong to open blocks, a reply that is done has no open block,
//! `Done` is last.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the modules are taken from a crate that uses more of them")]

use libfuzzer_sys::fuzz_target;
use minke_model::{BlockKind, ModelEvent};

// Taken by path, because their crate stands on a whole HTTP stack and a fuzz target should build quickly.
#[path = "../../crates/llm/src/classify/mod.rs"]
mod classify;
#[path = "../../crates/llm/src/decode/mod.rs"]
mod decode;
#[path = "../../crates/llm/src/error.rs"]
mod problem;
#[path = "../../crates/llm/src/settings.rs"]
mod settings;

use decode::Decoder;
use problem::Problem;
use settings::Scheme;

const SCHEMES: [Scheme; 5] =
    [Scheme::Anthropic, Scheme::OpenaiResponses, Scheme::OpenaiChat, Scheme::Gemini, Scheme::Scripted];

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (which, piece, body) = input;
    let scheme = SCHEMES[usize::from(which) % SCHEMES.len()];
    let whole = read(scheme, [body].into_iter());
    assert_eq!(whole, read(scheme, body.chunks(usize::from(piece).max(1))), "{scheme:?}");
    check(&whole.0, &whole.1);
});

type Read = (Vec<ModelEvent>, Result<(), Problem>, u64);

fn read<'a>(scheme: Scheme, pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let mut decoder = Decoder::new(scheme);
    let mut events = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        result = decoder.push(piece, &mut events);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = decoder.finish(&mut events);
    }
    (events, result, decoder.unknown_events())
}

fn check(events: &[ModelEvent], result: &Result<(), Problem>) {
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
            ModelEvent::Usage(_) | ModelEvent::Unknown { .. } => {}
            ModelEvent::Tape(_) | ModelEvent::Recorded { .. } => panic!("no business of a decoder"),
        }
    }
    let done = matches!(events.last(), Some(ModelEvent::Done { .. }));
    assert_eq!(done, result.is_ok());
}
