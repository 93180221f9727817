//! Being stopped: pause, cancel, abandon, shut down, a signal, a log that cannot be written.
//!
//! Order of strength: a run that ends first has ended; `shutdown` beats `cancel` beats `pause`.

use minke_record::{Actor, CallStage, ErrorCode, Outcome, RunResult, StateWord, Trigger, TurnResult};

use crate::Timer;
use crate::calls::Settled;
use crate::pod::{Making, Pausing, Pod, Stopping};
use crate::step::{Effect, Given};
use crate::table::Cell;

/// How long calls that are not pure may take to end after a `pause`.
const PAUSE_GRACE_MS: u64 = 10_000;

impl Pod {
    /// Stops at a safe point: the stream is cut, pure calls are dropped, others get time to end.
    pub(crate) fn pause(&mut self, m: &mut Making, cell: &Cell, detail: Option<String>) -> Given {
        if *cell == Cell::Nothing || self.life.pausing.is_some() {
            return Given::Ok;
        }
        self.cut_reply(m);
        let wait = self.drop_pure_work(m);
        self.life.pausing = Some(Pausing { reason: detail });
        if wait {
            m.effect(Effect::SetTimer { timer: Timer::PauseGrace, at: m.now + PAUSE_GRACE_MS });
        } else {
            self.pause_now(m);
        }
        Given::Ok
    }

    /// The last call that a pause waited for may have ended.
    pub(crate) fn pause_if_quiet(&mut self, m: &mut Making) {
        if self.running_calls().is_empty() {
            m.effect(Effect::ClearTimer { timer: Timer::PauseGrace });
            self.pause_now(m);
        }
    }

    pub(crate) fn pause_grace_over(&mut self, m: &mut Making) {
        if self.life.pausing.is_none() {
            return;
        }
        for call_id in self.running_calls() {
            m.effect(Effect::StopCall { call_id: call_id.clone() });
            let message = "stopped by a pause; it may have taken effect";
            self.settle_call(m, &call_id, Settled::error(Outcome::Cancelled, message));
        }
        self.pause_now(m);
    }

    fn pause_now(&mut self, m: &mut Making) {
        let reason = self.life.pausing.take().and_then(|pausing| pausing.reason);
        self.life.stop_reason = "paused".to_owned();
        self.end_turn(m, TurnResult::Paused);
        self.end_run(m, RunResult::Paused, reason);
    }

    pub(crate) fn cancel(&mut self, m: &mut Making, cell: &Cell, by: Actor, detail: Option<String>) -> Given {
        let why = detail.unwrap_or_else(|| "cancelled".to_owned());
        match cell {
            Cell::Cancel => self.cancel_run(m, &why),
            Cell::Abandon => {
                self.give_up(m, &why, &by);
                self.tell_status(m);
            }
            _ => {}
        }
        Given::Ok
    }

    /// A paused or interrupted run does not go on: its calls and its questions are closed.
    pub(crate) fn give_up(&mut self, m: &mut Making, why: &str, by: &Actor) {
        self.close_calls(m, why);
        self.note_state(m, StateWord::Abandoned, why.to_owned(), by);
        self.forget_wait(m);
    }

    /// Ends the open run. Before the model has said anything its input leaves the context (a rollback).
    pub(crate) fn cancel_run(&mut self, m: &mut Making, why: &str) {
        if self.life.pausing.take().is_some() {
            m.effect(Effect::ClearTimer { timer: Timer::PauseGrace });
        }
        let said = self.cut_reply(m);
        let calls = self.has_calls();
        self.close_calls(m, why);
        let Some(run) = &self.state.facts.run else { return };
        let resumed = run.trigger == Trigger::Resume;
        let rolled_back = !said && !calls && !run.produced && !resumed && run.input_at.is_some();
        self.life.stop_reason = "cancelled".to_owned();
        self.end_turn(m, TurnResult::Cancelled);
        let result = if rolled_back { RunResult::RolledBack } else { RunResult::Cancelled };
        self.end_run(m, result, Some(why.to_owned()));
    }

    /// `shutdown`: the run ends as `cancelled`.
    pub(crate) fn shut_down(&mut self, m: &mut Making) {
        self.life.stopping = Some(Stopping::Now);
        self.cancel_run(m, "the pod was shut down");
        self.stop_now(m);
    }

    /// A signal or the idle exit: the run ends as `interrupted`, its calls and asks stay as they are, so that a
    /// reboot costs no job.
    pub(crate) fn stop_by_signal(&mut self, m: &mut Making, why: &str) {
        if self.life.stopping == Some(Stopping::Now) {
            if self.life.stop_waits || self.life.flushing {
                self.leave(m);
            }
            return;
        }
        self.life.stopping = Some(Stopping::Now);
        self.life.closing = None;
        self.life.pausing = None;
        self.cut_reply(m);
        for call_id in self.running_calls() {
            m.effect(Effect::StopCall { call_id });
        }
        self.life.stop_reason = "interrupted".to_owned();
        self.end_turn(m, TurnResult::Paused);
        self.end_run(m, RunResult::Interrupted, Some(format!("stopped by {why}")));
        self.stop_now(m);
    }

    /// Stops, when it is known how the last run left the files: without that they cannot be put back.
    pub(crate) fn stop_now(&mut self, m: &mut Making) {
        self.life.stopping = Some(Stopping::Now);
        self.drop_parked(
            m,
            &ErrorCode::Conflict,
            "the pod is stopping; send it again, it will be started anew",
        );
        self.tell_status(m);
        if self.life.closing.is_some() {
            self.life.stop_waits = true;
            return;
        }
        self.leave(m);
    }

    /// A write has failed and this pod was made again from the log: its open run ends here, and no new one begins
    /// until there is space.
    pub(crate) fn storage_failed(&mut self, m: &mut Making, message: String) {
        self.life.storage_failed = Some(message.clone());
        let why = format!("the log cannot be written ({message}); free some space and try again");
        self.drop_parked(m, &ErrorCode::StorageFailed, &why);
        self.end_for_storage(m, message);
        self.set_ask_timers(m);
        self.look_for_started(m);
    }

    /// What the hands were busy with died with the write: no question stays that nobody can answer any more.
    fn end_for_storage(&mut self, m: &mut Making, message: String) {
        for ask in self.orphan_asks() {
            self.abort_ask(m, ask, "the log could not be written");
        }
        self.settle_clients_calls(m);
        if self.state.facts.run.is_some() {
            self.close_calls(m, "the log could not be written");
            self.fail_run(m, ErrorCode::StorageFailed, message, true);
        }
    }

    /// There is space again. A run whose end could not be written ends now.
    pub(crate) fn storage_back(&mut self, m: &mut Making) {
        let Some(message) = self.life.storage_failed.take() else { return };
        let idle = self.life.reply.is_none() && self.life.work.is_empty();
        if idle {
            self.end_for_storage(m, message);
        }
    }

    /// Asks that no call and no client stands behind any more.
    pub(crate) fn orphan_asks(&self) -> Vec<minke_record::AskId> {
        let asked = |id| self.state.facts.calls.iter().any(|call| call.stage == CallStage::Asked(id));
        let open = self.state.facts.asks.iter();
        open.filter(|ask| ask.subject.call_id.is_some() && !asked(ask.id)).map(|ask| ask.id).collect()
    }
}
