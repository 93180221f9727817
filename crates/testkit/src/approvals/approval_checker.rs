//! Approval checker: checks every entry, effect and reply without the product's fold.
//!
//! It records the inputs (the posture when a call was judged, the content of files, the hooks' rules) and
//! reads the entries and effects of the pod.

use std::collections::{BTreeMap, BTreeSet};

use minke_policy::{PolicyRule, Posture};
use minke_record::{
    ActorKind, AskId, AskKind, Blob, CallId, Class, Decision, Entry, ErrorCode, ExecutedScript, Item, Kind,
    Millis, ToolDispatch,
};

use super::{CWD, hook_decision};

/// An ask in the log.
#[derive(Debug, Clone)]
pub(crate) struct AskRecord {
    pub(crate) call: CallId,
    digest: String,
    question: bool,
    options: Vec<String>,
    expires: Option<Millis>,
    pub(crate) answer: Option<(Decision, bool)>,
}

/// The state when a call was last prepared.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRecord {
    pub(crate) posture: Posture,
    pub(crate) before: Option<String>,
    pub(crate) scripts: Vec<ExecutedScript>,
    /// The number of the newest hook request, and whether hooks have replied to it.
    pub(crate) hook_number: u64,
    pub(crate) has_answered: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ApprovalChecker {
    pub(crate) hooks: bool,
    pub(crate) posture: Posture,
    pub(crate) asks: BTreeMap<AskId, AskRecord>,
    requested: BTreeMap<CallId, String>,
    newest: BTreeMap<CallId, AskId>,
    pub(crate) prepared: BTreeMap<CallId, PreparedRecord>,
    grants: BTreeSet<String>,
    /// The contents of scripts approved for the session.
    approved_scripts: BTreeSet<(String, Option<String>)>,
    /// The contents of scripts with which an approved call may run.
    bound_scripts: BTreeMap<CallId, Vec<ExecutedScript>>,
    dispatched: BTreeMap<CallId, (String, Class)>,
    results: BTreeSet<CallId>,
    started: BTreeMap<CallId, u32>,
    /// Verifiable calls whose file showed no effect: they may run again.
    pub(crate) may_rerun: BTreeSet<CallId>,
    pub(crate) ran: u64,
    pub(crate) approved: u64,
    pub(crate) granted: u64,
}

/// Computes the digest of a call independently of the product.
fn approval_digest(tool: &str, arguments: &str, before: Option<&str>, scripts: &[ExecutedScript]) -> String {
    let known = scripts.iter().map(|one| serde_json::json!([one.path, one.hash, one.leads_to, one.problem]));
    let known: Vec<serde_json::Value> = known.collect();
    let parts = match known.as_slice() {
        [] => serde_json::json!([tool, arguments, CWD, before]),
        known => serde_json::json!([tool, arguments, CWD, before, known]),
    };
    Blob::new(parts.to_string().into_bytes()).name.blob
}

/// Returns whether a granted rule matches the command of these arguments.
fn grant_covers(grant: &str, arguments: &str) -> bool {
    let words = PolicyRule::parse(grant).ok().and_then(|rule| rule.command);
    let line = serde_json::from_str::<serde_json::Value>(arguments).ok();
    let line = line.as_ref().and_then(|value| value.get("command")).and_then(serde_json::Value::as_str);
    match (words, line) {
        (Some(words), Some(line)) => format!("{line} ").starts_with(&format!("{words} ")),
        _ => false,
    }
}

impl ApprovalChecker {
    /// Rebuilds the state after a power cut has shortened the log.
    pub(crate) fn rebuild_from(&mut self, entries: &[Entry]) -> Result<(), String> {
        let started = std::mem::take(&mut self.started);
        let old = std::mem::take(self);
        *self = ApprovalChecker {
            hooks: old.hooks,
            prepared: old.prepared,
            may_rerun: old.may_rerun,
            ran: old.ran,
            approved: old.approved,
            granted: old.granted,
            started,
            bound_scripts: old.bound_scripts,
            ..ApprovalChecker::default()
        };
        for entry in entries {
            self.apply_entry(entry)?;
        }
        let dispatched = &self.dispatched;
        self.bound_scripts.retain(|call, _| dispatched.contains_key(call));
        match self.started.keys().find(|call| !self.dispatched.contains_key(*call)) {
            Some(call) => {
                Err(format!("call {call} was started, and after the power cut the log does not know it"))
            }
            None => Ok(()),
        }
    }

