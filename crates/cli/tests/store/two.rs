//! Two hosts on one database: stopped past their leases, cut off from it, killed, the server dying every few seconds. Each
//! job completes once, each command ran once at most, no entry stands under an old fence, and nothing acknowledged is
//! lost.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::http::Host;
use crate::server::Server;
use crate::wire::Wire;
use crate::world::{World, commands_are_held};

/// How long a lease holds here; a stopped host is left alone for longer.
const LEASE_MS: u64 = 6_000;
const STOPPED: Duration = Duration::from_millis(LEASE_MS + 2_000);
/// So many troubles there are at least: each of them for each side, and with a thousand jobs one every few seconds.
fn rounds() -> usize {
    if jobs() > 100 { 60 } else { 8 }
}

/// Between two later ones.
const QUIET: Duration = Duration::from_secs(4);

/// Slow enough to be met at work; a thousand of them may be quicker.
fn script(commands: bool) -> String {
    let pace = if jobs() > 100 { 60 } else { 400 };
    let call = if commands { CALL } else { "" };
    format!("loop = true\n{call}[[turn]]\npace_ms = {pace}\n{WORDS}")
}

/// Leaves a line where the job works.
const CALL: &str = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo ran >> ran\" }\n";

const WORDS: &str = r#"text = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten."]
"#;

/// A few by themselves, a thousand when asked.
fn jobs() -> usize {
    if std::env::var_os("MINKE_LONG").is_some() { 1_000 } else { 12 }
}

/// A home with its host.
struct Side {
    world: World,
    wire: Wire,
    host: Option<Host>,
}

impl Side {
    fn new(server: &Server, commands: bool) -> Side {
        let (lease, wire) = (LEASE_MS.to_string(), Wire::to(&server.address()));
        let world = World::new().with("MINKE_STORE", &wire.address()).with("MINKE_STORE_LEASE_MS", &lease);
        world.write("s.toml", &script(commands));
        let host = Some(Host::start(&world, &["--idle", "0"]));
        Side { world, wire, host }
    }

    fn begin(&self, number: usize) -> String {
        let dir = self.world.work().join(format!("w{number}"));
        std::fs::create_dir_all(&dir).unwrap();
        let (dir, name) = (dir.to_str().unwrap().to_owned(), format!("j{number}"));
        let args =
            ["job", "run", "do it", "--json", "--cwd", &dir, "--name", &name, "--model", "scripted:s.toml"];
        self.world.json(&args)["thread_id"].as_str().unwrap().trim_start_matches("s_").to_owned()
    }

    /// The host and all its pods.
    fn everybody(&self) -> Vec<i32> {
        let listed = self.world.run(&["ps", "--json"]);
        let pods: Value = serde_json::from_str(&listed.out).unwrap_or_default();
        let pods = pods.as_array().into_iter().flatten().map(|pod| pod["pid"].clone());
        let host = self.host.iter().map(|host| host.door.pid.clone());
        host.chain(pods).filter_map(|pid| i32::try_from(pid.as_i64()?).ok()).collect()
    }

    fn signal(&self, signal: Signal) -> usize {
        let all = self.everybody();
        for pid in &all {
            ended_or(kill_process(Pid::from_raw(*pid).unwrap(), signal));
        }
        all.len()
    }

    fn stopped_past_its_lease(&self) -> usize {
        let all = self.everybody();
        let each = |signal| {
            for pid in &all {
                ended_or(kill_process(Pid::from_raw(*pid).unwrap(), signal));
            }
        };
        each(Signal::STOP);
        // Nothing tells when a lease has expired that nobody asks for.
        std::thread::sleep(STOPPED);
        each(Signal::CONT);
        all.len()
    }

    fn cut_off_past_its_lease(&self) {
        self.wire.cut();
        std::thread::sleep(STOPPED);
        self.wire.mend();
    }

