//! Spawning: validates and starts a child, or restarts an earlier one.
//!
//! Checks follow the specification: own name, scope, selector, profile, then table and limits as known to
//! this pod. Elsewhere: the saga (`driver::children`), the scope table (`registry`), the results
//! (`children`).

use minke_manifest::DEFAULT_INSTRUCTION;
use minke_manifest::profiles::{DEFAULT, ProfileSelector, inherited_manifest};
use minke_policy::AccessLevel;
use minke_record::{
    Budget, CallId, Child, IdGenerator, Millis, OpenChild, Permission, Scope, ScopeRule, SessionId, SpawnPod,
};
use serde_json::Value;

use crate::ReplyId;
use crate::calls::digest::call_digest;
use crate::children::invalid_call;
use crate::children::messages::{ChildCommand, OutgoingMessage, SpawnRequest};
use crate::children::table::ChildStarts;
use crate::engine::{InputHandler, PodEngine};
use crate::environment::Environment;
use crate::input::StoppedPod;
use crate::state::State;
use crate::step::{CommandRefusal, Effect};
use crate::step_builder::StepBuilder;

/// Maximum number of children that a session remembers; their names stay reserved.
const MAX_REMEMBERED_CHILDREN: usize = 1_024;
/// Timeout of a SpawnPod with `wait`.
const SPAWN_WAIT_MS: u64 = 600_000;

/// A validated child.
pub(crate) struct ChildPlan {
    scope: Scope,
    cwd: String,
    profile: Option<String>,
    manifest: Value,
    budget: Option<Budget>,
}

impl State {
    /// Returns an error that names a target outside the current scope and its holder.
    fn check_loan(&self, request: &Scope) -> Result<(), String> {
        let Some((path, have, want)) = minke_policy::first_excess(&self.effective_scope(), request) else {
            return Ok(());
        };
        let (have, want) = (have.as_str(), want.as_str());
        Err(match self.loan_holder(&path) {
            Some(holder) if want == AccessLevel::Write.as_str() => format!(
                "`scope` requests {want} at {path}, which pod `{}` has borrowed: wait until it has stopped, or stop it",
                holder.name
            ),
            _ => format!(
                "`scope` requests {want} at {path}, where you have {have}: you cannot lend more than you have"
            ),
        })
    }

    /// Checks the limits of the tree. `restarted`: an earlier child. Adopted children do not count: they wait
    /// for their own parent.
    fn check_child_limits(&self, restarted: Option<&OpenChild>) -> Result<(), String> {
        let limits = &self.manifest.pod.limits;
        let depth = self.tree_depth().saturating_add(1);
        if depth > limits.depth {
            return Err(format!(
                "the child would be {depth} levels below the root; the limit is {} (pod.limits.depth): do the task \
                 yourself",
                limits.depth
            ));
        }
        let own = |child: &OpenChild| child.line.is_empty();
        let live = self.live_children().filter(|child| own(child)).count() as u64;
        if restarted.is_none_or(own) && live >= limits.children {
            return Err(format!(
                "{live} children are running, which is the limit (pod.limits.children): wait for one, or stop one"
            ));
        }
        if restarted.is_none() && self.facts.children.len() >= MAX_REMEMBERED_CHILDREN {
            return Err(format!(
                "this session has spawned {MAX_REMEMBERED_CHILDREN} pods, which is the limit"
            ));
        }
        Ok(())
    }
}

