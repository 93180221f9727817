//! The terminal, driven through a real one: first paint, scrolling a long thread, keys under a stream, idling.
//!
//! Frames are counted where they come out, by the end of each synchronized update, and what is shown is read by a
//! terminal's parser: the program is not asked. Elsewhere: the program on its terminal (`stage`).

use std::fmt::Write as _;
use std::num::NonZero;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::figure::{Figure, Floor, Goal, spread};
use super::home::{Built, Home};
use crate::run::must;
use crate::stage::Stage;

const SIZE: (NonZero<u16>, NonZero<u16>) = (NonZero::new(40).unwrap(), NonZero::new(120).unwrap());
/// A turn with one call leaves seven entries.
const TURNS: usize = 1_450;
/// Pieces of the stream that keys are pressed under.
const DELTAS: usize = 20_000;
const PAINTS: usize = 10;
/// How long a scrolling finger stays on the key.
const SCROLLED: Duration = Duration::from_secs(3);
/// Between two repetitions of a key: more than sixty a second.
const REPEAT: Duration = Duration::from_millis(10);
const WATCHED: Duration = Duration::from_secs(10);
/// Replies of so many pieces, one after the other: some seconds of it, under which frames are counted.
const REPLIES: usize = 60;
/// What a person takes before the first word; meanwhile it is looked who asks something anywhere.
const THOUGHT: Duration = Duration::from_secs(1);
const FLOODED_WITHIN: Duration = Duration::from_secs(120);
/// Words as a model says them.
const CALM_PIECES: usize = 200;
const CALM_MS: u64 = 50;
/// Streams that keys are pressed under.
const STREAMS: usize = 30;
const LAST: &str = "That was the last line.";

pub(crate) fn terminal(built: &Built) -> Result<Vec<Figure>, String> {
    let home = Home::new(built)?;
    let long = built.script("long.toml", &long_thread())?;
    home.write("file", &"one line of it\n".repeat(TURNS + 10))?;
    let session = home.exec_named(&long, "long")?;
    let entries = home.log(&session)?.len();
    // Its pod lives already when somebody looks at it.
    let _pod = home.pod(&session)?;
    let paint = |wanted: &str, args: &[&str]| -> Result<f64, String> {
        let begun = Instant::now();
        let mut stage = Stage::open(home.minke(args), SIZE).map_err(|e| e.to_string())?;
        stage.shows(wanted)?;
        Ok(begun.elapsed().as_secs_f64() * 1_000.0)
    };
    home.configure("config.toml", &format!("[model]\nref = \"{long}\"\n"))?;
    let alone = sampled(PAINTS, || paint("what is to be done?", &[]))?;
    let attached = sampled(PAINTS, || paint(LAST, &["attach", "long"]))?;
    let version = sampled(PAINTS, || paint("minke", &["--version"]))?;
    let floor = || Some(Floor { what: "`minke --version` on the same terminal", samples: version.clone() });
    let figure = |name: &str, unit, samples, goal| Figure {
        name: name.into(),
        unit,
        samples,
        goal,
        floor: None,
        beside: Vec::new(),
    };
    let mut figures = vec![
        Figure { floor: floor(), ..figure("first paint of `minke`", "ms", alone, Goal::AtMost(50.0)) },
        Figure {
            floor: floor(),
            beside: vec![("entries in the thread".into(), entries as f64)],
            ..figure("first paint of a long thread", "ms", attached, Goal::AtMost(100.0))
        },
    ];
    let mut stage = Stage::open(home.minke(&["attach", "long"]), SIZE).map_err(|e| e.to_string())?;
    stage.shows(LAST)?;
    let scrolled = scrolled(&mut stage)?;
    figures.push(Figure {
        beside: vec![("MiB of proportional memory afterwards".into(), stage.memory()?)],
        ..figure("frames while scrolling a long thread", "a second", scrolled, Goal::AtLeast(60.0))
    });
    stage.press("\u{1b}[1;5F").map_err(|e| e.to_string())?;
    stage.shows(LAST)?;
    let before = stage.cpu()?;
    stage.hear_for(WATCHED)?;
    let idle = (stage.cpu()? - before) / WATCHED.as_secs_f64() * 100.0;
    figures.push(figure("CPU of an idle terminal", "% of one CPU", vec![idle], Goal::AtMost(0.5)));
    drop(stage);
    figures.push(calm_stream(built, &home)?);
    figures.push(frames_under_a_stream(built, &home)?);
    figures.push(keys_under_a_stream(built, &home)?);
    Ok(figures)
}

