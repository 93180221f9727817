//! The walk: one step of the log after the other, each made again and compared.
//!
//! Here: the trying of plans, and the first difference. Elsewhere: births, visits and boots (`lives`), which plans there
//! are (`causes`), requests and their recordings (`requests`), what is equal (`compare`).

use minke_pod::{State, Written};
use minke_record::{Chain, Draft, Entry, Holder, Kind};

use crate::blobs::{Blobs, Fetch};
use crate::causes::{Look, Plan};
use crate::compare::{Comparison, Mismatch, New, Pairs, shown};
use crate::mind::{Mind, whole};
use crate::timeline::{LogStep, Timeline};
use crate::{Difference, ENTRIES, Recipe, ReplayError, Report, Session};

/// The field of a question that cannot be made again without the arguments of the call it was about.
const DIGEST: &str = "subject.digest";

pub(crate) fn replay(
    session: Session<'_>,
    recipe: &Recipe<'_>,
    fetch: Fetch<'_>,
    until: Option<u64>,
) -> Result<Report, ReplayError> {
    let last = session.entries.get(ENTRIES).map(|entry| entry.seq);
    if last.is_some_and(|last| until.is_none_or(|until| until >= last)) {
        return Err(ReplayError::TooLong);
    }
    if !matches!(session.entries.first().map(|entry| &entry.kind), Some(Kind::SessionStart(_))) {
        return Err(ReplayError::NoStart);
    }
    let (timeline, blobs) = (Timeline::new(session.entries), Blobs::new(fetch));
    let look =
        Look { timeline: &timeline, base: session.base, blobs: &blobs, recipe, pairs: Pairs::default() };
    let mut walk =
        Walk { look, mind: None, state: State::replay(session.base), report: Report::default(), until };
    for step in timeline.steps() {
        if until.is_some_and(|until| step.first.seq > until) {
            break;
        }
        if let Err(stop) = walk.step(step) {
            match stop {
                Stop::Differs(difference) => walk.report.difference = Some(*difference),
                Stop::Cannot(error) => return Err(error),
            }
            break;
        }
    }
    Ok(walk.report)
}

/// Why the walk ends before the log does.
pub(crate) enum Stop {
    Differs(Box<Difference>),
    Cannot(ReplayError),
}

impl From<ReplayError> for Stop {
    fn from(error: ReplayError) -> Stop {
        Stop::Cannot(error)
    }
}

pub(crate) struct Walk<'l> {
    pub(crate) look: Look<'l>,
    /// The pod, while one lives.
    pub(crate) mind: Option<Mind>,
    /// What the entries so far fold to, while none does.
    pub(crate) state: State,
    pub(crate) report: Report,
    until: Option<u64>,
}

impl<'l> Walk<'l> {
    fn step(&mut self, step: LogStep<'l>) -> Result<(), Stop> {
        match &step.first.kind {
            Kind::SessionStart(start) => self.born(step, start),
            Kind::Opened(opened) => {
                if let Some(mind) = self.mind.take() {
                    self.state = mind.pod.state().clone();
                }
                match opened.holder {
                    Holder::Visit => self.visited(step, opened),
                    Holder::Pod | Holder::Other(_) => {
                        let mind = Mind::new(self.state.clone());
                        let plans = self.boots(&mind, step, opened)?;
                        self.lived(mind, step, &plans)
                    }
                }
            }
            _ => {
                let Some(mind) = self.mind.take() else { return Err(nothing(step)) };
                let plans = self.look.plans(&mind, step)?;
                self.lived(mind, step, &plans)
            }
        }
    }

    /// Compares a step that no pod made, and folds it.
    pub(crate) fn wrote(&mut self, step: LogStep<'l>, written: Written) -> Result<(), Stop> {
        let Written { blobs, mut entries } = written;
        whole(&mut entries, &blobs);
        let new = self.compare(step, &entries, None).map_err(|(_, difference)| Stop::Differs(difference))?;
        self.same(step, new);
        for draft in entries {
            let Draft { seq, ts, run, kind, .. } = draft;
            self.state.apply(&Entry { seq, ts, run, more: false, kind, h: Chain::ZERO });
        }
        Ok(())
    }