impl Environment {
    /// Returns the plan for a child, or the first error.
    pub(crate) fn plan_child(&self, state: &State, spawn: &SpawnPod) -> Result<ChildPlan, String> {
        let name = &spawn.name;
        if state.facts.name.as_ref() == Some(name) {
            return Err(format!("`name` is `{name}`, which is your own name: choose another name"));
        }
        check_spawn_scope(&spawn.scope, spawn.clone)?;
        let about = state.facts.about.as_ref().ok_or("this session has no beginning")?;
        let cwd = spawn.cwd.clone().unwrap_or_else(|| about.cwd.clone());
        if !minke_policy::is_canonical(&cwd) {
            return Err(format!(
                "`cwd` is `{}`: give an absolute path without `.` and `..`",
                cwd.escape_debug()
            ));
        }
        let profile = match ProfileSelector::parse(spawn.profile.as_deref()).map_err(|e| e.to_string())? {
            ProfileSelector::Inherit => None,
            ProfileSelector::Default | ProfileSelector::Full(_) | ProfileSelector::Bare(_) => {
                Some(spawn.profile.clone().unwrap_or_else(|| DEFAULT.to_owned()))
            }
        };
        let mut manifest = inherited_manifest(&state.manifest);
        // Approvals of this session apply to its children.
        manifest.sandbox.broad_roots = state.unapproved_broad_roots();
        if profile.is_some() {
            manifest.worker.instruction = DEFAULT_INSTRUCTION.to_owned();
        }
        if let Some(instruction) = &spawn.instruction {
            manifest.worker.instruction.clone_from(instruction);
        }
        if state.facts.children.iter().any(|child| child.name == *name) {
            return Err(format!(
                "you have already spawned a pod named `{name}`: use SendToPod, or choose another name"
            ));
        }
        let request = Scope { allow: spawn.scope.clone(), deny: Vec::new() };
        state.check_loan(&request)?;
        state.check_child_limits(None)?;
        let budget = self.child_budget(state, spawn.budget)?;
        let scope = minke_policy::narrow_scope(&about.scope, &request);
        Ok(ChildPlan { scope, cwd, profile, manifest: manifest.to_value(), budget })
    }

    /// Returns the permissions of a child: at most this pod's posture and rules, and those that bind this
    /// pod.
    pub(crate) fn child_permissions(&self, state: &State) -> Value {
        let mut rules = state.manifest.permissions.rules.clone();
        if let Some(limits) = &state.parent_limits {
            rules.rules.extend(limits.rules.rules.iter().cloned());
        }
        serde_json::json!({ "posture": self.posture(state), "rules": rules })
    }
}

impl PodEngine {
    pub(crate) fn spawn_child(&mut self, step: &mut StepBuilder<'_>, id: &CallId, spawn: SpawnPod) {
        let plan = match self.process.environment.plan_child(step.state, &spawn) {
            Ok(plan) => plan,
            Err(problem) => return self.work.calls.settle_call(step, id, invalid_call(problem)),
        };
        let ChildPlan { scope, cwd, profile, manifest, budget } = plan;
        let Some(about) = step.state.facts.about.clone() else { return };
        let session = child_session_id(step.now, about.session, id);
        let (name, wait) = (spawn.name.clone(), spawn.wait);
        step.append_entry(Child {
            session,
            name: name.clone(),
            call_id: id.clone(),
            scope: scope.clone(),
            budget,
            adopted_from: None,
            line: Vec::new(),
            clone: None,
        });
        if wait {
            self.work.children.spawn_deadlines.insert(id.clone(), step.now.saturating_add(SPAWN_WAIT_MS));
        }
        self.process.child_starts.starting_children.insert(session);
        let request = SpawnRequest {
            call_id: id.clone(),
            parent: about.session,
            session,
            name,
            scope,
            task: spawn.task,
            cwd,
            workspace: about.workspace,
            profile,
            instruction: spawn.instruction,
            manifest,
            budget,
            permissions: self.process.environment.child_permissions(step.state),
            clone: spawn.clone,
            depth: step.state.tree_depth().saturating_add(1),
        };
        step.add_effect(Effect::Child(ChildCommand::Spawn(Box::new(request))));
    }

