//! `minke tour` prints only true facts: every fact of every line is checked in kernel, files, scope table and
//! logs while the tour waits (`--step`), and a line with one changed fact fails the check.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_record::{Blob, SessionId};
use minke_session::{FileStore, RealDisk, SessionStore};
use serde_json::{Value, json};

use crate::support::world::CliWorld;

/// Facts without another source: times, and texts for users.
const UNCHECKED_FACTS: [&str; 5] = ["ms", "gone_ms", "evidence", "event", "problems"];
/// All claims of the tour.
const CLAIM_NAMES: [&str; 11] = [
    "tests_pass",
    "two_children_with_disjoint_loans",
    "the_lender_cannot_write_what_is_lent",
    "an_escape_was_stopped",
    "one_pod_was_killed",
    "what_it_held_came_back",
    "it_was_resumed_and_finished",
    "the_loans_came_back",
    "costs_add_up",
    "nothing_is_left",
    "logs_verify",
];

/// State collected from the lines so far.
struct TourObserver {
    sandboxed: bool,
    backend: String,
    binary: PathBuf,
    store: FileStore,
    home: PathBuf,
    work: PathBuf,
    tour: u64,
    /// Pods by session: name and pid of the newest process.
    pods: BTreeMap<String, (String, u64)>,
    pod_pids: BTreeSet<u64>,
    busy_event: Option<Value>,
    killed_event: Option<Value>,
    resumed: bool,
    crashed: bool,
    denied: bool,
    claim_count: usize,
}

type CheckResult = Result<(), String>;

fn check_equal<T: PartialEq + std::fmt::Debug>(what: &str, said: &T, is: &T) -> CheckResult {
    if said == is { Ok(()) } else { Err(format!("{what}: printed {said:?}, actual {is:?}")) }
}

/// Returns the arguments of a process; empty for a thread id.
fn command_line(pid: u64) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if !status.lines().any(|line| line.strip_prefix("Tgid:").is_some_and(|id| id.trim() == pid.to_string())) {
        return String::new();
    }
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn as_number(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("{value} is not a number"))
}

fn as_word(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is not a text"))
}

fn file_sha256(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|content| Blob::new(content).name.blob)
}

impl TourObserver {
    /// Reads the locations from the first line.
    fn from_first_event(first: &Value, backend: &str, sandboxed: bool) -> TourObserver {
        let path = |key: &str| PathBuf::from(first[key].as_str().unwrap());
        let home = path("home");
        TourObserver {
            sandboxed,
            backend: backend.to_owned(),
            binary: PathBuf::from(env!("CARGO_BIN_EXE_minke")).canonicalize().unwrap(),
            store: FileStore::new(Arc::new(RealDisk), home.join("data/sessions")),
            home,
            work: path("workspace"),
            tour: 0,
            pods: BTreeMap::new(),
            pod_pids: BTreeSet::new(),
            busy_event: None,
            killed_event: None,
            resumed: false,
            crashed: false,
            denied: false,
            claim_count: 0,
        }
    }

    /// Returns true if a process was started as the pod of a session. Only its arguments are visible to
    /// others.
    fn is_pod_process(pid: u64, session: &str) -> bool {
        command_line(pid).starts_with(&format!("minke pod --session {} ", session.trim_start_matches("s_")))
    }

    fn read_log(&self, session: &str) -> Result<Vec<Value>, String> {
        let id: SessionId = session.strip_prefix("s_").unwrap_or(session).parse().map_err(|_| "no id")?;
        let mut lines = Vec::new();
        let reader = self.store.open_reader(id).map_err(|e| e.to_string())?;
        reader
            .scan_entries(0, &mut |sealed| {
                lines.push(serde_json::from_str(&sealed.line).unwrap());
                ControlFlow::Continue(())
            })
            .map_err(|e| e.to_string())?;
        Ok(lines)
    }

    fn log_entry(&self, session: &str, seq: &Value) -> Result<Value, String> {
        let log = self.read_log(session)?;
        let found = log.into_iter().find(|entry| entry["seq"] == *seq);
        found.ok_or_else(|| format!("there is no entry {seq} in {session}"))
    }

