//! The table: what each probe may show in each column, what it showed, and the tests that compare the two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use minke_exec::fence::Walls;
use minke_policy::Tier;

use crate::attacks;
use crate::column::{BEST, bwrap};
use crate::part::{Bench, Column, Namespaces, Running, Who, Without, is_whole_root, workspace};
use crate::probe::{Bare, Kind, Probe, Rest, Seen, Stage, Wall};

/// How many attacks must have been seen to succeed without a fence and to fail within.
const PROVEN: usize = 70;
/// Columns that run at the same time.
const AT_ONCE: usize = 3;

/// What `bwrap` leaves to root alone: it mounts devices so that their modes can be changed, and the kernel does not count
/// root's processes. Root has tier A wherever user namespaces are on, and this only where they are not.
const ROOT_BESIDE_BWRAP: [&str; 3] = ["device-chmod", "input-chmod", "fork-bomb"];

/// The Landlock ABI that holds signals.
const SCOPED_SIGNALS: u32 = 6;

type Results = BTreeMap<String, Seen>;

pub(crate) fn every_probe_is_held() {
    let bench = Bench::new().expect("a directory for the probes");
    let machine = Machine::look();
    let columns = machine.columns(bench.people());
    let results = run(&bench, &columns, None);
    let probes = attacks::all();
    eprintln!("{}", print(&probes, &columns, &results));
    let mut wrong = Vec::new();
    for (column, seen) in columns.iter().zip(&results) {
        let bare = columns.iter().position(|c| c.tier == Tier::Off && c.who == column.who);
        for probe in &probes {
            let without = bare.and_then(|at| results[at].get(probe.name));
            let signals =
                !machine.scoped_signals && column.tier == Tier::B && probe.wall == Wall::LandlockScope;
            if signals {
                continue;
            }
            if let Err(why) = judge(probe, *column, seen.get(probe.name), without) {
                wrong.push(format!("{}, {}: {why}", probe.name, column.title()));
            }
        }
        if let Some(change) = seen.get("unaccounted-change") {
            wrong.push(format!("{}: {change}", column.title()));
        }
        wrong.extend(judge_best(*column, seen.get(BEST).map(Seen::why)));
    }
    let proven = proven(&probes, &columns, &results);
    eprintln!("{proven} attacks succeed without a fence; {} things must work", controls(&probes));
    assert!(wrong.is_empty(), "{} cells are not as they must be:\n{}", wrong.len(), wrong.join("\n"));
    let enough = proven >= PROVEN || bench.people().len() < 2;
    assert!(enough, "only {proven} attacks were shown to work without a fence; {PROVEN} are promised");
}

/// For each wall: a tier and a user for whom a probe that names it gets through when it is left out, and not before.
pub(crate) fn removing_any_one_wall_lets_a_probe_through() {
    let bench = Bench::new().expect("a directory for the probes");
    let machine = Machine::look();
    let mut columns = machine.columns(bench.people());
    columns
        .retain(|column| matches!(column.tier, Tier::A | Tier::B) && column.namespaces != Namespaces::Shut);
    let next = AtomicUsize::new(0);
    let lacking = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((wall, _, first)) = Wall::REMOVABLE.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match shown_by(&bench, &columns, *wall, *first) {
                        Some((column, names)) => {
                            eprintln!("{:<18} {:<7} {}", wall.as_str(), column.title(), names.join(", "));
                        }
                        None => lacking.lock().expect("no worker panics with it").push(wall.as_str()),
                    }
                }
            });
        }
    });
    let mut lacking = lacking.into_inner().expect("no worker panics with it");
    if !machine.tiers.contains(&Tier::A) {
        // Said above: without tier A most walls are not there to be left out.
        return;
    }
    // Capabilities are root's: without root there is nobody to show what they would do.
    let root_only = [Wall::Capabilities.as_str(), Wall::NoNewPrivileges.as_str()];
    lacking.retain(|wall| bench.people().len() > 1 || !root_only.contains(wall));
    assert!(lacking.is_empty(), "no probe shows that these walls stand: {lacking:?}");
}

/// The first column in which leaving a wall out is noticed, and by which probes.
fn shown_by(bench: &Bench, columns: &[Column], wall: Wall, first: Walls) -> Option<(Column, Vec<String>)> {
    columns.iter().find_map(|column| {
        let column = *column;
        let before = match first {
            Walls::NONE => BTreeSet::new(),
            _ => through(bench, column, Without { wall, kept: true }),
        };
        let after = through(bench, column, Without { wall, kept: false });
        let names: Vec<String> = after.difference(&before).cloned().collect();
        (!names.is_empty()).then_some((column, names))
    })
}

/// The probes of a wall that get through though tier B does not leave them open.
fn through(bench: &Bench, column: Column, without: Without) -> BTreeSet<String> {
    let results = run(bench, &[column], Some(without)).remove(0);
    let done = results.into_iter().filter(|(_, seen)| matches!(seen, Seen::Done(_))).map(|(name, _)| name);
    done.filter(|name| is_probe(name) && (column.tier == Tier::A || !left_by_b(name))).collect()
}

