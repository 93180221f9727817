//! Hooks named in `notify` of a mandate receive every end and every pause of the job, and of no other job.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::http::TestHost;
use crate::support::world::CliWorld;

const NOTIFY_TIMEOUT: Duration = Duration::from_secs(60);

const NOTIFY_SCRIPT: &str = r#"
loop = true
[[turn]]
pace_ms = 50
text = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten."]
"#;
const REFUSED_SCRIPT: &str = "loop = true\n[[turn]]\nerror = { status = 400, message = \"no\", times = 9 }\n";

struct NotifyLog<'a>(&'a CliWorld);

impl NotifyLog<'_> {
    fn notify_lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.home_dir().join("told.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the reported states of a job, in order.
    fn states_of(&self, id: &str) -> Vec<String> {
        let lines = self.notify_lines().into_iter().filter(|line| line["session"] == id);
        lines.map(|line| line["event"]["state"].as_str().unwrap().to_owned()).collect()
    }

    fn wait_for_states(&self, id: &str, states: &[&str]) {
        let begun = Instant::now();
        while self.states_of(id) != states {
            assert!(begun.elapsed() < NOTIFY_TIMEOUT, "{id}: {:?} and not {states:?}", self.states_of(id));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn world_with_hook(more: &str) -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", NOTIFY_SCRIPT);
    world.write_file("refused.toml", REFUSED_SCRIPT);
    let config = world.home_dir().join("config");
    std::fs::create_dir_all(&config).unwrap();
    let file = world.home_dir().join("told.jsonl");
    let hook = format!(
        "[[hook]]\nname = \"chat\"\nevent = \"job\"\nwhen = {{ job = \"named\" }}\nfile = \"{}\"\n{more}",
        file.display()
    );
    std::fs::write(config.join("hooks.toml"), hook).unwrap();
    world
}

fn start_job(world: &CliWorld, name: &str, script: &str, more: &[&str]) -> String {
    let dir = world.work_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let (dir, model) = (dir.to_str().unwrap().to_owned(), format!("scripted:{script}"));
    let args = ["job", "run", "do it", "--json", "--cwd", &dir, "--name", name, "--model", &model];
    world.run_json(&[&args[..], more].concat())["thread_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_named_hook_hears_of_every_end_and_pause() {
    let world = world_with_hook("");
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    let told = NotifyLog(&world);
    let quiet = start_job(&world, "quiet", "s.toml", &[]);
    let good = start_job(&world, "good", "s.toml", &["--notify", "chat"]);
    let bad = start_job(&world, "bad", "refused.toml", &["--notify", "chat", "--retries", "0"]);
    let given_up = start_job(&world, "given-up", "s.toml", &["--notify", "chat"]);
    world.run_json(&["job", "pause", &given_up, "--detail", "not now", "--json"]);
    told.wait_for_states(&given_up, &["paused"]);
    told.wait_for_states(&good, &["completed"]);
    told.wait_for_states(&bad, &["failed"]);
    // No pod is live: a pod is started to notify.
    assert_eq!(world.run_minke(&["stop", "given-up"]).code, Some(0));
    world.run_json(&["job", "cancel", &given_up, "--json"]);
    told.wait_for_states(&given_up, &["paused", "cancelled"]);
    let line = told.notify_lines().into_iter().find(|line| line["event"]["state"] == "paused").unwrap();
    assert_eq!(
        (line["event"]["type"].as_str(), line["event"]["reason"].as_str()),
        (Some("job"), Some("not now"))
    );
    assert_eq!(line["event"]["objective"], "do it");
    let done = world.run_minke(&["wait", "quiet"]);
    assert!(done.code.is_some(), "{done:?}");
    assert_eq!(told.states_of(&quiet), Vec::<String>::new());
    world.verify_logs();
}

#[test]
fn a_hook_of_another_event_hears_of_the_job_that_names_it_and_an_unknown_name_is_told() {
    let world = world_with_hook("");
    let file = world.home_dir().join("told.jsonl");
    let text = format!("[[hook]]\nname = \"chat\"\nevent = \"compact\"\nfile = \"{}\"\n", file.display());
    std::fs::write(world.home_dir().join("config/hooks.toml"), text).unwrap();
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    let told = NotifyLog(&world);
    let id = start_job(&world, "good", "s.toml", &["--notify", "chat", "--notify", "missing"]);
    told.wait_for_states(&id, &["completed"]);
    let alerts = world.run_minke(&["log", "show", &id, "--json", "--kind", "alert"]).out;
    assert!(alerts.contains("names the hook missing"), "{alerts}");
}
