//! The gate: decides from a prepared call whether it runs, needs an approval (an ask) or is refused.
//!
//! The order is fixed and each step only tightens: policy (a deny ends it), hooks (the stricter verdict wins;
//! rewritten arguments pass `prepare` and policy once more, then hooks that may not rewrite), then for an ask
//! verdict an answer bound to this call or a grant, else an ask. So no answer and no grant beats a deny, and
//! an answered call is judged again. Rule changes apply to later decisions: an open ask stays open, and an
//! allowed call that waits for its turn runs. The gate is the same for calls of the model and of clients.
//! Elsewhere: call progress (`calls`, `client_calls`), asks (`asks`), policy (`policy`).
//! Invariants: an answer counts only for the call it was given for (`the_file_changed_after_the_question`); a
//! deny wins over every answer and grant (`a_deny_beats_an_answer`, `a_deny_beats_a_grant`, and the
//! interleavings in `testkit`).

use minke_manifest::{Posture, SandboxMode};
use minke_policy::{PolicyContext, RuleSet, SandboxBackend};
use minke_record::{
    Action, CallStage, InternalCall, Judgement, LoggedBackend, OpenCall, Outcome, PolicyVerdict, Text,
};
use serde::Deserialize;

use crate::calls::digest::call_digest;
use crate::calls::hooks::HookQueue;
use crate::calls::{CallProgress, CallResult, ReadyCall, refused_result};
use crate::engine::ProcessState;
use crate::environment::Environment;
use crate::input::{HookPoint, HookRequest, HookVerdict, PreparedCall};
use crate::state::State;
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// Prefix of the message if arguments that a hook wrote are invalid.
pub const REWRITTEN_PREFIX: &str = "a hook rewrote the arguments, and as they are now: ";
/// Suffix of a verdict's reason if a hook rewrote the arguments.
pub const HOOK_REWRITE_SUFFIX: &str = "; a hook rewrote the arguments";
/// The verdict layer of a hook.
pub(crate) const HOOK_LAYER: &str = "hook";
/// The verdict layer of a grant.
pub(crate) const GRANT_LAYER: &str = "grant";
/// The verdict layer of a person's answer.
pub(crate) const ANSWER_LAYER: &str = "answer";
/// Prefix of a grant for one exact call; its digest follows.
pub(crate) const CALL_GRANT_PREFIX: &str = "call ";

/// Arguments that a hook rewrote; they pass the gate once more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookRewrite {
    pub(crate) arguments: Text,
    /// Set if a hook also requires an ask.
    pub(crate) ask_verdict: Option<PolicyVerdict>,
}

/// A call that waits for hooks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookedCall {
    /// The number of the hook request in this process; replies to older requests are ignored.
    pub(crate) number: u64,
    pub(crate) prepared: PreparedCall,
    pub(crate) verdict: PolicyVerdict,
    pub(crate) rewrite: Option<Box<HookRewrite>>,
}

/// The decision of the gate.
pub(crate) enum GateDecision {
    /// The driver or hooks must reply first.
    Wait(CallProgress),
    Run(ReadyCall),
    Ask {
        ready: ReadyCall,
        digest: String,
    },
    Settle(CallResult),
}

/// The permissions that the parent grants in the mandate.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParentLimits {
    pub posture: Option<Posture>,
    pub rules: RuleSet,
}

impl ParentLimits {
    /// Reads `permissions` of a mandate. Unreadable limits allow nothing with side effects; also returns the
    /// error.
    pub(crate) fn from_mandate(
        mandate: Option<&serde_json::Value>,
    ) -> (Option<ParentLimits>, Option<String>) {
        let Some(value) = mandate.and_then(|mandate| mandate.get("permissions")) else { return (None, None) };
        match ParentLimits::deserialize(value) {
            Ok(limits) => (Some(limits), None),
            Err(e) => {
                let closed = ParentLimits { posture: Some(Posture::Plan), rules: RuleSet::default() };
                (Some(closed), Some(e.to_string()))
            }
        }
    }
}

impl State {
    /// Returns the writable broad roots that the user has not approved for this session.
    pub(crate) fn unapproved_broad_roots(&self) -> Vec<String> {
        let sandbox = &self.manifest.sandbox;
        if sandbox.mode == SandboxMode::ReadOnly {
            return Vec::new();
        }
        let approved = |root: &String| {
            let grant = minke_policy::broad_root_grant(root);
            self.facts.grants.iter().any(|granted| granted.rule == grant)
        };
        sandbox.broad_roots.iter().filter(|root| !approved(root)).cloned().collect()
    }