/// `docs/reference/sandbox.md` lists what tier B leaves open, with the probes that show it.
pub(crate) fn the_page_says_what_tier_b_leaves_open() {
    let page = std::fs::read_to_string(workspace().join("docs/reference/sandbox.md"))
        .expect("docs/reference/sandbox.md");
    let mut said: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut group = None;
    for line in page.lines() {
        if let Some(row) = line.strip_prefix("| ") {
            let mut cells = row.split(" | ");
            group = cells.next().and_then(|name| Rest::ALL.into_iter().find(|rest| rest.as_str() == name));
            if let Some(rest) = group {
                let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
                said.extend(names.filter(|name| is_probe(name)).map(|name| (rest.as_str(), name)));
            }
        }
    }
    let probes = attacks::all();
    let left = probes.iter().filter_map(|probe| probe.rest.map(|rest| (rest.as_str(), probe.name)));
    assert_eq!(said, left.collect(), "left: the page, right: the probes; last row read: {group:?}");
}

fn is_probe(name: &str) -> bool {
    attacks::all().iter().any(|probe| probe.name == name)
}

fn left_by_b(name: &str) -> bool {
    attacks::all().iter().any(|probe| probe.name == name && probe.rest.is_some())
}

/// What this machine lets be tried.
struct Machine {
    tiers: Vec<Tier>,
    namespaces: bool,
    /// Signals end at the fence without a pid namespace, too.
    scoped_signals: bool,
}

impl Machine {
    /// Looks once; says aloud what cannot be tried.
    fn look() -> Machine {
        let report = minke_exec::probe::probe();
        let mut tiers = vec![Tier::Off];
        for tried in &report.tiers {
            if tried.works {
                tiers.push(tried.tier);
            } else if matches!(tried.tier, Tier::A | Tier::B) {
                skipped(&format!("tier {}: {}", tried.tier, tried.why));
            }
        }
        let named = bwrap().is_some();
        if named && !tiers.contains(&Tier::APrime) {
            tiers.push(Tier::APrime);
        }
        if !named {
            eprintln!(
                "tier A\u{2032} is not tried: there is no bwrap on this machine (MINKE_BWRAP names one)"
            );
        }
        let scoped_signals = report.landlock_abi >= SCOPED_SIGNALS;
        Machine { tiers, namespaces: report.user_namespaces.is_ok(), scoped_signals }
    }

    fn columns(&self, people: &[Who]) -> Vec<Column> {
        let plain = if self.namespaces { Namespaces::On } else { Namespaces::Missing };
        let mut tiers: Vec<(Tier, Namespaces)> = self.tiers.iter().map(|tier| (*tier, plain)).collect();
        if self.namespaces && self.tiers.contains(&Tier::B) {
            tiers.push((Tier::B, Namespaces::Shut));
        }
        let of = |(tier, namespaces)| people.iter().map(move |who| Column { tier, who: *who, namespaces });
        tiers.into_iter().flat_map(of).collect()
    }
}

fn skipped(what: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {what}");
    eprintln!("SKIPPED: {what}");
}

/// Runs the columns, a few at a time, in their order.
fn run(bench: &Bench, columns: &[Column], without: Option<Without>) -> Vec<Results> {
    let mut results = Vec::new();
    for some in columns.chunks(AT_ONCE) {
        let running: Vec<Running> = some
            .iter()
            .map(|column| bench.start(*column, without).expect("a process for a column"))
            .collect();
        for part in running {
            let lines = part.finish().unwrap_or_else(|why| panic!("a column did not finish: {why}"));
            results.push(lines.into_iter().collect());
        }
    }
    results
}

/// A pod takes tier A where it works, and the next best where no user namespace can be made.
fn judge_best(column: Column, best: Option<&str>) -> Option<String> {
    let expected: &[Tier] = match (column.tier, column.namespaces) {
        (Tier::Off, _) => return None,
        (_, Namespaces::On) => &[Tier::A],
        (_, Namespaces::Shut | Namespaces::Missing) => &[Tier::APrime, Tier::B],
    };
    let right = expected.iter().any(|tier| best == Some(tier.as_str()));
    (!right).then(|| format!("{}: a pod would choose {best:?}", column.title()))
}

