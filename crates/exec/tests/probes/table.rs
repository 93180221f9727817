//! The table: the expected and actual result of each probe in each column, and the tests that compare them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use minke_exec::sandbox::Restrictions;
use minke_policy::SandboxBackend;

use crate::attacks;
use crate::column_process::{
    NamespaceSupport, OmittedWall, ProbeBench, ProbeUser, RunningColumn, TableColumn, is_host_root, workspace,
};
use crate::column_run::{BEST_BACKEND_ROW, find_bubblewrap};
use crate::probe::{
    DocumentedGap, ProbeKind, ProbeOutcome, ProbeStage, SandboxProbe, TestedRestriction, UnsandboxedResult,
};

/// The minimum number of attacks that succeed without a sandbox and fail inside.
const MIN_PROVEN: usize = 70;
/// The number of columns that run in parallel.
const MAX_PARALLEL: usize = 3;

/// Probes that bubblewrap does not stop for root: it mounts devices so that their modes can be changed, and the kernel
/// does not count root's processes. Root uses the namespaces backend wherever user namespaces are enabled.
const ROOT_WITH_BUBBLEWRAP: [&str; 3] = ["device-chmod", "input-chmod", "fork-bomb"];

/// The first Landlock ABI that restricts signals.
const SIGNAL_SCOPE_ABI: u32 = 6;

type ColumnResults = BTreeMap<String, ProbeOutcome>;

pub(crate) fn every_probe_is_held() {
    let bench = ProbeBench::new().expect("a directory for the probes");
    let machine = MachineSupport::detect_support();
    let columns = machine.table_columns(bench.available_users());
    let results = run_columns(&bench, &columns, None);
    let probes = attacks::all_probes();
    eprintln!("{}", format_table(&probes, &columns, &results));
    let mut wrong = Vec::new();
    for (column, seen) in columns.iter().zip(&results) {
        let bare = columns.iter().position(|c| c.backend == SandboxBackend::Off && c.user == column.user);
        for probe in &probes {
            let without = bare.and_then(|at| results[at].get(probe.name));
            let signals = !machine.scoped_signals
                && column.backend == SandboxBackend::Landlock
                && probe.restriction == TestedRestriction::LandlockScope;
            if signals {
                continue;
            }
            if let Err(why) = check_outcome(probe, *column, seen.get(probe.name), without) {
                wrong.push(format!("{}, {}: {why}", probe.name, column.column_title()));
            }
        }
        if let Some(change) = seen.get("unaccounted-change") {
            wrong.push(format!("{}: {change}", column.column_title()));
        }
        wrong.extend(check_best(*column, seen.get(BEST_BACKEND_ROW).map(ProbeOutcome::reason_text)));
    }
    let proven = count_proven(&probes, &columns, &results);
    eprintln!("{proven} attacks succeed without a sandbox; {} things must work", count_controls(&probes));
    assert!(wrong.is_empty(), "{} cells have unexpected results:\n{}", wrong.len(), wrong.join("\n"));
    let enough = proven >= MIN_PROVEN || bench.available_users().len() < 2;
    assert!(enough, "only {proven} attacks work without a sandbox; at least {MIN_PROVEN} are required");
}

/// For each restriction, finds a backend and a user for whom one of its probes succeeds only when it is omitted.
pub(crate) fn removing_any_one_wall_lets_a_probe_through() {
    let bench = ProbeBench::new().expect("a directory for the probes");
    let machine = MachineSupport::detect_support();
    let mut columns = machine.table_columns(bench.available_users());
    columns.retain(|column| {
        matches!(column.backend, SandboxBackend::Namespaces | SandboxBackend::Landlock)
            && column.namespaces != NamespaceSupport::Disabled
    });
    let next = AtomicUsize::new(0);
    let lacking = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..MAX_PARALLEL {
            scope.spawn(|| {
                while let Some((wall, _, first)) =
                    TestedRestriction::REMOVABLE.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    match find_breaking_probes(&bench, &columns, *wall, *first) {
                        Some((column, names)) => {
                            eprintln!(
                                "{:<18} {:<7} {}",
                                wall.as_str(),
                                column.column_title(),
                                names.join(", ")
                            );
                        }
                        None => lacking.lock().expect("no worker panics with it").push(wall.as_str()),
                    }
                }
            });
        }
    });
    let mut lacking = lacking.into_inner().expect("no worker panics with it");
    if !machine.backends.contains(&SandboxBackend::Namespaces) {
        // Reported above: without the namespaces backend most restrictions cannot be omitted.
        return;
    }
    // Only root has capabilities, so without root their effect cannot be shown.
    let root_only = [TestedRestriction::Capabilities.as_str(), TestedRestriction::NoNewPrivileges.as_str()];
    lacking.retain(|wall| bench.available_users().len() > 1 || !root_only.contains(wall));
    assert!(lacking.is_empty(), "no probe shows the effect of these restrictions: {lacking:?}");
}

