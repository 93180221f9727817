//! The terminal UI on a real terminal: first paint, scrolling a long thread, keys during a stream, idling.
//!
//! Frames are counted in the output by the end of each synchronized update, and the screen is read with a
//! terminal parser; the program itself is not queried. Elsewhere: running the program on a terminal
//! (`terminal_stage`).

use std::fmt::Write as _;
use std::num::NonZero;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::figure::{BenchFigure, BenchGoal, MachineFloor, sample_spread};
use super::home::{BenchBinaries, BenchHome};
use crate::run::run_command;
use crate::terminal_stage::{TerminalSize, TerminalStage};

const SIZE: TerminalSize =
    TerminalSize { rows: NonZero::new(40).unwrap(), columns: NonZero::new(120).unwrap() };
/// A turn with one call creates seven entries.
const TURNS: usize = 1_450;
/// The number of stream pieces during key presses.
const DELTAS: usize = 20_000;
const PAINTS: usize = 10;
/// How long the scroll key is held.
const SCROLL_TIME: Duration = Duration::from_secs(3);
/// The delay between two repetitions of a key: more than sixty per second.
const KEY_REPEAT: Duration = Duration::from_millis(10);
const WATCH_TIME: Duration = Duration::from_secs(10);
/// The number of replies in a row while frames are counted.
const REPLIES: usize = 60;
/// The pause before the first input; meanwhile the program checks for open asks.
const THINKING_TIME: Duration = Duration::from_secs(1);
const FLOOD_TIMEOUT: Duration = Duration::from_secs(120);
/// Pieces at the speed of a real model.
const CALM_PIECES: usize = 200;
const CALM_MS: u64 = 50;
/// The number of streams during key presses.
const STREAMS: usize = 30;
const LAST_LINE: &str = "That was the last line.";

pub(crate) fn bench_terminal(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let home = BenchHome::new(built)?;
    let long = built.write_script("long.toml", &long_thread_script())?;
    home.write_file("file", &"one line of it\n".repeat(TURNS + 10))?;
    let session = home.run_exec_named(&long, "long")?;
    let entries = home.read_log(&session)?.len();
    // Its pod is already running when the terminal attaches.
    let _pod = home.start_pod(&session)?;
    let paint = |wanted: &str, args: &[&str]| -> Result<f64, String> {
        let begun = Instant::now();
        let mut stage =
            TerminalStage::open_terminal(home.minke_command(args), SIZE).map_err(|e| e.to_string())?;
        stage.wait_for_text(wanted)?;
        Ok(begun.elapsed().as_secs_f64() * 1_000.0)
    };
    home.write_config("config.toml", &format!("[model]\nref = \"{long}\"\n"))?;
    let alone = take_samples(PAINTS, || paint("describe a task", &[]))?;
    let attached = take_samples(PAINTS, || paint(LAST_LINE, &["attach", "long"]))?;
    let version = take_samples(PAINTS, || paint("minke", &["--version"]))?;
    let floor =
        || Some(MachineFloor { what: "`minke --version` on the same terminal", samples: version.clone() });
    let figure = |name: &str, unit, samples, goal| BenchFigure {
        name: name.into(),
        unit,
        samples,
        goal,
        floor: None,
        related: Vec::new(),
    };
    let mut figures = vec![
        BenchFigure {
            floor: floor(),
            ..figure("first paint of `minke`", "ms", alone, BenchGoal::AtMost(50.0))
        },
        BenchFigure {
            floor: floor(),
            related: vec![("entries in the thread".into(), entries as f64)],
            ..figure("first paint of a long thread", "ms", attached, BenchGoal::AtMost(100.0))
        },
    ];
    let mut stage = TerminalStage::open_terminal(home.minke_command(&["attach", "long"]), SIZE)
        .map_err(|e| e.to_string())?;
    stage.wait_for_text(LAST_LINE)?;
    let scrolled = measure_scrolling(&mut stage)?;
    figures.push(BenchFigure {
        related: vec![("MiB of proportional memory afterwards".into(), stage.memory_mib()?)],
        ..figure("frames while scrolling a long thread", "a second", scrolled, BenchGoal::AtLeast(60.0))
    });
    stage.press_keys("\u{1b}[1;5F").map_err(|e| e.to_string())?;
    stage.wait_for_text(LAST_LINE)?;
    let before = stage.cpu_seconds()?;
    stage.read_for(WATCH_TIME)?;
    let idle = (stage.cpu_seconds()? - before) / WATCH_TIME.as_secs_f64() * 100.0;
    figures.push(figure("CPU of an idle terminal", "% of one CPU", vec![idle], BenchGoal::AtMost(0.5)));
    drop(stage);
    figures.push(bench_calm_stream(built, &home)?);
    figures.push(bench_stream_frames(built, &home)?);
    figures.push(bench_stream_keys(built, &home)?);
    Ok(figures)
}

