//! Yielding: an idle root pod gives its write scope up for somebody who wants the directory, and takes it back before its
//! next run, or hears who holds it now.
//!
//! Here: the asking and the waiting. Elsewhere: the scope table (`registry`), whoever asks (`cli`).

use minke_record::ErrorCode;

use crate::ReplyTo;
use crate::input::{Order, Request};
use crate::pod::{Making, Pod};
use crate::step::{Effect, Given, Refusal};
use crate::tree::TreeOrder;

/// Orders that wait until the scope is back.
const WAITING: usize = 64;

/// What has become of the write scope in this life.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Yielding {
    /// It is given up, or on its way.
    given: bool,
    /// Who asked for it and waits.
    asked: Vec<ReplyTo>,
    /// What is done when it is back.
    waiting: Vec<Request>,
}

impl Pod {
    /// `yield`: the scope is free to be taken, unless somebody else relies on it.
    pub(crate) fn give_way(&mut self, m: &mut Making, reply: Option<ReplyTo>) -> Result<(), Refusal> {
        let free = self.state.live_children().next().is_none()
            && self.life.work.is_empty()
            && self.life.guests.is_empty()
            && self.life.commands == 0;
        if !free {
            let message = "children, calls or commands of this pod still use its scope";
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        if self.parent().is_some() {
            let message = "this pod's scope is lent to it: its parent has it back when it stops";
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        self.life.yielding.asked.extend(reply);
        if !self.life.yielding.given {
            self.life.yielding.given = true;
        }
        m.effect(Effect::Tree(TreeOrder::GiveScope));
        Ok(())
    }

    /// Whether the write scope is given up now.
    pub(crate) fn has_yielded(&self) -> bool {
        self.life.yielding.given
    }

    /// Keeps an order that needs the scope until it is back. Gives it back if it need not wait.
    pub(crate) fn wait_for_scope(&mut self, m: &mut Making, request: Request) -> Option<Request> {
        let needs = matches!(
            request.order,
            Order::Run { .. }
                | Order::Resume { .. }
                | Order::Answer { .. }
                | Order::Undo { .. }
                | Order::CallTool { .. }
                | Order::Notify { auto_run: true, .. }
                | Order::PodEvent { .. }
        );
        if !self.life.yielding.given || !needs {
            return Some(request);
        }
        if self.life.yielding.waiting.len() >= WAITING {
            let message = format!("{WAITING} orders wait already for this pod's scope");
            m.refuse(request.reply, Refusal::new(ErrorCode::TooMany, message));
            return None;
        }
        self.life.yielding.waiting.push(request);
        m.effect(Effect::Tree(TreeOrder::TakeScope));
        None
    }

    /// The scope is given up, is back, or cannot be had back.
    pub(crate) fn scope_changed(&mut self, m: &mut Making, given: bool, problem: Option<String>) {
        let asked = std::mem::take(&mut self.life.yielding.asked);
        self.life.yielding.given = given;
        if let Some(problem) = problem {
            // What could not be changed is as it was, and whoever waits for the change hears why.
            let waiting = std::mem::take(&mut self.life.yielding.waiting).into_iter();
            for reply in asked.into_iter().map(Some).chain(waiting.map(|request| request.reply)) {
                m.refuse(reply, Refusal::new(ErrorCode::Conflict, problem.clone()));
            }
            return;
        }
        if given {
            for reply in asked {
                m.accept(Some(reply), Given::Ok);
            }
            return;
        }
        let waiting = std::mem::take(&mut self.life.yielding.waiting);
        for request in waiting {
            self.order(m, request);
        }
    }
}
