//! Asks: durable questions to a person and the handling of their answers.
//!
//! This module builds the subject and options of an ask, checks answers, expires asks and stores grants.
//! Elsewhere: whether an answer fits the call (`gate`), asks made by the model (`internal_calls`).
//! Invariants: the first valid answer wins, a later one is a conflict (`the_first_answer_wins`); an answer
//! that is not one of the options is refused (`what_was_not_offered_is_refused`); an expired ask is denied,
//! even if no process ran at that time (`a_question_expires_while_nobody_lives`).

use minke_record::{
    Actor, AlertLevel, AlertSource, Answer, Ask, AskId, AskKind, AskSubject, CallStage, Decision, EndResult,
    ErrorCode, ExecutedScript, Grant, Judgement, Millis, OpenAsk, OpenCall, RunResult, limits,
};

use crate::PodTimer;
use crate::calls::ReadyCall;
use crate::calls::gate::{CALL_GRANT_PREFIX, HOOK_LAYER};
use crate::engine::{InputHandler, PodEngine};
use crate::environment::Environment;
use crate::state::State;
use crate::step::{CommandRefusal, Effect, PodPhase, ReplyBody};
use crate::step_builder::StepBuilder;
use crate::table::Disposition;

/// A grant for the pod that asked.
const REACH_CALL: &str = "call";
/// A grant for every pod below the root that passed it on.
const REACH_TREE: &str = "session_tree";

/// An answer to an ask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AskAnswer {
    pub(crate) ask: AskId,
    pub(crate) decision: Decision,
    pub(crate) note: Option<String>,
    pub(crate) by: Actor,
}

