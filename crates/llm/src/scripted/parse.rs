//! Parses a script from TOML or JSON and checks it. Errors name file, line and key.
//!
//! Invariant: an accepted script plays without errors: every limit and template was checked here
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

use super::script::{
    Script, ScriptCall, ScriptStep, ScriptText, ScriptTurn, ScriptedError, TextPieces, TurnEnd, turn_position,
};
use super::template;
use crate::suggest::with_suggestion;

/// The largest script. A page of turns has a few KiB.
pub(crate) const MAX_SCRIPT_BYTES: u64 = 4 * 1024 * 1024;
/// The most turns of a script, not counting repeats.
const MAX_TURNS: usize = 10_000;
/// The most pieces of one turn. Each is in memory while it plays.
const MAX_PIECES: u64 = 1_000_000;
/// The most output bytes of one turn.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;
/// The most repeats of a turn.
const MAX_REPEATS: u32 = 1_000_000;
/// The most failed attempts of one request.
const MAX_FAILED_ATTEMPTS: u32 = 1_000;
/// The longest delay inside a turn.
const MAX_DELAY_MS: u64 = 10 * 60 * 1_000;

/// An error in a script.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the script {place}: {problem}")]
pub struct ScriptError {
    /// File and line, if known.
    place: String,
    problem: String,
}

impl ScriptError {
    pub(crate) fn for_file(name: &str, problem: &str) -> ScriptError {
        ScriptError { place: name.to_owned(), problem: problem.to_owned() }
    }

    fn at_byte(name: &str, text: &str, byte: usize, problem: String) -> ScriptError {
        let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        ScriptError { place: format!("{name}, line {line}"), problem }
    }

    /// Converts a JSON error in the value that starts at `byte`.
    fn at_json_error(name: &str, text: &str, byte: usize, e: &serde_json::Error) -> ScriptError {
        let words = e.to_string();
        let place = format!(" at line {} column {}", e.line(), e.column());
        let problem = with_suggestion(words.strip_suffix(&place).unwrap_or(&words));
        let lines_before = text.as_bytes().iter().take(byte).filter(|b| **b == b'\n').count();
        ScriptError { place: format!("{name}, line {}", lines_before + e.line()), problem }
    }
}

/// The file. `T` is a turn with its position.
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

/// A turn and the byte offset of its start.
struct TurnAtByte {
    start: usize,
    turn: TurnFile,
}

impl<T> ScriptFile<T> {
    /// Converts all turns with `change`.
    fn map_turns<U, E>(self, change: impl Fn(T) -> Result<U, E>) -> Result<ScriptFile<U>, E> {
        let all = |turns: Vec<T>| turns.into_iter().map(&change).collect::<Result<Vec<U>, E>>();
        let pod = self.pod.into_iter().map(|(name, pod)| Ok((name, PodFile { turn: all(pod.turn)? })));
        let pod = pod.collect::<Result<_, E>>()?;
        Ok(ScriptFile { chunk: self.chunk, again: self.again, turn: all(self.turn)?, pod })
    }
}

