//! Requests: each one that the pod makes again gets its recorded reply, and is compared with what was sent.
//!
//! The hash of the request stands in the log and is compared with its entry. Here the body on the wire is built again by
//! the real code, from the settings that the recording kept, and compared byte for byte (by its hash).

use std::sync::Arc;

use minke_model::{IMAGE_BYTES, ModelEvent, Prompt};
use minke_record::{Blob, Kind, LlmOutcome};

use crate::ReplayError;
use crate::again::{Stop, Walk, difference};
use crate::compare::Mismatch;
use crate::mind::{Asked, Mind};
use crate::recorded::{self, Heard};
use crate::timeline::LogStep;

impl<'l> Walk<'l> {
    /// The pod lives on. Requests that it has made get their replies, and are compared with what was sent.
    pub(crate) fn asked(&mut self, mut mind: Mind, step: LogStep<'l>) -> Result<(), Stop> {
        for (call, prompt) in std::mem::take(&mut mind.asked) {
            if !step.has(|kind| matches!(kind, Kind::LlmCall(made) if made.call == call)) {
                continue; // one more attempt
            }
            let asked = match self.recording(call, step) {
                Some((heard, blob)) => {
                    self.same_request(&prompt, &heard, step, call)?;
                    Asked::from_tape(heard, blob)
                }
                None => {
                    self.report.from_log += 1;
                    Asked::from_log()
                }
            };
            mind.requests.insert(call, asked);
        }
        self.mind = Some(mind);
        Ok(())
    }

    /// The recording of a request, if there is one that can be used.
    fn recording(&mut self, call: u64, step: LogStep<'l>) -> Option<(Vec<Heard>, Blob)> {
        let timeline = self.look.timeline;
        let end = timeline.llm_end(call, step.at)?;
        if end.outcome == LlmOutcome::Cancelled {
            return None;
        }
        let name = end.stream_blob.as_ref()?;
        let read = self.look.blobs.get(name).and_then(|blob| Ok((recorded::heard(&blob.content)?, blob)));
        match read {
            Ok((mut heard, blob)) => {
                if let Some(usage) = timeline.llm_usage(call, step.at) {
                    price(&mut heard, usage.cost_usd);
                }
                Some((heard, blob))
            }
            Err(why) => {
                self.report
                    .note(format!("the recording of request {call} (blob {name}) cannot be used: {why}"));
                None
            }
        }
    }

    /// Whether this program would send what was sent.
    fn same_request(
        &mut self,
        prompt: &Arc<Prompt>,
        heard: &[Heard],
        step: LogStep<'l>,
        call: u64,
    ) -> Result<(), Stop> {
        let Some(first) = heard.iter().find(|heard| recorded::has_wire(&heard.head.settings)) else {
            return Ok(());
        };
        let asked =
            step.entries.iter().find(|entry| matches!(&entry.kind, Kind::LlmCall(e) if e.call == call));
        let Some(entry) = asked else { return Ok(()) };
        let prompt = self.filled(prompt, entry.seq)?;
        let settings = &first.head.settings;
        let built = recorded::body_hash(&prompt, settings).unwrap_or_else(|why| format!("no request: {why}"));
        for sent in heard.iter().filter(|heard| heard.head.settings == *settings) {
            if sent.head.request_sha256 != built {
                let mismatch = Mismatch {
                    field: "the body of the request (its sha256)".to_owned(),
                    log: sent.head.request_sha256.clone(),
                    here: built,
                };
                return Err(Stop::Differs(difference(entry.seq, Some(entry), None, mismatch)));
            }
        }
        self.report.rebuilt += 1;
        Ok(())
    }

    /// The prompt with the texts and images that lie in blobs.
    fn filled(&self, prompt: &Arc<Prompt>, seq: u64) -> Result<Prompt, ReplayError> {
        let mut whole = prompt.as_ref().clone();
        whole.fetch_texts(&mut |name| self.look.blobs.content(name, seq))?;
        for blob in prompt.image_blobs() {
            if let Ok(found) = self.look.blobs.get(blob)
                && found.content.len() <= IMAGE_BYTES
            {
                whole.images.insert(blob.to_owned(), found.content.into());
            }
        }
        Ok(whole)
    }
}

/// Prices are the catalog's of that day, not the recording's: what a reply cost is taken from the log.
fn price(heard: &mut [Heard], cost: Option<f64>) {
    for event in heard.iter_mut().flat_map(|heard| heard.events.iter_mut()) {
        if let ModelEvent::Usage(usage) = event {
            usage.cost_usd = cost;
        }
    }
}
