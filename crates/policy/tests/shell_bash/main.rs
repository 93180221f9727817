//! Runs the same lines in a real bash: each command that bash would run must be in the parse result, word by
//! word, or the line must be uncertain.
//!
//! Bash runs nothing here: `data/record.bash` replaces every name by a recorder, and lines use a harmless
//! vocabulary without paths, in a temporary directory. `MINKE_LONG=1` tests a million lines.

#![expect(clippy::disallowed_methods, reason = "the test starts bash and reads environment variables")]

mod generated;
mod programs;
mod wrappers;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use generated::LineGenerator;
use minke_policy::shell::{self, ShellLine, ShellWord};

/// The number of tested lines.
const LINE_COUNT: usize = 20_000;
/// The maximum number of mismatches that are shown.
const MAX_SHOWN: usize = 15;
/// The number of lines that one bash process gets.
const LINES_PER_BATCH: usize = 500;
/// The time limit of one bash process, in seconds.
const TIME_LIMIT: &str = "60";

/// The calls that bash recorded for one line.
#[derive(Debug, Default, Clone)]
struct BashRun {
    calls: Vec<Vec<String>>,
    malformed: bool,
}

fn run_in_bash(lines: &[String], directory: &Path) -> Vec<BashRun> {
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
    // Errors go to a file, because the test reads only one pipe.
    let faults = std::fs::File::create(directory.join("faults")).expect("a file for faults");
    let child = Command::new("timeout")
        .args([
            TIME_LIMIT,
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
    let mut ran = vec![BashRun::default(); lines.len()];
    for record in String::from_utf8_lossy(&output.stdout).lines() {
        let mut fields = record.split('\x1f');
        let id: usize = fields
            .next()
            .and_then(|id| id.parse().ok())
            .unwrap_or_else(|| panic!("a record must begin with its line number: {record:?}"));
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
        // A generated line may wait for itself; the rest of its batch is not tested, and that is counted.
        ran.truncate(seen.saturating_sub(1));
    } else {
        assert_eq!(seen, lines.len(), "bash processed all lines");
    }
    ran
}

/// Returns whether a call matches the words; an unknown word matches any number of words.
fn matches_call(words: &[ShellWord], call: &[String]) -> bool {
    match words.split_first() {
        None => call.is_empty(),
        Some((ShellWord::Known(word), rest)) => call.first() == Some(word) && matches_call(rest, &call[1..]),
        Some((ShellWord::Unknown { .. }, rest)) => {
            (0..=call.len()).any(|taken| matches_call(rest, &call[taken..]))
        }
    }
}

/// Describes a call of bash that the parse result lacks.
fn find_mismatch(read: &ShellLine, ran: &BashRun) -> Option<String> {
    if read.uncertain_reason.is_some() {
        return None;
    }
    let missed =
        ran.calls.iter().find(|call| !read.commands.iter().any(|command| matches_call(&command.words, call)));
    missed.map(|call| format!("bash ran {call:?}, which is not in {:?}", read.command_texts()))
}

/// Returns lines from the feature table that stay inside the directory: without paths, and without wrappers
/// that bypass the recorder.
fn feature_lines() -> Vec<String> {
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

/// The results for some lines.
#[derive(Debug, Default)]
struct TrialResult {
    sure: usize,
    calls: usize,
    wrong: usize,
    malformed: usize,
    /// Lines after one that did not end.
    untried: usize,
    faults: String,
}

fn run_trials(batches: impl Iterator<Item = usize>, seed: u64) -> TrialResult {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trial = TrialResult::default();
    let given = feature_lines();
    for batch in batches {
        let mut generator = LineGenerator::new(seed.wrapping_mul(1_000_003).wrapping_add(batch as u64));
        let generated_lines: Vec<String> =
            (0..LINES_PER_BATCH).map(|_| generator.next_line(&given)).collect();
        let ran = run_in_bash(&generated_lines, directory.path());
        trial.untried += generated_lines.len() - ran.len();
        for (line, ran) in generated_lines.iter().zip(&ran) {
            let read = shell::parse_shell_line(line);
            let sure = read.uncertain_reason.is_none();
            trial.calls += ran.calls.len();
            trial.sure += usize::from(sure);
            if let Some(fault) = find_mismatch(&read, ran) {
                trial.wrong += 1;
                if trial.wrong <= MAX_SHOWN {
                    let _ = writeln!(trial.faults, "{line:?}\n  {fault}");
                }
            }
            // A process that an earlier line left running may print errors during this line, so run the line
            // alone.
            let alone =
                || run_in_bash(std::slice::from_ref(line), directory.path()).iter().any(|ran| ran.malformed);
            if ran.malformed && sure && alone() {
                trial.malformed += 1;
                if trial.malformed <= MAX_SHOWN {
                    let _ = writeln!(trial.faults, "bash rejects a line that is certain: {line:?}");
                }
            }
        }
    }
    trial
}

#[test]
fn what_bash_runs_is_in_the_reading() {
    if Command::new("bash").arg("--version").output().is_err() {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "there is no bash");
        eprintln!("SKIPPED: there is no bash on this machine");
        return;
    }
    let asked = std::env::var("MINKE_LINES").ok().and_then(|lines| lines.parse().ok());
    let lines =
        asked.unwrap_or(if std::env::var_os("MINKE_LONG").is_some() { 1_000_000 } else { LINE_COUNT });
    let seed: u64 = std::env::var("MINKE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    let batches = lines / LINES_PER_BATCH;
    let halves = std::thread::scope(|scope| {
        let running: Vec<_> = (0..2)
            .map(|half| {
                scope.spawn(move || run_trials((0..batches).filter(move |batch| batch % 2 == half), seed))
            })
            .collect();
        running.into_iter().map(|half| half.join().expect("a half ends")).collect::<Vec<TrialResult>>()
    });
    let total = |of: fn(&TrialResult) -> usize| -> usize { halves.iter().map(of).sum() };
    let (sure, calls) = (total(|t| t.sure), total(|t| t.calls));
    let (wrong, malformed) = (total(|t| t.wrong), total(|t| t.malformed));
    let faults: String = halves.iter().map(|half| half.faults.as_str()).collect();
    eprintln!(
        "{lines} lines, {sure} sure, {calls} calls seen by bash, {wrong} missed, {malformed} malformed but sure"
    );
    assert!(wrong == 0 && malformed == 0, "{wrong} wrong, {malformed} malformed:\n{faults}");
    let untried = total(|t| t.untried);
    assert!(untried * 20 <= lines, "{untried} lines were skipped after lines that did not end");
    assert!(sure * 2 > lines, "only {sure} of {lines} lines are certain: the test is too weak");
    assert!(calls > lines, "bash ran only {calls} commands");
}
