//! JSON-RPC on a pair of streams: whole lines, one response for every request, and errors for invalid ones.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::EngineHarness;
use minke_record::Actor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, duplex};

/// Sends lines and returns all response lines.
async fn send_lines(harness: &EngineHarness, lines: &str) -> Vec<Value> {
    let (ours, theirs) = duplex(4 * 1024);
    let (input, output) = tokio::io::split(theirs);
    let (reader, mut writer) = tokio::io::split(ours);
    let served = minke_host::serve_stdio(harness.engine.clone(), input, output, Actor::from_person("host"));
    let write_all = async {
        writer.write_all(lines.as_bytes()).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let read_all = async {
        let mut text = String::new();
        BufReader::new(reader).read_to_string(&mut text).await.unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:.200}: {e}")))
            .collect()
    };
    let all = async { tokio::join!(served, write_all, read_all) };
    let (served, (), heard): (_, _, Vec<Value>) =
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    served.unwrap();
    heard
}

fn request_line(id: impl Into<Value>, method: &str, params: Value) -> String {
    let id: Value = id.into();
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

#[tokio::test]
async fn answers_are_whole_lines_however_many_are_on_their_way() {
    let harness = EngineHarness::new();
    let work = harness.work_dir();
    let mut lines = String::new();
    for n in 0..200 {
        let params = match n % 4 {
            0 => {
                json!({ "kind": "create", "cwd": work, "metadata": { "n": n, "filler": "x".repeat(n * 20) } })
            }
            1 => json!({ "kind": "list", "limit": 500 }),
            2 => json!({ "kind": "read", "thread_id": "no-such-name" }),
            _ => json!({ "kind": "sing" }),
        };
        lines += &request_line(n, "thread", params);
    }
    let mut answers = BTreeMap::new();
    for answer in send_lines(&harness, &lines).await {
        let id = answer["id"].as_u64().unwrap();
        assert_eq!(answers.insert(id, answer), None, "{id} was answered twice");
    }
    assert_eq!(answers.len(), 200);
    for (n, answer) in answers {
        match n % 4 {
            0 => assert_eq!(answer["result"]["status"], "created", "{answer:.300}"),
            1 => assert_eq!(answer["result"]["thread_id"], "list", "{answer:.300}"),
            2 => assert_eq!(
                (&answer["error"]["code"], &answer["error"]["data"]["status"]),
                (&json!(-32_004), &json!("missing"))
            ),
            _ => assert_eq!(answer["error"]["code"], -32_602),
        }
    }
    assert_eq!(harness.home.store.list_sessions().unwrap().len(), 50);
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_the_rest_is_answered() {
    let house = EngineHarness::new();
    let ok = request_line("after", "thread/list", json!({}));
    let rows = [
        ("{nonsense\n".to_owned(), -32_700),
        ("7\n".to_owned(), -32_600),
        ("[]\n".to_owned(), -32_600),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"pods\"}\n".to_owned(), -32_600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}\n".to_owned(), -32_600),
        ("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"pods\"}\n".to_owned(), -32_600),
        (request_line(1, "sing", json!({})), -32_601),
        (request_line(1, "thread/sing", json!({})), -32_601),
        (request_line(1, "thread/list", json!([1])), -32_600),
        (request_line(1, "thread/list", json!({ "x": 1 })), -32_602),
        (format!("\"{}\"\n", "x".repeat(17 * 1024 * 1024)), -32_600),
    ];
    for (line, code) in rows {
        let answers = send_lines(&house, &format!("\n  \n{line}{ok}")).await;
        let refused: Vec<&Value> = answers.iter().filter(|answer| answer["id"] != "after").collect();
        assert_eq!(refused.len(), 1, "{line:.100}");
        assert_eq!(refused[0]["error"]["code"], code, "{line:.100}: {:.300}", refused[0]);
        let after = answers.iter().find(|answer| answer["id"] == "after").unwrap();
        assert_eq!(after["result"]["status"], "ok", "{line:.100}");
    }
}

#[tokio::test]
async fn notifications_are_acted_on_and_batches_answered_together() {
    let harness = EngineHarness::new();
    let work = harness.work_dir();
    let silent =
        format!("{}\n", json!({ "jsonrpc": "2.0", "method": "thread/create", "params": { "cwd": work } }));
    assert_eq!(send_lines(&harness, &silent).await, Vec::<Value>::new());
    assert_eq!(harness.home.store.list_sessions().unwrap().len(), 1);
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "thread/list", "params": {} },
        { "jsonrpc": "2.0", "method": "thread/create", "params": { "cwd": work } },
        { "jsonrpc": "2.0", "id": 2, "method": "models" },
        { "jsonrpc": "2.0", "id": null, "method": "no-such-name" },
        7,
    ]);
    // The last line has no newline, but still counts.
    let answers = send_lines(&harness, &batch.to_string()).await;
    let [Value::Array(answers)] = answers.as_slice() else { panic!("{answers:?}") };
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &Value::Null, &Value::Null]);
    assert_eq!(harness.home.store.list_sessions().unwrap().len(), 2);
}

#[tokio::test]
async fn it_ends_when_nobody_reads_any_more() {
    let house = EngineHarness::new();
    let (ours, theirs) = duplex(64);
    let (input, output) = tokio::io::split(theirs);
    let served = minke_host::serve_stdio(house.engine.clone(), input, output, Actor::from_person("host"));
    let left = async move {
        let (reader, mut writer) = tokio::io::split(ours);
        let mut reader = BufReader::new(reader);
        writer.write_all(request_line(1, "pods", json!({})).as_bytes()).await.unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        assert!(line.contains("pods"));
        // Both ends are closed.
    };
    let (served, ()) =
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(served, left) }).await.unwrap();
    served.unwrap();
}
