//! Four wire formats, one program: the same story leaves the same log, and a session continues on every
//! provider.

pub(crate) mod broken_replies;
pub(crate) mod endless_models;
pub(crate) mod failures;
pub(crate) mod faulty_proxy;
pub(crate) mod hostile_provider;
pub(crate) mod mock;

use serde_json::{Value, json};

use crate::support::mock_world::{DUMMY_KEY, MockWorld, WIRE_MODELS, run_ends};
use crate::support::world::CliWorld;

/// Thinking, text, two parallel calls, their results, an answer; then a turn for a resumed session.
const STORY_SCRIPT: &str = r#"
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
thinking = "Another model started this."
text = "Continuing."
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/b.txt" }
[[turn]]
text = "Done."
[[turn]]
expect = "and back?"
text = "Back."
"#;

fn run_story(model: &str) -> MockWorld {
    // Parallel calls arrive in alternating pieces.
    let wired = MockWorld::with_options(STORY_SCRIPT, &["--weave"]);
    wired.world.write_file("a.txt", "alpha\n");
    wired.world.write_file("b.txt", "beta\n");
    let done = wired.run_exec(model, &["read both"]);
    assert_eq!(done.code, Some(0), "{model}: {done:?}");
    assert_eq!(done.out, "I read both 🐋.\nThey hold alpha and beta.\n", "{model}");
    wired
}

#[test]
fn the_same_story_leaves_the_same_log_in_every_format() {
    let mut logs = Vec::new();
    for model in WIRE_MODELS {
        let wired = run_story(model);
        let log = wired.session_log();
        assert_eq!(run_ends(&log).len(), 1, "{model}");
        let kinds: Vec<&str> = log.iter().filter_map(|entry| entry["item"]["kind"].as_str()).collect();
        assert!(kinds.contains(&"reasoning") && kinds.contains(&"tool_call"), "{model}: {kinds:?}");
        wired.world.verify_logs();
        logs.push((model, normalize_log(&log, &wired.world)));
    }
    // The same script inside the binary.
    let world = CliWorld::new();
    world.write_file("a.txt", "alpha\n");
    world.write_file("b.txt", "beta\n");
    world.write_file("script.toml", STORY_SCRIPT);
    assert_eq!(world.run_minke(&["exec", "--model", "scripted:script.toml", "read both"]).code, Some(0));
    let inside = normalize_log(&crate::support::mock_world::only_session_log(&world), &world);
    assert!(inside.len() > 15, "{inside:#?}");
    for (model, log) in logs {
        for (at, (entry, wanted)) in log.iter().zip(&inside).enumerate() {
            assert_eq!(entry, wanted, "{model}, entry {at}");
        }
        assert_eq!(log.len(), inside.len(), "{model}");
    }
}

/// Returns a log without fields that may differ: routes, times, ids, hashes, usage and signatures, entries
/// that only contain a signature, and the order in which two parallel calls ended.
fn normalize_log(log: &[Value], world: &CliWorld) -> Vec<String> {
    let work = world.work_dir().to_str().unwrap().to_owned();
    let mut calls: Vec<String> = Vec::new();
    let mut entries: Vec<Value> = Vec::new();
    for entry in log {
        let item = &entry["item"];
        if item["kind"] == "tool_call" {
            calls.push(item["call_id"].as_str().unwrap().to_owned());
        }
        let only_signs = item["kind"] == "reasoning" && item["text"] == "";
        if !only_signs {
            entries.push(strip_entry(entry.clone()));
        }
    }
    let of_call = |entry: &Value| entry["kind"] == "tool_result" || entry["kind"] == "tool_dispatch";
    let place = |entry: &Value| {
        let id = if entry["kind"] == "tool_result" { &entry["item"]["call_id"] } else { &entry["call_id"] };
        (entry["kind"] == "tool_result", calls.iter().position(|call| id == call.as_str()))
    };
    // Of two parallel calls, one may have its result before the other is dispatched.
    for group in entries.chunk_by_mut(|a, b| of_call(a) && of_call(b)) {
        group.sort_by_key(place);
    }
    let named = |entry: &Value| {
        let text = entry.to_string().replace(&work, "/work");
        calls.iter().enumerate().fold(text, |text, (at, id)| text.replace(id.as_str(), &format!("call {at}")))
    };
    entries.iter().map(named).collect()
}

/// Names of fields that may differ between two runs of the same story.
const DIFFERING_FIELDS: &[&str] = &[
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
    // data for the provider only
    "signature",
];

