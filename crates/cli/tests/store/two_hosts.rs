//! Two hosts on one database: stopped past their leases, disconnected, killed, with a server that dies every
//! few seconds. Each job completes once, each command ran at most once, no entry has an old fencing number,
//! and no acknowledged data is lost.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cuttable_socket::CuttableSocket;
use crate::http::TestHost;
use crate::server::Server;
use crate::world::{CliWorld, can_sandbox_commands};

/// Duration of a lease; a stopped host stays stopped for longer.
const LEASE_DURATION_MS: u64 = 6_000;
const STOPPED_FOR: Duration = Duration::from_millis(LEASE_DURATION_MS + 2_000);
/// Minimum number of failures: each kind for each side, and with a thousand jobs one every few seconds.
fn round_count() -> usize {
    if job_count() > 100 { 60 } else { 8 }
}

/// Time between two later failures.
const QUIET_PERIOD: Duration = Duration::from_secs(4);

/// Slow enough to be interrupted; with a thousand jobs they may be faster.
fn job_script(commands: bool) -> String {
    let pace = if job_count() > 100 { 60 } else { 400 };
    let call = if commands { CALL_TURN } else { "" };
    format!("loop = true\n{call}[[turn]]\npace_ms = {pace}\n{TEXT_TURN}")
}

/// Appends a line in the directory of the job.
const CALL_TURN: &str =
    "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo ran >> ran\" }\n";

const TEXT_TURN: &str = r#"text = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten."]
"#;

/// A few by default, a thousand on request.
fn job_count() -> usize {
    if std::env::var_os("MINKE_LONG").is_some() { 1_000 } else { 12 }
}

/// A home with its host.
struct HostSide {
    world: CliWorld,
    socket: CuttableSocket,
    host: Option<TestHost>,
}

impl HostSide {
    fn new(server: &Server, commands: bool) -> HostSide {
        let (lease, socket) = (LEASE_DURATION_MS.to_string(), CuttableSocket::connect_to(&server.address()));
        let world = CliWorld::new()
            .with_env("MINKE_STORE", &socket.socket_address())
            .with_env("MINKE_STORE_LEASE_MS", &lease);
        world.write_file("s.toml", &job_script(commands));
        let host = Some(TestHost::start_host(&world, &["--idle", "0"]));
        HostSide { world, socket, host }
    }

    fn start_job(&self, number: usize) -> String {
        let dir = self.world.work_dir().join(format!("w{number}"));
        std::fs::create_dir_all(&dir).unwrap();
        let (dir, name) = (dir.to_str().unwrap().to_owned(), format!("j{number}"));
        let args =
            ["job", "run", "do it", "--json", "--cwd", &dir, "--name", &name, "--model", "scripted:s.toml"];
        self.world.run_json(&args)["thread_id"].as_str().unwrap().trim_start_matches("s_").to_owned()
    }

    /// Returns the host and all its pods.
    fn all_processes(&self) -> Vec<i32> {
        let listed = self.world.run_minke(&["ps", "--json"]);
        let pods: Value = serde_json::from_str(&listed.out).unwrap_or_default();
        let pods = pods.as_array().into_iter().flatten().map(|pod| pod["pid"].clone());
        let host = self.host.iter().map(|host| host.client.pid.clone());
        host.chain(pods).filter_map(|pid| i32::try_from(pid.as_i64()?).ok()).collect()
    }

    fn signal_all(&self, signal: Signal) -> usize {
        let all = self.all_processes();
        for pid in &all {
            ignore_ended(kill_process(Pid::from_raw(*pid).unwrap(), signal));
        }
        all.len()
    }

    fn stop_past_lease(&self) -> usize {
        let all = self.all_processes();
        let each = |signal| {
            for pid in &all {
                ignore_ended(kill_process(Pid::from_raw(*pid).unwrap(), signal));
            }
        };
        each(Signal::STOP);
        // There is no signal for the expiry of an unused lease.
        std::thread::sleep(STOPPED_FOR);
        each(Signal::CONT);
        all.len()
    }

    fn cut_off_past_lease(&self) {
        self.socket.cut_link();
        std::thread::sleep(STOPPED_FOR);
        self.socket.restore_link();
    }

