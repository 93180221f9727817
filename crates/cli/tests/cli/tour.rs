//! `minke tour` says nothing but the truth: every fact of every line is looked up in kernel, files, scope table and logs
//! while the tour waits (`--step`), and the same line with any one fact changed is found out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_record::{Blob, SessionId};
use minke_session::{FileStore, RealDisk, Store};
use serde_json::{Value, json};

use crate::world::World;

/// Facts that nobody else can know: times, and words for people.
const NOT_CHECKED: [&str; 5] = ["ms", "gone_ms", "evidence", "event", "problems"];
/// Everything that the tour claims, and nothing more.
const CLAIMS: [&str; 11] = [
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

/// What was seen of a tour so far.
struct Eye {
    fenced: bool,
    tier: String,
    binary: PathBuf,
    store: FileStore,
    home: PathBuf,
    work: PathBuf,
    tour: u64,
    /// Pods by their sessions: name and pid of the newest life.
    pods: BTreeMap<String, (String, u64)>,
    pids: BTreeSet<u64>,
    busy: Option<Value>,
    killed: Option<Value>,
    resumed: bool,
    crashed: bool,
    denied: bool,
    claimed: usize,
}

type Truth = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, said: &T, is: &T) -> Truth {
    if said == is { Ok(()) } else { Err(format!("{what}: it says {said:?}, but it is {is:?}")) }
}

/// The arguments of a process; of a number that is only a thread's, nothing.
fn cmdline(pid: u64) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if !status.lines().any(|line| line.strip_prefix("Tgid:").is_some_and(|id| id.trim() == pid.to_string())) {
        return String::new();
    }
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn number(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("{value} is no number"))
}

fn word(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is no text"))
}

fn sha256(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|content| Blob::new(content).name.blob)
}

impl Eye {
    /// The first line says where to look.
    fn open(first: &Value, tier: &str, fenced: bool) -> Eye {
        let path = |key: &str| PathBuf::from(first[key].as_str().unwrap());
        let home = path("home");
        Eye {
            fenced,
            tier: tier.to_owned(),
            binary: PathBuf::from(env!("CARGO_BIN_EXE_minke")).canonicalize().unwrap(),
            store: FileStore::new(Arc::new(RealDisk), home.join("data/sessions")),
            home,
            work: path("workspace"),
            tour: 0,
            pods: BTreeMap::new(),
            pids: BTreeSet::new(),
            busy: None,
            killed: None,
            resumed: false,
            crashed: false,
            denied: false,
            claimed: 0,
        }
    }

    /// Whether a process was started to be the pod of a session. Its arguments are all that anybody may see of it.
    fn is_pod(pid: u64, session: &str) -> bool {
        cmdline(pid).starts_with(&format!("minke pod --session {} ", session.trim_start_matches("s_")))
    }

    fn log(&self, session: &str) -> Result<Vec<Value>, String> {
        let id: SessionId = session.strip_prefix("s_").unwrap_or(session).parse().map_err(|_| "no id")?;
        let mut lines = Vec::new();
        let reader = self.store.reader(id).map_err(|e| e.to_string())?;
        reader
            .scan(0, &mut |sealed| {
                lines.push(serde_json::from_str(&sealed.line).unwrap());
                ControlFlow::Continue(())
            })
            .map_err(|e| e.to_string())?;
        Ok(lines)
    }

    fn entry(&self, session: &str, seq: &Value) -> Result<Value, String> {
        let log = self.log(session)?;
        let found = log.into_iter().find(|entry| entry["seq"] == *seq);
        found.ok_or_else(|| format!("there is no entry {seq} in {session}"))
    }

    /// The rows of the scope table, as they are in its file.
    fn table(&self) -> Result<Vec<Value>, String> {
        let text = std::fs::read_to_string(self.home.join("run/scope.json")).map_err(|e| e.to_string())?;
        let table: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        Ok(table["pods"].as_array().cloned().unwrap_or_default())
    }

