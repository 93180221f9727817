//! Telling hooks afterwards: all of it, in order, at least once, and in nobody's way.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_hooks::{Hooks, Observing};
use minke_record::{
    Alert, AlertLevel, AlertSource, Answer, Ask, AskId, AskKind, AskSubject, CallId, Decision, Ids,
    RunCompleted, RunResult,
};

use crate::support::{
    Home, Log, SECRET, bash, before_tool, children, dispatch, lines, mark, marked, result, until,
};
use crate::web::{Server, respond};

const LONG: Duration = Duration::from_secs(10);

fn file_hook(event: &str, file: &Path) -> String {
    format!("[[hook]]\nevent = \"{event}\"\nfile = \"{}\"\n", file.display())
}

/// The numbers of the entries in the lines of a file.
fn seqs(file: &Path) -> Vec<u64> {
    lines(file).iter().map(|line| line["event"]["seq"].as_u64().unwrap()).collect()
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn to(&self, observing: Observing) -> Observing {
        let told = self.clone();
        Observing { tell: Arc::new(move |what| told.0.lock().unwrap().push(what)), ..observing }
    }

    fn with(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|told| told.contains(what)).count()
    }
}

#[tokio::test]
async fn events_come_whole_in_order_and_once_if_nothing_is_killed() {
    let home = Home::new();
    let (after, ends) = (home.at("after.jsonl"), home.at("ends.jsonl"));
    let hooks = home.hooks(&(file_hook("after_tool", &after) + &file_hook("run_end", &ends)));
    let log = Log::default();
    for life in 0..3 {
        let observers = hooks.observe(log.observing(&home));
        for call in 0..50 {
            observers.committed(log.call(life * 50 + call));
        }
        observers.committed(log.push(RunCompleted { result: RunResult::Finished, reason: None }));
        assert_eq!(observers.stop(LONG).await, Vec::new());
        assert_eq!(lines(&after).len(), (life + 1) * 50);
    }
    let told = lines(&after);
    assert!(seqs(&after).is_sorted());
    let event = &told[7]["event"];
    assert_eq!(event["type"], "after_tool");
    assert_eq!((event["tool"].as_str(), event["outcome"].as_str()), (Some("Bash"), Some("done")));
    assert_eq!(told[7]["at"], "2026-11-15T18:20:05.015Z");
    let text = std::fs::read_to_string(&after).unwrap();
    assert!(!text.contains(SECRET) && text.contains("[secret TEST]"));
    assert_eq!(lines(&ends).len(), 3);
}

#[tokio::test]
async fn a_new_hook_begins_with_this_life_and_a_lost_cursor_with_the_log() {
    let home = Home::new();
    let log = Log::default();
    for number in 0..10 {
        log.call(number);
    }
    let file = home.at("after.jsonl");
    let hooks = home.hooks(&file_hook("after_tool", &file));
    let from = log.call(10) - 1;
    let observing = || Observing { from, ..log.observing(&home) };
    assert_eq!(hooks.observe(observing()).stop(LONG).await, Vec::new());
    assert_eq!(seqs(&file), [from + 1]);
    let cursors: Vec<_> = std::fs::read_dir(home.at("state/hooks/session")).unwrap().flatten().collect();
    assert_eq!(cursors.len(), 1);
    std::fs::write(cursors[0].path(), "{\"seq\":").unwrap();
    let told = Told::default();
    hooks.observe(told.to(observing())).stop(LONG).await;
    assert_eq!(told.with("its cursor cannot be read"), 1);
    assert_eq!(seqs(&file).len(), 1 + 11);
    // A log that is another one than it was.
    std::fs::write(cursors[0].path(), "{\"seq\":3,\"h\":\"00000000000000000000000000000001\"}").unwrap();
    hooks.observe(told.to(observing())).stop(LONG).await;
    assert_eq!(told.with("the log is another one"), 1, "{:?}", told.0.lock().unwrap());
    assert_eq!(seqs(&file).len(), 1 + 22);
}