/// Returns an error if the ask cannot take this answer now.
pub(crate) fn check_answer(
    state: &crate::State,
    now: Millis,
    answer: &AskAnswer,
) -> Result<(), CommandRefusal> {
    let AskAnswer { ask, decision, note, .. } = answer;
    let ask = *ask;
    let Some(open) = state.open_ask(ask) else {
        let before = state.facts.answered.iter().rev().find(|answered| answered.id == ask);
        return Err(match before {
            Some(before) => {
                let message = format!("question {ask} was answered already: {}", before.decision);
                CommandRefusal::new(ErrorCode::Conflict, message)
            }
            None => CommandRefusal::new(ErrorCode::NotFound, format!("no question {ask} is open")),
        });
    };
    if open.expires.is_some_and(|expires| expires <= now) {
        return Err(CommandRefusal::new(ErrorCode::Conflict, format!("question {ask} has expired")));
    }
    let question = open.ask != AskKind::Approval;
    let offered = if question {
        matches!(decision, Decision::Answered | Decision::Approved | Decision::Denied | Decision::Abort)
    } else {
        open.options.iter().any(|option| option == decision.as_str())
    };
    if !offered {
        let options = if question { "answered, denied, abort".to_owned() } else { open.options.join(", ") };
        let message =
            format!("`{decision}` is not an answer to this question; it can be answered with {options}");
        return Err(CommandRefusal::new(ErrorCode::InvalidRequest, message));
    }
    if question && decision.is_approval() && note.as_deref().is_none_or(str::is_empty) {
        let message = "this is a question, not an approval: put the answer in `note`";
        return Err(CommandRefusal::new(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

impl StepBuilder<'_> {
    /// Adds a grant for the shown rule, or for this exact call if no rule was shown. It covers the scripts as
    /// shown.
    fn remember_approval(&mut self, ask: &OpenAsk, by: &Actor) {
        let of_root = ask
            .subject
            .verdict
            .as_ref()
            .filter(|verdict| verdict.layer.as_deref() == Some(minke_policy::BROAD_ROOT_LAYER));
        // Approving writes in a broad root covers the root for every command, so it does not approve this
        // command's scripts.
        let shown: &[ExecutedScript] = match (&of_root, &ask.subject.action) {
            (None, Some(action)) => &action.scripts,
            _ => &[],
        };
        let known = shown.iter().filter(|script| script.hash.is_some());
        let scripts: Vec<ExecutedScript> =
            known.map(|script| ExecutedScript { change: None, ..script.clone() }).collect();
        let rule = of_root.and_then(|verdict| verdict.rule.clone());
        let rule = rule.or_else(|| ask.subject.always.clone());
        let rule = rule.unwrap_or_else(|| format!("{CALL_GRANT_PREFIX}{}", ask.subject.digest));
        let grants = &self.state.facts.grants;
        if grants.iter().any(|grant| grant.rule == rule) && self.state.are_scripts_granted(&scripts) {
            return;
        }
        if self.state.facts.grants.len() >= limits::MAX_GRANTS {
            let message = format!(
                "this session already has {} grants; the approval counts for this call only",
                limits::MAX_GRANTS
            );
            return self.append_alert(AlertLevel::Warn, AlertSource::Policy, message);
        }
        self.append_entry(Grant { rule, reach: REACH_CALL.to_owned(), by: by.clone(), scripts });
    }

    /// Adds a grant from another client or pod (`set{grant}`).
    pub(crate) fn add_grant(
        &mut self,
        rule: String,
        reach: String,
        by: &Actor,
    ) -> Result<(), CommandRefusal> {
        grant_problem(&rule, &reach)
            .map_or(Ok(()), |why| Err(CommandRefusal::new(ErrorCode::InvalidRequest, why)))?;
        if self.state.facts.grants.iter().any(|grant| grant.rule == rule && grant.reach == reach) {
            return Ok(());
        }
        if self.state.facts.grants.len() >= limits::MAX_GRANTS {
            let message = format!("this session already has {} grants", limits::MAX_GRANTS);
            return Err(CommandRefusal::new(ErrorCode::TooMany, message));
        }
        self.append_entry(Grant { rule, reach, by: by.clone(), scripts: Vec::new() });
        Ok(())
    }

    /// Sets the timers of all open asks again after the driver lost them.
    pub(crate) fn reset_ask_timers(&mut self) {
        for ask in &self.state.facts.asks {
            if let Some(at) = ask.expires {
                let timer = PodTimer::AskExpires(ask.id);
                self.result.effects.push(Effect::SetTimer { timer, at: at.max(self.now) });
            }
        }
    }

    /// At boot: denies asks that have expired and sets the timers of the others. Returns whether any ask was
    /// denied.
    pub(crate) fn deny_expired_asks(&mut self) -> bool {
        let open: Vec<OpenAsk> = self.state.facts.asks.clone();
        let mut denied = false;
        for ask in open {
            let Some(at) = ask.expires else { continue };
            if at > self.now {
                self.add_effect(Effect::SetTimer { timer: PodTimer::AskExpires(ask.id), at });
                continue;
            }
            denied = true;
            let (by, note) = (Actor::from_minke(), Some("no answer arrived in time".to_owned()));
            self.append_entry(Answer { id: ask.id, decision: Decision::Denied, note, by });
        }
        denied
    }

    /// Adds again the policy rules that a person approved before this boot, because they may not have
    /// been written.
    pub(crate) fn reapply_approved_rules(&mut self) {
        for call in &self.state.facts.calls {
            if let CallStage::Answered { rule: Some(rule), .. } = &call.stage {
                self.result.effects.push(Effect::AddRule { rule: rule.clone() });
            }
        }
    }

    pub(crate) fn abort_ask(&mut self, id: AskId, why: &str) {
        let Some(ask) = self.state.open_ask(id) else { return };
        if ask.expires.is_some() {
            self.add_effect(Effect::ClearTimer { timer: PodTimer::AskExpires(id) });
        }
        let by = Actor::from_minke();
        self.append_entry(Answer { id, decision: Decision::Abort, note: Some(why.to_owned()), by });
    }
}

impl Environment {
    /// Asks whether a call may run. The subject holds everything a person needs to decide.
    pub(crate) fn ask_for_approval(
        &mut self,
        step: &mut StepBuilder<'_>,
        call: &OpenCall,
        ready: &ReadyCall,
        digest: String,
    ) -> AskId {
        let ReadyCall { prepared, verdict, rewritten_arguments, .. } = ready;
        let diff = prepared.preview.as_ref().and_then(|preview| preview.diff.clone());
        let shown = prepared.action.command.clone().or_else(|| diff.clone());
        let arguments = rewritten_arguments.as_ref().unwrap_or(&call.arguments);
        let text = shown.unwrap_or_else(|| format!("{} {}", call.tool, arguments.display_text()));
        let always = self.proposed_rule(step.state, ready);
        let mut options = vec![Decision::Approved, Decision::ApprovedForSession];
        options.extend(always.as_ref().map(|_| Decision::ApprovedRule));
        options.extend([Decision::Denied, Decision::Abort]);
        let subject = AskSubject {
            call_id: Some(call.call_id.clone()),
            digest,
            text: Some(truncate_ask_text(text)),
            tool: Some(call.tool.clone()),
            cwd: step.state.facts.about.as_ref().map(|about| about.cwd.clone()),
            action: Some(minke_record::Action {
                scripts: step.state.scripts_for_ask(call, &prepared.action.scripts),
                ..prepared.action.clone()
            }),
            diff: diff.map(truncate_ask_text),
            verdict: Some(verdict.clone()),
            always,
        };
        self.open_ask(step, AskKind::Approval, subject, options.iter().map(ToString::to_string).collect())
    }

    /// Returns the rule that `approved_rule` would write, or `None` if it would not change the outcome.
    pub(crate) fn proposed_rule(&self, state: &State, ready: &ReadyCall) -> Option<String> {
        if ready.verdict.layer.as_deref() == Some(HOOK_LAYER) {
            return None; // a rule cannot answer a hook
        }
        let rule =
            self.with_policy_context(state, |by| minke_policy::propose_rule(by, &ready.prepared.action))?;
        Some(rule.to_toml_line()).filter(|line| line.len() <= limits::GRANT_BYTES)
    }

    pub(crate) fn open_ask(
        &mut self,
        step: &mut StepBuilder<'_>,
        ask: AskKind,
        subject: AskSubject,
        options: Vec<String>,
    ) -> AskId {
        let id = AskId(step.ids.next_uuid());
        let seconds = step.state.manifest.permissions.ask_expires_s;
        let expires = seconds.map(|seconds| step.now.saturating_add(seconds.saturating_mul(1_000)));
        step.append_entry(Ask { id, ask, subject, options, expires });
        if let Some(open) = step.state.open_ask(id).cloned() {
            self.report_open_ask(step, &open);
        }
        if let Some(at) = expires {
            step.add_effect(Effect::SetTimer { timer: PodTimer::AskExpires(id), at });
        }
        id
    }
}

impl InputHandler<'_, '_> {
    /// Handles the `answer` command.
    pub(crate) fn answer_ask(
        &mut self,
        disposition: &Disposition,
        answer: AskAnswer,
    ) -> Result<ReplyBody, CommandRefusal> {
        let id = answer.ask;
        if self
            .step
            .state
            .open_ask(id)
            .and_then(|ask| ask.expires)
            .is_some_and(|expires| expires <= self.step.now)
        {
            self.expire_ask(id); // its timer has not fired yet
        }
        check_answer(self.step.state, self.step.now, &answer)?;
        let is_client_call = self.engine.work.calls.client_calls.iter().any(|guest| guest.ask == Some(id));
        if !is_client_call && *disposition == Disposition::ClientCallOnly {
            return Err(CommandRefusal::new(
                ErrorCode::NotFound,
                format!("no run waits for the answer to {id}"),
            ));
        }
        self.apply_answer(answer);
        Ok(ReplyBody::Ok)
    }

    /// Appends an answer and continues or ends the run accordingly.
    pub(crate) fn apply_answer(&mut self, answer: AskAnswer) {
        let AskAnswer { ask: id, decision, note, by } = answer;
        let Some(ask) = self.step.state.open_ask(id).cloned() else { return };
        let call = self.step.state.facts.calls.iter().find(|call| call.stage == CallStage::Asked(id));
        let call_id = call.map(|call| call.call_id.clone());
        if ask.expires.is_some() {
            self.step.add_effect(Effect::ClearTimer { timer: PodTimer::AskExpires(id) });
        }
        self.step.append_entry(Answer { id, decision: decision.clone(), note: note.clone(), by: by.clone() });
        if decision == Decision::ApprovedForSession {
            self.step.remember_approval(&ask, &by);
        }
        if let Some(rule) = ask.subject.always.as_ref().filter(|_| decision == Decision::ApprovedRule) {
            self.step.add_effect(Effect::AddRule { rule: rule.clone() });
        }
        if self.engine.work.calls.answer_client_call(self.step, &ask, &decision, note) {
            return;
        }
        if let Some(call_id) = &call_id {
            self.engine.work.calls.call_progress.remove(call_id);
        }
        match self.engine.process.exit.phase(self.step.state) {
            PodPhase::Paused if decision == Decision::Abort => {
                self.engine.work.abandon_run(self.step, "aborted by the user", &by)
            }
            PodPhase::Paused => {
                let interrupted =
                    self.step.state.last_run_result() == Some(&EndResult::Completed(RunResult::Interrupted));
                if interrupted
                    && self.step.state.facts.asks.is_empty()
                    && self.engine.process.run_refusal(self.step.state).is_none()
                {
                    self.engine.resume_run(self.step, by);
                }
            }
            PodPhase::Running if decision == Decision::Abort => {
                self.cancel_run("aborted by the user");
            }
            PodPhase::Running => self.engine.continue_run(self.step),
            PodPhase::Idle | PodPhase::Compacting | PodPhase::Stopping => {}
        }
    }

    /// Denies an ask whose time is over.
    pub(crate) fn expire_ask(&mut self, id: AskId) {
        let due = self
            .step
            .state
            .open_ask(id)
            .and_then(|ask| ask.expires)
            .is_some_and(|expires| expires <= self.step.now);
        if due && self.engine.process.exit.phase(self.step.state) != PodPhase::Stopping {
            let (by, note) = (Actor::from_minke(), Some("no answer arrived in time".to_owned()));
            self.apply_answer(AskAnswer { ask: id, decision: Decision::Denied, note, by });
        }
    }
}

impl PodEngine {
    /// Appends an answer in an offline edit. The next pod of the session acts on it.
    pub(crate) fn answer_ask_offline(&mut self, step: &mut StepBuilder<'_>, answering: AskAnswer) {
        let AskAnswer { ask: id, decision, note, by } = answering;
        let Some(ask) = step.state.open_ask(id).cloned() else { return };
        step.append_entry(Answer { id, decision: decision.clone(), note, by: by.clone() });
        if decision == Decision::ApprovedForSession {
            step.remember_approval(&ask, &by);
        }
        if decision == Decision::Abort {
            if step.state.facts.run.is_some() {
                self.interrupt_open_run(step, "the process ended");
            }
            self.work.abandon_run(step, "aborted by the user", &by);
        }
    }
}

/// Returns the problem with a grant passed in `set{grant}`.
fn grant_problem(rule: &str, reach: &str) -> Option<String> {
    if reach != REACH_CALL && reach != REACH_TREE {
        return Some(format!("`grant.reach` is `{REACH_CALL}` or `{REACH_TREE}`, not `{reach}`"));
    }
    if rule.is_empty() || rule.len() > limits::GRANT_BYTES {
        return Some(format!("`grant.rule` has 1 to {} bytes", limits::GRANT_BYTES));
    }
    if rule.starts_with(CALL_GRANT_PREFIX) {
        return None;
    }
    let why = match minke_policy::PolicyRule::parse(rule) {
        Ok(rule) if rule.action == Judgement::Allow => return None,
        Ok(_) => "a grant only allows".to_owned(),
        Err(e) => e.to_string(),
    };
    Some(format!("`grant.rule` is neither `{CALL_GRANT_PREFIX}DIGEST` nor a rule that allows: {why}"))
}

/// Truncates the text of an ask and appends the number of omitted bytes.
fn truncate_ask_text(mut text: String) -> String {
    if text.len() > limits::ASK_BYTES {
        let whole = text.len();
        let end = (0..=limits::ASK_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str(&format!("\n… and {} more bytes", whole - end));
    }
    text
}
