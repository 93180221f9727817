//! SpawnPod, killed by signal 9 at every system call that could change something, with real processes.
//!
//! Here: the sweep, and the state of the machine after the parent was woken. Elsewhere: counting and killing
//! (`crates/testkit/shim/killat.c`, which traces the processes from outside), the same in the simulated tree
//! (`testkit::tree`).
//! Invariant: at every point there is a working child or `failed_to_start`, and no loan, process, name or
//! socket without its child (`a_spawn_that_is_killed_anywhere_leaves_a_child_or_nothing`).
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::world::{CliWorld, UNSANDBOXED};
use crate::trees::tree::{
    TreeScript, call_results, check_nothing_left, entries_of_kind, live_pod, spawn_args, wait_for,
    world_with_dirs, write_scope_rule,
};

/// Tests every N-th point; with `MINKE_LONG` every one.
const POINT_STRIDE: u64 = 5;
/// A sweep beyond this point would not end.
const MAX_POINT: u64 = 2_000;
/// Points tested in parallel: more than cores, because most of the time is waiting for a ticket to expire.
const PARALLEL_POINTS: usize = 8;
/// Minimum number of points; fewer mean that the wrong processes are traced.
const MIN_POINTS: u64 = 40;
/// Exit code of the tracer when the kernel does not allow tracing.
const NOT_ALLOWED: i32 = 77;

/// The process that is killed, and whose calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpawnVictim {
    /// The parent, at its own calls.
    Parent,
    /// The parent, at the calls of the starting child.
    ParentWhileChildStarts,
    /// The child, at its own calls.
    Child,
}

impl SpawnVictim {
    fn name(self) -> &'static str {
        match self {
            SpawnVictim::Parent => "parent",
            SpawnVictim::ParentWhileChildStarts => "beside",
            SpawnVictim::Child => "child",
        }
    }
}

/// The compiled tracer.
struct SyscallTracer {
    program: PathBuf,
    _folder: TempDir,
}

impl SyscallTracer {
    /// Compiles the tracer and checks that tracing is allowed. Otherwise returns `None` with a message; with
    /// `MINKE_NO_SKIP` that is a failure.
    fn compile() -> Option<SyscallTracer> {
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
                    Some(0) => return Some(SyscallTracer { program, _folder: folder }),
                    Some(NOT_ALLOWED) => "processes cannot be followed here (ptrace)".to_owned(),
                    other => panic!("the tracer ended with {other:?}"),
                }
            }
            Err(e) => format!("{} does not run ({e})", compiler.display()),
        };
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{why}");
        eprintln!("SKIPPED: a_spawn_that_is_killed_anywhere_leaves_a_child_or_nothing: {why}");
        None
    }

    /// Lets the pod `boss` spawn its child and kills the victim at the N-th call. Returns the tracer's
    /// report.
    fn run_spawn(&self, world: &CliWorld, victim: SpawnVictim, n: u64) -> String {
        let report = world.home_dir().with_file_name("report");
        let logs = world.home_dir().join("data/sessions/*/log.jsonl");
        let mut command = Command::new(&self.program);
        world.set_environment(&mut command);
        command
            .arg(logs)
            .args([r#""kind":"tool_dispatch""#, r#""kind":"tool_result""#, victim.name(), &n.to_string()])
            .arg(&report)
            .arg(env!("CARGO_BIN_EXE_minke"))
            .args(["exec", "--name", "boss", "--model", "scripted:s.toml", "go"])
            .args(UNSANDBOXED)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        std::fs::read_to_string(&report).unwrap_or_else(|e| panic!("no report ({e}): {output:?}"))
    }
}

#[test]
fn a_spawn_that_is_killed_anywhere_leaves_a_child_or_nothing() {
    let Some(tracer) = SyscallTracer::compile() else { return };
    let stride = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { POINT_STRIDE };
    for victim in [SpawnVictim::Parent, SpawnVictim::ParentWhileChildStarts, SpawnVictim::Child] {
        let began = Instant::now();
        let swept = sweep_points(&tracer, victim, stride);
        eprintln!(
            "{:<7} {:>4} calls, {} kills left a child, {} nothing, {:.0} s",
            victim.name(),
            swept.last,
            swept.children,
            swept.nothing,
            began.elapsed().as_secs_f64()
        );
        assert!(swept.failures.is_empty(), "{}", swept.failures.join("\n"));
        assert!(swept.last >= MIN_POINTS, "only {} calls were counted", swept.last);
    }
}

/// Result of a sweep.
struct SpawnSweep {
    /// The last point with a kill.
    last: u64,
    children: u64,
    nothing: u64,
    failures: Vec<String>,
}

fn sweep_points(tracer: &SyscallTracer, victim: SpawnVictim, stride: u64) -> SpawnSweep {
    let (next, last) = (AtomicU64::new(1), AtomicU64::new(MAX_POINT));
    let (children, nothing) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let n = next.fetch_add(stride, Ordering::Relaxed);
            if n > last.load(Ordering::Relaxed) {
                return;
            }
            let tried = std::panic::catch_unwind(|| try_point(tracer, victim, n));
            match tried {
                Ok(Some(SpawnEnd::Child)) => drop(children.fetch_add(1, Ordering::Relaxed)),
                Ok(Some(SpawnEnd::Nothing)) => drop(nothing.fetch_add(1, Ordering::Relaxed)),
                Ok(None) => drop(last.fetch_min(n, Ordering::Relaxed)),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                    failures.lock().unwrap().push(format!("{} at {n}: {text}", victim.name()));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_POINTS {
            scope.spawn(worker);
        }
    });
    let last = last.into_inner();
    assert!(last < MAX_POINT, "{} was killed even at {MAX_POINT}", victim.name());
    SpawnSweep {
        last,
        children: children.into_inner(),
        nothing: nothing.into_inner(),
        failures: failures.into_inner().unwrap(),
    }
}

