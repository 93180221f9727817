//! A world with a mock server in it: a script that is served in all four wire formats, and the variables that point the
//! binary at it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::world::{Done, Going, World};

/// One model of each wire format, by the provider that speaks it.
pub(crate) const MODELS: [&str; 4] =
    ["anthropic/claude-sonnet-5", "openai/gpt-5.4", "openai-chat/gpt-5.4", "google/gemini-3.1-pro-preview"];

/// A key that opens nothing.
pub(crate) const KEY: &str = "sk-nothing-is-opened-by-this";

/// A world whose providers are one mock.
pub(crate) struct Wired {
    pub(crate) world: World,
    mock: Going,
    base: String,
}

impl Wired {
    pub(crate) fn new(script: &str) -> Wired {
        Wired::with(script, &[])
    }

    /// The same with options of the mock.
    pub(crate) fn with(script: &str, options: &[&str]) -> Wired {
        let world = World::new();
        world.write("script.toml", script);
        let mut args = vec!["mock-llm", "script.toml", "--requests", "requests.jsonl"];
        args.extend(options);
        let mut mock = world.start(&args);
        let base = mock.until("http://").trim().to_owned();
        Wired { world, mock, base }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.base.strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub(crate) fn exec(&self, model: &str, more: &[&str]) -> Done {
        let mut command = self.command();
        command.args(["exec", "--model", model]).args(more);
        self.world.done(command)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = self.world.command();
        point(&mut command, &self.base);
        command
    }

    /// The world without its mock.
    pub(crate) fn gone(mut self) -> World {
        drop(self.mock.child.kill());
        drop(self.mock.child.wait());
        std::mem::replace(&mut self.world, World::new())
    }

    /// What the mock was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.world.read("requests.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        log(&self.world)
    }
}

impl Drop for Wired {
    fn drop(&mut self) {
        // Whatever the test found, the server must not stay behind.
        drop(self.mock.child.kill());
        drop(self.mock.child.wait());
    }
}

/// Points every provider of the tests at one address, with a key for each.
pub(crate) fn point(command: &mut Command, base: &str) {
    for name in ["ANTHROPIC", "OPENAI", "GEMINI"] {
        command.env(format!("{name}_API_KEY"), KEY);
    }
    command.env("ANTHROPIC_BASE_URL", base);
    // One with its version and one without: both work.
    command.env("OPENAI_BASE_URL", format!("{base}/v1"));
    command.env("GEMINI_BASE_URL", base);
}

/// The entries of the one session in a world.
pub(crate) fn log(world: &World) -> Vec<Value> {
    let sessions: Vec<PathBuf> =
        std::fs::read_dir(world.home().join("data/sessions")).unwrap().map(|e| e.unwrap().path()).collect();
    let [session] = sessions.as_slice() else { panic!("one session should be there: {sessions:?}") };
    let id = session.file_name().unwrap().to_str().unwrap();
    let done = world.run(&["tail", id, "--no-follow", "-n", "100000", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ends of runs in a log.
pub(crate) fn ends(log: &[Value]) -> Vec<&Value> {
    let ends = ["run_completed", "run_errored"];
    log.iter().filter(|entry| ends.iter().any(|kind| entry["kind"] == *kind)).collect()
}
