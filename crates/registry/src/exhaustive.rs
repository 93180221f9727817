//! Every interleaving of three pods over three places, with a crash or a fault at every file operation.
//!
//! The real table and ledger on a shelf in memory. From the empty world on, everything that anybody can do is done in every
//! state that can be reached: register, lend, adopt, yield, take back, release, withdraw, look, die with and without
//! something left running, time passing; each of them also cut before every write by death (with `MINKE_LONG`: by an error
//! too). In each state the laws are checked, and again with the newest table lost, and with both lost.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use minke_policy::{contains, overlaps_write};
use minke_record::{PodName, Scope, SessionId};

use crate::error::RegistryError;
use crate::graves::{Found, Life};
use crate::lease::Row;
use crate::ledger::{self, Page, Shelf};
use crate::table::{Lend, Table, TableLimits};

const PODS: usize = 3;
const PLACES: [&str; 3] = ["/a", "/a/b", "/c"];
const TICKET: &str = "the ticket";
/// Time is only whether a deadline is over: one that is stands at 0, one that is not at 1, and now is always 0.
const NOW: u64 = 0;

fn session(pod: usize) -> SessionId {
    SessionId(uuid::Uuid::from_u128(pod as u128 + 1))
}

fn pod_of(session: SessionId) -> usize {
    usize::try_from(session.0.as_u128() - 1).unwrap()
}

const NAMES: [&str; PODS] = ["one", "two", "three"];

fn name(pod: usize) -> PodName {
    NAMES[pod].parse().unwrap()
}

/// What a session is from its first start on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Birth {
    place: usize,
    line: Vec<SessionId>,
}

#[derive(Debug, Clone, Default)]
struct World {
    page: Option<Rc<Table>>,
    previous: Option<Rc<Table>>,
    next: Option<Rc<Table>>,
    /// Outer: the file is there. Inner: there is a row in it.
    leases: [Option<Option<Row>>; PODS],
    /// A process holds the lease.
    held: [bool; PODS],
    /// Something that the pod started lives, though the pod does not.
    fences: [bool; PODS],
    /// The pod has not given up its scope.
    writes: [bool; PODS],
    /// Somebody came with the ticket that was given last.
    used: [bool; PODS],
    born: [Option<Birth>; PODS],
}

/// What goes wrong, and at which write.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Never,
    Crash(u32),
    Fault(u32),
}

struct Memory<'a> {
    world: &'a mut World,
    cut: Cut,
    hit: bool,
    crashed: bool,
}

