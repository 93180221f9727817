//! Children: their cards, reports and asks.

use minke_record::{Ask, Child, ChildEnd, ChildOutcome, ChildSpent, Entry, PodEvent, PodName, SessionId};

use crate::block::{AskCard, BlockBody, ChildCard, NoticeKind};
use crate::conversation::ConversationState;
use crate::reply::to_micros;
use crate::{format, status};

impl ConversationState {
    pub(crate) fn apply_child(&mut self, e: &Child, entry: &Entry) {
        let mut scope = e.scope.clone();
        for rule in &mut scope.allow {
            rule.target = format::relative_path(&rule.target, &self.fold.cwd).to_owned();
        }
        let card = ChildCard {
            session: e.session,
            name: e.name.clone(),
            scope: scope.summary(),
            status_text: "running".to_owned(),
            outcome: None,
        };
        let id = self.put_block(entry, 0, BlockBody::Child(Box::new(card)));
        self.fold.children.insert(e.session, id);
        let row = status::ChildRow {
            session: e.session,
            name: e.name.clone(),
            status_text: "running".to_owned(),
            outcome: None,
            asks: 0,
        };
        match self.status.children.iter_mut().find(|child| child.session == e.session) {
            Some(child) => *child = row,
            None => self.status.children.push(row),
        }
    }

    pub(crate) fn apply_child_end(&mut self, e: &ChildEnd, entry: &Entry) {
        let status_text = match &e.outcome {
            ChildOutcome::FailedToStart => "could not be started",
            ChildOutcome::Slept => "asleep",
            ChildOutcome::Stopped => "stopped",
            ChildOutcome::Crashed => "crashed",
            ChildOutcome::Returned => "returned to its parent",
            ChildOutcome::Other(state_word) => state_word,
        };
        self.close_child_asks(&e.name, entry);
        self.set_child_status(e.session, Some(status_text.to_owned()), Some(&e.outcome), entry);
    }

    /// Applies a report of a child.
    pub(crate) fn apply_pod_event(&mut self, from: Option<SessionId>, event: &PodEvent, entry: &Entry) {
        let (name, told) = match event {
            PodEvent::TurnEnded { pod_name, result, .. } => {
                (pod_name, result.as_deref().unwrap_or("finished").to_owned())
            }
            PodEvent::Errored { pod_name, message, .. } => {
                (pod_name, format!("failed: {}", format::first_line(message)))
            }
            PodEvent::ShutDown { pod_name, outcome, .. } => {
                (pod_name, outcome.as_ref().map_or("stopped".to_owned(), ToString::to_string))
            }
            PodEvent::Asked { pod_name, ask, socket, .. } => {
                return self.apply_child_ask(from, pod_name, ask, socket, entry);
            }
            PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => return,
        };
        let name = PodName::from_text(name);
        self.close_child_asks(&name, entry);
        let known = from.filter(|from| self.status.children.iter().any(|child| child.session == *from));
        match known {
            Some(session) => self.set_child_status(session, Some(told), None, entry),
            None => {
                // The entries do not tell whether this pod is a child.
                self.mark_unmatched(entry);
                self.add_notice(entry, NoticeKind::ClientNote, &format!("{name}: {told}"));
            }
        }
    }

    fn apply_child_ask(
        &mut self,
        from: Option<SessionId>,
        pod: &str,
        ask: &serde_json::Value,
        socket: &str,
        entry: &Entry,
    ) {
        let pod = PodName::from_text(pod);
        let Ok(ask) = serde_json::from_value::<Ask>(ask.clone()) else {
            let text = format!("{pod} asks a question that this version cannot read");
            return self.add_notice(entry, NoticeKind::ClientNote, &text);
        };
        // A pod repeats reports if it does not know whether they arrived.
        if self.fold.asks.contains_key(&ask.id) {
            return;
        }
        self.status.asks.push(ask.id);
        let id = ask.id;
        let socket = Some(socket.to_owned()).filter(|socket| !socket.is_empty());
        let card = AskCard { ask, pod: Some(pod), socket, answer: None, closed: false };
        let block = self.put_block(entry, 0, BlockBody::Ask(Box::new(card)));
        self.fold.asks.insert(id, block);
        if let Some(session) = from {
            self.set_child_status(session, Some("asks".to_owned()), None, entry);
        }
    }

    /// Sets the status text in the card and the row of a child.
    fn set_child_status(
        &mut self,
        session: SessionId,
        status_text: Option<String>,
        ended: Option<&ChildOutcome>,
        entry: &Entry,
    ) {
        let open = self.pods_with_open_asks();
        if let Some(child) = self.status.children.iter_mut().find(|child| child.session == session) {
            child.outcome = ended.cloned();
            if let Some(told) = &status_text {
                child.status_text.clone_from(told);
            }
            child.asks = open.iter().filter(|pod| **pod == child.name).count().try_into().unwrap_or(u32::MAX);
        }
        match self.fold.children.get(&session).copied() {
            Some(id) => self.change_or_keep(id, entry, |body| {
                if let BlockBody::Child(card) = body {
                    card.outcome = ended.cloned();
                    if let Some(told) = status_text {
                        card.status_text = told;
                    }
                }
            }),
            None => self.keep_unmatched(entry),
        }
    }

    fn pods_with_open_asks(&self) -> Vec<PodName> {
        let bodies = self.fold.asks.values().filter_map(|id| self.blocks.body(*id));
        let pods = bodies.filter_map(|body| match body {
            BlockBody::Ask(card) => card.pod.clone(),
            _ => None,
        });
        pods.collect()
    }

    /// Closes the asks of a pod that has resumed or ended.
    fn close_child_asks(&mut self, pod: &PodName, entry: &Entry) {
        let asks = self.fold.asks.iter();
        let of_pod: Vec<_> = asks
            .filter(|(_, id)| {
                matches!(self.blocks.body(**id), Some(BlockBody::Ask(card)) if card.pod.as_ref() == Some(pod))
            })
            .map(|(ask, id)| (*ask, *id))
            .collect();
        for (ask, id) in of_pod {
            self.fold.asks.remove(&ask);
            self.status.asks.retain(|open| *open != ask);
            self.change_or_keep(id, entry, |body| {
                if let BlockBody::Ask(card) = body {
                    card.closed = true;
                }
            });
        }
    }

    pub(crate) fn apply_child_spent(&mut self, e: &ChildSpent) {
        for spent in &e.paid {
            self.fold.children_cost.insert(spent.session, spent.spent.usd);
        }
        self.update_children_cost();
    }

    pub(crate) fn update_children_cost(&mut self) {
        self.status.children_cost_micros = to_micros(self.fold.children_cost.values().sum());
    }
}
