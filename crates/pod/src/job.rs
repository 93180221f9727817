//! A job: the session's mandate at work. What its log says is one fold (`thread::work`); here it is acted on.
//!
//! After every step `watch_job` looks at what the fold says and does what is due: a failed attempt gets the time of the next
//! one, a finished run its acceptance command, and the timers stand where they should. A crash between any two of these
//! changes nothing: the next life looks again. Elsewhere: which job is started when (`host`).
//! Invariant: at most one attempt at a time, and no more than the mandate allows
//! (`a_job_is_tried_again`, told and killed everywhere).

use minke_prompts::Snippet;
use minke_record::{
    Actor, ActorKind, CallId, DequeueReason, Dequeued, ErrorCode, InputSegment, JobFacts, JobState, OpenCall,
    Outcome, QueueId, QueueMode, QueuedInput, RunResult, StateChange, StateWord, Trigger, TurnResult,
    WaitingOn,
};
use minke_thread::{ACCEPT, Mandate, Moved, Restart, Wish, wait};

use crate::Timer;
use crate::calls::Settled;
use crate::input::Order;
use crate::pod::{Making, Pod, Stopping};
use crate::run::Opening;
use crate::step::{Effect, Given, Refusal};

/// The tool that runs an acceptance command.
const SHELL: &str = "Bash";

/// How long the pod of a client that is gone stays without anything to do: somebody may be about to look after it.
const ORPHANED_S: u64 = 3;
/// How long the process of a job stays that is over, in seconds: for whoever wants to say something more.
const OVER_S: u64 = 1;

/// Why a job ends whose time is over.
pub const DEADLINE: &str = "the deadline of the job has passed";

/// What a job's timers were set to in this life.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JobTimers {
    again: Option<u64>,
    deadline: Option<u64>,
}

impl Pod {
    /// The job, while it is not over.
    fn open_job(&self) -> Option<&JobFacts> {
        self.state.facts.job.as_ref().filter(|job| !job.state.is_final())
    }

    /// Its mandate. One that cannot be read has left the job paused, for somebody to look at.
    pub(crate) fn mandate(&self) -> Option<Mandate> {
        let about = self.state.facts.about.as_ref()?;
        Mandate::read(about.mandate.as_ref()).ok().flatten()
    }

    fn job_actor(&self) -> Actor {
        let session = self.state.facts.about.as_ref().map(|about| about.session);
        session.map_or_else(Actor::minke, Actor::job)
    }

    /// Whether a run that was interrupted goes on by itself because of the mandate.
    pub(crate) fn job_goes_on(&self) -> bool {
        self.open_job().is_some_and(|job| job.state == JobState::Interrupted)
            && self.mandate().is_some_and(|mandate| mandate.restart != Restart::Never)
    }

    /// Whether somebody has stopped the job: then nothing goes on by itself.
    pub(crate) fn job_rests(&self) -> bool {
        self.open_job().is_some_and(|job| match job.state {
            JobState::Paused => true,
            JobState::Interrupted => !self.job_goes_on(),
            _ => false,
        })
    }

    /// Whether nobody but the job itself has something to say.
    pub(crate) fn only_its_job_waits(&self) -> bool {
        self.state.facts.queue.iter().all(|queued| queued.from.actor == ActorKind::Job)
    }

    /// What every step ends with.
    pub(crate) fn watch_job(&mut self, m: &mut Making) {
        if self.life.boot.is_none() || self.state.facts.job.is_none() {
            return;
        }
        let idle = self.state.facts.run.is_none() && self.life.stopping.is_none();
        if let Some(job) = self.open_job().filter(|_| idle).cloned() {
            self.plan_retry(m, &job);
            self.begin_acceptance(m, &job);
        }
        let leaving = self.life.stopping == Some(Stopping::Now);
        let open = self.open_job().filter(|_| !leaving);
        // Whoever looks after schedules makes others from them: no pod waits for that.
        let waits = |job: &&JobFacts| job.state == JobState::Waiting && idle && !job.is_scheduled();
        let again = open.filter(waits).and_then(|job| job.until);
        let deadline = open.and_then(|_| self.mandate()).and_then(|mandate| mandate.deadline());
        let wanted = JobTimers { again, deadline };
        let now = m.now;
        let mut set = |timer: Timer, was: Option<u64>, is: Option<u64>| {
            if was != is {
                m.effect(match is {
                    Some(at) => Effect::SetTimer { timer, at: at.max(now) },
                    None => Effect::ClearTimer { timer },
                });
            }
        };
        set(Timer::Job, self.life.job.again, wanted.again);
        set(Timer::Deadline, self.life.job.deadline, wanted.deadline);
        self.life.job = wanted;
    }

