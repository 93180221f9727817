//! Four wire formats, one program: the same story leaves the same log, and a session goes on wherever it is sent.

use serde_json::{Value, json};

use crate::wired::{KEY, MODELS, Wired, ends};
use crate::world::World;

/// Thinking, text, two calls at once, their results, an answer; then something for whoever goes on.
const STORY: &str = r#"
chunk = 9
[[turn]]
thinking = "Two files: „both“ at once."
text = "I read both 🐋."
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/a.txt" }
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/b.txt" }
[[turn]]
# Inside the binary the result that came last is the last one; both have numbered lines.
expect = "1\t"
thinking = "Now I know."
text = "They hold alpha and beta."
usage = { input = 200, output = 30, cache_read = 100 }
[[turn]]
expect = "and now?"
thinking = "Somebody else has begun this."
text = "I go on."
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/b.txt" }
[[turn]]
text = "Done."
[[turn]]
expect = "and back?"
text = "Back."
"#;

fn told(model: &str) -> Wired {
    // Parallel calls come in pieces that alternate.
    let wired = Wired::with(STORY, &["--weave"]);
    wired.world.write("a.txt", "alpha\n");
    wired.world.write("b.txt", "beta\n");
    let done = wired.exec(model, &["read both"]);
    assert_eq!(done.code, Some(0), "{model}: {done:?}");
    assert_eq!(done.out, "I read both 🐋.\nThey hold alpha and beta.\n", "{model}");
    wired
}

#[test]
fn the_same_story_leaves_the_same_log_in_every_format() {
    let mut logs = Vec::new();
    for model in MODELS {
        let wired = told(model);
        let log = wired.log();
        assert_eq!(ends(&log).len(), 1, "{model}");
        let kinds: Vec<&str> = log.iter().filter_map(|entry| entry["item"]["kind"].as_str()).collect();
        assert!(kinds.contains(&"reasoning") && kinds.contains(&"tool_call"), "{model}: {kinds:?}");
        wired.world.verify();
        logs.push((model, plain(&log, &wired.world)));
    }
    // The same script inside the binary.
    let world = World::new();
    world.write("a.txt", "alpha\n");
    world.write("b.txt", "beta\n");
    world.write("script.toml", STORY);
    assert_eq!(world.run(&["exec", "--model", "scripted:script.toml", "read both"]).code, Some(0));
    let inside = plain(&crate::wired::log(&world), &world);
    assert!(inside.len() > 15, "{inside:#?}");
    for (model, log) in logs {
        for (at, (entry, wanted)) in log.iter().zip(&inside).enumerate() {
            assert_eq!(entry, wanted, "{model}, entry {at}");
        }
        assert_eq!(log.len(), inside.len(), "{model}");
    }
}

/// A log without what may differ: routes, times, ids, hashes and usage; signatures, and the entries that only carry
/// one; and the order in which two calls at once came to their ends.
fn plain(log: &[Value], world: &World) -> Vec<String> {
    let work = world.work().to_str().unwrap().to_owned();
    let mut calls: Vec<String> = Vec::new();
    let mut entries: Vec<Value> = Vec::new();
    for entry in log {
        let item = &entry["item"];
        if item["kind"] == "tool_call" {
            calls.push(item["call_id"].as_str().unwrap().to_owned());
        }
        let only_signs = item["kind"] == "reasoning" && item["text"] == "";
        if !only_signs {
            entries.push(stripped(entry.clone()));
        }
    }
    let of_call = |entry: &Value| entry["kind"] == "tool_result" || entry["kind"] == "tool_dispatch";
    let place = |entry: &Value| {
        let id = if entry["kind"] == "tool_result" { &entry["item"]["call_id"] } else { &entry["call_id"] };
        (entry["kind"] == "tool_result", calls.iter().position(|call| id == call.as_str()))
    };
    // Two calls at once: one may have its result before the other is dispatched.
    for group in entries.chunk_by_mut(|a, b| of_call(a) && of_call(b)) {
        group.sort_by_key(place);
    }
    let named = |entry: &Value| {
        let text = entry.to_string().replace(&work, "/work");
        calls.iter().enumerate().fold(text, |text, (at, id)| text.replace(id.as_str(), &format!("call {at}")))
    };
    entries.iter().map(named).collect()
}

