//! A crowd of real processes that come, lend, let go and are killed, many at once, for as long as it is told to.
//!
//! After every round the table is compared with what the processes were told: who was granted something and lives has a
//! row, nobody else has; each belongs to the nearest above it that lives; no two may write one path.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use minke_policy::{contains, overlaps_write};
use minke_record::{Ids, PodName, Scope, SessionId};
use minke_registry::{
    Lend, Paths, RegistryError, Row, Runtime, ScopeLease, Surroundings, TableLimits, Ticket,
};

const HOME: &str = "MINKE_CROWD_TEST_HOME";
const TEST: &str = "a_crowd_that_lends_and_dies_keeps_the_table_right";
const PROCESSES: usize = 64;
/// How many are told something before anybody is heard.
const AT_ONCE: u64 = 24;
/// Places that do not touch each other.
const TOPS: u64 = 16;
const LIMITS: TableLimits = TableLimits { depth: 4, children: 4, pods: 60 };

fn runtime(home: &Path) -> Runtime {
    let uid = std::fs::metadata(home).expect("the home is there").uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = Paths::find(&Surroundings { env, uid }).expect("MINKE_HOME is absolute");
    paths.create().expect("the home can be written");
    Runtime::new(&paths)
}

fn session(number: u64) -> SessionId {
    SessionId(Ids::new(1, number).next_uuid())
}

fn name(number: u64) -> PodName {
    format!("pod-{number}").parse().expect("a good name")
}

fn row(number: u64, place: &str) -> Row {
    Row { scope: Scope::write(place), ..Row::here(name(number), session(number), None) }
}

/// What one process does: whatever it is told, until it is told no more or killed.
fn member(home: &Path) {
    let runtime = runtime(home);
    let (mut held, mut out): (Option<ScopeLease>, _) = (None, std::io::stdout());
    for line in std::io::stdin().lines().map(Result::unwrap) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let done: Result<String, RegistryError> = match words[0] {
            "register" => runtime.register(row(number(1), words[2]), LIMITS, false).map(|lease| {
                held = Some(lease);
                String::new()
            }),
            "lend" => {
                let lend = Lend {
                    lender: session(number(1)),
                    session: session(number(2)),
                    name: name(number(2)),
                    scope: Scope::write(words[3]),
                    apart: Scope::default(),
                    limits: LIMITS,
                    line: Vec::new(),
                    patience: Duration::from_secs(600),
                };
                runtime.lend(&lend).map(|ticket| ticket.to_hex())
            }
            "adopt" => {
                let ticket = Ticket::from_hex(words[2]).unwrap();
                runtime.adopt(&row(number(1), "/"), &ticket).map(|lease| {
                    held = Some(lease);
                    String::new()
                })
            }
            "release" => held.take().expect("it holds something").release().map(|()| String::new()),
            other => panic!("unknown word {other}"),
        };
        let said = match done {
            Ok(word) => format!("RESULT ok {word}"),
            Err(
                e @ (RegistryError::WriteConflict { .. }
                | RegistryError::NotWithin { .. }
                | RegistryError::TooMany { .. }
                | RegistryError::TooDeep { .. }
                | RegistryError::UnknownPod { .. }
                | RegistryError::BadTicket { .. }),
            ) => format!("RESULT no {e}"),
            Err(e) => format!("RESULT broke {e}"),
        };
        writeln!(out, "{said}").unwrap();
    }
}

/// One process of the crowd, and what it is known to have.
struct Member {
    process: Child,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
    holds: Option<u64>,
}