    pub(crate) fn call_digest(&self, tool: &str, arguments: &Text, prepared: &PreparedCall) -> String {
        let cwd = self.facts.about.as_ref().map_or("", |about| about.cwd.as_str());
        let before = prepared.preview.as_ref().and_then(|preview| preview.before.as_deref());
        call_digest(tool, arguments, cwd, before, &prepared.action.scripts)
    }
}

impl ProcessState {
    /// Evaluates a prepared call, or the reason why it is invalid.
    pub(crate) fn evaluate_prepared(
        &mut self,
        step: &mut StepBuilder<'_>,
        call: &OpenCall,
        rewrite: Option<Box<HookRewrite>>,
        prepared: Result<PreparedCall, String>,
    ) -> GateDecision {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                let written = if rewrite.is_some() { REWRITTEN_PREFIX } else { "" };
                return GateDecision::Settle(CallResult::error(
                    Outcome::Invalid,
                    format!("{written}{message}"),
                ));
            }
        };
        if let Some(InternalCall::Pods(pods)) = &prepared.internal_call
            && let Some(problem) = self.environment.check_pods_call(step.state, pods)
        {
            return GateDecision::Settle(problem);
        }
        let verdict = self.environment.judge_prepared(step.state, &prepared);
        if !matches!(verdict.outcome, Judgement::Allow | Judgement::Ask) {
            return GateDecision::Settle(refused_result(verdict));
        }
        if let CallStage::Answered { digest, decision, note, .. } = &call.stage
            && !decision.is_approval()
            && *digest
                == step.state.call_digest(&call.tool, current_arguments(call, rewrite.as_deref()), &prepared)
        {
            return GateDecision::Settle(refused_result(answer_verdict(decision, note.as_deref())));
        }
        if self.environment.boot.as_ref().is_some_and(|boot| boot.hook_points.before_tool) {
            return GateDecision::Wait(self.hooks.ask_hooks(step, call, prepared, verdict, rewrite));
        }
        self.environment.decide_call(step.state, call, ready_call(prepared, verdict, rewrite))
    }
}

impl HookQueue {
    pub(crate) fn ask_hooks(
        &mut self,
        step: &mut StepBuilder<'_>,
        call: &OpenCall,
        prepared: PreparedCall,
        verdict: PolicyVerdict,
        rewrite: Option<Box<HookRewrite>>,
    ) -> CallProgress {
        let number = self.next_hook_number();
        let question = HookRequest::BeforeTool {
            tool: call.tool.clone(),
            arguments: current_arguments(call, rewrite.as_deref()).clone(),
            action: prepared.action.clone(),
            preview: prepared.preview.clone(),
            verdict: verdict.clone(),
            may_rewrite: rewrite.is_none(),
        };
        let point = HookPoint::BeforeTool(call.call_id.clone(), number);
        step.add_effect(Effect::AskHooks { point, question: Box::new(question) });
        CallProgress::AskingHooks(Box::new(HookedCall { number, prepared, verdict, rewrite }))
    }
}

impl Environment {
    /// Applies the hooks' verdict on a call.
    pub(crate) fn apply_hook_verdict(
        &mut self,
        step: &mut StepBuilder<'_>,
        call: &OpenCall,
        hooked: HookedCall,
        hook_reply: HookVerdict,
    ) -> GateDecision {
        let HookedCall { prepared, verdict, rewrite, .. } = hooked;
        let theirs = hook_verdict(&hook_reply);
        if !matches!(theirs.outcome, Judgement::Allow | Judgement::Ask) {
            return GateDecision::Settle(refused_result(theirs));
        }
        let ask_verdict = Some(theirs).filter(|theirs| theirs.outcome == Judgement::Ask);
        match hook_reply.rewritten {
            Some(written) if rewrite.is_none() && call.arguments.inline() != Some(written.as_str()) => {
                let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
                let arguments = Text::from(written);
                step.add_effect(Effect::Prepare { call_id, tool, arguments: arguments.clone() });
                return GateDecision::Wait(CallProgress::Preparing(Some(Box::new(HookRewrite {
                    arguments,
                    ask_verdict,
                }))));
            }
            // Arguments are rewritten once; a second rewrite is ignored.
            Some(_) | None => {}
        }
        let verdict = match ask_verdict {
            Some(asks) => stricter_verdict(verdict, asks),
            None => verdict,
        };
        self.decide_call(step.state, call, ready_call(prepared, verdict, rewrite))
    }

