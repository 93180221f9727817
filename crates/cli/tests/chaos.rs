//! A tree of fifty real pods under `kill -9`: what the dead held comes back, nobody is left behind, nobody overlaps,
//! and every run ends.
//!
//! Pods are chosen by the scope table and killed by the pid of their lease; who died is woken as anybody would wake it
//! (`minke send`). The ordinary version kills for some twenty seconds, `MINKE_LONG=1` a thousand times in ten minutes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/world.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_pod::State;
use minke_policy::{overlaps_write, subtract};
use minke_record::{Item, Kind, Outcome, SessionId};
use minke_registry::{Row, Table};
use minke_session::{FileStore, RealDisk, Sealed, Store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use world::World;

/// Children of each pod, level by level: 1 + 3 + 6 + 12 + 28 pods.
const SHAPE: [usize; 3] = [3, 2, 2];
/// Of the twelve pods on the level before the last, so many have one child more than the others.
const WIDER: usize = 4;
const LAST: usize = 2;
const PODS: usize = 50;
/// In tokens, for the whole tree; each pod gives half of what it has left to each child.
const BUDGET: u64 = 4_000_000_000;
/// What a dead pod held is back this soon.
const SCOPE_BACK: Duration = Duration::from_secs(2);
/// How long everything may take to come to rest, on a machine that does other things too.
const REST_WAIT: Duration = Duration::from_secs(120);
/// How long one that was woken may take to begin before it is told again.
const WAKE_AGAIN: Duration = Duration::from_secs(5);
/// Where commands leave their marks, in the pod's own directory.
const MARKS: &str = "marks.txt";
/// How many are woken at the same time.
const WAKERS: usize = 6;
/// Nobody is killed while fewer than this live: a storm over a dead tree shows nothing.
const LIVE_AT_LEAST: usize = PODS / 2;

struct Plan {
    kills: u64,
    every: Duration,
    at_most: Duration,
}

fn plan() -> Plan {
    if std::env::var_os("MINKE_LONG").is_some() {
        Plan { kills: 1_000, every: Duration::from_millis(600), at_most: Duration::from_secs(1_800) }
    } else {
        Plan { kills: 60, every: Duration::from_millis(300), at_most: Duration::from_secs(150) }
    }
}

/// The names of a pod's children.
fn children(name: &str, level: usize, index: usize) -> Vec<String> {
    let count = match SHAPE.get(level) {
        Some(count) => *count,
        None if level == SHAPE.len() => LAST + usize::from(index < WIDER),
        None => 0,
    };
    ('a'..).take(count).map(|letter| format!("{name}{letter}")).collect()
}

/// The script of the whole tree, and the directories that it works in.
fn script(work: &Path, commands: bool) -> (String, usize) {
    let mut text = String::from("loop = true\n");
    let mut level: Vec<(String, PathBuf)> = vec![("t".to_owned(), work.to_owned())];
    let mut pods = 0;
    for depth in 0.. {
        let mut next = Vec::new();
        for (index, (name, dir)) in level.iter().enumerate() {
            pods += 1;
            std::fs::create_dir_all(dir).unwrap();
            let below = children(name, depth, index);
            text.push_str(&turns(name, &below, depth));
            if below.is_empty() && commands {
                text.push_str(&command(name));
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

/// What a pod without children does, too: a command in its fence, which leaves a mark each time it runs.
fn command(name: &str) -> String {
    format!(
        "[[pod.{name}.turn]]\n[[pod.{name}.turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"echo {name} >> {MARKS}; \
         sleep 0.1\" }}\n"
    )
}

/// What one pod does in each run: begin its children, write, think.
fn turns(name: &str, below: &[String], depth: usize) -> String {
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

/// One home, seen from outside.
struct Tree {
    world: World,
    store: FileStore,
    table: PathBuf,
}

impl Tree {
    fn begin(budget: Option<u64>) -> Tree {
        let world = World::new();
        let work = world.work().canonicalize().unwrap();
        let commands = world::commands_are_held("commands of the fifty pods");
        let (script, pods) = script(&work, commands);
        assert_eq!(pods, PODS);
        let path = world.home().parent().unwrap().join("chaos.toml");
        std::fs::write(&path, script).unwrap();
        let model = format!("scripted:{}", path.display());
        let limits = budget.map(|tokens| format!("tokens={tokens}"));
        let mut said = vec!["exec", "--name", "t", "--model", &model];
        said.extend(limits.iter().flat_map(|limits| ["--budget", limits.as_str()]));
        said.push("hello");
        let said = world.run(&said);
        assert_eq!(said.code, Some(0), "{said:?}");
        let store = FileStore::new(Arc::new(RealDisk), world.home().join("data/sessions"));
        let table = world.home().join("run/scope.json");
        let tree = Tree { world, store, table };
        assert_eq!(tree.world.run(&["send", "t", "go"]).code, Some(0));
        tree
    }

    /// The rows as they stand in the file: nobody is cleared away by looking.
    fn rows(&self) -> Vec<Row> {
        match std::fs::read(&self.table) {
            Ok(bytes) => serde_json::from_slice::<Table>(&bytes).unwrap().pods,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => panic!("{}: {e}", self.table.display()),
        }
    }

    fn sessions(&self) -> Vec<SessionId> {
        self.store.list().unwrap()
    }

    fn state(&self, session: SessionId) -> State {
        let replay = self.store.reader(session).unwrap().replay().unwrap();
        State::replay(replay.iter().map(|sealed| &sealed.entry))
    }

    /// Whether somebody has work to do that was accepted.
    fn busy(&self, session: SessionId) -> bool {
        let facts = self.state(session).facts;
        facts.run.is_some() || !facts.queue.is_empty()
    }

    /// Says why it could not be done.
    fn wake(&self, session: SessionId) -> Result<(), String> {
        let done = self.world.run(&["send", &format!("s_{session}"), "go on"]);
        if done.code == Some(0) { Ok(()) } else { Err(done.err) }
    }
}

/// What can be written by two at once in this table, if anything can.
fn overlap(rows: &[Row]) -> Option<String> {
    let effective: Vec<_> = rows
        .iter()
        .map(|row| {
            (row, row.loans.iter().fold(row.scope.clone(), |scope, loan| subtract(&scope, &loan.scope)))
        })
        .collect();
    effective.iter().enumerate().find_map(|(at, (row, scope))| {
        effective.iter().skip(at + 1).find_map(|(other, others)| {
            let both = overlaps_write(scope, others)?;
            Some(format!("{} and {} can both write {both:?}", row.name, other.name))
        })
    })
}

fn cmdline(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn all_pids() -> Vec<u32> {
    let list = std::fs::read_dir("/proc").unwrap().flatten();
    list.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Pods of these sessions that the kernel has.
fn pods_of(sessions: &BTreeSet<SessionId>) -> Vec<(u32, SessionId)> {
    let session = |pid: u32| {
        let line = cmdline(pid);
        let id = line.strip_prefix("minke pod --session ")?.split(' ').next()?.parse().ok()?;
        Some((pid, id)).filter(|_| sessions.contains(&id))
    };
    all_pids().into_iter().filter_map(session).collect()
}

/// Processes that have ended and that one of these has not waited for.
fn zombies_of(parents: &BTreeSet<u32>) -> Vec<u32> {
    let zombie = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut words = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        words.next() == Some("Z")
            && words.next().and_then(|ppid| ppid.parse().ok()).is_some_and(|ppid| parents.contains(&ppid))
    };
    all_pids().into_iter().filter(zombie).collect()
}

#[track_caller]
fn until(what: &str, patience: Duration, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !so() {
        assert!(Instant::now() < deadline, "not after {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the killing has come to.
#[derive(Default)]
struct Figures {
    kills: u64,
    by_depth: BTreeMap<u32, u64>,
    back: Vec<Duration>,
    looks: u64,
    most: usize,
    woken: u64,
    refused: u64,
}

/// Why somebody could not be woken, without names and numbers: its first line.
fn plain(why: &str) -> String {
    let line = why.lines().find(|line| line.starts_with("error")).unwrap_or(why);
    let words = line.split(' ').map(|word| if word.contains(['`', '/', '_', '0']) { "…" } else { word });
    words.collect::<Vec<&str>>().join(" ")
}

fn kill(row: &Row) {
    let pid = Pid::from_raw(i32::try_from(row.pid).unwrap()).unwrap();
    match kill_process(pid, Signal::KILL) {
        // One that has just ended by itself is dead, too.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => panic!("{}: {e}", row.name),
    }
}

/// Waits until what a dead pod held is free, and says how long it took. Its parent sees to it; for one that has none
/// that lives, whoever looks first does.
fn back(tree: &Tree, row: &Row, parent_lives: bool) -> Duration {
    let begun = Instant::now();
    loop {
        if !parent_lives {
            drop(tree.world.run(&["ps", "--json"]));
        }
        let rows = tree.rows();
        let there = rows.iter().any(|now| now.session == row.session && now.pid == row.pid);
        if !there {
            return begun.elapsed();
        }
        if begun.elapsed() > SCOPE_BACK * 10 {
            panic!(
                "{} (process {}) is dead and still in the table after {:?}",
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
    survive(Some(BUDGET));
}

/// Without a budget nobody has to be woken by its parent: pods come back in any order, below nobody at first.
#[test]
fn a_tree_without_a_budget_survives_random_deaths() {
    survive(None);
}

fn survive(budget: Option<u64>) {
    let plan = plan();
    let tree = Tree::begin(budget);
    until("fifty pods live", REST_WAIT, || {
        tree.rows().iter().filter(|row| row.ticket_hash.is_none()).count() == PODS
    });
    let deepest = tree.rows().iter().map(|row| row.depth).max();
    assert_eq!(deepest, Some(4));
    let mut figures = Figures::default();
    let over = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    let sleeping: Mutex<BTreeSet<SessionId>> = Mutex::default();
    let woken = AtomicU64::new(0);
    let refused: Mutex<BTreeMap<String, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        // Whoever looks at any time sees no overlap.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(overlap(&tree.rows()), None);
                looks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        for _ in 0..WAKERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let Some(session) = sleeping.lock().unwrap().pop_first() else {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    match tree.wake(session) {
                        Ok(()) => drop(woken.fetch_add(1, Ordering::Relaxed)),
                        Err(why) => {
                            *refused.lock().unwrap().entry(plain(&why)).or_default() += 1;
                            sleeping.lock().unwrap().insert(session);
                        }
                    }
                }
            });
        }
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            storm(&tree, &plan, &sleeping, &mut figures);
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = killed {
            std::panic::resume_unwind(panic);
        }
    });
    figures.looks = looks.into_inner();
    let refused = refused.into_inner().unwrap();
    eprintln!("chaos: not woken because {refused:#?}");
    (figures.woken, figures.refused) = (woken.into_inner(), refused.values().sum());
    eprintln!("chaos: {} killed, {} woken, {} times not", figures.kills, figures.woken, figures.refused);
    let sessions: BTreeSet<SessionId> = tree.sessions().into_iter().collect();
    assert_eq!(sessions.len(), PODS, "nobody was spawned twice");
    everybody_lives(&tree, &sessions);
    rest(&tree);
    nobody_is_lost(&tree, &sessions);
    end(&tree, &sessions);
    let spent = costs(&tree, &sessions, budget);
    let commands: u64 = sessions.iter().map(|session| ran_once(&tree, *session)).sum();
    eprintln!("chaos: {commands} commands in fences");
    print(&figures, spent);
}

/// Kills somebody at random, again and again, as often as was planned.
fn storm(tree: &Tree, plan: &Plan, sleeping: &Mutex<BTreeSet<SessionId>>, figures: &mut Figures) {
    let begun = Instant::now();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    while figures.kills < plan.kills && begun.elapsed() < plan.at_most {
        let next = Instant::now() + plan.every;
        let rows = tree.rows();
        let live: Vec<&Row> = rows.iter().filter(|row| row.ticket_hash.is_none()).collect();
        if live.len() < LIVE_AT_LEAST {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        figures.most = figures.most.max(live.len());
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        if let Some(row) = live.get(usize::try_from(dice % live.len().max(1) as u64).unwrap()) {
            // One that is only starting sees to nobody yet.
            let parent = row.parent.is_some_and(|parent| live.iter().any(|other| other.session == parent));
            kill(row);
            let time = back(tree, row, parent);
            if time > SCOPE_BACK {
                let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
                eprintln!(
                    "chaos: {} at depth {} after {time:?}; parent lived: {parent}; load {load}",
                    row.name, row.depth
                );
            }
            figures.back.push(time);
            figures.kills += 1;
            *figures.by_depth.entry(row.depth).or_default() += 1;
            sleeping.lock().unwrap().insert(row.session);
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    assert_eq!(figures.kills, plan.kills, "the tree did not come back to life in {:?}", plan.at_most);
}

/// Everybody is woken who still has something to do and does not do it, until nobody has.
fn rest(tree: &Tree) {
    let deadline = Instant::now() + REST_WAIT;
    let mut told: BTreeMap<SessionId, (Instant, Result<(), String>)> = BTreeMap::new();
    loop {
        let busy: Vec<SessionId> =
            tree.sessions().into_iter().filter(|session| tree.busy(*session)).collect();
        if busy.is_empty() {
            return;
        }
        let rows = tree.rows();
        for session in &busy {
            let live = rows.iter().any(|row| row.session == *session);
            let facts = tree.state(*session).facts;
            // One that lives and whose queue is held goes on when it is told something more.
            let still = !live || (facts.run.is_none() && facts.held);
            if still && told.get(session).is_none_or(|(when, _)| when.elapsed() > WAKE_AGAIN) {
                told.insert(*session, (Instant::now(), tree.wake(*session)));
            }
        }
        if Instant::now() > deadline {
            let each = busy.iter().map(|session| {
                let facts = tree.state(*session).facts;
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
            panic!("these never come to an end: {:#?}", each.collect::<Vec<String>>());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Who is dead and had nothing to do is woken, too: it has to hear of its children. A pod comes back before those above
/// it whose scope its own children hold.
fn everybody_lives(tree: &Tree, sessions: &BTreeSet<SessionId>) {
    let mut why: Vec<String> = Vec::new();
    let mut woken = || {
        let rows = tree.rows();
        let dead = sessions.iter().filter(|session| !rows.iter().any(|row| row.session == **session));
        why = dead.filter_map(|session| tree.wake(*session).err()).collect();
        why.is_empty()
    };
    let deadline = Instant::now() + REST_WAIT;
    while !woken() {
        assert!(Instant::now() < deadline, "these cannot be woken: {why:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every process has its row, every row its process, every directory and socket its pod; nobody waits to be reaped.
fn nobody_is_lost(tree: &Tree, sessions: &BTreeSet<SessionId>) {
    drop(tree.world.run(&["ps", "--json"]));
    until("processes, rows and directories are the same", Duration::from_secs(20), || {
        let rows = tree.rows();
        let table: BTreeSet<(u32, SessionId)> = rows.iter().map(|row| (row.pid, row.session)).collect();
        let kernel: BTreeSet<(u32, SessionId)> = pods_of(sessions).into_iter().collect();
        let dirs: BTreeSet<String> = std::fs::read_dir(tree.world.home().join("run/pods"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let names: BTreeSet<String> = rows.iter().map(|row| row.name.to_string()).collect();
        let pids = table.iter().map(|(pid, _)| *pid).collect();
        table == kernel && dirs == names && zombies_of(&pids).is_empty()
    });
    assert_eq!(overlap(&tree.rows()), None);
}

/// Everybody is stopped, leaves first; nothing is left, and every log is sound.
fn end(tree: &Tree, sessions: &BTreeSet<SessionId>) {
    let mut rows = tree.rows();
    rows.sort_by_key(|row| std::cmp::Reverse(row.depth));
    for row in rows {
        // A parent hears of its last child before it ends itself, so that its own log has the whole sum.
        until("a parent knows that its children have ended", Duration::from_secs(20), || {
            tree.state(row.session).live_children().count() == 0
        });
        let done = tree.world.run(&["stop", &format!("s_{}", row.session)]);
        assert_eq!(done.code, Some(0), "{}: {done:?}", row.name);
    }
    until("no process is left", Duration::from_secs(20), || pods_of(sessions).is_empty());
    let left = std::fs::read_dir(tree.world.home().join("run/pods")).unwrap().count();
    assert_eq!(left, 0, "runtime directories");
    assert_eq!(tree.rows().len(), 0, "rows");
    let found: Value = tree.world.json(&["log", "verify", "--json"]);
    assert_eq!(found["ok"], true, "{found:#}");
    for session in sessions {
        let facts = tree.state(*session).facts;
        assert!(facts.run.is_none() && facts.calls.is_empty(), "{:?} has an open run", facts.name);
    }
}

/// No command ran that was not noted before, none twice, and every one that is said to have succeeded did run.
fn ran_once(tree: &Tree, session: SessionId) -> u64 {
    // A call's id comes again in a later run.
    let (mut open, mut noted, mut succeeded, mut cwd) = (BTreeSet::new(), 0, 0, None);
    let mut each = |sealed: Sealed| {
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
    tree.store.reader(session).unwrap().scan(0, &mut each).unwrap();
    let marks = std::fs::read_to_string(cwd.unwrap().join(MARKS)).unwrap_or_default();
    let ran = marks.lines().count() as u64;
    assert!(succeeded <= ran && ran <= noted, "{session}: {succeeded} succeeded, {ran} ran, {noted} noted");
    ran
}

/// What everybody has spent, by their own logs; every pod has heard exactly that of those below it, and the root has left
/// what was granted without it.
fn costs(tree: &Tree, sessions: &BTreeSet<SessionId>, budget: Option<u64>) -> u64 {
    let states: BTreeMap<SessionId, State> =
        sessions.iter().map(|session| (*session, tree.state(*session))).collect();
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
    let heard = |state: &State| (state.facts.name.clone(), state.spent().tokens);
    let wrong: Vec<_> = states
        .iter()
        .filter(|(session, state)| state.spent().tokens != below[session])
        .map(|(session, state)| format!("{:?} instead of {}", heard(state), below[session]))
        .collect();
    assert_eq!(wrong, Vec::<String>::new(), "what pods know of what was spent below them");
    let root = states.values().find(|state| state.facts.about.as_ref().is_some_and(|a| a.parent.is_none()));
    let root = root.unwrap();
    let spent = below.values().max().copied().unwrap();
    assert_eq!(root.left().tokens, budget.map(|granted| granted - spent), "granted = spent + left");
    spent
}

fn print(figures: &Figures, spent: u64) {
    let mut back = figures.back.clone();
    back.sort_unstable();
    let at = |part: usize| back.get(back.len() * part / 100).or(back.last()).copied().unwrap_or_default();
    let slow = back.iter().filter(|time| **time > SCOPE_BACK).count();
    eprintln!(
        "chaos: {} pods, {} killed (by depth {:?}), {} lived at once at most; scope back p50 {:?}, p99 {:?}, worst {:?}, \
         {slow} over {SCOPE_BACK:?}; {} woken, {} times not; table read {} times, 0 overlaps; {spent} tokens",
        PODS,
        figures.kills,
        figures.by_depth,
        figures.most,
        at(50),
        at(99),
        at(100),
        figures.woken,
        figures.refused,
        figures.looks,
    );
    assert_eq!(slow, 0, "scope was back too late");
}
