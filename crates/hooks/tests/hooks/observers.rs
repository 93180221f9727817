//! Observers: every event, in order, at least once, without delaying the pod.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_hooks::{HookSet, ObserverConfig};
use minke_record::{
    Alert, AlertLevel, AlertSource, Answer, Ask, AskId, AskKind, AskSubject, CallId, Decision, IdGenerator,
    RunCompleted, RunResult,
};

use crate::support::{
    GrowingLog, HookHome, SECRET, bash_question, before_tool_hook, count_children, count_marked,
    dispatch_entry, event_lines, result_entry, unique_mark, wait_until,
};
use crate::web::{HookServer, write_response};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn file_hook(event: &str, file: &Path) -> String {
    format!("[[hook]]\nevent = \"{event}\"\nfile = \"{}\"\n", file.display())
}

/// The entry numbers in the lines of a file.
fn entry_seqs(file: &Path) -> Vec<u64> {
    event_lines(file).iter().map(|line| line["event"]["seq"].as_u64().unwrap()).collect()
}

#[derive(Clone, Default)]
struct AlertLog(Arc<Mutex<Vec<String>>>);

impl AlertLog {
    fn attach_to(&self, config: ObserverConfig) -> ObserverConfig {
        let told = self.clone();
        ObserverConfig { alert: Arc::new(move |what| told.0.lock().unwrap().push(what)), ..config }
    }

    fn count_containing(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|told| told.contains(what)).count()
    }
}

#[tokio::test]
async fn events_come_whole_in_order_and_once_if_nothing_is_killed() {
    let home = HookHome::new();
    let (after, ends) = (home.path_of("after.jsonl"), home.path_of("ends.jsonl"));
    let hooks = home.hook_set(&(file_hook("after_tool", &after) + &file_hook("run_end", &ends)));
    let log = GrowingLog::default();
    for life in 0..3 {
        let observers = hooks.start_observers(log.observer_config(&home));
        for call in 0..50 {
            observers.notify_committed(log.push_call(life * 50 + call));
        }
        observers.notify_committed(log.push(RunCompleted { result: RunResult::Finished, reason: None }));
        assert_eq!(observers.stop_observers(TEST_TIMEOUT).await, Vec::new());
        assert_eq!(event_lines(&after).len(), (life + 1) * 50);
    }
    let told = event_lines(&after);
    assert!(entry_seqs(&after).is_sorted());
    let event = &told[7]["event"];
    assert_eq!(event["type"], "after_tool");
    assert_eq!((event["tool"].as_str(), event["outcome"].as_str()), (Some("Bash"), Some("done")));
    assert_eq!(told[7]["at"], "2026-11-15T18:20:05.015Z");
    let text = std::fs::read_to_string(&after).unwrap();
    assert!(!text.contains(SECRET) && text.contains("[secret TEST]"));
    assert_eq!(event_lines(&ends).len(), 3);
}

#[tokio::test]
async fn a_new_hook_starts_with_this_process_and_a_lost_cursor_with_the_log() {
    let home = HookHome::new();
    let log = GrowingLog::default();
    for number in 0..10 {
        log.push_call(number);
    }
    let file = home.path_of("after.jsonl");
    let hooks = home.hook_set(&file_hook("after_tool", &file));
    let from = log.push_call(10) - 1;
    let config = || ObserverConfig { from, ..log.observer_config(&home) };
    assert_eq!(hooks.start_observers(config()).stop_observers(TEST_TIMEOUT).await, Vec::new());
    assert_eq!(entry_seqs(&file), [from + 1]);
    let cursors: Vec<_> = std::fs::read_dir(home.path_of("state/hooks/session")).unwrap().flatten().collect();
    assert_eq!(cursors.len(), 1);
    std::fs::write(cursors[0].path(), "{\"seq\":").unwrap();
    let told = AlertLog::default();
    hooks.start_observers(told.attach_to(config())).stop_observers(TEST_TIMEOUT).await;
    assert_eq!(told.count_containing("could not read its cursor"), 1);
    assert_eq!(entry_seqs(&file).len(), 1 + 11);
    // The log is replaced by a different one.
    std::fs::write(cursors[0].path(), "{\"seq\":3,\"h\":\"00000000000000000000000000000001\"}").unwrap();
    hooks.start_observers(told.attach_to(config())).stop_observers(TEST_TIMEOUT).await;
    assert_eq!(
        told.count_containing("its cursor belongs to a different log"),
        1,
        "{:?}",
        told.0.lock().unwrap()
    );
    assert_eq!(entry_seqs(&file).len(), 1 + 22);
}

