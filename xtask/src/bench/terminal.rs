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
const KEY_SHOWN_WITHIN: Duration = Duration::from_secs(5);
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

/// How long a letter takes to stand in the composer while words come at full speed.
fn keys_under_a_stream(built: &Built, home: &Home<'_>) -> Result<Figure, String> {
    let words: String = (0..DELTAS).fold(String::new(), |mut all, number| {
        write!(all, "\"w{number} \",").expect("a string takes what is written to it");
        all
    });
    let script = built.script("stream.toml", &format!("[[turn]]\ntext = [{words} \"{LAST}\"]\n"))?;
    home.configure("config.toml", &format!("[model]\nref = \"{script}\"\n"))?;
    let dir = home.work("stream");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let mut command = home.minke(&[]);
    command.current_dir(dir);
    let mut stage = Stage::open(command, SIZE).map_err(|e| e.to_string())?;
    stage.shows("what is to be done?")?;
    stage.press("go\r").map_err(|e| e.to_string())?;
    stage.shows("w1")?;
    let mut samples = Vec::new();
    let mut typed = String::new();
    while !stage.screen().contents().contains(LAST) && typed.len() < 60 {
        typed.push(char::from(b'a' + u8::try_from(typed.len() % 26).unwrap_or_default()));
        let letter = typed.chars().last().unwrap_or('a').to_string();
        let begun = Instant::now();
        stage.press(&letter).map_err(|e| e.to_string())?;
        while !stage.screen().contents().contains(&format!("> {typed}")) {
            if begun.elapsed() > KEY_SHOWN_WITHIN {
                return Err(format!("a key was not shown:\n{}", stage.screen().contents()));
            }
            stage.hear_for(Duration::from_millis(1))?;
        }
        samples.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    drop(stage);
    // A terminal that is gone leaves its pod, as it should.
    must(home.minke(&["stop", "stream"]).stdout(Stdio::null()).stderr(Stdio::null()))?;
    let most = spread(&samples).most;
    Ok(Figure {
        name: format!("a key under {DELTAS} pieces at full speed, until it is shown"),
        unit: "ms",
        samples,
        goal: Goal::AtMost(30.0),
        floor: None,
        beside: vec![("ms at most".into(), most)],
    })
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