#[tokio::test]
async fn a_dead_webhook_costs_nothing_but_a_visible_lag() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let file = home.at("after.jsonl");
    let toml = format!(
        "{}[[hook]]\nname = \"w\"\nevent = \"after_tool\"\nhttp = \"http://{address}/hook?token=t0ken\"\n",
        file_hook("after_tool", &file)
    );
    let hooks = home.hooks(&toml);
    let (log, told) = (Log::default(), Told::default());
    let observers = hooks.observe(told.to(log.observing(&home)));
    for number in 0..200 {
        observers.committed(log.call(number));
    }
    until(LONG, "the file has all of it", || lines(&file).len() == 200).await;
    until(LONG, "its failure is told", || told.with("hook w: http://") == 1).await;
    until(LONG, "the file is not behind", || observers.lag().len() == 1).await;
    let lag = observers.lag();
    assert_eq!((lag.len(), lag[0].hook.as_str()), (1, "w"));
    assert!(lag[0].behind >= 399 && lag[0].why.as_ref().unwrap().contains("cannot be reached"), "{lag:?}");
    assert_eq!(told.with("hook w is more than 256 entries behind"), 1);
    // It comes back.
    let server =
        Server::on(TcpListener::bind(address).unwrap(), |stream| respond(stream, "200 OK", "ignored"));
    until(Duration::from_secs(20), "it has all of it", || server.bodies.lock().unwrap().len() == 200).await;
    until(LONG, "it has caught up", || told.with("hook w: has caught up") == 1).await;
    assert_eq!(told.with("hook w: is told what happens again"), 1);
    assert_eq!(observers.lag(), Vec::new());
    assert_eq!(observers.stop(LONG).await, Vec::new());
}

#[tokio::test]
async fn a_webhook_that_refuses_an_event_loses_it_and_gets_the_next() {
    let home = Home::new();
    let server = Server::new(|stream| respond(stream, "400 Bad Request", ""));
    let toml = format!("[[hook]]\nname = \"w\"\nevent = \"after_tool\"\nhttp = \"{}\"\n", server.url);
    let (log, told) = (Log::default(), Told::default());
    for number in 0..5 {
        log.call(number);
    }
    let hooks = home.hooks(&toml);
    assert_eq!(hooks.observe(told.to(log.observing(&home))).stop(LONG).await, Vec::new());
    assert_eq!(server.bodies.lock().unwrap().len(), 5);
    assert_eq!(told.with("this event is left out"), 1, "told once");
}

#[tokio::test]
async fn a_socket_gets_what_it_missed() {
    let home = Home::new();
    let path = home.at("events.sock");
    let toml = format!("[[hook]]\nname = \"s\"\nevent = \"before_tool\"\nsocket = \"{}\"\n", path.display());
    let (log, told) = (Log::default(), Told::default());
    for number in 0..30 {
        log.call(number);
    }
    let hooks = home.hooks(&toml);
    assert!(!hooks.steers(minke_hooks::Event::BeforeTool), "a socket gives no answer");
    let observers = hooks.observe(told.to(log.observing(&home)));
    until(LONG, "nobody listens", || told.with("takes nothing") == 1).await;
    let listener = UnixListener::bind(&path).unwrap();
    let reading = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < 30 {
            let (stream, _) = listener.accept().unwrap();
            seen.extend(BufReader::new(stream).lines().map(Result::unwrap));
        }
        seen
    });
    assert_eq!(observers.lag().len(), 1);
    until(LONG, "it has all of it", || reading.is_finished()).await;
    let seen = reading.join().unwrap();
    assert!(seen[0].contains("\"type\":\"before_tool\""), "{}", seen[0]);
    assert_eq!(observers.stop(LONG).await, Vec::new());
}

