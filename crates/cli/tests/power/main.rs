//! Power cuts of the real program: each on a fresh ext4 image behind a loop device, at a random moment of a
//! run. Afterwards all printed results are on the disk, the session continues, and no command runs twice.
//!
//! Here: the number of cuts, and the requirements. Elsewhere: one cut (`cut.sh`). A control run, with every
//! sync made a no-op, must lose results: this proves that the test detects a loss. Mounting needs root and a
//! loop device; without them the test prints a message and ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Cuts of an ordinary run; `MINKE_POWER_CUTS` sets more.
const CUT_COUNT: u64 = 20;
/// Cuts of the control run.
const CONTROL_CUTS: u64 = 4;
/// Calls of a run.
const CALL_COUNT: usize = 12;
/// Earliest cut, and the time span of the others.
const FIRST_CUT_MS: u64 = 15;
const CUT_SPAN_MS: u64 = 600;

struct PowerBench {
    dir: tempfile::TempDir,
}

/// Result of one cut.
#[derive(Debug, Default)]
struct PowerCut {
    shown: usize,
    lost: Vec<String>,
    /// The session was printed to the user, and is lost.
    session_lost: bool,
    text: String,
}

fn run_ok(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

impl PowerBench {
    /// `None` where mounting is not possible.
    fn new() -> Option<PowerBench> {
        let bench = PowerBench { dir: tempfile::tempdir().unwrap() };
        let template = bench.file_path("template");
        std::fs::File::create(&template).unwrap().set_len(16 * 1024 * 1024).unwrap();
        let mnt = bench.file_path("tried");
        std::fs::create_dir(&mnt).unwrap();
        let try_it = "mount -t ext4 -o loop \"$1\" \"$2\" && umount \"$2\"";
        let can = run_ok(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&template))
            && run_ok(
                Command::new("unshare").args(["--mount", "sh", "-c", try_it, "sh"]).arg(&template).arg(&mnt),
            );
        if !can {
            eprintln!("skipped: cannot mount an ext4 image here (root and a loop device are needed)");
            return None;
        }
        assert!(run_ok(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&template)), "a fresh image");
        let mut script = String::new();
        for call in 0..CALL_COUNT {
            script.push_str(&format!(
                "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"echo {call} >> ran\" }}\n"
            ));
        }
        script.push_str("[[turn]]\nrepeat = 3\ntext = \"done\"\n");
        std::fs::write(bench.file_path("s.toml"), script).unwrap();
        Some(bench)
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Cuts once, `delay` milliseconds after the start.
    fn cut_power(&self, number: u64, delay: u64, preload: Option<&Path>) -> PowerCut {
        let dir = self.file_path(&format!("cut-{number}"));
        std::fs::create_dir(&dir).unwrap();
        let (from, to) = (self.file_path("template"), dir.join("disk"));
        assert!(run_ok(Command::new("cp").arg("--sparse=always").arg(from).arg(to)));
        std::fs::copy(self.file_path("s.toml"), dir.join("s.toml")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/cut.sh");
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash"]).arg(script).arg(&dir).arg(format!(
            "{}.{:03}",
            delay / 1_000,
            delay % 1_000
        ));
        command.arg(env!("CARGO_BIN_EXE_minke")).args(preload).stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = String::from_utf8_lossy(&stdout).into_owned();
        let of = |word: &str| -> Vec<&str> {
            text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
        };
        let said = format!("cut {number} after {delay} ms: {text}{}", String::from_utf8_lossy(&stderr));
        assert!(status.success() && text.ends_with("end\n"), "the harness failed: {said}");
        let (shown, kept) = (of("shown"), of("kept"));
        let lost = shown.iter().filter(|call| !kept.contains(call)).map(ToString::to_string).collect();
        let session_lost = of("started") == ["1"] && of("session") == ["0"];
        if preload.is_none() {
            assert_eq!(of("verify"), ["0"], "{said}");
            assert!(of("twice").is_empty(), "a call has run twice: {said}");
            assert!(of("session") == ["0"] || of("resume") == ["0"], "it does not continue: {said}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        PowerCut { shown: shown.len(), lost, session_lost, text: said }
    }
}

/// Returns a delay that differs between cuts and is fixed for a number.
fn cut_delay(number: u64) -> u64 {
    FIRST_CUT_MS + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % CUT_SPAN_MS
}

#[test]
fn no_power_cut_loses_what_was_shown() {
    let Some(bench) = PowerBench::new() else { return };
    let asked = std::env::var("MINKE_POWER_CUTS").ok().and_then(|text| text.parse().ok());
    let (cuts, started) = (asked.unwrap_or(CUT_COUNT), std::time::Instant::now());
    let (mut shown, mut before) = (0, 0);
    for number in 0..cuts {
        let cut = bench.cut_power(number, cut_delay(number), None);
        assert!(cut.lost.is_empty() && !cut.session_lost, "lost {:?}: {}", cut.lost, cut.text);
        shown += cut.shown;
        before += usize::from(cut.text.contains("started 0"));
    }
    let seconds = started.elapsed().as_secs();
    eprintln!(
        "{cuts} power cuts, {shown} shown results, 0 lost, {before} before a session was printed, {seconds} s"
    );
    assert!(shown > 0, "no cut came after a result: the runs take longer than {CUT_SPAN_MS} ms here");
}

#[test]
fn without_syncs_power_cuts_lose_what_was_shown() {
    let Some(bench) = PowerBench::new() else { return };
    let library = bench.file_path("nosync.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/shim/nosync.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let cuts: Vec<PowerCut> = (0..CONTROL_CUTS)
        .map(|number| bench.cut_power(number, FIRST_CUT_MS + CUT_SPAN_MS, Some(&library)))
        .collect();
    let lost = cuts.iter().filter(|cut| cut.session_lost || !cut.lost.is_empty()).count();
    eprintln!("{lost} of {CONTROL_CUTS} power cuts without syncs lost data");
    assert!(lost > 0, "this test would not detect a loss: {cuts:?}");
}
