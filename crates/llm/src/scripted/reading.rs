//! Reading a script: TOML or JSON in, checked turns out, errors with file, line and key.
//!
//! Invariant: a script that is accepted plays without surprises: every bound and template was checked here
//! (`a_bad_script_is_refused_with_file_line_and_key`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minke_model::{StopReason, TokenUsage};
use minke_record::{PodName, Purpose};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;
use toml::Spanned;

use super::script::{Call, End, Pieces, Script, ScriptedError, Step, Turn, Words, place};
use super::template;
use crate::near::suggest;

/// The longest script: a page of turns is a few KiB.
pub(crate) const SCRIPT_BYTES: u64 = 4 * 1024 * 1024;
/// Turns of a script, repeats not counted.
const TURNS: usize = 10_000;
/// Pieces that one turn may stream; each is held in memory while it plays.
const PIECES: u64 = 1_000_000;
/// Bytes that one turn may say.
const SAID_BYTES: u64 = 64 * 1024 * 1024;
/// How often a turn may be repeated.
const REPEATS: u32 = 1_000_000;
/// How many attempts of one request may fail.
const TIMES: u32 = 1_000;
/// The longest wait inside a turn.
const DELAY_MS: u64 = 10 * 60 * 1_000;

/// A script cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the script {place}: {problem}")]
pub struct ScriptError {
    /// File, and the line if one is to blame.
    place: String,
    problem: String,
}

impl ScriptError {
    pub(crate) fn whole(name: &str, problem: &str) -> ScriptError {
        ScriptError { place: name.to_owned(), problem: problem.to_owned() }
    }

    fn at(name: &str, text: &str, byte: usize, problem: String) -> ScriptError {
        let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        ScriptError { place: format!("{name}, line {line}"), problem }
    }

    /// A reader's own words about the JSON that begins at a byte of the text.
    fn json(name: &str, text: &str, byte: usize, e: &serde_json::Error) -> ScriptError {
        let words = e.to_string();
        let place = format!(" at line {} column {}", e.line(), e.column());
        let problem = suggest(words.strip_suffix(&place).unwrap_or(&words));
        let lines_before = text.as_bytes().iter().take(byte).filter(|b| **b == b'\n').count();
        ScriptError { place: format!("{name}, line {}", lines_before + e.line()), problem }
    }
}

/// The file. `T` is a turn and where it stands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile<T> {
    chunk: Option<usize>,
    #[serde(default, rename = "loop")]
    again: bool,
    #[serde(default = "Vec::new")]
    turn: Vec<T>,
    #[serde(default = "BTreeMap::new")]
    pod: BTreeMap<String, PodFile<T>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodFile<T> {
    turn: Vec<T>,
}

/// A turn, and the byte at which it begins.
struct Placed {
    start: usize,
    turn: TurnFile,
}

impl<T> ScriptFile<T> {
    /// The same with other turns.
    fn map<U, E>(self, change: impl Fn(T) -> Result<U, E>) -> Result<ScriptFile<U>, E> {
        let all = |turns: Vec<T>| turns.into_iter().map(&change).collect::<Result<Vec<U>, E>>();
        let pod = self.pod.into_iter().map(|(name, pod)| Ok((name, PodFile { turn: all(pod.turn)? })));
        let pod = pod.collect::<Result<_, E>>()?;
        Ok(ScriptFile { chunk: self.chunk, again: self.again, turn: all(self.turn)?, pod })
    }
}