    /// Returns the rows of the scope table, from its file.
    fn scope_table(&self) -> Result<Vec<Value>, String> {
        let text = std::fs::read_to_string(self.home.join("run/scope.json")).map_err(|e| e.to_string())?;
        let table: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        Ok(table["pods"].as_array().cloned().unwrap_or_default())
    }

    fn check_event(&self, event: &Value) -> CheckResult {
        match as_word(&event["event"])? {
            "tour" => self.check_tour(event),
            "pod" | "resumed" => self.check_pod(event),
            "call" | "denied" => self.check_call(event),
            "run" => self.check_run(event),
            "busy" => self.check_busy(event),
            "said" => {
                let root = self
                    .pods
                    .iter()
                    .find(|(_, (name, _))| name == "tour")
                    .ok_or("the first pod is unknown")?
                    .0;
                let log = self.read_log(root)?;
                let heard = |entry: &Value| {
                    matches!(entry["kind"].as_str(), Some("user_input" | "queued_input"))
                        && entry["segments"].as_array().is_some_and(|segments| {
                            segments.iter().any(|segment| segment["content"] == event["text"])
                        })
                };
                if log.iter().any(heard) { Ok(()) } else { Err("the input is not in the log".to_owned()) }
            }
            "killed" | "gone" => self.check_gone(event),
            "child_end" => self.check_child_end(event),
            "verified" => self.check_verified(event),
            "tree" => self.check_tree(event),
            "file" => self.check_file(event),
            "claim" => {
                check_equal("held", &event["held"], &json!(true))?;
                let name = as_word(&event["claim"])?;
                if CLAIM_NAMES.contains(&name) { Ok(()) } else { Err(format!("unknown claim {name}")) }
            }
            "done" => {
                check_equal("ok", &event["ok"], &json!(true))?;
                check_equal("claims", &event["claims"], &json!(CLAIM_NAMES.len()))?;
                check_equal("sessions", &event["sessions"], &json!(self.pods.len()))
            }
            other => Err(format!("unknown event {other}")),
        }
    }

    fn check_tour(&self, event: &Value) -> CheckResult {
        let pid = as_number(&event["pid"])?;
        let inside = format!("tour --inside {} ", self.home.parent().unwrap().display());
        if !command_line(pid).contains(&inside) {
            return Err(format!("{pid} is not a tour: {}", command_line(pid)));
        }
        check_equal("home", &PathBuf::from(as_word(&event["home"])?), &self.home)?;
        check_equal("workspace", &PathBuf::from(as_word(&event["workspace"])?), &self.work)?;
        if !self.home.join("run").is_dir() || !self.work.join("test.sh").is_file() {
            return Err("the file is missing".to_owned());
        }
        check_equal("git", &event["git"], &json!(self.work.join(".git").is_dir()))?;
        check_equal("backend", &event["sandbox"]["backend"], &json!(self.backend))?;
        check_equal("holds", &event["sandbox"]["holds"], &json!(self.sandboxed))?;
        let run = std::process::Command::new("sh").arg("test.sh").current_dir(&self.work).output().unwrap();
        check_equal("exit", &event["tests"]["exit"], &json!(run.status.code()))?;
        check_equal("said", &event["tests"]["said"], &json!(String::from_utf8_lossy(&run.stdout)))
    }

    fn check_pod(&self, event: &Value) -> CheckResult {
        let (pid, session) = (as_number(&event["pid"])?, as_word(&event["session"])?);
        if !TourObserver::is_pod_process(pid, session) {
            return Err(format!("{pid} is not the pod of {session}: {}", command_line(pid)));
        }
        let again = event["event"] == "resumed";
        check_equal("whether it had lived", &again, &self.pods.contains_key(session))?;
        let table = self.scope_table()?;
        let row = table.iter().find(|row| row["pid"] == event["pid"]).ok_or("it is not in the table")?;
        check_equal("session", &json!(format!("s_{}", as_word(&row["session"])?)), &event["session"])?;
        check_equal("name", &event["pod"], &row["name"])?;
        check_equal("scope", &event["scope"], &row["scope"])?;
        let parent = row["parent"].as_str().map(|parent| format!("s_{parent}"));
        check_equal("parent", &event["parent"], &json!(parent))?;
        let lender = table.iter().find(|lender| lender["session"] == row["parent"]);
        let loan = lender.and_then(|lender| {
            lender["loans"].as_array()?.iter().find(|loan| loan["session"] == row["session"])
        });
        let loan = loan.map(|loan| json!({ "by": parent, "scope": loan["scope"] }));
        check_equal("loan", &event["loan"], &json!(loan))?;
        let log = self.read_log(session)?;
        let opened = log.iter().rev().find(|entry| entry["kind"] == "opened" && entry["as"] == "pod");
        let opened = opened.ok_or("its log has no `opened` entry")?;
        check_equal("pid in the log", &opened["pid"], &event["pid"])?;
        check_equal("epoch", &event["epoch"], &opened["epoch"])?;
        check_equal("sandbox", &event["sandbox"], &opened["sandbox"])
    }

