//! The gate: from what a call would touch to whether it runs, is asked about, or is refused.
//!
//! The order is fixed, and each step only tightens: policy's word (a deny ends it) → hooks (the strictest of both;
//! rewritten arguments go once more through `prepare` and policy, then to hooks that may not rewrite) → for what would
//! be asked, an answer bound to this very call or a grant → a question. So no answer and no grant beats a deny, and an
//! answered call is judged anew. Rules that change while a call waits count from then on: a question that is open stays
//! open, and what was allowed and waits for its turn runs as it was allowed.
//! Here: the way through, for the model's calls and for clients'. Elsewhere: who moves a call on (`calls`, `guests`),
//! questions and answers (`asks`), what policy says (`policy`).
//! Invariants: an answer counts only for the call that it was given for (`the_file_changed_after_the_question`);
//! a deny wins over every answer and grant (`a_deny_beats_an_answer`, `a_deny_beats_a_grant`, and the interleavings in `testkit`).

use minke_manifest::{Posture, SandboxMode};
use minke_policy::{Judging, RuleSet, Tier};
use minke_record::{Action, CallStage, Judgement, OpenCall, Outcome, Own, Text, Verdict};
use serde::Deserialize;

use crate::calls::{Ready, Settled, Work, refused};
use crate::digest::digest;
use crate::input::{HookPoint, HookQuestion, HooksSaid, Prepared};
use crate::pod::{Making, Pod};
use crate::step::Effect;

/// How the message begins when arguments that a hook wrote cannot be used.
pub const REWRITTEN: &str = "a hook rewrote the arguments, and as they are now: ";
/// How the reason of a verdict ends if a hook rewrote the arguments.
pub const BY_HOOK: &str = "; a hook rewrote the arguments";
/// The layer of a verdict that a hook has tightened.
pub(crate) const HOOK: &str = "hook";
/// The layer of a verdict that rests on a grant.
pub(crate) const GRANT: &str = "grant";
/// The layer of a verdict that rests on a person's answer.
pub(crate) const ANSWER: &str = "answer";
/// How a grant for one exact call begins; its digest follows.
pub(crate) const CALL: &str = "call ";

/// What hooks made of a call's arguments; they go once more through the gate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rewrite {
    pub(crate) arguments: Text,
    /// A hook wanted a person to be asked, too.
    pub(crate) asks: Option<Verdict>,
}

/// A call about which hooks are asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hooked {
    /// This life's own number of the question: an answer to an older one is not taken for it.
    pub(crate) number: u64,
    pub(crate) prepared: Prepared,
    pub(crate) verdict: Verdict,
    pub(crate) rewrite: Option<Box<Rewrite>>,
}

/// Where the gate sends a call.
pub(crate) enum Next {
    /// Somebody has to say something first.
    Wait(Work),
    Run(Ready),
    Ask {
        ready: Ready,
        digest: String,
    },
    Over(Settled),
}

/// What the parent of this pod allows it, as its mandate says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub posture: Option<Posture>,
    pub rules: RuleSet,
}

impl Limits {
    /// Reads `permissions` of a mandate. Limits that cannot be read allow nothing with side effects, and say why.
    pub(crate) fn read(mandate: Option<&serde_json::Value>) -> (Option<Limits>, Option<String>) {
        let Some(value) = mandate.and_then(|mandate| mandate.get("permissions")) else { return (None, None) };
        match Limits::deserialize(value) {
            Ok(limits) => (Some(limits), None),
            Err(e) => {
                let closed = Limits { posture: Some(Posture::Plan), rules: RuleSet::default() };
                (Some(closed), Some(e.to_string()))
            }
        }
    }
}