    /// Until one of its pods is at work, but not for long: the other side may have taken everything.
    fn busy(&self) {
        let patience = Instant::now() + Duration::from_secs(5);
        while self.everybody().len() < 2 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn killed(&mut self) -> usize {
        let count = self.signal(Signal::KILL);
        self.host = None;
        self.host = Some(Host::start(&self.world, &["--idle", "0"]));
        count
    }
}

/// One that has ended meanwhile needs no signal.
fn ended_or(sent: rustix::io::Result<()>) {
    assert!(matches!(sent, Ok(()) | Err(rustix::io::Errno::SRCH)), "{sent:?}");
}

/// A call that has ended well left its line; one whose end nobody saw may have left one; no call left two.
fn each_call_ran_once_at_most(server: &Server, sides: &[Side; 2], ids: &[String]) {
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
        let left = sides[number % 2].world.work().join(format!("w{number}/ran"));
        let lines = std::fs::read_to_string(left).unwrap_or_default().lines().count();
        assert!((done..=calls).contains(&lines), "{row}: its commands ran {lines} times");
        (dispatched, ran) = (dispatched + calls, ran + lines);
    }
    assert!(ran >= ids.len() / 2, "hardly any command ran: {ran}");
    eprintln!("{dispatched} commands were begun, {ran} ran");
}

const COMPLETED: &str = "
    select s.name, count(*) filter (where j ->> 'kind' = 'run_completed' and j ->> 'result' = 'finished')
    from minke.session s
    left join minke.file f on f.session = s.key and f.kind = 'log'
    left join lateral (select convert_from(line, 'UTF8')::jsonb as j from minke.entry where file = f.key) e on true
    where starts_with(s.name, 'sessions/') group by s.name";

#[test]
fn two_hosts_on_one_database_complete_every_job_once_whatever_dies() {
    let Some(server) = Server::start() else { return };
    let commands = commands_are_held("two_hosts_on_one_database_complete_every_job_once_whatever_dies");
    let mut sides = [Side::new(&server, commands), Side::new(&server, commands)];
    let (count, rounds) = (jobs(), rounds());
    let mut ids: Vec<String> = Vec::new();
    let done = |server: &Server| -> usize {
        let sql = format!("select count(*) from ({COMPLETED}) as c(name, finished) where finished > 0");
        server.ask(&sql).parse().unwrap()
    };
    let patience = Instant::now() + Duration::from_secs(if count > 100 { 3_600 } else { 300 });
    let mut seen = String::new();
    let mut round = 0;
    while round < rounds || done(&server) < count {
        assert!(Instant::now() < patience, "{} of {count} are done after: {seen}", done(&server));
        if round < rounds {
            ids.extend(
                (ids.len()..count * (round + 1) / rounds).map(|number| sides[number % 2].begin(number)),
            );
        }
        let side = &mut sides[round / 4 % 2];
        side.busy();
        match round % 4 {
            0 => seen.push_str(&format!("{} stopped past their lease; ", side.stopped_past_its_lease())),
            1 => {
                server.restart();
                seen.push_str("the server died; ");
            }
            2 => {
                side.cut_off_past_its_lease();
                seen.push_str("one was cut off; ");
            }
            _ => seen.push_str(&format!("{} killed; ", side.killed())),
        }
        round += 1;
        // What crashed three times in a minute is for a person to look at; here he says: go on.
        for side in &sides {
            let listed = side.world.run(&["job", "list", "--json", "--limit", "1000"]);
            let listed: Value = serde_json::from_str(&listed.out).unwrap_or_default();
            for job in listed["data"]["jobs"].as_array().into_iter().flatten() {
                if job["status"] == "paused" {
                    drop(side.world.run(&["job", "resume", job["id"].as_str().unwrap()]));
                }
            }
        }
        let next = Instant::now() + QUIET;
        while round >= rounds && Instant::now() < next && done(&server) < count {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    println!("{count} jobs; {seen}");
    let twice = format!("select count(*) from ({COMPLETED}) as c(name, finished) where finished <> 1");
    assert_eq!(server.ask(&twice), "0", "each job completes once");
    let old = "select count(*) from (select fence, lag(fence) over (partition by f.session order by f.name, at) as before
               from minke.entry e join minke.file f on f.key = e.file) as e where fence < before";
    assert_eq!(server.ask(old), "0", "an entry stands under an old fence");
    for id in &ids {
        assert_eq!(
            server.ask(&format!("select count(*) from minke.session where name = 'sessions/{id}'")),
            "1"
        );
    }
    if commands {
        each_call_ran_once_at_most(&server, &sides, &ids);
    }
    for side in &mut sides {
        side.signal(Signal::KILL);
        side.host = None;
    }
    let found = sides[0].world.json(&["log", "verify", "--json"]);
    assert_eq!((&found["ok"], found["sessions"].as_array().map(Vec::len)), (&Value::Bool(true), Some(count)));
}