#[tokio::test]
async fn a_dead_webhook_costs_nothing_but_a_visible_lag() {
    let home = HookHome::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let file = home.path_of("after.jsonl");
    let toml = format!(
        "{}[[hook]]\nname = \"w\"\nevent = \"after_tool\"\nhttp = \"http://{address}/hook?token=t0ken\"\n",
        file_hook("after_tool", &file)
    );
    let hooks = home.hook_set(&toml);
    let (log, told) = (GrowingLog::default(), AlertLog::default());
    let observers = hooks.start_observers(told.attach_to(log.observer_config(&home)));
    for number in 0..200 {
        observers.notify_committed(log.push_call(number));
    }
    wait_until(TEST_TIMEOUT, "the file has all of it", || event_lines(&file).len() == 200).await;
    wait_until(TEST_TIMEOUT, "its failure is reported", || {
        told.count_containing("hook w: could not reach http://") == 1
    })
    .await;
    wait_until(TEST_TIMEOUT, "the file is not behind", || observers.list_lag().len() == 1).await;
    let lag = observers.list_lag();
    assert_eq!((lag.len(), lag[0].hook.as_str()), (1, "w"));
    assert!(
        lag[0].behind >= 399 && lag[0].last_error.as_ref().unwrap().contains("could not reach"),
        "{lag:?}"
    );
    assert_eq!(told.count_containing("hook w is more than 256 entries behind"), 1);
    // The server comes back.
    let server = HookServer::with_listener(TcpListener::bind(address).unwrap(), |stream| {
        write_response(stream, "200 OK", "ignored")
    });
    wait_until(Duration::from_secs(20), "it has all of it", || server.bodies.lock().unwrap().len() == 200)
        .await;
    wait_until(TEST_TIMEOUT, "it has caught up", || told.count_containing("hook w: has caught up") == 1)
        .await;
    assert_eq!(told.count_containing("hook w: receives events again"), 1);
    assert_eq!(observers.list_lag(), Vec::new());
    assert_eq!(observers.stop_observers(TEST_TIMEOUT).await, Vec::new());
}

#[tokio::test]
async fn a_webhook_that_refuses_an_event_loses_it_and_gets_the_next() {
    let home = HookHome::new();
    let server = HookServer::new(|stream| write_response(stream, "400 Bad Request", ""));
    let toml = format!("[[hook]]\nname = \"w\"\nevent = \"after_tool\"\nhttp = \"{}\"\n", server.url);
    let (log, told) = (GrowingLog::default(), AlertLog::default());
    for number in 0..5 {
        log.push_call(number);
    }
    let hooks = home.hook_set(&toml);
    assert_eq!(
        hooks.start_observers(told.attach_to(log.observer_config(&home))).stop_observers(TEST_TIMEOUT).await,
        Vec::new()
    );
    assert_eq!(server.bodies.lock().unwrap().len(), 5);
    assert_eq!(told.count_containing("this event is skipped"), 1, "reported once");
}