    /// Checks the pod name, which every line about a pod contains.
    fn check_owner(&self, event: &Value) -> CheckResult {
        let name = &self.pods.get(as_word(&event["session"])?).ok_or("unknown session")?.0;
        check_equal("pod", &event["pod"], &json!(name))
    }

    fn check_call(&self, event: &Value) -> CheckResult {
        self.check_owner(event)?;
        let session = as_word(&event["session"])?;
        let result = self.log_entry(session, &event["seq"])?;
        check_equal("kind", &result["kind"], &json!("tool_result"))?;
        check_equal("outcome", &event["outcome"], &result["outcome"])?;
        let item = &result["item"];
        check_equal("error", &event["error"], &json!(item["is_error"] == true))?;
        let log = self.read_log(session)?;
        let wished = log
            .iter()
            .find(|entry| entry["kind"] == "assistant_item" && entry["item"]["call_id"] == item["call_id"]);
        let wished = wished.ok_or("the call was not requested")?;
        check_equal("tool", &event["tool"], &wished["item"]["name"])?;
        let args: Value = serde_json::from_str(as_word(&wished["item"]["arguments"])?).unwrap();
        check_equal("command", &event["command"], &args["command"])?;
        let about = if args["file_path"].is_null() { &args["name"] } else { &args["file_path"] };
        check_equal("about", &event["about"], about)?;
        let summary = as_word(&item["summary"])?;
        let exit =
            summary.strip_suffix(')').and_then(|text| text.rsplit_once("(exit ")?.1.parse::<i64>().ok());
        check_equal("exit", &event["exit"], &json!(exit))?;
        if event["event"] != "denied" {
            return Ok(());
        }
        check_equal("said", &event["said"], &json!(item["content"].as_str().unwrap_or_default()))?;
        let target = self.work.join("weight/test.sh");
        check_equal("file", &PathBuf::from(as_word(&event["file"])?), &target)?;
        check_equal("sha256", &event["sha256"], &json!(file_sha256(&target)))?;
        let original = include_str!("../../../src/commands/diagnostics/tour/workspace/weight/test.sh");
        check_equal("the file", &std::fs::read_to_string(&target).unwrap(), &original.to_owned())?;
        if !self.sandboxed {
            return check_equal("errno", &event["errno"], &Value::Null);
        }
        let words = match as_word(&event["errno"])? {
            "EROFS" => "Read-only file system",
            "EACCES" => "Permission denied",
            "EPERM" => "Operation not permitted",
            other => return Err(format!("unknown outcome {other}")),
        };
        if !as_word(&event["said"])?.contains(words) || exit == Some(0) {
            return Err("the error is not from the kernel".to_owned());
        }
        // It was a command, and it ran in the sandbox.
        let dispatch =
            log.iter().find(|entry| entry["kind"] == "tool_dispatch" && entry["call_id"] == item["call_id"]);
        let sandbox = dispatch.map(|dispatch| dispatch["verdict"]["sandbox"].clone());
        check_equal("sandbox", &sandbox, &Some(json!(self.backend)))
    }

    fn check_run(&self, event: &Value) -> CheckResult {
        self.check_owner(event)?;
        let end = self.log_entry(as_word(&event["session"])?, &event["seq"])?;
        check_equal("kind", &end["kind"], &json!("run_completed"))?;
        check_equal("run", &event["run"], &end["run"])?;
        check_equal("result", &event["result"], &end["result"])
    }