/// The purpose of the requests that a turn answers.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptPurpose {
    #[default]
    Turn,
    Compaction,
    Title,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnFile {
    #[serde(default)]
    purpose: ScriptPurpose,
    when: Option<String>,
    expect: Option<String>,
    thinking: Option<TextPieces>,
    text: Option<TextPieces>,
    #[serde(default)]
    call: Vec<ScriptCall>,
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
    thinking: Option<TextPieces>,
    text: Option<TextPieces>,
    call: Option<ScriptCall>,
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
    pub(crate) fn parse_script(name: &str, text: &str) -> Result<Script, ScriptError> {
        if text.len() as u64 > MAX_SCRIPT_BYTES {
            let problem =
                format!("is longer than {MAX_SCRIPT_BYTES} bytes: use `repeat` instead of long lists");
            return Err(ScriptError::for_file(name, &problem));
        }
        // No TOML document starts with a brace.
        let json = name.ends_with(".json") || text.trim_start().starts_with('{');
        let read = if json { read_json(name, text) } else { read_toml(name, text) }?;
        let count = read.turn.len() + read.pod.values().map(|pod| pod.turn.len()).sum::<usize>();
        if count == 0 || count > MAX_TURNS {
            let problem = format!("has {count} turns: write 1 to {MAX_TURNS} `[[turn]]` tables");
            return Err(ScriptError::for_file(name, &problem));
        }
        let check = |pod: Option<Arc<str>>, turns: Vec<TurnAtByte>| {
            let checked = turns.into_iter().enumerate().map(|(index, TurnAtByte { start, turn })| {
                check_turn(TurnPosition { number: index + 1, pod: pod.clone(), chunk: read.chunk }, turn)
                    .map_err(|problem| ScriptError::at_byte(name, text, start, problem))
            });
            checked.collect::<Result<Vec<ScriptTurn>, ScriptError>>()
        };
        let turns = check(None, read.turn)?;
        let mut pods = BTreeMap::new();
        for (pod, PodFile { turn }) in read.pod {
            if pod.parse::<PodName>().is_err() {
                let problem = format!("`pod.{pod}`: no pod can have this name; use a-z, 0-9 and `-`");
                return Err(ScriptError::for_file(name, &problem));
            }
            let turns = check(Some(pod.as_str().into()), turn)?;
            pods.insert(pod, turns);
        }
        Ok(Script { name: name.to_owned(), repeats: read.again, turns, pods })
    }
}

fn read_toml(name: &str, text: &str) -> Result<ScriptFile<TurnAtByte>, ScriptError> {
    let read: ScriptFile<Spanned<TurnFile>> = toml::from_str(text).map_err(|e| match e.span() {
        Some(span) => ScriptError::at_byte(name, text, span.start, with_suggestion(e.message())),
        None => ScriptError::for_file(name, &with_suggestion(e.message())),
    })?;
    read.map_turns(|turn| Ok(TurnAtByte { start: turn.span().start, turn: turn.into_inner() }))
}

fn read_json(name: &str, text: &str) -> Result<ScriptFile<TurnAtByte>, ScriptError> {
    let read: ScriptFile<&RawValue> =
        serde_json::from_str(text).map_err(|e| ScriptError::at_json_error(name, text, 0, &e))?;
    read.map_turns(|raw| {
        // The raw value is a slice of the text, so its offset is the difference of the pointers.
        let start = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let turn =
            serde_json::from_str(raw.get()).map_err(|e| ScriptError::at_json_error(name, text, start, &e))?;
        Ok(TurnAtByte { start, turn })
    })
}

/// The position of a turn and the settings common to all turns.
struct TurnPosition {
    number: usize,
    pod: Option<Arc<str>>,
    chunk: Option<usize>,
}

/// Checks and converts a turn. The error names the turn.
fn check_turn(spot: TurnPosition, turn: TurnFile) -> Result<ScriptTurn, String> {
    let place = turn_position(spot.number, spot.pod.as_deref());
    build_turn(spot, turn).map_err(|problem| format!("{place}: {problem}"))
}

