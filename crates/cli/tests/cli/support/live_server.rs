//! A real server, if configured: `MINKE_TEST_OPENAI_BASE` names a llama.cpp, Ollama or other server for chat
//! completions, `MINKE_TEST_OPENAI_MODEL` its model (default: the first in its list), `MINKE_TEST_OPENAI_KEY`
//! its key. Without the first variable these tests are skipped.
//!
//! The text of a small model is not checked; receiving, storing, counting and replaying it is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::support::world::CliWorld;

/// Time limit for the model list of a server.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

struct LiveServer {
    world: CliWorld,
    model: String,
}

/// Returns a world in which the server is a provider called `live`.
fn live_server() -> Option<LiveServer> {
    let Ok(base) = std::env::var("MINKE_TEST_OPENAI_BASE") else {
        eprintln!("skipped: MINKE_TEST_OPENAI_BASE is not set");
        return None;
    };
    let world = CliWorld::new();
    let auth = match std::env::var("MINKE_TEST_OPENAI_KEY") {
        Ok(_) => r#"{ api_key = { env = "LIVE_KEY" } }"#,
        Err(_) => r#""none""#,
    };
    let provider = format!("[live]\nscheme = \"openai_chat\"\nbase_url = \"{base}\"\nauth = {auth}\n");
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/providers.toml"), provider).unwrap();
    let name = std::env::var("MINKE_TEST_OPENAI_MODEL").unwrap_or_else(|_| first_listed_model(&base));
    Some(LiveServer { world, model: format!("live/{name}") })
}

/// Returns the first model in the list of a plain HTTP server.
fn first_listed_model(base: &str) -> String {
    let bare =
        base.strip_prefix("http://").expect("without MINKE_TEST_OPENAI_MODEL the server must speak http");
    let (host, path) =
        bare.split_once('/').map_or((bare, String::new()), |(host, path)| (host, format!("/{path}")));
    let path = path.trim_end_matches('/');
    let path = if path.ends_with("/v1") { path.to_owned() } else { format!("{path}/v1") };
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LIST_TIMEOUT)).unwrap();
    write!(stream, "GET {path}/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.find('{').zip(answer.rfind('}')).and_then(|(from, to)| answer.get(from..=to)).unwrap();
    let listed: Value = serde_json::from_str(body).unwrap();
    listed["data"][0]["id"].as_str().expect("the server lists a model").to_owned()
}

impl LiveServer {
    #[track_caller]
    fn run_exec(&self, args: &[&str]) -> Vec<Value> {
        let mut command = self.world.minke_command();
        if let Ok(key) = std::env::var("MINKE_TEST_OPENAI_KEY") {
            command.env("LIVE_KEY", key);
        }
        command.args(["exec", "--json"]).args(args);
        let done = self.world.run_command(command);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn check_replay(&self, session: &str) {
        let done = self.world.run_minke(&["replay", session]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
}

fn message_text(objects: &[Value]) -> String {
    let messages = objects
        .iter()
        .filter(|object| object["type"] == "item.completed" && object["item"]["type"] == "agent_message");
    messages.filter_map(|object| object["item"]["text"].as_str()).collect()
}

fn session_id(objects: &[Value]) -> String {
    objects[0]["thread_id"].as_str().expect("the session is named first").to_owned()
}

#[test]
fn a_real_server_answers_and_is_counted() {
    let Some(live) = live_server() else { return };
    let objects = live.run_exec(&["--model", &live.model, "Say hello in one short sentence."]);
    assert!(!message_text(&objects).trim().is_empty(), "{objects:#?}");
    let usage = objects.iter().find(|object| object["type"] == "turn.completed").expect("the turn has ended");
    assert!(usage["usage"]["output_tokens"].as_u64() > Some(0), "{usage}");
    live.world.verify_logs();
    live.check_replay(&session_id(&objects));
}

#[test]
fn a_real_server_goes_on_with_what_was_said() {
    let Some(live) = live_server() else { return };
    let first = live.run_exec(&["--model", &live.model, "My name is Ada. Say only: noted."]);
    let second = live.run_exec(&["--resume", &session_id(&first), "What is my name? Answer in one word."]);
    assert!(!message_text(&second).trim().is_empty(), "{second:#?}");
    eprintln!("it remembered: {}", message_text(&second).contains("Ada"));
    live.check_replay(&session_id(&first));
}

#[test]
fn a_real_server_is_offered_tools() {
    let Some(live) = live_server() else { return };
    live.world.write_file("word.txt", "marzipan\n");
    let prompt =
        "Use the Read tool on the file word.txt in your working directory and tell me the word in it.";
    let objects = live.run_exec(&["--model", &live.model, prompt]);
    let called = objects.iter().any(|object| object["item"]["tool"] == "Read");
    eprintln!("it called Read: {called}; it found the word: {}", message_text(&objects).contains("marzipan"));
    let last = objects.last().expect("the output is not empty");
    assert_eq!((last["type"].as_str(), last["result"].as_str()), (Some("run.completed"), Some("finished")));
    live.check_replay(&session_id(&objects));
}