    fn check_busy(&self, event: &Value) -> CheckResult {
        self.check_owner(event)?;
        let known = self.pods[as_word(&event["session"])?].1;
        check_equal("pid", &as_number(&event["pid"])?, &known)?;
        if !TourObserver::is_pod_process(known, as_word(&event["session"])?) {
            return Err("it has already ended".to_owned());
        }
        let script = self.work.join("weight/long-test.sh").display().to_string();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        let mut running: Vec<u64> = pids.filter(|pid| command_line(*pid).contains(&script)).collect();
        running.sort_unstable();
        check_equal("processes", &event["processes"], &json!(running))?;
        check_equal("whether there are any", &!running.is_empty(), &self.sandboxed)
    }

    /// Checks that killed processes are gone and live ones were not killed.
    fn check_gone(&self, event: &Value) -> CheckResult {
        self.check_owner(event)?;
        let busy = self.busy_event.as_ref().ok_or("no pod was busy")?;
        check_equal("pid", &event["pid"], &busy["pid"])?;
        check_equal("session", &event["session"], &busy["session"])?;
        let pid = as_number(&event["pid"])?;
        let until = Instant::now() + Duration::from_secs(5);
        while TourObserver::is_pod_process(pid, as_word(&event["session"])?) {
            if Instant::now() > until {
                return Err(format!("{pid} still exists"));
            }
            std::thread::yield_now();
        }
        if event["event"] == "killed" {
            return check_equal("signal", &event["signal"], &json!(9));
        }
        check_equal("processes", &event["processes"], &busy["processes"])?;
        for pid in event["processes"].as_array().into_iter().flatten() {
            let pid = as_number(pid)?;
            if command_line(pid).contains("long-test.sh") {
                return Err(format!("{pid} still runs"));
            }
        }
        let held = self.scope_table()?.iter().any(|row| row["pid"] == event["pid"]);
        check_equal("its row", &held, &false)
    }

    fn check_child_end(&self, event: &Value) -> CheckResult {
        self.check_owner(event)?;
        let by = self.pods.iter().find(|(_, (name, _))| json!(name) == event["seen_by"]);
        let (seen_by, _) = by.ok_or("no pod recorded it")?;
        let end = self.log_entry(seen_by, &event["seq"])?;
        check_equal("kind", &end["kind"], &json!("child_end"))?;
        for key in ["outcome", "exit", "spent"] {
            check_equal(key, &event[key], &end[key])?;
        }
        check_equal("session", &event["session"], &json!(format!("s_{}", as_word(&end["session"])?)))
    }

