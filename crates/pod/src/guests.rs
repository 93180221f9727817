//! Guests: calls that clients make themselves. They pass the same gate; their results are not history.
//!
//! Until it is dispatched such a call is not in the log: if the process dies before, it never happened, and a question
//! about it is aborted when the pod boots.

use minke_record::{AskId, CallId, CallStage, Decision, OpenAsk, OpenCall, Outcome, Own};

use crate::calls::{Settled, Work, refused};
use crate::gate::{Next, answered};
use crate::input::{HooksSaid, Prepared};
use crate::pod::{Making, Pod};
use crate::step::Effect;

/// A call that a client made and that is not in the log yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Guest {
    pub(crate) call: OpenCall,
    pub(crate) work: Work,
    /// Set while a person is asked about it.
    pub(crate) ask: Option<AskId>,
}

impl Pod {
    /// Takes a client's call out that somebody is busy with.
    fn take_guest(&mut self, id: &CallId, busy: impl Fn(&Work) -> bool) -> Option<Guest> {
        let found = |guest: &Guest| guest.call.call_id == *id && guest.ask.is_none() && busy(&guest.work);
        let at = self.life.guests.iter().position(found)?;
        Some(self.life.guests.remove(at))
    }

    pub(crate) fn is_guest(&self, id: &CallId) -> bool {
        self.life.guests.iter().any(|guest| guest.call.call_id == *id)
    }

    /// What a client's call would touch, or why it cannot be made.
    pub(crate) fn guest_prepared(&mut self, m: &mut Making, id: &CallId, prepared: Result<Prepared, String>) {
        let Some(guest) = self.take_guest(id, |work| matches!(work, Work::Preparing(_))) else { return };
        let Guest { call, work, .. } = guest;
        let Work::Preparing(rewrite) = work else { return };
        let asks = |prepared: &Prepared| matches!(prepared.own, Some(Own::AskUser { .. }));
        if prepared.as_ref().is_ok_and(asks) {
            let settled = Settled::error(Outcome::Invalid, "only the model asks a person with AskUser");
            return self.settle_call_by(m, id, settled, call.by);
        }
        let next = self.judged(m, &call, rewrite, prepared);
        self.move_guest(m, call, next);
    }

    pub(crate) fn guest_heard(&mut self, m: &mut Making, id: &CallId, number: u64, said: HooksSaid) {
        let asked = |work: &Work| matches!(work, Work::Hooked(hooked) if hooked.number == number);
        let Some(Guest { call, work: Work::Hooked(hooked), .. }) = self.take_guest(id, asked) else { return };
        self.note_context(m, &said);
        let next = self.heard(m, &call, *hooked, said);
        self.move_guest(m, call, next);
    }

    fn move_guest(&mut self, m: &mut Making, call: OpenCall, next: Next) {
        match next {
            Next::Wait(work) => self.life.guests.push(Guest { call, work, ask: None }),
            Next::Run(ready) => self.dispatch(m, &call, ready),
            Next::Ask { ready, digest } => {
                let ask = self.note_ask(m, &call, &ready, digest);
                let work = Work::Asking(ready.prepared.action);
                self.life.guests.push(Guest { call, work, ask: Some(ask) });
            }
            Next::Over(settled) => self.settle_call_by(m, &call.call_id, settled, call.by),
        }
    }

    /// The answer to a question about a client's own call: it goes once more through the gate, with the answer. Gives
    /// whether there is such a call.
    pub(crate) fn answer_guest(
        &mut self,
        m: &mut Making,
        ask: &OpenAsk,
        decision: &Decision,
        note: Option<String>,
    ) -> bool {
        let Some(guest) = self.life.guests.iter_mut().find(|guest| guest.ask == Some(ask.id)) else {
            return false;
        };
        guest.ask = None;
        if !decision.approves() {
            let (call_id, by) = (guest.call.call_id.clone(), guest.call.by.clone());
            self.life.guests.retain(|guest| guest.call.call_id != call_id);
            let settled = refused(answered(decision, note.as_deref()));
            self.settle_call_by(m, &call_id, settled, by);
            return true;
        }
        guest.work = Work::Preparing(None);
        guest.call.stage = CallStage::Answered {
            digest: ask.subject.digest.clone(),
            decision: decision.clone(),
            note,
            rule: None,
            scripts: ask.subject.action.as_ref().map(|action| action.scripts.clone()).unwrap_or_default(),
        };
        let OpenCall { call_id, tool, arguments, .. } = guest.call.clone();
        m.effect(Effect::Prepare { call_id, tool, arguments });
        true
    }
}
