//! Boot: the first input of every process. There is no restore mode; a crash acts like a pause.
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
use crate::engine::PodEngine;
use crate::input::BootInfo;
use crate::run::RunProgress;
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// Maximum number of automatic resumes within `AUTO_RESUME_WINDOW_MS`.
const MAX_AUTO_RESUMES: usize = 3;
/// Time window for automatic resumes.
const AUTO_RESUME_WINDOW_MS: u64 = 60_000;

impl PodEngine {
    pub(crate) fn boot_pod(&mut self, step: &mut StepBuilder<'_>, boot: Box<BootInfo>) {
        let woken = step.state.facts.woken;
        let first = step.state.facts.epoch == 0;
        step.append_entry(boot.opened_entry(step.state.facts.epoch.saturating_add(1)));
        let (rules, catalog) = (boot.rules.clone(), boot.catalog.clone());
        self.process.environment.boot = Some(boot);
        step.update_rules(&rules);
        step.update_catalog(&catalog);
        if let Some(problem) = step.state.manifest_error.clone() {
            let message = format!("could not read this session's manifest: {problem}; using the defaults");
            step.append_alert(AlertLevel::Error, AlertSource::Pod, message);
        }
        if let Some(problem) = step.state.parent_limits_error.clone() {
            let message = format!(
                "could not read the parent's limits for this session: {problem}; side effects are denied"
            );
            step.append_alert(AlertLevel::Error, AlertSource::Policy, message);
        }
        if step.state.facts.run.is_some() {
            let reason = if first { "the session came with an open run" } else { "the process ended" };
            self.interrupt_open_run(step, reason);
        }
        for ask in step.state.orphan_asks() {
            step.abort_ask(ask, "the client's call it was about is gone");
        }
        self.work.calls.settle_client_calls(step);
        let expired = step.deny_expired_asks();
        step.reapply_approved_rules();
        self.work.children.watch_all_children(step);
        // A job whose deadline has passed is not started again.
        self.enforce_deadline(step);
        self.start_pending_work(step, woken || expired);
    }

    pub(crate) fn interrupt_open_run(&mut self, step: &mut StepBuilder<'_>, reason: &str) {
        self.work.run.queue_suspended = true;
        self.end_run(step, RunResult::Interrupted, Some(reason.to_owned()));
        self.work.run.queue_suspended = false;
    }

    /// Starts work that needs no command: an answered run, a run of a parent or job, queued inputs and notes.
    fn start_pending_work(&mut self, step: &mut StepBuilder<'_>, woken: bool) {
        if let Some(refusal) = self.process.run_refusal(step.state) {
            if woken {
                step.append_alert(AlertLevel::Error, AlertSource::Pod, refusal.message.clone());
            }
            return step.pause_job(&refusal.message);
        }
        let waits = step.state.facts.queue.iter().any(|queued| queued.mode != QueueMode::Steer);
        if let Some(last) = step.state.resumable_run().cloned() {
            let interrupted = last.result == EndResult::Completed(RunResult::Interrupted);
            let answered =
                step.state.facts.calls.iter().any(|c| matches!(c.stage, CallStage::Answered { .. }));
            if woken && interrupted && answered && step.state.facts.asks.is_empty() {
                self.resume_run(step, last.by);
                return;
            }
            // An input that woke the pod does not wait for the timer of the interrupted run.
            if let Some(until) = last.waits_until.filter(|_| interrupted && !(woken && waits)) {
                return self.work.run.schedule_resume(step, until);
            }
            let is_automatic = !step.state.is_job_stopped()
                && (matches!(last.by.actor, ActorKind::Pod | ActorKind::Job)
                    || step.state.job_auto_resumes());
            if interrupted && is_automatic && step.state.facts.asks.is_empty() {
                return self.auto_resume(step, last.by);
            }
        }
        // Waking a pod to inspect a paused job does not start the job.
        let of_a_paused_job = step.state.is_job_stopped() && step.state.only_job_input_queued();
        if waits && !of_a_paused_job && (woken || !step.state.facts.held) {
            // Waking the pod with an input acts like `run` with mode `queue`: the run starts even if the
            // queue was held. An input that arrived while the pod was stopping waits for this boot.
            self.start_oldest_queued(step);
        } else if woken && step.state.resumable_run().is_none() && step.state.has_pending_notes() {
            let by = Actor::from_minke();
            self.start_run_for_notes(step, Trigger::Notify, by);
        }
    }

    pub(crate) fn resume_after_wait(&mut self, step: &mut StepBuilder<'_>) {
        if self.work.run.resume_at.take().is_none() || self.process.run_refusal(step.state).is_some() {
            return;
        }
        if let Some(last) = step.state.resumable_run().filter(|_| step.state.facts.run.is_none()).cloned() {
            self.auto_resume(step, last.by);
        }
    }

    fn auto_resume(&mut self, step: &mut StepBuilder<'_>, by: minke_record::Actor) {
        let recent = &step.state.facts.resumes;
        let too_often = recent.len() >= MAX_AUTO_RESUMES
            && recent.front().is_some_and(|first| step.now.saturating_sub(*first) < AUTO_RESUME_WINDOW_MS);
        if too_often {
            let message = format!(
                "the run was interrupted {MAX_AUTO_RESUMES} times in {} s and is not resumed again; \
                 check its log, then use `resume`",
                AUTO_RESUME_WINDOW_MS / 1_000
            );
            step.append_alert(AlertLevel::Error, AlertSource::Pod, message.clone());
            step.pause_job(&message);
            return step.report_abandoned_resume(&message);
        }
        self.resume_run(step, by);
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