#[tokio::test]
async fn observers_never_hold_up_a_question() {
    let home = Home::new();
    let mark = mark();
    let quick = before_tool("quick", "true", "");
    let slow = format!("{quick}[[hook]]\nevent = \"after_tool\"\ncommand = \"sleep {mark}\"\n");
    let many = 100;
    let mut took = Vec::new();
    for toml in [&quick, &slow] {
        let hooks = home.hooks(toml);
        let log = Log::default();
        let observers = hooks.observe(log.observing(&home));
        let began = Instant::now();
        let mut committing = Duration::ZERO;
        for number in 0..many {
            let steered = hooks.ask(&bash()).await;
            assert_eq!(steered.problems, Vec::<String>::new());
            let seq = log.call(number);
            let begun = Instant::now();
            observers.committed(seq);
            committing += begun.elapsed();
        }
        took.push(began.elapsed());
        assert!(committing < Duration::from_millis(50), "telling observers took {committing:?}");
        let begun = Instant::now();
        let left = observers.stop(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(left.is_empty(), toml == &quick, "{left:?}");
    }
    let ratio = took[1].as_secs_f64() / took[0].as_secs_f64();
    eprintln!(
        "{many} calls: {:?} without, {:?} beside an observer that hangs: ratio {ratio:.2}",
        took[0], took[1]
    );
    assert!(ratio < 2.0, "{took:?}");
    until(LONG, "the observer's command is gone", || marked(&mark) == 0).await;
}

#[tokio::test]
async fn stopping_waits_no_longer_than_it_may() {
    let home = Home::new();
    let mark = mark();
    let toml: String = (0..20)
        .map(|n| {
            format!(
                "[[hook]]\nname = \"{n}\"\nevent = \"after_tool\"\ncommand = \"sleep {mark} ; true {n}\"\n"
            )
        })
        .collect();
    let hooks = home.hooks(&toml);
    let log = Log::default();
    log.call(0);
    let observers = hooks.observe(log.observing(&home));
    until(LONG, "all of them hang", || marked(&mark) >= 20).await;
    let began = Instant::now();
    let left = observers.stop(Duration::from_millis(300)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(left.len(), 20);
    until(LONG, "nothing is left of them", || marked(&mark) == 0 && children() == 0).await;
    // Dropped without a word, the same.
    let observers = hooks.observe(log.observing(&home));
    until(LONG, "all of them hang", || marked(&mark) >= 20).await;
    drop(observers);
    until(LONG, "nothing is left of them", || marked(&mark) == 0).await;
}

#[tokio::test]
async fn a_command_that_fails_is_told_and_gets_the_next_event() {
    let home = Home::new();
    let line = "cat >> seen; exit 7";
    let toml = format!("[[hook]]\nname = \"c\"\nevent = \"after_tool\"\ncommand = '''{line}'''\n");
    let (log, told) = (Log::default(), Told::default());
    for number in 0..4 {
        log.call(number);
    }
    let hooks = home.hooks(&toml);
    assert_eq!(hooks.observe(told.to(log.observing(&home))).stop(LONG).await, Vec::new());
    assert_eq!(lines(&home.at("work/seen")).len(), 4);
    assert_eq!(told.with("hook c: it ended with 7"), 1);
    // Without a fence it waits for another life.
    let around = minke_hooks::Around { commands: None, ..home.around() };
    let without = Hooks::new(home.loaded(&toml), around);
    log.call(4);
    let left = without.observe(told.to(log.observing(&home))).stop(LONG).await;
    assert_eq!((left.len(), told.with("tier D")), (1, 1), "{left:?}");
    hooks.observe(log.observing(&home)).stop(LONG).await;
    assert_eq!(lines(&home.at("work/seen")).len(), 5);
}

#[tokio::test]
async fn the_lifecycle_comes_in_its_order() {
    let home = Home::new();
    let file = home.at("life.jsonl");
    let hooks = home.hooks(&file_hook("lifecycle", &file));
    let log = Log::default();
    let mut ids = Ids::new(1, 1);
    let call = |name: &str| CallId(name.to_owned());
    // Runs.
    log.push(dispatch(&call("runs")));
    log.push(result(&call("runs"), false));
    // Is asked about, approved, and fails.
    let ask = |id: AskId, name: &str| Ask {
        id,
        ask: AskKind::Approval,
        subject: AskSubject {
            call_id: Some(call(name)),
            tool: Some("Bash".to_owned()),
            ..AskSubject::default()
        },
        options: Vec::new(),
        expires: None,
    };
    let (first, second) = (AskId(ids.next_uuid()), AskId(ids.next_uuid()));
    let answer = |id, decision| Answer { id, decision, note: None, by: minke_record::Actor::person("cli") };
    log.push(ask(first, "asked"));
    log.push(answer(first, Decision::Approved));
    log.push(dispatch(&call("asked")));
    log.push(result(&call("asked"), true));
    // Is asked about and denied.
    log.push(ask(second, "no"));
    log.push(answer(second, Decision::Denied));
    log.push(result(&call("no"), true));
    // Is denied by policy.
    log.push(result(&call("policy"), true));
    log.push(Alert { level: AlertLevel::Warn, source: AlertSource::Policy, message: "x".to_owned() });
    let frames: minke_hooks::Frames = Arc::new(|entry| match &entry.kind {
        minke_record::Kind::Alert(_) => Vec::new(),
        kind => vec![serde_json::json!({ "event": kind.name() })],
    });
    hooks.observe(Observing { frames, ..log.observing(&home) }).stop(LONG).await;
    let order: Vec<String> = lines(&file)
        .iter()
        .map(|line| {
            let event = &line["event"];
            match event["type"].as_str().unwrap() {
                "generic_event_frame" => format!("frame {}", event["frame"]["event"].as_str().unwrap()),
                kind => format!("{kind} {}", event["phase"].as_str().unwrap()),
            }
        })
        .collect();
    let wanted = "tool_lifecycle precheck|frame tool_dispatch|tool_lifecycle dispatching|frame tool_result|\
                  tool_lifecycle completed|\
                  tool_lifecycle precheck|approval_lifecycle requested|frame ask|approval_lifecycle approved|\
                  frame answer|frame tool_dispatch|tool_lifecycle dispatching|frame tool_result|\
                  tool_lifecycle failed|\
                  tool_lifecycle precheck|approval_lifecycle requested|frame ask|approval_lifecycle denied|\
                  frame answer|frame tool_result|\
                  tool_lifecycle precheck|approval_lifecycle denied|frame tool_result";
    assert_eq!(order, wanted.split('|').collect::<Vec<_>>());
}

/// Set in the process that is killed: where it works.
const VICTIM: &str = "MINKE_HOOKS_VICTIM";
const CALLS: usize = 400;

fn long_log() -> Log {
    let log = Log::default();
    for number in 0..CALLS {
        log.call(number);
    }
    log
}

/// Not a test of its own: the process that the next one kills.
#[tokio::test]
async fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let home = Home::new();
    let file = Path::new(&dir).join("after.jsonl");
    let hooks = home.hooks(&file_hook("after_tool", &file));
    let cursors = Path::new(&dir).join("cursors");
    let left = hooks.observe(Observing { cursors, ..long_log().observing(&home) }).stop(LONG).await;
    assert_eq!(left, Vec::new());
}

#[test]
fn observers_miss_nothing_when_they_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("after.jsonl");
    let spawn = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "observing::victim"]).env(VICTIM, dir.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let (mut killed, mut seen) = (0, 0);
    for round in 0_u64..12 {
        let mut child = spawn();
        // Until it has written something more, then a little longer each time.
        let until = Instant::now() + LONG;
        while lines_so_far(&file) <= seen && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it tells nothing");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(300 * round));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        seen = lines_so_far(&file);
    }
    assert!(spawn().wait().unwrap().success());
    let all = seqs(&file);
    eprintln!("killed {killed} times: {} lines for {CALLS} events", all.len());
    assert!(killed > 3, "it was killed in the middle {killed} times");
    let mut once = all.clone();
    once.sort_unstable();
    once.dedup();
    let wanted: Vec<u64> = (0..CALLS as u64).map(|number| 2 * number + 1).collect();
    assert_eq!(once, wanted, "every event is there");
    // Each life goes on where the one before was, or a little before.
    let mut furthest = 0;
    for seq in all {
        assert!(seq <= furthest + 2, "{seq} after {furthest}: something was left out");
        furthest = furthest.max(seq);
    }
}

