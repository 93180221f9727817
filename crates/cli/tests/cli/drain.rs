//! Many jobs and little room: they are done one after the other, each once, however many wait. `MINKE_LONG=1` is the
//! number that is promised, ten thousand; without it the same with a few.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::Host;
use crate::world::World;

/// How long one may take, all others being before it.
const EACH: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// More than there is room for at once.
const FEW: usize = 40;
const MANY: usize = 10_000;

#[test]
fn many_jobs_are_done_by_few_looks() {
    let count = if std::env::var_os("MINKE_LONG").is_some() { MANY } else { FEW };
    let world = World::new();
    let script = world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let model = format!("scripted:{}", script.display());
    let host = Host::start(&world, &["--idle", "0"]);
    let begun = Instant::now();
    let ids: Vec<String> = (0..count)
        .map(|number| {
            // A directory of its own for each: none is in another's way.
            let cwd = world.work().join(format!("w{number}"));
            std::fs::create_dir(&cwd).unwrap();
            let body =
                json!({ "cwd": cwd, "model": model, "mandate": { "objective": format!("do {number}") } });
            host.door.post("/v1/jobs", &body)["thread_id"].as_str().unwrap().to_owned()
        })
        .collect();
    let made = begun.elapsed();
    let patience = EACH * u32::try_from(count).unwrap();
    for id in &ids {
        let job = loop {
            let (_, told) = host.door.call("GET", &format!("/v1/jobs/{id}"), &Value::Null);
            let job = told["data"]["job"].clone();
            if job["status"] == "completed" {
                break job;
            }
            assert!(begun.elapsed() < patience, "{id} is not done after {patience:?}: {told}");
            std::thread::sleep(LOOK);
        };
        let phases: Vec<&str> =
            job["history"].as_array().unwrap().iter().map(|item| item["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, ["created", "running", "completed"], "{id}");
    }
    let took = begun.elapsed();
    println!("{count} jobs: made in {made:?}, done in {took:?}");
    world.verify();
}