impl Pod {
    /// A tool has said what a call would touch, or why it cannot be made.
    pub(crate) fn judged(
        &mut self,
        m: &mut Making,
        call: &OpenCall,
        rewrite: Option<Box<Rewrite>>,
        prepared: Result<Prepared, String>,
    ) -> Next {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                let written = if rewrite.is_some() { REWRITTEN } else { "" };
                return Next::Over(Settled::error(Outcome::Invalid, format!("{written}{message}")));
            }
        };
        if let Some(Own::Pods(pods)) = &prepared.own
            && let Some(problem) = self.pods_problem(pods)
        {
            return Next::Over(problem);
        }
        let verdict = self.judge_prepared(&prepared);
        if !matches!(verdict.outcome, Judgement::Allow | Judgement::Ask) {
            return Next::Over(refused(verdict));
        }
        if let CallStage::Answered { digest, decision, note, .. } = &call.stage
            && !decision.approves()
            && *digest == self.digest(&call.tool, arguments(call, rewrite.as_deref()), &prepared)
        {
            return Next::Over(refused(answered(decision, note.as_deref())));
        }
        if self.life.boot.as_ref().is_some_and(|boot| boot.steers.before_tool) {
            return Next::Wait(self.ask_hooks(m, call, (prepared, verdict, rewrite)));
        }
        self.decided(call, ready(prepared, verdict, rewrite))
    }

    fn ask_hooks(
        &mut self,
        m: &mut Making,
        call: &OpenCall,
        (prepared, verdict, rewrite): (Prepared, Verdict, Option<Box<Rewrite>>),
    ) -> Work {
        let number = self.next_hook();
        let question = HookQuestion::BeforeTool {
            tool: call.tool.clone(),
            arguments: arguments(call, rewrite.as_deref()).clone(),
            action: prepared.action.clone(),
            preview: prepared.preview.clone(),
            verdict: verdict.clone(),
            may_rewrite: rewrite.is_none(),
        };
        let point = HookPoint::BeforeTool(call.call_id.clone(), number);
        m.effect(Effect::AskHooks { point, question: Box::new(question) });
        Work::Hooked(Box::new(Hooked { number, prepared, verdict, rewrite }))
    }

    /// Hooks have said what they think of a call.
    pub(crate) fn heard(&mut self, m: &mut Making, call: &OpenCall, hooked: Hooked, said: HooksSaid) -> Next {
        let Hooked { prepared, verdict, rewrite, .. } = hooked;
        let theirs = of_hook(&said);
        if !matches!(theirs.outcome, Judgement::Allow | Judgement::Ask) {
            return Next::Over(refused(theirs));
        }
        let asks = Some(theirs).filter(|theirs| theirs.outcome == Judgement::Ask);
        match said.rewritten {
            Some(written) if rewrite.is_none() && call.arguments.here() != Some(written.as_str()) => {
                let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
                let arguments = Text::from(written);
                m.effect(Effect::Prepare { call_id, tool, arguments: arguments.clone() });
                return Next::Wait(Work::Preparing(Some(Box::new(Rewrite { arguments, asks }))));
            }
            // Arguments are rewritten once; a hook that does it again is not heard.
            Some(_) | None => {}
        }
        let verdict = match asks {
            Some(asks) => stricter(verdict, asks),
            None => verdict,
        };
        self.decided(call, ready(prepared, verdict, rewrite))
    }

    /// Everybody has been heard: it runs, or somebody must have said yes, or is asked now.
    fn decided(&self, call: &OpenCall, mut ready: Ready) -> Next {
        if let CallStage::Answered { decision, .. } = &call.stage
            && !decision.approves()
            && ready.verdict.outcome == Judgement::Allow
        {
            // It has changed since somebody said no to it: that answer does not count, and neither is it a yes.
            let reason = format!("it was {decision} as it was before, and has changed since");
            let (outcome, layer) = (Judgement::Ask, Some(ANSWER.to_owned()));
            ready.verdict = Verdict { outcome, rule: None, layer, reason, fence: ready.verdict.fence };
        }
        match ready.verdict.outcome {
            Judgement::Allow => Next::Run(ready),
            Judgement::Ask => {
                let arguments = ready.rewritten.as_ref().unwrap_or(&call.arguments);
                let digest = self.digest(&call.tool, arguments, &ready.prepared);
                match self.allowed(call, &ready, &digest) {
                    Some(verdict) => Next::Run(Ready { verdict, ..ready }),
                    // A change that cannot be made any more is no question: there is nothing to approve.
                    None if ready.prepared.problem.is_some() => {
                        let why = ready.prepared.problem.unwrap_or_default();
                        Next::Over(Settled::error(Outcome::Failed, why))
                    }
                    None => Next::Ask { ready, digest },
                }
            }
            Judgement::Deny | Judgement::Other(_) => Next::Over(refused(ready.verdict)),
        }
    }

    /// The answer or the grant that allows what would be asked, if there is one.
    fn allowed(&self, call: &OpenCall, ready: &Ready, digest: &str) -> Option<Verdict> {
        let fence = ready.verdict.fence.clone();
        // Whoever gave the mandate gave this very command with it; what a rule or the scope denies was denied above.
        if self.is_acceptance(call) && ready.rewritten.is_none() {
            let (outcome, layer) = (Judgement::Allow, Some("mandate".to_owned()));
            let reason = "it is the acceptance command of the mandate".to_owned();
            return Some(Verdict { outcome, rule: None, layer, reason, fence });
        }
        if let CallStage::Answered { digest: asked, decision, note, .. } = &call.stage
            && asked == digest
            && decision.approves()
        {
            return Some(Verdict { fence, ..answered(decision, note.as_deref()) });
        }
        // A question of the model is never answered beforehand.
        if matches!(ready.prepared.own, Some(Own::AskUser { .. })) {
            return None;
        }
        // Nor does a grant stand for an answer that was a no.
        if matches!(&call.stage, CallStage::Answered { decision, .. } if !decision.approves()) {
            return None;
        }
        let rule = self.granted(ready, digest)?;
        let reason = "granted by a person for this session".to_owned();
        let layer = Some(GRANT.to_owned());
        Some(Verdict { outcome: Judgement::Allow, rule: Some(rule), layer, reason, fence })
    }

    /// The grant that covers a call. What a hook wants to have asked is covered only by a grant for the exact call: a
    /// rule that a person agreed to says nothing about the hook's own reasons.
    fn granted(&self, ready: &Ready, digest: &str) -> Option<String> {
        let grants = &self.state.facts.grants;
        let scripts = &ready.prepared.action.scripts;
        if scripts.iter().any(|script| script.hash.is_none()) {
            return None; // nobody knows what it would run
        }
        let exact = |rule: &str| rule.strip_prefix(CALL) == Some(digest);
        if let Some(grant) = grants.iter().find(|grant| exact(&grant.rule)) {
            return Some(grant.rule.clone());
        }
        if ready.verdict.layer.as_deref() == Some(HOOK) || !self.scripts_are_granted(scripts) {
            return None;
        }
        let rules: Vec<&str> = grants.iter().map(|grant| grant.rule.as_str()).collect();
        self.judging(|by| minke_policy::granted(&rules, by, &ready.prepared.action, digest))
    }

    pub(crate) fn judge(&self, action: &Action) -> Verdict {
        let verdict = self.judging(|by| minke_policy::judge(by, action));
        let lent = action.writes.iter().find_map(|path| Some((path, self.state.lent_to(path)?)));
        match lent.filter(|_| verdict.outcome == Judgement::Deny) {
            Some((path, child)) => {
                let reason = format!(
                    "{path} is lent to pod `{}` and read-only for you until it has stopped (WaitPods, StopPod)",
                    child.name
                );
                Verdict { reason, ..verdict }
            }
            None => verdict,
        }
    }

    /// Everything that an action is judged by, while it is looked at.
    pub(crate) fn judging<T>(&self, look: impl FnOnce(&Judging<'_>) -> T) -> T {
        let scope = self.state.effective_scope();
        let sandbox = &self.state.manifest.sandbox;
        let hosts = sandbox.network.hosts();
        let broad_roots = self.unapproved_broad_roots();
        let by = |posture: Posture, rules| Judging {
            own: self.life.boot.as_ref().map(|boot| &boot.own),
            hosts: &hosts,
            lifted: &sandbox.lifted,
            broad_roots: &broad_roots,
            rules,
            cwd: self.state.facts.about.as_ref().map_or("/", |about| about.cwd.as_str()),
            ..Judging::new(posture, &scope, self.fence())
        };
        let own = by(self.posture(), &self.state.manifest.permissions.rules);
        match &self.state.limits {
            Some(limits) => {
                let parent = by(limits.posture.unwrap_or_else(|| self.own_posture()), &limits.rules);
                look(&Judging { parent: Some(&parent), ..own })
            }
            None => look(&own),
        }
    }

    /// Broad roots that commands and tools may write and that nobody has approved for this session yet.
    pub(crate) fn unapproved_broad_roots(&self) -> Vec<String> {
        let sandbox = &self.state.manifest.sandbox;
        if sandbox.mode == SandboxMode::ReadOnly {
            return Vec::new();
        }
        let approved = |root: &String| {
            let grant = minke_policy::broad_root_grant(root);
            self.state.facts.grants.iter().any(|granted| granted.rule == grant)
        };
        sandbox.broad_roots.iter().filter(|root| !approved(root)).cloned().collect()
    }

    /// What holds commands in this life.
    pub fn fence(&self) -> Tier {
        self.life.boot.as_ref().map_or(Tier::D, |boot| boot.fence)
    }

    /// What becomes of an action that no rule decides: as it was set, or what suits the fence; never freer than the
    /// parent's.
    pub fn posture(&self) -> Posture {
        let own = self.own_posture();
        let parent = self.state.limits.as_ref().and_then(|limits| limits.posture);
        parent.map_or(own, |parent| parent.min(own))
    }

    fn own_posture(&self) -> Posture {
        let chosen = self.state.manifest.permissions.posture;
        chosen.unwrap_or_else(|| minke_policy::default_posture(self.fence()))
    }

    pub(crate) fn digest(&self, tool: &str, arguments: &Text, prepared: &Prepared) -> String {
        let cwd = self.state.facts.about.as_ref().map_or("", |about| about.cwd.as_str());
        let before = prepared.preview.as_ref().and_then(|preview| preview.before.as_deref());
        digest(tool, arguments, cwd, before, &prepared.action.scripts)
    }
}

