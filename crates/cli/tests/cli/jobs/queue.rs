//! Many jobs with limited capacity: they run one after the other, each once. `MINKE_LONG=1` tests the
//! promised number, ten thousand; the default is smaller.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::TestHost;
use crate::support::world::CliWorld;

/// Time limit per job, with all others before it.
const TIME_PER_JOB: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// More than may run at once.
const FEW_JOBS: usize = 40;
const MANY_JOBS: usize = 10_000;

#[test]
fn many_jobs_are_done_by_few_looks() {
    let count = if std::env::var_os("MINKE_LONG").is_some() { MANY_JOBS } else { FEW_JOBS };
    let world = CliWorld::new();
    let script = world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let model = format!("scripted:{}", script.display());
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let begun = Instant::now();
    let ids: Vec<String> = (0..count)
        .map(|number| {
            // A separate directory for each job, so that their scopes do not conflict.
            let cwd = world.work_dir().join(format!("w{number}"));
            std::fs::create_dir(&cwd).unwrap();
            let body =
                json!({ "cwd": cwd, "model": model, "mandate": { "objective": format!("do {number}") } });
            host.client.post_ok("/v1/jobs", &body)["thread_id"].as_str().unwrap().to_owned()
        })
        .collect();
    let made = begun.elapsed();
    let patience = TIME_PER_JOB * u32::try_from(count).unwrap();
    for id in &ids {
        let job = loop {
            let (_, told) = host.client.call_json("GET", &format!("/v1/jobs/{id}"), &Value::Null);
            let job = told["data"]["job"].clone();
            if job["status"] == "completed" {
                break job;
            }
            assert!(begun.elapsed() < patience, "{id} is not done after {patience:?}: {told}");
            std::thread::sleep(POLL_INTERVAL);
        };
        let phases: Vec<&str> =
            job["history"].as_array().unwrap().iter().map(|item| item["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, ["created", "running", "completed"], "{id}");
    }
    let took = begun.elapsed();
    println!("{count} jobs: made in {made:?}, done in {took:?}");
    world.verify_logs();
}
