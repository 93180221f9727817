//! File tools while another thread swaps directories, files and links: nothing outside is ever read or
//! changed.
//!
//! `MINKE_LONG=1` makes ten million calls, `MINKE_RACE_CALLS` sets the number. The test prints its
//! statistics.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its files has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::Scope;
use minke_tool::{CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation};
use serde_json::json;
use tempfile::TempDir;

const OUTSIDE: &str = "outside content";

struct RaceDirs {
    _dir: TempDir,
    root: PathBuf,
}

impl RaceDirs {
    fn new() -> RaceDirs {
        // In memory if possible, because the test does not measure the disk.
        let memory = Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        let root = dir.path().canonicalize().unwrap();
        for side in ["in", "out"] {
            fs::create_dir_all(root.join(side).join("a/b")).unwrap();
        }
        for name in ["a/b/f", "a/b/g", "a/f", "f"] {
            fs::write(root.join("in").join(name), "inside 0\n").unwrap();
            fs::write(root.join("out").join(name), OUTSIDE).unwrap();
        }
        RaceDirs { _dir: dir, root }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns all files outside with their content.
    fn outside_files(&self) -> BTreeMap<PathBuf, Option<String>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.path_of("out")];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                    found.insert(entry.path(), None);
                } else {
                    found.insert(entry.path(), Some(fs::read_to_string(entry.path()).unwrap()));
                }
            }
        }
        found
    }
}

/// Replaces a directory, its parent, and a file by links to the outside, and reverts this, until `stop` is
/// set.
fn swap_links(root: &Path, stop: &AtomicBool) -> u64 {
    let (inside, outside) = (root.join("in"), root.join("out"));
    let places = ["a", "a/b", "a/b/f", "f", "a/b"];
    let gone = |path: &Path| fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) {
        for (index, name) in places.iter().enumerate() {
            let (place, away) = (inside.join(name), inside.join(format!("away-{index}")));
            if fs::rename(&place, &away).is_err() {
                continue;
            }
            // A Write may recreate the place between these steps; then its file stays.
            if symlink(outside.join(name), &place).is_ok() {
                swaps += 1;
                std::thread::yield_now();
                if fs::read_link(&place).is_ok() {
                    fs::remove_file(&place).unwrap();
                }
            }
            if fs::rename(&away, &place).is_err() {
                // A running Write may add a file to it during the removal.
                while gone(&away).is_err() && away.symlink_metadata().is_ok() {}
            }
        }
    }
    swaps
}

#[derive(Default)]
struct CallTally {
    done: AtomicU64,
    link_refused: AtomicU64,
    other: AtomicU64,
}

impl CallTally {
    fn count_result(&self, result: Result<minke_tool::ToolOutput, ToolError>) {
        match result {
            Ok(output) => {
                let said = format!("{} {}", output.summary, output.content.unwrap_or_default());
                assert!(!said.contains(OUTSIDE), "a file outside was read: {said}");
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(ToolError::ExecutionFailed(text)) if text.contains("leads through a symbolic link") => {
                self.link_refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(ToolError::ExecutionFailed(text)) => {
                assert!(!text.contains(OUTSIDE), "a file outside was read: {text}");
                self.other.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => panic!("{e:?}"),
        }
    }
}

/// The number of concurrent calls.
const MAX_RUNNING_CALLS: u64 = 256;

/// Makes the calls: mostly reads, every fourth a change.
fn make_calls(dirs: &RaceDirs, tools: &[Arc<dyn Tool>], calls: u64, tally: &CallTally) {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(2).build().unwrap();
    let scope = Scope::writable(dirs.path_of("in").to_string_lossy());
    let call =
        ToolInvocation::new("c", ToolContext { cwd: dirs.path_of("in"), scope }, CommandEventSink::discard());
    let tool = |name: &str| tools.iter().find(|tool| tool.spec().name == name).unwrap();
    let (read, write, edit) = (tool("Read"), tool("Write"), tool("Edit"));
    let start = |n: u64| {
        let path = ["a/b/f", "a/b/g", "f", "a/f"][(n / 4) as usize % 4];
        let (tool, arguments) = match n % 8 {
            3 => (
                edit,
                json!({"file_path": path, "old_string": "inside", "new_string": format!("inside {n}")}),
            ),
            7 if n % 16 == 7 => (write, json!({"file_path": path, "content": format!("inside {n}\n")})),
            7 => (write, json!({"file_path": format!("a/b/new-{}", n % 64), "content": "new\n"})),
            _ => (read, json!({"file_path": path})),
        };
        tool.execute(&arguments.to_string(), &call)
    };
    runtime.block_on(async {
        for from in (0..calls).step_by(MAX_RUNNING_CALLS as usize) {
            let running: Vec<_> =
                (from..calls.min(from + MAX_RUNNING_CALLS)).map(|n| tokio::spawn(start(n))).collect();
            for running in running {
                tally.count_result(running.await.unwrap());
            }
        }
    });
}

#[test]
fn no_swap_leads_outside() {
    let calls: u64 = match std::env::var("MINKE_RACE_CALLS") {
        Ok(calls) => calls.parse().unwrap(),
        Err(_) if std::env::var_os("MINKE_LONG").is_some() => 10_000_000,
        Err(_) => 1_000_000,
    };
    let dirs = RaceDirs::new();
    let before = dirs.outside_files();
    let config = FilesConfig {
        scope: Scope::writable(dirs.path_of("in").to_string_lossy()),
        ..FilesConfig::default()
    };
    let tools = minke_tools::file_tools(&Arc::new(ScopedFiles::new(config).unwrap()));
    let (tally, stop) = (CallTally::default(), AtomicBool::new(false));
    let start = std::time::Instant::now();
    let swaps = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| swap_links(&dirs.root, &stop));
        let caller = scope.spawn(|| make_calls(&dirs, &tools, calls, &tally));
        let ended = caller.join();
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
        swapper.join().unwrap()
    });
    let [done, led_outside, other] =
        [&tally.done, &tally.link_refused, &tally.other].map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{calls} calls against {swaps} swaps in {:?}: {done} succeeded, {led_outside} rejected a link, {other} failed otherwise",
        start.elapsed()
    );
    assert_eq!(done + led_outside + other, calls);
    assert!(dirs.outside_files() == before, "a file outside has changed: {:?}", dirs.outside_files());
    // The test is meaningful only if swaps and calls overlapped.
    assert!(swaps > calls / 1_000 && done > 0 && led_outside > 0, "{swaps} swaps, {done}, {led_outside}");
}