    /// A timer of the job keeps the process: nobody else is sure to be there.
    pub(crate) fn job_waits(&self) -> bool {
        self.life.job.again.is_some() || self.open_job().is_some_and(|job| job.accepting)
    }

    /// After how many seconds without anything to do the process ends; 0 never. That of a client that is gone, and that of a job which is over is needed by
    /// nobody.
    pub(crate) fn rests_after(&self) -> u64 {
        if self.life.orphaned {
            return ORPHANED_S;
        }
        let usual = self.state.manifest.pod.idle_exit;
        // That of one with a schedule is in the way of the next firing.
        let over =
            self.state.facts.job.as_ref().is_some_and(|job| job.state.is_final() || job.is_scheduled());
        if over && usual > 0 { usual.min(OVER_S) } else { usual }
    }

    /// A failed attempt is followed by another: when is written down once.
    fn plan_retry(&mut self, m: &mut Making, job: &JobFacts) {
        if job.state != JobState::Waiting || !job.failed || job.until.is_some() {
            return;
        }
        let Some(mandate) = self.mandate() else { return };
        if let Some(rejected) = &job.rejected {
            let said = self.state.catalog().say(Snippet::Rejected, &[("how", rejected.summary.as_str())]);
            let output = rejected.content.clone().map(|content| InputSegment::Text { content });
            let segments = [InputSegment::Text { content: said.into() }].into_iter().chain(output).collect();
            let (id, from) = (QueueId(m.ids.next_uuid()), self.job_actor());
            let (op_id, attached) = (None, Vec::new());
            self.note(m, QueuedInput { id, segments, op_id, from, mode: QueueMode::Queue, attached });
        }
        let dice = m.ids.next_uuid().as_u128() as u64;
        let asked = job.not_before.map(|end| end.saturating_sub(m.now));
        let wait = wait(&mandate.retry, job.retries.saturating_add(1), dice, asked).unwrap_or_default();
        let (state, on) = (StateWord::Waiting, Some(WaitingOn::Time));
        let until = Some(m.now.saturating_add(wait));
        self.note(
            m,
            StateChange { state, on, until, reason: None, by: Some(self.job_actor()), firing: None },
        );
    }

    /// A finished run is looked at by the acceptance command, once; one that a crash has cut off is run again.
    fn begin_acceptance(&mut self, m: &mut Making, job: &JobFacts) {
        let here = |id: &CallId| id.0.starts_with(ACCEPT);
        let begun = self.state.facts.calls.iter().any(|call| here(&call.call_id))
            || self.life.guests.iter().any(|guest| here(&guest.call.call_id));
        if !job.accepting || job.state != JobState::Running || begun {
            return;
        }
        let Some(command) = self.mandate().and_then(|mandate| mandate.acceptance) else { return };
        let id = CallId(format!("{ACCEPT}{}", job.acceptances));
        let arguments = serde_json::json!({ "command": command }).to_string();
        let by = self.job_actor();
        if let Err(refusal) = self.call_tool(m, by.clone(), SHELL.to_owned(), arguments, Some(id)) {
            self.note_state(m, StateWord::Paused, refusal.message, &by);
        }
    }

    /// Whether a call is the job's own, and not somebody's that is named like it.
    pub(crate) fn is_acceptance(&self, call: &OpenCall) -> bool {
        call.call_id.0.starts_with(ACCEPT) && call.by.as_ref().is_some_and(|by| by.actor == ActorKind::Job)
    }

    /// The time of the next attempt has come, or somebody does not want to wait for it.
    pub(crate) fn attempt(&mut self, m: &mut Making) {
        let waits = self.open_job().is_some() && self.state.facts.run.is_none() && !self.is_scheduled();
        if !waits || self.life.stopping.is_some() {
            return;
        }
        let by = self.job_actor();
        if let Some(refusal) = self.cannot_run() {
            return self.rest(m, &refusal.message);
        }
        if self.state.resumable().is_some() {
            self.resume_run(m, by);
        } else if self.start_queued(m).is_none() && self.state.facts.run.is_none() {
            self.start_run(m, Opening { trigger: Trigger::Job, by, input: None });
        }
    }

    /// The job goes on when somebody has looked at it.
    pub(crate) fn rest(&mut self, m: &mut Making, why: &str) {
        if self.open_job().is_some_and(|job| job.state != JobState::Paused && !job.is_scheduled()) {
            let by = self.me();
            self.note_state(m, StateWord::Paused, format!("needs attention: {why}"), &by);
        }
    }