/// Result of a killed spawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpawnEnd {
    Child,
    Nothing,
}

/// Kills once, wakes the parent and checks everything. `None`: the spawn ended before the point.
fn try_point(tracer: &SyscallTracer, victim: SpawnVictim, n: u64) -> Option<SpawnEnd> {
    let world = world_with_dirs(&["lib"]);
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("kid", "work", json!([write_scope_rule(&lib)])))
        .add_text("boss", "done")
        .add_text("boss", "more")
        .add_slow_turn("kid", "working")
        .write_script(&world);
    let report = tracer.run_spawn(&world, victim, n);
    if report.starts_with("over") {
        return None;
    }
    let boss = session_id(&world, "boss");
    // The child or the parent is dead; in both cases the parent is woken.
    let woken = world.run_with_stdin("", &["attach", &boss]);
    assert_eq!(woken.code, Some(0), "{report}: {woken:?}");
    if live_pod(&world, "boss").is_some_and(|row| row["state"] == "paused") {
        let resumed = world.run_minke(&["resume", "boss"]);
        assert_eq!(resumed.code, Some(0), "{report}: {resumed:?}");
    }
    let end = wait_for("there is a child or failed_to_start", || settled_end(&world, &boss, victim));
    check_end(&world, &boss, end, &report);
    finish_world(&world, &boss, end);
    check_nothing_left(&world);
    Some(end)
}

fn session_id(world: &CliWorld, name: &str) -> String {
    let sessions = world.run_json(&["log", "verify", "--json"]);
    let ids = sessions["sessions"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap());
    let mut of = ids.filter(|id| entries_of_kind(world, id, "session_start")[0]["name"] == name);
    of.next().unwrap().trim_start_matches("s_").to_owned()
}

/// Returns the result by the parent's log and the table; `None` while they are incomplete.
fn settled_end(world: &CliWorld, boss: &str, victim: SpawnVictim) -> Option<SpawnEnd> {
    if call_results(world, boss).is_empty() {
        return None;
    }
    if let Some(end) = entries_of_kind(world, boss, "child_end").first() {
        // A child that dies after `ready` counts as started.
        let lived = victim == SpawnVictim::Child && end["outcome"] == "crashed";
        assert!(lived || end["outcome"] == "failed_to_start", "{end:#}");
        return Some(SpawnEnd::Nothing);
    }
    (live_pod(world, "kid")?["state"] != "starting").then_some(SpawnEnd::Child)
}

/// Checks that there is no loan, process, name or socket without its child.
fn check_end(world: &CliWorld, boss: &str, end: SpawnEnd, report: &str) {
    let rows = wait_for("the table is read", || scope_table(world));
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let expected =
        if end == SpawnEnd::Child { BTreeSet::from(["boss", "kid"]) } else { BTreeSet::from(["boss"]) };
    assert_eq!(names, expected, "{report}: the rows of the table");
    let parent = rows.iter().find(|row| row["name"] == "boss").unwrap();
    let loans: BTreeSet<&str> =
        parent["loans"].as_array().into_iter().flatten().filter_map(|loan| loan["name"].as_str()).collect();
    assert_eq!(loans, expected.iter().copied().filter(|name| *name != "boss").collect(), "{report}: loans");
    assert!(
        rows.iter().all(|row| row["ticket_hash"].is_null()),
        "{report}: a ticket is still valid: {rows:?}"
    );
    let run = world.home_dir().join("run");
    let listed = |dir: &Path| -> BTreeSet<String> {
        let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
    assert_eq!(listed(&run.join("pods")), expected, "{report}: directories");
    for name in &expected {
        assert!(run.join("pods").join(name).join("sock").exists(), "{report}: `{name}` has no socket");
    }
    assert_eq!(listed(&run.join("starting")), BTreeSet::new(), "{report}: a process is still starting");
    let sessions: BTreeSet<String> = rows.iter().map(|row| json_text(&row["session"])).collect();
    assert!(sessions.contains(boss), "{report}: {rows:?}");
    let running: BTreeSet<String> = pod_processes(world).into_iter().map(|(_, session)| session).collect();
    assert_eq!(running, sessions, "{report}: processes");
}

fn json_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn scope_table(world: &CliWorld) -> Option<Vec<Value>> {
    // Listing the pods removes dead ones.
    world.run_minke(&["ps"]);
    let text = std::fs::read_to_string(world.home_dir().join("run/scope.json")).ok()?;
    let table: Value = serde_json::from_str(&text).ok()?;
    Some(table["pods"].as_array()?.clone())
}

/// Returns the pod processes of this world, by the sessions in their arguments.
fn pod_processes(world: &CliWorld) -> Vec<(String, String)> {
    let sessions: BTreeSet<String> = std::fs::read_dir(world.home_dir().join("data/sessions"))
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

/// Checks that the parent's run ends and its call has ended once. Stops a live child and checks that its loan
/// is returned.
fn finish_world(world: &CliWorld, boss: &str, end: SpawnEnd) {
    wait_for("the run has ended", || (live_pod(world, "boss")?["state"] == "idle").then_some(()));
    let results = call_results(world, boss);
    assert_eq!(results.len(), 1, "{results:#?}");
    if end == SpawnEnd::Child {
        let stopped = world.run_minke(&["stop", "kid"]);
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
        let back =
            wait_for("the end is logged", || entries_of_kind(world, boss, "child_end").into_iter().next());
        assert_ne!(back["outcome"], "failed_to_start");
    }
    let rows = wait_for("the table is read", || scope_table(world));
    assert!(rows.iter().all(|row| row["loans"].as_array().is_none_or(Vec::is_empty)), "{rows:?}");
}