/// Returns the first column in which omitting a restriction is noticed, and the probes that notice it.
fn find_breaking_probes(
    bench: &ProbeBench,
    columns: &[TableColumn],
    restriction: TestedRestriction,
    first: Restrictions,
) -> Option<(TableColumn, Vec<String>)> {
    columns.iter().find_map(|column| {
        let column = *column;
        let before = match first {
            Restrictions::NONE => BTreeSet::new(),
            _ => successful_probes(bench, column, OmittedWall { restriction, kept: true }),
        };
        let after = successful_probes(bench, column, OmittedWall { restriction, kept: false });
        let names: Vec<String> = after.difference(&before).cloned().collect();
        (!names.is_empty()).then_some((column, names))
    })
}

/// Returns the probes of a restriction that succeed although they are not gaps of the landlock backend.
fn successful_probes(bench: &ProbeBench, column: TableColumn, without: OmittedWall) -> BTreeSet<String> {
    let results = run_columns(bench, &[column], Some(without)).remove(0);
    let done = results
        .into_iter()
        .filter(|(_, seen)| matches!(seen, ProbeOutcome::Succeeded(_)))
        .map(|(name, _)| name);
    done.filter(|name| {
        is_probe(name) && (column.backend == SandboxBackend::Namespaces || !left_by_landlock(name))
    })
    .collect()
}

/// `docs/reference/sandbox.md` lists the gaps of the landlock backend, with the probes that show them.
pub(crate) fn the_page_says_what_tier_b_leaves_open() {
    let page = std::fs::read_to_string(workspace().join("docs/reference/sandbox.md"))
        .expect("docs/reference/sandbox.md");
    let mut said: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut group = None;
    for line in page.lines() {
        if let Some(row) = line.strip_prefix("| ") {
            let mut cells = row.split(" | ");
            group = cells
                .next()
                .and_then(|name| DocumentedGap::ALL.into_iter().find(|rest| rest.as_str() == name));
            if let Some(rest) = group {
                let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
                said.extend(names.filter(|name| is_probe(name)).map(|name| (rest.as_str(), name)));
            }
        }
    }
    let probes = attacks::all_probes();
    let left = probes.iter().filter_map(|probe| probe.documented_gap.map(|rest| (rest.as_str(), probe.name)));
    assert_eq!(said, left.collect(), "left: the page, right: the probes; last row read: {group:?}");
}

fn is_probe(name: &str) -> bool {
    attacks::all_probes().iter().any(|probe| probe.name == name)
}

fn left_by_landlock(name: &str) -> bool {
    attacks::all_probes().iter().any(|probe| probe.name == name && probe.documented_gap.is_some())
}

/// The features of this machine.
struct MachineSupport {
    backends: Vec<SandboxBackend>,
    namespaces: bool,
    /// Whether signals are confined without a pid namespace too.
    scoped_signals: bool,
}

impl MachineSupport {
    /// Detects the features; prints missing ones.
    fn detect_support() -> MachineSupport {
        let report = minke_exec::probe::probe_backends();
        let mut backends = vec![SandboxBackend::Off];
        for tried in &report.backends {
            if tried.works {
                backends.push(tried.backend);
            } else if matches!(tried.backend, SandboxBackend::Namespaces | SandboxBackend::Landlock) {
                print_skip(&format!("backend {}: {}", tried.backend, tried.why));
            }
        }
        let named = find_bubblewrap().is_some();
        if named && !backends.contains(&SandboxBackend::Bubblewrap) {
            backends.push(SandboxBackend::Bubblewrap);
        }
        if !named {
            eprintln!("bubblewrap is not tested: there is no bwrap on this machine (MINKE_BWRAP names one)");
        }
        let scoped_signals = report.landlock_abi >= SIGNAL_SCOPE_ABI;
        MachineSupport { backends, namespaces: report.user_namespaces.is_ok(), scoped_signals }
    }

