//! Many real processes register, lend, release and are killed concurrently for the configured time.
//!
//! After every round the table is compared with the replies of the processes: exactly the live ones with a grant have a
//! row; each belongs to its nearest live ancestor; no two may write one path.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use minke_policy::{find_write_overlap, scope_contains};
use minke_record::{IdGenerator, PodName, Scope, SessionId};
use minke_registry::{
    LoanRequest, PodLimits, ProcessEnv, RegistryError, RuntimeDir, ScopeLease, ScopeRow, ScopeTicket,
    UserPaths,
};

const HOME_ENV: &str = "MINKE_CROWD_TEST_HOME";
const TEST_NAME: &str = "a_crowd_that_lends_and_dies_keeps_the_table_right";
const PROCESSES: usize = 64;
/// The number of orders that are sent before any reply is read.
const ORDERS_PER_ROUND: u64 = 24;
/// Paths that do not overlap.
const TOP_PATHS: u64 = 16;
const LIMITS: PodLimits = PodLimits { max_depth: 4, max_children: 4, max_pods: 60 };

fn test_runtime(home: &Path) -> RuntimeDir {
    let uid = std::fs::metadata(home).expect("the home exists").uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = UserPaths::from_env(&ProcessEnv { env, uid }).expect("MINKE_HOME is absolute");
    paths.create_dirs().expect("the home can be written");
    RuntimeDir::new(&paths)
}

fn session_id(number: u64) -> SessionId {
    SessionId(IdGenerator::new(1, number).next_uuid())
}

fn pod_name(number: u64) -> PodName {
    format!("pod-{number}").parse().expect("a good name")
}

fn pod_row(number: u64, path: &str) -> ScopeRow {
    ScopeRow {
        scope: Scope::writable(path),
        ..ScopeRow::for_this_process(pod_name(number), session_id(number), None)
    }
}

/// The main loop of a process: executes orders until its input ends or it is killed.
fn run_member(home: &Path) {
    let runtime = test_runtime(home);
    let (mut held_lease, mut out): (Option<ScopeLease>, _) = (None, std::io::stdout());
    for line in std::io::stdin().lines().map(Result::unwrap) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let done: Result<String, RegistryError> = match words[0] {
            "register" => runtime.register_pod(pod_row(number(1), words[2]), LIMITS, false).map(|lease| {
                held_lease = Some(lease);
                String::new()
            }),
            "lend" => {
                let lend = LoanRequest {
                    lender: session_id(number(1)),
                    session: session_id(number(2)),
                    name: pod_name(number(2)),
                    scope: Scope::writable(words[3]),
                    extra_scope: Scope::default(),
                    limits: LIMITS,
                    ancestors: Vec::new(),
                    ticket_timeout: Duration::from_secs(600),
                };
                runtime.lend_scope(&lend).map(|ticket| ticket.to_hex())
            }
            "adopt" => {
                let ticket = ScopeTicket::from_hex(words[2]).unwrap();
                runtime.adopt_row(&pod_row(number(1), "/"), &ticket).map(|lease| {
                    held_lease = Some(lease);
                    String::new()
                })
            }
            "release" => held_lease.take().expect("it holds something").release_pod().map(|()| String::new()),
            other => panic!("unknown word {other}"),
        };
        let replies = match done {
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
        writeln!(out, "{replies}").unwrap();
    }
}

/// One process of the crowd, and its known state.
struct MemberProcess {
    process: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
    held_number: Option<u64>,
}