    /// Waits until one of its pods works, with a time limit: the other side may have taken all jobs.
    fn wait_until_busy(&self) {
        let patience = Instant::now() + Duration::from_secs(5);
        while self.all_processes().len() < 2 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill_all(&mut self) -> usize {
        let count = self.signal_all(Signal::KILL);
        self.host = None;
        self.host = Some(TestHost::start_host(&self.world, &["--idle", "0"]));
        count
    }
}

/// Ignores a process that has ended meanwhile.
fn ignore_ended(sent: rustix::io::Result<()>) {
    assert!(matches!(sent, Ok(()) | Err(rustix::io::Errno::SRCH)), "{sent:?}");
}

/// A successful call left its line; one without a recorded end may have left one; no call left two.
fn check_calls_ran_once(server: &Server, sides: &[HostSide; 2], ids: &[String]) {
    let sql = "select string_agg(s.name || ' ' || (select count(*) from minke.entry e join minke.file f on f.key = e.file,
             lateral (select convert_from(e.line, 'UTF8')::jsonb as j) l
             where f.session = s.key and f.kind = 'log' and j ->> 'kind' = 'tool_dispatch') || ' ' ||
            (select count(*) from minke.entry e join minke.file f on f.key = e.file,
             lateral (select convert_from(e.line, 'UTF8')::jsonb as j) l
             where f.session = s.key and f.kind = 'log' and j ->> 'kind' = 'tool_result'
               and j ->> 'outcome' = 'done'), E'\\n')
         from minke.session s where starts_with(s.name, 'sessions/')";
    let (mut dispatched, mut ran) = (0, 0);
    for row in server.ask(sql).lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        let id = words[0].trim_start_matches("sessions/");
        let number = ids.iter().position(|known| known == id).unwrap();
        let (calls, done): (usize, usize) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        let left = sides[number % 2].world.work_dir().join(format!("w{number}/ran"));
        let lines = std::fs::read_to_string(left).unwrap_or_default().lines().count();
        assert!((done..=calls).contains(&lines), "{row}: its commands ran {lines} times");
        (dispatched, ran) = (dispatched + calls, ran + lines);
    }
    assert!(ran >= ids.len() / 2, "too few commands ran: {ran}");
    eprintln!("{dispatched} commands were started, {ran} ran");
}

const COMPLETED_QUERY: &str = "
    select s.name, count(*) filter (where j ->> 'kind' = 'run_completed' and j ->> 'result' = 'finished')
    from minke.session s
    left join minke.file f on f.session = s.key and f.kind = 'log'
    left join lateral (select convert_from(line, 'UTF8')::jsonb as j from minke.entry where file = f.key) e on true
    where starts_with(s.name, 'sessions/') group by s.name";

#[test]
fn two_hosts_on_one_database_complete_every_job_once_whatever_dies() {
    let Some(server) = Server::start() else { return };
    let commands = can_sandbox_commands("two_hosts_on_one_database_complete_every_job_once_whatever_dies");
    let mut sides = [HostSide::new(&server, commands), HostSide::new(&server, commands)];
    let (count, rounds) = (job_count(), round_count());
    let mut ids: Vec<String> = Vec::new();
    let done = |server: &Server| -> usize {
        let sql = format!("select count(*) from ({COMPLETED_QUERY}) as c(name, finished) where finished > 0");
        server.ask(&sql).parse().unwrap()
    };
    let patience = Instant::now() + Duration::from_secs(if count > 100 { 3_600 } else { 300 });
    let mut seen = String::new();
    let mut round = 0;
    while round < rounds || done(&server) < count {
        assert!(Instant::now() < patience, "{} of {count} have ended after: {seen}", done(&server));
        if round < rounds {
            ids.extend(
                (ids.len()..count * (round + 1) / rounds).map(|number| sides[number % 2].start_job(number)),
            );
        }
        let side = &mut sides[round / 4 % 2];
        side.wait_until_busy();
        match round % 4 {
            0 => seen.push_str(&format!("{} stopped past their lease; ", side.stop_past_lease())),
            1 => {
                server.restart();
                seen.push_str("the server died; ");
            }
            2 => {
                side.cut_off_past_lease();
                seen.push_str("one was cut off; ");
            }
            _ => seen.push_str(&format!("{} killed; ", side.kill_all())),
        }
        round += 1;
        // A job that crashed three times in a minute waits for the user, who resumes it here.
        for side in &sides {
            let listed = side.world.run_minke(&["job", "list", "--json", "--limit", "1000"]);
            let listed: Value = serde_json::from_str(&listed.out).unwrap_or_default();
            for job in listed["data"]["jobs"].as_array().into_iter().flatten() {
                if job["status"] == "paused" {
                    drop(side.world.run_minke(&["job", "resume", job["id"].as_str().unwrap()]));
                }
            }
        }
        let next = Instant::now() + QUIET_PERIOD;
        while round >= rounds && Instant::now() < next && done(&server) < count {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    println!("{count} jobs; {seen}");
    let twice = format!("select count(*) from ({COMPLETED_QUERY}) as c(name, finished) where finished <> 1");
    assert_eq!(server.ask(&twice), "0", "each job completes once");
    let old = "select count(*) from (select fence, lag(fence) over (partition by f.session order by f.name, at) as before
               from minke.entry e join minke.file f on f.key = e.file) as e where fence < before";
    assert_eq!(server.ask(old), "0", "an entry has an old fencing number");
    for id in &ids {
        assert_eq!(
            server.ask(&format!("select count(*) from minke.session where name = 'sessions/{id}'")),
            "1"
        );
    }
    if commands {
        check_calls_ran_once(&server, &sides, &ids);
    }
    for side in &mut sides {
        side.signal_all(Signal::KILL);
        side.host = None;
    }
    let found = sides[0].world.run_json(&["log", "verify", "--json"]);
    assert_eq!((&found["ok"], found["sessions"].as_array().map(Vec::len)), (&Value::Bool(true), Some(count)));
}
