//! Boot: the first input of every life. There is no restore mode: a crash is a pause nobody asked for.
//!
//! Here: an open run ends as `interrupted`, clients' calls of an earlier life are settled, and what a visit left is
//! taken up as if it had come by the socket.

use minke_record::{
    ActorKind, AlertLevel, AlertSource, CallStage, Class, EndResult, Millis, OpenCall, Outcome, QueueMode,
    RunResult, Trigger,
};

use crate::Timer;
use crate::calls::{Settled, Work};
use crate::input::Boot;
use crate::pod::{Making, Pod};
use crate::step::Effect;

/// A run that comes back by itself does so at most this often …
const AUTO_RESUMES: usize = 3;
/// … in this time.
const AUTO_RESUME_MS: u64 = 60_000;

impl Pod {
    pub(crate) fn boot(&mut self, m: &mut Making, boot: Box<Boot>) {
        let woken = self.state.facts.woken;
        let first = self.state.facts.epoch == 0;
        self.note(m, boot.opened(self.state.facts.epoch.saturating_add(1)));
        let (rules, catalog) = (boot.rules.clone(), boot.catalog.clone());
        self.life.boot = Some(boot);
        self.rules_changed(m, &rules);
        self.catalog_changed(m, &catalog);
        if let Some(problem) = self.state.manifest_problem.clone() {
            let message = format!("this session's manifest cannot be read ({problem}); the defaults hold");
            self.alert(m, AlertLevel::Error, AlertSource::Pod, message);
        }
        if let Some(problem) = self.state.limits_problem.clone() {
            let message = format!(
                "what this session's parent allows it cannot be read ({problem}); nothing with side effects is allowed"
            );
            self.alert(m, AlertLevel::Error, AlertSource::Policy, message);
        }
        if self.state.facts.run.is_some() {
            let reason = if first { "the session came with an open run" } else { "the process ended" };
            self.end_interrupted(m, reason);
        }
        for ask in self.orphan_asks() {
            self.abort_ask(m, ask, "the client's call it was about is gone");
        }
        self.settle_clients_calls(m);
        let expired = self.watch_asks(m);
        self.add_rules_again(m);
        self.look_after_children(m);
        // What is over is not begun again.
        self.deadline_is_over(m);
        self.take_up(m, woken || expired);
    }

    pub(crate) fn end_interrupted(&mut self, m: &mut Making, reason: &str) {
        self.life.suspend_queue = true;
        self.end_run(m, RunResult::Interrupted, Some(reason.to_owned()));
        self.life.suspend_queue = false;
    }

    /// A client's call belongs to no run: it is settled by the same table, except that nothing is run again.
    pub(crate) fn settle_clients_calls(&mut self, m: &mut Making) {
        let calls: Vec<OpenCall> =
            self.state.facts.calls.iter().filter(|call| call.by.is_some()).cloned().collect();
        for call in calls {
            let CallStage::Dispatched(dispatched) = &call.stage else {
                let settled = Settled::error(Outcome::Cancelled, "interrupted before it ran");
                self.settle_call(m, &call.call_id, settled);
                continue;
            };
            match (&dispatched.class, &dispatched.preview) {
                (Class::Pure, _) => {
                    let settled = Settled::error(Outcome::Cancelled, "interrupted; it had no effect");
                    self.settle_call(m, &call.call_id, settled);
                }
                (Class::Verifiable, Some(preview)) => {
                    self.life.work.insert(call.call_id.clone(), Work::Checking);
                    m.effect(Effect::CheckFile { call_id: call.call_id.clone(), preview: preview.clone() });
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) if dispatched.own => {
                    let settled = self.lost_call(&call);
                    self.settle_call(m, &call.call_id, settled);
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) => {
                    let message = "interrupted; it may or may not have taken effect";
                    self.settle_call(m, &call.call_id, Settled::error(Outcome::Lost, message));
                }
            }
        }
    }

    /// What goes on by itself: an answered run, a parent's or a job's run, an input or a note that a visit left.
    fn take_up(&mut self, m: &mut Making, woken: bool) {
        if let Some(refusal) = self.cannot_run() {
            if woken {
                self.alert(m, AlertLevel::Error, AlertSource::Pod, refusal.message.clone());
            }
            return self.rest(m, &refusal.message);
        }
        let waits = self.state.facts.queue.iter().any(|queued| queued.mode != QueueMode::Steer);
        if let Some(last) = self.state.resumable().cloned() {
            let interrupted = last.result == EndResult::Completed(RunResult::Interrupted);
            let answered =
                self.state.facts.calls.iter().any(|c| matches!(c.stage, CallStage::Answered { .. }));
            if woken && interrupted && answered && self.state.facts.asks.is_empty() {
                self.resume_run(m, last.by);
                return;
            }
            // Who wakes a pod with an input does not wait for the time that the interrupted run waits for.
            if let Some(until) = last.waits_until.filter(|_| interrupted && !(woken && waits)) {
                return self.wait_on(m, until);
            }
            let by_itself = !self.job_rests()
                && (matches!(last.by.actor, ActorKind::Pod | ActorKind::Job) || self.job_goes_on());
            if interrupted && by_itself && self.state.facts.asks.is_empty() {
                return self.resume_by_itself(m, last.by);
            }
        }
        // Who wakes a paused job to look at it does not begin it.
        let of_a_paused_job = self.job_rests() && self.only_its_job_waits();
        if waits && !of_a_paused_job && (woken || !self.state.facts.held) {
            // Waking with an input is `run` with mode `queue`: it starts, whatever was paused. An input that was taken
            // while the pod was about to stop has been waiting for this boot.
            self.start_queued(m);
        } else if woken && self.state.resumable().is_none() && self.notes_wait() {
            let by = self.me();
            self.wake(m, Trigger::Notify, by);
        }
    }

    /// The run waited for a time when it was interrupted: it still does.
    fn wait_on(&mut self, m: &mut Making, until: Millis) {
        self.life.resume_at = Some(until);
        m.effect(Effect::SetTimer { timer: Timer::Resume, at: until.max(m.now) });
    }

    /// Somebody decided otherwise before the time came.
    pub(crate) fn forget_wait(&mut self, m: &mut Making) {
        if self.life.resume_at.take().is_some() {
            m.effect(Effect::ClearTimer { timer: Timer::Resume });
        }
    }

    pub(crate) fn wait_is_over(&mut self, m: &mut Making) {
        if self.life.resume_at.take().is_none() || self.cannot_run().is_some() {
            return;
        }
        if let Some(last) = self.state.resumable().filter(|_| self.state.facts.run.is_none()).cloned() {
            self.resume_by_itself(m, last.by);
        }
    }

    fn resume_by_itself(&mut self, m: &mut Making, by: minke_record::Actor) {
        let recent = &self.state.facts.resumes;
        let often = recent.len() >= AUTO_RESUMES
            && recent.front().is_some_and(|first| m.now.saturating_sub(*first) < AUTO_RESUME_MS);
        if often {
            let message = format!(
                "the run was interrupted {AUTO_RESUMES} times in {} s and is not resumed again by itself; \
                 look at its log, then use `resume`",
                AUTO_RESUME_MS / 1_000
            );
            self.alert(m, AlertLevel::Error, AlertSource::Pod, message.clone());
            self.rest(m, &message);
            return self.report_given_up(m, &message);
        }
        self.resume_run(m, by);
    }
}