/// The arguments as they stand now.
fn arguments<'a>(call: &'a OpenCall, rewrite: Option<&'a Rewrite>) -> &'a Text {
    rewrite.map_or(&call.arguments, |rewrite| &rewrite.arguments)
}

/// The call as it may run, if nobody objects any more.
fn ready(prepared: Prepared, verdict: Verdict, rewrite: Option<Box<Rewrite>>) -> Ready {
    match rewrite.map(|rewrite| *rewrite) {
        None => Ready { prepared, verdict, rewritten: None, waited: false },
        Some(Rewrite { arguments, asks }) => {
            let verdict = match asks {
                Some(asks) => stricter(verdict, asks),
                None => verdict,
            };
            let reason = format!("{}{BY_HOOK}", verdict.reason);
            let verdict = Verdict { reason, ..verdict };
            Ready { prepared, verdict, rewritten: Some(arguments), waited: false }
        }
    }
}

/// The stricter of policy's word and a hook's; of two that ask, the hook's, since no rule answers that. The fence stays
/// the call's own.
fn stricter(ours: Verdict, hooks: Verdict) -> Verdict {
    match ours.outcome {
        Judgement::Allow | Judgement::Ask => Verdict { fence: ours.fence, ..hooks },
        Judgement::Deny | Judgement::Other(_) => ours,
    }
}

/// What hooks said, as a verdict.
fn of_hook(said: &HooksSaid) -> Verdict {
    let who = said.by.as_deref().unwrap_or("a hook");
    let reason = said.reason.clone().unwrap_or_else(|| match said.outcome {
        Judgement::Ask => format!("{who} wants a person to be asked"),
        Judgement::Allow | Judgement::Deny | Judgement::Other(_) => format!("{who} refuses it"),
    });
    let (outcome, rule, layer) = (said.outcome.clone(), said.by.clone(), Some(HOOK.to_owned()));
    Verdict { outcome, rule, layer, reason, fence: None }
}

/// A person's answer, as a verdict.
pub(crate) fn answered(decision: &minke_record::Decision, note: Option<&str>) -> Verdict {
    let outcome = if decision.approves() { Judgement::Allow } else { Judgement::Deny };
    let reason = match note {
        Some(note) => format!("{decision} by the person who was asked: {note}"),
        None => format!("{decision} by the person who was asked"),
    };
    Verdict { outcome, rule: None, layer: Some(ANSWER.to_owned()), reason, fence: None }
}
