//! Kill-everywhere: every story again, killed at every write and before and after every effect, replayed, continued.
//!
//! Here: the enumeration of the points and what must hold after each. Elsewhere: telling (`tell`), dying (`world`), the
//! promises (`checker`).
//! Invariant: a broken driver or pod makes it fail; the four breaks of `Break` are its own tests (`tests/harness.rs`).

use std::collections::BTreeMap;
use std::fmt;

use minke_pod::State;
use minke_record::{Kind, Outcome};

use crate::left::{Left, Recorder};
use crate::memlog::Death;
use crate::story::Story;
use crate::tell::{Stood, Telling};
use crate::world::{Break, Point, Stop, SyncWhen};

/// After every how many points a second kill follows the first.
const SECOND_KILL_EVERY: usize = 5;
/// With late syncs a power cut differs from one with syncs at once, a kill seldom does: it falls on every n-th point.
const LATE_KILL_EVERY: usize = 4;
/// Where in the recovery the second kill may fall.
const SECOND_KILL_WITHIN: usize = 24;

/// What killing one story came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Places where the process could die.
    pub points: usize,
    /// Tellings that were killed, once or twice.
    pub deaths: usize,
    /// Of these, those whose context at the end was compared with the unkilled one, item by item.
    pub compared: usize,
}

impl std::ops::AddAssign for Deaths {
    fn add_assign(&mut self, other: Deaths) {
        self.points += other.points;
        self.deaths += other.deaths;
        self.compared += other.compared;
    }
}

