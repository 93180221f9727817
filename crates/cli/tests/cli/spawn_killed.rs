//! SpawnPod, ended by signal 9 at every call to the kernel that could change something, with real processes.
//!
//! Here: the sweep, and what must be true of the machine once the parent was woken again. Elsewhere: who counts and kills
//! (`crates/testkit/shim/killat.c`, which follows the processes from outside; the product knows nothing of it), the same
//! in the simulated tree (`testkit::tree`).
//! Invariant: wherever it ends, there is a working child or `failed_to_start`, and no loan, process, name or socket
//! without its child (`a_spawn_that_is_killed_anywhere_leaves_a_child_or_nothing`).
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tree::{Script, nothing_is_left, of_kind, pod, results, spawn, until, world, write_rule};
use crate::world::{UNFENCED, World};

/// Which points are tried: every one with `MINKE_LONG`, else every so-many-th.
const STRIDE: u64 = 5;
/// A sweep that goes on beyond this does not end by itself.
const LAST_N: u64 = 2_000;
/// Most of a point's time is waiting for a ticket to run out, so more of them than cores are under way.
const AT_ONCE: usize = 8;
/// What a sweep must meet at least; less means that it looks at the wrong processes.
const POINTS: u64 = 40;
/// The tracer's word that the kernel lets nobody be followed.
const NOT_ALLOWED: i32 = 77;

/// Whose calls are counted, and who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// The parent, at its own calls.
    Parent,
    /// The parent, at the calls of the child that is starting.
    Beside,
    /// The child, at its own.
    Child,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Parent => "parent",
            Who::Beside => "beside",
            Who::Child => "child",
        }
    }
}

/// The compiled tracer.
struct Tracer {
    program: PathBuf,
    _folder: TempDir,
}

impl Tracer {
    /// Compiles it and tries whether it may follow anybody. `None`, said aloud, where not; with `MINKE_NO_SKIP` that is a
    /// failure.
    fn build() -> Option<Tracer> {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("killat");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/shim/killat.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let built = Command::new(&compiler)
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .output();
        let why = match built {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let report = folder.path().join("report");
                let mut tried = Command::new(&program);
                tried.args(["/dev/null", "x", "x", "parent", "0"]).arg(report).arg("/bin/true");
                match tried.output().unwrap().status.code() {
                    Some(0) => return Some(Tracer { program, _folder: folder }),
                    Some(NOT_ALLOWED) => "processes cannot be followed here (ptrace)".to_owned(),
                    other => panic!("the tracer ended with {other:?}"),
                }
            }
            Err(e) => format!("{} cannot be run ({e})", compiler.display()),
        };
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{why}");
        eprintln!("SKIPPED: a_spawn_that_is_killed_anywhere_leaves_a_child_or_nothing: {why}");
        None
    }

    /// The pod `boss` spawns its child; whoever is to die does so at the N-th call. What the tracer reports.
    fn run(&self, world: &World, who: Who, n: u64) -> String {
        let report = world.home().with_file_name("report");
        let logs = world.home().join("data/sessions/*/log.jsonl");
        let mut command = Command::new(&self.program);
        world.settle(&mut command);
        command
            .arg(logs)
            .args([r#""kind":"tool_dispatch""#, r#""kind":"tool_result""#, who.name(), &n.to_string()])
            .arg(&report)
            .arg(env!("CARGO_BIN_EXE_minke"))
            .args(["exec", "--name", "boss", "--model", "scripted:s.toml", "go"])
            .args(UNFENCED)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        std::fs::read_to_string(&report).unwrap_or_else(|e| panic!("no report ({e}): {output:?}"))
    }
}

#[test]
fn a_spawn_that_is_killed_anywhere_leaves_a_child_or_nothing() {
    let Some(tracer) = Tracer::build() else { return };
    let stride = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { STRIDE };
    for who in [Who::Parent, Who::Beside, Who::Child] {
        let began = Instant::now();
        let swept = sweep(&tracer, who, stride);
        eprintln!(
            "{:<7} {:>4} calls, {} deaths left a child, {} nothing, {:.0} s",
            who.name(),
            swept.last,
            swept.children,
            swept.nothing,
            began.elapsed().as_secs_f64()
        );
        assert!(swept.failures.is_empty(), "{}", swept.failures.join("\n"));
        assert!(swept.last >= POINTS, "only {} calls were counted", swept.last);
    }
}

/// What the points of one kind came to.
struct Swept {
    /// The last one at which somebody died.
    last: u64,
    children: u64,
    nothing: u64,
    failures: Vec<String>,
}

fn sweep(tracer: &Tracer, who: Who, stride: u64) -> Swept {
    let (next, last) = (AtomicU64::new(1), AtomicU64::new(LAST_N));
    let (children, nothing) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let n = next.fetch_add(stride, Ordering::Relaxed);
            if n > last.load(Ordering::Relaxed) {
                return;
            }
            let tried = std::panic::catch_unwind(|| point(tracer, who, n));
            match tried {
                Ok(Some(End::Child)) => drop(children.fetch_add(1, Ordering::Relaxed)),
                Ok(Some(End::Nothing)) => drop(nothing.fetch_add(1, Ordering::Relaxed)),
                Ok(None) => drop(last.fetch_min(n, Ordering::Relaxed)),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                    failures.lock().unwrap().push(format!("{} at {n}: {text}", who.name()));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(worker);
        }
    });
    let last = last.into_inner();
    assert!(last < LAST_N, "{} was killed even at {LAST_N}", who.name());
    Swept {
        last,
        children: children.into_inner(),
        nothing: nothing.into_inner(),
        failures: failures.into_inner().unwrap(),
    }
}