    fn look(&self, event: &Value) -> Truth {
        match word(&event["event"])? {
            "tour" => self.tour(event),
            "pod" | "resumed" => self.pod(event),
            "call" | "denied" => self.call(event),
            "run" => self.run(event),
            "busy" => self.busy(event),
            "said" => {
                let root =
                    self.pods.iter().find(|(_, (name, _))| name == "tour").ok_or("nobody to say it to")?.0;
                let log = self.log(root)?;
                let heard = |entry: &Value| {
                    matches!(entry["kind"].as_str(), Some("user_input" | "queued_input"))
                        && entry["segments"].as_array().is_some_and(|segments| {
                            segments.iter().any(|segment| segment["content"] == event["text"])
                        })
                };
                if log.iter().any(heard) { Ok(()) } else { Err("nobody said that".to_owned()) }
            }
            "killed" | "gone" => self.gone(event),
            "child_end" => self.child_end(event),
            "verified" => self.verified(event),
            "tree" => self.tree(event),
            "file" => self.file(event),
            "claim" => {
                same("held", &event["held"], &json!(true))?;
                let name = word(&event["claim"])?;
                if CLAIMS.contains(&name) { Ok(()) } else { Err(format!("nobody knows the claim {name}")) }
            }
            "done" => {
                same("ok", &event["ok"], &json!(true))?;
                same("claims", &event["claims"], &json!(CLAIMS.len()))?;
                same("sessions", &event["sessions"], &json!(self.pods.len()))
            }
            other => Err(format!("nobody knows the event {other}")),
        }
    }

    fn tour(&self, event: &Value) -> Truth {
        let pid = number(&event["pid"])?;
        let inside = format!("tour --inside {} ", self.home.parent().unwrap().display());
        if !cmdline(pid).contains(&inside) {
            return Err(format!("{pid} is no tour: {}", cmdline(pid)));
        }
        same("home", &PathBuf::from(word(&event["home"])?), &self.home)?;
        same("workspace", &PathBuf::from(word(&event["workspace"])?), &self.work)?;
        if !self.home.join("run").is_dir() || !self.work.join("test.sh").is_file() {
            return Err("there is nothing".to_owned());
        }
        same("git", &event["git"], &json!(self.work.join(".git").is_dir()))?;
        same("tier", &event["fence"]["tier"], &json!(self.tier))?;
        same("holds", &event["fence"]["holds"], &json!(self.fenced))?;
        let run = std::process::Command::new("sh").arg("test.sh").current_dir(&self.work).output().unwrap();
        same("exit", &event["tests"]["exit"], &json!(run.status.code()))?;
        same("said", &event["tests"]["said"], &json!(String::from_utf8_lossy(&run.stdout)))
    }

    fn pod(&self, event: &Value) -> Truth {
        let (pid, session) = (number(&event["pid"])?, word(&event["session"])?);
        if !Eye::is_pod(pid, session) {
            return Err(format!("{pid} is not the pod of {session}: {}", cmdline(pid)));
        }
        let again = event["event"] == "resumed";
        same("whether it had lived", &again, &self.pods.contains_key(session))?;
        let table = self.table()?;
        let row = table.iter().find(|row| row["pid"] == event["pid"]).ok_or("it is not in the table")?;
        same("session", &json!(format!("s_{}", word(&row["session"])?)), &event["session"])?;
        same("name", &event["pod"], &row["name"])?;
        same("scope", &event["scope"], &row["scope"])?;
        let parent = row["parent"].as_str().map(|parent| format!("s_{parent}"));
        same("parent", &event["parent"], &json!(parent))?;
        let lender = table.iter().find(|lender| lender["session"] == row["parent"]);
        let loan = lender.and_then(|lender| {
            lender["loans"].as_array()?.iter().find(|loan| loan["session"] == row["session"])
        });
        let loan = loan.map(|loan| json!({ "by": parent, "scope": loan["scope"] }));
        same("loan", &event["loan"], &json!(loan))?;
        let log = self.log(session)?;
        let opened = log.iter().rev().find(|entry| entry["kind"] == "opened" && entry["as"] == "pod");
        let opened = opened.ok_or("its log is not open")?;
        same("pid in the log", &opened["pid"], &event["pid"])?;
        same("epoch", &event["epoch"], &opened["epoch"])?;
        same("fence", &event["fence"], &opened["fence"])
    }

    /// The name of a session, which every line about a pod gives along.
    fn whose(&self, event: &Value) -> Truth {
        let name = &self.pods.get(word(&event["session"])?).ok_or("nobody has that session")?.0;
        same("pod", &event["pod"], &json!(name))
    }

