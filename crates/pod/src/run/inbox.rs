//! Inbox: notifications, reports and steering inputs on their way into the context.
//!
//! They are stored as entries first, so a late or paused one is never lost.

use minke_prompts::{Snippet, SnippetCatalog};
use minke_record::{
    Actor, ActorKind, DequeueReason, Dequeued, ErrorCode, Inbox, Note, PodEvent, QueueMode, Queued,
    SessionId, SystemEntry, SystemItem, SystemKind, Text, Trigger,
};

use crate::engine::InputHandler;
use crate::run::{RunInput, RunStart};
use crate::state::State;
use crate::step::{CommandRefusal, ReplyBody};
use crate::step_builder::StepBuilder;
use crate::table::Disposition;

impl State {
    /// Returns whether a note or steering input keeps the run going.
    pub(crate) fn has_pending_notes(&self) -> bool {
        self.facts.notes.iter().any(|note| note.wake)
            || self.facts.queue.iter().any(|queued| queued.mode == QueueMode::Steer)
    }
}

impl StepBuilder<'_> {
    /// Before a request: adds all notes and steering inputs to the context.
    pub(crate) fn drain_inbox(&mut self) {
        let notes: Vec<Note> = self.state.facts.notes.iter().cloned().collect();
        for note in notes {
            let item = note_item(&note, &self.state.session_catalog());
            self.append_entry(SystemEntry { item, note: Some(note.seq) });
        }
        let steering: Vec<Queued> =
            self.state.facts.queue.iter().filter(|q| q.mode == QueueMode::Steer).cloned().collect();
        for steer in steering {
            self.append_entry(Dequeued { id: steer.id, why: DequeueReason::Steered });
            let Queued { id, segments, attached, op_id, from, .. } = steer;
            self.append_run_input(RunInput { segments, attached, op_id, from, queued: Some(id) });
        }
    }
}

impl InputHandler<'_, '_> {
    pub(crate) fn add_notification(
        &mut self,
        disposition: &Disposition,
        from: Actor,
        message: String,
        wake: bool,
    ) -> Result<ReplyBody, CommandRefusal> {
        let limit = self.step.state.manifest.pod.limits.queue;
        if self.step.state.facts.notes.len() as u64 >= limit {
            let message = format!("the inbox is full: {limit} notes (pod.limits.queue)");
            return Err(CommandRefusal::new(ErrorCode::TooMany, message));
        }
        if message.is_empty() {
            return Err(CommandRefusal::new(ErrorCode::InvalidRequest, "`message` is empty"));
        }
        let by = from.clone();
        self.step.append_entry(Inbox {
            from,
            from_seq: None,
            event: None,
            message: Some(message.into()),
            wake,
        });
        self.engine.work.children.mark_message_received();
        if wake && *disposition == Disposition::LogAndWake {
            self.start_run_for_notes(Trigger::Notify, by);
        }
        Ok(ReplyBody::Ok)
    }

    pub(crate) fn add_pod_event(
        &mut self,
        cell: &Disposition,
        event: PodEvent,
        sender: Option<SessionId>,
        from_seq: Option<u64>,
    ) -> Result<ReplyBody, CommandRefusal> {
        if let (Some(sender), Some(seq)) = (sender, from_seq)
            && self.step.state.facts.heard.get(&sender).is_some_and(|received| *received >= seq)
        {
            return Ok(ReplyBody::Ok); // received before
        }
        let from = Actor { actor: ActorKind::Pod, session: sender, surface: None };
        let wake = event.wakes_parent();
        let received = Some(event.clone());
        self.step.append_entry(Inbox { from: from.clone(), from_seq, event: received, message: None, wake });
        self.step.forward_event(&event);
        if wake && *cell == Disposition::LogAndWake {
            self.start_run_for_notes(Trigger::PodEvent, from);
        }
        Ok(ReplyBody::Ok)
    }

    /// Starts a run for the pending notes, if possible; else they wait for the next run.
    pub(crate) fn start_run_for_notes(&mut self, trigger: Trigger, by: Actor) {
        if self.engine.process.run_refusal(self.step.state).is_none() && self.step.state.facts.run.is_none() {
            self.engine.start_run(self.step, RunStart { trigger, by, input: None });
        }
    }
}

/// Returns the note as the model reads it.
fn note_item(note: &Note, catalog: &SnippetCatalog) -> SystemItem {
    match (&note.event, &note.message) {
        (Some(event), _) => SystemItem {
            kind: SystemKind::PodEvent,
            cause: serde_json::to_value(event).ok(),
            body: catalog.render(Snippet::Report, &[("report", &describe_event(event))]).into(),
        },
        (None, message) => {
            let body = match message {
                Some(Text::Inline(text)) => {
                    let who = note_sender(&note.from);
                    catalog.render(Snippet::Notification, &[("who", &who), ("message", text)]).into()
                }
                Some(blob) => blob.clone(),
                None => "[Notification]".into(),
            };
            SystemItem { kind: SystemKind::Notification, cause: None, body }
        }
    }
}

/// Returns the label of the sender: a hook's name or `Notification`.
fn note_sender(from: &Actor) -> String {
    match (&from.actor, &from.surface) {
        (ActorKind::Hook, Some(name)) => format!("Hook {name}"),
        (ActorKind::Hook, None) => "Hook".to_owned(),
        _ => "Notification".to_owned(),
    }
}

pub(crate) fn describe_event(event: &PodEvent) -> String {
    match event {
        PodEvent::TurnEnded { pod_name, result, .. } => {
            format!("pod `{pod_name}` has ended its run ({})", result.as_deref().unwrap_or("finished"))
        }
        PodEvent::Errored { pod_name, message, .. } => format!("pod `{pod_name}` has failed: {message}"),
        PodEvent::ShutDown { pod_name, result, .. } => {
            format!("pod `{pod_name}` has shut down ({})", result.as_deref().unwrap_or("no result"))
        }
        PodEvent::Asked { pod_name, .. } => format!("pod `{pod_name}` asks a question"),
        PodEvent::ScopeSubDelegated { parent_pod, sub_pod, .. } => {
            format!("pod `{parent_pod}` has lent part of its scope to `{sub_pod}`")
        }
        PodEvent::Unknown => "an event of a later version".to_owned(),
    }
}
