//! The log of a story and its blobs, for tests that read sessions (`tests/replay.rs`).
//!
//! A recorder takes the place of the driver's recorder: it turns the model's events into the blob that
//! `llm_end` names. Elsewhere: running stories (`story::run`), kills (`kill_everywhere`).

use std::sync::Arc;

use minke_model::{ModelError as ModelFailure, ModelEvent};
use minke_pod::InputKind;
use minke_record::{Blob, Entry};

use crate::kill_everywhere::StoryFailure;
use crate::memory_log::MemoryLog;
use crate::story::Story;
use crate::world::{StoryStop, StoryWorld, SyncTiming};

/// The model's events in one attempt of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplyAttempt {
    pub events: Vec<ModelEvent>,
    pub failure: Option<ModelFailure>,
}

/// Makes a recording of all attempts of a request.
pub type StreamRecorder = fn(&[ReplyAttempt]) -> Blob;

/// A session after its story.
#[derive(Debug, Clone)]
pub struct StoryLog {
    /// For a fork: the entries shared with its parent.
    pub base: Vec<Entry>,
    pub log: MemoryLog,
}

impl StoryWorld {
    /// Returns the blocks of a recorded reply that have not ended.
    pub(crate) fn open_blocks(&self, call: u64) -> Vec<u32> {
        let mut open = Vec::new();
        let events = self
            .model_replies
            .get(&call)
            .and_then(|attempts| attempts.last())
            .map(|outcome| outcome.events.as_slice());
        for event in events.unwrap_or_default() {
            match event {
                ModelEvent::BlockStart { index, .. } => open.push(*index),
                ModelEvent::BlockStop { index, .. } => open.retain(|other| other != index),
                _ => {}
            }
        }
        open
    }

    /// Records the model's events if there is a recorder. Before an end it adds the recording.
    pub(crate) fn record_event(
        &mut self,
        call: u64,
        outcome: Result<&ModelEvent, &ModelFailure>,
    ) -> Result<(), StoryStop> {
        let Some(recorder) = self.recorder else { return Ok(()) };
        let attempts = self.model_replies.entry(call).or_default();
        if attempts.last().is_none_or(|attempt| attempt.failure.is_some()) {
            attempts.push(ReplyAttempt::default());
        }
        let Some(attempt) = attempts.last_mut() else { return Ok(()) };
        match outcome {
            Ok(event) => attempt.events.push(event.clone()),
            Err(failure) => attempt.failure = Some(failure.clone()),
        }
        if matches!(outcome, Ok(event) if !matches!(event, ModelEvent::Done { .. })) {
            return Ok(());
        }
        let blob = Arc::new(recorder(attempts));
        self.feed_input(InputKind::Model { call, event: ModelEvent::Recording { blob } })
    }
}

/// Runs a story and returns its log.
pub fn run_for_log(
    story: &Story,
    sync_when: SyncTiming,
    recorder: StreamRecorder,
) -> Result<StoryLog, Box<StoryFailure>> {
    crate::kill_everywhere::run_recorded(story, sync_when, recorder)
}

/// Runs a story killed at every n-th point and returns the log of each run.
pub fn run_killed_for_logs(
    story: &Story,
    every: usize,
    recorder: StreamRecorder,
) -> Result<Vec<StoryLog>, Box<StoryFailure>> {
    crate::kill_everywhere::run_recorded_killed(story, every, recorder)
}