/// A story that does not hold, with everything that happened in it.
#[derive(Debug, Clone)]
pub struct Failure {
    pub story: String,
    /// Where it was killed, if it was.
    pub killed: Option<String>,
    pub why: String,
    pub transcript: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "story `{}`: {}", self.story, self.why)?;
        if let Some(killed) = &self.killed {
            writeln!(f, "killed {killed}")?;
        }
        for line in &self.transcript {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// The unkilled telling: what a killed one is compared with.
struct Reference {
    points: Vec<Point>,
    /// Where the pod stood after each line.
    stood: Vec<Stood>,
    /// What the pod knew after each step, by the link of the step's last entry.
    states: BTreeMap<[u8; 16], State>,
    context: Vec<String>,
}

fn failure(telling: &Telling<'_>, killed: Option<String>, stop: Stop) -> Failure {
    let why = match stop {
        Stop::Killed => "died where nobody killed it".to_owned(),
        Stop::Wrong(why) => why,
    };
    Failure { story: telling.story.name.clone(), killed, why, transcript: telling.world.transcript.clone() }
}

/// Tells a story once, strictly.
pub fn tell(story: &Story, sync_when: SyncWhen) -> Result<(), Failure> {
    reference(story, sync_when, None).map(|_| ())
}

fn reference(story: &Story, sync_when: SyncWhen, broken: Option<Break>) -> Result<Reference, Failure> {
    let mut telling = Telling::new(story, sync_when);
    telling.world.broken = broken;
    reference_of(telling).map(|(reference, _)| reference)
}

fn reference_of(mut telling: Telling<'_>) -> Result<(Reference, Left), Failure> {
    telling.world.keep_states();
    telling.tell().map_err(|stop| failure(&telling, None, stop))?;
    ended(&mut telling).map_err(|stop| failure(&telling, None, stop))?;
    let context = context(&telling);
    let left = left_of(&telling);
    let reference = Reference {
        points: telling.world.points().to_vec(),
        stood: telling.stood,
        states: telling.world.states.take().unwrap_or_default(),
        context,
    };
    Ok((reference, left))
}

fn left_of(telling: &Telling<'_>) -> Left {
    Left { base: telling.world.base.clone(), log: telling.world.log.clone() }
}

/// Tells a story once, recorded, for its log.
pub(crate) fn told(story: &Story, sync_when: SyncWhen, recorder: Recorder) -> Result<Left, Box<Failure>> {
    let mut telling = Telling::new(story, sync_when);
    telling.world.recorder = Some(recorder);
    reference_of(telling).map(|(_, left)| left).map_err(Box::new)
}

/// Kills a story at every n-th point, with every second death followed by another, for the logs.
pub(crate) fn told_killed(
    story: &Story,
    every: usize,
    recorder: Recorder,
) -> Result<Vec<Left>, Box<Failure>> {
    let telling = || {
        let mut telling = Telling::new(story, SyncWhen::AtOnce);
        telling.world.recorder = Some(recorder);
        telling
    };
    let (reference, _) = reference_of(telling())?;
    let mut all = Vec::new();
    for at in (0..reference.points.len()).step_by(every.max(1)) {
        let again = (at % 2 == 1).then_some(1 + (at * 7) % SECOND_KILL_WITHIN);
        let death = Death::ALL[at % Death::ALL.len()];
        let kill = Kill { at, death, again };
        let mut telling = telling();
        telling.world.die_at(at, death);
        if let Err(stop) = go(&mut telling, &reference, kill) {
            return Err(Box::new(failure(&telling, Some(format!("at point {at}, {death:?}")), stop)));
        }
        all.push(left_of(&telling));
    }
    Ok(all)
}

/// Nothing more happens: the checker looks at everything.
fn ended(telling: &mut Telling<'_>) -> Result<(), Stop> {
    telling.world.settle()?;
    telling.world.judge().map_err(Stop::Wrong)
}

/// The context in words, without the names of calls.
fn context(telling: &Telling<'_>) -> Vec<String> {
    telling.world.state().context.items().iter().map(|item| crate::show::item(item)).collect()
}

/// Kills the story at every point, in every way that differs there. `broken` breaks a rule on purpose.
pub fn kill_everywhere(
    story: &Story,
    sync_when: SyncWhen,
    broken: Option<Break>,
) -> Result<Deaths, Box<Failure>> {
    let reference = reference(story, sync_when, broken.filter(|b| acts_unkilled(*b)))?;
    let mut deaths = Deaths { points: reference.points.len(), ..Deaths::default() };
    for (at, point) in reference.points.iter().enumerate() {
        for death in Death::ALL {
            if death != Death::Kill && !point.unsynced {
                continue;
            }
            if death == Death::Kill && sync_when == SyncWhen::Late && at % LATE_KILL_EVERY != 0 {
                continue;
            }
            let kill = Kill { at, death, again: None };
            deaths.deaths += 1;
            deaths.compared += usize::from(killed(story, sync_when, broken, (&reference, kill))?);
        }
        if at % SECOND_KILL_EVERY == 0 && sync_when == SyncWhen::AtOnce {
            let again = Some(1 + (at * 7) % SECOND_KILL_WITHIN);
            let kill = Kill { at, death: Death::Kill, again };
            deaths.deaths += 1;
            deaths.compared += usize::from(killed(story, sync_when, broken, (&reference, kill))?);
        }
    }
    Ok(deaths)
}

/// Breaks that show without any kill.
fn acts_unkilled(broken: Break) -> bool {
    matches!(broken, Break::ActBeforeWrite | Break::StateOutsideApply)
}

#[derive(Debug, Clone, Copy)]
struct Kill {
    at: usize,
    death: Death,
    /// A second kill, this many points into the recovery.
    again: Option<usize>,
}

/// One killed telling. Gives whether its context could be compared with the unkilled one.
fn killed(
    story: &Story,
    sync_when: SyncWhen,
    broken: Option<Break>,
    (reference, kill): (&Reference, Kill),
) -> Result<bool, Box<Failure>> {
    let mut telling = Telling::new(story, sync_when);
    telling.world.broken = broken;
    telling.world.keeps_transcript = false;
    telling.world.log.trust();
    telling.world.die_at(kill.at, kill.death);
    let Err(first) = go(&mut telling, reference, kill) else { return Ok(!telling.affected) };
    // The same once more, for the transcript: one telling is like another.
    let mut telling = Telling::new(story, sync_when);
    telling.world.broken = broken;
    telling.world.die_at(kill.at, kill.death);
    let stop = go(&mut telling, reference, kill).err().unwrap_or(first);
    let point = reference.points[kill.at];
    let said = format!("at point {} ({}), {:?}, again {:?}", kill.at, point.name, kill.death, kill.again);
    Err(Box::new(failure(&telling, Some(said), stop)))
}

fn go(telling: &mut Telling<'_>, reference: &Reference, kill: Kill) -> Result<(), Stop> {
    let lines = telling.story.lines.len();
    let mut at = match telling.world.boot() {
        Ok(()) => None,
        Err(Stop::Killed) => {
            come_back(telling, reference, kill, None)?;
            Some(0)
        }
        Err(wrong) => return Err(wrong),
    };
    if at.is_none() {
        telling.looked = telling.world.state().next_seq;
        at = Some(0);
    }
    let mut next = at.unwrap_or(0);
    while next < lines {
        match telling.line(next) {
            Ok(()) => {
                if telling.killed {
                    again(telling, |telling| telling.push_on(reference.stood[next]))?;
                }
            }
            Err(Stop::Killed) => come_back(telling, reference, kill, Some(next))?,
            Err(wrong) => return Err(wrong),
        }
        next += 1;
    }
    finish(telling, reference)
}

/// A second kill may fall into the going on; then a third life goes on where it was.
fn again(
    telling: &mut Telling<'_>,
    mut go: impl FnMut(&mut Telling<'_>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    match go(telling) {
        Err(Stop::Killed) => {
            telling.world.die(Death::Kill)?;
            telling.affected |= kept_words(telling);
            telling.world.boot()?;
            go(telling)
        }
        other => other,
    }
}

/// The process has died in a line: what its log says is what the unkilled one's said there, and a new one goes on.
fn come_back(
    telling: &mut Telling<'_>,
    reference: &Reference,
    kill: Kill,
    line: Option<usize>,
) -> Result<(), Stop> {
    let first = !telling.killed;
    telling.killed = true;
    telling.world.die(kill.death)?;
    if first {
        same_as_unkilled(telling, reference)?;
    }
    telling.affected |= kept_words(telling);
    if let Some(points) = kill.again.filter(|_| first) {
        let at = telling.world.points().len() + points;
        telling.world.die_at(at, Death::Kill);
    }
    again(telling, |telling| if telling.world.pod.is_some() { Ok(()) } else { telling.world.boot() })?;
    match line {
        Some(line) => again(telling, |telling| telling.recover(line, &reference.stood)),
        None => Ok(()),
    }
}

/// The log ends where a step of the unkilled telling ended, and folds to what that one had in memory there.
fn same_as_unkilled(telling: &Telling<'_>, reference: &Reference) -> Result<(), Stop> {
    let Some(end) = telling.world.log.head() else { return Ok(()) };
    let Some(state) = reference.states.get(&end.h.0) else {
        return Err(Stop::Wrong(format!("after the death the log ends at entry {}, inside a step", end.seq)));
    };
    if *state == telling.world.replayed() {
        return Ok(());
    }
    Err(Stop::Wrong(format!("the log up to entry {} does not fold to what the unkilled pod knew", end.seq)))
}

/// The dead process had kept words of a reply that had not ended: the next reply says them again.
fn kept_words(telling: &Telling<'_>) -> bool {
    let state = telling.world.replayed();
    let Some(open) = &state.facts.open_llm else { return false };
    telling.world.log.entries().iter().any(|entry| match &entry.kind {
        Kind::AssistantItem(item) => item.call == open.call,
        _ => false,
    })
}

fn finish(telling: &mut Telling<'_>, reference: &Reference) -> Result<(), Stop> {
    if let Some(last) = reference.stood.last().copied() {
        again(telling, |telling| telling.push_on(last))?;
    }
    ended(telling)?;
    let lost = telling.world.log.entries().iter().any(|entry| match &entry.kind {
        Kind::ToolResult(result) => result.outcome == Outcome::Lost,
        _ => false,
    });
    // The word of a file replaces the word of the tool.
    let looked = telling.world.file_checks > 0;
    telling.affected |= lost || looked || telling.story.scene.kills_differ.is_some();
    let context = context(telling);
    if telling.affected || context == reference.context {
        return Ok(());
    }
    Err(Stop::Wrong(format!(
        "after the kill the context is `{}`, and unkilled it is `{}`",
        context.join(" / "),
        reference.context.join(" / ")
    )))
}
