//! Boot: the first input of every process, also after a crash. There is no restore mode; a crash acts like a pause.
//!
//! An open run ends as `interrupted`, client calls of an earlier process are settled, and offline edits are
//! handled as if they had arrived through the socket.

use minke_record::{
    Actor, ActorKind, AlertLevel, AlertSource, CallStage, Class, EndResult, Millis, OpenCall, Outcome,
    QueueMode, RunResult, Trigger,
};

use crate::PodTimer;
use crate::calls::table::CallTable;
use crate::calls::{CallProgress, CallResult};
use crate::engine::{InputHandler, PodEngine};
use crate::input::BootInfo;
use crate::run::RunProgress;
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// Maximum number of automatic resumes within `AUTO_RESUME_WINDOW_MS`.
const MAX_AUTO_RESUMES: usize = 3;
/// Time window for automatic resumes.
const AUTO_RESUME_WINDOW_MS: u64 = 60_000;

impl InputHandler<'_, '_> {
    pub(crate) fn boot_pod(&mut self, boot: Box<BootInfo>) {
        let woken = self.step.state.facts.woken;
        let first = self.step.state.facts.epoch == 0;
        self.step.append_entry(boot.opened_entry(self.step.state.facts.epoch.saturating_add(1)));
        let (rules, catalog) = (boot.rules.clone(), boot.catalog.clone());
        self.engine.process.environment.boot = Some(boot);
        self.step.update_rules(&rules);
        self.step.update_catalog(&catalog);
        if let Some(problem) = self.step.state.manifest_error.clone() {
            let message = format!("could not read this session's manifest: {problem}; using the defaults");
            self.step.append_alert(AlertLevel::Error, AlertSource::Pod, message);
        }
        if let Some(problem) = self.step.state.parent_limits_error.clone() {
            let message = format!(
                "could not read the parent's limits for this session: {problem}; side effects are denied"
            );
            self.step.append_alert(AlertLevel::Error, AlertSource::Policy, message);
        }
        if self.step.state.facts.run.is_some() {
            let reason = if first { "the session came with an open run" } else { "the process ended" };
            self.engine.interrupt_open_run(self.step, reason);
        }
        for ask in self.step.state.orphan_asks() {
            self.step.abort_ask(ask, "the client's call it was about is gone");
        }
        self.engine.work.calls.settle_client_calls(self.step);
        let expired = self.step.deny_expired_asks();
        self.step.reapply_approved_rules();
        self.engine.work.children.watch_all_children(self.step);
        // A job whose deadline has passed is not started again.
        self.enforce_deadline();
        self.start_pending_work(woken || expired);
    }

    /// Starts work that needs no command: an answered run, a run of a parent or job, queued inputs and notes.
    pub(crate) fn start_pending_work(&mut self, woken: bool) {
        if let Some(refusal) = self.engine.process.run_refusal(self.step.state) {
            if woken {
                self.step.append_alert(AlertLevel::Error, AlertSource::Pod, refusal.message.clone());
            }
            return self.step.pause_job(&refusal.message);
        }
        let waits = self.step.state.facts.queue.iter().any(|queued| queued.mode != QueueMode::Steer);
        if let Some(last) = self.step.state.resumable_run().cloned() {
            let interrupted = last.result == EndResult::Completed(RunResult::Interrupted);
            let answered =
                self.step.state.facts.calls.iter().any(|c| matches!(c.stage, CallStage::Answered { .. }));
            if woken && interrupted && answered && self.step.state.facts.asks.is_empty() {
                self.engine.resume_run(self.step, last.by);
                return;
            }
            // An input that woke the pod does not wait for the timer of the interrupted run.
            if let Some(until) = last.waits_until.filter(|_| interrupted && !(woken && waits)) {
                return self.engine.work.run.schedule_resume(self.step, until);
            }
            let is_automatic = !self.step.state.is_job_stopped()
                && (matches!(last.by.actor, ActorKind::Pod | ActorKind::Job)
                    || self.step.state.job_auto_resumes());
            if interrupted && is_automatic && self.step.state.facts.asks.is_empty() {
                return self.auto_resume(last.by);
            }
        }
        // Waking a pod to inspect a paused job does not start the job.
        let of_a_paused_job = self.step.state.is_job_stopped() && self.step.state.only_job_input_queued();
        if waits && !of_a_paused_job && (woken || !self.step.state.facts.held) {
            // Waking the pod with an input acts like `run` with mode `queue`: the run starts even if the
            // queue was held. An input that arrived while the pod was stopping waits for this boot.
            self.engine.start_oldest_queued(self.step);
        } else if woken && self.step.state.resumable_run().is_none() && self.step.state.has_pending_notes() {
            let by = Actor::from_minke();
            self.start_run_for_notes(Trigger::Notify, by);
        }
    }

