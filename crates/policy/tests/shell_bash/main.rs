//! The same lines given to a real bash: what it would run is in the reading, word by word, or the reading is unsure.
//!
//! Bash runs nothing here: `data/record.bash` puts a recorder in the place of every name, lines are made of a harmless
//! vocabulary without any path, in a directory that is thrown away. `MINKE_LONG=1` tries a million lines.

#![expect(clippy::disallowed_methods, reason = "a test may start bash and look at its surroundings")]

mod made;
mod programs;
mod wrappers;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use made::Maker;
use minke_policy::shell::{self, Line, Word};

/// How many lines are tried.
const LINES: usize = 20_000;
/// How many faults are shown.
const SHOWN: usize = 15;
/// How many a bash gets at once.
const BATCH: usize = 500;
/// How long a bash may take for them.
const SECONDS: &str = "60";

/// What bash did with one line.
#[derive(Debug, Default, Clone)]
struct Ran {
    calls: Vec<Vec<String>>,
    malformed: bool,
}

fn bash(lines: &[String], directory: &Path) -> Vec<Ran> {
    let mut text = String::new();
    for line in lines {
        text.push_str(line);
        text.push('\0');
    }
    let input = directory.join("lines");
    std::fs::write(&input, text).expect("the lines are written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/record.bash");
    let work = directory.join("work");
    std::fs::create_dir_all(&work).expect("the directory is made");
    // Faults go through a file: nobody reads two pipes at once here.
    let faults = std::fs::File::create(directory.join("faults")).expect("a file for faults");
    let child = Command::new("timeout")
        .args([
            SECONDS,
            "bash",
            "--norc",
            "--noprofile",
            "-c",
            "exec 9>&1 3<\"$1\" >/dev/null; . \"$2\"",
            "record",
        ])
        .args([&input, &script])
        .current_dir(&work)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(faults)
        .spawn()
        .expect("bash starts");
    let output = child.wait_with_output().expect("bash ends");
    let hung = output.status.code() == Some(124);
    let mut ran = vec![Ran::default(); lines.len()];
    for record in String::from_utf8_lossy(&output.stdout).lines() {
        let mut fields = record.split('\x1f');
        let id: usize = fields
            .next()
            .and_then(|id| id.parse().ok())
            .unwrap_or_else(|| panic!("a record begins with its line: {record:?}"));
        ran[id - 1].calls.push(fields.map(|field| field.replace('\x1e', "\n")).collect());
    }
    let faults = std::fs::read(directory.join("faults")).expect("faults can be read");
    let mut seen = 0;
    let mut id = 0;
    for fault in String::from_utf8_lossy(&faults).lines() {
        if let Some(next) = fault.strip_prefix('@').and_then(|id| id.parse::<usize>().ok()) {
            id = next;
            seen = seen.max(id);
        } else if fault.contains("unexpected EOF")
            || (fault.contains("syntax error") && !fault.contains("error token"))
        {
            ran[id - 1].malformed = true;
        }
    }
    if hung {
        // A made-up line may wait for itself; what stands behind it in its batch was not tried, and that is counted.
        ran.truncate(seen.saturating_sub(1));
    } else {
        assert_eq!(seen, lines.len(), "bash went through all lines");
    }
    ran
}

/// Whether a call is what the words say; an unknown word stands for any number of words.
fn fits(words: &[Word], call: &[String]) -> bool {
    match words.split_first() {
        None => call.is_empty(),
        Some((Word::Known(word), rest)) => call.first() == Some(word) && fits(rest, &call[1..]),
        Some((Word::Unknown { .. }, rest)) => (0..=call.len()).any(|taken| fits(rest, &call[taken..])),
    }
}

/// What is wrong with a reading, given what bash did.
fn fault(read: &Line, ran: &Ran) -> Option<String> {
    if read.unsure.is_some() {
        return None;
    }
    let missed =
        ran.calls.iter().find(|call| !read.commands.iter().any(|command| fits(&command.words, call)));
    missed.map(|call| format!("bash ran {call:?}, which is not in {:?}", read.shown()))
}