fn build_turn(spot: TurnPosition, mut turn: TurnFile) -> Result<ScriptTurn, String> {
    let chunk = turn.chunk.or(spot.chunk);
    let repeat = turn.repeat.unwrap_or(1);
    check_numbers(&turn, chunk, repeat)?;
    let pace = wait_duration("pace_ms", turn.pace_ms.unwrap_or(0))?;
    let (steps, failing) = take_steps(&mut turn)?;
    let end = turn_end(&turn, failing)?;
    check_steps(&steps, &end, chunk)?;
    let silent = steps.iter().all(|step| matches!(step, ScriptStep::Wait(_)));
    if silent && turn.error.is_none() && end == TurnEnd::Stop(None) {
        return Err("says nothing: give it `text`, `thinking`, `call`, `steps`, `error` or `cut`".to_owned());
    }
    let usage = turn.usage.map(|u| TokenUsage {
        input: u.input,
        output: u.output,
        cache_read: u.cache_read,
        cache_write: u.cache_write,
        // The price of `scripted` is 0 unless the script sets one.
        cost_usd: Some(u.cost_usd.unwrap_or(0.0)),
    });
    let purpose = match turn.purpose {
        ScriptPurpose::Turn => Purpose::Turn,
        ScriptPurpose::Compaction => Purpose::Compaction,
        ScriptPurpose::Title => Purpose::Title,
    };
    let TurnPosition { number, pod, .. } = spot;
    let (when, expect, error) = (turn.when, turn.expect, turn.error);
    Ok(ScriptTurn { number, pod, purpose, when, expect, repeat, error, steps, end, usage, pace, chunk })
}

fn check_numbers(turn: &TurnFile, chunk: Option<usize>, repeat: u32) -> Result<(), String> {
    if chunk == Some(0) {
        return Err("`chunk` is 0: set the number of characters per delta".to_owned());
    }
    if !(1..=MAX_REPEATS).contains(&repeat) {
        return Err(format!("`repeat` is {repeat}: it must be 1 to {MAX_REPEATS}"));
    }
    match &turn.error {
        Some(error) if !(1..=MAX_FAILED_ATTEMPTS).contains(&error.times) => {
            Err(format!("`error.times` is {}: it must be 1 to {MAX_FAILED_ATTEMPTS}", error.times))
        }
        _ => Ok(()),
    }
}

fn turn_end(turn: &TurnFile, failing: Option<ScriptedError>) -> Result<TurnEnd, String> {
    match (turn.cut || turn.cut_after.is_some(), &turn.stop, failing) {
        (false, None, Some(error)) => Ok(TurnEnd::Fail(error)),
        (true, None, None) => Ok(TurnEnd::Interrupt(turn.cut_after)),
        (false, stop, None) => Ok(TurnEnd::Stop(stop.as_deref().map(StopReason::from))),
        _ => Err("ends twice: `cut`, `stop` and an `error` among the steps exclude each other".to_owned()),
    }
}

/// Converts the steps in order, and the error that ends them.
fn take_steps(turn: &mut TurnFile) -> Result<(Vec<ScriptStep>, Option<ScriptedError>), String> {
    let plain = turn.thinking.is_some() || turn.text.is_some() || !turn.call.is_empty();
    if plain && !turn.steps.is_empty() {
        return Err("`steps` replaces `thinking`, `text` and `call`: move them into it".to_owned());
    }
    let mut steps = Vec::new();
    if let Some(delay) = turn.delay_ms {
        steps.push(ScriptStep::Wait(wait_duration("delay_ms", delay)?));
    }
    steps.extend(turn.thinking.take().map(|pieces| ScriptStep::Thinking(ScriptText { pieces, repeat: 1 })));
    steps.extend(turn.text.take().map(|pieces| ScriptStep::Text(ScriptText { pieces, repeat: 1 })));
    steps.extend(turn.call.drain(..).map(ScriptStep::Call));
    let mut failing = None;
    for step in turn.steps.drain(..) {
        if failing.is_some() {
            return Err("continues after the `error` among its steps: make that the last one".to_owned());
        }
        match check_step(step)? {
            CheckedStep::Step(step) => steps.push(step),
            CheckedStep::Error(error) => failing = Some(error),
        }
    }
    Ok((steps, failing))
}

