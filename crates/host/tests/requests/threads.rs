//! Thread requests without a live pod: each verb's response is golden, and invalid requests are refused by name.

use std::path::Path;

use crate::harness::{EngineHarness, MODEL, SECRET};
use crate::normal::normal;
use minke_host::REQUEST_KINDS;
use minke_record::ErrorCode;
use serde_json::{Value, json};

const GOLDEN_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/threads");

/// Compares a response with its golden file, or writes the file with `MINKE_BLESS`.
#[track_caller]
fn check_golden(name: &str, answer: &Value, harness: &EngineHarness) {
    let golden_text = format!("{:#}\n", shorten_starts(normal(answer, harness.dir.path())));
    let path = Path::new(GOLDEN_DIR).join(format!("{name}.json"));
    if std::env::var_os("MINKE_BLESS").is_some() {
        std::fs::create_dir_all(GOLDEN_DIR).unwrap();
        std::fs::write(&path, golden_text).unwrap();
        return;
    }
    let was = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        golden_text, was,
        "the answer of `{name}` has changed: MINKE_BLESS=1 writes it, look at `git diff`"
    );
}

/// Reduces the manifest of a `session_start` to the keys of the harness, and removes its version.
fn shorten_starts(mut answer: Value) -> Value {
    let rows = answer.pointer_mut("/data/entries").and_then(Value::as_array_mut).into_iter().flatten();
    for row in rows.filter(|row| row["kind"] == "session_start") {
        let manifest = row["manifest"].clone();
        row["version"] = json!("0");
        row["manifest"] = json!({
            "model": { "ref": manifest["model"]["ref"] },
            "permissions": { "posture": manifest["permissions"]["posture"] },
            "sandbox": { "mode": manifest["sandbox"]["mode"] },
        });
    }
    answer
}

