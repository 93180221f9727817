//! A world with a mock server: a script in all four wire formats, and the variables that point the binary at
//! it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, RunningMinke};

/// One model per wire format, by its provider.
pub(crate) const WIRE_MODELS: [&str; 4] =
    ["anthropic/claude-sonnet-5", "openai/gpt-5.4", "openai-chat/gpt-5.4", "google/gemini-3.1-pro-preview"];

/// A dummy key.
pub(crate) const DUMMY_KEY: &str = "sk-nothing-is-opened-by-this";

/// A world whose providers are one mock.
pub(crate) struct MockWorld {
    pub(crate) world: CliWorld,
    mock: RunningMinke,
    base_url: String,
}

impl MockWorld {
    pub(crate) fn with_script(script: &str) -> MockWorld {
        MockWorld::with_options(script, &[])
    }

    /// The same with options of the mock.
    pub(crate) fn with_options(script: &str, options: &[&str]) -> MockWorld {
        let world = CliWorld::new();
        world.write_file("script.toml", script);
        let mut args = vec!["mock-llm", "script.toml", "--requests", "requests.jsonl"];
        args.extend(options);
        let mut mock = world.start_minke(&args);
        let base_url = mock.wait_for_stdout("http://").trim().to_owned();
        MockWorld { world, mock, base_url }
    }

    pub(crate) fn mock_address(&self) -> SocketAddr {
        self.base_url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub(crate) fn run_exec(&self, model: &str, more: &[&str]) -> CommandResult {
        let mut command = self.minke_command();
        command.args(["exec", "--model", model]).args(more);
        self.world.run_command(command)
    }

    pub(crate) fn minke_command(&self) -> Command {
        let mut command = self.world.minke_command();
        point_providers(&mut command, &self.base_url);
        command
    }

    /// Stops the mock and returns its world.
    pub(crate) fn stop_mock(mut self) -> CliWorld {
        drop(self.mock.child.kill());
        drop(self.mock.child.wait());
        std::mem::replace(&mut self.world, CliWorld::new())
    }

    /// Returns the requests to the mock, in order.
    pub(crate) fn mock_requests(&self) -> Vec<Value> {
        self.world
            .read_file("requests.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn session_log(&self) -> Vec<Value> {
        only_session_log(&self.world)
    }
}

impl Drop for MockWorld {
    fn drop(&mut self) {
        // The server must not outlive a failed test.
        drop(self.mock.child.kill());
        drop(self.mock.child.wait());
    }
}

/// Points every provider of the tests at one address, with a key for each.
pub(crate) fn point_providers(command: &mut Command, base: &str) {
    for name in ["ANTHROPIC", "OPENAI", "GEMINI"] {
        command.env(format!("{name}_API_KEY"), DUMMY_KEY);
    }
    command.env("ANTHROPIC_BASE_URL", base);
    // One with its version and one without: both work.
    command.env("OPENAI_BASE_URL", format!("{base}/v1"));
    command.env("GEMINI_BASE_URL", base);
}

/// Returns the entries of the only session in a world.
pub(crate) fn only_session_log(world: &CliWorld) -> Vec<Value> {
    let sessions: Vec<PathBuf> = std::fs::read_dir(world.home_dir().join("data/sessions"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let [session] = sessions.as_slice() else { panic!("expected one session: {sessions:?}") };
    let id = session.file_name().unwrap().to_str().unwrap();
    let done = world.run_minke(&["tail", id, "--no-follow", "-n", "100000", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the ends of runs in a log.
pub(crate) fn run_ends(log: &[Value]) -> Vec<&Value> {
    let ends = ["run_completed", "run_errored"];
    log.iter().filter(|entry| ends.iter().any(|kind| entry["kind"] == *kind)).collect()
}