/// Whether a cell is as it must be; `bare` is what the same user could do without a fence.
fn judge(probe: &Probe, column: Column, seen: Option<&Seen>, bare: Option<&Seen>) -> Result<(), String> {
    let seen = seen.ok_or("was not tried")?;
    if let Seen::Unclear(why) = seen {
        return Err(format!("shows nothing: {why}"));
    }
    let refused = column.tier == Tier::B && probe.stage.refused_in_b();
    if refused != matches!(seen, Seen::Refused(_)) {
        return Err(format!("the fence is{} to be refused, but: {seen}", if refused { "" } else { " not" }));
    }
    if refused {
        return Ok(());
    }
    let done = matches!(seen, Seen::Done(_));
    match (probe.kind, column.tier) {
        (Kind::Control, _) if !is_offered(probe, column) => Ok(()),
        (Kind::Control, _) if done || matches!(seen, Seen::Absent(_)) => Ok(()),
        (Kind::Control, _) => Err(format!("must work: {seen}")),
        (Kind::Open, _) if done || matches!(seen, Seen::Absent(_)) => Ok(()),
        (Kind::Open, _) => Err(format!("documented as open in every tier, but: {seen}")),
        (Kind::Attack, Tier::Off) => judge_bare(probe, column.who, seen),
        (Kind::Attack, Tier::B) if probe.rest.is_some() => {
            let could = matches!(bare, Some(Seen::Done(_)));
            if done == could { Ok(()) } else { Err(format!("documented as left open, but: {seen}")) }
        }
        (Kind::Attack, Tier::APrime)
            if column.who == Who::Root && ROOT_BESIDE_BWRAP.contains(&probe.name) =>
        {
            Ok(())
        }
        (Kind::Attack, _) if done => Err(format!("got through: {seen}")),
        (Kind::Attack, _) => Ok(()),
    }
}

/// Whether what a control asks for exists in a tier at all.
fn is_offered(probe: &Probe, column: Column) -> bool {
    match column.tier {
        Tier::Off => probe.stage != Stage::Proxy,
        Tier::B => !probe.missing_in_b,
        _ => true,
    }
}

fn judge_bare(probe: &Probe, who: Who, seen: &Seen) -> Result<(), String> {
    let must = match probe.bare {
        Bare::Succeeds => true,
        // Root of a container may have few of root's powers.
        Bare::AsRoot => who == Who::Root && is_whole_root(),
        Bare::AsUser => who == Who::User,
        Bare::IfOffered | Bare::Never(_) => false,
    };
    if must && !matches!(seen, Seen::Done(_) | Seen::Absent(_)) {
        return Err(format!("must succeed without a fence, or it proves nothing: {seen}"));
    }
    Ok(())
}

fn controls(probes: &[Probe]) -> usize {
    probes.iter().filter(|probe| probe.kind == Kind::Control).count()
}

/// Attacks that somebody carried out without a fence.
fn proven(probes: &[Probe], columns: &[Column], results: &[Results]) -> usize {
    let bare = || columns.iter().zip(results).filter(|(column, _)| column.tier == Tier::Off);
    let attack = |probe: &&Probe| probe.kind == Kind::Attack;
    let works = |probe: &&Probe| bare().any(|(_, seen)| matches!(seen.get(probe.name), Some(Seen::Done(_))));
    probes.iter().filter(attack).filter(works).count()
}

fn print(probes: &[Probe], columns: &[Column], results: &[Results]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, call: &str, wall: &str| {
        let _ = write!(text, "{name:<24} {call:<34} {wall:<18}");
    };
    for (kind, title) in [(Kind::Attack, "probe"), (Kind::Open, "not hidden"), (Kind::Control, "must work")] {
        head(&mut text, title, "system call", if kind == Kind::Attack { "wall" } else { "" });
        for column in columns {
            let _ = write!(text, " {:<13}", column.title());
        }
        text.push('\n');
        for probe in probes.iter().filter(|probe| probe.kind == kind) {
            let wall = if kind == Kind::Attack { probe.wall.as_str() } else { "" };
            head(&mut text, probe.name, &short(probe.call, 34), wall);
            for (column, seen) in columns.iter().zip(results) {
                let _ = write!(text, " {:<13}", cell(probe, *column, seen.get(probe.name)));
            }
            text.push('\n');
        }
    }
    text
}

fn cell(probe: &Probe, column: Column, seen: Option<&Seen>) -> String {
    let text = match (seen, probe.kind) {
        (Some(Seen::Done(_)), Kind::Attack) => "SUCCEEDS".to_owned(),
        (Some(Seen::Done(_)), Kind::Control) => "works".to_owned(),
        (Some(Seen::Done(_)), Kind::Open) => "open".to_owned(),
        (Some(Seen::Held(why)), Kind::Attack | Kind::Open) => why.clone(),
        (Some(Seen::Held(_)), Kind::Control) if !is_offered(probe, column) => "not offered".to_owned(),
        (Some(Seen::Held(_)), Kind::Control) => "BROKEN".to_owned(),
        (Some(Seen::Absent(_)), _) => "–".to_owned(),
        (Some(Seen::Refused(_)), _) => "refused".to_owned(),
        (Some(Seen::Unclear(_)), _) => "UNCLEAR".to_owned(),
        (None, _) => "MISSING".to_owned(),
    };
    short(&text, 13)
}

fn short(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}