/// Names of what differs between two tellings of the same story, wherever it stands.
const DIFFERS: &[&str] = &[
    // ids, times and places in the log
    "id",
    "op_id",
    "queued",
    "session",
    "run",
    "seq",
    "more",
    "ts",
    "last_ts",
    "created",
    "pid",
    "boot_id",
    "own",
    // hashes
    "h",
    "request_hash",
    "stream_blob",
    "stream_bytes",
    "recorded",
    // routes
    "route",
    "ref",
    // usage
    "reserved",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cost_usd",
    "unknown_cost",
    // what only the format can read
    "signature",
];

fn stripped(mut entry: Value) -> Value {
    if entry["item"]["kind"] == "reasoning" {
        entry["item"] = json!({ "kind": "reasoning", "text": entry["item"]["text"] });
    }
    strip(&mut entry);
    entry
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The run that is going on is carried as a whole; elsewhere the word is its id.
            fields.retain(|name, value| {
                !DIFFERS.contains(&name.as_str()) || (name == "run" && value.is_object())
            });
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_session_goes_on_in_every_other_format() {
    for first in MODELS {
        for second in MODELS.into_iter().filter(|model| *model != first) {
            let wired = told(first);
            let done = wired.exec(second, &["--last", "and now?"]);
            assert_eq!(done.code, Some(0), "{first} → {second}: {done:?}\n{:#?}", wired.requests());
            assert_eq!(done.out, "I go on.\nDone.\n", "{first} → {second}");
            let done = wired.exec(first, &["--last", "and back?"]);
            assert_eq!(done.code, Some(0), "{first} → {second} → {first}: {done:?}\n{:#?}", wired.requests());
            assert_eq!(done.out, "Back.\n");
            check_requests(&wired.requests(), first, second);
            let log = wired.log();
            assert_eq!(ends(&log).len(), 3, "{first} → {second}");
            wired.world.verify();
        }
    }
}

/// Nothing was refused, and signed thoughts came back to those who thought them and to nobody else.
fn check_requests(requests: &[Value], first: &str, second: &str) {
    let told = |at: usize, field: &str| requests[at][field].as_u64().unwrap();
    assert_eq!(requests.len(), 5, "{requests:#?}");
    assert!((0..5).all(|at| told(at, "status") == 200), "{requests:#?}");
    assert_eq!((0..5).map(|at| told(at, "turn")).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    // This service never takes reasoning back.
    let takes = |model: &str| u64::from(!model.starts_with("openai-chat"));
    let reasoning: Vec<u64> = (0..5).map(|at| told(at, "reasoning")).collect();
    // What each model had thought before: nothing, once, nothing of its own, once; and the first one twice.
    let wanted = [0, takes(first), 0, takes(second), 2 * takes(first)];
    assert_eq!(reasoning, wanted, "{first} → {second}");
}

#[test]
fn reasoning_without_a_signature_goes_back_where_it_is_wanted() {
    let wired = Wired::new(STORY);
    wired.world.write("a.txt", "alpha\n");
    wired.world.write("b.txt", "beta\n");
    let mut command = wired.command();
    command.env("DEEPSEEK_BASE_URL", format!("http://{}", wired.address())).env("DEEPSEEK_API_KEY", KEY);
    command.args(["exec", "--model", "deepseek/deepseek-v4-flash", "read both"]);
    let done = wired.world.done(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let reasoning: Vec<Value> = wired.requests().iter().map(|request| request["reasoning"].clone()).collect();
    assert_eq!(reasoning, [0, 1]);
}

#[test]
fn a_provider_that_stays_busy_is_followed_by_the_fallback() {
    let script = "
        [[turn]]
        error = { status = 529, message = 'busy', retry_after_s = 0, times = 100 }
        [[turn]]
        text = 'I stand in.'";
    let wired = Wired::new(script);
    let fallback = format!("model.fallback=[\"{}\"]", MODELS[3]);
    let done = wired.exec(MODELS[0], &["--set", &fallback, "hello"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "I stand in.\n"), "{done:?}");
    let requests = wired.requests();
    let schemes: Vec<&str> = requests.iter().map(|request| request["scheme"].as_str().unwrap()).collect();
    assert_eq!(schemes, [["anthropic"; 6].as_slice(), &["gemini"]].concat());
    let log = wired.log();
    let calls: Vec<&Value> = log
        .iter()
        .filter(|entry| entry["kind"] == "llm_call")
        .map(|entry| &entry["route"]["provider"])
        .collect();
    assert_eq!(calls, ["anthropic", "google"], "each switch is a request of its own");
    assert_eq!(ends(&log).len(), 1);
}
