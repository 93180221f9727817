//! Letters between processes: what one pod's hand says to another pod's socket, and the reply.
//!
//! A letter may arrive late, after younger ones, twice, or not at all; who does not hear writes again. Letters die with
//! either process, as connections do.

use minke_pod::{Given, Order, Refusal, ReplyTo, Request, What};
use minke_record::{Actor, Millis};

use super::{Flaw, Key, Tree};

/// After this time without a reply a letter is written again.
pub(super) const PATIENCE_MS: Millis = 5_000;

#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) id: u64,
    pub(super) from: Key,
    pub(super) to: Key,
    what: Carried,
}

#[derive(Debug, Clone)]
enum Carried {
    Order {
        order: Box<Order>,
        by: Actor,
    },
    /// What was said to the letter with the same number.
    Reply(Result<Given, Refusal>),
}

/// A letter that an errand has written, and what it heard.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange {
    letter: Option<(u64, Key, Millis)>,
    heard: Option<Result<Given, Refusal>>,
}

impl Letter {
    pub(super) fn reply(from: Key, to: Key, id: u64, result: Result<Given, Refusal>) -> Letter {
        Letter { id, from, to, what: Carried::Reply(result) }
    }
}

impl Tree {
    /// Says something to another process until it has answered; gives the answer when it is there.
    pub(super) fn says(
        &mut self,
        (from, to): (Key, Key),
        exchange: &mut Exchange,
        order: &Order,
        by: &Actor,
    ) -> Option<Result<Given, Refusal>> {
        if let Some(heard) = exchange.heard.take() {
            exchange.letter = None;
            return Some(heard);
        }
        let now = self.machine.now;
        let waits = exchange.letter.is_some_and(|(_, whom, since)| {
            whom == to && now.saturating_sub(since) < PATIENCE_MS && now >= since
        });
        if !waits {
            if exchange.letter.is_some() {
                self.met("a letter was written again");
            }
            self.letter_ids += 1;
            let id = self.letter_ids;
            exchange.letter = Some((id, to, now));
            let what = Carried::Order { order: Box::new(order.clone()), by: by.clone() };
            self.letters.push(Letter { id, from, to, what });
        }
        None
    }

    /// Some letter arrives, or does not.
    pub(super) fn post(&mut self) -> Result<(), String> {
        if self.letters.is_empty() {
            return Ok(());
        }
        let at = self.chance.below(self.letters.len());
        if at > 0 {
            self.met("a letter overtook another");
        }
        self.steps += 1;
        if !self.calm && self.chance.one_in(12) {
            self.letters.swap_remove(at);
            self.met("a letter was lost");
            return Ok(());
        }
        let letter = if !self.calm && self.chance.one_in(12) {
            self.met("a letter came twice");
            self.letters[at].clone()
        } else {
            self.letters.swap_remove(at)
        };
        let Letter { id, from, to, what } = letter;
        match what {
            Carried::Order { order, by } => self.arrives(to, (from, id), *order, by),
            Carried::Reply(result) => {
                if let Some(process) = self.processes.get_mut(&to) {
                    let waits =
                        |exchange: &&mut Exchange| exchange.letter.is_some_and(|(mine, ..)| mine == id);
                    let mut exchanges = process.errands.iter_mut().filter_map(super::hand::Errand::exchange);
                    if let Some(exchange) = exchanges.find(waits) {
                        exchange.heard = Some(result);
                    }
                }
                Ok(())
            }
        }
    }

    fn arrives(&mut self, key: Key, sender: (Key, u64), order: Order, by: Actor) -> Result<(), String> {
        let early = self.flaw == Some(Flaw::AcksUnwritten) && matches!(order, Order::PodEvent { .. });
        self.replies += 1;
        let reply = ReplyTo(self.replies);
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        let Some(life) = process.life.as_mut().filter(|_| process.leaves.is_none()) else { return Ok(()) };
        if early {
            self.letters.push(Letter::reply(key, sender.0, sender.1, Ok(Given::Ok)));
            let request = Request { from: by, reply: None, order };
            life.inbox.push_back(What::Order(Box::new(request)));
            return Ok(());
        }
        life.askers.insert(reply, sender);
        self.feed(key, What::Order(Box::new(Request { from: by, reply: Some(reply), order })))
    }
}
