//! A tree of fifty real pods under `kill -9`: every scope is released, no pod is lost, scopes never overlap,
//! and every run ends.
//!
//! Victims are chosen from the scope table and killed by the pid of their lease; a killed pod is woken with
//! `minke send`. The ordinary version kills for about twenty seconds, `MINKE_LONG=1` kills a thousand times
//! in ten minutes.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "cli/support/world.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_pod::State;
use minke_policy::subtract_loan;
use minke_record::{Item, Kind, Outcome, SessionId};
use minke_registry::{ScopeRow, ScopeTable};
use minke_session::{FileStore, RealDisk, SealedEntry, SessionStore};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use world::CliWorld;

/// Children of each pod, level by level: 1 + 3 + 6 + 12 + 28 pods.
const TREE_SHAPE: [usize; 3] = [3, 2, 2];
/// How many of the twelve pods on the level before the last have one child more than the others.
const WIDER_PODS: usize = 4;
const LAST_LEVEL: usize = 2;
const POD_COUNT: usize = 50;
/// Tokens for the whole tree; each pod grants half of its remaining budget to each child.
const TOTAL_BUDGET: u64 = 4_000_000_000;
/// Time limit for the release of a dead pod's scope.
const SCOPE_FREED_WITHIN: Duration = Duration::from_secs(2);
/// Time limit until all pods are idle, on a busy machine.
const REST_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a woken pod may take to start before it is woken again.
const WAKE_RETRY: Duration = Duration::from_secs(5);
/// File to which commands append, in the pod's own directory.
const MARKS_FILE: &str = "marks.txt";
/// Maximum number of pods woken at the same time.
const MAX_WAKERS: usize = 6;
/// No pod is killed while fewer than this are live: killing in a dead tree proves nothing.
const MIN_LIVE: usize = POD_COUNT / 2;

struct KillPlan {
    kills: u64,
    interval: Duration,
    time_limit: Duration,
}

fn kill_plan() -> KillPlan {
    if std::env::var_os("MINKE_LONG").is_some() {
        KillPlan {
            kills: 1_000,
            interval: Duration::from_millis(600),
            time_limit: Duration::from_secs(1_800),
        }
    } else {
        KillPlan { kills: 60, interval: Duration::from_millis(300), time_limit: Duration::from_secs(150) }
    }
}

/// The names of a pod's children.
fn child_names(name: &str, level: usize, index: usize) -> Vec<String> {
    let count = match TREE_SHAPE.get(level) {
        Some(count) => *count,
        None if level == TREE_SHAPE.len() => LAST_LEVEL + usize::from(index < WIDER_PODS),
        None => 0,
    };
    ('a'..).take(count).map(|letter| format!("{name}{letter}")).collect()
}

/// Returns the script of the whole tree, and the directories that it uses.
fn tree_script(work: &Path, commands: bool) -> (String, usize) {
    let mut text = String::from("loop = true\n");
    let mut level: Vec<(String, PathBuf)> = vec![("t".to_owned(), work.to_owned())];
    let mut pods = 0;
    for depth in 0.. {
        let mut next = Vec::new();
        for (index, (name, dir)) in level.iter().enumerate() {
            pods += 1;
            std::fs::create_dir_all(dir).unwrap();
            let below = child_names(name, depth, index);
            text.push_str(&pod_turns(name, &below, depth));
            if below.is_empty() && commands {
                text.push_str(&marking_command(name));
            }
            text.push_str(&format!("[[pod.{name}.turn]]\ndelay_ms = 100\ntext = \"Done.\"\n"));
            next.extend(below.into_iter().map(|child| (child.clone(), dir.join(child))));
        }
        if next.is_empty() {
            return (text, pods);
        }
        level = next;
    }
    unreachable!("a tree has an end")
}

/// Returns a command for pods without children: it runs in the sandbox and appends a mark each time.
fn marking_command(name: &str) -> String {
    format!(
        "[[pod.{name}.turn]]\n[[pod.{name}.turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"echo {name} >> {MARKS_FILE}; \
         sleep 0.1\" }}\n"
    )
}