#[tokio::test]
async fn a_socket_gets_what_it_missed() {
    let home = HookHome::new();
    let path = home.path_of("events.sock");
    let toml = format!("[[hook]]\nname = \"s\"\nevent = \"before_tool\"\nsocket = \"{}\"\n", path.display());
    let (log, told) = (GrowingLog::default(), AlertLog::default());
    for number in 0..30 {
        log.push_call(number);
    }
    let hooks = home.hook_set(&toml);
    assert!(!hooks.has_hooks_for(minke_hooks::HookEvent::BeforeTool), "a socket gives no answer");
    let observers = hooks.start_observers(told.attach_to(log.observer_config(&home)));
    wait_until(TEST_TIMEOUT, "no listener", || told.count_containing("could not write to the socket") == 1)
        .await;
    let listener = UnixListener::bind(&path).unwrap();
    let reading = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < 30 {
            let (stream, _) = listener.accept().unwrap();
            seen.extend(BufReader::new(stream).lines().map(Result::unwrap));
        }
        seen
    });
    assert_eq!(observers.list_lag().len(), 1);
    wait_until(TEST_TIMEOUT, "it has all of it", || reading.is_finished()).await;
    let seen = reading.join().unwrap();
    assert!(seen[0].contains("\"type\":\"before_tool\""), "{}", seen[0]);
    assert_eq!(observers.stop_observers(TEST_TIMEOUT).await, Vec::new());
}