/// Lines of the table of features that stay inside the directory: no paths, no wrappers that only bash knows the
/// recorder's way.
fn given() -> Vec<String> {
    let mut feature = "";
    let mut lines = Vec::new();
    for text in include_str!("../data/shell-features.txt").lines() {
        if let Some(name) = text.strip_prefix("## ") {
            feature = name;
        } else if !text.starts_with("  ")
            && !text.contains(['/', '~'])
            && !text.contains("\\u")
            && !text.starts_with("select")
            && !["wrappers", "xargs", "shells", "git", "inline", "unreadable"]
                .iter()
                .any(|other| feature.starts_with(other))
        {
            lines.push(text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\"));
        }
    }
    assert!(lines.len() > 200, "only {} lines stay inside", lines.len());
    lines
}

/// What came of some lines.
#[derive(Debug, Default)]
struct Tried {
    sure: usize,
    calls: usize,
    wrong: usize,
    malformed: usize,
    /// Lines behind one that did not end.
    untried: usize,
    faults: String,
}

fn tried(batches: impl Iterator<Item = usize>, seed: u64) -> Tried {
    let directory = tempfile::tempdir().expect("a directory to throw away");
    let mut tried = Tried::default();
    let given = given();
    for batch in batches {
        let mut maker = Maker::new(seed.wrapping_mul(1_000_003).wrapping_add(batch as u64));
        let made: Vec<String> = (0..BATCH).map(|_| maker.line(&given)).collect();
        let ran = bash(&made, directory.path());
        tried.untried += made.len() - ran.len();
        for (line, ran) in made.iter().zip(&ran) {
            let read = shell::read(line);
            let sure = read.unsure.is_none();
            tried.calls += ran.calls.len();
            tried.sure += usize::from(sure);
            if let Some(fault) = fault(&read, ran) {
                tried.wrong += 1;
                if tried.wrong <= SHOWN {
                    let _ = writeln!(tried.faults, "{line:?}\n  {fault}");
                }
            }
            // What an earlier line left running may complain while this one has its turn: alone, it has nobody's faults.
            let alone = || bash(std::slice::from_ref(line), directory.path()).iter().any(|ran| ran.malformed);
            if ran.malformed && sure && alone() {
                tried.malformed += 1;
                if tried.malformed <= SHOWN {
                    let _ = writeln!(tried.faults, "malformed for bash, yet sure: {line:?}");
                }
            }
        }
    }
    tried
}

#[test]
fn what_bash_runs_is_in_the_reading() {
    if Command::new("bash").arg("--version").output().is_err() {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "there is no bash");
        eprintln!("SKIPPED: there is no bash on this machine");
        return;
    }
    let asked = std::env::var("MINKE_LINES").ok().and_then(|lines| lines.parse().ok());
    let lines = asked.unwrap_or(if std::env::var_os("MINKE_LONG").is_some() { 1_000_000 } else { LINES });
    let seed: u64 = std::env::var("MINKE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    let batches = lines / BATCH;
    let halves = std::thread::scope(|scope| {
        let running: Vec<_> = (0..2)
            .map(|half| scope.spawn(move || tried((0..batches).filter(move |batch| batch % 2 == half), seed)))
            .collect();
        running.into_iter().map(|half| half.join().expect("a half ends")).collect::<Vec<Tried>>()
    });
    let total = |of: fn(&Tried) -> usize| -> usize { halves.iter().map(of).sum() };
    let (sure, calls) = (total(|t| t.sure), total(|t| t.calls));
    let (wrong, malformed) = (total(|t| t.wrong), total(|t| t.malformed));
    let faults: String = halves.iter().map(|half| half.faults.as_str()).collect();
    eprintln!(
        "{lines} lines, {sure} sure, {calls} calls seen by bash, {wrong} missed, {malformed} malformed but sure"
    );
    assert!(wrong == 0 && malformed == 0, "{wrong} wrong, {malformed} malformed:\n{faults}");
    let untried = total(|t| t.untried);
    assert!(untried * 20 <= lines, "{untried} lines stand behind some that did not end");
    assert!(sure * 2 > lines, "only {sure} of {lines} lines are sure: the test says little");
    assert!(calls > lines, "bash ran only {calls} commands");
}