/// Returns the turns of one pod in each run: start its children, write, think.
fn pod_turns(name: &str, below: &[String], depth: usize) -> String {
    let pod = format!("pod.{name}.turn");
    let mut text = String::new();
    if depth == 0 {
        text.push_str(&format!("[[{pod}]]\ntext = \"Here I am.\"\n"));
    }
    if !below.is_empty() {
        text.push_str(&format!("[[{pod}]]\n"));
    }
    for child in below {
        text.push_str(&format!(
            "[[{pod}.call]]\ntool = \"SpawnPod\"\nargs = {{ name = \"{child}\", task = \"Work.\", profile = \"inherit\", \
             cwd = \"{{{{cwd}}}}/{child}\", scope = [{{ target = \"{{{{cwd}}}}/{child}\", permission = \"write\", \
             recursive = true }}] }}\n"
        ));
    }
    for number in 0..2 {
        text.push_str(&format!(
            "[[{pod}]]\ndelay_ms = 150\n[[{pod}.call]]\ntool = \"Write\"\nargs = {{ file_path = \
             \"{{{{cwd}}}}/{name}-{number}.txt\", content = \"{name}\" }}\n"
        ));
    }
    text
}

/// A home, observed from outside.
struct ChaosTree {
    world: CliWorld,
    store: FileStore,
    table: PathBuf,
}

impl ChaosTree {
    fn start_tree(budget: Option<u64>) -> ChaosTree {
        let world = CliWorld::new();
        let work = world.work_dir().canonicalize().unwrap();
        let commands = world::can_sandbox_commands("commands of the fifty pods");
        let (script, pods) = tree_script(&work, commands);
        assert_eq!(pods, POD_COUNT);
        let path = world.home_dir().parent().unwrap().join("chaos.toml");
        std::fs::write(&path, script).unwrap();
        let model = format!("scripted:{}", path.display());
        let limits = budget.map(|tokens| format!("tokens={tokens}"));
        let mut said = vec!["exec", "--name", "t", "--model", &model];
        said.extend(limits.iter().flat_map(|limits| ["--budget", limits.as_str()]));
        said.push("hello");
        let said = world.run_minke(&said);
        assert_eq!(said.code, Some(0), "{said:?}");
        let store = FileStore::new(Arc::new(RealDisk), world.home_dir().join("data/sessions"));
        let table = world.home_dir().join("run/scope.json");
        let tree = ChaosTree { world, store, table };
        assert_eq!(tree.world.run_minke(&["send", "t", "go"]).code, Some(0));
        tree
    }

    /// Returns the rows in the file, without removing dead pods.
    fn table_rows(&self) -> Vec<ScopeRow> {
        match std::fs::read(&self.table) {
            Ok(bytes) => serde_json::from_slice::<ScopeTable>(&bytes).unwrap().pods,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => panic!("{}: {e}", self.table.display()),
        }
    }

    fn session_ids(&self) -> Vec<SessionId> {
        self.store.list_sessions().unwrap()
    }

    fn replay_state(&self, session: SessionId) -> State {
        let replay = self.store.open_reader(session).unwrap().read_replay().unwrap();
        State::replay(replay.iter().map(|sealed| &sealed.entry))
    }

    /// Returns true if a session has accepted work left.
    fn has_work(&self, session: SessionId) -> bool {
        let facts = self.replay_state(session).facts;
        facts.run.is_some() || !facts.queue.is_empty()
    }

    /// Wakes a pod. Returns the reason if that fails.
    fn wake_pod(&self, session: SessionId) -> Result<(), String> {
        let done = self.world.run_minke(&["send", &format!("s_{session}"), "continue"]);
        if done.code == Some(0) { Ok(()) } else { Err(done.err) }
    }
}