    /// Final decision after policy and hooks: run, reuse an approval, or ask.
    pub(crate) fn decide_call(&self, state: &State, call: &OpenCall, mut ready: ReadyCall) -> GateDecision {
        if let CallStage::Answered { decision, .. } = &call.stage
            && !decision.is_approval()
            && ready.verdict.outcome == Judgement::Allow
        {
            // The call has changed since it was denied: the answer does not apply, but it is not an approval
            // either.
            let reason = format!("the call was {decision} earlier and has changed since");
            let (outcome, layer) = (Judgement::Ask, Some(ANSWER_LAYER.to_owned()));
            ready.verdict =
                PolicyVerdict { outcome, rule: None, layer, reason, sandbox: ready.verdict.sandbox };
        }
        match ready.verdict.outcome {
            Judgement::Allow => GateDecision::Run(ready),
            Judgement::Ask => {
                let arguments = ready.rewritten_arguments.as_ref().unwrap_or(&call.arguments);
                let digest = state.call_digest(&call.tool, arguments, &ready.prepared);
                match self.find_approval(state, call, &ready, &digest) {
                    Some(verdict) => GateDecision::Run(ReadyCall { verdict, ..ready }),
                    // A change that can no longer be made needs no approval.
                    None if ready.prepared.problem.is_some() => {
                        let why = ready.prepared.problem.unwrap_or_default();
                        GateDecision::Settle(CallResult::error(Outcome::Failed, why))
                    }
                    None => GateDecision::Ask { ready, digest },
                }
            }
            Judgement::Deny | Judgement::Other(_) => GateDecision::Settle(refused_result(ready.verdict)),
        }
    }

    /// Returns the verdict of the answer or grant that allows an ask verdict.
    pub(crate) fn find_approval(
        &self,
        state: &State,
        call: &OpenCall,
        ready: &ReadyCall,
        digest: &str,
    ) -> Option<PolicyVerdict> {
        let sandbox = ready.verdict.sandbox.clone();
        // The author of the mandate approved exactly this command. Rules and scope were checked above.
        if state.is_acceptance_call(call) && ready.rewritten_arguments.is_none() {
            let (outcome, layer) = (Judgement::Allow, Some("mandate".to_owned()));
            let reason = "it is the acceptance command of the mandate".to_owned();
            return Some(PolicyVerdict { outcome, rule: None, layer, reason, sandbox });
        }
        if let CallStage::Answered { digest: asked, decision, note, .. } = &call.stage
            && asked == digest
            && decision.is_approval()
        {
            return Some(PolicyVerdict { sandbox, ..answer_verdict(decision, note.as_deref()) });
        }
        // A grant cannot answer an ask made by the model.
        if matches!(ready.prepared.internal_call, Some(InternalCall::AskUser { .. })) {
            return None;
        }
        // A grant does not override an answer that denied the call.
        if matches!(&call.stage, CallStage::Answered { decision, .. } if !decision.is_approval()) {
            return None;
        }
        let rule = self.matching_grant(state, ready, digest)?;
        let reason = "granted by a person for this session".to_owned();
        let layer = Some(GRANT_LAYER.to_owned());
        Some(PolicyVerdict { outcome: Judgement::Allow, rule: Some(rule), layer, reason, sandbox })
    }

    /// Returns the grant that covers a call. If a hook asks, only a grant for the exact call counts, because
    /// a rule does not cover the hook's reasons.
    pub(crate) fn matching_grant(&self, state: &State, ready: &ReadyCall, digest: &str) -> Option<String> {
        let grants = &state.facts.grants;
        let scripts = &ready.prepared.action.scripts;
        if scripts.iter().any(|script| script.hash.is_none()) {
            return None; // the content of the script is unknown
        }
        let exact = |rule: &str| rule.strip_prefix(CALL_GRANT_PREFIX) == Some(digest);
        if let Some(grant) = grants.iter().find(|grant| exact(&grant.rule)) {
            return Some(grant.rule.clone());
        }
        if ready.verdict.layer.as_deref() == Some(HOOK_LAYER) || !state.are_scripts_granted(scripts) {
            return None;
        }
        let rules: Vec<&str> = grants.iter().map(|grant| grant.rule.as_str()).collect();
        self.with_policy_context(state, |by| {
            minke_policy::find_grant(&rules, by, &ready.prepared.action, digest)
        })
    }

    pub(crate) fn judge_action(&self, state: &State, action: &Action) -> PolicyVerdict {
        let verdict = self.with_policy_context(state, |by| minke_policy::judge_action(by, action));
        let lent = action.writes.iter().find_map(|path| Some((path, state.loan_holder(path)?)));
        match lent.filter(|_| verdict.outcome == Judgement::Deny) {
            Some((path, child)) => {
                let reason = format!(
                    "pod `{}` has borrowed {path}; it is read-only for you until that pod has stopped (WaitPods, StopPod)",
                    child.name
                );
                PolicyVerdict { reason, ..verdict }
            }
            None => verdict,
        }
    }