impl Memory<'_> {
    fn step(&mut self) -> Result<(), RegistryError> {
        let broken = || RegistryError::LeaseLost { path: PathBuf::new() };
        if self.crashed {
            return Err(broken());
        }
        match &mut self.cut {
            Cut::Never => Ok(()),
            Cut::Crash(0) => {
                (self.hit, self.crashed) = (true, true);
                Err(broken())
            }
            Cut::Fault(0) => {
                self.hit = true;
                self.cut = Cut::Never;
                Err(broken())
            }
            Cut::Crash(left) | Cut::Fault(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

fn whole(table: Option<&Rc<Table>>) -> Page {
    table.map_or(Page::Missing, |table| Page::Whole(Table::clone(table)))
}

impl Shelf for Memory<'_> {
    fn current(&self) -> Result<Page, RegistryError> {
        Ok(whole(self.world.page.as_ref()))
    }

    fn previous(&self) -> Result<Page, RegistryError> {
        Ok(whole(self.world.previous.as_ref()))
    }

    fn write_lease(&mut self, row: &Row) -> Result<(), RegistryError> {
        self.step()?;
        if let Some(lease) = &mut self.world.leases[pod_of(row.session)] {
            *lease = Some(row.clone());
        }
        Ok(())
    }

    fn write_next(&mut self, table: &Table) -> Result<(), RegistryError> {
        // A cut here is like one before the next step: nobody reads the file that is being made.
        self.world.next = Some(Rc::new(table.clone()));
        Ok(())
    }

    fn retire(&mut self) -> Result<bool, RegistryError> {
        self.step()?;
        let page = self.world.page.take();
        let had = page.is_some();
        if had {
            self.world.previous = page;
        }
        Ok(had)
    }

    fn promote(&mut self) -> Result<(), RegistryError> {
        self.step()?;
        self.world.page = self.world.next.take();
        // The rename has happened and the sync of the directory fails.
        self.step()
    }

    fn restore(&mut self, had: bool) -> Result<(), RegistryError> {
        self.step()?;
        self.world.page = if had { self.world.previous.take() } else { None };
        Ok(())
    }

    fn has_next(&self) -> Result<bool, RegistryError> {
        Ok(self.world.next.is_some())
    }

    fn discard_next(&mut self) -> Result<(), RegistryError> {
        self.step()?;
        self.world.next = None;
        Ok(())
    }
}

/// What somebody does.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Register { pod: usize, place: usize },
    Lend { from: usize, to: usize, place: usize },
    Adopt(usize),
    Release(usize),
    Withdraw(usize),
    Yield(usize),
    TakeBack(usize),
    Look,
}

impl Deed {
    /// Who dies if it is cut by a crash; none if it is somebody outside.
    fn actor(self) -> Option<usize> {
        match self {
            Deed::Register { pod, .. } => Some(pod),
            Deed::Lend { from, .. } => Some(from),
            Deed::Adopt(pod) | Deed::Release(pod) | Deed::Yield(pod) | Deed::TakeBack(pod) => Some(pod),
            Deed::Withdraw(_) | Deed::Look => None,
        }
    }
}

impl World {
    fn found(&self) -> Vec<Found> {
        let there = (0..PODS).filter(|pod| self.leases[*pod].is_some());
        there
            .map(|pod| Found {
                dir: PathBuf::from(NAMES[pod]),
                row: self.leases[pod].clone().flatten(),
                damage: None,
                life: match (self.held[pod], self.fences[pod]) {
                    (true, _) => Life::Held,
                    (false, true) => Life::Dying,
                    (false, false) => Life::Gone,
                },
                has_lease: true,
                _lock: None,
            })
            .collect()
    }

    /// All that can be done, whether it is allowed or not.
    fn deeds(&self) -> Vec<Deed> {
        let mut deeds = vec![Deed::Look];
        for pod in 0..PODS {
            let places = match &self.born[pod] {
                Some(birth) => birth.place..birth.place + 1,
                None => 0..PLACES.len(),
            };
            deeds.push(Deed::Withdraw(pod));
            if self.held[pod] {
                deeds.extend([Deed::Release(pod), Deed::Yield(pod), Deed::TakeBack(pod)]);
                continue;
            }
            deeds.push(Deed::Adopt(pod));
            for place in places {
                deeds.push(Deed::Register { pod, place });
                let lenders = (0..PODS).filter(|from| *from != pod && self.held[*from]);
                deeds.extend(lenders.map(|from| Deed::Lend { from, to: pod, place }));
            }
        }
        deeds
    }

    /// Does it as `Runtime` does: at once, if the table as it lies there allows it; else what is dead goes first. Says whether
    /// the cut was reached.
    fn does(&mut self, deed: Deed, cut: Cut) -> bool {
        if let Deed::Release(pod) = deed {
            // The lease is unlocked before anything else.
            self.held[pod] = false;
        }
        if let Some(table) = self.at_once().filter(|table| self.may_be_at_once(deed, table))
            && let Some(next) = self.wish(deed, &table)
        {
            return self.write(deed, cut, &table, next).0;
        }
        let found = self.found();
        let mut shelf = Memory { world: self, cut, hit: false, crashed: false };
        let read = ledger::catch_up(&mut shelf, &found, NOW);
        let (hit, crashed, left) = (shelf.hit, shelf.crashed, shelf.cut);
        let table = match read {
            Ok(read) => read.table,
            Err(_) => {
                assert!(hit, "{deed:?}: a table that nobody cut cannot be read");
                if crashed {
                    self.let_go(deed.actor());
                }
                return true;
            }
        };
        for pod in 0..PODS {
            if !self.held[pod] && !self.fences[pod] && table.row(session(pod)).is_none() {
                self.leases[pod] = None;
            }
        }
        if matches!(deed, Deed::Release(_)) {
            // It was taken for a dead one.
            return hit;
        }
        let Some(next) = self.wish(deed, &table) else { return hit };
        let (hit_now, _) = self.write(deed, left, &table, next);
        hit || hit_now
    }

    fn write(&mut self, deed: Deed, cut: Cut, table: &Table, next: Table) -> (bool, bool) {
        let mut shelf = Memory { world: self, cut, hit: false, crashed: false };
        let written = ledger::write(&mut shelf, table, next);
        let (hit, crashed) = (shelf.hit, shelf.crashed);
        if written.is_ok() {
            self.done(deed);
        } else {
            self.fail(deed, crashed);
        }
        (hit, crashed)
    }

    /// The table as it lies there, if it may be used without a look at the leases.
    fn at_once(&self) -> Option<Table> {
        let mut world = self.clone();
        let shelf = Memory { world: &mut world, cut: Cut::Never, hit: false, crashed: false };
        let table = ledger::at_once(&shelf).expect("nothing is cut")?;
        let unexplained = |pod: usize| self.leases[pod].is_some() && table.row(session(pod)).is_none();
        (!(0..PODS).any(unexplained)).then_some(table)
    }

    /// What `Runtime` asks before it tries a deed on such a table.
    fn may_be_at_once(&self, deed: Deed, table: &Table) -> bool {
        match deed {
            Deed::Register { pod, .. } | Deed::Lend { to: pod, .. } => {
                self.leases[pod].is_none() && !table.has_below(session(pod))
            }
            Deed::Adopt(_) | Deed::Release(_) | Deed::Yield(_) | Deed::TakeBack(_) => true,
            Deed::Withdraw(_) | Deed::Look => false,
        }
    }

    /// Those who are gone and whom one that leaves takes along: in truth only those who said that they leave.
    fn gone(&self, table: &Table) -> Vec<SessionId> {
        let gone = |pod: &usize| {
            let row = table.row(session(*pod)).filter(|row| row.ticket_hash.is_none());
            !self.held[*pod] && !self.fences[*pod] && self.leases[*pod].is_some() && row.is_some()
        };
        (0..PODS).filter(gone).map(session).collect()
    }

    /// The table that the deed leads to, if it is allowed, and what is made ready before it is written.
    fn wish(&mut self, deed: Deed, table: &Table) -> Option<Table> {
        let limits = TableLimits::default();
        match deed {
            Deed::Register { pod, place } => {
                let line = self.born[pod].as_ref().map(|birth| birth.line.clone()).unwrap_or_default();
                let scope = Scope::write(PLACES[place]);
                let row = Row { scope, ancestors: line.clone(), ..Row::nowhere(name(pod), session(pod)) };
                let next = table.register(row, limits, false).ok()?;
                self.born[pod] = Some(Birth { place, line });
                self.leases[pod] = Some(None);
                self.held[pod] = true;
                Some(next)
            }
            Deed::Lend { from, to, place } => {
                let lend = Lend {
                    lender: session(from),
                    session: session(to),
                    name: name(to),
                    scope: Scope::write(PLACES[place]),
                    apart: Scope::default(),
                    limits,
                    line: self.born[to].as_ref().map(|birth| birth.line.clone()).unwrap_or_default(),
                    patience: Duration::ZERO,
                };
                let place_row = Row {
                    ticket_hash: Some(TICKET.to_owned()),
                    deadline: Some(1),
                    ..Row::nowhere(name(to), session(to))
                };
                // A session without anybody above it is nobody's child.
                if self.born[to].as_ref().is_some_and(|birth| birth.line.is_empty()) {
                    return None;
                }
                let next = table.lend(&lend, place_row).ok()?;
                let line = next.row(session(to)).unwrap().ancestors.clone();
                self.born[to] = Some(Birth { place, line });
                self.leases[to] = Some(None);
                // Whatever becomes of this change, its ticket is a new one.
                self.used[to] = false;
                Some(next)
            }
            Deed::Adopt(pod) => {
                let here = Row::nowhere(name(pod), session(pod));
                let next = table.adopt(&here, TICKET, NOW).ok()?;
                assert!(!self.used[pod], "a ticket was good twice");
                self.held[pod] = true;
                Some(next)
            }
            Deed::Release(_) => Some(table.reclaim(&self.gone(table))),
            Deed::Withdraw(pod) => {
                let gone = !self.held[pod] && !self.fences[pod] && table.row(session(pod)).is_some();
                gone.then(|| table.release(session(pod)))
            }
            Deed::Yield(pod) => table.give_scope(session(pod)).ok().inspect(|_| self.writes[pod] = false),
            Deed::TakeBack(pod) => table.take_scope(session(pod)).ok(),
            Deed::Look => None,
        }
    }

    fn done(&mut self, deed: Deed) {
        match deed {
            Deed::Register { pod, .. } => self.writes[pod] = true,
            Deed::Adopt(pod) => (self.used[pod], self.writes[pod]) = (true, true),
            Deed::Release(_) => {
                let table = self.page.clone().expect("it was just written");
                for pod in 0..PODS {
                    let gone = !self.held[pod] && !self.fences[pod] && table.row(session(pod)).is_none();
                    if gone {
                        self.leases[pod] = None;
                    }
                }
            }
            Deed::Withdraw(pod) => self.leases[pod] = None,
            Deed::TakeBack(pod) => self.writes[pod] = true,
            Deed::Lend { .. } | Deed::Yield(_) | Deed::Look => {}
        }
    }

    /// The deed failed, and whoever did it undoes what it can, or is dead.
    fn fail(&mut self, deed: Deed, crashed: bool) {
        match deed {
            Deed::Register { pod, .. } if !crashed => (self.leases[pod], self.held[pod]) = (None, false),
            Deed::Lend { to, .. } if !crashed => self.leases[to] = None,
            Deed::Adopt(_) => self.let_go(deed.actor()),
            _ if crashed => self.let_go(deed.actor()),
            _ => {}
        }
    }

    fn let_go(&mut self, actor: Option<usize>) {
        if let Some(pod) = actor {
            self.held[pod] = false;
        }
    }

    fn die(&self, pod: usize, leaving: bool) -> World {
        let mut world = self.clone();
        world.held[pod] = false;
        world.fences[pod] = leaving;
        world
    }

    fn later(&self) -> World {
        let mut world = self.clone();
        let tables = [&mut world.page, &mut world.previous];
        let rows = tables.into_iter().flatten().flat_map(|table| &mut Rc::make_mut(table).pods);
        for row in rows.chain(world.leases.iter_mut().flatten().flatten()) {
            row.deadline = row.deadline.map(|_| 0);
        }
        world
    }

    /// The table as the next one to look would find it.
    fn table(&self) -> Table {
        let mut world = self.clone();
        let found = world.found();
        let mut shelf = Memory { world: &mut world, cut: Cut::Never, hit: false, crashed: false };
        ledger::catch_up(&mut shelf, &found, NOW).expect("the table is always readable").table
    }

    fn check_laws(&self) -> Result<(), String> {
        let table = self.table();
        check_table(&table)?;
        self.check_living(&table)
    }

    fn check_living(&self, table: &Table) -> Result<(), String> {
        for pod in (0..PODS).filter(|pod| self.held[*pod] || self.fences[*pod]) {
            let birth = self.born[pod].as_ref().expect("it lives");
            let row = table.row(session(pod)).ok_or_else(|| format!("the live pod {pod} is forgotten"))?;
            if row.scope != Scope::write(PLACES[birth.place]) {
                return Err(format!("{pod} has another scope than it was born with: {row:?}"));
            }
            if self.writes[pod] && row.yielded {
                return Err(format!("{pod} writes what counts as given up"));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.check_laws()?;
        if let Some(table) = self.at_once() {
            check_table(&table).map_err(|e| format!("as it lies there: {e}"))?;
            self.check_living(&table).map_err(|e| format!("as it lies there: {e}"))?;
        }
        let lost = World { page: None, ..self.clone() };
        lost.check_laws().map_err(|e| format!("without the newest table: {e}"))?;
        let both = World { previous: None, ..lost };
        both.check_laws().map_err(|e| format!("without any table: {e}"))?;
        let mut over = self.later();
        (over.held, over.fences) = Default::default();
        match over.table().pods.is_empty() {
            true => Ok(()),
            false => Err("something stays held when nobody lives".to_owned()),
        }
    }

    /// What tells states apart, whatever the pods are called. The previous table counts only while there is no newer one.
    fn key(&self) -> u128 {
        ORDERS.iter().map(|order| self.key_in(*order)).min().expect("there are some")
    }

    fn has_ticket(&self, pod: usize) -> bool {
        let tables = [&self.page, &self.previous].into_iter().flatten();
        let rows =
            tables.filter_map(|table| table.row(session(pod))).chain(self.leases[pod].iter().flatten());
        rows.into_iter().any(|row| row.ticket_hash.is_some())
    }

    fn key_in(&self, order: [usize; PODS]) -> u128 {
        let mut key = Key { bits: 0, order };
        key.put(self.next.is_some().into(), 1);
        let previous = self.previous.as_ref().filter(|_| self.page.is_none());
        for table in [self.page.as_ref(), previous] {
            key.put(table.is_some().into(), 1);
            for pod in order {
                key.row(table.and_then(|table| table.row(session(pod))));
            }
        }
        for pod in order {
            key.put(self.leases[pod].is_some().into(), 1);
            key.row(self.leases[pod].as_ref().and_then(Option::as_ref));
            // What a dead pod would write, and whether a ticket that is nowhere was used, makes no difference.
            let writes = self.writes[pod] && (self.held[pod] || self.fences[pod]);
            let used = self.used[pod] && self.has_ticket(pod);
            for bit in [self.held[pod], self.fences[pod], writes, used] {
                key.put(bit.into(), 1);
            }
            match &self.born[pod] {
                None => key.put(0, 6),
                Some(birth) => {
                    key.put(birth.place as u128 + 1, 2);
                    key.who(birth.line.first());
                    key.who(birth.line.get(1));
                }
            }
        }
        key.bits
    }
}

const ORDERS: [[usize; PODS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

struct Key {
    bits: u128,
    order: [usize; PODS],
}

impl Key {
    fn put(&mut self, value: u128, bits: u32) {
        debug_assert!(value < 1 << bits && self.bits.leading_zeros() >= bits, "the key is too small");
        self.bits = self.bits << bits | value;
    }

    fn who(&mut self, session: Option<&SessionId>) {
        let place = session.and_then(|session| self.order.iter().position(|pod| *pod == pod_of(*session)));
        self.put(place.map_or(0, |place| place as u128 + 1), 2);
    }

    /// Its scope and its line are those of its birth.
    fn row(&mut self, row: Option<&Row>) {
        let Some(row) = row else { return self.put(0, 9) };
        self.put(1, 1);
        self.who(row.parent.as_ref());
        self.put(row.ticket_hash.is_some().into(), 1);
        self.put((row.deadline == Some(1)).into(), 1);
        self.put(row.yielded.into(), 1);
        for pod in self.order {
            self.put(row.loans.iter().any(|loan| loan.session == session(pod)).into(), 1);
        }
    }
}

fn check_table(table: &Table) -> Result<(), String> {
    for (place, row) in table.pods.iter().enumerate() {
        for other in &table.pods[place + 1..] {
            if let Some(overlap) = overlaps_write(&row.effective(), &other.effective()) {
                return Err(format!("{} and {} can both write {}", row.name, other.name, overlap.path));
            }
        }
        if let Some(parent) = row.parent {
            let parent = table.row(parent).ok_or_else(|| format!("the lender of {} is gone", row.name))?;
            if !contains(&parent.scope, &row.scope) {
                return Err(format!("{} has more than its parent", row.name));
            }
        }
        let lent: Vec<SessionId> = row.loans.iter().map(|loan| loan.session).collect();
        let borrowed = |other: &&Row| other.parent == Some(row.session);
        let owed: Vec<SessionId> = table.pods.iter().filter(borrowed).map(|other| other.session).collect();
        if lent.len() != owed.len() || lent.iter().any(|session| !owed.contains(session)) {
            return Err(format!("the loans of {} are not those of its borrowers", row.name));
        }
    }
    Ok(())
}

/// What leads from one state to the next.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "told by `Debug` when a law is broken")]
enum Step {
    Nothing,
    TimePasses,
    Dies { pod: usize, leaving: bool },
    Does(Deed, Cut),
}

/// How a state was reached, told when a law is broken in it.
struct Trail {
    step: Step,
    before: Option<Rc<Trail>>,
}

impl Trail {
    fn tell(&self) -> String {
        let before = self.before.as_ref().map(|before| before.tell()).unwrap_or_default();
        format!("{before}\n  {:?}", self.step)
    }
}

/// What can come after a state. Cut by an error as well as by death, if it may take long.
fn after(world: &World, long: bool) -> Vec<(Step, World)> {
    let mut next = vec![(Step::TimePasses, world.later())];
    let mut die = |pod, leaving| next.push((Step::Dies { pod, leaving }, world.die(pod, leaving)));
    for pod in 0..PODS {
        if world.held[pod] {
            die(pod, false);
            die(pod, true);
        } else if world.fences[pod] {
            die(pod, false);
        }
    }
    let kinds = [Cut::Crash as fn(u32) -> Cut, Cut::Fault];
    for deed in world.deeds() {
        let mut whole = world.clone();
        whole.does(deed, Cut::Never);
        next.push((Step::Does(deed, Cut::Never), whole));
        for make in kinds.iter().take(if long { 2 } else { 1 }) {
            for at in 0.. {
                let mut cut = world.clone();
                if !cut.does(deed, make(at)) {
                    break;
                }
                next.push((Step::Does(deed, make(at)), cut));
            }
        }
    }
    next
}

#[test]
fn no_interleaving_breaks_a_law() {
    let long = std::env::var_os("MINKE_LONG").is_some();
    let (mut seen, mut met) = (HashSet::new(), HashSet::new());
    let start = Trail { step: Step::Nothing, before: None };
    let mut waiting = VecDeque::from([(World::default(), Rc::new(start))]);
    seen.insert(World::default().key());
    let mut steps = 0_u64;
    while let Some((world, trail)) = waiting.pop_front() {
        for (step, world) in after(&world, long) {
            steps += 1;
            // The cheaper key first: most steps lead where somebody has been.
            if met.insert(world.key_in(ORDERS[0])) && seen.insert(world.key()) {
                let trail = Trail { step, before: Some(Rc::clone(&trail)) };
                if let Err(broken) = world.check() {
                    panic!("{broken}\nafter{}\nin {world:?}", trail.tell());
                }
                waiting.push_back((world, Rc::new(trail)));
            }
        }
    }
    eprintln!("{} states, {steps} steps; no law was broken", seen.len());
    assert!(seen.len() > 1_000, "nearly nothing was tried");
}
