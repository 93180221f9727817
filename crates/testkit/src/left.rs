//! What a story leaves behind: a log and its blobs, for those who read sessions (`tests/replay.rs`).
//!
//! Here: telling a story for its log, told through or killed on the way; and the recorder, which stands where the
//! driver's stands: it turns what the model said into the blob that `llm_end` names. Elsewhere: the telling (`tell`), the
//! kills (`kill`).

use std::sync::Arc;

use minke_model::{Failure as ModelFailure, ModelEvent};
use minke_pod::What;
use minke_record::{Blob, Entry};

use crate::kill::Failure;
use crate::memlog::MemLog;
use crate::story::Story;
use crate::world::{Stop, SyncWhen, World};

/// What the model said in one attempt of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    pub events: Vec<ModelEvent>,
    pub failure: Option<ModelFailure>,
}

/// Makes a recording of all the attempts of a request.
pub type Recorder = fn(&[Said]) -> Blob;

/// A session after its story.
#[derive(Debug, Clone)]
pub struct Left {
    /// Of a fork: the entries that it shares with its parent.
    pub base: Vec<Entry>,
    pub log: MemLog,
}

impl World {
    /// Blocks that have begun and not ended in a recorded reply.
    pub(crate) fn open_blocks(&self, call: u64) -> Vec<u32> {
        let mut open = Vec::new();
        let events =
            self.said.get(&call).and_then(|attempts| attempts.last()).map(|said| said.events.as_slice());
        for event in events.unwrap_or_default() {
            match event {
                ModelEvent::BlockStart { index, .. } => open.push(*index),
                ModelEvent::BlockStop { index, .. } => open.retain(|other| other != index),
                _ => {}
            }
        }
        open
    }

    /// Keeps what the model says, if somebody records it. An end is preceded by the recording so far.
    pub(crate) fn record(&mut self, call: u64, said: Result<&ModelEvent, &ModelFailure>) -> Result<(), Stop> {
        let Some(recorder) = self.recorder else { return Ok(()) };
        let attempts = self.said.entry(call).or_default();
        if attempts.last().is_none_or(|attempt| attempt.failure.is_some()) {
            attempts.push(Said::default());
        }
        let Some(attempt) = attempts.last_mut() else { return Ok(()) };
        match said {
            Ok(event) => attempt.events.push(event.clone()),
            Err(failure) => attempt.failure = Some(failure.clone()),
        }
        if matches!(said, Ok(event) if !matches!(event, ModelEvent::Done { .. })) {
            return Ok(());
        }
        let blob = Arc::new(recorder(attempts));
        self.feed(What::Model { call, event: ModelEvent::Recorded { blob } })
    }
}

/// Tells a story through and gives what it left.
pub fn left(story: &Story, sync_when: SyncWhen, recorder: Recorder) -> Result<Left, Box<Failure>> {
    crate::kill::told(story, sync_when, recorder)
}

/// Tells a story killed at every n-th point and continued, and gives what each telling left.
pub fn left_killed(story: &Story, every: usize, recorder: Recorder) -> Result<Vec<Left>, Box<Failure>> {
    crate::kill::told_killed(story, every, recorder)
}