    /// Tries plans on a pod until one leads to what stands in the log.
    fn lived(&mut self, mind: Mind, step: LogStep<'l>, plans: &[Plan]) -> Result<(), Stop> {
        let unknowable = self.look.unknowable(&mind, step).then_some(DIGEST);
        let mut closest: Option<(usize, Box<Difference>)> = None;
        let mut mind = Some(mind);
        for (at, plan) in plans.iter().enumerate() {
            // The last one need not be taken back.
            let last = at + 1 == plans.len();
            let Some(mut tried) = (if last { mind.take() } else { mind.clone() }) else { break };
            let made = tried.feed(plan, step.first.ts);
            match self.compare(step, &made, unknowable) {
                Ok(new) => {
                    self.same(step, new);
                    if unknowable.is_some() {
                        let seq = step.first.seq;
                        self.report.note(format!(
                            "entry {seq} asks about a client's call that was never made; its arguments are not in \
                             the log, so the digest of the question was not compared"
                        ));
                    }
                    return self.asked(tried, step);
                }
                Err((same, difference)) => {
                    if closest.as_ref().is_none_or(|(most, _)| same > *most) {
                        closest = Some((same, difference));
                    }
                }
            }
        }
        Err(closest.map_or_else(|| nothing(step), |(_, difference)| Stop::Differs(difference)))
    }

    /// The ids that the comparison has paired; else how many entries were the same, and the first that was not.
    fn compare(
        &self,
        step: LogStep<'l>,
        made: &[Draft],
        unknowable: Option<&str>,
    ) -> Result<New, (usize, Box<Difference>)> {
        let mut comparison = Comparison::new(&self.look.pairs, unknowable);
        let wanted = self.wanted(step);
        for (at, entry) in wanted.iter().enumerate() {
            let here = made.get(at);
            let result = match here {
                Some(draft) => comparison.entry(entry, draft),
                None => Err(Mismatch {
                    field: "kind".to_owned(),
                    log: entry.kind.name().to_owned(),
                    here: "nothing".to_owned(),
                }),
            };
            if let Err(mismatch) = result {
                return Err((at, difference(entry.seq, Some(entry), here, mismatch)));
            }
        }
        let whole = wanted.len() == step.entries.len();
        match made.get(wanted.len()).filter(|_| whole) {
            None => Ok(comparison.new),
            Some(more) => {
                let mismatch = Mismatch {
                    field: "kind".to_owned(),
                    log: "nothing more in this step".to_owned(),
                    here: more.kind.name().to_owned(),
                };
                Err((wanted.len(), difference(more.seq, None, Some(more), mismatch)))
            }
        }
    }

    /// The entries of a step that are to be compared.
    fn wanted(&self, step: LogStep<'l>) -> &'l [Entry] {
        let end = step.entries.iter().position(|entry| self.until.is_some_and(|until| entry.seq > until));
        step.entries.get(..end.unwrap_or(step.entries.len())).unwrap_or_default()
    }

    fn same(&mut self, step: LogStep<'l>, new: New) {
        self.look.pairs.learn(new);
        let wanted = self.wanted(step);
        self.report.entries += wanted.len() as u64;
        let requests = wanted.iter().filter(|entry| matches!(entry.kind, Kind::LlmCall(_))).count();
        self.report.requests += requests as u64;
    }
}

/// Nothing that this program knows leads to this step.
pub(crate) fn nothing(step: LogStep<'_>) -> Stop {
    let mismatch = Mismatch {
        field: "kind".to_owned(),
        log: step.first.kind.name().to_owned(),
        here: "nothing: no input that this program knows leads to this entry here".to_owned(),
    };
    Stop::Differs(difference(step.first.seq, Some(step.first), None, mismatch))
}

pub(crate) fn difference(
    seq: u64,
    log: Option<&Entry>,
    here: Option<&Draft>,
    mismatch: Mismatch,
) -> Box<Difference> {
    Box::new(Difference {
        seq,
        kind: log.map_or_else(String::new, |entry| entry.kind.name().to_owned()),
        field: mismatch.field,
        log: mismatch.log,
        replay: mismatch.here,
        log_entry: log.map_or_else(String::new, |entry| shown(&entry.kind)),
        replay_entry: here.map_or_else(String::new, |draft| shown(&draft.kind)),
    })
}