    /// Returns the open asks.
    pub(crate) fn open_asks(&self) -> Vec<AskId> {
        self.asks.iter().filter(|(_, ask)| ask.answer.is_none()).map(|(id, _)| *id).collect()
    }

    pub(crate) fn answered_asks(&self) -> Vec<AskId> {
        self.asks.iter().filter(|(_, ask)| ask.answer.is_some()).map(|(id, _)| *id).collect()
    }

    /// Returns the expected error of an answer; `None` if it must be accepted.
    pub(crate) fn expected_refusal(&self, id: AskId, decision: &Decision, now: Millis) -> Option<ErrorCode> {
        let Some(ask) = self.asks.get(&id) else { return Some(ErrorCode::NotFound) };
        if ask.answer.is_some() || ask.expires.is_some_and(|expires| expires <= now) {
            return Some(ErrorCode::Conflict);
        }
        let offered = if ask.question {
            matches!(decision, Decision::Answered | Decision::Approved | Decision::Denied | Decision::Abort)
        } else {
            ask.options.contains(&decision.to_string())
        };
        (!offered).then_some(ErrorCode::InvalidRequest)
    }

    pub(crate) fn check_entry(&mut self, entry: &Entry) -> Result<(), String> {
        if let Kind::ToolDispatch(e) = &entry.kind {
            self.check_dispatch(e)?;
        }
        self.apply_entry(entry)
    }

