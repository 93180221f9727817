//! Restores the status from a carry entry, so that a client that starts reading there knows the open items.

use minke_record::{Entry, GoalChange, Large, QueueMode, SessionFacts, SessionUsage};

use crate::block::{AskCard, BlockBody, BlockId};
use crate::conversation::{ActiveRun, ConversationState};
use crate::format;
use crate::status::{ChildRow, QueueRow, TaskRow};

/// Offset of the blocks that a carry creates, behind those of its own entry.
pub(crate) const FIRST_CARRY_PART: u32 = 1 << 28;

impl ConversationState {
    /// Applies the facts of a carry. Most are known already.
    pub(crate) fn apply_carry(&mut self, carry: &Large<Box<SessionFacts>>, entry: &Entry) {
        let Some(facts) = carry.inline() else { return };
        if let Some(about) = &facts.about {
            self.fold.cwd.clone_from(&about.cwd);
        }
        let standing = &mut self.status;
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
        standing.goal = goal.map(|goal| format::truncate_text(&goal.text, format::MAX_NOTICE_BYTES));
        let queued = |input: &minke_record::Queued| {
            let (text, attachments) = format::input_text(&input.segments);
            let steer = input.mode == QueueMode::Steer;
            QueueRow { id: input.id, text, attachments, steer, is_held: facts.held }
        };
        standing.queue = facts.queue.iter().map(queued).collect();
        self.fold.queue_held = facts.held;
        self.fold.children_cost =
            facts.paid.iter().map(|(session, paid)| (*session, paid.spent.usd)).collect();
        if let Some(posture) = facts.config.get("permissions.posture").and_then(|value| value.as_str()) {
            posture.clone_into(&mut self.status.posture);
        }
        if let Some(open) = &facts.open_llm {
            self.fold.open_requests.entry(open.call).or_insert(true);
        }
        (self.fold.is_run_known, self.fold.is_cost_complete) = (true, true);
        let same_run = |running: &ActiveRun| facts.run.as_ref().is_some_and(|run| run.id == running.id);
        if !self.fold.run.as_ref().is_some_and(same_run) {
            let running = |run: &minke_record::OpenRun| ActiveRun {
                id: run.id,
                inputs: Vec::new(),
                started_before: true,
            };
            self.fold.run = facts.run.as_ref().map(running);
        }
        self.set_usage(&facts.usage);
        self.update_children_cost();
        self.restore_asks(facts, entry);
        self.restore_children(facts);
    }

    pub(crate) fn set_usage(&mut self, usage: &SessionUsage) {
        let tokens = &mut self.status.tokens;
        tokens.input = usage.input.saturating_add(usage.cache_write);
        tokens.output = usage.output;
        tokens.cache_read = usage.cache_read;
        (self.fold.spent_usd, self.fold.unpriced) = (usage.cost_usd, usage.unknown_cost);
        self.update_cost();
    }

    /// Restores earlier open asks, because the user must see them.
    fn restore_asks(&mut self, facts: &SessionFacts, entry: &Entry) {
        let own = facts.asks.iter().map(|ask| (ask, None));
        let theirs = facts
            .children
            .iter()
            .flat_map(|child| child.asks.iter().map(move |ask| (ask, Some(&child.name))));
        for (part, (ask, pod)) in (FIRST_CARRY_PART..).zip(own.chain(theirs)) {
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
            self.blocks.put_block(id, entry.ts, BlockBody::Ask(Box::new(card)));
            self.fold.asks.insert(ask.id, id);
            self.status.asks.push(ask.id);
        }
    }

    fn restore_children(&mut self, facts: &SessionFacts) {
        for child in &facts.children {
            let known = self.status.children.iter_mut().find(|known| known.session == child.session);
            let asks = child.asks.len().try_into().unwrap_or(u32::MAX);
            match known {
                Some(known) => known.asks = asks,
                None => self.status.children.push(ChildRow {
                    session: child.session,
                    name: child.name.clone(),
                    status_text: child
                        .ended
                        .as_ref()
                        .map_or("running".to_owned(), |end| end.outcome.to_string()),
                    outcome: child.ended.as_ref().map(|end| end.outcome.clone()),
                    asks,
                }),
            }
        }
    }
}
