//! The outbox: what this pod tells its parent. Reports only go upward, so they cannot circle.
//!
//! Here: which end of a run is told, and whether the parent wakes for it, by who opened the run; questions and loans on
//! their way up; the last word of a pod that stops. Written, synced, sent, acknowledged: one is in flight, the oldest.
//! Elsewhere: sending (`driver::children`), receiving (`notes`).
//! Invariant: each report arrives once (`each_report_is_received_once`, the tree's stories killed everywhere).

use minke_record::{
    ActorKind, ChildOutcome, Kind, OpenAsk, OpenChild, OpenRun, Outbox, OutboxAck, PodEvent, RunResult,
    SessionId, Trigger,
};

use crate::Timer;
use crate::pod::{Making, Pod};
use crate::step::{Effect, LiveWhat};
use crate::tree::TreeOrder;

/// How long a pod that stops waits for its reports to arrive; the rest stays in its log.
const FLUSH_MS: u64 = 2_000;

impl Pod {
    pub(crate) fn parent(&self) -> Option<SessionId> {
        Some(self.state.facts.about.as_ref()?.parent.as_ref()?.session)
    }

    fn own_name(&self) -> String {
        self.state.facts.name.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    fn report(&mut self, m: &mut Making, event: PodEvent) {
        if let Some(to) = self.parent() {
            self.note(m, Outbox { to, event });
        }
    }

    /// A run has ended: the parent is told, unless nobody waits for its end.
    pub(crate) fn report_end(&mut self, m: &mut Making, run: &OpenRun, terminal: &Kind) {
        let Some(wake) = wakes_parent(run) else { return };
        let pod_name = self.own_name();
        match terminal {
            Kind::RunCompleted(end) if !matches!(end.result, RunResult::Paused | RunResult::Interrupted) => {
                let result = Some(end.result.to_string());
                self.report(m, PodEvent::TurnEnded { pod_name, result, wake: Some(wake) });
            }
            Kind::RunErrored(end) => {
                let message = end.message.clone();
                self.report(m, PodEvent::Errored { pod_name, message, wake: Some(wake) });
            }
            _ => {}
        }
    }

    /// This pod does not resume its run by itself any more.
    pub(crate) fn report_given_up(&mut self, m: &mut Making, message: &str) {
        let event =
            PodEvent::Errored { pod_name: self.own_name(), message: message.to_owned(), wake: Some(true) };
        self.report(m, event);
    }

    /// A question has been asked: whoever is above may know, and answer at this pod's socket.
    pub(crate) fn report_ask(&mut self, m: &mut Making, ask: &OpenAsk) {
        if self.parent().is_none() {
            return;
        }
        let ask = serde_json::to_value(ask).expect("a question is plain data");
        let socket = self.life.boot.as_ref().map(|boot| boot.socket.clone()).unwrap_or_default();
        self.report(m, PodEvent::Asked { pod_name: self.own_name(), ask, socket, wake: None });
    }

    /// Every ancestor learns of a loan below it; what it records it reads from the scope table.
    pub(crate) fn tell_of_loan(&mut self, m: &mut Making, child: &OpenChild, socket: &str) {
        let event = PodEvent::ScopeSubDelegated {
            parent_pod: self.own_name(),
            sub_pod: child.name.to_string(),
            sub_socket: socket.to_owned(),
            scope: child.scope.allow.clone(),
        };
        self.report(m, event);
    }

    /// What came from below and is for everybody above.
    pub(crate) fn pass_on(&mut self, m: &mut Making, event: &PodEvent) {
        if matches!(event, PodEvent::ScopeSubDelegated { .. }) {
            self.report(m, event.clone());
        }
    }

    /// Sends the oldest report, if none is on its way.
    pub(crate) fn send_reports(&mut self, m: &mut Making) {
        if self.life.reporting.is_some() || self.life.boot.is_none() {
            return;
        }
        if let Some(report) = self.state.facts.outbox.front() {
            self.life.reporting = Some(report.seq);
            let (seq, to, event) = (report.seq, report.to, report.event.clone());
            m.effect(Effect::Tree(TreeOrder::Report { seq, to, event }));
        }
    }

    /// A report has arrived.
    pub(crate) fn acknowledged(&mut self, m: &mut Making, seq: u64) {
        if self.life.reporting == Some(seq) {
            self.life.reporting = None;
        }
        if self.state.facts.outbox.iter().any(|report| report.seq == seq) {
            self.note(m, OutboxAck { seq });
        }
        if self.life.flushing && self.state.facts.outbox.is_empty() {
            m.effect(Effect::ClearTimer { timer: Timer::Flush });
            self.exit(m);
        }
    }

    /// The last thing that a pod does: its last word goes up, and what waits in the outbox gets a little time.
    pub(crate) fn leave(&mut self, m: &mut Making) {
        self.life.stop_waits = false;
        let can_tell = self.life.storage_failed.is_none() && self.parent().is_some();
        if !can_tell || self.life.flushing {
            return self.exit(m);
        }
        self.life.flushing = true;
        let outcome = if self.life.sleepy { ChildOutcome::Slept } else { ChildOutcome::Stopped };
        let (pod_name, result) = (self.own_name(), None);
        self.report(m, PodEvent::ShutDown { pod_name, outcome: Some(outcome), result, wake: Some(false) });
        m.effect(Effect::SetTimer { timer: Timer::Flush, at: m.now + FLUSH_MS });
    }

    /// Nobody above has answered in time: the rest stays in the log.
    pub(crate) fn flushed(&mut self, m: &mut Making) {
        if self.life.flushing {
            self.exit(m);
        }
    }

    fn exit(&mut self, m: &mut Making) {
        self.life.flushing = false;
        self.live(m, LiveWhat::Shutdown);
        m.effect(Effect::Exit);
    }
}

/// Whether the parent wakes when this run ends; none if it is not told at all.
fn wakes_parent(run: &OpenRun) -> Option<bool> {
    match run.trigger {
        Trigger::Notify => None,
        Trigger::UserSend => Some(run.by.actor != ActorKind::Person),
        Trigger::PodEvent | Trigger::Resume | Trigger::Job | Trigger::Wakeup | Trigger::Other(_) => {
            Some(true)
        }
    }
}