    /// Runs `evaluate` with the full policy context.
    pub(crate) fn with_policy_context<T>(
        &self,
        state: &State,
        evaluate: impl FnOnce(&PolicyContext<'_>) -> T,
    ) -> T {
        let scope = state.effective_scope();
        let sandbox = &state.manifest.sandbox;
        let hosts = sandbox.network.allowed_hosts();
        let broad_roots = state.unapproved_broad_roots();
        let by = |posture: Posture, rules| PolicyContext {
            own_scope: self.boot.as_ref().map(|boot| &boot.own_dirs),
            hosts: &hosts,
            unprotected_paths: &sandbox.lifted,
            broad_roots: &broad_roots,
            rules,
            cwd: state.facts.about.as_ref().map_or("/", |about| about.cwd.as_str()),
            ..PolicyContext::new(posture, &scope, self.sandbox_backend())
        };
        let own = by(self.posture(state), &state.manifest.permissions.rules);
        match &state.parent_limits {
            Some(limits) => {
                let parent = by(limits.posture.unwrap_or_else(|| self.own_posture(state)), &limits.rules);
                evaluate(&PolicyContext { parent: Some(&parent), ..own })
            }
            None => evaluate(&own),
        }
    }

    /// Returns the sandbox backend of this process.
    pub(crate) fn sandbox_backend(&self) -> SandboxBackend {
        self.boot.as_ref().map_or(SandboxBackend::Unavailable, |boot| boot.sandbox)
    }

    /// Returns the answer to actions without a rule: the configured one or the default of the sandbox, at
    /// most as permissive as the parent's.
    pub(crate) fn posture(&self, state: &State) -> Posture {
        let own = self.own_posture(state);
        let parent = state.parent_limits.as_ref().and_then(|limits| limits.posture);
        parent.map_or(own, |parent| parent.min(own))
    }

    pub(crate) fn own_posture(&self, state: &State) -> Posture {
        let chosen = state.manifest.permissions.posture;
        chosen.unwrap_or_else(|| minke_policy::default_posture(self.sandbox_backend()))
    }
}

/// Returns the arguments after any rewrite.
fn current_arguments<'a>(call: &'a OpenCall, rewrite: Option<&'a HookRewrite>) -> &'a Text {
    rewrite.map_or(&call.arguments, |rewrite| &rewrite.arguments)
}

/// Builds the call that runs unless something objects.
fn ready_call(
    prepared: PreparedCall,
    verdict: PolicyVerdict,
    rewrite: Option<Box<HookRewrite>>,
) -> ReadyCall {
    match rewrite.map(|rewrite| *rewrite) {
        None => ReadyCall { prepared, verdict, rewritten_arguments: None, has_waited: false },
        Some(HookRewrite { arguments, ask_verdict }) => {
            let verdict = match ask_verdict {
                Some(asks) => stricter_verdict(verdict, asks),
                None => verdict,
            };
            let reason = format!("{}{HOOK_REWRITE_SUFFIX}", verdict.reason);
            let verdict = PolicyVerdict { reason, ..verdict };
            ReadyCall { prepared, verdict, rewritten_arguments: Some(arguments), has_waited: false }
        }
    }
}

/// Returns the stricter of the verdicts of policy and hooks; if both ask, the hooks', because no rule can
/// answer it. Keeps the call's sandbox.
fn stricter_verdict(policy_verdict: PolicyVerdict, hooks: PolicyVerdict) -> PolicyVerdict {
    match policy_verdict.outcome {
        Judgement::Allow | Judgement::Ask => PolicyVerdict { sandbox: policy_verdict.sandbox, ..hooks },
        Judgement::Deny | Judgement::Other(_) => policy_verdict,
    }
}

/// Converts a hook reply into a verdict.
fn hook_verdict(hook_reply: &HookVerdict) -> PolicyVerdict {
    let who = hook_reply.by.as_deref().unwrap_or("a hook");
    let reason = hook_reply.reason.clone().unwrap_or_else(|| match hook_reply.outcome {
        Judgement::Ask => format!("{who} requires approval by a person"),
        Judgement::Allow | Judgement::Deny | Judgement::Other(_) => format!("{who} refuses it"),
    });
    let (outcome, rule, layer) =
        (hook_reply.outcome.clone(), hook_reply.by.clone(), Some(HOOK_LAYER.to_owned()));
    PolicyVerdict { outcome, rule, layer, reason, sandbox: LoggedBackend::NONE }
}

/// Converts a person's answer into a verdict.
pub(crate) fn answer_verdict(decision: &minke_record::Decision, note: Option<&str>) -> PolicyVerdict {
    let outcome = if decision.is_approval() { Judgement::Allow } else { Judgement::Deny };
    let reason = match note {
        Some(note) => format!("{decision} by the user: {note}"),
        None => format!("{decision} by the user"),
    };
    PolicyVerdict {
        outcome,
        rule: None,
        layer: Some(ANSWER_LAYER.to_owned()),
        reason,
        sandbox: LoggedBackend::NONE,
    }
}
