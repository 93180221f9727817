//! Weaving: calls that follow each other, told at the same time.
//!
//! A script's blocks come one after another. Real models tell parallel calls in pieces that alternate, and a client that
//! has one place for "the call" mixes them up.
//! Invariant: nothing is added, lost or moved inside a block (`woven_calls_keep_their_pieces_in_order`).

use std::collections::VecDeque;

use minke_model::{BlockKind, ModelEvent};

use crate::scripted::Beat;

/// The beats with the pieces of neighbouring calls in turn.
pub(super) fn weave(beats: Vec<Beat>) -> Vec<Beat> {
    let mut woven = Vec::with_capacity(beats.len());
    let mut calls: Vec<VecDeque<Beat>> = Vec::new();
    let mut open = None;
    for beat in beats {
        match &beat {
            Beat::Event(ModelEvent::BlockStart { index, kind: BlockKind::ToolCall { .. } }) => {
                open = Some(*index);
                calls.push(VecDeque::from([beat]));
            }
            Beat::Event(ModelEvent::BlockStop { index, .. }) if open == Some(*index) => {
                open = None;
                calls.last_mut().expect("the call that ends has begun").push_back(beat);
            }
            _ if open.is_some() => calls.last_mut().expect("the open call has begun").push_back(beat),
            _ => {
                alternate(&mut calls, &mut woven);
                woven.push(beat);
            }
        }
    }
    alternate(&mut calls, &mut woven);
    woven
}

/// One beat of each call in turn, until all are told.
fn alternate(calls: &mut Vec<VecDeque<Beat>>, woven: &mut Vec<Beat>) {
    while calls.iter().any(|call| !call.is_empty()) {
        woven.extend(calls.iter_mut().filter_map(VecDeque::pop_front));
    }
    calls.clear();
}

#[cfg(test)]
mod tests {
    use minke_model::BlockEnd;

    use super::*;

    fn call(index: u32, pieces: &[&str]) -> Vec<Beat> {
        let kind = BlockKind::ToolCall { id: index.to_string(), name: "Read".into() };
        let mut beats = vec![Beat::Event(ModelEvent::BlockStart { index, kind })];
        let told = pieces.iter().map(|text| ModelEvent::Delta { index, text: (*text).into() });
        beats.extend(told.map(Beat::Event));
        beats.push(Beat::Event(ModelEvent::BlockStop { index, end: BlockEnd::default() }));
        beats
    }

    #[test]
    fn woven_calls_keep_their_pieces_in_order() {
        let (a, b) = (call(0, &["1", "2", "3"]), call(1, &["4"]));
        let woven = weave([a.clone(), b.clone()].concat());
        let of = |wanted: u32| {
            let mine = |beat: &&Beat| match beat {
                Beat::Event(
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
        let mut beats = call(0, &["1"]);
        beats.pop();
        assert_eq!(weave(beats.clone()), beats);
    }
}