fn lines_so_far(file: &Path) -> usize {
    std::fs::read(file).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

/// The first entry of a job.
fn job(mandate: serde_json::Value) -> minke_record::SessionStart {
    minke_record::SessionStart {
        session: minke_record::SessionId(Ids::new(1_794_766_805_000, 7).next_uuid()),
        format: 1,
        version: "0.1.0".to_owned(),
        name: "job".parse().unwrap(),
        created_by: minke_record::Actor::person("cli"),
        cwd: "/w".to_owned(),
        workspace: "/w".to_owned(),
        git: None,
        manifest: serde_json::json!({}),
        scope: minke_record::Scope::write("/w"),
        mandate: Some(mandate),
        metadata: None,
        parent: None,
        from: None,
    }
}

fn states(file: &Path) -> Vec<String> {
    lines(file).iter().map(|line| line["event"]["state"].as_str().unwrap_or("-").to_owned()).collect()
}

#[tokio::test]
async fn ends_of_a_job_are_told_to_those_its_mandate_names_also_if_nobody_lived_then() {
    let home = Home::new();
    let (named, all, other) = (home.at("named.jsonl"), home.at("all.jsonl"), home.at("other.jsonl"));
    let hook = |name: &str, when: &str, file: &Path| {
        format!("[[hook]]\nname = \"{name}\"\nevent = \"job\"\n{when}\nfile = \"{}\"\n", file.display())
    };
    let only = "when = { job = \"named\" }";
    let hooks =
        home.hooks(&(hook("named", only, &named) + &hook("all", "", &all) + &hook("other", only, &other)));
    let log = Log::default();
    log.push(job(serde_json::json!({ "objective": "tidy up", "notify": ["named"] })));
    let change = |state| minke_record::StateChange {
        state,
        on: None,
        until: None,
        reason: Some("later".to_owned()),
        by: None,
        firing: None,
    };
    // Nobody lived when it was paused.
    log.push(change(minke_record::StateWord::Paused));
    let from = 2;
    let observing =
        || Observing { from, notify: vec!["named".to_owned(), "gone".to_owned()], ..log.observing(&home) };
    let told = Told::default();
    let observers = hooks.observe(told.to(observing()));
    assert_eq!(told.with("names the hook gone"), 1);
    observers.committed(log.push(change(minke_record::StateWord::Queued)));
    observers.committed(log.push(change(minke_record::StateWord::Abandoned)));
    assert_eq!(observers.stop(LONG).await, Vec::new());
    assert_eq!(states(&named), ["paused", "cancelled"]);
    assert_eq!(states(&all), ["queued", "cancelled"]);
    assert!(!other.exists());
    // The next life tells nothing twice.
    hooks.observe(observing()).stop(LONG).await;
    assert_eq!((states(&named).len(), states(&all).len()), (2, 2));
    let event = &lines(&named)[1]["event"];
    assert_eq!((event["objective"].as_str(), event["phase"].as_str()), (Some("tidy up"), Some("cancelled")));
}
