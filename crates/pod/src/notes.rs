//! Notes: notifications, reports and steering on their way into the context.
//!
//! They are entries first and memory second, so nothing that arrived late in a run or while paused is stranded.

use minke_prompts::{Catalog, Snippet};
use minke_record::{
    Actor, ActorKind, DequeueReason, Dequeued, ErrorCode, Inbox, Note, PodEvent, QueueMode, Queued,
    SessionId, SystemEntry, SystemItem, SystemKind, Text, Trigger,
};

use crate::pod::{Making, Pod};
use crate::run::{Opening, Said};
use crate::step::{Given, Refusal};
use crate::table::Cell;

impl Pod {
    pub(crate) fn notify(
        &mut self,
        m: &mut Making,
        cell: &Cell,
        from: Actor,
        message: String,
        wake: bool,
    ) -> Result<Given, Refusal> {
        let limit = self.state.manifest.pod.limits.queue;
        if self.state.facts.notes.len() as u64 >= limit {
            let message = format!("{limit} notes wait already (pod.limits.queue)");
            return Err(Refusal::new(ErrorCode::TooMany, message));
        }
        if message.is_empty() {
            return Err(Refusal::new(ErrorCode::InvalidRequest, "`message` is empty"));
        }
        let by = from.clone();
        self.note(m, Inbox { from, from_seq: None, event: None, message: Some(message.into()), wake });
        self.end_waits_for_message();
        if wake && *cell == Cell::LogAndWake {
            self.wake(m, Trigger::Notify, by);
        }
        Ok(Given::Ok)
    }

    pub(crate) fn pod_event(
        &mut self,
        m: &mut Making,
        cell: &Cell,
        event: PodEvent,
        sender: Option<SessionId>,
        from_seq: Option<u64>,
    ) -> Result<Given, Refusal> {
        if let (Some(sender), Some(seq)) = (sender, from_seq)
            && self.state.facts.heard.get(&sender).is_some_and(|heard| *heard >= seq)
        {
            return Ok(Given::Ok); // it has been received already
        }
        let from = Actor { actor: ActorKind::Pod, session: sender, surface: None };
        let wake = event.wakes();
        let heard = Some(event.clone());
        self.note(m, Inbox { from: from.clone(), from_seq, event: heard, message: None, wake });
        self.pass_on(m, &event);
        if wake && *cell == Cell::LogAndWake {
            self.wake(m, Trigger::PodEvent, from);
        }
        Ok(Given::Ok)
    }

    /// Opens a run for the notes, if one can be opened; else they wait for the next.
    pub(crate) fn wake(&mut self, m: &mut Making, trigger: Trigger, by: Actor) {
        if self.cannot_run().is_none() && self.state.facts.run.is_none() {
            self.start_run(m, Opening { trigger, by, input: None });
        }
    }

    /// Whether something has come that keeps a run going.
    pub(crate) fn notes_wait(&self) -> bool {
        self.state.facts.notes.iter().any(|note| note.wake)
            || self.state.facts.queue.iter().any(|queued| queued.mode == QueueMode::Steer)
    }

    /// Puts every note and all steering into the context, before a request.
    pub(crate) fn drain_notes(&mut self, m: &mut Making) {
        let notes: Vec<Note> = self.state.facts.notes.iter().cloned().collect();
        for note in notes {
            let item = system_item(&note, &self.state.catalog());
            self.note(m, SystemEntry { item, note: Some(note.seq) });
        }
        let steering: Vec<Queued> =
            self.state.facts.queue.iter().filter(|q| q.mode == QueueMode::Steer).cloned().collect();
        for steer in steering {
            self.note(m, Dequeued { id: steer.id, why: DequeueReason::Steered });
            let Queued { id, segments, attached, op_id, from, .. } = steer;
            self.note_said(m, Said { segments, attached, op_id, from, queued: Some(id) });
        }
    }
}

/// The note as the model reads it.
fn system_item(note: &Note, catalog: &Catalog) -> SystemItem {
    match (&note.event, &note.message) {
        (Some(event), _) => SystemItem {
            kind: SystemKind::PodEvent,
            cause: serde_json::to_value(event).ok(),
            body: catalog.say(Snippet::Report, &[("report", &told(event))]).into(),
        },
        (None, message) => {
            let body = match message {
                Some(Text::Here(text)) => {
                    let who = told_by(&note.from);
                    catalog.say(Snippet::Notification, &[("who", &who), ("message", text)]).into()
                }
                Some(blob) => blob.clone(),
                None => "[Notification]".into(),
            };
            SystemItem { kind: SystemKind::Notification, cause: None, body }
        }
    }
}

/// Who speaks: a hook by its name, everybody else notifies.
fn told_by(from: &Actor) -> String {
    match (&from.actor, &from.surface) {
        (ActorKind::Hook, Some(name)) => format!("Hook {name}"),
        (ActorKind::Hook, None) => "Hook".to_owned(),
        _ => "Notification".to_owned(),
    }
}

pub(crate) fn told(event: &PodEvent) -> String {
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
