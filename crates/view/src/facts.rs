//! The standing that a carry tells: whoever begins to read there knows what is open.

use minke_protocol::StatusReply;
use minke_record::{Entry, Facts, GoalChange, Large, QueueMode, Usage};

use crate::block::{AskCard, BlockId, Body};
use crate::conversation::{Conversation, Running};
use crate::standing::{Child, Queued, TaskRow};
use crate::tell;

/// The blocks that a carry makes have numbers behind those of its own entry.
pub(crate) const CARRIED: u32 = 1 << 28;

impl Conversation {
    /// Takes over the facts of a carry. Most say what is known already.
    pub(crate) fn carried(&mut self, carry: &Large<Box<Facts>>, entry: &Entry) {
        let Some(facts) = carry.here() else { return };
        if let Some(about) = &facts.about {
            self.fold.cwd.clone_from(&about.cwd);
        }
        let standing = &mut self.standing;
        if let Some(name) = &facts.name {
            standing.name = name.to_string();
        }
        standing.archived = facts.archived;
        let row = |task: &minke_record::TaskFact| TaskRow {
            id: task.id,
            subject: task.subject.clone(),
            status: task.status.clone(),
        };
        standing.tasks = facts.tasks.iter().map(row).collect();
        let goal = facts.goal.as_ref().filter(|goal| goal.change != GoalChange::Done);
        standing.goal = goal.map(|goal| tell::beginning(&goal.text, tell::NOTICE_BYTES));
        let queued = |input: &minke_record::Queued| {
            let (text, chips) = tell::said(&input.segments);
            let steer = input.mode == QueueMode::Steer;
            Queued { id: input.id, text, chips, steer, held: facts.held }
        };
        standing.queue = facts.queue.iter().map(queued).collect();
        self.fold.held = facts.held;
        self.fold.paid = facts.paid.iter().map(|(session, paid)| (*session, paid.spent.usd)).collect();
        if let Some(posture) = facts.config.get("permissions.posture").and_then(|value| value.as_str()) {
            posture.clone_into(&mut self.standing.posture);
        }
        if let Some(open) = &facts.open_llm {
            self.fold.requests.entry(open.call).or_insert(true);
        }
        (self.fold.run_known, self.fold.counted) = (true, true);
        let same_run = |running: &Running| facts.run.as_ref().is_some_and(|run| run.id == running.id);
        if !self.fold.run.as_ref().is_some_and(same_run) {
            let running =
                |run: &minke_record::OpenRun| Running { id: run.id, inputs: Vec::new(), begun_before: true };
            self.fold.run = facts.run.as_ref().map(running);
        }
        self.spent(&facts.usage);
        self.count_children_cost();
        self.carry_asks(facts, entry);
        self.carry_children(facts);
    }

    /// Whether these entries begin where no facts stand, so that they do not tell what was spent before them: a pod that
    /// greets with the end of a long segment. Its `status` tells it.
    pub fn is_partial(&self) -> bool {
        self.position().is_some() && !self.fold.counted
    }

    /// Takes a pod's status. False if it is of another moment than what is held: then it has changed nothing.
    pub fn status_of_pod(&mut self, status: &StatusReply) -> bool {
        if self.position() != Some(status.head) {
            return false;
        }
        self.fold.counted = true;
        self.spent(&status.usage);
        for row in &status.children {
            if !self.standing.children.iter().any(|known| known.session == row.session) {
                let (told, ended) = ("running".to_owned(), None);
                let child = Child { session: row.session, name: row.name.clone(), told, ended, asks: 0 };
                self.standing.children.push(child);
            }
        }
        true
    }

    fn spent(&mut self, usage: &Usage) {
        let tokens = &mut self.standing.tokens;
        tokens.input = usage.input.saturating_add(usage.cache_write);
        tokens.output = usage.output;
        tokens.cache_read = usage.cache_read;
        (self.fold.spent, self.fold.unpriced) = (usage.cost_usd, usage.unknown_cost);
        self.count_cost();
    }

    /// Open questions from before: a person must see them.
    fn carry_asks(&mut self, facts: &Facts, entry: &Entry) {
        let own = facts.asks.iter().map(|ask| (ask, None));
        let theirs = facts
            .children
            .iter()
            .flat_map(|child| child.asks.iter().map(move |ask| (ask, Some(&child.name))));
        for (part, (ask, pod)) in (CARRIED..).zip(own.chain(theirs)) {
            if self.fold.asks.contains_key(&ask.id) {
                continue;
            }
            let card = AskCard {
                ask: minke_record::Ask {
                    id: ask.id,
                    ask: ask.ask.clone(),
                    subject: ask.subject.clone(),
                    options: ask.options.clone(),
                    expires: ask.expires,
                },
                pod: pod.cloned(),
                socket: None,
                answer: None,
                closed: false,
            };
            let id = BlockId { seq: entry.seq, part, live: false };
            self.blocks.put(id, entry.ts, Body::Ask(Box::new(card)));
            self.fold.asks.insert(ask.id, id);
            self.standing.asks.push(ask.id);
        }
    }

    fn carry_children(&mut self, facts: &Facts) {
        for child in &facts.children {
            let known = self.standing.children.iter_mut().find(|known| known.session == child.session);
            let asks = child.asks.len().try_into().unwrap_or(u32::MAX);
            match known {
                Some(known) => known.asks = asks,
                None => self.standing.children.push(Child {
                    session: child.session,
                    name: child.name.clone(),
                    told: child.ended.as_ref().map_or("running".to_owned(), |end| end.outcome.to_string()),
                    ended: child.ended.as_ref().map(|end| end.outcome.clone()),
                    asks,
                }),
            }
        }
    }
}
