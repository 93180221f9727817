//! Guests: calls that clients make themselves. They pass the same gate; their results are not history.
//!
//! Until it is dispatched such a call is not in the log: if the process dies before, it never happened.

use minke_record::{Actor, AskId, CallId, CallStage, Decision, Judgement, OpenCall, Outcome, Own, Text};

use crate::calls::{Ready, Settled, answered_verdict, refused};
use crate::input::Prepared;
use crate::pod::{Making, Pod};
use crate::step::Effect;

/// A call that a client made and that is not in the log yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Guest {
    pub(crate) call_id: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: Text,
    pub(crate) by: Actor,
    /// Set while a person is asked about it.
    pub(crate) ask: Option<AskId>,
}

impl Pod {
    /// A client's call: the same gate, its result is not history.
    pub(crate) fn guest_prepared(&mut self, m: &mut Making, at: usize, prepared: Result<Prepared, String>) {
        let guest = self.life.guests.remove(at);
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                let settled = Settled::error(Outcome::Invalid, message);
                return self.settle_call_by(m, &guest.call_id, settled, Some(guest.by));
            }
        };
        if matches!(prepared.own, Some(Own::AskUser { .. })) {
            let settled = Settled::error(Outcome::Invalid, "only the model asks a person with AskUser");
            return self.settle_call_by(m, &guest.call_id, settled, Some(guest.by));
        }
        let verdict = if guest.ask.is_some() {
            answered_verdict(&Decision::Approved, None)
        } else {
            self.judge_prepared(&prepared)
        };
        match verdict.outcome {
            Judgement::Allow => {
                let call = OpenCall {
                    call_id: guest.call_id,
                    tool: guest.tool,
                    arguments: guest.arguments,
                    stage: CallStage::Wished,
                    by: Some(guest.by),
                };
                self.dispatch(m, &call, Ready { prepared, verdict });
            }
            Judgement::Ask => {
                let digest = self.digest(&guest.tool, &guest.arguments, &prepared);
                let shown = prepared.action.command.clone();
                let text = shown.unwrap_or_else(|| format!("{} {}", guest.tool, guest.arguments.show()));
                let ask = self.note_ask(m, guest.call_id.clone(), digest, text);
                self.life.guests.push(Guest { ask: Some(ask), ..guest });
            }
            Judgement::Deny | Judgement::Other(_) => {
                self.settle_call_by(m, &guest.call_id, refused(verdict), Some(guest.by));
            }
        }
    }

    /// The answer to a question about a client's own call. Gives whether there is such a call.
    pub(crate) fn answer_guest(&mut self, m: &mut Making, ask: AskId, decision: &Decision) -> bool {
        let Some(at) = self.life.guests.iter().position(|guest| guest.ask == Some(ask)) else { return false };
        if decision.approves() {
            let guest = &self.life.guests[at];
            let (call_id, tool) = (guest.call_id.clone(), guest.tool.clone());
            let arguments = guest.arguments.clone();
            m.effect(Effect::Prepare { call_id, tool, arguments });
        } else {
            let guest = self.life.guests.remove(at);
            let verdict = answered_verdict(decision, None);
            self.settle_call_by(m, &guest.call_id, refused(verdict), Some(guest.by));
        }
        true
    }
}
