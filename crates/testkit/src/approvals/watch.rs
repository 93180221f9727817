//! The watch: what must hold of every entry, every effect and every reply, found out without any of the product's folding.
//!
//! It knows what was said to the pod (which posture held when a call was judged, what a file was when it was looked at,
//! what hooks think of which arguments) and reads what the pod wrote and started.

use std::collections::{BTreeMap, BTreeSet};

use minke_policy::{Posture, Rule};
use minke_record::{
    ActorKind, AskId, AskKind, Blob, CallId, Class, Decision, Entry, ErrorCode, Item, Kind, Millis, Script,
    ToolDispatch,
};

use super::{CWD, theirs};

/// A question, as the log has it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) call: CallId,
    digest: String,
    question: bool,
    options: Vec<String>,
    expires: Option<Millis>,
    pub(crate) answer: Option<(Decision, bool)>,
}

/// What a call was judged by when it was last prepared.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    pub(crate) posture: Posture,
    pub(crate) before: Option<String>,
    pub(crate) scripts: Vec<Script>,
    /// The number of the newest question to hooks, and whether they have answered that one.
    pub(crate) asked: u64,
    pub(crate) heard: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) hooks: bool,
    pub(crate) posture: Posture,
    pub(crate) asks: BTreeMap<AskId, Asked>,
    wished: BTreeMap<CallId, String>,
    newest: BTreeMap<CallId, AskId>,
    pub(crate) judged: BTreeMap<CallId, Judged>,
    grants: BTreeSet<String>,
    /// What the scripts held that were approved for the session.
    seen: BTreeSet<(String, Option<String>)>,
    /// What the scripts hold with which an approved call may run.
    bound: BTreeMap<CallId, Vec<Script>>,
    dispatched: BTreeMap<CallId, (String, Class)>,
    results: BTreeSet<CallId>,
    started: BTreeMap<CallId, u32>,
    /// Verifiable calls whose file showed that they did not happen: these may be made again.
    pub(crate) undone: BTreeSet<CallId>,
    pub(crate) ran: u64,
    pub(crate) approved: u64,
    pub(crate) granted: u64,
}

/// What the answer to a call is bound to, made anew.
fn digest(tool: &str, arguments: &str, before: Option<&str>, scripts: &[Script]) -> String {
    let known = scripts.iter().map(|one| serde_json::json!([one.path, one.hash, one.leads_to, one.problem]));
    let known: Vec<serde_json::Value> = known.collect();
    let parts = match known.as_slice() {
        [] => serde_json::json!([tool, arguments, CWD, before]),
        known => serde_json::json!([tool, arguments, CWD, before, known]),
    };
    Blob::new(parts.to_string().into_bytes()).name.blob
}

/// Whether a granted rule is about the command of these arguments.
fn covers(grant: &str, arguments: &str) -> bool {
    let words = Rule::parse(grant).ok().and_then(|rule| rule.command);
    let line = serde_json::from_str::<serde_json::Value>(arguments).ok();
    let line = line.as_ref().and_then(|value| value.get("command")).and_then(serde_json::Value::as_str);
    match (words, line) {
        (Some(words), Some(line)) => format!("{line} ").starts_with(&format!("{words} ")),
        _ => false,
    }
}

impl Watch {
    /// The log is shorter now: what it does not say any more was never relied on.
    pub(crate) fn reread(&mut self, entries: &[Entry]) -> Result<(), String> {
        let started = std::mem::take(&mut self.started);
        let old = std::mem::take(self);
        *self = Watch {
            hooks: old.hooks,
            judged: old.judged,
            undone: old.undone,
            ran: old.ran,
            approved: old.approved,
            granted: old.granted,
            started,
            bound: old.bound,
            ..Watch::default()
        };
        for entry in entries {
            self.read(entry)?;
        }
        match self.started.keys().find(|call| !self.dispatched.contains_key(*call)) {
            Some(call) => {
                Err(format!("call {call} was started, and after the power cut the log does not know it"))
            }
            None => Ok(()),
        }
    }

    /// Whether a question waits for an answer.
    pub(crate) fn open(&self) -> Vec<AskId> {
        self.asks.iter().filter(|(_, ask)| ask.answer.is_none()).map(|(id, _)| *id).collect()
    }

    pub(crate) fn answered(&self) -> Vec<AskId> {
        self.asks.iter().filter(|(_, ask)| ask.answer.is_some()).map(|(id, _)| *id).collect()
    }

