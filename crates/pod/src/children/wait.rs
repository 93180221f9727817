//! Waiting for children: calls that suspend the turn until an event of other pods.
//!
//! Earlier events count, a message to this pod ends every wait, and returned reports are not shown again as
//! notes. The time starts at the dispatch, so a restarted pod waits only for the remaining time
//! (`a_wait_outlives_the_process.story`).

use std::collections::BTreeSet;

use minke_record::{AskId, CallId, Millis, Note, OpenAsk, OpenChild, SessionId, WaitUntil};

use crate::PodTimer;
use crate::calls::{CallProgress, CallResult};
use crate::children::messages::ChildCommand;
use crate::children::table::ChildTable;
use crate::children::{child_end_phrase, completed_call};
use crate::engine::{InputHandler, PodEngine};
use crate::input::CallEnd;
use crate::run::inbox::describe_event;
use crate::state::State;
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// Maximum size of a child's last text in the result of a SpawnPod with `wait`.
const MAX_TEXT_BYTES: u64 = 16 * 1024;
/// Maximum length of an ask in the result.
const MAX_ASK_CHARS: usize = 400;

/// A call that waits for children.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodWait {
    call_id: CallId,
    /// The number of the wait in this process.
    number: u64,
    children: Vec<SessionId>,
    until: WaitUntil,
    deadline: Millis,
    /// The result includes the child's last text.
    wants_text: bool,
    /// The wait has ended for this reason, and the text is being read.
    reading_text: Option<WaitEnd>,
}

/// Why a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Event,
    Ask,
    Message,
    Timeout,
}

impl PodWait {
    pub(crate) fn new(
        call_id: CallId,
        children: Vec<SessionId>,
        until: WaitUntil,
        deadline: Millis,
    ) -> PodWait {
        PodWait { call_id, number: 0, children, until, deadline, wants_text: false, reading_text: None }
    }

    pub(crate) fn with_child_text(self) -> PodWait {
        PodWait { wants_text: true, ..self }
    }

    pub(crate) fn is_for_call(&self, id: &CallId) -> bool {
        self.call_id == *id
    }

    pub(crate) fn wait_deadline(&self) -> Millis {
        self.deadline
    }
}

impl State {
    fn awaited_children(&self, wait: &PodWait) -> Vec<&OpenChild> {
        wait.children.iter().filter_map(|session| self.child(*session)).collect()
    }
}

impl PodEngine {
    pub(crate) fn start_pod_wait(&mut self, step: &mut StepBuilder<'_>, wait: PodWait) {
        self.process.child_starts.last_wait_number += 1;
        let wait = PodWait { number: self.process.child_starts.last_wait_number, ..wait };
        let timer = PodTimer::WaitPods(wait.number);
        step.add_effect(Effect::SetTimer { timer, at: wait.deadline.max(step.now) });
        self.work.children.pod_waits.push(wait);
    }
}

impl InputHandler<'_, '_> {
    /// After every step: finishes waits that have ended.
    pub(crate) fn finish_pod_waits(&mut self) {
        let message = std::mem::take(&mut self.engine.work.children.message_received);
        let waits = self.engine.work.children.pod_waits.clone();
        for wait in waits {
            let running = matches!(
                self.engine.work.calls.call_progress.get(&wait.call_id),
                Some(CallProgress::Running { .. })
            );
            if !running {
                // Closed by a pause, a cancel or an end.
                self.engine.work.children.remove_pod_wait(self.step, &wait);
            } else if wait.reading_text.is_none()
                && let Some(end) =
                    self.engine.work.children.pod_wait_end(self.step.state, &wait, message, self.step.now)
            {
                self.end_pod_wait(wait, end);
            }
        }
    }

    pub(crate) fn end_pod_wait(&mut self, wait: PodWait, end: WaitEnd) {
        self.engine.work.children.remove_pod_wait(self.step, &wait);
        let child = wait.children.first().copied();
        if let (true, WaitEnd::Event, Some(child)) = (wait.wants_text, end, child)
            && let Some(name) = self.step.state.child(child).map(|child| child.name.clone())
        {
            let since = self.step.state.facts.read_to.get(&child).copied().unwrap_or(0);
            let (call_id, max_bytes, detail) = (wait.call_id.clone(), MAX_TEXT_BYTES, false);
            self.engine.work.children.pod_waits.push(PodWait { reading_text: Some(end), ..wait });
            let read = ChildCommand::Read { call_id, child, name, since, max_bytes, detail };
            return self.step.add_effect(Effect::Child(read));
        }
        let result = self.engine.work.children.pod_wait_result(self.step.state, &wait, end, None);
        self.engine.work.calls.settle_call(self.step, &wait.call_id, result);
        self.continue_after_call();
    }

