//! Which jobs are to be started now, and when to look again: a plain function of what is known of all of them.
//!
//! Elsewhere: what a job's log says (`work`), who looks and starts (`host`).
//! Invariant: never more at once than the room allows, and nobody waits for ever behind another tree
//! (`jobs_share_the_room`).

use std::collections::BTreeMap;

use minke_record::{JobState, Millis, SessionId, WaitingOn};

use crate::job::may_move;
use crate::mandate::{Mandate, Restart};
use crate::summary::Summary;

/// How many jobs may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub running: usize,
    pub per_provider: usize,
    pub per_workspace: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { running: 16, per_provider: 16, per_workspace: 8 }
    }
}

/// A job, as somebody who may start its pod sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub session: SessionId,
    pub need: Need,
    /// Somebody holds the session.
    pub held: bool,
    /// Since when it is what it is.
    pub since: Millis,
    pub provider: String,
    pub workspace: String,
    /// The oldest session above it, or itself.
    pub tree: SessionId,
}

/// What a job needs a pod for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it rests, waits for somebody, or a pod has it and does not work.
    Nothing,
    /// It is at work, if a pod has it; else it is to go on.
    Work,
    /// To be begun as soon as there is room.
    Begin,
    /// The same, from this time on.
    At(Millis),
    /// No pod: from this time on another job is to be made from it.
    Fire(Millis),
    /// Its time is over: only its end is to be written, which needs no room.
    End,
}

/// What follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub start: Vec<SessionId>,
    /// When something is due that is not due yet.
    pub next: Option<Millis>,
    /// Some could be begun and have no room.
    pub crowded: bool,
}

impl Summary {
    /// What this job needs, if it is one that is not over.
    pub fn candidate(&self, held: bool, now: Millis) -> Option<Candidate> {
        let (job, session) = (self.job.as_ref()?, self.session?);
        if job.state.is_final() && !job.owes_another() {
            return None;
        }
        // What is not known to be so is not done.
        let damaged = self.damaged.is_some();
        let mandate = Mandate::read(self.mandate.as_ref()).ok().flatten();
        let late = mandate.as_ref().and_then(Mandate::deadline).is_some_and(|end| end <= now);
        let on = self.waits().map(|waits| waits.on);
        let need = match job.state {
            _ if damaged => Need::Nothing,
            _ if job.owes_another() => Need::Fire(now),
            // One that is paused stays so: nobody but people move it.
            _ if late && !held && may_move(job.state, JobState::Failed).is_ok() => Need::End,
            JobState::Waiting if job.is_scheduled() => Need::Fire(job.until.unwrap_or(now)),
            _ if job.is_scheduled() => Need::Nothing,
            JobState::Queued => Need::Begin,
            JobState::Waiting => job.until.map_or(Need::Begin, Need::At),
            // Whoever answers wakes it.
            JobState::Running | JobState::Interrupted if on == Some(WaitingOn::Ask) => Need::Nothing,
            JobState::Running => Need::Work,
            JobState::Interrupted => {
                let restart = mandate.map_or(Restart::Never, |mandate| mandate.restart);
                if restart == Restart::Never { Need::Nothing } else { Need::Work }
            }
            _ => Need::Nothing,
        };
        let tree = self.parent.as_ref().map_or(session, |parent| parent.session);
        let provider = self.provider.clone().unwrap_or_default();
        let workspace = self.workspace.clone();
        Some(Candidate { session, need, held, since: self.updated, provider, workspace, tree })
    }

    /// What a job is doing, with what only a look at the lease says.
    pub fn job_state(&self, held: bool) -> Option<JobState> {
        let state = self.job.as_ref()?.state;
        Some(match state {
            other if other.is_final() => other,
            _ if self.damaged.is_some() => JobState::Paused,
            JobState::Running if self.waits().is_some() => JobState::Waiting,
            JobState::Running if !held => JobState::Interrupted,
            other => other,
        })
    }
}

/// Who is to be started. Trees take turns: the one with the fewest at work comes first, and in a tree the oldest.
pub fn plan(candidates: &[Candidate], room: Room, now: Millis) -> Plan {
    let mut taken = Taken::default();
    // One that is held and has not begun is about to.
    let working = |one: &&Candidate| one.held && matches!(one.need, Need::Work | Need::Begin);
    for at_work in candidates.iter().filter(working) {
        taken.take(at_work);
    }
    let mut plan = Plan::default();
    let mut ready: Vec<&Candidate> = Vec::new();
    for one in candidates.iter().filter(|one| !one.held) {
        match one.need {
            Need::End => plan.start.push(one.session),
            Need::Begin | Need::Work => ready.push(one),
            Need::At(time) if time <= now => ready.push(one),
            Need::At(time) => plan.next = Some(plan.next.map_or(time, |next| next.min(time))),
            // One that is due and was not made is looked at again soon, as all that is open.
            Need::Fire(time) if time > now => {
                plan.next = Some(plan.next.map_or(time, |next| next.min(time)));
            }
            Need::Fire(_) | Need::Nothing => {}
        }
    }
    while let Some(at) = (0..ready.len())
        .filter(|at| ready.get(*at).is_some_and(|one| taken.fits(one, room)))
        .min_by_key(|at| ready.get(*at).map(|one| (taken.of(&one.tree), one.since, one.session)))
    {
        let one = ready.remove(at);
        taken.take(one);
        plan.start.push(one.session);
    }
    plan.crowded = !ready.is_empty();
    plan
}

#[derive(Default)]
struct Taken<'c> {
    all: usize,
    providers: BTreeMap<&'c str, usize>,
    workspaces: BTreeMap<&'c str, usize>,
    trees: BTreeMap<SessionId, usize>,
}

impl<'c> Taken<'c> {
    fn take(&mut self, one: &'c Candidate) {
        self.all += 1;
        *self.providers.entry(&one.provider).or_default() += 1;
        *self.workspaces.entry(&one.workspace).or_default() += 1;
        *self.trees.entry(one.tree).or_default() += 1;
    }

    fn fits(&self, one: &Candidate, room: Room) -> bool {
        let count = |counts: &BTreeMap<&str, usize>, key: &str| counts.get(key).copied().unwrap_or(0);
        self.all < room.running
            && count(&self.providers, &one.provider) < room.per_provider
            && count(&self.workspaces, &one.workspace) < room.per_workspace
    }

    fn of(&self, tree: &SessionId) -> usize {
        self.trees.get(tree).copied().unwrap_or(0)
    }
}
