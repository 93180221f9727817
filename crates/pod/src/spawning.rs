//! Spawning: what a child is to be, and whether it may be; waking one that has lived before.
//!
//! Here: the checks in the order of the specification (own name, scope, selector, profile, then table and limits as far as
//! this pod knows them), the entries and the order that follow. Elsewhere: the saga itself (`driver::children`), the
//! machine's table (`registry`), what comes back (`children`).

use minke_manifest::INSTRUCTION;
use minke_manifest::profiles::{DEFAULT, Selector, inherited};
use minke_policy::Level;
use minke_record::{
    Budget, CallId, Child, Ids, Millis, OpenChild, Permission, Scope, ScopeRule, SessionId, SpawnPod,
};
use serde_json::Value;

use crate::ReplyTo;
use crate::children::invalid;
use crate::digest::digest;
use crate::input::Stopped;
use crate::pod::{Making, Pod};
use crate::step::{Effect, Refusal};
use crate::tree::{Sending, Spawning, TreeOrder};

/// Children that one session remembers: their names stay taken.
const REMEMBERED: usize = 1_024;
/// How long a SpawnPod with `wait` waits.
const WAIT_MS: u64 = 600_000;

/// A child as it may be.
pub(crate) struct Plan {
    scope: Scope,
    cwd: String,
    profile: Option<String>,
    manifest: Value,
    budget: Option<Budget>,
}

impl Pod {
    /// What a child would be, or the first thing that stands in its way.
    pub(crate) fn child_plan(&self, spawn: &SpawnPod) -> Result<Plan, String> {
        let name = &spawn.name;
        if self.state.facts.name.as_ref() == Some(name) {
            return Err(format!("`name` is `{name}`, which is your own name: give the child another"));
        }
        check_scope(&spawn.scope, spawn.clone)?;
        let about = self.state.facts.about.as_ref().ok_or("this session has no beginning")?;
        let cwd = spawn.cwd.clone().unwrap_or_else(|| about.cwd.clone());
        if !minke_policy::is_canonical(&cwd) {
            return Err(format!(
                "`cwd` is `{}`: give an absolute path without `.` and `..`",
                cwd.escape_debug()
            ));
        }
        let profile = match Selector::read(spawn.profile.as_deref()).map_err(|e| e.to_string())? {
            Selector::Inherit => None,
            Selector::Default | Selector::Full(_) | Selector::Bare(_) => {
                Some(spawn.profile.clone().unwrap_or_else(|| DEFAULT.to_owned()))
            }
        };
        let mut manifest = inherited(&self.state.manifest);
        // What the user has approved for this session counts for its children.
        manifest.sandbox.broad_roots = self.unapproved_broad_roots();
        if profile.is_some() {
            manifest.worker.instruction = INSTRUCTION.to_owned();
        }
        if let Some(instruction) = &spawn.instruction {
            manifest.worker.instruction.clone_from(instruction);
        }
        if self.state.facts.children.iter().any(|child| child.name == *name) {
            return Err(format!(
                "you have spawned a pod named `{name}` already: SendToPod reaches it, or give this one another name"
            ));
        }
        let request = Scope { allow: spawn.scope.clone(), deny: Vec::new() };
        self.may_lend(&request)?;
        self.room_for_a_child(None)?;
        let budget = self.share(spawn.budget)?;
        let scope = minke_policy::narrow(&about.scope, &request);
        Ok(Plan { scope, cwd, profile, manifest: manifest.to_value(), budget })
    }

    /// A target outside what this pod has now is named, with who holds it.
    fn may_lend(&self, request: &Scope) -> Result<(), String> {
        let Some((path, have, want)) = minke_policy::first_excess(&self.state.effective_scope(), request)
        else {
            return Ok(());
        };
        let (have, want) = (have.as_str(), want.as_str());
        Err(match self.state.lent_to(&path) {
            Some(holder) if want == Level::Write.as_str() => format!(
                "`scope` wants {want} at {path}, which is lent to pod `{}`: wait until it has stopped, or stop it",
                holder.name
            ),
            _ => format!(
                "`scope` wants {want} at {path}, where you have {have}: you can lend only what you have"
            ),
        })
    }

    /// `again`: a child that has lived before. Those that were adopted do not count: they are another's children, and wait
    /// for it to come back.
    fn room_for_a_child(&self, again: Option<&OpenChild>) -> Result<(), String> {
        let limits = &self.state.manifest.pod.limits;
        let depth = self.state.depth().saturating_add(1);
        if depth > limits.depth {
            return Err(format!(
                "the child would stand {depth} below the root, and the tree may be {} deep (pod.limits.depth): do it \
                 yourself",
                limits.depth
            ));
        }
        let own = |child: &OpenChild| child.line.is_empty();
        let live = self.state.live_children().filter(|child| own(child)).count() as u64;
        if again.is_none_or(own) && live >= limits.children {
            return Err(format!(
                "{live} children live already, as many as may (pod.limits.children): wait for one, or stop one"
            ));
        }
        if again.is_none() && self.state.facts.children.len() >= REMEMBERED {
            return Err(format!("this session has spawned {REMEMBERED} pods, and remembers no more"));
        }
        Ok(())
    }