/// What a turn answers.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PurposeWord {
    #[default]
    Turn,
    Compaction,
    Title,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnFile {
    #[serde(default)]
    purpose: PurposeWord,
    when: Option<String>,
    expect: Option<String>,
    thinking: Option<Pieces>,
    text: Option<Pieces>,
    #[serde(default)]
    call: Vec<Call>,
    #[serde(default)]
    steps: Vec<StepFile>,
    delay_ms: Option<u64>,
    pace_ms: Option<u64>,
    chunk: Option<usize>,
    repeat: Option<u32>,
    error: Option<ScriptedError>,
    #[serde(default)]
    cut: bool,
    cut_after: Option<usize>,
    stop: Option<String>,
    usage: Option<UsageFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    thinking: Option<Pieces>,
    text: Option<Pieces>,
    call: Option<Call>,
    delay_ms: Option<u64>,
    error: Option<ScriptedError>,
    repeat: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageFile {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cache_write: u64,
    cost_usd: Option<f64>,
}

impl Script {
    pub(crate) fn parse(name: &str, text: &str) -> Result<Script, ScriptError> {
        if text.len() as u64 > SCRIPT_BYTES {
            let problem = format!("is longer than {SCRIPT_BYTES} bytes: use `repeat` instead of long lists");
            return Err(ScriptError::whole(name, &problem));
        }
        // No TOML begins with a brace.
        let json = name.ends_with(".json") || text.trim_start().starts_with('{');
        let read = if json { read_json(name, text) } else { read_toml(name, text) }?;
        let count = read.turn.len() + read.pod.values().map(|pod| pod.turn.len()).sum::<usize>();
        if count == 0 || count > TURNS {
            let problem = format!("has {count} turns: write 1 to {TURNS} `[[turn]]` tables");
            return Err(ScriptError::whole(name, &problem));
        }
        let check = |pod: Option<Arc<str>>, turns: Vec<Placed>| {
            let checked = turns.into_iter().enumerate().map(|(index, Placed { start, turn })| {
                check_turn(Spot { number: index + 1, pod: pod.clone(), chunk: read.chunk }, turn)
                    .map_err(|problem| ScriptError::at(name, text, start, problem))
            });
            checked.collect::<Result<Vec<Turn>, ScriptError>>()
        };
        let turns = check(None, read.turn)?;
        let mut pods = BTreeMap::new();
        for (pod, PodFile { turn }) in read.pod {
            if pod.parse::<PodName>().is_err() {
                let problem = format!("`pod.{pod}`: no pod can have this name; use a-z, 0-9 and `-`");
                return Err(ScriptError::whole(name, &problem));
            }
            let turns = check(Some(pod.as_str().into()), turn)?;
            pods.insert(pod, turns);
        }
        Ok(Script { name: name.to_owned(), again: read.again, turns, pods })
    }
}

fn read_toml(name: &str, text: &str) -> Result<ScriptFile<Placed>, ScriptError> {
    let read: ScriptFile<Spanned<TurnFile>> = toml::from_str(text).map_err(|e| match e.span() {
        Some(span) => ScriptError::at(name, text, span.start, suggest(e.message())),
        None => ScriptError::whole(name, &suggest(e.message())),
    })?;
    read.map(|turn| Ok(Placed { start: turn.span().start, turn: turn.into_inner() }))
}

fn read_json(name: &str, text: &str) -> Result<ScriptFile<Placed>, ScriptError> {
    let read: ScriptFile<&RawValue> =
        serde_json::from_str(text).map_err(|e| ScriptError::json(name, text, 0, &e))?;
    read.map(|raw| {
        // The turn is a part of the text; where it begins is the distance between the two.
        let start = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let turn = serde_json::from_str(raw.get()).map_err(|e| ScriptError::json(name, text, start, &e))?;
        Ok(Placed { start, turn })
    })
}

/// Where a turn stands, and what holds for all turns around it.
struct Spot {
    number: usize,
    pod: Option<Arc<str>>,
    chunk: Option<usize>,
}

/// A turn that can be played; else what is wrong with which turn.
fn check_turn(spot: Spot, turn: TurnFile) -> Result<Turn, String> {
    let place = place(spot.number, spot.pod.as_deref());
    checked_turn(spot, turn).map_err(|problem| format!("{place}: {problem}"))
}

fn checked_turn(spot: Spot, mut turn: TurnFile) -> Result<Turn, String> {
    let chunk = turn.chunk.or(spot.chunk);
    let repeat = turn.repeat.unwrap_or(1);
    check_numbers(&turn, chunk, repeat)?;
    let pace = wait("pace_ms", turn.pace_ms.unwrap_or(0))?;
    let (steps, failing) = take_steps(&mut turn)?;
    let end = end_of(&turn, failing)?;
    check_steps(&steps, &end, chunk)?;
    let silent = steps.iter().all(|step| matches!(step, Step::Wait(_)));
    if silent && turn.error.is_none() && end == End::Stop(None) {
        return Err("says nothing: give it `text`, `thinking`, `call`, `steps`, `error` or `cut`".to_owned());
    }
    let usage = turn.usage.map(|u| TokenUsage {
        input: u.input,
        output: u.output,
        cache_read: u.cache_read,
        cache_write: u.cache_write,
        // The price of `scripted` is 0 unless the script says otherwise.
        cost_usd: Some(u.cost_usd.unwrap_or(0.0)),
    });
    let purpose = match turn.purpose {
        PurposeWord::Turn => Purpose::Turn,
        PurposeWord::Compaction => Purpose::Compaction,
        PurposeWord::Title => Purpose::Title,
    };
    let Spot { number, pod, .. } = spot;
    let (when, expect, error) = (turn.when, turn.expect, turn.error);
    Ok(Turn { number, pod, purpose, when, expect, repeat, error, steps, end, usage, pace, chunk })
}

fn check_numbers(turn: &TurnFile, chunk: Option<usize>, repeat: u32) -> Result<(), String> {
    if chunk == Some(0) {
        return Err("`chunk` is 0: write how many characters a delta has".to_owned());
    }
    if !(1..=REPEATS).contains(&repeat) {
        return Err(format!("`repeat` is {repeat}: write 1 to {REPEATS}"));
    }
    match &turn.error {
        Some(error) if !(1..=TIMES).contains(&error.times) => {
            Err(format!("`error.times` is {}: write 1 to {TIMES}", error.times))
        }
        _ => Ok(()),
    }
}

fn end_of(turn: &TurnFile, failing: Option<ScriptedError>) -> Result<End, String> {
    match (turn.cut || turn.cut_after.is_some(), &turn.stop, failing) {
        (false, None, Some(error)) => Ok(End::Fail(error)),
        (true, None, None) => Ok(End::Cut(turn.cut_after)),
        (false, stop, None) => Ok(End::Stop(stop.as_deref().map(StopReason::from))),
        _ => Err("ends twice: `cut`, `stop` and an `error` among the steps exclude each other".to_owned()),
    }
}

/// The steps in their order, and the error that ends them.
fn take_steps(turn: &mut TurnFile) -> Result<(Vec<Step>, Option<ScriptedError>), String> {
    let plain = turn.thinking.is_some() || turn.text.is_some() || !turn.call.is_empty();
    if plain && !turn.steps.is_empty() {
        return Err("`steps` stands instead of `thinking`, `text` and `call`: put them all in it".to_owned());
    }
    let mut steps = Vec::new();
    if let Some(delay) = turn.delay_ms {
        steps.push(Step::Wait(wait("delay_ms", delay)?));
    }
    steps.extend(turn.thinking.take().map(|pieces| Step::Thinking(Words { pieces, repeat: 1 })));
    steps.extend(turn.text.take().map(|pieces| Step::Text(Words { pieces, repeat: 1 })));
    steps.extend(turn.call.drain(..).map(Step::Call));
    let mut failing = None;
    for step in turn.steps.drain(..) {
        if failing.is_some() {
            return Err("goes on after the `error` among its steps: make that the last one".to_owned());
        }
        match check_step(step)? {
            Checked::Step(step) => steps.push(step),
            Checked::Error(error) => failing = Some(error),
        }
    }
    Ok((steps, failing))
}

fn check_steps(steps: &[Step], end: &End, chunk: Option<usize>) -> Result<(), String> {
    steps.iter().try_for_each(check_texts)?;
    let silent = steps.iter().all(|step| matches!(step, Step::Wait(_)));
    if matches!(end, End::Cut(Some(_))) && silent {
        return Err("`cut_after` needs a text, thinking or call to cut".to_owned());
    }
    let (mut pieces, mut bytes) = (0u64, 0u64);
    for step in steps {
        let size = size(step, chunk);
        pieces = pieces.saturating_add(size.pieces);
        bytes = bytes.saturating_add(size.bytes);
    }
    if pieces > PIECES || bytes > SAID_BYTES {
        return Err(format!(
            "streams {pieces} pieces of {bytes} bytes, more than {PIECES} or {SAID_BYTES}: \
             use a larger `chunk` or a smaller `repeat`"
        ));
    }
    Ok(())
}

enum Checked {
    Step(Step),
    Error(ScriptedError),
}

fn check_step(step: StepFile) -> Result<Checked, String> {
    let repeat = step.repeat.unwrap_or(1);
    let repeats = step.repeat.is_some();
    let words = |pieces| Words { pieces, repeat };
    match (step.text, step.thinking, step.call, step.delay_ms, step.error) {
        (Some(pieces), None, None, None, None) => Ok(Checked::Step(Step::Text(words(pieces)))),
        (None, Some(pieces), None, None, None) => Ok(Checked::Step(Step::Thinking(words(pieces)))),
        (None, None, Some(call), None, None) if !repeats => Ok(Checked::Step(Step::Call(call))),
        (None, None, None, Some(ms), None) if !repeats => {
            Ok(Checked::Step(Step::Wait(wait("delay_ms", ms)?)))
        }
        (None, None, None, None, Some(error)) if !repeats => Ok(Checked::Error(error)),
        _ => Err("a step is one of `text`, `thinking`, `call`, `delay_ms` and `error`; \
                  only `text` and `thinking` take `repeat`"
            .to_owned()),
    }
}

fn check_texts(step: &Step) -> Result<(), String> {
    match step {
        Step::Text(words) | Step::Thinking(words) => {
            words.pieces.list().iter().try_for_each(|p| template::check(p))
        }
        Step::Call(call) => {
            if call.args.is_some() && call.raw.is_some() {
                return Err(format!("the call of `{}` has both `args` and `raw`: give one", call.tool));
            }
            call.raw.as_deref().map_or(Ok(()), template::check)?;
            call.args.iter().flat_map(serde_json::Map::values).try_for_each(template::check_value)
        }
        Step::Wait(_) => Ok(()),
    }
}

/// What a step streams, before its templates are filled.
struct Size {
    pieces: u64,
    bytes: u64,
}

fn size(step: &Step, chunk: Option<usize>) -> Size {
    match step {
        Step::Text(words) | Step::Thinking(words) => {
            let once = match (&words.pieces, chunk) {
                (Pieces::Cut(pieces), _) => pieces.len(),
                (Pieces::Whole(text), Some(chunk)) => text.chars().count().div_ceil(chunk),
                (Pieces::Whole(_), None) => 1,
            };
            let bytes: u64 = words.pieces.list().iter().map(|piece| piece.len() as u64).sum();
            let times = u64::from(words.repeat);
            Size { pieces: (once as u64).saturating_mul(times), bytes: bytes.saturating_mul(times) }
        }
        Step::Call(_) | Step::Wait(_) => Size { pieces: 1, bytes: 0 },
    }
}

fn wait(key: &str, ms: u64) -> Result<Duration, String> {
    if ms > DELAY_MS {
        return Err(format!("`{key}` is {ms}: the longest wait is {DELAY_MS} ms"));
    }
    Ok(Duration::from_millis(ms))
}
