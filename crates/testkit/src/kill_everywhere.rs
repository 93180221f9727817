//! Kill everywhere: runs a story again and kills it at every write and before and after every effect, then
//! recovers.
//!
//! Elsewhere: running a story (`story::run`), crashes (`world`), the promises (`checker`).
//! Invariant: a broken driver or pod makes it fail; the rules of `RuleBreak` test this (`tests/harness.rs`).

use std::collections::BTreeMap;
use std::fmt;

use minke_pod::State;
use minke_record::{Kind, Outcome};

use crate::memory_log::DeathKind;
use crate::story::Story;
use crate::story::log::{StoryLog, StreamRecorder};
use crate::story::run::{PodPosition, StoryRun};
use crate::world::{KillPoint, RuleBreak, StoryStop, SyncTiming};

/// A second kill follows at every n-th point.
const SECOND_KILL_EVERY: usize = 5;
/// With late syncs a power cut differs from one with immediate syncs, a kill seldom does; so only every n-th
/// point is killed.
const LATE_KILL_EVERY: usize = 4;
/// Range of points in the recovery for the second kill.
const SECOND_KILL_WITHIN: usize = 24;

/// The counters of one killed story.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KillStats {
    /// Points at which the process can die.
    pub points: usize,
    /// Story runs that were killed, once or twice.
    pub kills: usize,
    /// Killed runs whose final context was compared with the unkilled run, item by item.
    pub compared: usize,
}

impl std::ops::AddAssign for KillStats {
    fn add_assign(&mut self, other: KillStats) {
        self.points += other.points;
        self.kills += other.kills;
        self.compared += other.compared;
    }
}

/// A failed story with its transcript.
#[derive(Debug, Clone)]
pub struct StoryFailure {
    pub story: String,
    /// The point of the kill, if any.
    pub killed_at: Option<String>,
    pub why: String,
    pub transcript: Vec<String>,
}

