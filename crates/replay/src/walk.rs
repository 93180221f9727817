//! The walk: repeats the log step by step and compares.
//!
//! Here: trying plans, and the first difference. Elsewhere: first steps, offline edits and boots
//! (`processes`), finding plans (`causes`), requests and their recordings (`requests`), equality (`compare`).

use minke_pod::{State, StepDraft};
use minke_record::{ChainHash, Draft, Entry, Holder, Kind};

use crate::blobs::{BlobReader, FetchBlob};
use crate::causes::{CauseFinder, FeedPlan};
use crate::compare::{FieldMismatch, IdMap, LearnedPairs, StepComparison, describe_kind};
use crate::machine::{PodMachine, restore_lists};
use crate::timeline::{LogStep, Timeline};
use crate::{ENTRIES, ReplayDifference, ReplayError, ReplayRecipe, ReplayReport, ReplaySession};

/// The field of an ask that cannot be reproduced without the arguments of its call.
const DIGEST_FIELD: &str = "subject.digest";

pub(crate) fn replay_session(
    session: ReplaySession<'_>,
    recipe: &ReplayRecipe<'_>,
    fetch: FetchBlob<'_>,
    until: Option<u64>,
) -> Result<ReplayReport, ReplayError> {
    let last = session.entries.get(ENTRIES).map(|entry| entry.seq);
    if last.is_some_and(|last| until.is_none_or(|until| until >= last)) {
        return Err(ReplayError::TooLong);
    }
    if !matches!(session.entries.first().map(|entry| &entry.kind), Some(Kind::SessionStart(_))) {
        return Err(ReplayError::MissingStart);
    }
    let (timeline, blobs) = (Timeline::new(session.entries), BlobReader::new(fetch));
    let finder = CauseFinder {
        timeline: &timeline,
        base: session.base,
        blobs: &blobs,
        recipe,
        pairs: IdMap::default(),
    };
    let mut walk = ReplayWalk {
        finder,
        machine: None,
        state: State::replay(session.base),
        report: ReplayReport::default(),
        until,
    };
    for step in timeline.steps() {
        if until.is_some_and(|until| step.first.seq > until) {
            break;
        }
        if let Err(stop) = walk.replay_step(step) {
            match stop {
                ReplayStop::Difference(difference) => walk.report.difference = Some(*difference),
                ReplayStop::Failed(error) => return Err(error),
            }
            break;
        }
    }
    Ok(walk.report)
}

/// The reason why the walk ends before the log does.
pub(crate) enum ReplayStop {
    Difference(Box<ReplayDifference>),
    Failed(ReplayError),
}

impl From<ReplayError> for ReplayStop {
    fn from(error: ReplayError) -> ReplayStop {
        ReplayStop::Failed(error)
    }
}

pub(crate) struct ReplayWalk<'l> {
    pub(crate) finder: CauseFinder<'l>,
    /// The pod, while one is running.
    pub(crate) machine: Option<PodMachine>,
    /// The state folded from the entries so far, while no pod is running.
    pub(crate) state: State,
    pub(crate) report: ReplayReport,
    until: Option<u64>,
}

impl<'l> ReplayWalk<'l> {
    fn replay_step(&mut self, step: LogStep<'l>) -> Result<(), ReplayStop> {
        match &step.first.kind {
            Kind::SessionStart(start) => self.replay_first_step(step, start),
            Kind::Opened(opened) => {
                if let Some(machine) = self.machine.take() {
                    self.state = machine.pod.state().clone();
                }
                match opened.holder {
                    Holder::Visit => self.replay_offline_step(step, opened),
                    Holder::Pod | Holder::Other(_) => {
                        let machine = PodMachine::new(self.state.clone());
                        let plans = self.plan_boot(&machine, step, opened)?;
                        self.replay_pod_step(machine, step, &plans)
                    }
                }
            }
            _ => {
                let Some(mind) = self.machine.take() else { return Err(no_cause(step)) };
                let plans = self.finder.step_plans(&mind, step)?;
                self.replay_pod_step(mind, step, &plans)
            }
        }
    }

    /// Compares a step that was written without a pod, and folds it.
    pub(crate) fn compare_offline_step(
        &mut self,
        step: LogStep<'l>,
        written: StepDraft,
    ) -> Result<(), ReplayStop> {
        let StepDraft { blobs, mut entries } = written;
        restore_lists(&mut entries, &blobs);
        let new = self
            .compare_step(step, &entries, None)
            .map_err(|(_, difference)| ReplayStop::Difference(difference))?;
        self.accept_step(step, new);
        for draft in entries {
            let Draft { seq, ts, run, kind, .. } = draft;
            self.state.apply_entry(&Entry { seq, ts, run, more: false, kind, h: ChainHash::ZERO });
        }
        Ok(())
    }