/// Returns a path that two pods in this table can write, if there is one.
fn find_write_overlap(rows: &[ScopeRow]) -> Option<String> {
    let effective: Vec<_> = rows
        .iter()
        .map(|row| {
            (row, row.loans.iter().fold(row.scope.clone(), |scope, loan| subtract_loan(&scope, &loan.scope)))
        })
        .collect();
    effective.iter().enumerate().find_map(|(at, (row, scope))| {
        effective.iter().skip(at + 1).find_map(|(other, others)| {
            let both = minke_policy::find_write_overlap(scope, others)?;
            Some(format!("{} and {} can both write {both:?}", row.name, other.name))
        })
    })
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn all_pids() -> Vec<u32> {
    let list = std::fs::read_dir("/proc").unwrap().flatten();
    list.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the pod processes of these sessions.
fn pod_processes(sessions: &BTreeSet<SessionId>) -> Vec<(u32, SessionId)> {
    let session = |pid: u32| {
        let line = command_line(pid);
        let id = line.strip_prefix("minke pod --session ")?.split(' ').next()?.parse().ok()?;
        Some((pid, id)).filter(|_| sessions.contains(&id))
    };
    all_pids().into_iter().filter_map(session).collect()
}

/// Returns ended processes that these parents have not reaped.
fn zombie_children(parents: &BTreeSet<u32>) -> Vec<u32> {
    let zombie = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut words = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        words.next() == Some("Z")
            && words.next().and_then(|ppid| ppid.parse().ok()).is_some_and(|ppid| parents.contains(&ppid))
    };
    all_pids().into_iter().filter(zombie).collect()
}

#[track_caller]
fn wait_until(what: &str, patience: Duration, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !so() {
        assert!(Instant::now() < deadline, "not after {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Counts and times of the test.
#[derive(Default)]
struct ChaosFigures {
    kills: u64,
    kills_by_depth: BTreeMap<u32, u64>,
    freed_after: Vec<Duration>,
    look_count: u64,
    max_live: usize,
    wake_count: u64,
    refused_wakes: u64,
}

/// Returns the first line of a wake error, without names and numbers.
fn strip_names(why: &str) -> String {
    let line = why.lines().find(|line| line.starts_with("error")).unwrap_or(why);
    let words = line.split(' ').map(|word| if word.contains(['`', '/', '_', '0']) { "…" } else { word });
    words.collect::<Vec<&str>>().join(" ")
}

fn kill_pod(row: &ScopeRow) {
    let pid = Pid::from_raw(i32::try_from(row.pid).unwrap()).unwrap();
    match kill_process(pid, Signal::KILL) {
        // A pod that has just exited is dead, too.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => panic!("{}: {e}", row.name),
    }
}

/// Waits until the scope of a dead pod is released, and returns the time. Its parent releases it; without a
/// live parent, the next process that reads the table does.
fn wait_scope_freed(tree: &ChaosTree, row: &ScopeRow, parent_lives: bool) -> Duration {
    let begun = Instant::now();
    loop {
        if !parent_lives {
            drop(tree.world.run_minke(&["ps", "--json"]));
        }
        let rows = tree.table_rows();
        let there = rows.iter().any(|now| now.session == row.session && now.pid == row.pid);
        if !there {
            return begun.elapsed();
        }
        if begun.elapsed() > SCOPE_FREED_WITHIN * 10 {
            panic!(
                "{} (process {}) is dead but still in the table after {:?}",
                row.name,
                row.pid,
                begun.elapsed()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_tree_of_fifty_pods_survives_random_deaths() {
    survive_kills(Some(TOTAL_BUDGET));
}

/// Without a budget, pods may be woken in any order; at first they have no live parent.
#[test]
fn a_tree_without_a_budget_survives_random_deaths() {
    survive_kills(None);
}

fn survive_kills(budget: Option<u64>) {
    let plan = kill_plan();
    let tree = ChaosTree::start_tree(budget);
    wait_until("fifty live pods", REST_TIMEOUT, || {
        tree.table_rows().iter().filter(|row| row.ticket_hash.is_none()).count() == POD_COUNT
    });
    let deepest = tree.table_rows().iter().map(|row| row.depth).max();
    assert_eq!(deepest, Some(4));
    let mut figures = ChaosFigures::default();
    let over = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    let sleeping: Mutex<BTreeSet<SessionId>> = Mutex::default();
    let woken = AtomicU64::new(0);
    let refused: Mutex<BTreeMap<String, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        // No reader sees an overlap at any time.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(find_write_overlap(&tree.table_rows()), None);
                looks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        for _ in 0..MAX_WAKERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let Some(session) = sleeping.lock().unwrap().pop_first() else {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    match tree.wake_pod(session) {
                        Ok(()) => drop(woken.fetch_add(1, Ordering::Relaxed)),
                        Err(why) => {
                            *refused.lock().unwrap().entry(strip_names(&why)).or_default() += 1;
                            sleeping.lock().unwrap().insert(session);
                        }
                    }
                }
            });
        }
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            kill_randomly(&tree, &plan, &sleeping, &mut figures);
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = killed {
            std::panic::resume_unwind(panic);
        }
    });
    figures.look_count = looks.into_inner();
    let refused = refused.into_inner().unwrap();
    eprintln!("chaos: not woken because {refused:#?}");
    (figures.wake_count, figures.refused_wakes) = (woken.into_inner(), refused.values().sum());
    eprintln!(
        "chaos: {} killed, {} woken, {} times not",
        figures.kills, figures.wake_count, figures.refused_wakes
    );
    let sessions: BTreeSet<SessionId> = tree.session_ids().into_iter().collect();
    assert_eq!(sessions.len(), POD_COUNT, "no pod was spawned twice");
    check_all_live(&tree, &sessions);
    wait_for_rest(&tree);
    check_nothing_lost(&tree, &sessions);
    stop_all(&tree, &sessions);
    let spent = check_costs(&tree, &sessions, budget);
    let commands: u64 = sessions.iter().map(|session| count_commands(&tree, *session)).sum();
    eprintln!("chaos: {commands} sandboxed commands");
    print_figures(&figures, spent);
}

/// Kills random pods, as often as planned.
fn kill_randomly(
    tree: &ChaosTree,
    plan: &KillPlan,
    sleeping: &Mutex<BTreeSet<SessionId>>,
    figures: &mut ChaosFigures,
) {
    let begun = Instant::now();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    while figures.kills < plan.kills && begun.elapsed() < plan.time_limit {
        let next = Instant::now() + plan.interval;
        let rows = tree.table_rows();
        let live: Vec<&ScopeRow> = rows.iter().filter(|row| row.ticket_hash.is_none()).collect();
        if live.len() < MIN_LIVE {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        figures.max_live = figures.max_live.max(live.len());
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        if let Some(row) = live.get(usize::try_from(dice % live.len().max(1) as u64).unwrap()) {
            // A pod that is still starting does not release scopes yet.
            let parent = row.parent.is_some_and(|parent| live.iter().any(|other| other.session == parent));
            kill_pod(row);
            let time = wait_scope_freed(tree, row, parent);
            if time > SCOPE_FREED_WITHIN {
                let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
                eprintln!(
                    "chaos: {} at depth {} after {time:?}; parent lived: {parent}; load {load}",
                    row.name, row.depth
                );
            }
            figures.freed_after.push(time);
            figures.kills += 1;
            *figures.kills_by_depth.entry(row.depth).or_default() += 1;
            sleeping.lock().unwrap().insert(row.session);
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    assert_eq!(figures.kills, plan.kills, "the tree did not recover in {:?}", plan.time_limit);
}

/// Wakes every pod with unfinished work, until none is left.
fn wait_for_rest(tree: &ChaosTree) {
    let deadline = Instant::now() + REST_TIMEOUT;
    let mut told: BTreeMap<SessionId, (Instant, Result<(), String>)> = BTreeMap::new();
    loop {
        let busy: Vec<SessionId> =
            tree.session_ids().into_iter().filter(|session| tree.has_work(*session)).collect();
        if busy.is_empty() {
            return;
        }
        let rows = tree.table_rows();
        for session in &busy {
            let live = rows.iter().any(|row| row.session == *session);
            let facts = tree.replay_state(*session).facts;
            // A live pod with a held queue continues after another message.
            let still = !live || (facts.run.is_none() && facts.held);
            if still && told.get(session).is_none_or(|(when, _)| when.elapsed() > WAKE_RETRY) {
                told.insert(*session, (Instant::now(), tree.wake_pod(*session)));
            }
        }
        if Instant::now() > deadline {
            let each = busy.iter().map(|session| {
                let facts = tree.replay_state(*session).facts;
                let live = rows.iter().any(|row| row.session == *session);
                let run = facts.run.map(|run| (run.trigger, run.turn, run.in_turn));
                format!(
                    "{:?}: lives {live}, run {run:?}, {} queued, held {}; woken: {:?}",
                    facts.name,
                    facts.queue.len(),
                    facts.held,
                    told.get(session)
                )
            });
            panic!("these never end: {:#?}", each.collect::<Vec<String>>());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Wakes dead pods without work, too: they have to learn of their children. A pod starts before its ancestors
/// if its own children own the ancestors' scope.
fn check_all_live(tree: &ChaosTree, sessions: &BTreeSet<SessionId>) {
    let mut why: Vec<String> = Vec::new();
    let mut woken = || {
        let rows = tree.table_rows();
        let dead = sessions.iter().filter(|session| !rows.iter().any(|row| row.session == **session));
        why = dead.filter_map(|session| tree.wake_pod(*session).err()).collect();
        why.is_empty()
    };
    let deadline = Instant::now() + REST_TIMEOUT;
    while !woken() {
        assert!(Instant::now() < deadline, "these cannot be woken: {why:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that processes and rows, and directories, sockets and pods correspond, and that there are no
/// zombies.
fn check_nothing_lost(tree: &ChaosTree, sessions: &BTreeSet<SessionId>) {
    drop(tree.world.run_minke(&["ps", "--json"]));
    wait_until("processes, rows and directories are the same", Duration::from_secs(20), || {
        let rows = tree.table_rows();
        let table: BTreeSet<(u32, SessionId)> = rows.iter().map(|row| (row.pid, row.session)).collect();
        let kernel: BTreeSet<(u32, SessionId)> = pod_processes(sessions).into_iter().collect();
        let dirs: BTreeSet<String> = std::fs::read_dir(tree.world.home_dir().join("run/pods"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let names: BTreeSet<String> = rows.iter().map(|row| row.name.to_string()).collect();
        let pids = table.iter().map(|(pid, _)| *pid).collect();
        table == kernel && dirs == names && zombie_children(&pids).is_empty()
    });
    assert_eq!(find_write_overlap(&tree.table_rows()), None);
}

/// Stops all pods, leaves first, and checks that nothing is left and every log is valid.
fn stop_all(tree: &ChaosTree, sessions: &BTreeSet<SessionId>) {
    let mut rows = tree.table_rows();
    rows.sort_by_key(|row| std::cmp::Reverse(row.depth));
    for row in rows {
        // A parent records its last child's end before its own, so its log has the whole sum.
        wait_until("a parent knows that its children have ended", Duration::from_secs(20), || {
            tree.replay_state(row.session).live_children().count() == 0
        });
        let done = tree.world.run_minke(&["stop", &format!("s_{}", row.session)]);
        assert_eq!(done.code, Some(0), "{}: {done:?}", row.name);
    }
    wait_until("no process is left", Duration::from_secs(20), || pod_processes(sessions).is_empty());
    let left = std::fs::read_dir(tree.world.home_dir().join("run/pods")).unwrap().count();
    assert_eq!(left, 0, "runtime directories");
    assert_eq!(tree.table_rows().len(), 0, "rows");
    let found: Value = tree.world.run_json(&["log", "verify", "--json"]);
    assert_eq!(found["ok"], true, "{found:#}");
    for session in sessions {
        let facts = tree.replay_state(*session).facts;
        assert!(facts.run.is_none() && facts.calls.is_empty(), "{:?} has an open run", facts.name);
    }
}

/// Checks that every command was logged before it ran, ran at most once, and ran if it succeeded.
fn count_commands(tree: &ChaosTree, session: SessionId) -> u64 {
    // Call ids repeat in later runs.
    let (mut open, mut noted, mut succeeded, mut cwd) = (BTreeSet::new(), 0, 0, None);
    let mut each = |sealed: SealedEntry| {
        match sealed.entry.kind {
            Kind::SessionStart(start) => cwd = Some(PathBuf::from(&start.cwd)),
            Kind::ToolDispatch(begun) if begun.tool == "Bash" => {
                noted += 1;
                open.insert(begun.call_id);
            }
            Kind::ToolResult(end) => {
                if let Item::ToolResult { call_id, .. } = &end.item {
                    succeeded += u64::from(open.remove(call_id) && end.outcome == Outcome::Done);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    tree.store.open_reader(session).unwrap().scan_entries(0, &mut each).unwrap();
    let marks = std::fs::read_to_string(cwd.unwrap().join(MARKS_FILE)).unwrap_or_default();
    let ran = marks.lines().count() as u64;
    assert!(succeeded <= ran && ran <= noted, "{session}: {succeeded} succeeded, {ran} ran, {noted} noted");
    ran
}

/// Returns the cost of all pods by their own logs. Checks that every pod recorded the cost of its
/// descendants, and that the root's remaining budget is the grant minus the total.
fn check_costs(tree: &ChaosTree, sessions: &BTreeSet<SessionId>, budget: Option<u64>) -> u64 {
    let states: BTreeMap<SessionId, State> =
        sessions.iter().map(|session| (*session, tree.replay_state(*session))).collect();
    let parent = |session: &SessionId| {
        let about = states[session].facts.about.as_ref();
        about.and_then(|about| about.parent.as_ref()).map(|parent| parent.session)
    };
    let mut below: BTreeMap<SessionId, u64> = BTreeMap::new();
    for (session, state) in &states {
        let mut at = Some(*session);
        while let Some(above) = at {
            *below.entry(above).or_default() += state.own_spent().tokens;
            at = parent(&above);
        }
    }
    let heard = |state: &State| (state.facts.name.clone(), state.total_spent().tokens);
    let wrong: Vec<_> = states
        .iter()
        .filter(|(session, state)| state.total_spent().tokens != below[session])
        .map(|(session, state)| format!("{:?} instead of {}", heard(state), below[session]))
        .collect();
    assert_eq!(wrong, Vec::<String>::new(), "recorded costs of descendants");
    let root = states.values().find(|state| state.facts.about.as_ref().is_some_and(|a| a.parent.is_none()));
    let root = root.unwrap();
    let spent = below.values().max().copied().unwrap();
    assert_eq!(
        root.remaining_budget().tokens,
        budget.map(|granted| granted - spent),
        "granted = spent + left"
    );
    spent
}

fn print_figures(figures: &ChaosFigures, spent: u64) {
    let mut back = figures.freed_after.clone();
    back.sort_unstable();
    let at = |part: usize| back.get(back.len() * part / 100).or(back.last()).copied().unwrap_or_default();
    let slow = back.iter().filter(|time| **time > SCOPE_FREED_WITHIN).count();
    eprintln!(
        "chaos: {} pods, {} killed (by depth {:?}), {} lived at once at most; scope back p50 {:?}, p99 {:?}, worst {:?}, \
         {slow} over {SCOPE_FREED_WITHIN:?}; {} woken, {} times not; table read {} times, 0 overlaps; {spent} tokens",
        POD_COUNT,
        figures.kills,
        figures.kills_by_depth,
        figures.max_live,
        at(50),
        at(99),
        at(100),
        figures.wake_count,
        figures.refused_wakes,
        figures.look_count,
    );
    assert_eq!(slow, 0, "scopes released too late");
}