impl fmt::Display for StoryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "story `{}`: {}", self.story, self.why)?;
        if let Some(killed) = &self.killed_at {
            writeln!(f, "killed {killed}")?;
        }
        for line in &self.transcript {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// The unkilled run, for comparison.
struct UnkilledRun {
    points: Vec<KillPoint>,
    /// The position of the pod after each line.
    positions: Vec<PodPosition>,
    /// The pod's state after each step, by the hash of the step's last entry.
    states: BTreeMap<[u8; 16], State>,
    context: Vec<String>,
}

fn make_failure(run: &StoryRun<'_>, killed_at: Option<String>, stop: StoryStop) -> StoryFailure {
    let why = match stop {
        StoryStop::Killed => "died without a kill".to_owned(),
        StoryStop::Failed(why) => why,
    };
    StoryFailure { story: run.story.name.clone(), killed_at, why, transcript: run.world.transcript.clone() }
}

/// Runs a story once, with all assertions.
pub fn run_story(story: &Story, sync_when: SyncTiming) -> Result<(), StoryFailure> {
    run_unkilled(story, sync_when, None).map(|_| ())
}

fn run_unkilled(
    story: &Story,
    sync_when: SyncTiming,
    broken: Option<RuleBreak>,
) -> Result<UnkilledRun, StoryFailure> {
    let mut run = StoryRun::new(story, sync_when);
    run.world.broken_rule = broken;
    finish_unkilled(run).map(|(reference, _)| reference)
}

fn finish_unkilled(mut telling: StoryRun<'_>) -> Result<(UnkilledRun, StoryLog), StoryFailure> {
    telling.world.record_states();
    telling.run_all().map_err(|stop| make_failure(&telling, None, stop))?;
    check_end(&mut telling).map_err(|stop| make_failure(&telling, None, stop))?;
    let context = context_lines(&telling);
    let log = log_of(&telling);
    let reference = UnkilledRun {
        points: telling.world.passed_points().to_vec(),
        positions: telling.positions,
        states: telling.world.states.take().unwrap_or_default(),
        context,
    };
    Ok((reference, log))
}

fn log_of(run: &StoryRun<'_>) -> StoryLog {
    StoryLog { base: run.world.base.clone(), log: run.world.log.clone() }
}

/// Runs a story once with recordings and returns its log.
pub(crate) fn run_recorded(
    story: &Story,
    sync_when: SyncTiming,
    recorder: StreamRecorder,
) -> Result<StoryLog, Box<StoryFailure>> {
    let mut telling = StoryRun::new(story, sync_when);
    telling.world.recorder = Some(recorder);
    finish_unkilled(telling).map(|(_, log)| log).map_err(Box::new)
}

/// Kills a story at every n-th point, with a second kill after every second one, and returns the logs.
pub(crate) fn run_recorded_killed(
    story: &Story,
    every: usize,
    recorder: StreamRecorder,
) -> Result<Vec<StoryLog>, Box<StoryFailure>> {
    let run = || {
        let mut telling = StoryRun::new(story, SyncTiming::Immediate);
        telling.world.recorder = Some(recorder);
        telling
    };
    let (reference, _) = finish_unkilled(run())?;
    let mut all = Vec::new();
    for at in (0..reference.points.len()).step_by(every.max(1)) {
        let second_kill = (at % 2 == 1).then_some(1 + (at * 7) % SECOND_KILL_WITHIN);
        let death = DeathKind::ALL[at % DeathKind::ALL.len()];
        let kill = StoryKill { at, death, second_kill };
        let mut telling = run();
        telling.world.set_kill_point(at, death);
        if let Err(stop) = run_with_kill(&mut telling, &reference, kill) {
            return Err(Box::new(make_failure(&telling, Some(format!("at point {at}, {death:?}")), stop)));
        }
        all.push(log_of(&telling));
    }
    Ok(all)
}

/// Finishes the run and checks everything.
fn check_end(run: &mut StoryRun<'_>) -> Result<(), StoryStop> {
    run.world.settle_inputs()?;
    run.world.check_all().map_err(StoryStop::Failed)
}

/// Returns the context as lines without call ids.
fn context_lines(telling: &StoryRun<'_>) -> Vec<String> {
    telling
        .world
        .current_state()
        .context
        .items()
        .iter()
        .map(|item| crate::describe::describe_item(item))
        .collect()
}

/// Kills the story at every point in every distinct way. `broken` breaks a rule on purpose.
pub fn kill_everywhere(
    story: &Story,
    sync_when: SyncTiming,
    broken: Option<RuleBreak>,
) -> Result<KillStats, Box<StoryFailure>> {
    let reference = run_unkilled(story, sync_when, broken.filter(|b| shows_without_kill(*b)))?;
    let mut stats = KillStats { points: reference.points.len(), ..KillStats::default() };
    for (at, point) in reference.points.iter().enumerate() {
        for death in DeathKind::ALL {
            if death != DeathKind::Kill && !point.unsynced {
                continue;
            }
            if death == DeathKind::Kill && sync_when == SyncTiming::Late && at % LATE_KILL_EVERY != 0 {
                continue;
            }
            let kill = StoryKill { at, death, second_kill: None };
            stats.kills += 1;
            stats.compared += usize::from(run_killed(story, sync_when, broken, &reference, kill)?);
        }
        if at % SECOND_KILL_EVERY == 0 && sync_when == SyncTiming::Immediate {
            let second_kill = Some(1 + (at * 7) % SECOND_KILL_WITHIN);
            let kill = StoryKill { at, death: DeathKind::Kill, second_kill };
            stats.kills += 1;
            stats.compared += usize::from(run_killed(story, sync_when, broken, &reference, kill)?);
        }
    }
    Ok(stats)
}

/// Returns whether a rule break shows without a kill.
fn shows_without_kill(broken: RuleBreak) -> bool {
    matches!(broken, RuleBreak::ActBeforeWrite | RuleBreak::StateOutsideApply)
}

#[derive(Debug, Clone, Copy)]
struct StoryKill {
    at: usize,
    death: DeathKind,
    /// A second kill after this many points of the recovery.
    second_kill: Option<usize>,
}

/// Runs and kills a story. Returns whether its context could be compared with the unkilled run.
fn run_killed(
    story: &Story,
    sync_when: SyncTiming,
    broken: Option<RuleBreak>,
    reference: &UnkilledRun,
    kill: StoryKill,
) -> Result<bool, Box<StoryFailure>> {
    let mut run = StoryRun::new(story, sync_when);
    run.world.broken_rule = broken;
    run.world.keeps_transcript = false;
    run.world.log.skip_reread();
    run.world.set_kill_point(kill.at, kill.death);
    let Err(first) = run_with_kill(&mut run, reference, kill) else { return Ok(!run.context_differs) };
    // Run again for the transcript; runs are deterministic.
    let mut telling = StoryRun::new(story, sync_when);
    telling.world.broken_rule = broken;
    telling.world.set_kill_point(kill.at, kill.death);
    let stop = run_with_kill(&mut telling, reference, kill).err().unwrap_or(first);
    let point = reference.points[kill.at];
    let said =
        format!("at point {} ({}), {:?}, again {:?}", kill.at, point.name, kill.death, kill.second_kill);
    Err(Box::new(make_failure(&telling, Some(said), stop)))
}

fn run_with_kill(run: &mut StoryRun<'_>, reference: &UnkilledRun, kill: StoryKill) -> Result<(), StoryStop> {
    let lines = run.story.lines.len();
    let mut at = match run.world.boot_pod() {
        Ok(()) => None,
        Err(StoryStop::Killed) => {
            recover_from_kill(run, reference, kill, None)?;
            Some(0)
        }
        Err(wrong) => return Err(wrong),
    };
    if at.is_none() {
        run.checked_seq = run.world.current_state().next_seq;
        at = Some(0);
    }
    let mut next = at.unwrap_or(0);
    while next < lines {
        match run.run_line(next) {
            Ok(()) => {
                if run.was_killed {
                    survive_second_kill(run, |telling| telling.advance_to(reference.positions[next]))?;
                }
            }
            Err(StoryStop::Killed) => recover_from_kill(run, reference, kill, Some(next))?,
            Err(wrong) => return Err(wrong),
        }
        next += 1;
    }
    finish_run(run, reference)
}

/// Runs `go`; after a second kill boots a third process and runs it again.
fn survive_second_kill(
    telling: &mut StoryRun<'_>,
    mut go: impl FnMut(&mut StoryRun<'_>) -> Result<(), StoryStop>,
) -> Result<(), StoryStop> {
    match go(telling) {
        Err(StoryStop::Killed) => {
            telling.world.kill_process(DeathKind::Kill)?;
            telling.context_differs |= kept_partial_reply(telling);
            telling.world.boot_pod()?;
            go(telling)
        }
        other => other,
    }
}

/// After a kill: compares the log with the unkilled run, boots a new process and repeats the line if
/// necessary.
fn recover_from_kill(
    run: &mut StoryRun<'_>,
    reference: &UnkilledRun,
    kill: StoryKill,
    line: Option<usize>,
) -> Result<(), StoryStop> {
    let first = !run.was_killed;
    run.was_killed = true;
    run.world.kill_process(kill.death)?;
    if first {
        compare_with_unkilled(run, reference)?;
    }
    run.context_differs |= kept_partial_reply(run);
    if let Some(points) = kill.second_kill.filter(|_| first) {
        let at = run.world.passed_points().len() + points;
        run.world.set_kill_point(at, DeathKind::Kill);
    }
    survive_second_kill(
        run,
        |telling| if telling.world.pod.is_some() { Ok(()) } else { telling.world.boot_pod() },
    )?;
    match line {
        Some(line) => survive_second_kill(run, |telling| telling.recover_line(line, &reference.positions)),
        None => Ok(()),
    }
}

/// Checks that the log ends after a step of the unkilled run and folds to its state there.
fn compare_with_unkilled(run: &StoryRun<'_>, reference: &UnkilledRun) -> Result<(), StoryStop> {
    let Some(end) = run.world.log.head_position() else { return Ok(()) };
    let Some(state) = reference.states.get(&end.h.0) else {
        return Err(StoryStop::Failed(format!(
            "after the death the log ends at entry {}, inside a step",
            end.seq
        )));
    };
    if *state == run.world.replay_log() {
        return Ok(());
    }
    Err(StoryStop::Failed(format!(
        "the log up to entry {} does not fold to the state of the unkilled pod",
        end.seq
    )))
}

/// Returns whether the log has text of a reply that had not ended; the next reply repeats it.
fn kept_partial_reply(run: &StoryRun<'_>) -> bool {
    let state = run.world.replay_log();
    let Some(open) = &state.facts.open_llm else { return false };
    run.world.log.entries().iter().any(|entry| match &entry.kind {
        Kind::AssistantItem(item) => item.call == open.call,
        _ => false,
    })
}

fn finish_run(telling: &mut StoryRun<'_>, reference: &UnkilledRun) -> Result<(), StoryStop> {
    if let Some(last) = reference.positions.last().copied() {
        survive_second_kill(telling, |run| run.advance_to(last))?;
    }
    check_end(telling)?;
    let lost = telling.world.log.entries().iter().any(|entry| match &entry.kind {
        Kind::ToolResult(result) => result.outcome == Outcome::Lost,
        _ => false,
    });
    // The result of a file check replaces the result of the tool.
    let looked = telling.world.file_checks > 0;
    telling.context_differs |= lost || looked || telling.story.scene.kills_differ.is_some();
    let context = context_lines(telling);
    if telling.context_differs || context == reference.context {
        return Ok(());
    }
    Err(StoryStop::Failed(format!(
        "after the kill the context is `{}`, and unkilled it is `{}`",
        context.join(" / "),
        reference.context.join(" / ")
    )))
}