    fn call(&self, event: &Value) -> Truth {
        self.whose(event)?;
        let session = word(&event["session"])?;
        let result = self.entry(session, &event["seq"])?;
        same("kind", &result["kind"], &json!("tool_result"))?;
        same("outcome", &event["outcome"], &result["outcome"])?;
        let item = &result["item"];
        same("error", &event["error"], &json!(item["is_error"] == true))?;
        let log = self.log(session)?;
        let wished = log
            .iter()
            .find(|entry| entry["kind"] == "assistant_item" && entry["item"]["call_id"] == item["call_id"]);
        let wished = wished.ok_or("nobody made that call")?;
        same("tool", &event["tool"], &wished["item"]["name"])?;
        let args: Value = serde_json::from_str(word(&wished["item"]["arguments"])?).unwrap();
        same("command", &event["command"], &args["command"])?;
        let about = if args["file_path"].is_null() { &args["name"] } else { &args["file_path"] };
        same("about", &event["about"], about)?;
        let summary = word(&item["summary"])?;
        let exit =
            summary.strip_suffix(')').and_then(|text| text.rsplit_once("(exit ")?.1.parse::<i64>().ok());
        same("exit", &event["exit"], &json!(exit))?;
        if event["event"] != "denied" {
            return Ok(());
        }
        same("said", &event["said"], &json!(item["content"].as_str().unwrap_or_default()))?;
        let target = self.work.join("weight/test.sh");
        same("file", &PathBuf::from(word(&event["file"])?), &target)?;
        same("sha256", &event["sha256"], &json!(sha256(&target)))?;
        let original = include_str!("../../src/tour/workspace/weight/test.sh");
        same("the file", &std::fs::read_to_string(&target).unwrap(), &original.to_owned())?;
        if !self.fenced {
            return same("errno", &event["errno"], &Value::Null);
        }
        let words = match word(&event["errno"])? {
            "EROFS" => "Read-only file system",
            "EACCES" => "Permission denied",
            "EPERM" => "Operation not permitted",
            other => return Err(format!("nobody knows {other}")),
        };
        if !word(&event["said"])?.contains(words) || exit == Some(0) {
            return Err("the kernel did not say that".to_owned());
        }
        // It was a command, and it was in its fence.
        let dispatch =
            log.iter().find(|entry| entry["kind"] == "tool_dispatch" && entry["call_id"] == item["call_id"]);
        let fence = dispatch.map(|dispatch| dispatch["verdict"]["fence"].clone());
        same("fence", &fence, &Some(json!(self.tier)))
    }

    fn run(&self, event: &Value) -> Truth {
        self.whose(event)?;
        let end = self.entry(word(&event["session"])?, &event["seq"])?;
        same("kind", &end["kind"], &json!("run_completed"))?;
        same("run", &event["run"], &end["run"])?;
        same("result", &event["result"], &end["result"])
    }

    fn busy(&self, event: &Value) -> Truth {
        self.whose(event)?;
        let known = self.pods[word(&event["session"])?].1;
        same("pid", &number(&event["pid"])?, &known)?;
        if !Eye::is_pod(known, word(&event["session"])?) {
            return Err("it is dead already".to_owned());
        }
        let script = self.work.join("weight/long-test.sh").display().to_string();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        let mut running: Vec<u64> = pids.filter(|pid| cmdline(*pid).contains(&script)).collect();
        running.sort_unstable();
        same("processes", &event["processes"], &json!(running))?;
        same("whether there are any", &!running.is_empty(), &self.fenced)
    }

    /// Nobody outlives signal 9, and nobody who lives has got it.
    fn gone(&self, event: &Value) -> Truth {
        self.whose(event)?;
        let busy = self.busy.as_ref().ok_or("nobody was busy")?;
        same("pid", &event["pid"], &busy["pid"])?;
        same("session", &event["session"], &busy["session"])?;
        let pid = number(&event["pid"])?;
        let until = Instant::now() + Duration::from_secs(5);
        while Eye::is_pod(pid, word(&event["session"])?) {
            if Instant::now() > until {
                return Err(format!("{pid} still lives"));
            }
            std::thread::yield_now();
        }
        if event["event"] == "killed" {
            return same("signal", &event["signal"], &json!(9));
        }
        same("processes", &event["processes"], &busy["processes"])?;
        for pid in event["processes"].as_array().into_iter().flatten() {
            let pid = number(pid)?;
            if cmdline(pid).contains("long-test.sh") {
                return Err(format!("{pid} still runs"));
            }
        }
        let held = self.table()?.iter().any(|row| row["pid"] == event["pid"]);
        same("its row", &held, &false)
    }

    fn child_end(&self, event: &Value) -> Truth {
        self.whose(event)?;
        let by = self.pods.iter().find(|(_, (name, _))| json!(name) == event["seen_by"]);
        let (seen_by, _) = by.ok_or("nobody saw it")?;
        let end = self.entry(seen_by, &event["seq"])?;
        same("kind", &end["kind"], &json!("child_end"))?;
        for key in ["outcome", "exit", "spent"] {
            same(key, &event[key], &end[key])?;
        }
        same("session", &event["session"], &json!(format!("s_{}", word(&end["session"])?)))
    }