    fn apply_entry(&mut self, entry: &Entry) -> Result<(), String> {
        match &entry.kind {
            Kind::AssistantItem(e) => {
                if let Item::ToolCall { call_id, arguments, .. } = &e.item {
                    self.requested.insert(call_id.clone(), arguments.display_text().into_owned());
                }
            }
            Kind::ConfigChanged(e) if e.key == "permissions.posture" => {
                self.posture = e.value.as_str().and_then(|word| word.parse().ok()).unwrap_or_default();
            }
            Kind::Ask(e) => {
                let call = e.subject.call_id.clone().ok_or("a question is about no call")?;
                if self.results.contains(&call) || self.dispatched.contains_key(&call) {
                    return Err(format!("call {call} has an ask after it has run"));
                }
                self.newest.insert(call.clone(), e.id);
                let asked = AskRecord {
                    call,
                    digest: e.subject.digest.clone(),
                    question: e.ask == AskKind::Question,
                    options: e.options.clone(),
                    expires: e.expires,
                    answer: None,
                };
                self.asks.insert(e.id, asked);
            }
            Kind::Answer(e) => {
                let person = e.by.actor == ActorKind::Person;
                let Some(ask) = self.asks.get_mut(&e.id) else {
                    return Err(format!("answer to no question {}", e.id));
                };
                if ask.answer.is_some() {
                    return Err(format!("question {} is answered twice", e.id));
                }
                if e.decision.is_approval() && !person {
                    return Err(format!("question {} was approved without a user", e.id));
                }
                if e.decision.is_approval() && ask.expires.is_some_and(|expires| expires <= entry.ts) {
                    return Err(format!("question {} was approved after it had expired", e.id));
                }
                ask.answer = Some((e.decision.clone(), person));
            }
            Kind::Grant(e) => {
                self.grants.insert(e.rule.clone());
                self.approved_scripts
                    .extend(e.scripts.iter().map(|one| (one.path.clone(), one.hash.clone())));
            }
            Kind::ToolDispatch(e) => {
                let arguments = self.call_arguments(e);
                if self.dispatched.insert(e.call_id.clone(), (arguments, e.class.clone())).is_some() {
                    return Err(format!("call {} is dispatched twice", e.call_id));
                }
                if self.results.contains(&e.call_id) {
                    return Err(format!("call {} is dispatched after its result", e.call_id));
                }
            }
            Kind::ToolResult(e) => {
                if let Item::ToolResult { call_id, .. } = &e.item
                    && !self.results.insert(call_id.clone())
                {
                    return Err(format!("call {call_id} has two results"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn call_arguments(&self, e: &ToolDispatch) -> String {
        let own = e.arguments.as_ref().map(|text| text.display_text().into_owned());
        own.unwrap_or_else(|| self.requested.get(&e.call_id).cloned().unwrap_or_default())
    }

    /// Checks that a dispatched call was judged, passed hooks and was approved if necessary.
    fn check_dispatch(&mut self, e: &ToolDispatch) -> Result<(), String> {
        let (call, arguments) = (&e.call_id, self.call_arguments(e));
        let Some(prepared) = self.prepared.get(call).cloned() else {
            return Err(format!("call {call} runs and was never prepared"));
        };
        let before = e.preview.as_ref().and_then(|preview| preview.before.clone());
        if before != prepared.before {
            return Err(format!("call {call} runs on a different file than the prepared one"));
        }
        if self.hooks && !prepared.has_answered {
            return Err(format!("call {call} runs without the hooks' reply"));
        }
        let changes = e.action.side_effects;
        let denied = match prepared.posture {
            Posture::Plan => changes,
            Posture::Deny => e.tool == "Sh",
            Posture::Ask | Posture::Auto | Posture::Full => false,
        };
        if denied || self.hooks && hook_decision(&arguments).0 == "deny" {
            return Err(format!("call {call} was denied and runs"));
        }
        if self.hooks && hook_decision(&arguments).0 == "rewrite" {
            return Err(format!("call {call} runs with arguments that hooks rewrite"));
        }
        let asks = prepared.posture == Posture::Ask && e.tool == "Sh" || e.tool == "AskUser";
        if !(asks || self.hooks && hook_decision(&arguments).0 == "ask") {
            return Ok(());
        }
        let same = e.action.scripts.len() == prepared.scripts.len()
            && e.action.scripts.iter().zip(&prepared.scripts).all(|(ran, looked)| ran.is_same(looked));
        if !same {
            return Err(format!("call {call} runs with different scripts than the prepared ones"));
        }
        self.bound_scripts.insert(call.clone(), prepared.scripts.clone());
        let digest = approval_digest(&e.tool, &arguments, before.as_deref(), &prepared.scripts);
        let newest = self.newest.get(call).and_then(|id| self.asks.get(id));
        let approved = newest.is_some_and(|ask| {
            ask.digest == digest
                && ask.answer.as_ref().is_some_and(|(decision, person)| decision.is_approval() && *person)
        });
        if approved {
            self.approved += 1;
            return Ok(());
        }
        let hook_asks = self.hooks && hook_decision(&arguments).0 == "ask";
        let seen = prepared
            .scripts
            .iter()
            .all(|one| self.approved_scripts.contains(&(one.path.clone(), one.hash.clone())));
        let by_rule = e.tool == "Sh"
            && !hook_asks
            && seen
            && self.grants.iter().any(|grant| grant_covers(grant, &arguments));
        if e.tool != "AskUser" && (by_rule || self.grants.contains(&format!("call {digest}"))) {
            self.granted += 1;
            return Ok(());
        }
        Err(format!("call {call} runs without an answer for it"))
    }

    /// Checks that the started scripts have the approved content.
    pub(crate) fn check_scripts(&self, call: &CallId, now: &[ExecutedScript]) -> Result<(), String> {
        let Some(bound) = self.bound_scripts.get(call) else { return Ok(()) };
        let same = now.len() == bound.len() && now.iter().zip(bound).all(|(now, then)| now.is_same(then));
        if same { Ok(()) } else { Err(format!("call {call} runs a script without approval")) }
    }

    /// Checks a call that starts.
    pub(crate) fn check_start(
        &mut self,
        call: &CallId,
        arguments: &str,
        class: &Class,
    ) -> Result<(), String> {
        let Some((logged, logged_class)) = self.dispatched.get(call) else {
            return Err(format!("call {call} is started and not dispatched"));
        };
        if logged != arguments || logged_class != class {
            return Err(format!(
                "call {call} is started with `{arguments}`, and its dispatch says `{logged}`"
            ));
        }
        if self.results.contains(call) {
            return Err(format!("call {call} is started after its result"));
        }
        let times = self.started.entry(call.clone()).or_default();
        *times += 1;
        self.ran += 1;
        let again = *times > 1 && *class != Class::Pure && !self.may_rerun.remove(call);
        if again { Err(format!("call {call} was started {times} times")) } else { Ok(()) }
    }
}
