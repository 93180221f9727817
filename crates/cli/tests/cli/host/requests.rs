//! Requests to the host with real pods: the same through JSON-RPC and on the command line, and their effects.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::TestHost;
use crate::support::world::{CliWorld, UNSANDBOXED};

#[path = "../../../../host/tests/requests/normal.rs"]
mod normal;

/// A model that repeats its input.
const ECHO_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const UNKNOWN_THREAD: &str = "s_01970000-0000-7000-8000-000000000001";

fn world_with_echo() -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    world
}

/// A program that speaks JSON-RPC with `minke host --stdio`.
struct RpcProgram {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    request_count: u64,
}

impl RpcProgram {
    fn start_stdio(world: &CliWorld) -> RpcProgram {
        let mut command = world.minke_command();
        command.args(["host", "--stdio"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (input, lines) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        RpcProgram { child, input, lines, request_count: 0 }
    }

    fn send_request(&mut self, method: &str, params: &Value) -> u64 {
        self.request_count += 1;
        let line = json!({ "jsonrpc": "2.0", "id": self.request_count, "method": method, "params": params });
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.request_count
    }

    #[track_caller]
    fn read_response(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("`{line:.200}`: {e}"))
    }

    #[track_caller]
    fn call_ok_or_error(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send_request(method, &params);
        let mut answer = self.read_response();
        assert_eq!(answer["id"], id);
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    #[track_caller]
    fn call_thread(&mut self, kind: &str, fields: Value) -> Value {
        let answer = self.call_ok_or_error(&format!("thread/{kind}"), fields);
        answer.unwrap_or_else(|error| panic!("{kind} is refused: {error}"))
    }
}

impl Drop for RpcProgram {
    fn drop(&mut self) {
        // Closing its stdin ends the program; the pods keep running.
        drop(self.input.take());
        drop(self.child.wait());
    }
}

/// Returns the answer of a verb on the command line.
#[track_caller]
fn run_json(world: &CliWorld, args: &[&str]) -> Value {
    let done = world.run_minke(&[&["thread"], args, &["--json"]].concat());
    serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{args:?} printed no JSON ({e}): {done:?}"))
}

/// Removes the actor, which differs on purpose.
fn normalize_answer(answer: &Value, dir: &Path) -> Value {
    fn remove_varying(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.shift_remove("surface");
                fields.shift_remove("source");
                fields.shift_remove("next_cursor");
                fields.values_mut().for_each(remove_varying);
            }
            Value::Array(list) => list.iter_mut().for_each(remove_varying),
            _ => {}
        }
    }
    let mut value = normal::normal(answer, dir);
    remove_varying(&mut value);
    value
}

/// Compares an answer with its golden file next to those of the host, or writes it (`MINKE_BLESS`).
#[track_caller]
fn compare_golden(kind: &str, answer: &Value) {
    let places = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/tests/golden/threads");
    let path = Path::new(places).join(format!("{kind}.json"));
    let mut answer = answer.clone();
    if let Some(thread) = answer.get_mut("thread") {
        // Token counts and the number of alerts depend on this machine.
        thread["usage"] = json!({});
        answer["data"]["checkpoint"]["state"]["seq"] = json!(0);
        let rows = answer["data"]["history"].as_array_mut().into_iter().flatten();
        rows.for_each(|row| row["id"] = json!(0));
    }
    let made = format!("{answer:#}\n");
    if std::env::var_os("MINKE_BLESS").is_some() {
        return std::fs::write(&path, made).unwrap();
    }
    let was = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(made, was, "the answer of `{kind}` has changed: MINKE_BLESS=1 writes it; review `git diff`");
}

/// Waits until a condition holds.
#[track_caller]
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < until, "timeout: {what}");
    }
}

/// The path is absolute, because a host may have been started in any directory.
fn absolute_model(world: &CliWorld) -> String {
    format!("scripted:{}", world.work_dir().join("s.toml").display())
}