    pub(crate) fn spawn(&mut self, m: &mut Making, id: &CallId, spawn: SpawnPod) {
        let plan = match self.child_plan(&spawn) {
            Ok(plan) => plan,
            Err(problem) => return self.settle_call(m, id, invalid(problem)),
        };
        let Plan { scope, cwd, profile, manifest, budget } = plan;
        let Some(about) = self.state.facts.about.clone() else { return };
        let session = session_of(m.now, about.session, id);
        let (name, wait) = (spawn.name.clone(), spawn.wait);
        self.note(
            m,
            Child {
                session,
                name: name.clone(),
                call_id: id.clone(),
                scope: scope.clone(),
                budget,
                adopted_from: None,
                line: Vec::new(),
                clone: None,
            },
        );
        if wait {
            self.life.spawn_waits.insert(id.clone(), m.now.saturating_add(WAIT_MS));
        }
        self.life.starting.insert(session);
        let spawning = Spawning {
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
            permissions: self.permissions_of_child(),
            clone: spawn.clone,
            depth: self.state.depth().saturating_add(1),
        };
        m.effect(Effect::Tree(TreeOrder::Spawn(Box::new(spawning))));
    }

    /// At most what this pod may: its posture, its rules, and those that bind itself.
    fn permissions_of_child(&self) -> Value {
        let mut rules = self.state.manifest.permissions.rules.clone();
        if let Some(limits) = &self.state.limits {
            rules.rules.extend(limits.rules.rules.iter().cloned());
        }
        serde_json::json!({ "posture": self.posture(), "rules": rules })
    }

    /// Starts a child again that has lived before.
    pub(crate) fn wake_child(
        &mut self,
        m: &mut Making,
        child: &OpenChild,
        send: Option<Sending>,
        call_id: Option<CallId>,
    ) {
        if let Err(problem) = self.room_for_a_child(Some(child)) {
            if let Some(id) = &call_id {
                self.settle_call(m, id, invalid(problem.clone()));
            }
            for reply in self.take_restoring(child.session) {
                m.refuse(Some(reply), Refusal::new(minke_record::ErrorCode::TooMany, problem.clone()));
            }
            return;
        }
        let budget = self.share_again(child);
        let kin = Box::new(self.state.kin_known(child.session));
        let (session, name, scope) = (child.session, child.name.clone(), child.scope.clone());
        self.note(
            m,
            Child {
                session,
                name: name.clone(),
                call_id: call_id.clone().unwrap_or_else(|| child.call_id.clone()),
                scope: scope.clone(),
                budget,
                adopted_from: child.adopted_from,
                line: child.line.clone(),
                clone: child.clone.clone(),
            },
        );
        self.life.starting.insert(session);
        // Requests and spawns count from its beginning; its time has its own end.
        let budget = budget.map(|all| Budget { usd: all.usd, tokens: all.tokens, ..Budget::default() });
        let restore = TreeOrder::Restore { child: session, name, scope, budget, kin, send, call_id };
        m.effect(Effect::Tree(restore));
    }

    /// `restore_pod`: the reply comes when it lives.
    pub(crate) fn restore_pod(
        &mut self,
        m: &mut Making,
        reply: Option<ReplyTo>,
        stopped: Stopped,
    ) -> Result<(), Refusal> {
        let session = stopped.session;
        let known = self.state.child(session).cloned();
        let waits = self.life.starting.contains(&session);
        if !waits && known.as_ref().is_some_and(|child| child.ended.is_none()) {
            let message = format!("pod `{}` lives already", stopped.name);
            return Err(Refusal::new(minke_record::ErrorCode::AlreadyRunning, message));
        }
        self.life.restoring.extend(reply.map(|reply| (session, reply)));
        if waits {
            return Ok(());
        }
        self.note_spending(m, &stopped.paid);
        let child = known.unwrap_or_else(|| of_stopped(stopped));
        self.wake_child(m, &child, None, None);
        Ok(())
    }

    pub(crate) fn take_restoring(&mut self, session: SessionId) -> Vec<ReplyTo> {
        let (these, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.life.restoring).into_iter().partition(|(child, _)| *child == session);
        self.life.restoring = others;
        these.into_iter().map(|(_, reply)| reply).collect()
    }
}

/// The session of a child follows from the call that makes it: a replay makes the same one.
fn session_of(now: Millis, parent: SessionId, id: &CallId) -> SessionId {
    let digest = digest("child", &id.0.clone().into(), &parent.to_string(), None, &[]);
    let seed = digest.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
    SessionId(Ids::new(now, seed).next_uuid())
}

/// A pod below this one that it did not know.
fn of_stopped(stopped: Stopped) -> OpenChild {
    OpenChild {
        budget: stopped.budget,
        adopted_from: stopped.line.first().copied(),
        line: stopped.line,
        ..OpenChild::new(stopped.session, stopped.name, stopped.parent.call_id, stopped.scope)
    }
}

fn check_scope(rules: &[ScopeRule], clone: bool) -> Result<(), String> {
    if rules.is_empty() && !clone {
        return Err("`scope` is empty: say what the child may read and write, with absolute paths".to_owned());
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
