//! Asks: durable questions to a person, and what their answers lead to.
//!
//! Here: what a question shows and offers, who may still answer it, when it expires, what is remembered of the answer.
//! Elsewhere: whether the answer fits the call (`gate`), what the model's own questions say (`own`).
//! Invariants: the first valid answer wins, a later one is a conflict (`the_first_answer_wins`); an answer that was not
//! offered is refused (`what_was_not_offered_is_refused`); a question that expired is denied, also if the process slept
//! (`a_question_expires_while_nobody_lives`).

use minke_record::{
    Actor, AlertLevel, AlertSource, Answer, Ask, AskId, AskKind, AskSubject, CallStage, Decision, EndResult,
    ErrorCode, Grant, Judgement, Millis, OpenAsk, OpenCall, RunResult, Script, limits,
};

use crate::Timer;
use crate::calls::Ready;
use crate::gate::{CALL, HOOK};
use crate::pod::{Making, Pod};
use crate::step::{Effect, Given, Phase, Refusal};
use crate::table::Cell;

/// How far a grant reaches: the pod that asked …
const OF_CALL: &str = "call";
/// … or everything below the root that passed it on.
const OF_TREE: &str = "session_tree";

/// What somebody answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answering {
    pub(crate) ask: AskId,
    pub(crate) decision: Decision,
    pub(crate) note: Option<String>,
    pub(crate) by: Actor,
}