    fn verified(&self, event: &Value) -> Truth {
        let session = word(&event["session"])?;
        let log = self.log(session)?;
        same("entries", &event["entries"], &json!(log.len()))?;
        same("head", &event["head"], &log.last().unwrap()["h"])?;
        same("ok", &event["ok"], &json!(true))?;
        let done = std::process::Command::new(&self.binary)
            .args(["log", "verify", "--json", session])
            .env_clear()
            .env("MINKE_HOME", &self.home)
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&done.stdout).map_err(|e| e.to_string())?;
        same("log verify", &found["ok"], &json!(true))
    }

    fn tree(&self, event: &Value) -> Truth {
        let pods = event["pods"].as_array().ok_or("no pods")?;
        same("pods", &pods.len(), &self.pods.len())?;
        for pod in pods {
            self.whose(pod)?;
            let log = self.log(word(&pod["session"])?)?;
            let parent = log[0]["parent"]["session"].as_str().map(|parent| format!("s_{parent}"));
            same("parent", &pod["parent"], &json!(parent))?;
            let used: Vec<&Value> = log.iter().filter(|entry| entry["kind"] == "llm_usage").collect();
            let sum = |key: &str| used.iter().filter_map(|entry| entry[key].as_u64()).sum::<u64>();
            for key in ["input", "output", "cache_read", "cache_write"] {
                same(key, &pod["usage"][key], &json!(sum(key)))?;
            }
            let cost: f64 = used.iter().filter_map(|entry| entry["cost_usd"].as_f64()).sum();
            same("cost", &pod["usage"]["cost_usd"].as_f64(), &Some(cost))?;
            let unknown = used.iter().filter(|entry| entry["cost_usd"].is_null()).count();
            same("unknown", &pod["usage"]["unknown_cost"], &json!(unknown))?;
            same("calls", &pod["usage"]["calls"], &json!(used.len()))?;
            let ended: Vec<&Value> = log.iter().filter(|entry| entry["kind"] == "child_end").collect();
            for (key, below) in pod["below"].as_object().ok_or("nothing below")? {
                let mut told: f64 = ended.iter().filter_map(|end| end["spent"][key].as_f64()).sum();
                if key == "children" {
                    // Its own spawns count beside theirs.
                    let own = log.iter().filter(|entry| entry["kind"] == "child");
                    let own: BTreeSet<&str> = own.filter_map(|child| child["session"].as_str()).collect();
                    told += own.len() as f64;
                }
                same(key, &below.as_f64(), &Some(told))?;
            }
            let last = log.iter().rev().find(|entry| entry["kind"] == "run_completed");
            same("last result", &pod["last_result"], &last.map_or(Value::Null, |end| end["result"].clone()))?;
        }
        Ok(())
    }

    fn file(&self, event: &Value) -> Truth {
        let path = PathBuf::from(word(&event["path"])?);
        same("sha256", &event["sha256"], &json!(sha256(&path)))?;
        let name = path.strip_prefix(&self.work).map_err(|e| e.to_string())?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tour/workspace").join(name);
        same("before", &event["before"], &json!(sha256(&source)))?;
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let (before, after) = (text(&source), text(&path));
        let only = |a: &str, b: &str, sign: &str| -> Vec<String> {
            a.lines()
                .filter(|line| !b.lines().any(|other| other == *line))
                .map(|line| format!("{sign}{line}"))
                .collect()
        };
        same(
            "diff",
            &event["diff"],
            &json!([only(&before, &after, "-"), only(&after, &before, "+")].concat()),
        )
    }

    /// What later lines are compared with.
    fn remember(&mut self, event: &Value) {
        let session = event["session"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap() {
            "tour" => self.tour = event["pid"].as_u64().unwrap(),
            kind @ ("pod" | "resumed") => {
                let pid = event["pid"].as_u64().unwrap();
                assert!(self.pids.insert(pid), "every life is a process of its own: {event}");
                self.pods.insert(session.clone(), (event["pod"].as_str().unwrap().to_owned(), pid));
                if kind == "resumed" {
                    let killed = self.killed.as_ref().expect("only who was killed is resumed");
                    assert_eq!(killed["session"], event["session"]);
                    self.resumed = true;
                }
            }
            "busy" => self.busy = Some(event.clone()),
            "killed" => self.killed = Some(event.clone()),
            "child_end"
                if self.killed.as_ref().is_some_and(|killed| killed["session"] == event["session"]) =>
            {
                // Its parent has it from the kernel; the life after it ends in another way.
                let by_signal = event["outcome"] == "crashed" && event["exit"] == 128 + 9;
                assert!(by_signal || self.resumed, "{event}");
                self.crashed |= by_signal;
            }
            "denied" => self.denied = true,
            "claim" => self.claimed += 1,
            _ => {}
        }
    }
}