    fn check_verified(&self, event: &Value) -> CheckResult {
        let session = as_word(&event["session"])?;
        let log = self.read_log(session)?;
        check_equal("entries", &event["entries"], &json!(log.len()))?;
        check_equal("head", &event["head"], &log.last().unwrap()["h"])?;
        check_equal("ok", &event["ok"], &json!(true))?;
        let done = std::process::Command::new(&self.binary)
            .args(["log", "verify", "--json", session])
            .env_clear()
            .env("MINKE_HOME", &self.home)
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&done.stdout).map_err(|e| e.to_string())?;
        check_equal("log verify", &found["ok"], &json!(true))
    }

    fn check_tree(&self, event: &Value) -> CheckResult {
        let pods = event["pods"].as_array().ok_or("`pods` is missing")?;
        check_equal("pods", &pods.len(), &self.pods.len())?;
        for pod in pods {
            self.check_owner(pod)?;
            let log = self.read_log(as_word(&pod["session"])?)?;
            let parent = log[0]["parent"]["session"].as_str().map(|parent| format!("s_{parent}"));
            check_equal("parent", &pod["parent"], &json!(parent))?;
            let used: Vec<&Value> = log.iter().filter(|entry| entry["kind"] == "llm_usage").collect();
            let sum = |key: &str| used.iter().filter_map(|entry| entry[key].as_u64()).sum::<u64>();
            for key in ["input", "output", "cache_read", "cache_write"] {
                check_equal(key, &pod["usage"][key], &json!(sum(key)))?;
            }
            let cost: f64 = used.iter().filter_map(|entry| entry["cost_usd"].as_f64()).sum();
            check_equal("cost", &pod["usage"]["cost_usd"].as_f64(), &Some(cost))?;
            let unknown = used.iter().filter(|entry| entry["cost_usd"].is_null()).count();
            check_equal("unknown", &pod["usage"]["unknown_cost"], &json!(unknown))?;
            check_equal("calls", &pod["usage"]["calls"], &json!(used.len()))?;
            let ended: Vec<&Value> = log.iter().filter(|entry| entry["kind"] == "child_end").collect();
            for (key, below) in pod["below"].as_object().ok_or("`below` is missing")? {
                let mut told: f64 = ended.iter().filter_map(|end| end["spent"][key].as_f64()).sum();
                if key == "children" {
                    // Its own spawns are in its log, too.
                    let own = log.iter().filter(|entry| entry["kind"] == "child");
                    let own: BTreeSet<&str> = own.filter_map(|child| child["session"].as_str()).collect();
                    told += own.len() as f64;
                }
                check_equal(key, &below.as_f64(), &Some(told))?;
            }
            let last = log.iter().rev().find(|entry| entry["kind"] == "run_completed");
            check_equal(
                "last result",
                &pod["last_result"],
                &last.map_or(Value::Null, |end| end["result"].clone()),
            )?;
        }
        Ok(())
    }

    fn check_file(&self, event: &Value) -> CheckResult {
        let path = PathBuf::from(as_word(&event["path"])?);
        check_equal("sha256", &event["sha256"], &json!(file_sha256(&path)))?;
        let name = path.strip_prefix(&self.work).map_err(|e| e.to_string())?;
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/diagnostics/tour/workspace").join(name);
        check_equal("before", &event["before"], &json!(file_sha256(&source)))?;
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let (before, after) = (text(&source), text(&path));
        let only = |a: &str, b: &str, sign: &str| -> Vec<String> {
            a.lines()
                .filter(|line| !b.lines().any(|other| other == *line))
                .map(|line| format!("{sign}{line}"))
                .collect()
        };
        check_equal(
            "diff",
            &event["diff"],
            &json!([only(&before, &after, "-"), only(&after, &before, "+")].concat()),
        )
    }

    /// Stores facts for the checks of later lines.
    fn remember_event(&mut self, event: &Value) {
        let session = event["session"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap() {
            "tour" => self.tour = event["pid"].as_u64().unwrap(),
            kind @ ("pod" | "resumed") => {
                let pid = event["pid"].as_u64().unwrap();
                assert!(self.pod_pids.insert(pid), "every start is a new process: {event}");
                self.pods.insert(session.clone(), (event["pod"].as_str().unwrap().to_owned(), pid));
                if kind == "resumed" {
                    let killed = self.killed_event.as_ref().expect("only a killed pod is resumed");
                    assert_eq!(killed["session"], event["session"]);
                    self.resumed = true;
                }
            }
            "busy" => self.busy_event = Some(event.clone()),
            "killed" => self.killed_event = Some(event.clone()),
            "child_end"
                if self.killed_event.as_ref().is_some_and(|killed| killed["session"] == event["session"]) =>
            {
                // Its parent learned this from the kernel; the next process ends in another way.
                let by_signal = event["outcome"] == "crashed" && event["exit"] == 128 + 9;
                assert!(by_signal || self.resumed, "{event}");
                self.crashed |= by_signal;
            }
            "denied" => self.denied = true,
            "claim" => self.claim_count += 1,
            _ => {}
        }
    }
}

/// Returns the event with one fact changed, once for each fact.
fn changed_events(event: &Value) -> Vec<Value> {
    fn collect_paths(value: &Value, at: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if !UNCHECKED_FACTS.contains(&key.as_str()) {
                        collect_paths(value, &format!("{at}/{key}"), out);
                    }
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    collect_paths(value, &format!("{at}/{index}"), out);
                }
            }
            _ => out.push(at.to_owned()),
        }
    }
    let mut found = Vec::new();
    collect_paths(event, "", &mut found);
    let changed = |at: &String| {
        let mut lie = event.clone();
        let fact = lie.pointer_mut(at).unwrap();
        *fact = match &*fact {
            Value::Null => json!("something"),
            Value::Bool(yes) => json!(!yes),
            Value::Number(n) => json!(n.as_f64().unwrap_or_default() as i64 + 1),
            Value::String(text) => json!(format!("{text}x")),
            other => panic!("{other} is not a fact"),
        };
        lie
    };
    found.iter().map(changed).collect()
}