/// Whether a question can be answered this way now; else why not.
pub(crate) fn may_answer(state: &crate::State, now: Millis, answering: &Answering) -> Result<(), Refusal> {
    let Answering { ask, decision, note, .. } = answering;
    let ask = *ask;
    let Some(open) = state.ask(ask) else {
        let before = state.facts.answered.iter().rev().find(|answered| answered.id == ask);
        return Err(match before {
            Some(before) => {
                let message = format!("question {ask} was answered already: {}", before.decision);
                Refusal::new(ErrorCode::Conflict, message)
            }
            None => Refusal::new(ErrorCode::NotFound, format!("no question {ask} is open")),
        });
    };
    if open.expires.is_some_and(|expires| expires <= now) {
        return Err(Refusal::new(ErrorCode::Conflict, format!("question {ask} has expired")));
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
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    if question && decision.approves() && note.as_deref().is_none_or(str::is_empty) {
        let message = "this is a question, not an approval: say the answer in `note`";
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

impl Pod {
    /// Asks whether a call may run. Everything that a person needs to decide is in the question.
    pub(crate) fn note_ask(
        &mut self,
        m: &mut Making,
        call: &OpenCall,
        ready: &Ready,
        digest: String,
    ) -> AskId {
        let Ready { prepared, verdict, rewritten, .. } = ready;
        let diff = prepared.preview.as_ref().and_then(|preview| preview.diff.clone());
        let shown = prepared.action.command.clone().or_else(|| diff.clone());
        let arguments = rewritten.as_ref().unwrap_or(&call.arguments);
        let text = shown.unwrap_or_else(|| format!("{} {}", call.tool, arguments.show()));
        let always = self.always(ready);
        let mut options = vec![Decision::Approved, Decision::ApprovedForSession];
        options.extend(always.as_ref().map(|_| Decision::ApprovedRule));
        options.extend([Decision::Denied, Decision::Abort]);
        let subject = AskSubject {
            call_id: Some(call.call_id.clone()),
            digest,
            text: Some(cut(text)),
            tool: Some(call.tool.clone()),
            cwd: self.state.facts.about.as_ref().map(|about| about.cwd.clone()),
            action: Some(minke_record::Action {
                scripts: self.shown_scripts(call, &prepared.action.scripts),
                ..prepared.action.clone()
            }),
            diff: diff.map(cut),
            verdict: Some(verdict.clone()),
            always,
        };
        self.put_question(m, AskKind::Approval, subject, options.iter().map(ToString::to_string).collect())
    }

    /// The rule that `approved_rule` would write; none where it would not change the outcome.
    fn always(&self, ready: &Ready) -> Option<String> {
        if ready.verdict.layer.as_deref() == Some(HOOK) {
            return None; // no rule answers a hook
        }
        let rule = self.judging(|by| minke_policy::propose(by, &ready.prepared.action))?;
        Some(rule.line()).filter(|line| line.len() <= limits::GRANT_BYTES)
    }

    pub(crate) fn put_question(
        &mut self,
        m: &mut Making,
        ask: AskKind,
        subject: AskSubject,
        options: Vec<String>,
    ) -> AskId {
        let id = AskId(m.ids.next_uuid());
        let seconds = self.state.manifest.permissions.ask_expires_s;
        let expires = seconds.map(|seconds| m.now.saturating_add(seconds.saturating_mul(1_000)));
        self.note(m, Ask { id, ask, subject, options, expires });
        if let Some(open) = self.state.ask(id).cloned() {
            self.report_ask(m, &open);
        }
        if let Some(at) = expires {
            m.effect(Effect::SetTimer { timer: Timer::AskExpires(id), at });
        }
        id
    }

    /// Somebody answers.
    pub(crate) fn answer(
        &mut self,
        m: &mut Making,
        cell: &Cell,
        answering: Answering,
    ) -> Result<Given, Refusal> {
        let id = answering.ask;
        if self.state.ask(id).and_then(|ask| ask.expires).is_some_and(|expires| expires <= m.now) {
            self.ask_expired(m, id); // its timer is on the way
        }
        may_answer(&self.state, m.now, &answering)?;
        let guest = self.life.guests.iter().any(|guest| guest.ask == Some(id));
        if !guest && *cell == Cell::OnlyClientsCall {
            return Err(Refusal::new(ErrorCode::NotFound, format!("no run waits for the answer to {id}")));
        }
        self.take_answer(m, answering);
        Ok(Given::Ok)
    }

    /// An answer while no pod lives: the next one goes on with it.
    pub(crate) fn answer_in_visit(&mut self, m: &mut Making, answering: Answering) {
        let Answering { ask: id, decision, note, by } = answering;
        let Some(ask) = self.state.ask(id).cloned() else { return };
        self.note(m, Answer { id, decision: decision.clone(), note, by: by.clone() });
        if decision == Decision::ApprovedForSession {
            self.remember_approval(m, &ask, &by);
        }
        if decision == Decision::Abort {
            if self.state.facts.run.is_some() {
                self.end_interrupted(m, "the process ended");
            }
            self.give_up(m, "aborted by the person who was asked", &by);
        }
    }

    /// Notes an answer and everything that follows from it.
    fn take_answer(&mut self, m: &mut Making, answering: Answering) {
        let Answering { ask: id, decision, note, by } = answering;
        let Some(ask) = self.state.ask(id).cloned() else { return };
        let call = self.state.facts.calls.iter().find(|call| call.stage == CallStage::Asked(id));
        let call_id = call.map(|call| call.call_id.clone());
        if ask.expires.is_some() {
            m.effect(Effect::ClearTimer { timer: Timer::AskExpires(id) });
        }
        self.note(m, Answer { id, decision: decision.clone(), note: note.clone(), by: by.clone() });
        if decision == Decision::ApprovedForSession {
            self.remember_approval(m, &ask, &by);
        }
        if let Some(rule) = ask.subject.always.as_ref().filter(|_| decision == Decision::ApprovedRule) {
            m.effect(Effect::AddRule { rule: rule.clone() });
        }
        if self.answer_guest(m, &ask, &decision, note) {
            return;
        }
        if let Some(call_id) = &call_id {
            self.life.work.remove(call_id);
        }
        match self.phase() {
            Phase::Paused if decision == Decision::Abort => {
                self.give_up(m, "aborted by the person who was asked", &by)
            }
            Phase::Paused => {
                let interrupted = self.last_result() == Some(&EndResult::Completed(RunResult::Interrupted));
                if interrupted && self.state.facts.asks.is_empty() && self.cannot_run().is_none() {
                    self.resume_run(m, by);
                }
            }
            Phase::Running if decision == Decision::Abort => {
                self.cancel_run(m, "aborted by the person who was asked");
            }
            Phase::Running => self.go_on(m),
            Phase::Idle | Phase::Compacting | Phase::Stopping => {}
        }
    }

    /// A grant for the shown rule, or for this exact call where no rule was shown; with the scripts as they were shown.
    fn remember_approval(&mut self, m: &mut Making, ask: &OpenAsk, by: &Actor) {
        let of_root = ask
            .subject
            .verdict
            .as_ref()
            .filter(|verdict| verdict.layer.as_deref() == Some(minke_policy::BROAD_ROOT));
        // A yes to writing in a broad root covers the root, whichever line asked first; it is not a yes to that line's scripts.
        let shown: &[Script] = match (&of_root, &ask.subject.action) {
            (None, Some(action)) => &action.scripts,
            _ => &[],
        };
        let known = shown.iter().filter(|script| script.hash.is_some());
        let scripts: Vec<Script> = known.map(|script| Script { change: None, ..script.clone() }).collect();
        let rule = of_root.and_then(|verdict| verdict.rule.clone());
        let rule = rule.or_else(|| ask.subject.always.clone());
        let rule = rule.unwrap_or_else(|| format!("{CALL}{}", ask.subject.digest));
        let grants = &self.state.facts.grants;
        if grants.iter().any(|grant| grant.rule == rule) && self.scripts_are_granted(&scripts) {
            return;
        }
        if self.state.facts.grants.len() >= limits::GRANTS {
            let message = format!(
                "this session holds {} grants already; the approval counts for this call only",
                limits::GRANTS
            );
            return self.alert(m, AlertLevel::Warn, AlertSource::Policy, message);
        }
        self.note(m, Grant { rule, reach: OF_CALL.to_owned(), by: by.clone(), scripts });
    }

    /// A grant that somebody hands over: `set{grant}`.
    pub(crate) fn take_grant(
        &mut self,
        m: &mut Making,
        (rule, reach): (String, String),
        by: &Actor,
    ) -> Result<(), Refusal> {
        bad_grant(&rule, &reach).map_or(Ok(()), |why| Err(Refusal::new(ErrorCode::InvalidRequest, why)))?;
        if self.state.facts.grants.iter().any(|grant| grant.rule == rule && grant.reach == reach) {
            return Ok(());
        }
        if self.state.facts.grants.len() >= limits::GRANTS {
            let message = format!("this session holds {} grants already", limits::GRANTS);
            return Err(Refusal::new(ErrorCode::TooMany, message));
        }
        self.note(m, Grant { rule, reach, by: by.clone(), scripts: Vec::new() });
        Ok(())
    }

    /// Nobody has answered in time.
    pub(crate) fn ask_expired(&mut self, m: &mut Making, id: AskId) {
        let due = self.state.ask(id).and_then(|ask| ask.expires).is_some_and(|expires| expires <= m.now);
        if due && self.phase() != Phase::Stopping {
            let (by, note) = (self.me(), Some("nobody answered in time".to_owned()));
            self.take_answer(m, Answering { ask: id, decision: Decision::Denied, note, by });
        }
    }

    /// The hands were lost: the time of every open question is set again.
    pub(crate) fn set_ask_timers(&self, m: &mut Making) {
        for ask in &self.state.facts.asks {
            if let Some(at) = ask.expires {
                m.effect(Effect::SetTimer { timer: Timer::AskExpires(ask.id), at: at.max(m.now) });
            }
        }
    }

    /// A new life: questions that have expired are denied, for the others the time is set again. Gives whether one was
    /// denied.
    pub(crate) fn watch_asks(&mut self, m: &mut Making) -> bool {
        let open: Vec<OpenAsk> = self.state.facts.asks.clone();
        let mut denied = false;
        for ask in open {
            let Some(at) = ask.expires else { continue };
            if at > m.now {
                m.effect(Effect::SetTimer { timer: Timer::AskExpires(ask.id), at });
                continue;
            }
            denied = true;
            let (by, note) = (self.me(), Some("nobody answered in time".to_owned()));
            self.note(m, Answer { id: ask.id, decision: Decision::Denied, note, by });
        }
        denied
    }

    /// Rules that a person has agreed to in an earlier life, or in a visit, and that may not have been written.
    pub(crate) fn add_rules_again(&self, m: &mut Making) {
        for call in &self.state.facts.calls {
            if let CallStage::Answered { rule: Some(rule), .. } = &call.stage {
                m.effect(Effect::AddRule { rule: rule.clone() });
            }
        }
    }

    pub(crate) fn abort_ask(&mut self, m: &mut Making, id: AskId, why: &str) {
        let Some(ask) = self.state.ask(id) else { return };
        if ask.expires.is_some() {
            m.effect(Effect::ClearTimer { timer: Timer::AskExpires(id) });
        }
        let by = self.me();
        self.note(m, Answer { id, decision: Decision::Abort, note: Some(why.to_owned()), by });
    }
}

/// What is wrong with a grant that somebody hands over.
fn bad_grant(rule: &str, reach: &str) -> Option<String> {
    if reach != OF_CALL && reach != OF_TREE {
        return Some(format!("`grant.reach` is `{OF_CALL}` or `{OF_TREE}`, not `{reach}`"));
    }
    if rule.is_empty() || rule.len() > limits::GRANT_BYTES {
        return Some(format!("`grant.rule` has 1 to {} bytes", limits::GRANT_BYTES));
    }
    if rule.starts_with(CALL) {
        return None;
    }
    let why = match minke_policy::Rule::parse(rule) {
        Ok(rule) if rule.action == Judgement::Allow => return None,
        Ok(_) => "a grant only allows".to_owned(),
        Err(e) => e.to_string(),
    };
    Some(format!("`grant.rule` is neither `{CALL}DIGEST` nor a rule that allows: {why}"))
}

/// What a question shows of a long text, and that it is not all.
fn cut(mut text: String) -> String {
    if text.len() > limits::ASK_BYTES {
        let whole = text.len();
        let end = (0..=limits::ASK_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str(&format!("\n… and {} more bytes", whole - end));
    }
    text
}