    /// Restarts an earlier child.
    pub(crate) fn restart_child(
        &mut self,
        step: &mut StepBuilder<'_>,
        child: &OpenChild,
        message: Option<OutgoingMessage>,
        call_id: Option<CallId>,
    ) {
        if let Err(problem) = step.state.check_child_limits(Some(child)) {
            if let Some(id) = &call_id {
                self.work.calls.settle_call(step, id, invalid_call(problem.clone()));
            }
            for reply in self.process.child_starts.take_restore_waiters(child.session) {
                step.refuse_request(
                    Some(reply),
                    CommandRefusal::new(minke_record::ErrorCode::TooMany, problem.clone()),
                );
            }
            return;
        }
        let budget = step.state.restarted_child_budget(child);
        let descendants = Box::new(step.state.descendant_state(child.session));
        let (session, name, scope) = (child.session, child.name.clone(), child.scope.clone());
        step.append_entry(Child {
            session,
            name: name.clone(),
            call_id: call_id.clone().unwrap_or_else(|| child.call_id.clone()),
            scope: scope.clone(),
            budget,
            adopted_from: child.adopted_from,
            line: child.line.clone(),
            clone: child.clone.clone(),
        });
        self.process.child_starts.starting_children.insert(session);
        // Requests, spawns and time keep their limits of the whole session.
        let budget = budget.map(|all| Budget { usd: all.usd, tokens: all.tokens, ..Budget::default() });
        let restore =
            ChildCommand::Restore { child: session, name, scope, budget, descendants, message, call_id };
        step.add_effect(Effect::Child(restore));
    }
}

impl InputHandler<'_, '_> {
    /// Handles `restore_pod`. The reply is sent when the pod runs.
    pub(crate) fn restore_pod(
        &mut self,
        reply: Option<ReplyId>,
        stopped: StoppedPod,
    ) -> Result<(), CommandRefusal> {
        let session = stopped.session;
        let known = self.step.state.child(session).cloned();
        let waits = self.engine.process.child_starts.starting_children.contains(&session);
        if !waits && known.as_ref().is_some_and(|child| child.ended.is_none()) {
            let message = format!("pod `{}` is already running", stopped.name);
            return Err(CommandRefusal::new(minke_record::ErrorCode::AlreadyRunning, message));
        }
        self.engine.process.child_starts.restore_waiters.extend(reply.map(|reply| (session, reply)));
        if waits {
            return Ok(());
        }
        self.step.append_spending(&stopped.paid);
        let child = known.unwrap_or_else(|| child_from_stopped(stopped));
        self.engine.restart_child(self.step, &child, None, None);
        Ok(())
    }
}

impl ChildStarts {
    pub(crate) fn take_restore_waiters(&mut self, session: SessionId) -> Vec<ReplyId> {
        let (these, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.restore_waiters).into_iter().partition(|(child, _)| *child == session);
        self.restore_waiters = others;
        these.into_iter().map(|(_, reply)| reply).collect()
    }
}

/// Derives the session id of a child from the call, so that a replay gets the same id.
fn child_session_id(now: Millis, parent: SessionId, id: &CallId) -> SessionId {
    let digest = call_digest("child", &id.0.clone().into(), &parent.to_string(), None, &[]);
    let seed = digest.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
    SessionId(IdGenerator::new(now, seed).next_uuid())
}

/// Converts a stopped descendant that this pod did not know.
fn child_from_stopped(stopped: StoppedPod) -> OpenChild {
    OpenChild {
        budget: stopped.budget,
        adopted_from: stopped.ancestors.first().copied(),
        line: stopped.ancestors,
        ..OpenChild::new(stopped.session, stopped.name, stopped.parent.call_id, stopped.scope)
    }
}

fn check_spawn_scope(rules: &[ScopeRule], clone: bool) -> Result<(), String> {
    if rules.is_empty() && !clone {
        return Err("`scope` is empty: list the absolute paths that the child may read or write".to_owned());
    }
    for rule in rules {
        let target = rule.target.escape_debug();
        if !rule.target.starts_with('/') {
            return Err(format!("`scope` has the relative target `{target}`: give an absolute path"));
        }
        if !minke_policy::is_canonical(&rule.target) {
            return Err(format!(
                "`scope` has the target `{target}`: write it without `.`, `..`, double `/` and a `/` at its end"
            ));
        }
        if clone && rule.permission != Permission::Read {
            return Err(format!(
                "`scope` has a write rule for `{target}`: a child in a clone writes in its clone, so give read rules only"
            ));
        }
    }
    Ok(())
}