impl Member {
    fn start(home: &Path) -> Member {
        let mut process = Command::new(std::env::current_exe().expect("this test is a program"))
            .args(["--exact", TEST, "--nocapture"])
            .env(HOME, home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can be started again");
        let (orders, out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Member { process, orders, said: BufReader::new(out), holds: None }
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// `Ok` with a word if it was granted, else why not.
    fn hear(&mut self) -> Result<String, String> {
        let mut lines = (&mut self.said).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("RESULT")).expect("every order is answered");
        let said = line.split_once("RESULT ").unwrap().1;
        match said.split_once(' ').unwrap() {
            ("ok", word) => Ok(word.to_owned()),
            ("no", why) => Err(why.to_owned()),
            (_, why) => panic!("{why}"),
        }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// What was granted to a session: its place, and who was above it, nearest first.
struct Granted {
    place: String,
    line: Vec<u64>,
}

enum Told {
    Register(u64, String),
    Lend { to: u64, granted: Granted },
    Release,
}

struct Crowd<'a> {
    home: &'a Path,
    runtime: Runtime,
    members: Vec<Member>,
    living: BTreeMap<u64, Granted>,
    numbers: u64,
    dice: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Crowd<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % limit
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn place(&mut self, above: &str) -> String {
        let part = ["a", "b", "c", "d"][usize::try_from(self.below(4)).unwrap()];
        if self.below(6) == 0 { above.to_owned() } else { format!("{above}/{part}") }
    }

    /// Many are told something at once, some are killed while others are at it, and all are heard.
    fn round(&mut self) {
        let mut told: BTreeMap<usize, Told> = BTreeMap::new();
        for _ in 0..AT_ONCE {
            let at = usize::try_from(self.below(PROCESSES as u64)).unwrap();
            if told.contains_key(&at) {
                continue;
            }
            let (holds, fate) = (self.members[at].holds, self.below(6));
            match holds {
                Some(_) if fate < 2 => self.kill(at),
                Some(_) if fate == 2 => {
                    self.members[at].tell("release");
                    told.insert(at, Told::Release);
                }
                Some(from) => {
                    self.numbers += 1;
                    let (to, above) = (self.numbers, &self.living[&from]);
                    let line = [from].into_iter().chain(above.line.iter().copied()).collect();
                    let above = above.place.clone();
                    let place = self.place(&above);
                    self.members[at].tell(&format!("lend {from} {to} {place}"));
                    told.insert(at, Told::Lend { to, granted: Granted { place, line } });
                }
                None => {
                    self.numbers += 1;
                    let (number, top) = (self.numbers, format!("/w/{}", self.below(TOPS)));
                    let place = self.place(&top);
                    self.members[at].tell(&format!("register {number} {place}"));
                    told.insert(at, Told::Register(number, place));
                }
            }
        }
        let mut tickets = Vec::new();
        for (at, told) in told {
            let said = self.members[at].hear();
            match (told, said) {
                (Told::Register(number, place), Ok(_)) => {
                    self.living.insert(number, Granted { place, line: Vec::new() });
                    self.members[at].holds = Some(number);
                    self.count("registered");
                }
                (Told::Lend { to, granted }, Ok(ticket)) => tickets.push((to, granted, ticket)),
                (Told::Release, said) => {
                    said.expect("what is held can be released");
                    let gone = self.members[at].holds.take().expect("it held something");
                    self.living.remove(&gone);
                    self.count("released");
                }
                (Told::Register(..) | Told::Lend { .. }, Err(_)) => self.count("refused"),
            }
        }
        self.adopt(tickets);
    }

    /// Whoever has nothing comes with the tickets, all at once; tickets for which nobody is left are withdrawn.
    fn adopt(&mut self, tickets: Vec<(u64, Granted, String)>) {
        let mut free = (0..PROCESSES).filter(|at| self.members[*at].holds.is_none()).collect::<Vec<_>>();
        let mut coming = Vec::new();
        for (to, granted, ticket) in tickets {
            let Some(member) = free.pop() else {
                self.runtime.withdraw(session(to)).unwrap();
                continue;
            };
            self.members[member].tell(&format!("adopt {to} {ticket}"));
            coming.push((member, to, granted));
        }
        for (member, to, granted) in coming {
            self.members[member].hear().expect("a ticket is good");
            self.members[member].holds = Some(to);
            self.living.insert(to, granted);
            self.count("lent");
        }
    }

    fn kill(&mut self, at: usize) {
        let dead = std::mem::replace(&mut self.members[at], Member::start(self.home));
        self.living.remove(&dead.holds.expect("who holds something"));
        dead.kill();
        self.count("killed");
    }

    fn compare(&self) {
        let table = self.runtime.table().unwrap();
        let rows: Vec<u64> = self.living.keys().copied().collect();
        let mut found: Vec<u64> = table
            .pods
            .iter()
            .map(|row| row.name.as_str().trim_start_matches("pod-").parse().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(found, rows, "rows and who lives");
        for (number, granted) in &self.living {
            let row = table.row(session(*number)).unwrap();
            let above = granted.line.iter().find(|above| self.living.contains_key(above));
            assert_eq!(row.parent, above.copied().map(session), "the parent of {number}");
            assert_eq!(row.scope, Scope::write(granted.place.clone()));
            if let Some(above) = row.parent.and_then(|above| table.row(above)) {
                assert!(contains(&above.scope, &row.scope));
                assert!(above.loans.iter().any(|loan| loan.session == row.session));
            }
        }
        for (at, row) in table.pods.iter().enumerate() {
            for other in table.pods.iter().skip(at + 1) {
                let both = overlaps_write(&row.effective(), &other.effective());
                assert!(both.is_none(), "{} and {} can both write {both:?}", row.name, other.name);
            }
        }
    }
}

#[test]
fn a_crowd_that_lends_and_dies_keeps_the_table_right() {
    if let Some(home) = std::env::var_os(HOME) {
        return member(Path::new(&home));
    }
    let patience = Duration::from_secs(if std::env::var_os("MINKE_LONG").is_some() { 60 } else { 4 });
    let home = tempfile::tempdir().unwrap();
    let mut crowd = Crowd {
        home: home.path(),
        runtime: runtime(home.path()),
        members: (0..PROCESSES).map(|_| Member::start(home.path())).collect(),
        living: BTreeMap::new(),
        numbers: 0,
        dice: 7,
        counts: BTreeMap::new(),
    };
    let (begun, mut rounds) = (Instant::now(), 0);
    while begun.elapsed() < patience {
        crowd.round();
        crowd.compare();
        rounds += 1;
    }
    eprintln!("crowd: {rounds} rounds in {:?}, {:?}", begun.elapsed(), crowd.counts);
    for what in ["registered", "lent", "released", "killed", "refused"] {
        assert!(crowd.counts.get(what).is_some_and(|times| *times > 0), "nobody was {what}");
    }
    for member in std::mem::take(&mut crowd.members) {
        member.kill();
    }
    assert_eq!(crowd.runtime.table().unwrap().pods, Vec::new());
}
