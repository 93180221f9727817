//! Calls made by clients. They pass the same gate; their results are not part of the model's context.
//!
//! A client call is not in the log until it is dispatched. If the process dies before, the call is lost and
//! an open ask about it is aborted at boot.

use minke_record::{AskId, CallId, CallStage, Decision, InternalCall, OpenAsk, OpenCall, Outcome};

use crate::calls::gate::{GateDecision, answer_verdict};
use crate::calls::table::CallTable;
use crate::calls::{CallProgress, CallResult, refused_result};
use crate::engine::InputHandler;
use crate::input::{HookVerdict, PreparedCall};
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// A client call that is not in the log yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientCall {
    pub(crate) call: OpenCall,
    pub(crate) progress: CallProgress,
    /// Set while an ask about the call is open.
    pub(crate) ask: Option<AskId>,
}

impl CallTable {
    /// Removes and returns a client call in the given progress.
    pub(crate) fn take_client_call(
        &mut self,
        id: &CallId,
        is_busy: impl Fn(&CallProgress) -> bool,
    ) -> Option<ClientCall> {
        let found = |client_call: &ClientCall| {
            client_call.call.call_id == *id && client_call.ask.is_none() && is_busy(&client_call.progress)
        };
        let at = self.client_calls.iter().position(found)?;
        Some(self.client_calls.remove(at))
    }

    pub(crate) fn is_client_call(&self, id: &CallId) -> bool {
        self.client_calls.iter().any(|client_call| client_call.call.call_id == *id)
    }

    /// Applies an answer about a client call: the call passes the gate once more. Returns whether there is
    /// such a call.
    pub(crate) fn answer_client_call(
        &mut self,
        step: &mut StepBuilder<'_>,
        ask: &OpenAsk,
        decision: &Decision,
        note: Option<String>,
    ) -> bool {
        let Some(client_call) = self.client_calls.iter_mut().find(|guest| guest.ask == Some(ask.id)) else {
            return false;
        };
        client_call.ask = None;
        if !decision.is_approval() {
            let (call_id, by) = (client_call.call.call_id.clone(), client_call.call.by.clone());
            self.client_calls.retain(|guest| guest.call.call_id != call_id);
            let result = refused_result(answer_verdict(decision, note.as_deref()));
            self.settle_call_by(step, &call_id, result, by);
            return true;
        }
        client_call.progress = CallProgress::Preparing(None);
        client_call.call.stage = CallStage::Answered {
            digest: ask.subject.digest.clone(),
            decision: decision.clone(),
            note,
            rule: None,
            scripts: ask.subject.action.as_ref().map(|action| action.scripts.clone()).unwrap_or_default(),
        };
        let OpenCall { call_id, tool, arguments, .. } = client_call.call.clone();
        step.add_effect(Effect::Prepare { call_id, tool, arguments });
        true
    }
}

impl InputHandler<'_, '_> {
    /// Handles the prepared client call, or the reason why it is invalid.
    pub(crate) fn client_call_prepared(&mut self, id: &CallId, prepared: Result<PreparedCall, String>) {
        let Some(client_call) = self
            .engine
            .work
            .calls
            .take_client_call(id, |progress| matches!(progress, CallProgress::Preparing(_)))
        else {
            return;
        };
        let ClientCall { call, progress: work, .. } = client_call;
        let CallProgress::Preparing(rewrite) = work else { return };
        let asks =
            |prepared: &PreparedCall| matches!(prepared.internal_call, Some(InternalCall::AskUser { .. }));
        if prepared.as_ref().is_ok_and(asks) {
            let result = CallResult::error(Outcome::Invalid, "only the model asks a person with AskUser");
            return self.engine.work.calls.settle_call_by(self.step, id, result, call.by);
        }
        let decision = self.engine.process.evaluate_prepared(self.step, &call, rewrite, prepared);
        self.apply_client_gate_decision(call, decision);
    }

    pub(crate) fn apply_client_hook_verdict(&mut self, id: &CallId, number: u64, verdict: HookVerdict) {
        let asked = |progress: &CallProgress| matches!(progress, CallProgress::AskingHooks(hooked) if hooked.number == number);
        let Some(ClientCall { call, progress: CallProgress::AskingHooks(hooked), .. }) =
            self.engine.work.calls.take_client_call(id, asked)
        else {
            return;
        };
        self.step.append_hook_context(&verdict);
        let decision = self.engine.process.environment.apply_hook_verdict(self.step, &call, *hooked, verdict);
        self.apply_client_gate_decision(call, decision);
    }

    pub(crate) fn apply_client_gate_decision(&mut self, call: OpenCall, next: GateDecision) {
        match next {
            GateDecision::Wait(progress) => {
                self.engine.work.calls.client_calls.push(ClientCall { call, progress, ask: None })
            }
            GateDecision::Run(ready) => self.engine.dispatch_call(self.step, &call, ready),
            GateDecision::Ask { ready, digest } => {
                let ask = self.engine.process.environment.ask_for_approval(self.step, &call, &ready, digest);
                let progress = CallProgress::Asking(ready.prepared.action);
                self.engine.work.calls.client_calls.push(ClientCall { call, progress, ask: Some(ask) });
            }
            GateDecision::Settle(result) => {
                self.engine.work.calls.settle_call_by(self.step, &call.call_id, result, call.by)
            }
        }
    }
}