#[tokio::test]
async fn every_verb_answers_as_documented() {
    let harness = EngineHarness::new();
    let work = harness.work_dir();
    let ask = |kind: &'static str, fields: Value| harness.thread_request(kind, fields);
    check_golden(
        "create",
        &ask("create", json!({ "cwd": work, "metadata": { "label": "x" } })).await.unwrap(),
        &harness,
    );
    let started = json!({
        "cwd": work, "name": "tale", "model": "demo", "model_provider": "scripted",
        "persist_extended_history": true,
        "history": [{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" }],
    });
    let answer = ask("start", started).await.unwrap();
    check_golden("start", &answer, &harness);
    let id = &answer["thread_id"];
    check_golden(
        "set_name",
        &ask("set_name", json!({ "thread_id": id, "name": "story" })).await.unwrap(),
        &harness,
    );
    let save = json!({ "thread_id": id, "checkpoint_id": "one", "state": { "at": 3 } });
    check_golden("checkpoint_save", &ask("checkpoint_save", save).await.unwrap(), &harness);
    let load = json!({ "thread_id": id, "checkpoint_id": "one" });
    check_golden("checkpoint_load", &ask("checkpoint_load", load).await.unwrap(), &harness);
    check_golden(
        "checkpoint_list",
        &ask("checkpoint_list", json!({ "thread_id": id })).await.unwrap(),
        &harness,
    );
    let goal = json!({ "thread_id": id, "objective": "make the tests green" });
    check_golden("goal_set", &ask("goal_set", goal).await.unwrap(), &harness);
    check_golden("goal_get", &ask("goal_get", json!({ "thread_id": id })).await.unwrap(), &harness);
    let fork =
        json!({ "thread_id": id, "name": "other", "approval_policy": "never", "sandbox": "read-only" });
    check_golden("fork", &ask("fork", fork).await.unwrap(), &harness);
    check_golden("goal_clear", &ask("goal_clear", json!({ "thread_id": id })).await.unwrap(), &harness);
    check_golden("goal_clear_empty", &ask("goal_clear", json!({ "thread_id": id })).await.unwrap(), &harness);
    check_golden("archive", &ask("archive", json!({ "thread_id": id })).await.unwrap(), &harness);
    check_golden(
        "list",
        &ask("list", json!({ "include_archived": true, "limit": 10 })).await.unwrap(),
        &harness,
    );
    check_golden("unarchive", &ask("unarchive", json!({ "thread_id": id })).await.unwrap(), &harness);
    check_golden(
        "read",
        &ask("read", json!({ "thread_id": id, "from_seq": 0, "limit": 1 })).await.unwrap(),
        &harness,
    );
    let alone = harness.start_thread("alone").await;
    check_golden("delete", &ask("delete", json!({ "thread_id": alone })).await.unwrap(), &harness);
    let not_found = ask("read", json!({ "thread_id": alone })).await.unwrap_err();
    check_golden("missing", &not_found.response.unwrap(), &harness);
}

/// Returns a request of every verb that names a thread.
fn request_for_thread(kind: &str, id: &str) -> Option<Value> {
    Some(match kind {
        "create" | "start" | "list" => return None,
        "set_name" => json!({ "thread_id": id, "name": "x" }),
        "message" => json!({ "thread_id": id, "input": "hello" }),
        "goal_set" => json!({ "thread_id": id, "objective": "x" }),
        _ => json!({ "thread_id": id }),
    })
}

#[tokio::test]
async fn an_unknown_thread_is_missing_for_every_verb_alike() {
    let harness = EngineHarness::new();
    let unknown = "01970000-0000-7000-8000-000000000001";
    let mut seen = 0;
    for kind in REQUEST_KINDS {
        for id in [unknown, &format!("s_{unknown}"), "thread-1", "", "../..", "s_"] {
            let Some(fields) = request_for_thread(kind, id) else { continue };
            let api_error = harness.thread_request(kind, fields).await.unwrap_err();
            assert_eq!(
                (&api_error.code, api_error.http_status(), api_error.json_rpc_code()),
                (&ErrorCode::NotFound, 404, -32_004),
                "{kind}"
            );
            let shown = if id == unknown { format!("s_{unknown}") } else { id.to_owned() };
            let expected = json!({ "thread_id": shown, "status": "missing", "threads": [], "events": [],
                "data": { "error": "thread not found" } });
            assert_eq!(*api_error.response.unwrap(), expected, "{kind}");
            seen += 1;
        }
    }
    assert_eq!(seen, 14 * 6);
    // The error repeats the requested settings in current names.
    for kind in ["resume", "fork"] {
        let fields =
            json!({ "thread_id": unknown, "approval_policy": "on_request", "sandbox": "workspace-write" });
        let answer = *harness.thread_request(kind, fields).await.unwrap_err().response.unwrap();
        assert_eq!((&answer["approval_policy"], &answer["sandbox"]), (&json!("ask"), &json!("scope")));
    }
    assert_eq!(harness.home.store.list_sessions().unwrap().len(), 0);
}

#[tokio::test]
async fn what_is_not_asked_for_is_refused_by_name() {
    let house = EngineHarness::new();
    let id = house.start_thread("tale").await;
    let work = house.work_dir();
    for kind in REQUEST_KINDS {
        let mut fields = request_for_thread(kind, &id).unwrap_or_else(|| json!({ "cwd": work }));
        fields["personality"] = json!("kind");
        let api_error = house.thread_request(kind, fields).await.unwrap_err();
        assert_eq!(api_error.code, ErrorCode::InvalidRequest, "{kind}");
        assert!(api_error.message.contains("personality"), "{kind}: {}", api_error.message);
    }
    let rows: &[(&str, Value, &str)] = &[
        ("start", json!({}), "cwd"),
        ("start", json!({ "cwd": "relative" }), "absolute"),
        ("start", json!({ "cwd": work, "persist_extended_history": false }), "ephemeral"),
        ("start", json!({ "cwd": work, "approval_policy": "ask" }), "approval_policy"),
        ("start", json!({ "cwd": work, "model": "no-such-name" }), "no-such-name"),
        ("start", json!({ "cwd": work, "name": "not/a/name" }), "name"),
        ("start", json!({ "cwd": work, "history": [{ "role": "user" }] }), "history[0]"),
        ("start", json!({ "cwd": work, "history": [{ "role": "robot", "content": "x" }] }), "role"),
        ("start", json!({ "cwd": work, "history": [{ "role": "user", "content": "x", "id": 1 }] }), "`id`"),
        (
            "start",
            json!({ "cwd": work, "history": [{ "kind": "tool_call", "call_id": "c", "name": "t", "arguments": "{}" }] }),
            "no result",
        ),
        ("start", json!({ "cwd": work, "history": [{ "kind": "song" }] }), "history[0]"),
        ("resume", json!({ "thread_id": id, "approval_policy": "sometimes" }), "sometimes"),
        ("resume", json!({ "thread_id": id, "sandbox": "off" }), "--unsandboxed"),
        ("resume", json!({ "thread_id": id, "sandbox": "danger-full-access" }), "danger-full-access"),
        ("resume", json!({ "thread_id": id, "model_provider": "elsewhere" }), "elsewhere"),
        ("fork", json!({ "thread_id": id, "at_seq": 99 }), "99"),
        ("fork", json!({ "thread_id": id, "cwd": "/" }), "workspace"),
        ("list", json!({ "status": "odd" }), "odd"),
        ("list", json!({ "limit": 0 }), "limit"),
        ("list", json!({ "limit": 501 }), "500"),
        ("list", json!({ "cursor": "x" }), "cursor"),
        ("read", json!({ "thread_id": 7 }), "invalid type"),
        ("message", json!({ "thread_id": id }), "input"),
        ("message", json!({ "thread_id": id, "input": " " }), "is empty"),
        ("message", json!({ "thread_id": id, "input": 7 }), "input"),
        ("message", json!({ "thread_id": id, "input": "x", "mode": "shout" }), "mode"),
        ("message", json!({ "thread_id": id, "input": format!("it is {SECRET}") }), "secret"),
        ("goal_set", json!({ "thread_id": id, "objective": "x", "budget": { "tokens": "many" } }), "budget"),
        ("goal_set", json!({ "thread_id": id, "objective": "  " }), "objective"),
        ("goal_set", json!({ "thread_id": id, "objective": SECRET }), "secret"),
        ("checkpoint_save", json!({ "thread_id": id, "checkpoint_id": "latest" }), "latest"),
        ("checkpoint_save", json!({ "thread_id": id, "checkpoint_id": "" }), "id"),
        ("checkpoint_save", json!({ "thread_id": id, "state": "x".repeat(300_000) }), "262144"),
        ("checkpoint_save", json!({ "thread_id": id, "state": SECRET }), "secret"),
        ("checkpoint_load", json!({ "thread_id": id, "checkpoint_id": "no-such-name" }), "no-such-name"),
        ("goal_record_progress", json!({ "thread_id": id, "token_delta": 120 }), "goal_record_progress"),
    ];
    let before = house.home.store.open_reader(id.parse().unwrap()).unwrap().head_position().unwrap();
    for (kind, fields, says) in rows {
        let api_error = house.thread_request(kind, fields.clone()).await.unwrap_err();
        assert!(api_error.message.contains(says), "{kind} {fields:.80}: {}", api_error.message);
        assert!(matches!(api_error.http_status(), 400 | 404), "{kind} {fields:.80}: {api_error:?}");
    }
    for params in [json!([]), json!("x"), json!({}), json!({ "kind": 7 }), json!({ "kind": "sing" })] {
        assert_eq!(house.call_engine("thread", params).await.unwrap_err().code, ErrorCode::InvalidRequest);
    }
    assert_eq!(house.call_engine("sing", json!({})).await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(house.home.store.list_sessions().unwrap().len(), 1, "nothing was made");
    assert_eq!(
        house.home.store.open_reader(id.parse().unwrap()).unwrap().head_position().unwrap(),
        before,
        "nothing was written"
    );
}

/// Requests of an older system's clients. Its ids began with `thread-`; here they are session ids.
#[tokio::test]
async fn the_sample_requests_of_older_clients_are_taken() {
    let harness = EngineHarness::new();
    let work = harness.work_dir();
    let created = harness
        .call_engine("thread", json!({ "kind": "create", "metadata": { "label": "x" }, "cwd": work }))
        .await;
    let id = created.unwrap()["thread_id"].clone();
    let start = json!({ "kind": "start", "model_provider": "scripted", "cwd": work, "persist_extended_history": true });
    let started = harness.call_engine("thread", start).await.unwrap();
    assert_eq!((&started["status"], &started["events"]), (&json!("started"), &json!([])));
    assert_eq!(started["thread"]["source"], "api");
    assert_eq!(started["data"], json!({ "history": [], "checkpoint": null }));
    let listed = harness
        .call_engine("thread", json!({ "kind": "list", "include_archived": true, "limit": 10 }))
        .await
        .unwrap();
    assert_eq!((&listed["thread_id"], listed["threads"].as_array().unwrap().len()), (&json!("list"), 2));
    // `resume` with history and `message` start a pod: the binary's tests cover them.
    let fork = json!({ "kind": "fork", "thread_id": id, "model": MODEL, "cwd": work });
    assert_eq!(harness.call_engine("thread", fork).await.unwrap()["status"], "forked");
}

#[tokio::test]
async fn a_change_of_a_sleeping_thread_wakes_nobody() {
    let house = EngineHarness::new();
    let id = house.start_thread("tale").await;
    for (kind, more) in [
        ("set_name", json!({ "name": "story" })),
        ("archive", json!({})),
        ("unarchive", json!({})),
        ("goal_set", json!({ "objective": "x" })),
        ("checkpoint_save", json!({})),
    ] {
        let mut fields = more;
        fields["thread_id"] = json!(id);
        house.thread_request(kind, fields).await.unwrap();
        assert_eq!(house.home.store.lease_holder(id.parse().unwrap()).unwrap(), None, "{kind}");
    }
    let pods = house.call_engine("pods", json!({})).await.unwrap();
    assert_eq!(pods, json!({ "pods": [] }));
    let read = house.thread_request("read", json!({ "thread_id": id })).await.unwrap();
    let kinds: Vec<&str> =
        read["data"]["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    let visits = kinds.iter().filter(|kind| **kind == "opened").count();
    assert_eq!((visits, kinds.first(), kinds.last()), (5, Some(&"session_start"), Some(&"checkpoint")));
    assert!(read["data"]["entries"].as_array().unwrap().iter().all(|e| e["as"] != "pod"));
}

#[tokio::test]
async fn pages_of_a_filtered_list_leave_nobody_out() {
    let harness = EngineHarness::new();
    let mut away = Vec::new();
    for n in 0..12 {
        let id = harness.start_thread(&format!("t{n}")).await;
        if n % 3 == 0 {
            harness.thread_request("archive", json!({ "thread_id": id })).await.unwrap();
            away.push(id);
        }
    }
    for (status, expected) in [("archived", 4), ("idle", 8), ("running", 0), ("completed", 0), ("failed", 0)]
    {
        let (mut seen, mut cursor) = (Vec::new(), Value::Null);
        for _ in 0..20 {
            let list = json!({ "status": status, "limit": 3, "cursor": cursor });
            let page = harness.thread_request("list", list).await.unwrap();
            let threads = page["threads"].as_array().unwrap().clone();
            assert!(threads.len() <= 3);
            seen.extend(threads.iter().map(|thread| thread["id"].as_str().unwrap().to_owned()));
            cursor = page["data"]["next_cursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        assert_eq!((seen.len(), once.len()), (expected, expected), "{status}");
        assert_eq!(status == "archived", seen.iter().all(|id| away.contains(id)) && expected > 0, "{status}");
    }
    let all = harness
        .thread_request("list", json!({ "include_archived": true, "cwd": harness.work_dir() }))
        .await
        .unwrap();
    assert_eq!(all["threads"].as_array().unwrap().len(), 12);
    let elsewhere = harness.thread_request("list", json!({ "cwd": "/" })).await.unwrap();
    assert_eq!(elsewhere["threads"], json!([]));
}

#[tokio::test]
async fn a_fork_shows_what_it_stands_on_and_keeps_it_alive() {
    let house = EngineHarness::new();
    let history = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" }]);
    let golden_text =
        house.thread_request("start", json!({ "cwd": house.work_dir(), "history": history })).await.unwrap();
    let parent = golden_text["thread_id"].clone();
    house.thread_request("goal_set", json!({ "thread_id": parent, "objective": "x" })).await.unwrap();
    let history_items = golden_text["data"]["history"].as_array().unwrap();
    let words: Vec<_> = history_items
        .iter()
        .map(|row| (row["role"].as_str().unwrap(), row["content"].as_str().unwrap()))
        .collect();
    assert_eq!(words, [("user", "hi"), ("assistant", "hello")]);
    let forked = house.thread_request("fork", json!({ "thread_id": parent })).await.unwrap();
    let fork = forked["thread_id"].clone();
    let inherited = forked["data"]["history"].as_array().unwrap();
    assert_eq!(inherited.len(), 2);
    assert!(inherited.iter().all(|row| row["thread_id"] == parent), "{inherited:?}");
    assert_eq!(
        forked["thread"]["from"]["session"].as_str().map(|id| format!("s_{id}")),
        parent.as_str().map(str::to_owned)
    );
    let goal = house.thread_request("goal_get", json!({ "thread_id": fork })).await.unwrap();
    assert_eq!(goal["data"]["goal"]["objective"], "x", "the goal comes along");
    // The thread has a conversation, so no history can be imported.
    let again = json!({ "thread_id": parent, "history": history });
    assert_eq!(house.thread_request("resume", again).await.unwrap_err().code, ErrorCode::Conflict);
    // Changed settings of a fork also apply to its own forks.
    let changed = json!({ "thread_id": fork, "approval_policy": "never", "sandbox": "read-only" });
    let changed = house.thread_request("fork", changed).await.unwrap()["thread_id"].clone();
    let last = house.thread_request("fork", json!({ "thread_id": changed })).await.unwrap();
    assert_eq!((&last["approval_policy"], &last["sandbox"]), (&json!("deny"), &json!("read_only")));
    for id in [&last["thread_id"], &changed] {
        house.thread_request("delete", json!({ "thread_id": id })).await.unwrap();
    }
    let refused = house.thread_request("delete", json!({ "thread_id": parent })).await.unwrap_err();
    assert_eq!((refused.http_status(), refused.message.contains("fork")), (409, true), "{refused:?}");
    house.thread_request("delete", json!({ "thread_id": fork })).await.unwrap();
    house.thread_request("delete", json!({ "thread_id": parent })).await.unwrap();
    assert_eq!(house.home.store.list_sessions().unwrap().len(), 0);
}

#[tokio::test]
async fn the_catalog_and_the_configuration_come_from_the_binary() {
    let harness = EngineHarness::new();
    let catalog = harness.call_engine("models", json!({})).await.unwrap();
    assert!(catalog["models"].as_array().unwrap().iter().any(|model| model["ref"] == MODEL), "{catalog}");
    let config = harness.call_engine("config", json!({ "cwd": harness.work_dir() })).await.unwrap();
    let model = config["values"].as_array().unwrap().iter().find(|row| row["key"] == "model.ref").unwrap();
    assert_eq!(model["value"], MODEL);
    let set = json!({ "key": "worker.max_turns", "value": 5 });
    assert_eq!(harness.call_engine("config/set", set).await.unwrap()["value"], 5);
    for (method, params) in [
        ("models", json!({ "x": 1 })),
        ("config", json!({ "cwd": "w" })),
        ("config/set", json!({})),
        ("config/set", json!({ "key": "nope", "value": 1 })),
        ("asks", json!({ "x": 1 })),
        ("pods", json!([1])),
        ("prompt", json!({ "prompt": "x" })),
        ("prompt", json!({ "prompt": "x", "cwd": "/", "temperature": 1 })),
        (
            "tool/invoke",
            json!({ "call": { "name": "x", "payload": { "type": "function", "arguments": "{}" } } }),
        ),
        ("tool/invoke", json!({ "thread_id": "x", "call": {} })),
    ] {
        let api_error = harness.call_engine(method, params.clone()).await.unwrap_err();
        assert_eq!(api_error.code, ErrorCode::InvalidRequest, "{method} {params}: {api_error:?}");
    }
    for (method, params) in [
        ("pods/get", json!({ "name": "no-such-name" })),
        ("pods/stop", json!({ "name": "no-such-name" })),
        ("pods/send", json!({ "name": "no-such-name", "input": "x" })),
        ("asks/answer", json!({ "id": "no-such-name", "decision": "approved" })),
        (
            "approval/answer",
            json!({ "approval_id": "01970000-0000-7000-8000-000000000001", "decision": "denied" }),
        ),
        ("prompt", json!({ "thread_id": "no-such-name", "prompt": "x" })),
        (
            "tool/invoke",
            json!({ "thread_id": "no-such-name", "call": { "name": "x", "payload": { "type": "custom", "input": "" } } }),
        ),
    ] {
        let api_error = harness.call_engine(method, params.clone()).await.unwrap_err();
        assert_eq!(api_error.code, ErrorCode::NotFound, "{method} {params}: {api_error:?}");
    }
}

#[tokio::test]
async fn a_goal_brings_the_budget_of_its_thread() {
    let harness = EngineHarness::new();
    let id = harness.start_thread("one").await;
    let goal = |budget: Value| json!({ "thread_id": id, "objective": "x", "budget": budget });
    harness.thread_request("goal_set", goal(json!({ "tokens": 5_000 }))).await.unwrap();
    assert_eq!(harness.last_budget(&id), json!({ "tokens": 5_000 }));
    // A refused request stores nothing.
    let refused = harness.thread_request("goal_set", goal(json!({ "token": 1 }))).await.unwrap_err();
    assert!(refused.message.contains("budget"), "{}", refused.message);
    assert_eq!(harness.last_budget(&id), json!({ "tokens": 5_000 }));
}