fn sampled(times: usize, mut one: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
    (0..times).map(|_| one()).collect()
}

/// Frames in each second that a key was held.
fn scrolled(stage: &mut Stage) -> Result<Vec<f64>, String> {
    let mut frames = Vec::new();
    let begun = Instant::now();
    let (mut second, mut counted) = (begun, stage.frames());
    while begun.elapsed() < SCROLLED {
        stage.press("\u{1b}[1;2A").map_err(|e| e.to_string())?;
        stage.hear_for(REPEAT)?;
        if second.elapsed() >= Duration::from_secs(1) {
            frames.push((stage.frames() - counted) as f64 / second.elapsed().as_secs_f64());
            (second, counted) = (Instant::now(), stage.frames());
        }
    }
    if frames.is_empty() { Err("nothing was scrolled".to_owned()) } else { Ok(frames) }
}

/// A terminal on a session of its own that this script has been asked in.
fn asked(name: &str, script: &str, built: &Built, home: &Home<'_>) -> Result<Stage, String> {
    let script = built.script(&format!("{name}.toml"), script)?;
    home.configure("config.toml", &format!("[model]\nref = \"{script}\"\n"))?;
    let dir = home.work(name);
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let mut command = home.minke(&[]);
    command.current_dir(dir);
    let mut stage = Stage::open(command, SIZE).map_err(|e| e.to_string())?;
    stage.shows("what is to be done?")?;
    stage.hear_for(THOUGHT)?;
    Ok(stage)
}

