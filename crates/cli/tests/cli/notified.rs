//! Who a mandate names in `notify` hears of every end and every pause of the job, and of no other job.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::Host;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);

const SCRIPT: &str = r#"
loop = true
[[turn]]
pace_ms = 50
text = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten."]
"#;
const REFUSED: &str = "loop = true\n[[turn]]\nerror = { status = 400, message = \"no\", times = 9 }\n";

struct Told<'a>(&'a World);

impl Told<'_> {
    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.home().join("told.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The states that were told of a job, in their order.
    fn of(&self, id: &str) -> Vec<String> {
        let lines = self.lines().into_iter().filter(|line| line["session"] == id);
        lines.map(|line| line["event"]["state"].as_str().unwrap().to_owned()).collect()
    }

    fn until(&self, id: &str, states: &[&str]) {
        let begun = Instant::now();
        while self.of(id) != states {
            assert!(begun.elapsed() < PATIENCE, "{id}: {:?} and not {states:?}", self.of(id));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn hooked(more: &str) -> World {
    let world = World::new();
    world.write("s.toml", SCRIPT);
    world.write("refused.toml", REFUSED);
    let config = world.home().join("config");
    std::fs::create_dir_all(&config).unwrap();
    let file = world.home().join("told.jsonl");
    let hook = format!(
        "[[hook]]\nname = \"chat\"\nevent = \"job\"\nwhen = {{ job = \"named\" }}\nfile = \"{}\"\n{more}",
        file.display()
    );
    std::fs::write(config.join("hooks.toml"), hook).unwrap();
    world
}

fn begin(world: &World, name: &str, script: &str, more: &[&str]) -> String {
    let dir = world.work().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let (dir, model) = (dir.to_str().unwrap().to_owned(), format!("scripted:{script}"));
    let args = ["job", "run", "do it", "--json", "--cwd", &dir, "--name", name, "--model", &model];
    world.json(&[&args[..], more].concat())["thread_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_named_hook_hears_of_every_end_and_pause() {
    let world = hooked("");
    let _host = Host::start(&world, &["--idle", "0"]);
    let told = Told(&world);
    let quiet = begin(&world, "quiet", "s.toml", &[]);
    let good = begin(&world, "good", "s.toml", &["--notify", "chat"]);
    let bad = begin(&world, "bad", "refused.toml", &["--notify", "chat", "--retries", "0"]);
    let given_up = begin(&world, "given-up", "s.toml", &["--notify", "chat"]);
    world.json(&["job", "pause", &given_up, "--detail", "not now", "--json"]);
    told.until(&given_up, &["paused"]);
    told.until(&good, &["completed"]);
    told.until(&bad, &["failed"]);
    // Nobody lives there: a pod is started to tell it.
    assert_eq!(world.run(&["stop", "given-up"]).code, Some(0));
    world.json(&["job", "cancel", &given_up, "--json"]);
    told.until(&given_up, &["paused", "cancelled"]);
    let line = told.lines().into_iter().find(|line| line["event"]["state"] == "paused").unwrap();
    assert_eq!(
        (line["event"]["type"].as_str(), line["event"]["reason"].as_str()),
        (Some("job"), Some("not now"))
    );
    assert_eq!(line["event"]["objective"], "do it");
    let done = world.run(&["wait", "quiet"]);
    assert!(done.code.is_some(), "{done:?}");
    assert_eq!(told.of(&quiet), Vec::<String>::new());
    world.verify();
}

#[test]
fn a_hook_of_another_event_hears_of_the_job_that_names_it_and_an_unknown_name_is_told() {
    let world = hooked("");
    let file = world.home().join("told.jsonl");
    let text = format!("[[hook]]\nname = \"chat\"\nevent = \"compact\"\nfile = \"{}\"\n", file.display());
    std::fs::write(world.home().join("config/hooks.toml"), text).unwrap();
    let _host = Host::start(&world, &["--idle", "0"]);
    let told = Told(&world);
    let id = begin(&world, "good", "s.toml", &["--notify", "chat", "--notify", "nobody"]);
    told.until(&id, &["completed"]);
    let alerts = world.run(&["log", "show", &id, "--json", "--kind", "alert"]).out;
    assert!(alerts.contains("names the hook nobody"), "{alerts}");
}
