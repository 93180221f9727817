//! Many clients that watch and send requests at the same time. `MINKE_LONG=1` tests the promised size: 500
//! streams over 50 pods, all disconnected and reconnected at once, and thousands of requests; the default is
//! smaller.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::support::http::{HostClient, TestHost};
use crate::support::world::CliWorld;

/// Time limit until all streams are at the head.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

fn is_long_run() -> bool {
    std::env::var_os("MINKE_LONG").is_some()
}

#[test]
fn a_crowd_that_comes_back_is_at_the_head_soon() {
    let (pods, clients) = if is_long_run() { (50, 10) } else { (3, 4) };
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"a\", \"b\", \"c\"]\n");
    let mut threads = Vec::new();
    for pod in 0..pods {
        let name = format!("p{pod}");
        let done =
            world.run_minke(&["exec", "--read-only", "--name", &name, "--model", "scripted:s.toml", "begin"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let done = world.run_minke(&["send", &name, "live"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let listed = world.run_json(&["thread", "list", "-n", "100", "--json"]);
    for thread in listed["threads"].as_array().unwrap() {
        threads
            .push((thread["name"].as_str().unwrap().to_owned(), thread["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(threads.len(), pods);
    let host = TestHost::start_host(&world, &[]);
    let all = pods * clients;
    // First all streams catch up; then all disconnect, every pod replies once more, and all reconnect at
    // once.
    let (seen, gone, back) =
        (Arc::new(Barrier::new(all + 1)), Arc::new(Barrier::new(all + 1)), Arc::new(Barrier::new(all + 1)));
    let watching: Vec<_> = (0..all)
        .map(|n| {
            let (door, id) = (host.client.clone(), threads[n % pods].1.clone());
            let (seen, gone, back) = (seen.clone(), gone.clone(), back.clone());
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || {
                    let mut events = door.open_events(&id, None);
                    events.read_until("response_end");
                    let last = events.read_until("response_end").pop().unwrap().id;
                    drop(events);
                    seen.wait();
                    gone.wait();
                    let begun = Instant::now();
                    let mut events = door.open_events(&id, last.as_deref());
                    let after = events.read_until("response_end");
                    let took = begun.elapsed();
                    assert_eq!(after.first().unwrap().event_name(), "response_start");
                    back.wait();
                    took
                })
                .unwrap()
        })
        .collect();
    seen.wait();
    for (name, _) in &threads {
        let done = world.run_minke(&["send", name, "again"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let begun = Instant::now();
    gone.wait();
    back.wait();
    let took = begun.elapsed();
    let mut each: Vec<Duration> = watching.into_iter().map(|watching| watching.join().unwrap()).collect();
    each.sort();
    eprintln!("{all} streams over {pods} pods back at the head in {took:?}, median {:?}", each[all / 2]);
    assert!(took < CATCH_UP_TIMEOUT, "{took:?}");
}

#[test]
fn many_ask_for_the_status() {
    let (clients, requests, jobs) = if is_long_run() { (8, 2_000, 100) } else { (2, 50, 3) };
    let world = CliWorld::new();
    let script = world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let (model, route) = (format!("scripted:{}", script.display()), "/v1/status");
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    for number in 0..jobs {
        let cwd = world.work_dir().join(format!("w{number}"));
        std::fs::create_dir(&cwd).unwrap();
        let job = serde_json::json!({ "cwd": cwd, "model": model, "mandate": { "objective": "do it" } });
        host.client.post_ok("/v1/jobs", &job);
    }
    let told = loop {
        let told = host.client.call_json("GET", route, &serde_json::Value::Null).1;
        if told["data"]["jobs"].as_array().unwrap().iter().all(|job| job["status"] == "completed") {
            break told;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(told["data"]["total"], jobs);
    let begun = Instant::now();
    let asking: Vec<_> = (0..clients)
        .map(|_| {
            let door = host.client.clone();
            std::thread::spawn(move || send_requests(&door, route, requests))
        })
        .collect();
    for asking in asking {
        asking.join().unwrap();
    }
    let rate = f64::from(clients * requests) / begun.elapsed().as_secs_f64();
    eprintln!("{rate:.0} requests a second on {route}, with {jobs} jobs");
    assert!(!is_long_run() || rate > 1_000.0, "{rate:.0} requests a second");
}

/// Sends N requests on one connection.
fn send_requests(door: &HostClient, route: &str, requests: u32) {
    let mut stream = TcpStream::connect(&door.address).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let request = format!(
        "GET {route} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        door.address,
        door.token()
    );
    for _ in 0..requests {
        stream.write_all(request.as_bytes()).unwrap();
        let (mut status, mut length) = (String::new(), 0);
        lines.read_line(&mut status).unwrap();
        assert!(status.contains(" 200 "), "{status}");
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        lines.read_exact(&mut vec![0; length]).unwrap();
    }
}