    fn table_columns(&self, people: &[ProbeUser]) -> Vec<TableColumn> {
        let plain = if self.namespaces { NamespaceSupport::On } else { NamespaceSupport::Missing };
        let mut backends: Vec<(SandboxBackend, NamespaceSupport)> =
            self.backends.iter().map(|backend| (*backend, plain)).collect();
        if self.namespaces && self.backends.contains(&SandboxBackend::Landlock) {
            backends.push((SandboxBackend::Landlock, NamespaceSupport::Disabled));
        }
        let of = |(backend, namespaces)| {
            people.iter().map(move |who| TableColumn { backend, user: *who, namespaces })
        };
        backends.into_iter().flat_map(of).collect()
    }
}

fn print_skip(what: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {what}");
    eprintln!("SKIPPED: {what}");
}

/// Runs the columns, a few in parallel; returns results in order.
fn run_columns(
    bench: &ProbeBench,
    columns: &[TableColumn],
    without: Option<OmittedWall>,
) -> Vec<ColumnResults> {
    let mut results = Vec::new();
    for some in columns.chunks(MAX_PARALLEL) {
        let running: Vec<RunningColumn> = some
            .iter()
            .map(|column| bench.start_column(*column, without).expect("a process for a column"))
            .collect();
        for part in running {
            let lines = part.read_results().unwrap_or_else(|why| panic!("a column did not finish: {why}"));
            results.push(lines.into_iter().collect());
        }
    }
    results
}

/// Checks that a pod would choose the namespaces backend where it works, and otherwise the next best.
fn check_best(column: TableColumn, best: Option<&str>) -> Option<String> {
    let expected: &[SandboxBackend] = match (column.backend, column.namespaces) {
        (SandboxBackend::Off, _) => return None,
        (_, NamespaceSupport::On) => &[SandboxBackend::Namespaces],
        (_, NamespaceSupport::Disabled | NamespaceSupport::Missing) => {
            &[SandboxBackend::Bubblewrap, SandboxBackend::Landlock]
        }
    };
    let right = expected.iter().any(|backend| best == Some(backend.as_str()));
    (!right).then(|| format!("{}: a pod would choose {best:?}", column.column_title()))
}

/// Checks a cell; `bare` is the result of the same user without a sandbox.
fn check_outcome(
    probe: &SandboxProbe,
    column: TableColumn,
    seen: Option<&ProbeOutcome>,
    bare: Option<&ProbeOutcome>,
) -> Result<(), String> {
    let seen = seen.ok_or("was not tried")?;
    if let ProbeOutcome::Unclear(why) = seen {
        return Err(format!("shows nothing: {why}"));
    }
    let refused = column.backend == SandboxBackend::Landlock && probe.stage.is_refused_by_landlock();
    if refused != matches!(seen, ProbeOutcome::Refused(_)) {
        return Err(format!(
            "the sandbox should{} be refused, but: {seen}",
            if refused { "" } else { " not" }
        ));
    }
    if refused {
        return Ok(());
    }
    let done = matches!(seen, ProbeOutcome::Succeeded(_));
    match (probe.kind, column.backend) {
        (ProbeKind::Control, _) if !is_control_offered(probe, column) => Ok(()),
        (ProbeKind::Control, _) if done || matches!(seen, ProbeOutcome::Absent(_)) => Ok(()),
        (ProbeKind::Control, _) => Err(format!("must work: {seen}")),
        (ProbeKind::Open, _) if done || matches!(seen, ProbeOutcome::Absent(_)) => Ok(()),
        (ProbeKind::Open, _) => Err(format!("documented as open in every backend, but: {seen}")),
        (ProbeKind::Attack, SandboxBackend::Off) => check_unsandboxed(probe, column.user, seen),
        (ProbeKind::Attack, SandboxBackend::Landlock) if probe.documented_gap.is_some() => {
            let could = matches!(bare, Some(ProbeOutcome::Succeeded(_)));
            if done == could { Ok(()) } else { Err(format!("documented as left open, but: {seen}")) }
        }
        (ProbeKind::Attack, SandboxBackend::Bubblewrap)
            if column.user == ProbeUser::Root && ROOT_WITH_BUBBLEWRAP.contains(&probe.name) =>
        {
            Ok(())
        }
        (ProbeKind::Attack, _) if done => Err(format!("got through: {seen}")),
        (ProbeKind::Attack, _) => Ok(()),
    }
}