fn take_samples(times: usize, mut one: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
    (0..times).map(|_| one()).collect()
}

/// Frames per second while a key is held.
fn measure_scrolling(stage: &mut TerminalStage) -> Result<Vec<f64>, String> {
    let mut frames = Vec::new();
    let begun = Instant::now();
    let (mut second, mut counted) = (begun, stage.frames());
    while begun.elapsed() < SCROLL_TIME {
        stage.press_keys("\u{1b}[1;2A").map_err(|e| e.to_string())?;
        stage.read_for(KEY_REPEAT)?;
        if second.elapsed() >= Duration::from_secs(1) {
            frames.push((stage.frames() - counted) as f64 / second.elapsed().as_secs_f64());
            (second, counted) = (Instant::now(), stage.frames());
        }
    }
    if frames.is_empty() { Err("nothing was scrolled".to_owned()) } else { Ok(frames) }
}

/// A terminal with its own session in which this script has been started.
fn start_asked_terminal(
    name: &str,
    script: &str,
    built: &BenchBinaries,
    home: &BenchHome<'_>,
) -> Result<TerminalStage, String> {
    let script = built.write_script(&format!("{name}.toml"), script)?;
    home.write_config("config.toml", &format!("[model]\nref = \"{script}\"\n"))?;
    let dir = home.work_dir(name);
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let mut command = home.minke_command(&[]);
    command.current_dir(dir);
    let mut stage = TerminalStage::open_terminal(command, SIZE).map_err(|e| e.to_string())?;
    stage.wait_for_text("describe a task")?;
    stage.read_for(THINKING_TIME)?;
    Ok(stage)
}