/// Waits until no run is active in a thread.
#[track_caller]
fn wait_until_idle(world: &CliWorld, id: &str) {
    let done = world.run_minke(&["wait", id]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn every_verb_answers_alike_through_every_door() {
    let (theirs, ours, far) = (world_with_echo(), world_with_echo(), world_with_echo());
    let host = TestHost::start_host(&far, &[]);
    let dir = |world: &CliWorld| world.work_dir().parent().unwrap().to_owned();
    let mut program = RpcProgram::start_stdio(&theirs);
    let model = "scripted:s.toml";
    let made = program.call_thread(
        "create",
        json!({ "cwd": theirs.work_dir(), "model": model, "name": "tale", "metadata": 7 }),
    );
    let here = run_json(&ours, &["create", "--model", model, "--name", "tale", "--metadata", "7"]);
    let there = json!({ "kind": "create", "cwd": far.work_dir(), "model": absolute_model(&far), "name": "tale", "metadata": 7 });
    let there = host.client.post_ok("/v1/thread", &there);
    assert_eq!(normalize_answer(&made, &dir(&theirs)), normalize_answer(&here, &dir(&ours)));
    assert_eq!(normalize_answer(&made, &dir(&theirs)), normalize_answer(&there, &dir(&far)));
    let (their, our) =
        (made["thread_id"].as_str().unwrap().to_owned(), here["thread_id"].as_str().unwrap().to_owned());
    let (mut seen, mut fork, mut far_fork) = (vec!["create"], Value::Null, Value::Null);
    let rows: Vec<(&str, Value, Vec<&str>)> = vec![
        ("message", json!({ "input": "hello" }), vec!["message", &our, "hello"]),
        ("read", json!({ "limit": 1 }), vec!["read", &our, "-n", "1"]),
        ("set_name", json!({ "name": "story" }), vec!["name", &our, "story"]),
        ("goal_set", json!({ "objective": "x" }), vec!["goal", "set", &our, "x"]),
        ("goal_get", json!({}), vec!["goal", "get", &our]),
        ("goal_clear", json!({}), vec!["goal", "clear", &our]),
        ("goal_clear", json!({}), vec!["goal", "clear", &our]),
        (
            "checkpoint_save",
            json!({ "checkpoint_id": "one", "state": [1] }),
            vec!["checkpoint", "save", &our, "one", "--state", "[1]"],
        ),
        ("checkpoint_load", json!({ "checkpoint_id": "one" }), vec!["checkpoint", "load", &our, "one"]),
        ("checkpoint_load", json!({}), vec!["checkpoint", "load", &our]),
        ("checkpoint_list", json!({}), vec!["checkpoint", "list", &our]),
        ("resume", json!({ "approval_policy": "never" }), vec!["resume", &our, "--posture", "deny"]),
        ("fork", json!({ "name": "other" }), vec!["fork", &our, "--name", "other"]),
        ("archive", json!({}), vec!["archive", &our]),
        ("list", json!({ "status": "archived" }), vec!["list", "--archived"]),
        ("unarchive", json!({}), vec!["unarchive", &our]),
        ("list", json!({ "query": "hello", "limit": 3 }), vec!["list", "--query", "hello", "-n", "3"]),
    ];
    for (kind, mut fields, args) in rows {
        let mut posted = fields.clone();
        posted["kind"] = json!(kind);
        if kind != "list" {
            fields["thread_id"] = json!(their);
            posted["thread_id"] = there["thread_id"].clone();
        }
        let (answer, here) = (program.call_thread(kind, fields), run_json(&ours, &args));
        let posted = host.client.post_ok("/v1/thread", &posted);
        assert_eq!(normalize_answer(&answer, &dir(&theirs)), normalize_answer(&here, &dir(&ours)), "{kind}");
        assert_eq!(normalize_answer(&answer, &dir(&theirs)), normalize_answer(&posted, &dir(&far)), "{kind}");
        if ["message", "resume"].contains(&kind) {
            compare_golden(kind, &normalize_answer(&answer, &dir(&theirs)));
        }
        match kind {
            "fork" => (fork, far_fork) = (answer["thread_id"].clone(), posted["thread_id"].clone()),
            "message" => {
                wait_until_idle(&theirs, &their);
                wait_until_idle(&ours, &our);
                wait_until_idle(&far, there["thread_id"].as_str().unwrap());
            }
            _ => {}
        }
        seen.push(kind);
    }
    // A thread with a fork cannot be deleted; the fork can.
    for (kind, args) in [("delete", vec!["delete", "tale"]), ("delete", vec!["delete", &our])] {
        let refused = program.call_ok_or_error("thread/delete", json!({ "thread_id": their })).unwrap_err();
        assert_eq!((&refused["code"], &refused["data"]["code"]), (&json!(-32_000), &json!("conflict")));
        assert_ne!(ours.run_minke(&[&["thread"], args.as_slice()].concat()).code, Some(0), "{kind}");
    }
    assert_eq!(
        program.call_ok_or_error("pods", json!({})).unwrap()["pods"].as_array().unwrap().len(),
        1,
        "no pod was stopped for it"
    );
    assert_eq!(program.call_thread("delete", json!({ "thread_id": fork }))["status"], "deleted");
    assert_eq!(run_json(&ours, &["delete", "other"])["status"], "deleted");
    let delete = |id: &Value| {
        host.client.call_json("POST", "/v1/thread", &json!({ "kind": "delete", "thread_id": id }))
    };
    assert_eq!(delete(&there["thread_id"]).0, 409);
    assert_eq!(delete(&far_fork).1["status"], "deleted");
    seen.extend(["delete", "start"]);
    assert_eq!(
        program.call_thread("start", json!({ "cwd": theirs.work_dir(), "model": model }))["status"],
        "started"
    );
    for kind in minke_host::REQUEST_KINDS {
        assert!(seen.contains(&kind), "{kind} was not tried");
    }
    drop(host);
    [theirs, ours, far].iter().for_each(CliWorld::verify_logs);
}

#[test]
fn an_unknown_thread_is_missing_through_every_door() {
    let world = world_with_echo();
    let mut program = RpcProgram::start_stdio(&world);
    let expected = json!({ "thread_id": UNKNOWN_THREAD, "status": "missing", "threads": [], "events": [],
        "data": { "error": "thread not found" } });
    for args in [
        &["read", UNKNOWN_THREAD][..],
        &["show", UNKNOWN_THREAD],
        &["resume", UNKNOWN_THREAD],
        &["fork", UNKNOWN_THREAD],
        &["message", UNKNOWN_THREAD, "x"],
        &["name", UNKNOWN_THREAD, "x"],
        &["archive", UNKNOWN_THREAD],
        &["unarchive", UNKNOWN_THREAD],
        &["delete", UNKNOWN_THREAD],
        &["goal", "set", UNKNOWN_THREAD, "x"],
        &["goal", "get", UNKNOWN_THREAD],
        &["goal", "clear", UNKNOWN_THREAD],
        &["checkpoint", "save", UNKNOWN_THREAD],
        &["checkpoint", "load", UNKNOWN_THREAD],
        &["checkpoint", "list", UNKNOWN_THREAD],
    ] {
        let done = world.run_minke(&[&["thread"], args, &["--json"]].concat());
        assert_eq!(serde_json::from_str::<Value>(&done.out).unwrap(), expected, "{args:?}");
        assert_eq!(done.code, Some(2), "{args:?}: {done:?}");
    }
    let refused =
        program.call_ok_or_error("thread/read", json!({ "thread_id": UNKNOWN_THREAD })).unwrap_err();
    assert_eq!((&refused["code"], &refused["data"]), (&json!(-32_004), &expected));
    let host = TestHost::start_host(&world, &[]);
    let asked = json!({ "kind": "read", "thread_id": UNKNOWN_THREAD });
    assert_eq!(host.client.call_json("POST", "/v1/thread", &asked), (404, expected));
    assert_eq!(
        host.client.call_json("POST", "/v1/thread", &json!({ "kind": "start" })).0,
        400,
        "no directory"
    );
    assert_eq!(world.session_count(), 0);
}

#[test]
fn two_messages_at_once_are_both_run() {
    let world = world_with_echo();
    let mut programs: Vec<RpcProgram> = (0..4).map(|_| RpcProgram::start_stdio(&world)).collect();
    let made =
        programs[0].call_thread("create", json!({ "cwd": world.work_dir(), "model": "scripted:s.toml" }));
    let id = made["thread_id"].as_str().unwrap().to_owned();
    for (n, program) in programs.iter_mut().enumerate() {
        program.send_request(
            "thread/message",
            &json!({ "thread_id": id, "input": format!("word {n}"), "op_id": format!("op {n}") }),
        );
    }
    for program in &mut programs {
        let answer = program.read_response();
        assert_eq!(answer["result"]["status"], "accepted", "{answer}");
        let data = &answer["result"]["data"];
        assert!(data["run"].is_string() || data["queued"].is_string(), "{answer}");
    }
    // A repeated request has the same effect.
    let again = json!({ "thread_id": id, "input": "word 0", "op_id": "op 0" });
    assert_eq!(programs[1].call_thread("message", again)["status"], "accepted");
    wait_until_idle(&world, &id);
    let read = programs[0].call_thread("read", json!({ "thread_id": id }));
    let said: Vec<(&str, &str)> = read["data"]["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["role"].as_str().unwrap(), row["content"].as_str().unwrap()))
        .collect();
    assert_eq!(said.len(), 8, "{said:?}");
    for pair in said.chunks(2) {
        let [(user, word), (assistant, answer)] = pair else { panic!("{pair:?}") };
        assert_eq!(
            (*user, *assistant, (*answer).to_owned()),
            ("user", "assistant", format!("You said: {word}"))
        );
    }
    world.verify_logs();
}

#[test]
fn a_message_takes_a_thread_out_again() {
    let world = world_with_echo();
    let mut program = RpcProgram::start_stdio(&world);
    let made = program.call_thread("create", json!({ "cwd": world.work_dir(), "model": "scripted:s.toml" }));
    let id = made["thread_id"].as_str().unwrap().to_owned();
    for lives in [false, true] {
        program.call_thread("archive", json!({ "thread_id": id }));
        program.call_thread("message", json!({ "thread_id": id, "input": "hello" }));
        wait_until_idle(&world, &id);
        let read = program.call_thread("read", json!({ "thread_id": id }));
        assert_eq!(read["thread"]["archived"], false, "{lives}");
        let kinds = read["data"]["entries"].as_array().unwrap();
        let count = kinds.iter().filter(|entry| entry["kind"] == "unarchived").count();
        assert_eq!(count, 1 + usize::from(lives));
    }
    world.verify_logs();
}

#[test]
fn a_prompt_is_answered_and_leaves_nothing_without_a_thread() {
    let world = world_with_echo();
    let mut program = RpcProgram::start_stdio(&world);
    let asked = json!({ "prompt": "hello", "cwd": world.work_dir(), "model": "scripted:s.toml" });
    let answer = program.call_ok_or_error("prompt", asked).unwrap();
    assert_eq!(answer["output"], "You said: hello", "{answer:#}");
    assert!(answer["model"].is_string() && !answer["events"].as_array().unwrap().is_empty(), "{answer:#}");
    assert_eq!(world.session_count(), 0);
    assert_eq!(world.run_json(&["ps", "--json"]), json!([]));
    let made = program.call_thread("create", json!({ "cwd": world.work_dir(), "model": "scripted:s.toml" }));
    let id = made["thread_id"].clone();
    for word in ["one", "two"] {
        let answer = program.call_ok_or_error("prompt", json!({ "prompt": word, "thread_id": id })).unwrap();
        assert_eq!(answer["output"], format!("You said: {word}"));
        let events = answer["events"].as_array().unwrap();
        assert_eq!(
            (&events[0]["event"], &events[events.len() - 1]["thread_id"]),
            (&json!("response_start"), &id)
        );
    }
    assert_eq!(
        program.call_thread("read", json!({ "thread_id": id }))["data"]["history"].as_array().unwrap().len(),
        4
    );
    world.write_file("f.toml", "[[turn]]\nerror = { status = 400, message = \"no such thing\" }\n");
    let asked = json!({ "prompt": "hello", "cwd": world.work_dir(), "model": "scripted:f.toml" });
    let refused = program.call_ok_or_error("prompt", asked).unwrap_err();
    assert_eq!(refused["data"]["code"], "provider_error", "{refused:#}");
    assert_eq!(world.session_count(), 1, "the failed one is gone, too");
    world.verify_logs();
}

/// Creates a thread whose commands need an answer, but no sandbox.
fn start_asking_thread(world: &CliWorld) -> String {
    let begun = world.run_minke(&[
        "exec",
        "--unsandboxed",
        "--posture",
        "ask",
        "--name",
        "tale",
        "--model",
        "scripted:s.toml",
        "hello",
    ]);
    assert_eq!(begun.code, Some(0), "{begun:?}");
    run_json(world, &["list"])["threads"][0]["id"].as_str().unwrap().to_owned()
}

fn bash_call(id: &str, line: &str) -> Value {
    json!({ "thread_id": id, "call": { "name": "shell", "payload": { "type": "local_shell", "params": { "command": line } } } })
}

#[test]
fn a_call_is_run_by_the_threads_own_pod() {
    let world = world_with_echo();
    let begun = world.run_minke(
        &[&["exec", "--name", "tale", "--model", "scripted:s.toml"], &UNSANDBOXED[..], &["hello"]].concat(),
    );
    assert_eq!(begun.code, Some(0), "{begun:?}");
    let id = run_json(&world, &["list"])["threads"][0]["id"].as_str().unwrap().to_owned();
    let mut program = RpcProgram::start_stdio(&world);
    let done = program.call_ok_or_error("tool/invoke", bash_call(&id, "echo hi there")).unwrap();
    assert_eq!(
        (&done["ok"], &done["status"], &done["execution_kind"]),
        (&json!(true), &json!("completed"), &json!("shell")),
        "{done:#}"
    );
    assert!(done["output"].to_string().contains("hi there"), "{done:#}");
    assert_eq!(done["precheck"]["phase"], "allowed");
    let order: Vec<&Value> = done["events"].as_array().unwrap().iter().map(|frame| &frame["event"]).collect();
    assert_eq!(order, [&json!("tool_call_start"), &json!("tool_call_result")]);
    let read = json!({ "thread_id": id, "call": { "name": "Read", "payload": { "type": "function", "arguments": "{\"file_path\":\"s.toml\"}" } } });
    let done = program.call_ok_or_error("tool/invoke", read).unwrap();
    assert_eq!((&done["status"], &done["execution_kind"]), (&json!("completed"), &json!("tool")), "{done:#}");
    for (call, says) in [
        (json!({ "name": "Sing", "payload": { "type": "function", "arguments": "{}" } }), "Sing"),
        (json!({ "name": "Read", "payload": { "type": "function", "arguments": "nonsense" } }), ""),
        (json!({ "name": "Read", "payload": { "type": "mcp", "server": "s", "tool": "t" } }), "mcp__s__t"),
    ] {
        let asked = json!({ "thread_id": id, "call": call });
        let told = match program.call_ok_or_error("tool/invoke", asked) {
            Ok(result) => {
                assert_eq!(
                    (&result["ok"], &result["status"]),
                    (&json!(false), &json!("failed")),
                    "{result:#}"
                );
                result
            }
            Err(refused) => refused,
        };
        assert!(told.to_string().contains(says), "{told:#}");
    }
    let mut elsewhere = bash_call(&id, "pwd");
    elsewhere["cwd"] = json!("/");
    assert_eq!(program.call_ok_or_error("tool/invoke", elsewhere).unwrap_err()["code"], -32_602);
    let history = program.call_thread("read", json!({ "thread_id": id }))["data"]["history"].clone();
    assert!(
        history.as_array().unwrap().iter().all(|row| row["role"] != "tool"),
        "a client's call is not in the history"
    );
    world.verify_logs();
}

#[test]
fn an_approval_goes_on_with_the_call_that_waits() {
    let world = world_with_echo();
    let id = start_asking_thread(&world);
    let mut program = RpcProgram::start_stdio(&world);
    for (decision, made) in [(json!("approved"), true), (json!({ "type": "denied" }), false)] {
        let line = "touch made-by-call";
        drop(std::fs::remove_file(world.work_dir().join("made-by-call")));
        let waits = program.call_ok_or_error("tool/invoke", bash_call(&id, line)).unwrap();
        assert_eq!(
            (&waits["ok"], &waits["status"]),
            (&json!(false), &json!("approval_required")),
            "{waits:#}"
        );
        assert_eq!(waits["precheck"]["requirement"]["type"], "needs_approval");
        let approval = waits["approval_id"].clone();
        let asks = program.call_ok_or_error("asks", json!({})).unwrap()["asks"].clone();
        assert_eq!(
            (asks.as_array().unwrap().len(), &asks[0]["id"], &asks[0]["thread_id"]),
            (1, &approval, &json!(id))
        );
        assert!(!world.work_dir().join("made-by-call").exists());
        let answer = json!({ "approval_id": approval, "decision": decision });
        let told = program.call_ok_or_error("approval/answer", answer.clone()).unwrap();
        let status = if made { "completed" } else { "denied" };
        assert_eq!((&told["ok"], &told["result"]["status"]), (&json!(true), &json!(status)), "{told:#}");
        assert_eq!(world.work_dir().join("made-by-call").exists(), made);
        assert_eq!(program.call_ok_or_error("asks", json!({})).unwrap(), json!({ "asks": [] }));
        assert_eq!(program.call_ok_or_error("approval/answer", answer).unwrap_err()["code"], -32_004, "once");
    }
    world.verify_logs();
}

#[test]
fn a_question_of_a_sleeping_thread_is_answered_and_its_run_goes_on() {
    let world = CliWorld::new();
    let script = "[[turn]]\ntext = \"hello\"\n[[turn]]\n[[turn.call]]\ntool = \"Bash\"\n\
                  args = { command = \"touch made-by-run\" }\n[[turn]]\ntext = \"done\"\n";
    world.write_file("s.toml", script);
    let id = start_asking_thread(&world);
    let mut program = RpcProgram::start_stdio(&world);
    program.call_thread("message", json!({ "thread_id": id, "input": "go" }));
    assert_eq!(world.run_minke(&["wait", "--ask", &id]).code, Some(0));
    let asks = program.call_ok_or_error("asks", json!({})).unwrap()["asks"].clone();
    crate::support::world::kill_by_pid(&world.only_live_pod()["pid"]);
    let answer = json!({ "id": asks[0]["id"], "decision": "approved" });
    let told = program.call_ok_or_error("asks/answer", answer).unwrap();
    assert_eq!((&told["thread_id"], told.get("result")), (&json!(id), None), "{told:#}");
    wait_until_idle(&world, &id);
    assert!(world.work_dir().join("made-by-run").exists());
    let thread = program.call_thread("read", json!({ "thread_id": id }))["thread"].clone();
    assert_eq!(
        (&thread["status"], &thread["last_result"]),
        (&json!("idle"), &json!("finished")),
        "{thread:#}"
    );
    world.verify_logs();
}

#[test]
fn an_ephemeral_thread_goes_with_its_pod() {
    let world = world_with_echo();
    let mut program = RpcProgram::start_stdio(&world);
    let passing = world.home_dir().join("run/passing");
    let left = || passing.read_dir().map_or(0, std::iter::Iterator::count);
    let new =
        json!({ "cwd": world.work_dir(), "model": "scripted:s.toml", "name": "mayfly", "ephemeral": true });
    for (killed, said) in [(false, true), (true, true), (false, false)] {
        let made = program.call_thread("start", new.clone());
        let id = made["thread_id"].clone();
        assert_eq!((&made["thread"]["ephemeral"], left()), (&json!(true), 1), "{made:#}");
        if said {
            program.call_thread("message", json!({ "thread_id": id, "input": "hello" }));
            wait_until_idle(&world, "mayfly");
        }
        let read = program.call_thread("read", json!({ "thread_id": id }));
        assert_eq!(read["data"]["history"].as_array().unwrap().len(), if said { 2 } else { 0 });
        assert_eq!(program.call_thread("list", json!({ "include_archived": true }))["threads"], json!([]));
        match (killed, said) {
            // The next created session removes the remains of a killed pod.
            (true, _) => {
                crate::support::world::kill_by_pid(&world.only_live_pod()["pid"]);
                wait_until("the end of the pod", || {
                    program.call_ok_or_error("pods", json!({})).unwrap() == json!({ "pods": [] })
                });
            }
            (false, true) => {
                drop(program.call_ok_or_error("pods/stop", json!({ "name": "mayfly" })).unwrap())
            }
            (false, false) => {
                assert_eq!(program.call_thread("delete", json!({ "thread_id": id }))["status"], "deleted");
            }
        }
        if !killed {
            let gone = program.call_ok_or_error("thread/read", json!({ "thread_id": id })).unwrap_err();
            assert_eq!(gone["code"], -32_004);
            // Hidden in one step; its files are deleted later.
            wait_until("the end of its files", || left() == 0);
        }
    }
    assert_eq!(world.session_count(), 0);
    assert!(!world.home_dir().join("data/trash").exists() && !world.home_dir().join("run/trash").exists());
}

#[test]
fn live_pods_are_listed_told_and_stopped() {
    let world = world_with_echo();
    let mut program = RpcProgram::start_stdio(&world);
    assert_eq!(program.call_ok_or_error("pods", json!({})).unwrap(), json!({ "pods": [] }));
    let made = program.call_thread(
        "create",
        json!({ "cwd": world.work_dir(), "model": "scripted:s.toml", "name": "tale" }),
    );
    let id = made["thread_id"].as_str().unwrap().to_owned();
    assert_eq!(
        program.call_ok_or_error("pods", json!({})).unwrap(),
        json!({ "pods": [] }),
        "`create` starts no pod"
    );
    assert_eq!(program.call_thread("resume", json!({ "thread_id": id }))["thread"]["status"], "idle");
    let pods = program.call_ok_or_error("pods", json!({})).unwrap()["pods"].clone();
    assert_eq!((&pods[0]["name"], &pods[0]["thread_id"]), (&json!("tale"), &json!(id)));
    for name in ["tale", &id] {
        let pod = program.call_ok_or_error("pods/get", json!({ "name": name })).unwrap();
        assert_eq!(pod["pod"]["status"]["status"], "idle", "{pod:#}");
    }
    let told = program.call_ok_or_error("pods/send", json!({ "name": "tale", "input": "hello" })).unwrap();
    assert!(told["run"].is_string(), "{told:#}");
    wait_until_idle(&world, &id);
    // The sandbox of a pod is fixed at its start.
    let refused = program
        .call_ok_or_error("thread/resume", json!({ "thread_id": id, "sandbox": "read_only" }))
        .unwrap_err();
    assert_eq!(refused["data"]["code"], "conflict", "{refused:#}");
    let stopped = program.call_ok_or_error("pods/stop", json!({ "name": "tale" })).unwrap();
    assert_eq!(stopped["stopped"], true);
    assert_eq!(program.call_ok_or_error("pods", json!({})).unwrap(), json!({ "pods": [] }));
    let resumed = program.call_thread(
        "resume",
        json!({ "thread_id": id, "sandbox": "read_only", "model": "scripted:s.toml" }),
    );
    assert_eq!(resumed["sandbox"], "read_only");
    // A live thread is stopped before it is deleted.
    assert_eq!(program.call_thread("delete", json!({ "thread_id": id }))["status"], "deleted");
    assert_eq!(program.call_ok_or_error("pods", json!({})).unwrap(), json!({ "pods": [] }));
    assert!(world.home_dir().join("data/trash").read_dir().unwrap().count() == 1);
    world.verify_logs();
}

#[test]
fn a_conversation_from_elsewhere_goes_on_here() {
    let world = world_with_echo();
    let mut program = RpcProgram::start_stdio(&world);
    let history = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" }]);
    let made = program.call_thread("create", json!({ "cwd": world.work_dir(), "model": "scripted:s.toml" }));
    let id = made["thread_id"].as_str().unwrap().to_owned();
    let resumed = program
        .call_thread("resume", json!({ "thread_id": id, "history": history, "cwd": world.work_dir() }));
    assert_eq!(
        (&resumed["status"], resumed["data"]["history"].as_array().unwrap().len()),
        (&json!("resumed"), 2)
    );
    program.call_thread("message", json!({ "thread_id": id, "input": "and now?" }));
    wait_until_idle(&world, &id);
    let refused = program
        .call_ok_or_error("thread/resume", json!({ "thread_id": id, "history": history }))
        .unwrap_err();
    assert_eq!(refused["data"]["code"], "conflict");
    let elsewhere =
        program.call_ok_or_error("thread/resume", json!({ "thread_id": id, "cwd": "/" })).unwrap_err();
    assert_eq!(elsewhere["data"]["code"], "conflict");
    let read = program.call_thread("read", json!({ "thread_id": id }));
    let said: Vec<&str> = read["data"]["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["content"].as_str().unwrap())
        .collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[..3], ["hi", "hello", "and now?"]);
    world.verify_logs();
}
