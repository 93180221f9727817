//! Many who watch and ask at the same time. `MINKE_LONG=1` is the size that is promised: 500 streams over 50 pods, all cut
//! off and back at once, and thousands of requests; without it the same with a few.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::http::{Door, Host};
use crate::world::World;

/// Everybody is at the head after this long.
const AT_HEAD: Duration = Duration::from_secs(5);

fn long() -> bool {
    std::env::var_os("MINKE_LONG").is_some()
}

#[test]
fn a_crowd_that_comes_back_is_at_the_head_soon() {
    let (pods, clients) = if long() { (50, 10) } else { (3, 4) };
    let world = World::new();
    world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"a\", \"b\", \"c\"]\n");
    let mut threads = Vec::new();
    for pod in 0..pods {
        let name = format!("p{pod}");
        let done =
            world.run(&["exec", "--read-only", "--name", &name, "--model", "scripted:s.toml", "begin"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let done = world.run(&["send", &name, "live"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let listed = world.json(&["thread", "list", "-n", "100", "--json"]);
    for thread in listed["threads"].as_array().unwrap() {
        threads
            .push((thread["name"].as_str().unwrap().to_owned(), thread["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(threads.len(), pods);
    let host = Host::start(&world, &[]);
    let all = pods * clients;
    // First everybody sees what there is; then all leave, every pod answers once more, and all come back at once.
    let (seen, gone, back) =
        (Arc::new(Barrier::new(all + 1)), Arc::new(Barrier::new(all + 1)), Arc::new(Barrier::new(all + 1)));
    let watching: Vec<_> = (0..all)
        .map(|n| {
            let (door, id) = (host.door.clone(), threads[n % pods].1.clone());
            let (seen, gone, back) = (seen.clone(), gone.clone(), back.clone());
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || {
                    let mut events = door.events(&id, None);
                    events.until("response_end");
                    let last = events.until("response_end").pop().unwrap().id;
                    drop(events);
                    seen.wait();
                    gone.wait();
                    let begun = Instant::now();
                    let mut events = door.events(&id, last.as_deref());
                    let after = events.until("response_end");
                    let took = begun.elapsed();
                    assert_eq!(after.first().unwrap().event(), "response_start");
                    back.wait();
                    took
                })
                .unwrap()
        })
        .collect();
    seen.wait();
    for (name, _) in &threads {
        let done = world.run(&["send", name, "again"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let begun = Instant::now();
    gone.wait();
    back.wait();
    let took = begun.elapsed();
    let mut each: Vec<Duration> = watching.into_iter().map(|watching| watching.join().unwrap()).collect();
    each.sort();
    eprintln!(
        "{all} streams over {pods} pods back at the head in {took:?}, the middle one in {:?}",
        each[all / 2]
    );
    assert!(took < AT_HEAD, "{took:?}");
}

#[test]
fn many_ask_for_the_status() {
    let (clients, requests, jobs) = if long() { (8, 2_000, 100) } else { (2, 50, 3) };
    let world = World::new();
    let script = world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let (model, route) = (format!("scripted:{}", script.display()), "/v1/status");
    let host = Host::start(&world, &["--idle", "0"]);
    for number in 0..jobs {
        let cwd = world.work().join(format!("w{number}"));
        std::fs::create_dir(&cwd).unwrap();
        let job = serde_json::json!({ "cwd": cwd, "model": model, "mandate": { "objective": "do it" } });
        host.door.post("/v1/jobs", &job);
    }
    let told = loop {
        let told = host.door.call("GET", route, &serde_json::Value::Null).1;
        if told["data"]["jobs"].as_array().unwrap().iter().all(|job| job["status"] == "completed") {
            break told;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(told["data"]["total"], jobs);
    let begun = Instant::now();
    let asking: Vec<_> = (0..clients)
        .map(|_| {
            let door = host.door.clone();
            std::thread::spawn(move || ask(&door, route, requests))
        })
        .collect();
    for asking in asking {
        asking.join().unwrap();
    }
    let rate = f64::from(clients * requests) / begun.elapsed().as_secs_f64();
    eprintln!("{rate:.0} requests a second on {route}, with {jobs} jobs");
    assert!(!long() || rate > 1_000.0, "{rate:.0} requests a second");
}

/// So many requests on one connection.
fn ask(door: &Door, route: &str, requests: u32) {
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
