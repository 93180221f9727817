//! Stopping: pause, cancel, abandon, shutdown, signals, storage failures.
//!
//! A run that has already ended stays ended; `shutdown` overrides `cancel`, and `cancel` overrides `pause`.

use minke_record::{Actor, CallStage, ErrorCode, Outcome, RunResult, StateWord, Trigger, TurnResult};

use crate::PodTimer;
use crate::calls::CallResult;
use crate::engine::{InputHandler, PodEngine, RunningWork};
use crate::exit::StopMode;
use crate::run::PauseRequest;
use crate::state::State;
use crate::step::{Effect, ReplyBody};
use crate::step_builder::StepBuilder;
use crate::table::Disposition;

/// Time for impure calls to end after a `pause`.
const PAUSE_GRACE_MS: u64 = 10_000;

impl State {
    /// Returns asks without an open call.
    pub(crate) fn orphan_asks(&self) -> Vec<minke_record::AskId> {
        let asked = |id| self.facts.calls.iter().any(|call| call.stage == CallStage::Asked(id));
        let open = self.facts.asks.iter();
        open.filter(|ask| ask.subject.call_id.is_some() && !asked(ask.id)).map(|ask| ask.id).collect()
    }
}

impl InputHandler<'_, '_> {
    /// Pauses at a safe point: cancels the reply, drops pure calls and waits for the others.
    pub(crate) fn pause_run(&mut self, disposition: &Disposition, detail: Option<String>) -> ReplyBody {
        if *disposition == Disposition::NoChange || self.engine.work.run.pause.is_some() {
            return ReplyBody::Ok;
        }
        self.engine.work.reply.cancel_reply(self.step);
        let wait = self.engine.work.calls.stop_pure_calls(self.step);
        self.engine.work.run.pause = Some(PauseRequest { reason: detail });
        if wait {
            self.step.add_effect(Effect::SetTimer {
                timer: PodTimer::PauseGrace,
                at: self.step.now + PAUSE_GRACE_MS,
            });
        } else {
            self.finish_pause();
        }
        ReplyBody::Ok
    }

    /// Finishes the pause if no call is running.
    pub(crate) fn pause_if_quiet(&mut self) {
        if self.engine.work.calls.running_model_calls(self.step.state).is_empty() {
            self.step.add_effect(Effect::ClearTimer { timer: PodTimer::PauseGrace });
            self.finish_pause();
        }
    }

    pub(crate) fn end_pause_grace(&mut self) {
        if self.engine.work.run.pause.is_none() {
            return;
        }
        for call_id in self.engine.work.calls.running_model_calls(self.step.state) {
            self.step.add_effect(Effect::StopCall { call_id: call_id.clone() });
            let message = "stopped by a pause; it may have taken effect";
            self.engine.work.calls.settle_call(
                self.step,
                &call_id,
                CallResult::error(Outcome::Cancelled, message),
            );
        }
        self.finish_pause();
    }

    pub(crate) fn finish_pause(&mut self) {
        let reason = self.engine.work.run.pause.take().and_then(|pausing| pausing.reason);
        self.engine.work.reply.stop_reason = "paused".to_owned();
        self.engine.work.reply.end_turn(self.step, TurnResult::Paused);
        self.engine.end_run(self.step, RunResult::Paused, reason);
    }

    pub(crate) fn handle_cancel(
        &mut self,
        disposition: &Disposition,
        by: Actor,
        detail: Option<String>,
    ) -> ReplyBody {
        let why = detail.unwrap_or_else(|| "cancelled".to_owned());
        match disposition {
            Disposition::Cancel => self.cancel_run(&why),
            Disposition::Abandon => {
                self.engine.work.abandon_run(self.step, &why, &by);
                self.engine.publish_status(self.step);
            }
            _ => {}
        }
        ReplyBody::Ok
    }

    /// Cancels the open run. If the model has not replied yet, the input leaves the context (rollback).
    pub(crate) fn cancel_run(&mut self, why: &str) {
        if self.engine.work.run.pause.take().is_some() {
            self.step.add_effect(Effect::ClearTimer { timer: PodTimer::PauseGrace });
        }
        let has_entries = self.engine.work.reply.cancel_reply(self.step);
        let calls = self.step.state.has_model_calls();
        self.engine.work.calls.close_model_calls(self.step, why);
        let Some(run) = &self.step.state.facts.run else { return };
        let resumed = run.trigger == Trigger::Resume;
        let rolled_back = !has_entries && !calls && !run.produced && !resumed && run.input_at.is_some();
        self.engine.work.reply.stop_reason = "cancelled".to_owned();
        self.engine.work.reply.end_turn(self.step, TurnResult::Cancelled);
        let result = if rolled_back { RunResult::RolledBack } else { RunResult::Cancelled };
        self.engine.end_run(self.step, result, Some(why.to_owned()));
    }