    /// Tries plans on a pod until one produces the logged step.
    fn replay_pod_step(
        &mut self,
        machine: PodMachine,
        step: LogStep<'l>,
        plans: &[FeedPlan],
    ) -> Result<(), ReplayStop> {
        let unknowable = self.finder.is_unknowable(&machine, step).then_some(DIGEST_FIELD);
        let mut closest: Option<(usize, Box<ReplayDifference>)> = None;
        let mut mind = Some(machine);
        for (at, plan) in plans.iter().enumerate() {
            // The last plan needs no copy for a rollback.
            let last = at + 1 == plans.len();
            let Some(mut tried) = (if last { mind.take() } else { mind.clone() }) else { break };
            let made = tried.feed_plan(plan, step.first.ts);
            match self.compare_step(step, &made, unknowable) {
                Ok(new) => {
                    self.accept_step(step, new);
                    if unknowable.is_some() {
                        let seq = step.first.seq;
                        self.report.add_note(format!(
                            "entry {seq} is an ask about a client's call that was never dispatched; its arguments are not in \
                             the log, so the digest of the ask was not compared"
                        ));
                    }
                    return self.replay_requests(tried, step);
                }
                Err((same, difference)) => {
                    if closest.as_ref().is_none_or(|(most, _)| same > *most) {
                        closest = Some((same, difference));
                    }
                }
            }
        }
        Err(closest.map_or_else(|| no_cause(step), |(_, difference)| ReplayStop::Difference(difference)))
    }

    /// The ids paired by the comparison; on a mismatch the number of equal entries and the first difference.
    fn compare_step(
        &self,
        step: LogStep<'l>,
        made: &[Draft],
        unknowable: Option<&str>,
    ) -> Result<LearnedPairs, (usize, Box<ReplayDifference>)> {
        let mut comparison = StepComparison::new(&self.finder.pairs, unknowable);
        let wanted = self.compared_entries(step);
        for (at, entry) in wanted.iter().enumerate() {
            let replayed = made.get(at);
            let result = match replayed {
                Some(draft) => comparison.compare_entry(entry, draft),
                None => Err(FieldMismatch {
                    field: "kind".to_owned(),
                    log: entry.kind.name().to_owned(),
                    here: "nothing".to_owned(),
                }),
            };
            if let Err(mismatch) = result {
                return Err((at, new_difference(entry.seq, Some(entry), replayed, mismatch)));
            }
        }
        let whole = wanted.len() == step.entries.len();
        match made.get(wanted.len()).filter(|_| whole) {
            None => Ok(comparison.learned),
            Some(more) => {
                let mismatch = FieldMismatch {
                    field: "kind".to_owned(),
                    log: "nothing more in this step".to_owned(),
                    here: more.kind.name().to_owned(),
                };
                Err((wanted.len(), new_difference(more.seq, None, Some(more), mismatch)))
            }
        }
    }

    /// The entries of a step that are compared.
    fn compared_entries(&self, step: LogStep<'l>) -> &'l [Entry] {
        let end = step.entries.iter().position(|entry| self.until.is_some_and(|until| entry.seq > until));
        step.entries.get(..end.unwrap_or(step.entries.len())).unwrap_or_default()
    }

    fn accept_step(&mut self, step: LogStep<'l>, new: LearnedPairs) {
        self.finder.pairs.add_learned(new);
        let wanted = self.compared_entries(step);
        self.report.entries += wanted.len() as u64;
        let requests = wanted.iter().filter(|entry| matches!(entry.kind, Kind::LlmCall(_))).count();
        self.report.requests += requests as u64;
    }
}

/// No known input leads to this step.
pub(crate) fn no_cause(step: LogStep<'_>) -> ReplayStop {
    let mismatch = FieldMismatch {
        field: "kind".to_owned(),
        log: step.first.kind.name().to_owned(),
        here: "nothing: no input known to this program leads to this entry".to_owned(),
    };
    ReplayStop::Difference(new_difference(step.first.seq, Some(step.first), None, mismatch))
}

pub(crate) fn new_difference(
    seq: u64,
    log: Option<&Entry>,
    replayed: Option<&Draft>,
    mismatch: FieldMismatch,
) -> Box<ReplayDifference> {
    Box::new(ReplayDifference {
        seq,
        kind: log.map_or_else(String::new, |entry| entry.kind.name().to_owned()),
        field: mismatch.field,
        log: mismatch.log,
        replay: mismatch.here,
        log_entry: log.map_or_else(String::new, |entry| describe_kind(&entry.kind)),
        replay_entry: replayed.map_or_else(String::new, |draft| describe_kind(&draft.kind)),
    })
}