/// What a killed spawn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Child,
    Nothing,
}

/// One death, the parent's waking, and a look at everything. `None`: nobody died, the spawn was over before.
fn point(tracer: &Tracer, who: Who, n: u64) -> Option<End> {
    let world = world(&["lib"]);
    let lib = world.work().join("lib");
    Script::default()
        .call("boss", "SpawnPod", &spawn("kid", "work", json!([write_rule(&lib)])))
        .say("boss", "done")
        .say("boss", "more")
        .linger("kid", "working")
        .write_alone(&world);
    let report = tracer.run(&world, who, n);
    if report.starts_with("over") {
        return None;
    }
    let boss = session_of(&world, "boss");
    // The child is dead, or the parent is; whichever it was, the parent comes back.
    let woken = world.pipe("", &["attach", &boss]);
    assert_eq!(woken.code, Some(0), "{report}: {woken:?}");
    if pod(&world, "boss").is_some_and(|row| row["state"] == "paused") {
        let resumed = world.run(&["resume", "boss"]);
        assert_eq!(resumed.code, Some(0), "{report}: {resumed:?}");
    }
    let end = until("there is a child or failed_to_start", || settled(&world, &boss, who));
    check(&world, &boss, end, &report);
    finish(&world, &boss, end);
    nothing_is_left(&world);
    Some(end)
}

fn session_of(world: &World, name: &str) -> String {
    let sessions = world.json(&["log", "verify", "--json"]);
    let ids = sessions["sessions"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap());
    let mut of = ids.filter(|id| of_kind(world, id, "session_start")[0]["name"] == name);
    of.next().unwrap().trim_start_matches("s_").to_owned()
}

/// How the parent's log and the table say that it came out; none while they do not.
fn settled(world: &World, boss: &str, who: Who) -> Option<End> {
    if results(world, boss).is_empty() {
        return None;
    }
    if let Some(end) = of_kind(world, boss, "child_end").first() {
        // A child that dies after it has said `ready` has lived.
        let lived = who == Who::Child && end["outcome"] == "crashed";
        assert!(lived || end["outcome"] == "failed_to_start", "{end:#}");
        return Some(End::Nothing);
    }
    (pod(world, "kid")?["state"] != "starting").then_some(End::Child)
}

/// No loan, process, name or socket without its child.
fn check(world: &World, boss: &str, end: End, report: &str) {
    let rows = until("the table is read", || table(world));
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let expected = if end == End::Child { BTreeSet::from(["boss", "kid"]) } else { BTreeSet::from(["boss"]) };
    assert_eq!(names, expected, "{report}: the rows of the table");
    let parent = rows.iter().find(|row| row["name"] == "boss").unwrap();
    let loans: BTreeSet<&str> =
        parent["loans"].as_array().into_iter().flatten().filter_map(|loan| loan["name"].as_str()).collect();
    assert_eq!(loans, expected.iter().copied().filter(|name| *name != "boss").collect(), "{report}: loans");
    assert!(rows.iter().all(|row| row["ticket_hash"].is_null()), "{report}: a ticket is out: {rows:?}");
    let run = world.home().join("run");
    let listed = |dir: &Path| -> BTreeSet<String> {
        let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
    assert_eq!(listed(&run.join("pods")), expected, "{report}: directories");
    for name in &expected {
        assert!(run.join("pods").join(name).join("sock").exists(), "{report}: `{name}` has no socket");
    }
    assert_eq!(listed(&run.join("starting")), BTreeSet::new(), "{report}: somebody is still starting");
    let sessions: BTreeSet<String> = rows.iter().map(|row| text(&row["session"])).collect();
    assert!(sessions.contains(boss), "{report}: {rows:?}");
    let running: BTreeSet<String> = processes(world).into_iter().map(|(_, session)| session).collect();
    assert_eq!(running, sessions, "{report}: processes");
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn table(world: &World) -> Option<Vec<Value>> {
    // Whoever looks clears away what is dead.
    world.run(&["ps"]);
    let text = std::fs::read_to_string(world.home().join("run/scope.json")).ok()?;
    let table: Value = serde_json::from_str(&text).ok()?;
    Some(table["pods"].as_array()?.clone())
}

/// The pods' processes of this world, by the sessions that stand in their arguments.
fn processes(world: &World) -> Vec<(String, String)> {
    let sessions: BTreeSet<String> = std::fs::read_dir(world.home().join("data/sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        if let Some(session) = arguments.split('\0').find(|argument| sessions.contains(*argument)) {
            found.push((process.file_name().to_string_lossy().into_owned(), session.to_owned()));
        }
    }
    found
}

/// The parent's run comes to its end; the call has ended once, however it ended. A child that lives is stopped, and its
/// loan is back.
fn finish(world: &World, boss: &str, end: End) {
    until("the run has ended", || (pod(world, "boss")?["state"] == "idle").then_some(()));
    let results = results(world, boss);
    assert_eq!(results.len(), 1, "{results:#?}");
    if end == End::Child {
        let stopped = world.run(&["stop", "kid"]);
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
        let back = until("the end is noted", || of_kind(world, boss, "child_end").into_iter().next());
        assert_ne!(back["outcome"], "failed_to_start");
    }
    let rows = until("the table is read", || table(world));
    assert!(rows.iter().all(|row| row["loans"].as_array().is_none_or(Vec::is_empty)), "{rows:?}");
}
