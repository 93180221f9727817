//! Interleaves consecutive calls.
//!
//! The blocks of a script are sequential. Real models send pieces of parallel calls in turn, which confuses a
//! client that tracks a single call. Invariant: nothing is added, lost or moved inside a block
//! (`woven_calls_keep_their_pieces_in_order`).

use std::collections::VecDeque;

use minke_model::{BlockKind, ModelEvent};

use minke_llm::StreamBeat;

/// Returns the stream with the pieces of adjacent calls in turn.
pub(crate) fn interleave_calls(beats: Vec<StreamBeat>) -> Vec<StreamBeat> {
    let mut woven = Vec::with_capacity(beats.len());
    let mut calls: Vec<VecDeque<StreamBeat>> = Vec::new();
    let mut open = None;
    for beat in beats {
        match &beat {
            StreamBeat::Event(ModelEvent::BlockStart { index, kind: BlockKind::ToolCall { .. } }) => {
                open = Some(*index);
                calls.push(VecDeque::from([beat]));
            }
            StreamBeat::Event(ModelEvent::BlockStop { index, .. }) if open == Some(*index) => {
                open = None;
                calls.last_mut().expect("the call that ends has begun").push_back(beat);
            }
            _ if open.is_some() => calls.last_mut().expect("the open call has begun").push_back(beat),
            _ => {
                interleave_beats(&mut calls, &mut woven);
                woven.push(beat);
            }
        }
    }
    interleave_beats(&mut calls, &mut woven);
    woven
}

/// Takes one event of each call in turn, until all are empty.
fn interleave_beats(calls: &mut Vec<VecDeque<StreamBeat>>, woven: &mut Vec<StreamBeat>) {
    while calls.iter().any(|call| !call.is_empty()) {
        woven.extend(calls.iter_mut().filter_map(VecDeque::pop_front));
    }
    calls.clear();
}

#[cfg(test)]
mod tests {
    use minke_model::BlockEnd;

    use super::*;

    fn call_beats(index: u32, pieces: &[&str]) -> Vec<StreamBeat> {
        let kind = BlockKind::ToolCall { id: index.to_string(), name: "Read".into() };
        let mut beats = vec![StreamBeat::Event(ModelEvent::BlockStart { index, kind })];
        let told = pieces.iter().map(|text| ModelEvent::Delta { index, text: (*text).into() });
        beats.extend(told.map(StreamBeat::Event));
        beats.push(StreamBeat::Event(ModelEvent::BlockStop { index, end: BlockEnd::default() }));
        beats
    }

    #[test]
    fn woven_calls_keep_their_pieces_in_order() {
        let (a, b) = (call_beats(0, &["1", "2", "3"]), call_beats(1, &["4"]));
        let woven = interleave_calls([a.clone(), b.clone()].concat());
        let of = |wanted: u32| {
            let mine = |beat: &&StreamBeat| match beat {
                StreamBeat::Event(
                    ModelEvent::BlockStart { index, .. }
                    | ModelEvent::Delta { index, .. }
                    | ModelEvent::BlockStop { index, .. },
                ) => *index == wanted,
                _ => false,
            };
            woven.iter().filter(mine).cloned().collect::<Vec<_>>()
        };
        assert_eq!((of(0), of(1)), (a.clone(), b.clone()));
        assert_eq!(woven[..4], [a[0].clone(), b[0].clone(), a[1].clone(), b[1].clone()]);
        assert_eq!(woven.len(), a.len() + b.len());
    }

    #[test]
    fn a_call_that_is_cut_off_stays_cut_off() {
        let mut beats = call_beats(0, &["1"]);
        beats.pop();
        assert_eq!(interleave_calls(beats.clone()), beats);
    }
}