/// Closes the terminal; its pod must keep running.
fn close_terminal(name: &str, stage: TerminalStage, home: &BenchHome<'_>) -> Result<(), String> {
    drop(stage);
    run_command(home.minke_command(&["stop", name]).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Frames per half second of a run whose replies arrive at full speed.
fn bench_stream_frames(built: &BenchBinaries, home: &BenchHome<'_>) -> Result<BenchFigure, String> {
    // Other text for every hundred pieces, so that no two screens are equal.
    let words = (0..DELTAS / 100).fold(String::new(), |mut all, number| {
        write!(all, "{{ text = \"w{number} \", repeat = 99 }}, {{ text = \"w{number}.\\n\\n\" }},")
            .expect("writing to a string cannot fail");
        all
    });
    let mut script = (1..=REPLIES).fold(String::new(), |mut all, turn| {
        let call = format!("tool = \"Read\", args = {{ file_path = \"file\", offset = {turn}, limit = 1 }}");
        writeln!(all, "[[turn]]\nsteps = [{words} {{ call = {{ {call} }} }}]")
            .expect("writing to a string cannot fail");
        all
    });
    write!(script, "[[turn]]\ntext = \"{LAST_LINE}\"\n").expect("writing to a string cannot fail");
    let mut stage = start_asked_terminal("flood", &script, built, home)?;
    home.write_file("flood/file", &"one line of it\n".repeat(REPLIES + 10))?;
    stage.press_keys("go\r").map_err(|e| e.to_string())?;
    stage.wait_for_screen("words", has_stream_words)?;
    let (begun, mut frames) = (Instant::now(), Vec::new());
    let (mut since, mut counted) = (begun, stage.frames());
    while !stage.screen().contents().contains(LAST_LINE) {
        stage.read_for(Duration::from_millis(5))?;
        if since.elapsed() >= Duration::from_millis(500) {
            frames.push((stage.frames() - counted) as f64 / since.elapsed().as_secs_f64());
            (since, counted) = (Instant::now(), stage.frames());
        }
        if begun.elapsed() > FLOOD_TIMEOUT {
            return Err(format!("the stream did not end:\n{}", stage.screen().contents()));
        }
    }
    if frames.is_empty() {
        return Err("the stream ended within half a second".to_owned());
    }
    let pace = (REPLIES * DELTAS) as f64 / begun.elapsed().as_secs_f64();
    let least = sample_spread(&frames).minimum;
    close_terminal("flood", stage, home)?;
    Ok(BenchFigure {
        name: format!("frames while {REPLIES} replies of {DELTAS} pieces come at full speed"),
        unit: "a second",
        samples: frames,
        goal: BenchGoal::AtLeast(60.0),
        floor: None,
        related: vec![("a second at least".into(), least), ("pieces a second".into(), pace)],
    })
}

/// CPU time of the terminal while text arrives at the speed of a real model.
fn bench_calm_stream(built: &BenchBinaries, home: &BenchHome<'_>) -> Result<BenchFigure, String> {
    let steps = (0..CALM_PIECES).fold(String::new(), |mut all, number| {
        write!(all, "{{ text = \"w{number} \" }}, {{ delay_ms = {CALM_MS} }},")
            .expect("writing to a string cannot fail");
        all
    });
    let script = format!("[[turn]]\nsteps = [{steps} {{ text = \"{LAST_LINE}\" }}]\n");
    let mut stage = start_asked_terminal("calm", &script, built, home)?;
    stage.press_keys("go\r").map_err(|e| e.to_string())?;
    stage.wait_for_text("w1 ")?;
    let (begun, before) = (Instant::now(), stage.cpu_seconds()?);
    stage.wait_for_text(LAST_LINE)?;
    let used = (stage.cpu_seconds()? - before) / begun.elapsed().as_secs_f64() * 100.0;
    close_terminal("calm", stage, home)?;
    Ok(BenchFigure {
        name: format!("CPU of a terminal while a piece comes every {CALM_MS} ms"),
        unit: "% of one CPU",
        samples: vec![used],
        goal: BenchGoal::AtMost(5.0),
        floor: None,
        related: Vec::new(),
    })
}

/// The time until a typed letter appears in the composer while text arrives at full speed. A stream is short,
/// so it is repeated.
fn bench_stream_keys(built: &BenchBinaries, home: &BenchHome<'_>) -> Result<BenchFigure, String> {
    let words: String = (0..DELTAS).fold(String::new(), |mut all, number| {
        write!(all, "\"w{number} \",").expect("writing to a string cannot fail");
        all
    });
    let script = format!("loop = true\n[[turn]]\ntext = [{words} \"The end of {{{{prompt}}}}.\"]\n");
    let mut stage = start_asked_terminal("stream", &script, built, home)?;
    let (mut samples, mut streams) = (Vec::new(), Vec::new());
    for round in 1..=STREAMS {
        let (before, end) = (format!("The end of go{}.", round - 1), format!("The end of go{round}."));
        stage.press_keys(&format!("go{round}\r")).map_err(|e| e.to_string())?;
        let begun = Instant::now();
        // Only words of this stream are on the screen.
        stage.wait_for_screen("words", |screen| has_stream_words(screen) && !screen.contains(&before))?;
        press_keys_until(&end, &mut stage, &mut samples)?;
        streams.push(begun.elapsed().as_secs_f64() * 1_000.0);
        // Clears the typed text: Ctrl-U.
        stage.press_keys("\u{15}").map_err(|e| e.to_string())?;
        stage.wait_for_screen("an empty composer", |screen| !screen.contains("> a"))?;
    }
    close_terminal("stream", stage, home)?;
    let related = vec![
        ("ms at most".into(), sample_spread(&samples).maximum),
        ("keys".into(), samples.len() as f64),
        ("duration of a stream in ms (median)".into(), sample_spread(&streams).median),
    ];
    Ok(BenchFigure {
        name: format!("a key under {DELTAS} pieces at full speed, until it is shown"),
        unit: "ms",
        samples,
        goal: BenchGoal::AtMost(30.0),
        floor: None,
        related,
    })
}

/// Whether words of a stream are visible: a `w` with its number.
fn has_stream_words(screen: &str) -> bool {
    let numbered = |word: &str| {
        word.strip_prefix('w').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    screen.split_whitespace().any(numbered)
}

/// Presses letter after letter during the stream; only letters pressed before its end count.
fn press_keys_until(end: &str, stage: &mut TerminalStage, samples: &mut Vec<f64>) -> Result<(), String> {
    let mut typed = String::new();
    while !stage.screen().contents().contains(end) && typed.len() < 26 {
        typed.push(char::from(b'a' + u8::try_from(typed.len()).unwrap_or_default()));
        let letter = typed.chars().last().unwrap_or('a').to_string();
        let begun = Instant::now();
        stage.press_keys(&letter).map_err(|e| e.to_string())?;
        stage.wait_for_screen("a key", |screen| screen.contains(&format!("> {typed}")))?;
        samples.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    stage.wait_for_text(end)?;
    stage.wait_for_text("idle")
}

/// A script whose run creates ten thousand entries, with all calls different.
fn long_thread_script() -> String {
    let mut script = String::new();
    for turn in 1..=TURNS {
        writeln!(
            script,
            "[[turn]]\ntext = \"Step {turn}: **look** at `line {turn}` of the file, and\\n\\n- say what it is\\n- continue\"\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"file\", offset = {turn}, limit = 1 }}"
        )
        .expect("writing to a string cannot fail");
    }
    write!(script, "[[turn]]\ntext = \"{LAST_LINE}\"\n").expect("writing to a string cannot fail");
    script
}