fn check_steps(steps: &[ScriptStep], end: &TurnEnd, chunk: Option<usize>) -> Result<(), String> {
    steps.iter().try_for_each(check_texts)?;
    let silent = steps.iter().all(|step| matches!(step, ScriptStep::Wait(_)));
    if matches!(end, TurnEnd::Interrupt(Some(_))) && silent {
        return Err("`cut_after` needs a text, thinking or call to cut".to_owned());
    }
    let (mut pieces, mut bytes) = (0u64, 0u64);
    for step in steps {
        let size = stream_size(step, chunk);
        pieces = pieces.saturating_add(size.pieces);
        bytes = bytes.saturating_add(size.bytes);
    }
    if pieces > MAX_PIECES || bytes > MAX_OUTPUT_BYTES {
        return Err(format!(
            "streams {pieces} pieces of {bytes} bytes, more than {MAX_PIECES} or {MAX_OUTPUT_BYTES}: \
             use a larger `chunk` or a smaller `repeat`"
        ));
    }
    Ok(())
}

enum CheckedStep {
    Step(ScriptStep),
    Error(ScriptedError),
}

fn check_step(step: StepFile) -> Result<CheckedStep, String> {
    let repeat = step.repeat.unwrap_or(1);
    let repeats = step.repeat.is_some();
    let words = |pieces| ScriptText { pieces, repeat };
    match (step.text, step.thinking, step.call, step.delay_ms, step.error) {
        (Some(pieces), None, None, None, None) => Ok(CheckedStep::Step(ScriptStep::Text(words(pieces)))),
        (None, Some(pieces), None, None, None) => Ok(CheckedStep::Step(ScriptStep::Thinking(words(pieces)))),
        (None, None, Some(call), None, None) if !repeats => Ok(CheckedStep::Step(ScriptStep::Call(call))),
        (None, None, None, Some(ms), None) if !repeats => {
            Ok(CheckedStep::Step(ScriptStep::Wait(wait_duration("delay_ms", ms)?)))
        }
        (None, None, None, None, Some(error)) if !repeats => Ok(CheckedStep::Error(error)),
        _ => Err("a step is one of `text`, `thinking`, `call`, `delay_ms` and `error`; \
                  only `text` and `thinking` take `repeat`"
            .to_owned()),
    }
}

fn check_texts(step: &ScriptStep) -> Result<(), String> {
    match step {
        ScriptStep::Text(words) | ScriptStep::Thinking(words) => {
            words.pieces.to_slice().iter().try_for_each(|p| template::check_names(p))
        }
        ScriptStep::Call(call) => {
            if call.args.is_some() && call.raw.is_some() {
                return Err(format!("the call of `{}` has both `args` and `raw`: use one", call.tool));
            }
            call.raw.as_deref().map_or(Ok(()), template::check_names)?;
            call.args.iter().flat_map(serde_json::Map::values).try_for_each(template::check_json_names)
        }
        ScriptStep::Wait(_) => Ok(()),
    }
}

/// The output size of a step before its templates are filled.
struct StreamSize {
    pieces: u64,
    bytes: u64,
}

fn stream_size(step: &ScriptStep, chunk: Option<usize>) -> StreamSize {
    match step {
        ScriptStep::Text(words) | ScriptStep::Thinking(words) => {
            let once = match (&words.pieces, chunk) {
                (TextPieces::Cut(pieces), _) => pieces.len(),
                (TextPieces::Whole(text), Some(chunk)) => text.chars().count().div_ceil(chunk),
                (TextPieces::Whole(_), None) => 1,
            };
            let bytes: u64 = words.pieces.to_slice().iter().map(|piece| piece.len() as u64).sum();
            let times = u64::from(words.repeat);
            StreamSize { pieces: (once as u64).saturating_mul(times), bytes: bytes.saturating_mul(times) }
        }
        ScriptStep::Call(_) | ScriptStep::Wait(_) => StreamSize { pieces: 1, bytes: 0 },
    }
}

fn wait_duration(key: &str, ms: u64) -> Result<Duration, String> {
    if ms > MAX_DELAY_MS {
        return Err(format!("`{key}` is {ms}: the longest wait is {MAX_DELAY_MS} ms"));
    }
    Ok(Duration::from_millis(ms))
}