impl MemberProcess {
    fn spawn_member(home: &Path) -> MemberProcess {
        let mut process = Command::new(std::env::current_exe().expect("this test is a program"))
            .args(["--exact", TEST_NAME, "--nocapture"])
            .env(HOME_ENV, home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can be started again");
        let (orders, out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        MemberProcess { process, orders, replies: BufReader::new(out), held_number: None }
    }

    fn send_order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// Returns `Ok` with a word if the order succeeded, else the error.
    fn read_reply(&mut self) -> Result<String, String> {
        let mut lines = (&mut self.replies).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("RESULT")).expect("every order is answered");
        let replies = line.split_once("RESULT ").unwrap().1;
        match replies.split_once(' ').unwrap() {
            ("ok", word) => Ok(word.to_owned()),
            ("no", why) => Err(why.to_owned()),
            (_, why) => panic!("{why}"),
        }
    }

    fn kill_member(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The grant of a session: its path, and its ancestors, nearest first.
struct GrantedPath {
    path: String,
    ancestors: Vec<u64>,
}

enum MemberOrder {
    Register(u64, String),
    Lend { to: u64, granted: GrantedPath },
    Release,
}

struct MemberCrowd<'a> {
    home: &'a Path,
    runtime: RuntimeDir,
    members: Vec<MemberProcess>,
    living: BTreeMap<u64, GrantedPath>,
    next_number: u64,
    random_state: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl MemberCrowd<'_> {
    fn random_below(&mut self, limit: u64) -> u64 {
        self.random_state =
            self.random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random_state >> 33) % limit
    }

    fn count_event(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn random_path(&mut self, above: &str) -> String {
        let part = ["a", "b", "c", "d"][usize::try_from(self.random_below(4)).unwrap()];
        if self.random_below(6) == 0 { above.to_owned() } else { format!("{above}/{part}") }
    }

    /// Sends orders to many processes at once, kills some meanwhile, and reads all replies.
    fn run_round(&mut self) {
        let mut orders_sent: BTreeMap<usize, MemberOrder> = BTreeMap::new();
        for _ in 0..ORDERS_PER_ROUND {
            let at = usize::try_from(self.random_below(PROCESSES as u64)).unwrap();
            if orders_sent.contains_key(&at) {
                continue;
            }
            let (holds, fate) = (self.members[at].held_number, self.random_below(6));
            match holds {
                Some(_) if fate < 2 => self.kill_member(at),
                Some(_) if fate == 2 => {
                    self.members[at].send_order("release");
                    orders_sent.insert(at, MemberOrder::Release);
                }
                Some(from) => {
                    self.next_number += 1;
                    let (to, above) = (self.next_number, &self.living[&from]);
                    let ancestors = [from].into_iter().chain(above.ancestors.iter().copied()).collect();
                    let above = above.path.clone();
                    let path = self.random_path(&above);
                    self.members[at].send_order(&format!("lend {from} {to} {path}"));
                    orders_sent
                        .insert(at, MemberOrder::Lend { to, granted: GrantedPath { path, ancestors } });
                }
                None => {
                    self.next_number += 1;
                    let (number, top) = (self.next_number, format!("/w/{}", self.random_below(TOP_PATHS)));
                    let path = self.random_path(&top);
                    self.members[at].send_order(&format!("register {number} {path}"));
                    orders_sent.insert(at, MemberOrder::Register(number, path));
                }
            }
        }
        let mut tickets = Vec::new();
        for (at, told) in orders_sent {
            let replies = self.members[at].read_reply();
            match (told, replies) {
                (MemberOrder::Register(number, path), Ok(_)) => {
                    self.living.insert(number, GrantedPath { path, ancestors: Vec::new() });
                    self.members[at].held_number = Some(number);
                    self.count_event("registered");
                }
                (MemberOrder::Lend { to, granted }, Ok(ticket)) => tickets.push((to, granted, ticket)),
                (MemberOrder::Release, replies) => {
                    replies.expect("a held lease can be released");
                    let gone = self.members[at].held_number.take().expect("it held something");
                    self.living.remove(&gone);
                    self.count_event("released");
                }
                (MemberOrder::Register(..) | MemberOrder::Lend { .. }, Err(_)) => self.count_event("refused"),
            }
        }
        self.adopt_tickets(tickets);
    }

    /// Lets idle processes use the tickets, all at once; withdraws tickets for which there is none.
    fn adopt_tickets(&mut self, tickets: Vec<(u64, GrantedPath, String)>) {
        let mut free =
            (0..PROCESSES).filter(|at| self.members[*at].held_number.is_none()).collect::<Vec<_>>();
        let mut coming = Vec::new();
        for (to, granted, ticket) in tickets {
            let Some(member) = free.pop() else {
                self.runtime.withdraw_loan(session_id(to)).unwrap();
                continue;
            };
            self.members[member].send_order(&format!("adopt {to} {ticket}"));
            coming.push((member, to, granted));
        }
        for (member, to, granted) in coming {
            self.members[member].read_reply().expect("a ticket is good");
            self.members[member].held_number = Some(to);
            self.living.insert(to, granted);
            self.count_event("lent");
        }
    }

    fn kill_member(&mut self, at: usize) {
        let dead = std::mem::replace(&mut self.members[at], MemberProcess::spawn_member(self.home));
        self.living.remove(&dead.held_number.expect("who holds something"));
        dead.kill_member();
        self.count_event("killed");
    }

    fn compare_table(&self) {
        let table = self.runtime.read_table().unwrap();
        let rows: Vec<u64> = self.living.keys().copied().collect();
        let mut found: Vec<u64> = table
            .pods
            .iter()
            .map(|row| row.name.as_str().trim_start_matches("pod-").parse().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(found, rows, "the rows equal the live sessions");
        for (number, granted) in &self.living {
            let row = table.find_row(session_id(*number)).unwrap();
            let above = granted.ancestors.iter().find(|above| self.living.contains_key(above));
            assert_eq!(row.parent, above.copied().map(session_id), "the parent of {number}");
            assert_eq!(row.scope, Scope::writable(granted.path.clone()));
            if let Some(above) = row.parent.and_then(|above| table.find_row(above)) {
                assert!(scope_contains(&above.scope, &row.scope));
                assert!(above.loans.iter().any(|loan| loan.session == row.session));
            }
        }
        for (at, row) in table.pods.iter().enumerate() {
            for other in table.pods.iter().skip(at + 1) {
                let both = find_write_overlap(&row.effective_scope(), &other.effective_scope());
                assert!(both.is_none(), "{} and {} can both write {both:?}", row.name, other.name);
            }
        }
    }
}

#[test]
fn a_crowd_that_lends_and_dies_keeps_the_table_right() {
    if let Some(home) = std::env::var_os(HOME_ENV) {
        return run_member(Path::new(&home));
    }
    let patience = Duration::from_secs(if std::env::var_os("MINKE_LONG").is_some() { 60 } else { 4 });
    let home = tempfile::tempdir().unwrap();
    let mut crowd = MemberCrowd {
        home: home.path(),
        runtime: test_runtime(home.path()),
        members: (0..PROCESSES).map(|_| MemberProcess::spawn_member(home.path())).collect(),
        living: BTreeMap::new(),
        next_number: 0,
        random_state: 7,
        counts: BTreeMap::new(),
    };
    let (start_time, mut rounds) = (Instant::now(), 0);
    while start_time.elapsed() < patience {
        crowd.run_round();
        crowd.compare_table();
        rounds += 1;
    }
    eprintln!("crowd: {rounds} rounds in {:?}, {:?}", start_time.elapsed(), crowd.counts);
    for what in ["registered", "lent", "released", "killed", "refused"] {
        assert!(crowd.counts.get(what).is_some_and(|times| *times > 0), "no process was {what}");
    }
    for member in std::mem::take(&mut crowd.members) {
        member.kill_member();
    }
    assert_eq!(crowd.runtime.read_table().unwrap().pods, Vec::new());
}
