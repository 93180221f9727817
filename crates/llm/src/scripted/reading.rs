//! Reading a script: TOML in, checked turns out, errors with file, line and key.
//!
//! Invariant: a script that is accepted plays without surprises: every bound and template was checked here
//! (`a_bad_script_is_refused_with_file_line_and_key`).

use std::time::Duration;

use minke_model::{StopReason, TokenUsage};
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use super::script::{Call, End, Pieces, Script, ScriptedError, Step, Turn, Words};
use super::template;

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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptToml {
    chunk: Option<usize>,
    #[serde(default, rename = "loop")]
    again: bool,
    #[serde(default)]
    turn: Vec<Spanned<TurnToml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnToml {
    when: Option<String>,
    expect: Option<String>,
    thinking: Option<Pieces>,
    text: Option<Pieces>,
    #[serde(default)]
    call: Vec<Call>,
    #[serde(default)]
    steps: Vec<StepToml>,
    delay_ms: Option<u64>,
    pace_ms: Option<u64>,
    chunk: Option<usize>,
    repeat: Option<u32>,
    error: Option<ScriptedError>,
    #[serde(default)]
    cut: bool,
    cut_after: Option<usize>,
    stop: Option<String>,
    usage: Option<UsageToml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepToml {
    thinking: Option<Pieces>,
    text: Option<Pieces>,
    call: Option<Call>,
    delay_ms: Option<u64>,
    error: Option<ScriptedError>,
    repeat: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageToml {
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
        let read: ScriptToml = toml::from_str(text).map_err(|e| match e.span() {
            Some(span) => ScriptError::at(name, text, span.start, suggest(e.message())),
            None => ScriptError::whole(name, &suggest(e.message())),
        })?;
        if read.turn.is_empty() || read.turn.len() > TURNS {
            let problem = format!("has {} turns: write 1 to {TURNS} `[[turn]]` tables", read.turn.len());
            return Err(ScriptError::whole(name, &problem));
        }
        let mut turns = Vec::with_capacity(read.turn.len());
        for (index, turn) in read.turn.into_iter().enumerate() {
            let start = turn.span().start;
            let checked = check_turn(index + 1, turn.into_inner(), read.chunk).map_err(|problem| {
                ScriptError::at(name, text, start, format!("turn {}: {problem}", index + 1))
            })?;
            turns.push(checked);
        }
        Ok(Script { name: name.to_owned(), again: read.again, turns })
    }
}

fn check_turn(number: usize, mut turn: TurnToml, chunk: Option<usize>) -> Result<Turn, String> {
    let chunk = turn.chunk.or(chunk);
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
    let (when, expect, error) = (turn.when, turn.expect, turn.error);
    Ok(Turn { number, when, expect, repeat, error, steps, end, usage, pace, chunk })
}

fn check_numbers(turn: &TurnToml, chunk: Option<usize>, repeat: u32) -> Result<(), String> {
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

fn end_of(turn: &TurnToml, failing: Option<ScriptedError>) -> Result<End, String> {
    match (turn.cut || turn.cut_after.is_some(), &turn.stop, failing) {
        (false, None, Some(error)) => Ok(End::Fail(error)),
        (true, None, None) => Ok(End::Cut(turn.cut_after)),
        (false, stop, None) => Ok(End::Stop(stop.as_deref().map(StopReason::from))),
        _ => Err("ends twice: `cut`, `stop` and an `error` among the steps exclude each other".to_owned()),
    }
}

/// The steps in their order, and the error that ends them.
fn take_steps(turn: &mut TurnToml) -> Result<(Vec<Step>, Option<ScriptedError>), String> {
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

fn check_step(step: StepToml) -> Result<Checked, String> {
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

/// Adds the nearest known key to the reader's own words about an unknown one.
fn suggest(message: &str) -> String {
    let message = message.trim_end();
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (true, Some((unknown, known))) = (message.starts_with("unknown field"), names.split_first()) else {
        return message.to_owned();
    };
    let nearest = known.iter().min_by_key(|name| distance(unknown, name));
    match nearest {
        Some(name) if distance(unknown, name) <= unknown.chars().count().div_ceil(2) => {
            format!("unknown key `{unknown}`: did you mean `{name}`? Known here: {}", known.join(", "))
        }
        _ => format!("unknown key `{unknown}`. Known here: {}", known.join(", ")),
    }
}

/// How many characters must be added, removed or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