/// Returns the sandbox backend of pods here, and whether it sandboxes commands.
fn local_backend() -> (String, bool) {
    let helper = minke_exec::sandbox::HelperBinary::from_path(env!("CARGO_BIN_EXE_minke"));
    let backend = minke_exec::probe::best_backend_with(&helper);
    (backend.as_str().to_owned(), backend.enforces_scope())
}

#[test]
fn what_the_tour_says_is_what_kernel_and_logs_say() {
    let world = CliWorld::new();
    let (backend, sandboxed) = local_backend();
    let mut command = world.minke_command();
    command.args(["tour", "--json", "--step"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut next = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut observer: Option<TourObserver> = None;
    let (mut told, mut found_out) = (0, 0);
    for line in lines.by_ref() {
        let line = line.unwrap();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let eye = observer.get_or_insert_with(|| TourObserver::from_first_event(&event, &backend, sandboxed));
        eye.check_event(&event).unwrap_or_else(|why| panic!("{why}\n{line}"));
        for changed in changed_events(&event) {
            assert!(eye.check_event(&changed).is_err(), "the change was not detected:\n{changed}\n{line}");
            found_out += 1;
        }
        eye.remember_event(&event);
        told += 1;
        // It may have ended after its last line.
        drop(next.write_all(b"\n"));
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    let eye = observer.expect("it printed a line");
    assert_eq!(eye.pods.len(), 3, "a pod and two children: {:?}", eye.pods);
    assert!(eye.denied && eye.crashed && eye.resumed, "an escape, a kill, and a resume");
    assert_eq!(eye.claim_count, CLAIM_NAMES.len());
    assert!(!eye.home.exists() && !eye.work.exists(), "it removes its files");
    for pid in eye.pod_pids.iter().chain([&eye.tour]) {
        let left = command_line(*pid);
        assert!(!left.contains("minke pod") && !left.contains("tour --inside"), "{pid} is left: {left}");
    }
    eprintln!("the tour printed {told} events, sandbox {backend}; {found_out} changed events were detected");
}

/// Starts a tour and waits for its second pod. Returns its directory and the live pids.
fn start_tour(world: &CliWorld, args: &[&str]) -> (Child, ChildStdin, PathBuf, Vec<u64>) {
    let mut command = world.minke_command();
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut next = child.stdin.take().unwrap();
    let (mut dir, mut pids) = (None, Vec::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match event["event"].as_str().unwrap() {
            "tour" => dir = Path::new(event["home"].as_str().unwrap()).parent().map(Path::to_owned),
            "pod" => pids.push(event["pid"].as_u64().unwrap()),
            _ => {}
        }
        if pids.len() == 2 {
            break;
        }
        drop(next.write_all(b"\n"));
    }
    (child, next, dir.unwrap(), pids)
}

fn check_nothing_left(dir: &Path, pids: &[u64]) {
    let until = Instant::now() + Duration::from_secs(20);
    let left = || dir.exists() || pids.iter().any(|pid| command_line(*pid).starts_with("minke pod"));
    while left() {
        assert!(Instant::now() < until, "{} or one of {pids:?} is left", dir.display());
        std::thread::yield_now();
    }
}

#[test]
fn a_tour_that_is_left_in_the_middle_leaves_nothing() {
    let world = CliWorld::new();
    let (mut child, next, dir, pids) = start_tour(&world, &["tour", "--json", "--step"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    check_nothing_left(&dir, &pids);
    drop(next);
}

#[test]
fn a_tour_whose_first_process_is_killed_leaves_nothing() {
    let world = CliWorld::new();
    let (mut child, _next, dir, pids) = start_tour(&world, &["tour", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    check_nothing_left(&dir, &pids);
}