/// A terminal that is gone leaves its pod, as it should.
fn over(name: &str, stage: Stage, home: &Home<'_>) -> Result<(), String> {
    drop(stage);
    must(home.minke(&["stop", name]).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Frames in each half second of a run whose every reply comes as fast as it can.
fn frames_under_a_stream(built: &Built, home: &Home<'_>) -> Result<Figure, String> {
    // Other words for every hundred pieces, so that no two screens are alike.
    let words = (0..DELTAS / 100).fold(String::new(), |mut all, number| {
        write!(all, "{{ text = \"w{number} \", repeat = 99 }}, {{ text = \"w{number}.\\n\\n\" }},")
            .expect("a string takes what is written to it");
        all
    });
    let mut script = (1..=REPLIES).fold(String::new(), |mut all, turn| {
        let call = format!("tool = \"Read\", args = {{ file_path = \"file\", offset = {turn}, limit = 1 }}");
        writeln!(all, "[[turn]]\nsteps = [{words} {{ call = {{ {call} }} }}]")
            .expect("a string takes what is written to it");
        all
    });
    write!(script, "[[turn]]\ntext = \"{LAST}\"\n").expect("a string takes what is written to it");
    let mut stage = asked("flood", &script, built, home)?;
    home.write("flood/file", &"one line of it\n".repeat(REPLIES + 10))?;
    stage.press("go\r").map_err(|e| e.to_string())?;
    stage.until_screen("words", has_words)?;
    let (begun, mut frames) = (Instant::now(), Vec::new());
    let (mut since, mut counted) = (begun, stage.frames());
    while !stage.screen().contents().contains(LAST) {
        stage.hear_for(Duration::from_millis(5))?;
        if since.elapsed() >= Duration::from_millis(500) {
            frames.push((stage.frames() - counted) as f64 / since.elapsed().as_secs_f64());
            (since, counted) = (Instant::now(), stage.frames());
        }
        if begun.elapsed() > FLOODED_WITHIN {
            return Err(format!("the stream does not end:\n{}", stage.screen().contents()));
        }
    }
    if frames.is_empty() {
        return Err("the stream was over within half a second".to_owned());
    }
    let pace = (REPLIES * DELTAS) as f64 / begun.elapsed().as_secs_f64();
    let least = spread(&frames).least;
    over("flood", stage, home)?;
    Ok(Figure {
        name: format!("frames while {REPLIES} replies of {DELTAS} pieces come at full speed"),
        unit: "a second",
        samples: frames,
        goal: Goal::AtLeast(60.0),
        floor: None,
        beside: vec![("a second at least".into(), least), ("pieces a second".into(), pace)],
    })
}

/// CPU of the terminal while words come as a model says them.
fn calm_stream(built: &Built, home: &Home<'_>) -> Result<Figure, String> {
    let steps = (0..CALM_PIECES).fold(String::new(), |mut all, number| {
        write!(all, "{{ text = \"w{number} \" }}, {{ delay_ms = {CALM_MS} }},")
            .expect("a string takes what is written to it");
        all
    });
    let script = format!("[[turn]]\nsteps = [{steps} {{ text = \"{LAST}\" }}]\n");
    let mut stage = asked("calm", &script, built, home)?;
    stage.press("go\r").map_err(|e| e.to_string())?;
    stage.shows("w1 ")?;
    let (begun, before) = (Instant::now(), stage.cpu()?);
    stage.shows(LAST)?;
    let used = (stage.cpu()? - before) / begun.elapsed().as_secs_f64() * 100.0;
    over("calm", stage, home)?;
    Ok(Figure {
        name: format!("CPU of a terminal while a piece comes every {CALM_MS} ms"),
        unit: "% of one CPU",
        samples: vec![used],
        goal: Goal::AtMost(5.0),
        floor: None,
        beside: Vec::new(),
    })
}

/// How long a letter takes to stand in the composer while words come at full speed. The stream is soon over, so it is
/// asked for again and again.
fn keys_under_a_stream(built: &Built, home: &Home<'_>) -> Result<Figure, String> {
    let words: String = (0..DELTAS).fold(String::new(), |mut all, number| {
        write!(all, "\"w{number} \",").expect("a string takes what is written to it");
        all
    });
    let script = format!("loop = true\n[[turn]]\ntext = [{words} \"The end of {{{{prompt}}}}.\"]\n");
    let mut stage = asked("stream", &script, built, home)?;
    let (mut samples, mut streams) = (Vec::new(), Vec::new());
    for round in 1..=STREAMS {
        let (before, end) = (format!("The end of go{}.", round - 1), format!("The end of go{round}."));
        stage.press(&format!("go{round}\r")).map_err(|e| e.to_string())?;
        let begun = Instant::now();
        // Only words of this stream fill the screen.
        stage.until_screen("words", |screen| has_words(screen) && !screen.contains(&before))?;
        keys_until(&end, &mut stage, &mut samples)?;
        streams.push(begun.elapsed().as_secs_f64() * 1_000.0);
        // What was typed goes: Ctrl-U.
        stage.press("\u{15}").map_err(|e| e.to_string())?;
        stage.until_screen("an empty composer", |screen| !screen.contains("> a"))?;
    }
    over("stream", stage, home)?;
    let beside = vec![
        ("ms at most".into(), spread(&samples).most),
        ("keys".into(), samples.len() as f64),
        ("ms that a stream takes, in the middle".into(), spread(&streams).median),
    ];
    Ok(Figure {
        name: format!("a key under {DELTAS} pieces at full speed, until it is shown"),
        unit: "ms",
        samples,
        goal: Goal::AtMost(30.0),
        floor: None,
        beside,
    })
}

/// Whether the words of a stream are seen: a `w` with its number.
fn has_words(screen: &str) -> bool {
    let numbered = |word: &str| {
        word.strip_prefix('w').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    screen.split_whitespace().any(numbered)
}

/// Letter after letter for as long as the stream runs; only those count that were pressed before its end was seen.
fn keys_until(end: &str, stage: &mut Stage, samples: &mut Vec<f64>) -> Result<(), String> {
    let mut typed = String::new();
    while !stage.screen().contents().contains(end) && typed.len() < 26 {
        typed.push(char::from(b'a' + u8::try_from(typed.len()).unwrap_or_default()));
        let letter = typed.chars().last().unwrap_or('a').to_string();
        let begun = Instant::now();
        stage.press(&letter).map_err(|e| e.to_string())?;
        stage.until_screen("a key", |screen| screen.contains(&format!("> {typed}")))?;
        samples.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    stage.shows(end)?;
    stage.shows("idle")
}

/// A script whose run leaves ten thousand entries, no two calls alike.
fn long_thread() -> String {
    let mut script = String::new();
    for turn in 1..=TURNS {
        writeln!(
            script,
            "[[turn]]\ntext = \"Step {turn}: **look** at `line {turn}` of the file, and\\n\\n- say what it is\\n- go on\"\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"file\", offset = {turn}, limit = 1 }}"
        )
        .expect("a string takes what is written to it");
    }
    write!(script, "[[turn]]\ntext = \"{LAST}\"\n").expect("a string takes what is written to it");
    script
}
