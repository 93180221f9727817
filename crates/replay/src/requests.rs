//! Requests: each replayed request gets its recorded reply and is compared with the original one.
//!
//! The logged hash of the request is compared with its entry. Here the wire body is built again by the real
//! code, from the recorded settings, and compared by hash.

use std::sync::Arc;

use minke_model::{MAX_IMAGE_BYTES, ModelEvent, Prompt};
use minke_record::{Blob, Kind, LlmOutcome};

use crate::ReplayError;
use crate::compare::FieldMismatch;
use crate::machine::{OpenRequest, PodMachine};
use crate::recordings::{self, AttemptEvents};
use crate::timeline::LogStep;
use crate::walk::{ReplayStop, ReplayWalk, new_difference};

impl<'l> ReplayWalk<'l> {
    /// Continues the pod: its new requests get their replies and are compared with the recorded ones.
    pub(crate) fn replay_requests(
        &mut self,
        mut machine: PodMachine,
        step: LogStep<'l>,
    ) -> Result<(), ReplayStop> {
        for (call, prompt) in std::mem::take(&mut machine.new_requests) {
            if !step.has_kind(|kind| matches!(kind, Kind::LlmCall(made) if made.call == call)) {
                continue; // one more attempt
            }
            let asked = match self.request_recording(call, step) {
                Some((attempts, blob)) => {
                    self.compare_request(&prompt, &attempts, step, call)?;
                    OpenRequest::from_tape(attempts, blob)
                }
                None => {
                    self.report.from_log += 1;
                    OpenRequest::from_log()
                }
            };
            machine.requests.insert(call, asked);
        }
        self.machine = Some(machine);
        Ok(())
    }

    /// The recording of a request, if it is usable.
    fn request_recording(&mut self, call: u64, step: LogStep<'l>) -> Option<(Vec<AttemptEvents>, Blob)> {
        let timeline = self.finder.timeline;
        let end = timeline.llm_end(call, step.at)?;
        if end.outcome == LlmOutcome::Cancelled {
            return None;
        }
        let name = end.stream_blob.as_ref()?;
        let read = self
            .finder
            .blobs
            .read_blob(name)
            .and_then(|blob| Ok((recordings::read_attempts(&blob.content)?, blob)));
        match read {
            Ok((mut attempts, blob)) => {
                if let Some(usage) = timeline.llm_usage(call, step.at) {
                    set_cost(&mut attempts, usage.cost_usd);
                }
                Some((attempts, blob))
            }
            Err(why) => {
                self.report
                    .add_note(format!("could not use the recording of request {call} (blob {name}): {why}"));
                None
            }
        }
    }

    /// Compares the request of this program with the recorded one.
    fn compare_request(
        &mut self,
        prompt: &Arc<Prompt>,
        attempts: &[AttemptEvents],
        step: LogStep<'l>,
        call: u64,
    ) -> Result<(), ReplayStop> {
        let Some(first) = attempts.iter().find(|heard| recordings::has_wire_format(&heard.head.settings))
        else {
            return Ok(());
        };
        let asked =
            step.entries.iter().find(|entry| matches!(&entry.kind, Kind::LlmCall(e) if e.call == call));
        let Some(entry) = asked else { return Ok(()) };
        let prompt = self.fill_prompt(prompt, entry.seq)?;
        let settings = &first.head.settings;
        let built =
            recordings::body_hash(&prompt, settings).unwrap_or_else(|why| format!("no request: {why}"));
        for sent in attempts.iter().filter(|heard| heard.head.settings == *settings) {
            if sent.head.request_sha256 != built {
                let mismatch = FieldMismatch {
                    field: "the body of the request (its sha256)".to_owned(),
                    log: sent.head.request_sha256.clone(),
                    here: built,
                };
                return Err(ReplayStop::Difference(new_difference(entry.seq, Some(entry), None, mismatch)));
            }
        }
        self.report.rebuilt += 1;
        Ok(())
    }

    /// The prompt with texts and images loaded from blobs.
    fn fill_prompt(&self, prompt: &Arc<Prompt>, seq: u64) -> Result<Prompt, ReplayError> {
        let mut whole = prompt.as_ref().clone();
        whole.load_blob_texts(&mut |name| self.finder.blobs.load_content(name, seq))?;
        for blob in prompt.image_blobs() {
            if let Ok(found) = self.finder.blobs.read_blob(blob)
                && found.content.len() <= MAX_IMAGE_BYTES
            {
                whole.images.insert(blob.to_owned(), found.content.into());
            }
        }
        Ok(whole)
    }
}

/// The recording contains no prices; the cost of a reply is taken from the log.
fn set_cost(attempts: &mut [AttemptEvents], cost: Option<f64>) {
    for event in attempts.iter_mut().flat_map(|heard| heard.events.iter_mut()) {
        if let ModelEvent::Usage(usage) = event {
            usage.cost_usd = cost;
        }
    }
}
