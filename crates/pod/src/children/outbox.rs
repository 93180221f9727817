//! Outbox: reports to the parent. Reports only go upward, so they cannot loop.
//!
//! This module decides which run ends are reported and whether they wake the parent, and reports asks, loans
//! and the exit. A report is written, synced, sent and acknowledged; one is in flight at a time, the oldest
//! first. Elsewhere: sending (`driver::children`), receiving (`inbox`).
//! Invariant: each report arrives once (`each_report_is_received_once`, the tree stories killed everywhere).

use minke_record::{
    ActorKind, ChildOutcome, Kind, OpenAsk, OpenChild, OpenRun, Outbox, OutboxAck, PodEvent, RunResult,
    SessionId, Trigger,
};

use crate::PodTimer;
use crate::children::messages::ChildCommand;
use crate::engine::InputHandler;
use crate::environment::Environment;
use crate::exit::ExitState;
use crate::state::State;
use crate::step::{Effect, LiveEventKind};
use crate::step_builder::StepBuilder;

/// Maximum time that an exiting pod waits for its reports to arrive. Unsent reports stay in its log.
const FLUSH_TIMEOUT_MS: u64 = 2_000;

impl State {
    pub(crate) fn parent_session(&self) -> Option<SessionId> {
        Some(self.facts.about.as_ref()?.parent.as_ref()?.session)
    }

    fn own_name(&self) -> String {
        self.facts.name.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

impl StepBuilder<'_> {
    fn append_report(&mut self, event: PodEvent) {
        if let Some(to) = self.state.parent_session() {
            self.append_entry(Outbox { to, event });
        }
    }

    /// Reports the end of a run, unless its trigger expects no report.
    pub(crate) fn report_run_end(&mut self, run: &OpenRun, terminal: &Kind) {
        let Some(wake) = wakes_parent(run) else { return };
        let pod_name = self.state.own_name();
        match terminal {
            Kind::RunCompleted(end) if !matches!(end.result, RunResult::Paused | RunResult::Interrupted) => {
                let result = Some(end.result.to_string());
                self.append_report(PodEvent::TurnEnded { pod_name, result, wake: Some(wake) });
            }
            Kind::RunErrored(end) => {
                let message = end.message.clone();
                self.append_report(PodEvent::Errored { pod_name, message, wake: Some(wake) });
            }
            _ => {}
        }
    }

    /// Reports that this pod no longer resumes its run automatically.
    pub(crate) fn report_abandoned_resume(&mut self, message: &str) {
        let event = PodEvent::Errored {
            pod_name: self.state.own_name(),
            message: message.to_owned(),
            wake: Some(true),
        };
        self.append_report(event);
    }

    /// Reports a loan. Every ancestor receives it; the scope table has the details.
    pub(crate) fn report_loan(&mut self, child: &OpenChild, socket: &str) {
        let event = PodEvent::ScopeSubDelegated {
            parent_pod: self.state.own_name(),
            sub_pod: child.name.to_string(),
            sub_socket: socket.to_owned(),
            scope: child.scope.allow.clone(),
        };
        self.append_report(event);
    }

    /// Forwards events that all ancestors should receive.
    pub(crate) fn forward_event(&mut self, event: &PodEvent) {
        if matches!(event, PodEvent::ScopeSubDelegated { .. }) {
            self.append_report(event.clone());
        }
    }
}

impl Environment {
    /// Reports an open ask. Ancestors can answer it at this pod's socket.
    pub(crate) fn report_open_ask(&mut self, step: &mut StepBuilder<'_>, ask: &OpenAsk) {
        if step.state.parent_session().is_none() {
            return;
        }
        let ask = serde_json::to_value(ask).expect("an ask is plain data");
        let socket = self.boot.as_ref().map(|boot| boot.socket.clone()).unwrap_or_default();
        step.append_report(PodEvent::Asked { pod_name: step.state.own_name(), ask, socket, wake: None });
    }
}

impl InputHandler<'_, '_> {
    /// Sends the oldest report if none is in flight.
    pub(crate) fn send_next_report(&mut self) {
        if self.engine.work.report_in_flight.is_some() || self.engine.process.environment.boot.is_none() {
            return;
        }
        if let Some(report) = self.step.state.facts.outbox.front() {
            self.engine.work.report_in_flight = Some(report.seq);
            let (seq, to, event) = (report.seq, report.to, report.event.clone());
            self.step.add_effect(Effect::Child(ChildCommand::Report { seq, to, event }));
        }
    }

    /// Handles the acknowledgement of a report.
    pub(crate) fn acknowledge_report(&mut self, seq: u64) {
        if self.engine.work.report_in_flight == Some(seq) {
            self.engine.work.report_in_flight = None;
        }
        if self.step.state.facts.outbox.iter().any(|report| report.seq == seq) {
            self.step.append_entry(OutboxAck { seq });
        }
        if self.engine.process.exit.outbox_flushing && self.step.state.facts.outbox.is_empty() {
            self.step.add_effect(Effect::ClearTimer { timer: PodTimer::OutboxFlush });
            self.engine.process.exit.exit_process(self.step);
        }
    }
}

impl ExitState {
    /// Sends a final report and exits when the outbox is empty or after a timeout.
    pub(crate) fn flush_and_exit(&mut self, step: &mut StepBuilder<'_>) {
        self.stop_after_capture = false;
        let can_report = self.storage_error.is_none() && step.state.parent_session().is_some();
        if !can_report || self.outbox_flushing {
            return self.exit_process(step);
        }
        self.outbox_flushing = true;
        let outcome = if self.exits_idle { ChildOutcome::Slept } else { ChildOutcome::Stopped };
        let (pod_name, result) = (step.state.own_name(), None);
        step.append_report(PodEvent::ShutDown {
            pod_name,
            outcome: Some(outcome),
            result,
            wake: Some(false),
        });
        step.add_effect(Effect::SetTimer { timer: PodTimer::OutboxFlush, at: step.now + FLUSH_TIMEOUT_MS });
    }

    /// Exits after the timeout; unsent reports stay in the log.
    pub(crate) fn end_flush(&mut self, step: &mut StepBuilder<'_>) {
        if self.outbox_flushing {
            self.exit_process(step);
        }
    }

    pub(crate) fn exit_process(&mut self, step: &mut StepBuilder<'_>) {
        self.outbox_flushing = false;
        step.publish_live(LiveEventKind::Shutdown);
        step.add_effect(Effect::Exit);
    }
}

/// Returns whether the end of this run wakes the parent; `None` if it is not reported.
fn wakes_parent(run: &OpenRun) -> Option<bool> {
    match run.trigger {
        Trigger::Notify => None,
        Trigger::UserSend => Some(run.by.actor != ActorKind::Person),
        Trigger::PodEvent | Trigger::Resume | Trigger::Job | Trigger::Wakeup | Trigger::Other(_) => {
            Some(true)
        }
    }
}