    pub(crate) fn deadline_is_over(&mut self, m: &mut Making) {
        let over = self.mandate().and_then(|mandate| mandate.deadline()).is_some_and(|end| m.now >= end);
        if !over || self.open_job().is_none() || self.life.stopping == Some(Stopping::Now) {
            return;
        }
        if self.state.facts.run.is_none() || self.is_scheduled() {
            let by = self.me();
            return self.give_job_up(m, DEADLINE, &by);
        }
        self.life.pausing = None;
        self.cut_reply(m);
        self.close_calls(m, DEADLINE);
        self.life.stop_reason = "limit".to_owned();
        self.end_turn(m, TurnResult::Cancelled);
        self.end_run(m, RunResult::LimitReached, Some(DEADLINE.to_owned()));
    }

    /// What the job was still to hear is taken out with it.
    fn give_job_up(&mut self, m: &mut Making, why: &str, by: &Actor) {
        if self.is_scheduled() {
            return self.give_schedule_up(m, why, by);
        }
        self.stop_acceptance(m, why);
        let own = |from: &Actor| from.actor == ActorKind::Job;
        let queue = self.state.facts.queue.iter();
        let left: Vec<QueueId> = queue.filter(|queued| own(&queued.from)).map(|queued| queued.id).collect();
        for id in left {
            self.note(m, Dequeued { id, why: DequeueReason::Removed });
        }
        self.give_up(m, why, by);
    }

    fn stop_acceptance(&mut self, m: &mut Making, why: &str) {
        self.life.guests.retain(|guest| !guest.call.call_id.0.starts_with(ACCEPT));
        let calls = self.state.facts.calls.iter().map(|call| call.call_id.clone());
        let open: Vec<CallId> = calls.filter(|id| id.0.starts_with(ACCEPT)).collect();
        for call_id in open {
            m.effect(Effect::StopCall { call_id: call_id.clone() });
            self.settle_call(m, &call_id, Settled::error(Outcome::Cancelled, why));
        }
    }

    /// The same while no pod lives: what was going on has been interrupted.
    pub(crate) fn wish_in_visit(
        &mut self,
        m: &mut Making,
        wish: Wish,
        detail: Option<String>,
        by: &Actor,
    ) -> Result<(), Refusal> {
        if self.state.facts.job.is_none() {
            return Err(Refusal::new(ErrorCode::NotFound, "this session is no job: it has no mandate"));
        }
        if self.state.facts.run.is_some() {
            self.end_interrupted(m, "the process ended");
        }
        let order = match wish {
            Wish::Pause => Order::Pause { detail },
            Wish::Cancel => Order::Cancel { detail },
            Wish::Resume => {
                self.may_resume_in_visit()?;
                Order::Resume { detail }
            }
            Wish::Again | Wish::Progress => {
                return Err(Refusal::new(ErrorCode::Conflict, "that needs a pod: send it to the session"));
            }
        };
        let state = self.state.facts.job.as_ref().map(|job| job.state);
        match self.job_order(m, &order, by) {
            Some(done) => done.map(drop),
            // It is over; the table says so in its words.
            None => wish
                .of(state.unwrap_or(JobState::Unknown), true)
                .map(drop)
                .map_err(|why| Refusal::new(ErrorCode::Conflict, why)),
        }
    }

    /// `pause`, `resume` and `cancel` while no run is open act on the job; `None` if there is none that they could act on.
    pub(crate) fn job_order(
        &mut self,
        m: &mut Making,
        order: &Order,
        by: &Actor,
    ) -> Option<Result<Given, Refusal>> {
        let state = self.open_job()?.state;
        let (wish, detail) = match order {
            Order::Pause { detail } => (Wish::Pause, detail),
            Order::Resume { detail } => (Wish::Resume, detail),
            Order::Cancel { detail } => (Wish::Cancel, detail),
            _ => return None,
        };
        let word = |usual: &str| detail.clone().unwrap_or_else(|| usual.to_owned());
        match wish.of(state, true) {
            Err(why) => return Some(Err(Refusal::new(ErrorCode::Conflict, why))),
            Ok(Moved::Stays | Moved::Fork) => {}
            Ok(Moved::To(JobState::Paused)) => {
                self.stop_acceptance(m, "the job was paused");
                self.note_state(m, StateWord::Paused, word("paused"), by);
            }
            Ok(Moved::To(JobState::Cancelled)) => self.give_job_up(m, &word("cancelled"), by),
            Ok(Moved::To(_)) if self.is_scheduled() => self.resume_schedule(m, by),
            Ok(Moved::To(_)) => {
                if let Some(refusal) = self.cannot_run() {
                    return Some(Err(refusal));
                }
                if self.open_job().is_some_and(|job| job.accepting) {
                    self.note_state(m, StateWord::Working, word("resumed"), by);
                } else {
                    self.attempt(m);
                }
            }
        }
        Some(Ok(match &self.state.facts.run {
            Some(run) => Given::Run(run.id),
            None => Given::Ok,
        }))
    }
}