    /// Handles `shutdown`: the run ends as `cancelled`.
    pub(crate) fn shut_down_now(&mut self) {
        self.engine.process.exit.stop_mode = Some(StopMode::Now);
        self.cancel_run("the pod was shut down");
        self.engine.begin_stop(self.step);
    }

    /// Stops after a signal or when idle: the run ends as `interrupted`, and its calls and asks stay open, so
    /// that it can be resumed after a reboot.
    pub(crate) fn stop_interrupted(&mut self, why: &str) {
        if self.engine.process.exit.stop_mode == Some(StopMode::Now) {
            if self.engine.process.exit.stop_after_capture || self.engine.process.exit.outbox_flushing {
                self.engine.process.exit.flush_and_exit(self.step);
            }
            return;
        }
        self.engine.process.exit.stop_mode = Some(StopMode::Now);
        self.engine.process.exit.capturing_after = None;
        self.engine.work.run.pause = None;
        self.engine.work.reply.cancel_reply(self.step);
        for call_id in self.engine.work.calls.running_model_calls(self.step.state) {
            self.step.add_effect(Effect::StopCall { call_id });
        }
        self.engine.work.reply.stop_reason = "interrupted".to_owned();
        self.engine.work.reply.end_turn(self.step, TurnResult::Paused);
        self.engine.end_run(self.step, RunResult::Interrupted, Some(format!("stopped by {why}")));
        self.engine.begin_stop(self.step);
    }

    /// Handles a failed write after the pod was rebuilt from the log: the open run ends, and no new one
    /// starts until there is space.
    pub(crate) fn handle_storage_failure(&mut self, message: String) {
        self.engine.process.exit.storage_error = Some(message.clone());
        let why = format!("could not write the log: {message}; free disk space and try again");
        self.engine.process.hooks.refuse_pending_inputs(self.step, &ErrorCode::StorageFailed, &why);
        self.end_run_for_storage(message);
        self.step.reset_ask_timers();
        self.engine.work.children.watch_starting_children(self.step);
    }

    /// Closes calls and asks that were lost with the failed write.
    pub(crate) fn end_run_for_storage(&mut self, message: String) {
        for ask in self.step.state.orphan_asks() {
            self.step.abort_ask(ask, "the log could not be written");
        }
        self.engine.work.calls.settle_client_calls(self.step);
        if self.step.state.facts.run.is_some() {
            self.engine.work.calls.close_model_calls(self.step, "the log could not be written");
            self.engine.fail_run(self.step, ErrorCode::StorageFailed, message, true);
        }
    }

    /// Handles free disk space. A run whose end could not be written ends now.
    pub(crate) fn handle_storage_restored(&mut self) {
        let Some(message) = self.engine.process.exit.storage_error.take() else { return };
        let idle =
            self.engine.work.reply.reply_draft.is_none() && self.engine.work.calls.call_progress.is_empty();
        if idle {
            self.end_run_for_storage(message);
        }
    }
}

impl PodEngine {
    /// Stops after the capture of the last run; undo needs it.
    pub(crate) fn begin_stop(&mut self, step: &mut StepBuilder<'_>) {
        self.process.exit.stop_mode = Some(StopMode::Now);
        self.process.hooks.refuse_pending_inputs(
            step,
            &ErrorCode::Conflict,
            "the pod is stopping; send the input again to restart it",
        );
        self.publish_status(step);
        if self.process.exit.capturing_after.is_some() {
            self.process.exit.stop_after_capture = true;
            return;
        }
        self.process.exit.flush_and_exit(step);
    }
}

impl RunningWork {
    /// Abandons a paused or interrupted run: closes its calls and asks.
    pub(crate) fn abandon_run(&mut self, step: &mut StepBuilder<'_>, why: &str, by: &Actor) {
        self.calls.close_model_calls(step, why);
        step.append_state_change(StateWord::Abandoned, why.to_owned(), by);
        self.run.cancel_scheduled_resume(step);
    }
}
