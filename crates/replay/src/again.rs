//! The walk: one step of the log after the other, each made again and compared.
//!
//! Here: births, visits and boots, the trying of plans, the account of requests. Elsewhere: which plans there are
//! (`causes`), what is equal (`compare`).

use std::path::Path;
use std::sync::Arc;

use minke_model::{ModelEvent, Prompt};
use minke_pod::{
    Boot, Forking, Moment, NewSession, State, Task, Visit, Visitor, What, Written, fork, new_session, visit,
};
use minke_record::{
    Actor, AskId, Chain, Content, Draft, Entry, Holder, Item, Kind, LlmOutcome, Opened, PodName, Route,
    SessionStart, StateWord, Text,
};
use uuid::Uuid;

use crate::blobs::{Blobs, Fetch};
use crate::causes::{Look, Plan};
use crate::compare::{Comparison, Mismatch, Pairs, shown};
use crate::mind::{Asked, Mind, whole};
use crate::recorded::{self, Heard};
use crate::timeline::{LogStep, Timeline};
use crate::{Difference, ENTRIES, Recipe, ReplayError, Report, Session};

/// A pod whose name was taken is numbered; so many numbers are looked at.
const NUMBERS: usize = 100;
/// The longest name of a pod.
const NAME_BYTES: usize = 40;
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
enum Stop {
    Differs(Box<Difference>),
    Cannot(ReplayError),
}

impl From<ReplayError> for Stop {
    fn from(error: ReplayError) -> Stop {
        Stop::Cannot(error)
    }
}

