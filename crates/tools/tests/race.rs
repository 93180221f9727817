//! File tools against somebody who swaps directories, files and links as fast as it can: nothing outside is ever read or
//! changed.
//!
//! `MINKE_LONG=1` makes ten million calls, `MINKE_RACE_CALLS` as many as it says. What was called and what came of it is printed.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its world has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use minke_files::{Files, FilesConfig};
use minke_record::Scope;
use minke_tool::{Call, News, Place, Tool, ToolError};
use serde_json::json;
use tempfile::TempDir;

const OUTSIDE: &str = "what lies outside";

struct House {
    _dir: TempDir,
    root: PathBuf,
}

impl House {
    fn new() -> House {
        // In memory where that is possible: it is the race that is tried, not the disk.
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
        House { _dir: dir, root }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Everything outside, with its content.
    fn outside(&self) -> BTreeMap<PathBuf, Option<String>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.at("out")];
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

/// Puts links to the outside in the place of a directory, of one above it, and of a file, and takes them away again.
fn swap(root: &Path, stop: &AtomicBool) -> u64 {
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
            // A Write may be quicker than either step and make the place anew; then that is what stays.
            if symlink(outside.join(name), &place).is_ok() {
                swaps += 1;
                std::thread::yield_now();
                if fs::read_link(&place).is_ok() {
                    fs::remove_file(&place).unwrap();
                }
            }
            if fs::rename(&away, &place).is_err() {
                // A Write that was under way may put something into it while it is being removed.
                while gone(&away).is_err() && away.symlink_metadata().is_ok() {}
            }
        }
    }
    swaps
}

#[derive(Default)]
struct Tally {
    done: AtomicU64,
    led_outside: AtomicU64,
    other: AtomicU64,
}

impl Tally {
    fn count(&self, result: Result<minke_tool::ToolOutput, ToolError>) {
        match result {
            Ok(output) => {
                let said = format!("{} {}", output.summary, output.content.unwrap_or_default());
                assert!(!said.contains(OUTSIDE), "what lies outside has been read: {said}");
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(ToolError::Failed(text)) if text.contains("leads through a symbolic link") => {
                self.led_outside.fetch_add(1, Ordering::Relaxed);
            }
            Err(ToolError::Failed(text)) => {
                assert!(!text.contains(OUTSIDE), "what lies outside has been read: {text}");
                self.other.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => panic!("{e:?}"),
        }
    }
}

/// How many calls are under way at once.
const AT_ONCE: u64 = 256;

/// The calls: mostly reads, every fourth a change.
fn call(house: &House, tools: &[Arc<dyn Tool>], calls: u64, tally: &Tally) {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(2).build().unwrap();
    let scope = Scope::write(house.at("in").to_string_lossy());
    let call = Call::new("c", Place { cwd: house.at("in"), scope }, News::nobody());
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
        tool.run(&arguments.to_string(), &call)
    };
    runtime.block_on(async {
        for from in (0..calls).step_by(AT_ONCE as usize) {
            let running: Vec<_> = (from..calls.min(from + AT_ONCE)).map(|n| tokio::spawn(start(n))).collect();
            for running in running {
                tally.count(running.await.unwrap());
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
    let house = House::new();
    let before = house.outside();
    let config =
        FilesConfig { scope: Scope::write(house.at("in").to_string_lossy()), ..FilesConfig::default() };
    let tools = minke_tools::file_tools(&Arc::new(Files::new(config).unwrap()));
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    let start = std::time::Instant::now();
    let swaps = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(&house.root, &stop));
        let caller = scope.spawn(|| call(&house, &tools, calls, &tally));
        let ended = caller.join();
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
        swapper.join().unwrap()
    });
    let [done, led_outside, other] =
        [&tally.done, &tally.led_outside, &tally.other].map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{calls} calls against {swaps} swaps in {:?}: {done} done, {led_outside} refused a link to the outside, {other} failed otherwise",
        start.elapsed()
    );
    assert_eq!(done + led_outside + other, calls);
    assert!(house.outside() == before, "something outside has changed: {:?}", house.outside());
    // A race that nobody ran proves nothing.
    assert!(swaps > calls / 1_000 && done > 0 && led_outside > 0, "{swaps} swaps, {done}, {led_outside}");
}
