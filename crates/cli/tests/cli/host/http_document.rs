//! The OpenAPI document against a running host: every documented route gets a valid request, one with
//! missing, extra or wrong members, and answers with a documented status; no request makes the host fail.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::support::http::{HostClient, TestHost};
use crate::support::world::CliWorld;

/// Each thread request, with a value for each member.
const THREAD_REQUESTS: &[(&str, &[&str])] = &[
    ("create", &["cwd"]),
    ("start", &["cwd"]),
    ("resume", &["thread_id"]),
    ("fork", &["thread_id"]),
    ("list", &[]),
    ("read", &["thread_id"]),
    ("set_name", &["thread_id", "name"]),
    ("archive", &["thread_id"]),
    ("unarchive", &["thread_id"]),
    ("message", &["thread_id", "input"]),
    ("goal_set", &["thread_id", "objective"]),
    ("goal_get", &["thread_id"]),
    ("goal_clear", &["thread_id"]),
    ("checkpoint_save", &["thread_id", "checkpoint_id", "state"]),
    ("checkpoint_load", &["thread_id"]),
    ("checkpoint_list", &["thread_id"]),
    ("delete", &["thread_id"]),
];

struct RouteTester {
    client: HostClient,
    document: Value,
    thread: String,
    cwd: String,
    request_count: usize,
    statuses: BTreeSet<(String, u16)>,
}

#[test]
fn every_documented_route_answers_as_documented() {
    let world = CliWorld::new();
    let script = world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"Yes.\"\n");
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    let config = format!("[model]\nref = \"scripted/{}\"\n", script.to_str().unwrap());
    std::fs::write(world.home_dir().join("config/config.toml"), config).unwrap();
    let host = TestHost::start_host(&world, &[]);
    let (status, document) = host.client.call_json("GET", "/openapi.json", &Value::Null);
    assert_eq!(status, 200);
    let cwd = world.work_dir().to_str().unwrap().to_owned();
    let made = host.client.post_ok("/v1/thread", &json!({ "kind": "create", "cwd": cwd }));
    let thread = made["thread_id"].as_str().unwrap().to_owned();
    let mut tester = RouteTester {
        client: host.client.clone(),
        document,
        thread,
        cwd,
        request_count: 0,
        statuses: BTreeSet::new(),
    };
    let paths = tester.document["paths"].as_object().unwrap().clone();
    for (path, operations) in &paths {
        for (verb, operation) in operations.as_object().unwrap() {
            tester.try_route(&verb.to_uppercase(), path, operation);
        }
    }
    tester.try_thread_requests();
    // The host has exactly the documented routes.
    for (path, verb) in [("/v1/nothing", "GET"), ("/v1/thread", "GET"), ("/v1/asks", "POST"), ("/v1", "GET")]
    {
        let (status, _) = tester.client.call_json(verb, path, &Value::Null);
        assert!(matches!(status, 404 | 405), "{verb} {path}: {status}");
    }
    assert!(tester.request_count > 300, "only {} requests", tester.request_count);
    let done = tester.statuses.iter().filter(|(_, status)| *status == 200).count();
    assert!(done >= 8, "only {done} routes ever succeeded: {:?}", tester.statuses);
    eprintln!("{} requests over {} routes", tester.request_count, paths.len());
}