struct Walk<'l> {
    look: Look<'l>,
    /// The pod, while one lives.
    mind: Option<Mind>,
    /// What the entries so far fold to, while none does.
    state: State,
    report: Report,
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
                        let plans = self.boots(&mind, step, opened);
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

    /// A session's first step, by its creator or as a fork.
    fn born(&mut self, step: LogStep<'l>, start: &SessionStart) -> Result<(), Stop> {
        let at = moment(step);
        let written = match &start.from {
            Some(from) => {
                let forking = Forking {
                    session: start.session,
                    name: start.name.clone(),
                    created_by: start.created_by.clone(),
                    version: start.version.clone(),
                    from: from.clone(),
                };
                fork(&self.state, at, forking).unwrap_or_default()
            }
            None => new_session(at, self.new_session(step, start)?),
        };
        self.wrote(step, written)
    }

    fn new_session(&self, step: LogStep<'l>, start: &SessionStart) -> Result<NewSession, ReplayError> {
        let queued = step.find(|kind| match kind {
            Kind::QueuedInput(queued) => Some(queued),
            _ => None,
        });
        let task = match queued {
            Some(queued) => Some(Task {
                segments: self.look.blobs.said(&queued.segments, step.first.seq)?,
                op_id: queued.op_id.clone(),
                from: queued.from.clone(),
            }),
            None => None,
        };
        Ok(NewSession {
            session: start.session,
            version: start.version.clone(),
            name: start.name.clone(),
            created_by: start.created_by.clone(),
            cwd: start.cwd.clone(),
            workspace: start.workspace.clone(),
            git: start.git.clone(),
            manifest: start.manifest.clone(),
            scope: start.scope.clone(),
            mandate: start.mandate.clone(),
            metadata: start.metadata.clone(),
            parent: start.parent.clone(),
            task,
        })
    }

    /// A step that somebody wrote while no pod lived.
    fn visited(&mut self, step: LogStep<'l>, opened: &Opened) -> Result<(), Stop> {
        let Some((change, by)) = self.visit(step)? else { return Err(nothing(step)) };
        let visitor = Visitor {
            pid: opened.pid,
            boot_id: opened.boot_id.clone(),
            host: opened.host.clone(),
            version: opened.version.clone(),
            by,
        };
        let written = visit(&self.state, moment(step), visitor, change).unwrap_or_default();
        self.wrote(step, written)
    }

    fn visit(&self, step: LogStep<'l>) -> Result<Option<(Visit, Actor)>, ReplayError> {
        let abandoned = step.find(|kind| match kind {
            Kind::StateChange(e) if e.state == StateWord::Abandoned => {
                Some((Visit::Abandon { reason: e.reason.clone().unwrap_or_default() }, e.by.clone()))
            }
            _ => None,
        });
        if let Some((change, by)) = abandoned {
            return Ok(Some((change, by.unwrap_or_else(Actor::minke))));
        }
        let seq = step.first.seq;
        let Some(second) = step.entries.get(1) else { return Ok(None) };
        Ok(Some(match &second.kind {
            Kind::QueuedInput(e) => {
                let segments = self.look.blobs.said(&e.segments, seq)?;
                (Visit::Queue { segments, op_id: e.op_id.clone() }, e.from.clone())
            }
            Kind::Inbox(e) => {
                let message = e.message.clone().unwrap_or_default();
                (
                    Visit::Notify { message: self.look.blobs.text(&message, seq)?, wake: e.wake },
                    e.from.clone(),
                )
            }
            Kind::Answer(e) => {
                let ask = AskId(self.look.pairs.here(e.id.0));
                (Visit::Answer { ask, decision: e.decision.clone(), note: e.note.clone() }, e.by.clone())
            }
            Kind::Renamed(e) => (Visit::Rename(e.name.clone()), e.by.clone()),
            Kind::Archived(e) => (Visit::Archive(true), e.by.clone()),
            Kind::Unarchived(e) => (Visit::Archive(false), e.by.clone()),
            Kind::Checkpoint(e) => {
                (Visit::Checkpoint { id: e.id.clone(), state: e.state.clone() }, Actor::minke())
            }
            Kind::ConfigChanged(e) if e.key == "model.ref" => {
                (Visit::Model(e.value.as_str().unwrap_or_default().to_owned()), e.by.clone())
            }
            Kind::ConfigChanged(e) => {
                (Visit::Config { key: e.key.clone(), value: e.value.clone() }, e.by.clone())
            }
            _ => return Ok(None),
        }))
    }

    /// Compares a step that no pod made, and folds it.
    fn wrote(&mut self, step: LogStep<'l>, written: Written) -> Result<(), Stop> {
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

    /// What the process can have known when it began: everything anew, except the models that it found.
    fn boots(&self, mind: &Mind, step: LogStep<'l>, opened: &Opened) -> Vec<Plan> {
        let told = step.find(|kind| match kind {
            Kind::Alert(e) => e.message.strip_prefix("there is no model to ask: "),
            _ => None,
        });
        let boot = |route: Option<Route>| {
            let boot = Boot {
                pid: opened.pid,
                boot_id: opened.boot_id.clone(),
                host: opened.host.clone(),
                version: opened.version.clone(),
                tools: self.look.recipe.tools.clone(),
                system_prompt: self.system_prompt(step),
                route,
                no_route: told.unwrap_or_default().to_owned(),
                fallbacks: self.look.timeline.fallbacks(step.at),
            };
            vec![What::Boot(Box::new(boot)).into()]
        };
        let with = boot(self.look.route(mind, step));
        if step.opens_run() { vec![with] } else { vec![boot(None), with] }
    }

    /// The system prompt of this program. A pod whose name another one had was numbered, and the log does not say so;
    /// the prompt that it was given does.
    fn system_prompt(&self, step: LogStep<'l>) -> String {
        let facts = &self.state.facts;
        let (Some(about), Some(name)) = (&facts.about, &facts.name) else { return String::new() };
        let prompt = |name: &PodName| (self.look.recipe.system_prompt)(name, Path::new(&about.cwd));
        let plain = prompt(name);
        let life = self.look.timeline.life_from(step.at);
        let begun = life.iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => Some(&segment.system_prompt),
            _ => None,
        });
        let given = begun.or_else(|| self.state.segment.as_ref().map(|segment| &segment.system_prompt));
        let Some(Text::Here(given)) = given else { return plain };
        if *given == plain {
            return plain;
        }
        let numbered = (2..=NUMBERS).map(|number| {
            let suffix = format!("-{number}");
            let stem: String = name.as_str().chars().take(NAME_BYTES.saturating_sub(suffix.len())).collect();
            PodName::from_any(&format!("{}{suffix}", stem.trim_end_matches('-')))
        });
        numbered.map(|name| prompt(&name)).find(|prompt| prompt == given).unwrap_or(plain)
    }

    /// Tries plans on a pod until one leads to what stands in the log.
    fn lived(&mut self, mind: Mind, step: LogStep<'l>, plans: &[Plan]) -> Result<(), Stop> {
        let unknowable = self.look.unknowable(&mind, step).then_some(DIGEST);
        let mut closest: Option<(usize, Box<Difference>)> = None;
        for plan in plans {
            let mut tried = mind.clone();
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
    ) -> Result<Vec<(Uuid, Uuid)>, (usize, Box<Difference>)> {
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

    fn same(&mut self, step: LogStep<'l>, new: Vec<(Uuid, Uuid)>) {
        self.look.pairs.learn(new);
        let wanted = self.wanted(step);
        self.report.entries += wanted.len() as u64;
        let requests = wanted.iter().filter(|entry| matches!(entry.kind, Kind::LlmCall(_))).count();
        self.report.requests += requests as u64;
    }

    /// The pod lives on. Requests that it has made get their replies, and are compared with what was sent.
    fn asked(&mut self, mut mind: Mind, step: LogStep<'l>) -> Result<(), Stop> {
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
    fn recording(&mut self, call: u64, step: LogStep<'l>) -> Option<(Vec<Heard>, minke_record::Blob)> {
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
        let images = prompt.items.iter().flat_map(|item| match item.as_ref() {
            Item::Message { content, .. } => content.as_slice(),
            _ => &[],
        });
        for part in images {
            if let Content::Image { blob, .. } = part
                && let Ok(found) = self.look.blobs.get(blob)
            {
                whole.images.insert(blob.clone(), found.content.into());
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

fn moment(step: LogStep<'_>) -> Moment {
    Moment { now: step.first.ts, seed: step.first.seq }
}

/// Nothing that this program knows leads to this step.
fn nothing(step: LogStep<'_>) -> Stop {
    let mismatch = Mismatch {
        field: "kind".to_owned(),
        log: step.first.kind.name().to_owned(),
        here: "nothing: no input that this program knows leads to this entry here".to_owned(),
    };
    Stop::Differs(difference(step.first.seq, Some(step.first), None, mismatch))
}

fn difference(seq: u64, log: Option<&Entry>, here: Option<&Draft>, mismatch: Mismatch) -> Box<Difference> {
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