/// Whether a backend offers the feature of a control.
fn is_control_offered(probe: &SandboxProbe, column: TableColumn) -> bool {
    match column.backend {
        SandboxBackend::Off => probe.stage != ProbeStage::Proxy,
        SandboxBackend::Landlock => !probe.missing_with_landlock,
        _ => true,
    }
}

fn check_unsandboxed(probe: &SandboxProbe, who: ProbeUser, seen: &ProbeOutcome) -> Result<(), String> {
    let must = match probe.unsandboxed {
        UnsandboxedResult::Succeeds => true,
        // Root in a container may lack capabilities.
        UnsandboxedResult::AsRoot => who == ProbeUser::Root && is_host_root(),
        UnsandboxedResult::AsUser => who == ProbeUser::User,
        UnsandboxedResult::IfOffered | UnsandboxedResult::Never(_) => false,
    };
    if must && !matches!(seen, ProbeOutcome::Succeeded(_) | ProbeOutcome::Absent(_)) {
        return Err(format!("must succeed without a sandbox, or it proves nothing: {seen}"));
    }
    Ok(())
}

fn count_controls(probes: &[SandboxProbe]) -> usize {
    probes.iter().filter(|probe| probe.kind == ProbeKind::Control).count()
}

/// Counts the attacks that succeeded without a sandbox.
fn count_proven(probes: &[SandboxProbe], columns: &[TableColumn], results: &[ColumnResults]) -> usize {
    let bare = || columns.iter().zip(results).filter(|(column, _)| column.backend == SandboxBackend::Off);
    let attack = |probe: &&SandboxProbe| probe.kind == ProbeKind::Attack;
    let works = |probe: &&SandboxProbe| {
        bare().any(|(_, seen)| matches!(seen.get(probe.name), Some(ProbeOutcome::Succeeded(_))))
    };
    probes.iter().filter(attack).filter(works).count()
}

fn format_table(probes: &[SandboxProbe], columns: &[TableColumn], results: &[ColumnResults]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, call: &str, wall: &str| {
        let _ = write!(text, "{name:<24} {call:<34} {wall:<18}");
    };
    for (kind, title) in
        [(ProbeKind::Attack, "probe"), (ProbeKind::Open, "not hidden"), (ProbeKind::Control, "must work")]
    {
        head(&mut text, title, "system call", if kind == ProbeKind::Attack { "wall" } else { "" });
        for column in columns {
            let _ = write!(text, " {:<13}", column.column_title());
        }
        text.push('\n');
        for probe in probes.iter().filter(|probe| probe.kind == kind) {
            let wall = if kind == ProbeKind::Attack { probe.restriction.as_str() } else { "" };
            head(&mut text, probe.name, &shorten_text(probe.call, 34), wall);
            for (column, seen) in columns.iter().zip(results) {
                let _ = write!(text, " {:<13}", format_cell(probe, *column, seen.get(probe.name)));
            }
            text.push('\n');
        }
    }
    text
}

fn format_cell(probe: &SandboxProbe, column: TableColumn, seen: Option<&ProbeOutcome>) -> String {
    let text = match (seen, probe.kind) {
        (Some(ProbeOutcome::Succeeded(_)), ProbeKind::Attack) => "SUCCEEDS".to_owned(),
        (Some(ProbeOutcome::Succeeded(_)), ProbeKind::Control) => "works".to_owned(),
        (Some(ProbeOutcome::Succeeded(_)), ProbeKind::Open) => "open".to_owned(),
        (Some(ProbeOutcome::Stopped(why)), ProbeKind::Attack | ProbeKind::Open) => why.clone(),
        (Some(ProbeOutcome::Stopped(_)), ProbeKind::Control) if !is_control_offered(probe, column) => {
            "not offered".to_owned()
        }
        (Some(ProbeOutcome::Stopped(_)), ProbeKind::Control) => "BROKEN".to_owned(),
        (Some(ProbeOutcome::Absent(_)), _) => "–".to_owned(),
        (Some(ProbeOutcome::Refused(_)), _) => "refused".to_owned(),
        (Some(ProbeOutcome::Unclear(_)), _) => "UNCLEAR".to_owned(),
        (None, _) => "MISSING".to_owned(),
    };
    shorten_text(&text, 13)
}

fn shorten_text(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}