impl RouteTester {
    fn try_route(&mut self, verb: &str, path: &str, operation: &Value) {
        // A stream has no end, and a handshake is not a request.
        if path == "/v1/events" || path == "/v1/ws" {
            let (status, _) = self.client.call_json(verb, path, &Value::Null);
            return self.check_response(verb, path, operation, status, &json!({}));
        }
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let in_path = |parameter: &&Value| parameter["in"] == "path";
        let named: Vec<&Value> = parameters.iter().filter(in_path).collect();
        let words =
            if named.is_empty() { vec![""] } else { vec!["missing", "%00", "..%2f..", "s_", "💥", "a b"] };
        for word in words {
            let encoded: String = word.bytes().map(|byte| percent_encode(byte, word)).collect();
            let target = named.iter().fold(path.to_owned(), |path, parameter| {
                path.replace(&format!("{{{}}}", parameter["name"].as_str().unwrap()), &encoded)
            });
            let queried: Vec<String> = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| format!("{}=x", parameter["name"].as_str().unwrap()))
                .collect();
            for query in [String::new(), queried.join("&"), "unknown=1".to_owned(), "%ff=%fe".to_owned()] {
                let target = if query.is_empty() { target.clone() } else { format!("{target}?{query}") };
                for body in self.request_bodies(verb, operation) {
                    let (status, answer) = self.client.call_json(verb, &target, &body);
                    self.request_count += 1;
                    self.statuses.insert((format!("{verb} {path}"), status));
                    self.check_response(verb, &format!("{target} {body}"), operation, status, &answer);
                }
                if verb == "POST" && !queried.is_empty() {
                    break;
                }
            }
        }
    }

    /// Returns possible bodies: as documented, with one member missing, of another type, or with too many.
    fn request_bodies(&self, verb: &str, operation: &Value) -> Vec<Value> {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if verb != "POST" {
            return vec![Value::Null];
        }
        let fields = schema["properties"].as_object().cloned().unwrap_or_default();
        let required: Vec<&str> =
            schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let good: Map<String, Value> = fields
            .keys()
            .filter(|name| required.contains(&name.as_str()))
            .map(|name| (name.clone(), self.sample_value(name)))
            .collect();
        let mut bodies = vec![json!(good), json!({}), Value::Null];
        for name in &required {
            let mut less = good.clone();
            less.remove(*name);
            bodies.push(json!(less));
        }
        for name in fields.keys() {
            for wrong in [
                Value::Null,
                json!(-1),
                json!(1.5),
                json!("\u{0}"),
                json!([[]]),
                json!({ "": {} }),
                json!(true),
            ] {
                let mut other = good.clone();
                other.insert(name.clone(), wrong);
                bodies.push(json!(other));
            }
        }
        let mut more = good;
        more.insert("not_a_member".to_owned(), json!(1));
        bodies.push(json!(more));
        bodies
    }

    fn sample_value(&self, name: &str) -> Value {
        match name {
            // Not the existing thread, so that wrong members do not use it up.
            "thread_id" => json!("s_00000000-0000-7000-8000-000000000000"),
            "kind" => json!("list"),
            "cwd" => json!(self.cwd),
            "call" => json!({ "name": "Read", "payload": { "type": "function", "arguments": "{}" } }),
            "decision" => json!("approved"),
            "mandate" => json!({ "objective": "be done" }),
            "progress" => json!(50),
            "key" => json!("nothing.of.this"),
            "state" => json!({ "a": 1 }),
            "prompt" | "input" => json!("Say yes."),
            other => json!(other),
        }
    }

    /// Sends every kind of request, valid and invalid, for the existing thread.
    fn try_thread_requests(&mut self) {
        let operation = self.document["paths"]["/v1/thread"]["post"].clone();
        for (kind, members) in THREAD_REQUESTS {
            let mut good = Map::from_iter([("kind".to_owned(), json!(kind))]);
            for name in *members {
                let value = if *name == "thread_id" { json!(self.thread) } else { self.sample_value(name) };
                good.insert((*name).to_owned(), value);
            }
            let mut bodies = Vec::new();
            for name in *members {
                let mut less = good.clone();
                less.remove(*name);
                bodies.push(json!(less));
                let mut wrong = good.clone();
                wrong.insert((*name).to_owned(), json!([1]));
                bodies.push(json!(wrong));
            }
            let mut more = good.clone();
            more.insert("not_a_member".to_owned(), json!(1));
            bodies.push(json!(more));
            for body in bodies {
                let (status, answer) = self.client.call_json("POST", "/v1/thread", &body);
                self.request_count += 1;
                self.check_response("POST", &body.to_string(), &operation, status, &answer);
            }
            let (status, answer) = self.client.call_json("POST", "/v1/thread", &json!(good));
            self.request_count += 1;
            assert_ne!(status, 400, "{kind}: {answer:#}");
            self.check_response("POST", kind, &operation, status, &answer);
        }
    }

    #[track_caller]
    fn check_response(&self, verb: &str, what: &str, operation: &Value, status: u16, answer: &Value) {
        assert!(status < 500, "{verb} {what}: {status} {answer:#}");
        let unserved = ["there is no method", "there is no such route"];
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            !unserved.iter().any(|word| message.contains(word)),
            "{verb} {what} is documented: {message}"
        );
        let documented = operation["responses"].as_object().unwrap();
        assert!(documented.contains_key(&status.to_string()), "{verb} {what}: {status} is not documented");
        if status != 200 && !answer.as_object().is_some_and(Map::is_empty) {
            let told = answer["error"]["message"].is_string() || answer["data"]["error"].is_string();
            assert!(told, "{verb} {what}: {status} has no message: {answer:#}");
        }
    }
}

/// Percent-encodes a byte for a path; encoded text is unchanged.
fn percent_encode(byte: u8, word: &str) -> String {
    if word.contains('%') || byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02x}")
    }
}