    pub(crate) fn resume_after_wait(&mut self) {
        if self.engine.work.run.resume_at.take().is_none()
            || self.engine.process.run_refusal(self.step.state).is_some()
        {
            return;
        }
        if let Some(last) =
            self.step.state.resumable_run().filter(|_| self.step.state.facts.run.is_none()).cloned()
        {
            self.auto_resume(last.by);
        }
    }

    pub(crate) fn auto_resume(&mut self, by: minke_record::Actor) {
        let recent = &self.step.state.facts.resumes;
        let too_often = recent.len() >= MAX_AUTO_RESUMES
            && recent
                .front()
                .is_some_and(|first| self.step.now.saturating_sub(*first) < AUTO_RESUME_WINDOW_MS);
        if too_often {
            let message = format!(
                "the run was interrupted {MAX_AUTO_RESUMES} times in {} s and is not resumed again; \
                 check its log, then use `resume`",
                AUTO_RESUME_WINDOW_MS / 1_000
            );
            self.step.append_alert(AlertLevel::Error, AlertSource::Pod, message.clone());
            self.step.pause_job(&message);
            return self.step.report_abandoned_resume(&message);
        }
        self.engine.resume_run(self.step, by);
    }
}

impl PodEngine {
    pub(crate) fn interrupt_open_run(&mut self, step: &mut StepBuilder<'_>, reason: &str) {
        self.work.run.queue_suspended = true;
        self.end_run(step, RunResult::Interrupted, Some(reason.to_owned()));
        self.work.run.queue_suspended = false;
    }
}

impl CallTable {
    /// Settles client calls of an earlier process. They belong to no run, so no call runs again.
    pub(crate) fn settle_client_calls(&mut self, step: &mut StepBuilder<'_>) {
        let calls: Vec<OpenCall> =
            step.state.facts.calls.iter().filter(|call| call.by.is_some()).cloned().collect();
        for call in calls {
            let CallStage::Dispatched(dispatched) = &call.stage else {
                let result = CallResult::error(Outcome::Cancelled, "interrupted before it ran");
                self.settle_call(step, &call.call_id, result);
                continue;
            };
            match (&dispatched.class, &dispatched.preview) {
                (Class::Pure, _) => {
                    let settled = CallResult::error(Outcome::Cancelled, "interrupted; it had no effect");
                    self.settle_call(step, &call.call_id, settled);
                }
                (Class::Verifiable, Some(preview)) => {
                    self.call_progress.insert(call.call_id.clone(), CallProgress::Checking);
                    step.add_effect(Effect::CheckFile {
                        call_id: call.call_id.clone(),
                        preview: preview.clone(),
                    });
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) if dispatched.own => {
                    let result = step.state.lost_call_result(&call);
                    self.settle_call(step, &call.call_id, result);
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) => {
                    let message = "interrupted; it may or may not have taken effect";
                    self.settle_call(step, &call.call_id, CallResult::error(Outcome::Lost, message));
                }
            }
        }
    }
}

impl RunProgress {
    /// Sets the timer again for a run that was interrupted while it waited for a time.
    pub(crate) fn schedule_resume(&mut self, step: &mut StepBuilder<'_>, until: Millis) {
        self.resume_at = Some(until);
        step.add_effect(Effect::SetTimer { timer: PodTimer::Resume, at: until.max(step.now) });
    }

    /// Cancels the wait when another event comes first.
    pub(crate) fn cancel_scheduled_resume(&mut self, step: &mut StepBuilder<'_>) {
        if self.resume_at.take().is_some() {
            step.add_effect(Effect::ClearTimer { timer: PodTimer::Resume });
        }
    }
}
