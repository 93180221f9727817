//! Children: their cards, what they tell, what they ask.

use minke_record::{Ask, Child, ChildEnd, ChildOutcome, ChildSpent, Entry, PodEvent, PodName, SessionId};

use crate::block::{AskCard, Body, ChildCard, NoticeKind};
use crate::conversation::Conversation;
use crate::reply::micros;
use crate::standing;
use crate::tell;

impl Conversation {
    pub(crate) fn child_began(&mut self, e: &Child, entry: &Entry) {
        let mut scope = e.scope.clone();
        for rule in &mut scope.allow {
            rule.target = tell::near(&rule.target, &self.fold.cwd).to_owned();
        }
        let card = ChildCard {
            session: e.session,
            name: e.name.clone(),
            scope: scope.summary(),
            told: "running".to_owned(),
            ended: None,
        };
        let id = self.put(entry, 0, Body::Child(Box::new(card)));
        self.fold.children.insert(e.session, id);
        let row = standing::Child {
            session: e.session,
            name: e.name.clone(),
            told: "running".to_owned(),
            ended: None,
            asks: 0,
        };
        match self.standing.children.iter_mut().find(|child| child.session == e.session) {
            Some(child) => *child = row,
            None => self.standing.children.push(row),
        }
    }

    pub(crate) fn child_ended(&mut self, e: &ChildEnd, entry: &Entry) {
        let told = match &e.outcome {
            ChildOutcome::FailedToStart => "could not be started",
            ChildOutcome::Slept => "asleep",
            ChildOutcome::Stopped => "stopped",
            ChildOutcome::Crashed => "crashed",
            ChildOutcome::Returned => "returned to its parent",
            ChildOutcome::Other(word) => word,
        };
        self.close_asks_of(&e.name, entry);
        self.child_says(e.session, Some(told.to_owned()), Some(&e.outcome), entry);
    }

    /// A report.
    pub(crate) fn child_told(&mut self, from: Option<SessionId>, event: &PodEvent, entry: &Entry) {
        let (name, told) = match event {
            PodEvent::TurnEnded { pod_name, result, .. } => {
                (pod_name, result.as_deref().unwrap_or("finished").to_owned())
            }
            PodEvent::Errored { pod_name, message, .. } => {
                (pod_name, format!("failed: {}", tell::one_line(message)))
            }
            PodEvent::ShutDown { pod_name, outcome, .. } => {
                (pod_name, outcome.as_ref().map_or("stopped".to_owned(), ToString::to_string))
            }
            PodEvent::Asked { pod_name, ask, socket, .. } => {
                return self.child_asked(from, (pod_name, ask, socket), entry);
            }
            PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => return,
        };
        let name = PodName::from_any(name);
        self.close_asks_of(&name, entry);
        let known = from.filter(|from| self.standing.children.iter().any(|child| child.session == *from));
        match known {
            Some(session) => self.child_says(session, Some(told), None, entry),
            None => {
                // From a pod of which these entries do not say that it is a child.
                self.made_loose(entry);
                self.notice(entry, NoticeKind::Note, &format!("{name}: {told}"));
            }
        }
    }

    fn child_asked(
        &mut self,
        from: Option<SessionId>,
        (pod, ask, socket): (&str, &serde_json::Value, &str),
        entry: &Entry,
    ) {
        let pod = PodName::from_any(pod);
        let Ok(ask) = serde_json::from_value::<Ask>(ask.clone()) else {
            let text = format!("{pod} asks something that this version cannot read");
            return self.notice(entry, NoticeKind::Note, &text);
        };
        // Reports come again when it was not known whether they had arrived.
        if self.fold.asks.contains_key(&ask.id) {
            return;
        }
        self.standing.asks.push(ask.id);
        let id = ask.id;
        let socket = Some(socket.to_owned()).filter(|socket| !socket.is_empty());
        let card = AskCard { ask, pod: Some(pod), socket, answer: None, closed: false };
        let block = self.put(entry, 0, Body::Ask(Box::new(card)));
        self.fold.asks.insert(id, block);
        if let Some(session) = from {
            self.child_says(session, Some("asks".to_owned()), None, entry);
        }
    }

    /// What a child has come to; its card and its row say the same.
    fn child_says(
        &mut self,
        session: SessionId,
        told: Option<String>,
        ended: Option<&ChildOutcome>,
        entry: &Entry,
    ) {
        let open = self.open_asks_by_pod();
        if let Some(child) = self.standing.children.iter_mut().find(|child| child.session == session) {
            child.ended = ended.cloned();
            if let Some(told) = &told {
                child.told.clone_from(told);
            }
            child.asks = open.iter().filter(|pod| **pod == child.name).count().try_into().unwrap_or(u32::MAX);
        }
        match self.fold.children.get(&session).copied() {
            Some(id) => self.touch(id, entry, |body| {
                if let Body::Child(card) = body {
                    card.ended = ended.cloned();
                    if let Some(told) = told {
                        card.told = told;
                    }
                }
            }),
            None => self.keep_loose(entry),
        }
    }

    fn open_asks_by_pod(&self) -> Vec<PodName> {
        let bodies = self.fold.asks.values().filter_map(|id| self.blocks.body(*id));
        let pods = bodies.filter_map(|body| match body {
            Body::Ask(card) => card.pod.clone(),
            _ => None,
        });
        pods.collect()
    }

    /// The pod has gone on or ended: whatever it had asked is no longer open.
    fn close_asks_of(&mut self, pod: &PodName, entry: &Entry) {
        let asks = self.fold.asks.iter();
        let of_pod: Vec<_> = asks
            .filter(|(_, id)| {
                matches!(self.blocks.body(**id), Some(Body::Ask(card)) if card.pod.as_ref() == Some(pod))
            })
            .map(|(ask, id)| (*ask, *id))
            .collect();
        for (ask, id) in of_pod {
            self.fold.asks.remove(&ask);
            self.standing.asks.retain(|open| *open != ask);
            self.touch(id, entry, |body| {
                if let Body::Ask(card) = body {
                    card.closed = true;
                }
            });
        }
    }

    pub(crate) fn children_paid(&mut self, e: &ChildSpent) {
        for paid in &e.paid {
            self.fold.paid.insert(paid.session, paid.spent.usd);
        }
        self.count_children_cost();
    }

    pub(crate) fn count_children_cost(&mut self) {
        self.standing.children_cost_micros = micros(self.fold.paid.values().sum());
    }
}