#[tokio::test]
async fn observers_never_hold_up_a_question() {
    let home = HookHome::new();
    let mark = unique_mark();
    let quick = before_tool_hook("quick", "true", "");
    let slow = format!("{quick}[[hook]]\nevent = \"after_tool\"\ncommand = \"sleep {mark}\"\n");
    let many = 100;
    let mut took = Vec::new();
    for toml in [&quick, &slow] {
        let hooks = home.hook_set(toml);
        let log = GrowingLog::default();
        let observers = hooks.start_observers(log.observer_config(&home));
        let began = Instant::now();
        let mut committing = Duration::ZERO;
        for number in 0..many {
            let steered = hooks.ask_hooks(&bash_question()).await;
            assert_eq!(steered.problems, Vec::<String>::new());
            let seq = log.push_call(number);
            let begun = Instant::now();
            observers.notify_committed(seq);
            committing += begun.elapsed();
        }
        took.push(began.elapsed());
        assert!(committing < Duration::from_millis(50), "notifying observers took {committing:?}");
        let begun = Instant::now();
        let left = observers.stop_observers(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(left.is_empty(), toml == &quick, "{left:?}");
    }
    let ratio = took[1].as_secs_f64() / took[0].as_secs_f64();
    eprintln!("{many} calls: {:?} without, {:?} with a hanging observer: ratio {ratio:.2}", took[0], took[1]);
    assert!(ratio < 2.0, "{took:?}");
    wait_until(TEST_TIMEOUT, "the observer's command is gone", || count_marked(&mark) == 0).await;
}

#[tokio::test]
async fn stopping_waits_no_longer_than_it_may() {
    let home = HookHome::new();
    let mark = unique_mark();
    let toml: String = (0..20)
        .map(|n| {
            format!(
                "[[hook]]\nname = \"{n}\"\nevent = \"after_tool\"\ncommand = \"sleep {mark} ; true {n}\"\n"
            )
        })
        .collect();
    let hooks = home.hook_set(&toml);
    let log = GrowingLog::default();
    log.push_call(0);
    let observers = hooks.start_observers(log.observer_config(&home));
    wait_until(TEST_TIMEOUT, "all of them hang", || count_marked(&mark) >= 20).await;
    let began = Instant::now();
    let left = observers.stop_observers(Duration::from_millis(300)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(left.len(), 20);
    wait_until(TEST_TIMEOUT, "nothing is left of them", || count_marked(&mark) == 0 && count_children() == 0)
        .await;
    // The same without an orderly stop.
    let observers = hooks.start_observers(log.observer_config(&home));
    wait_until(TEST_TIMEOUT, "all of them hang", || count_marked(&mark) >= 20).await;
    drop(observers);
    wait_until(TEST_TIMEOUT, "nothing is left of them", || count_marked(&mark) == 0).await;
}

#[tokio::test]
async fn a_command_that_fails_is_told_and_gets_the_next_event() {
    let home = HookHome::new();
    let line = "cat >> seen; exit 7";
    let toml = format!("[[hook]]\nname = \"c\"\nevent = \"after_tool\"\ncommand = '''{line}'''\n");
    let (log, told) = (GrowingLog::default(), AlertLog::default());
    for number in 0..4 {
        log.push_call(number);
    }
    let hooks = home.hook_set(&toml);
    assert_eq!(
        hooks.start_observers(told.attach_to(log.observer_config(&home))).stop_observers(TEST_TIMEOUT).await,
        Vec::new()
    );
    assert_eq!(event_lines(&home.path_of("work/seen")).len(), 4);
    assert_eq!(told.count_containing("hook c: it exited with 7"), 1);
    // Without a sandbox it waits for another process.
    let context = minke_hooks::HookContext { commands: None, ..home.hook_context() };
    let without = HookSet::new(home.load_toml(&toml), context);
    log.push_call(4);
    let left = without
        .start_observers(told.attach_to(log.observer_config(&home)))
        .stop_observers(TEST_TIMEOUT)
        .await;
    assert_eq!((left.len(), told.count_containing("no sandbox works")), (1, 1), "{left:?}");
    hooks.start_observers(log.observer_config(&home)).stop_observers(TEST_TIMEOUT).await;
    assert_eq!(event_lines(&home.path_of("work/seen")).len(), 5);
}

#[tokio::test]
async fn the_lifecycle_comes_in_its_order() {
    let home = HookHome::new();
    let file = home.path_of("life.jsonl");
    let hooks = home.hook_set(&file_hook("lifecycle", &file));
    let log = GrowingLog::default();
    let mut ids = IdGenerator::new(1, 1);
    let call = |name: &str| CallId(name.to_owned());
    // Runs.
    log.push(dispatch_entry(&call("runs")));
    log.push(result_entry(&call("runs"), false));
    // Needs an approval, gets it, and fails.
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
    let answer =
        |id, decision| Answer { id, decision, note: None, by: minke_record::Actor::from_person("cli") };
    log.push(ask(first, "asked"));
    log.push(answer(first, Decision::Approved));
    log.push(dispatch_entry(&call("asked")));
    log.push(result_entry(&call("asked"), true));
    // Needs an approval and is denied.
    log.push(ask(second, "no"));
    log.push(answer(second, Decision::Denied));
    log.push(result_entry(&call("no"), true));
    // Is denied by policy.
    log.push(result_entry(&call("policy"), true));
    log.push(Alert { level: AlertLevel::Warn, source: AlertSource::Policy, message: "x".to_owned() });
    let frames: minke_hooks::FramesFn = Arc::new(|entry| match &entry.kind {
        minke_record::Kind::Alert(_) => Vec::new(),
        kind => vec![serde_json::json!({ "event": kind.name() })],
    });
    hooks
        .start_observers(ObserverConfig { frames, ..log.observer_config(&home) })
        .stop_observers(TEST_TIMEOUT)
        .await;
    let order: Vec<String> = event_lines(&file)
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

/// The variable with the working directory of the process to kill.
const VICTIM_ENV: &str = "MINKE_HOOKS_VICTIM";
const CALLS: usize = 400;

fn long_log() -> GrowingLog {
    let log = GrowingLog::default();
    for number in 0..CALLS {
        log.push_call(number);
    }
    log
}

/// Not a test of its own: the process that the next test kills.
#[tokio::test]
async fn victim() {
    let Some(dir) = std::env::var_os(VICTIM_ENV) else { return };
    let home = HookHome::new();
    let file = Path::new(&dir).join("after.jsonl");
    let hooks = home.hook_set(&file_hook("after_tool", &file));
    let cursors = Path::new(&dir).join("cursors");
    let left = hooks
        .start_observers(ObserverConfig { cursors, ..long_log().observer_config(&home) })
        .stop_observers(TEST_TIMEOUT)
        .await;
    assert_eq!(left, Vec::new());
}

#[test]
fn observers_miss_nothing_when_they_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("after.jsonl");
    let spawn = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "observers::victim"]).env(VICTIM_ENV, dir.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let (mut killed, mut seen) = (0, 0);
    for round in 0_u64..12 {
        let mut child = spawn();
        // Waits for more output, then a little longer each time.
        let until = Instant::now() + TEST_TIMEOUT;
        while count_lines(&file) <= seen && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it delivers nothing");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(300 * round));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        seen = count_lines(&file);
    }
    assert!(spawn().wait().unwrap().success());
    let all = entry_seqs(&file);
    eprintln!("killed {killed} times: {} lines for {CALLS} events", all.len());
    assert!(killed > 3, "it was killed in the middle {killed} times");
    let mut once = all.clone();
    once.sort_unstable();
    once.dedup();
    let wanted: Vec<u64> = (0..CALLS as u64).map(|number| 2 * number + 1).collect();
    assert_eq!(once, wanted, "every event is there");
    // Each process continues where the previous one was, or a little before.
    let mut furthest = 0;
    for seq in all {
        assert!(seq <= furthest + 2, "{seq} after {furthest}: an event is missing");
        furthest = furthest.max(seq);
    }
}

fn count_lines(file: &Path) -> usize {
    std::fs::read(file).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

/// The first entry of a job.
fn job_start(mandate: serde_json::Value) -> minke_record::SessionStart {
    minke_record::SessionStart {
        session: minke_record::SessionId(IdGenerator::new(1_794_766_805_000, 7).next_uuid()),
        format: 1,
        version: "0.1.0".to_owned(),
        name: "job".parse().unwrap(),
        created_by: minke_record::Actor::from_person("cli"),
        cwd: "/w".to_owned(),
        workspace: "/w".to_owned(),
        git: None,
        manifest: serde_json::json!({}),
        scope: minke_record::Scope::writable("/w"),
        mandate: Some(mandate),
        metadata: None,
        parent: None,
        from: None,
    }
}

fn job_states(file: &Path) -> Vec<String> {
    event_lines(file).iter().map(|line| line["event"]["state"].as_str().unwrap_or("-").to_owned()).collect()
}

#[tokio::test]
async fn ends_of_a_job_are_told_to_those_its_mandate_names_also_if_nobody_lived_then() {
    let home = HookHome::new();
    let (named, all, other) =
        (home.path_of("named.jsonl"), home.path_of("all.jsonl"), home.path_of("other.jsonl"));
    let hook = |name: &str, when: &str, file: &Path| {
        format!("[[hook]]\nname = \"{name}\"\nevent = \"job\"\n{when}\nfile = \"{}\"\n", file.display())
    };
    let only = "when = { job = \"named\" }";
    let hooks =
        home.hook_set(&(hook("named", only, &named) + &hook("all", "", &all) + &hook("other", only, &other)));
    let log = GrowingLog::default();
    log.push(job_start(serde_json::json!({ "objective": "tidy up", "notify": ["named"] })));
    let change = |state| minke_record::StateChange {
        state,
        on: None,
        until: None,
        reason: Some("later".to_owned()),
        by: None,
        firing: None,
    };
    // No pod was running when it was paused.
    log.push(change(minke_record::StateWord::Paused));
    let from = 2;
    let config = || ObserverConfig {
        from,
        named_hooks: vec!["named".to_owned(), "gone".to_owned()],
        ..log.observer_config(&home)
    };
    let told = AlertLog::default();
    let observers = hooks.start_observers(told.attach_to(config()));
    assert_eq!(told.count_containing("names the hook gone"), 1);
    observers.notify_committed(log.push(change(minke_record::StateWord::Queued)));
    observers.notify_committed(log.push(change(minke_record::StateWord::Abandoned)));
    assert_eq!(observers.stop_observers(TEST_TIMEOUT).await, Vec::new());
    assert_eq!(job_states(&named), ["paused", "cancelled"]);
    assert_eq!(job_states(&all), ["queued", "cancelled"]);
    assert!(!other.exists());
    // The next process repeats nothing.
    hooks.start_observers(config()).stop_observers(TEST_TIMEOUT).await;
    assert_eq!((job_states(&named).len(), job_states(&all).len()), (2, 2));
    let event = &event_lines(&named)[1]["event"];
    assert_eq!((event["objective"].as_str(), event["phase"].as_str()), (Some("tidy up"), Some("cancelled")));
}