fn strip_entry(mut entry: Value) -> Value {
    if entry["item"]["kind"] == "reasoning" {
        entry["item"] = json!({ "kind": "reasoning", "text": entry["item"]["text"] });
    }
    strip_value(&mut entry);
    entry
}

fn strip_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The open run is carried as a whole; elsewhere the field is its id.
            fields.retain(|name, value| {
                !DIFFERING_FIELDS.contains(&name.as_str()) || (name == "run" && value.is_object())
            });
            fields.values_mut().for_each(strip_value);
        }
        Value::Array(values) => values.iter_mut().for_each(strip_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_session_goes_on_in_every_other_format() {
    for first in WIRE_MODELS {
        for second in WIRE_MODELS.into_iter().filter(|model| *model != first) {
            let wired = run_story(first);
            let done = wired.run_exec(second, &["--last", "and now?"]);
            assert_eq!(done.code, Some(0), "{first} → {second}: {done:?}\n{:#?}", wired.mock_requests());
            assert_eq!(done.out, "Continuing.\nDone.\n", "{first} → {second}");
            let done = wired.run_exec(first, &["--last", "and back?"]);
            assert_eq!(
                done.code,
                Some(0),
                "{first} → {second} → {first}: {done:?}\n{:#?}",
                wired.mock_requests()
            );
            assert_eq!(done.out, "Back.\n");
            check_requests(&wired.mock_requests(), first, second);
            let log = wired.session_log();
            assert_eq!(run_ends(&log).len(), 3, "{first} → {second}");
            wired.world.verify_logs();
        }
    }
}

/// Checks that no request was refused, and that signed thinking was sent only to the provider that created
/// it.
fn check_requests(requests: &[Value], first: &str, second: &str) {
    let told = |at: usize, field: &str| requests[at][field].as_u64().unwrap();
    assert_eq!(requests.len(), 5, "{requests:#?}");
    assert!((0..5).all(|at| told(at, "status") == 200), "{requests:#?}");
    assert_eq!((0..5).map(|at| told(at, "turn")).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    // This service does not accept reasoning.
    let takes = |model: &str| u64::from(!model.starts_with("openai-chat"));
    let reasoning: Vec<u64> = (0..5).map(|at| told(at, "reasoning")).collect();
    // Earlier thinking per request: none, one, none of its own, one; and for the first provider two.
    let wanted = [0, takes(first), 0, takes(second), 2 * takes(first)];
    assert_eq!(reasoning, wanted, "{first} → {second}");
}

#[test]
fn reasoning_without_a_signature_goes_back_where_it_is_wanted() {
    let wired = MockWorld::with_script(STORY_SCRIPT);
    wired.world.write_file("a.txt", "alpha\n");
    wired.world.write_file("b.txt", "beta\n");
    let mut command = wired.minke_command();
    command
        .env("DEEPSEEK_BASE_URL", format!("http://{}", wired.mock_address()))
        .env("DEEPSEEK_API_KEY", DUMMY_KEY);
    command.args(["exec", "--model", "deepseek/deepseek-v4-flash", "read both"]);
    let done = wired.world.run_command(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let reasoning: Vec<Value> =
        wired.mock_requests().iter().map(|request| request["reasoning"].clone()).collect();
    assert_eq!(reasoning, [0, 1]);
}

#[test]
fn a_provider_that_stays_busy_is_followed_by_the_fallback() {
    let script = "
        [[turn]]
        error = { status = 529, message = 'busy', retry_after_s = 0, times = 100 }
        [[turn]]
        text = 'I stand in.'";
    let wired = MockWorld::with_script(script);
    let fallback = format!("model.fallback=[\"{}\"]", WIRE_MODELS[3]);
    let done = wired.run_exec(WIRE_MODELS[0], &["--set", &fallback, "hello"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "I stand in.\n"), "{done:?}");
    let requests = wired.mock_requests();
    let schemes: Vec<&str> = requests.iter().map(|request| request["scheme"].as_str().unwrap()).collect();
    assert_eq!(schemes, [["anthropic"; 6].as_slice(), &["gemini"]].concat());
    let log = wired.session_log();
    let calls: Vec<&Value> = log
        .iter()
        .filter(|entry| entry["kind"] == "llm_call")
        .map(|entry| &entry["route"]["provider"])
        .collect();
    assert_eq!(calls, ["anthropic", "google"], "each switch is a request of its own");
    assert_eq!(run_ends(&log).len(), 1);
}