/// The same event with one fact changed, once for each fact.
fn lies(event: &Value) -> Vec<Value> {
    fn places(value: &Value, at: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if !NOT_CHECKED.contains(&key.as_str()) {
                        places(value, &format!("{at}/{key}"), out);
                    }
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    places(value, &format!("{at}/{index}"), out);
                }
            }
            _ => out.push(at.to_owned()),
        }
    }
    let mut found = Vec::new();
    places(event, "", &mut found);
    let lie = |at: &String| {
        let mut lie = event.clone();
        let fact = lie.pointer_mut(at).unwrap();
        *fact = match &*fact {
            Value::Null => json!("something"),
            Value::Bool(yes) => json!(!yes),
            Value::Number(n) => json!(n.as_f64().unwrap_or_default() as i64 + 1),
            Value::String(text) => json!(format!("{text}x")),
            other => panic!("{other} is no fact"),
        };
        lie
    };
    found.iter().map(lie).collect()
}

/// The tier that pods get here, and whether it holds commands.
fn tier() -> (String, bool) {
    let helper = minke_exec::fence::Helper::at(env!("CARGO_BIN_EXE_minke"));
    let tier = minke_exec::probe::best_tier_with(&helper);
    (tier.as_str().to_owned(), tier.holds())
}

#[test]
fn what_the_tour_says_is_what_kernel_and_logs_say() {
    let world = World::new();
    let (tier, fenced) = tier();
    let mut command = world.command();
    command.args(["tour", "--json", "--step"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut next = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut eye: Option<Eye> = None;
    let (mut told, mut found_out) = (0, 0);
    for line in lines.by_ref() {
        let line = line.unwrap();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let eye = eye.get_or_insert_with(|| Eye::open(&event, &tier, fenced));
        eye.look(&event).unwrap_or_else(|why| panic!("{why}\n{line}"));
        for lie in lies(&event) {
            assert!(eye.look(&lie).is_err(), "nobody would have found out:\n{lie}\n{line}");
            found_out += 1;
        }
        eye.remember(&event);
        told += 1;
        // It may have ended after its last word.
        drop(next.write_all(b"\n"));
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    let eye = eye.expect("it said something");
    assert_eq!(eye.pods.len(), 3, "a pod and two children: {:?}", eye.pods);
    assert!(eye.denied && eye.crashed && eye.resumed, "an escape, a death by signal 9, and a return");
    assert_eq!(eye.claimed, CLAIMS.len());
    assert!(!eye.home.exists() && !eye.work.exists(), "it clears away what it made");
    for pid in eye.pids.iter().chain([&eye.tour]) {
        let left = cmdline(*pid);
        assert!(!left.contains("minke pod") && !left.contains("tour --inside"), "{pid} is left: {left}");
    }
    eprintln!(
        "the tour told {told} things, fence {tier}; {found_out} lies about them would have been found out"
    );
}

/// A tour that has come as far as its second pod, where it takes place, and who lives there.
fn begun(world: &World, args: &[&str]) -> (Child, ChildStdin, PathBuf, Vec<u64>) {
    let mut command = world.command();
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

fn nothing_left(dir: &Path, pids: &[u64]) {
    let until = Instant::now() + Duration::from_secs(20);
    let left = || dir.exists() || pids.iter().any(|pid| cmdline(*pid).starts_with("minke pod"));
    while left() {
        assert!(Instant::now() < until, "{} or one of {pids:?} is left", dir.display());
        std::thread::yield_now();
    }
}

#[test]
fn a_tour_that_is_left_in_the_middle_leaves_nothing() {
    let world = World::new();
    let (mut child, next, dir, pids) = begun(&world, &["tour", "--json", "--step"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_left(&dir, &pids);
    drop(next);
}

#[test]
fn a_tour_whose_first_process_is_killed_leaves_nothing() {
    let world = World::new();
    let (mut child, _next, dir, pids) = begun(&world, &["tour", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_left(&dir, &pids);
}