    /// What an answer must be told. `None`: accepted.
    pub(crate) fn refusal(&self, id: AskId, decision: &Decision, now: Millis) -> Option<ErrorCode> {
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

    pub(crate) fn wrote(&mut self, entry: &Entry) -> Result<(), String> {
        if let Kind::ToolDispatch(e) = &entry.kind {
            self.may_run(e)?;
        }
        self.read(entry)
    }

    fn read(&mut self, entry: &Entry) -> Result<(), String> {
        match &entry.kind {
            Kind::AssistantItem(e) => {
                if let Item::ToolCall { call_id, arguments, .. } = &e.item {
                    self.wished.insert(call_id.clone(), arguments.show().into_owned());
                }
            }
            Kind::ConfigChanged(e) if e.key == "permissions.posture" => {
                self.posture = e.value.as_str().and_then(|word| word.parse().ok()).unwrap_or_default();
            }
            Kind::Ask(e) => {
                let call = e.subject.call_id.clone().ok_or("a question is about no call")?;
                if self.results.contains(&call) || self.dispatched.contains_key(&call) {
                    return Err(format!("call {call} is asked about after it has run"));
                }
                self.newest.insert(call.clone(), e.id);
                let asked = Asked {
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
                if e.decision.approves() && !person {
                    return Err(format!("question {} was approved by nobody", e.id));
                }
                if e.decision.approves() && ask.expires.is_some_and(|expires| expires <= entry.ts) {
                    return Err(format!("question {} was approved after it had expired", e.id));
                }
                ask.answer = Some((e.decision.clone(), person));
            }
            Kind::Grant(e) => {
                self.grants.insert(e.rule.clone());
                self.seen.extend(e.scripts.iter().map(|one| (one.path.clone(), one.hash.clone())));
            }
            Kind::ToolDispatch(e) => {
                let arguments = self.arguments(e);
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

    fn arguments(&self, e: &ToolDispatch) -> String {
        let own = e.arguments.as_ref().map(|text| text.show().into_owned());
        own.unwrap_or_else(|| self.wished.get(&e.call_id).cloned().unwrap_or_default())
    }

    /// A call is about to run: was it judged, heard, and approved where it had to be?
    fn may_run(&mut self, e: &ToolDispatch) -> Result<(), String> {
        let (call, arguments) = (&e.call_id, self.arguments(e));
        let Some(judged) = self.judged.get(call).cloned() else {
            return Err(format!("call {call} runs and was never prepared"));
        };
        let before = e.preview.as_ref().and_then(|preview| preview.before.clone());
        if before != judged.before {
            return Err(format!("call {call} runs on another file than the one that was looked at"));
        }
        if self.hooks && !judged.heard {
            return Err(format!("call {call} runs and hooks were not heard"));
        }
        let changes = e.action.side_effects;
        let denied = match judged.posture {
            Posture::Plan => changes,
            Posture::Deny => e.tool == "Sh",
            Posture::Ask | Posture::Auto | Posture::Full => false,
        };
        if denied || self.hooks && theirs(&arguments).0 == "deny" {
            return Err(format!("call {call} was denied and runs"));
        }
        if self.hooks && theirs(&arguments).0 == "rewrite" {
            return Err(format!("call {call} runs with arguments that hooks rewrite"));
        }
        let asks = judged.posture == Posture::Ask && e.tool == "Sh" || e.tool == "AskUser";
        if !(asks || self.hooks && theirs(&arguments).0 == "ask") {
            return Ok(());
        }
        let same = e.action.scripts.len() == judged.scripts.len()
            && e.action.scripts.iter().zip(&judged.scripts).all(|(ran, looked)| ran.is_same(looked));
        if !same {
            return Err(format!("call {call} runs with other scripts than those that were looked at"));
        }
        self.bound.insert(call.clone(), judged.scripts.clone());
        let digest = digest(&e.tool, &arguments, before.as_deref(), &judged.scripts);
        let newest = self.newest.get(call).and_then(|id| self.asks.get(id));
        let approved = newest.is_some_and(|ask| {
            ask.digest == digest
                && ask.answer.as_ref().is_some_and(|(decision, person)| decision.approves() && *person)
        });
        if approved {
            self.approved += 1;
            return Ok(());
        }
        let hook_asks = self.hooks && theirs(&arguments).0 == "ask";
        let seen = judged.scripts.iter().all(|one| self.seen.contains(&(one.path.clone(), one.hash.clone())));
        let by_rule =
            e.tool == "Sh" && !hook_asks && seen && self.grants.iter().any(|grant| covers(grant, &arguments));
        if e.tool != "AskUser" && (by_rule || self.grants.contains(&format!("call {digest}"))) {
            self.granted += 1;
            return Ok(());
        }
        Err(format!("call {call} runs without an answer that was given for it"))
    }

    /// What a command really runs: nothing but the content that a person approved, if one had to.
    pub(crate) fn runs(&self, call: &CallId, now: &[Script]) -> Result<(), String> {
        let Some(bound) = self.bound.get(call) else { return Ok(()) };
        let same = now.len() == bound.len() && now.iter().zip(bound).all(|(now, then)| now.is_same(then));
        if same { Ok(()) } else { Err(format!("call {call} runs a script that nobody approved")) }
    }

    /// A call is really started.
    pub(crate) fn starts(&mut self, call: &CallId, arguments: &str, class: &Class) -> Result<(), String> {
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
        let again = *times > 1 && *class != Class::Pure && !self.undone.remove(call);
        if again { Err(format!("call {call} was started {times} times")) } else { Ok(()) }
    }
}