    /// Finishes a wait after its text was read. Returns whether there was such a wait.
    pub(crate) fn end_pod_wait_with_text(&mut self, id: &CallId, ended: &CallEnd) -> bool {
        let found = |wait: &PodWait| wait.call_id == *id && wait.reading_text.is_some();
        let Some(at) = self.engine.work.children.pod_waits.iter().position(found) else { return false };
        let wait = self.engine.work.children.pod_waits.remove(at);
        let text = match ended {
            CallEnd::Done(output) => output.content.clone().unwrap_or_else(|| output.summary.clone()),
            CallEnd::Failed { message } | CallEnd::Invalid { message } => {
                format!("(could not read its text: {message})")
            }
            CallEnd::TimedOut { .. } => "(its text could not be read in time)".to_owned(),
        };
        let result = self.engine.work.children.pod_wait_result(
            self.step.state,
            &wait,
            wait.reading_text.unwrap_or(WaitEnd::Event),
            Some(text),
        );
        self.engine.work.calls.settle_call(self.step, id, result);
        self.continue_after_call();
        true
    }
}

impl ChildTable {
    /// Marks that a message has arrived; it ends all waits.
    pub(crate) fn mark_message_received(&mut self) {
        self.message_received = true;
    }

    pub(crate) fn remove_pod_wait(&mut self, step: &mut StepBuilder<'_>, wait: &PodWait) {
        self.pod_waits.retain(|other| other.number != wait.number);
        step.add_effect(Effect::ClearTimer { timer: PodTimer::WaitPods(wait.number) });
    }

    /// Returns whether this call waits for other pods.
    pub(crate) fn is_waiting_for_pods(&self, id: &CallId) -> bool {
        self.pod_waits.iter().any(|wait| wait.is_for_call(id))
    }

    pub(crate) fn pod_wait_end(
        &self,
        state: &State,
        wait: &PodWait,
        message: bool,
        now: Millis,
    ) -> Option<WaitEnd> {
        let children = state.awaited_children(wait);
        if children.iter().any(|child| child.asks.iter().any(|ask| !self.reported_asks.contains(&ask.id))) {
            return Some(WaitEnd::Ask);
        }
        let is_over = |child: &&OpenChild| child.ended.is_some() || child.reported.is_some();
        let event = match wait.until {
            WaitUntil::Any => children.iter().any(is_over),
            WaitUntil::All => children.iter().all(is_over),
            // No pod is left that could ask.
            WaitUntil::Ask => children.iter().all(|child| child.ended.is_some()),
        };
        if event {
            return Some(WaitEnd::Event);
        }
        if message {
            return Some(WaitEnd::Message);
        }
        (now >= wait.deadline).then_some(WaitEnd::Timeout)
    }

    /// Returns the result of a wait: its end, the state of every pod, and the reports, which are not shown
    /// again.
    pub(crate) fn pod_wait_result(
        &mut self,
        state: &State,
        wait: &PodWait,
        end: WaitEnd,
        text: Option<String>,
    ) -> CallResult {
        let children: Vec<OpenChild> = state.awaited_children(wait).into_iter().cloned().collect();
        let sessions: BTreeSet<SessionId> = wait.children.iter().copied().collect();
        let from =
            |note: &&Note| note.event.is_some() && note.from.session.is_some_and(|s| sessions.contains(&s));
        let notes: Vec<Note> = state.facts.notes.iter().filter(from).cloned().collect();
        let mut lines: Vec<String> = Vec::new();
        for child in &children {
            let mut reports = notes.iter().filter(|note| note.from.session == Some(child.session)).peekable();
            if reports.peek().is_none() {
                lines.push(format!("pod `{}` {}", child.name, unreported_child_phrase(child)));
            }
            lines.extend(reports.filter_map(|note| note.event.as_ref()).map(describe_event));
            lines.extend(
                child.asks.iter().map(|ask| format!("pod `{}` asks: {}", child.name, ask_summary(ask))),
            );
        }
        let asked: Vec<AskId> = children.iter().flat_map(|child| &child.asks).map(|ask| ask.id).collect();
        self.reported_asks.extend(asked);
        let summary = match end {
            WaitEnd::Event => match wait.until {
                WaitUntil::All => "all have ended their runs",
                WaitUntil::Any => "a pod has ended its run",
                WaitUntil::Ask => "no pod is left that could ask",
            },
            WaitEnd::Ask => "a pod asks a question",
            WaitEnd::Message => "you have a new message; the pods continue",
            WaitEnd::Timeout => "the timeout has passed; the pods continue",
        };
        let mut result = match text {
            // The child's text replaces the summary.
            Some(text) => completed_call(lines.join("; "), Some(text)),
            None => completed_call(summary.to_owned(), Some(lines.join("\n"))),
        };
        result.shown_notes = notes.iter().map(|note| note.seq).collect();
        result
    }
}

/// Describes a child without a new report.
fn unreported_child_phrase(child: &OpenChild) -> String {
    match (&child.ended, child.reported) {
        (Some(_), _) => child_end_phrase(child),
        (None, Some(_)) => "has ended its run (already reported)".to_owned(),
        (None, None) => "is running".to_owned(),
    }
}

fn ask_summary(ask: &OpenAsk) -> String {
    let text: String = ask.subject.text.as_deref().unwrap_or("").chars().take(MAX_ASK_CHARS).collect();
    let tool = ask.subject.tool.as_deref().unwrap_or("a question");
    format!("{tool}: {text} (ask {})", ask.id)
}
