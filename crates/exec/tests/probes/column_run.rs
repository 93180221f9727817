//! A column of the table: one backend for one user, in its own world, with all stages.
//!
//! Here: starting the sandboxes and reading the attackers' output. Elsewhere: the world (`probe_world`), the expected
//! results (`table`). A column runs in its own process (`column_process`), because the user belongs to a process.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use minke_exec::sandbox::{CommandLimits, Restrictions, Sandbox, SandboxCommand, SandboxError};
use minke_policy::SandboxBackend;

use crate::attacks::{self, FILE_BYTES, OPEN_FILES, PROCESSES};
use crate::probe::{ProbeKind, ProbeOutcome, ProbeStage, SandboxProbe, TestedRestriction};
use crate::probe_world::{ProbeWorld, open_terminal};

/// The timeout of a stage, which takes about a second on a busy machine.
const STAGE_DEADLINE: Duration = Duration::from_secs(40);
/// How long to read from an attacker that outlived its sandbox.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// The arguments of a column process: `part BIN BASE BACKEND [WALL [kept]]`.
struct ColumnOrder {
    bin: PathBuf,
    base: PathBuf,
    backend: SandboxBackend,
    /// The restriction whose probes are tried, and the restrictions to omit for that.
    without: Option<(TestedRestriction, Restrictions)>,
}

impl ColumnOrder {
    fn from_args(args: &[String]) -> Result<ColumnOrder, String> {
        let [bin, base, tier, rest @ ..] = args else { return Err("part BIN BASE TIER [WALL]".to_owned()) };
        let without = match rest {
            [] => None,
            [name, kept @ ..] => {
                let found = TestedRestriction::REMOVABLE.into_iter().find(|(wall, ..)| wall.as_str() == name);
                let (wall, walls, first) = found.ok_or_else(|| format!("`{name}` is not a restriction"))?;
                Some((wall, if kept.is_empty() { walls.with(first) } else { first }))
            }
        };
        Ok(ColumnOrder { bin: bin.into(), base: base.into(), backend: tier.parse()?, without })
    }

    /// Returns the probes to run. If a restriction is omitted, only its probes.
    fn selected_probes(&self) -> Vec<SandboxProbe> {
        let mut probes = attacks::all_probes();
        if let Some((wall, _)) = self.without {
            probes.retain(|probe| probe.kind == ProbeKind::Attack && probe.restriction == wall);
        }
        probes
    }

    fn compile_sandbox(&self, world: &ProbeWorld, stage: ProbeStage) -> Result<Sandbox, SandboxError> {
        let spec = world.sandbox_spec(stage);
        match (self.backend, self.without) {
            // No sandbox: attacks must succeed here, or they prove nothing.
            (SandboxBackend::Off, _) => {
                Sandbox::compile_without(SandboxBackend::Off, &spec, Restrictions::ALL)
            }
            (tier, None) => Sandbox::compile_spec(tier, &spec),
            (tier, Some((_, walls))) => Sandbox::compile_without(tier, &spec, walls),
        }
        .map(|sandbox| match find_bubblewrap() {
            Some(path) => sandbox.with_bubblewrap(path),
            None => sandbox,
        })
    }
}

/// Returns the system's bubblewrap, or the one that an environment variable names.
pub(crate) fn find_bubblewrap() -> Option<PathBuf> {
    let named = std::env::var_os("MINKE_BWRAP").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from("/usr/bin/bwrap"))).filter(|path| path.exists())
}

/// The row with the backend that a pod would choose.
pub(crate) const BEST_BACKEND_ROW: &str = "best-tier";

/// Runs a column and prints a line for each probe: its name, the result, the reason.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let done =
        ColumnOrder::from_args(args).and_then(|order| run_column(&order).map_err(|error| error.to_string()));
    let lines = match done {
        Ok(lines) => lines,
        Err(why) => {
            eprintln!("part {args:?}: {why}");
            return ExitCode::FAILURE;
        }
    };
    let text: String = lines
        .iter()
        .map(|(name, seen)| format!("{name}\t{}\t{}\n", seen.outcome_word(), seen.reason_text()))
        .collect();
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run_column(order: &ColumnOrder) -> io::Result<Vec<(String, ProbeOutcome)>> {
    let probes = order.selected_probes();
    let mut world = ProbeWorld::build_world(&order.base, &order.bin, &probes)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = Vec::new();
    for stage in ProbeStage::ALL {
        let here: Vec<&SandboxProbe> = probes.iter().filter(|probe| probe.stage == stage).collect();
        if here.is_empty() {
            continue;
        }
        let sandbox = match order.compile_sandbox(&world, stage) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                lines.extend(
                    here.iter()
                        .map(|probe| (probe.name.to_owned(), ProbeOutcome::Refused(error.to_string()))),
                );
                continue;
            }
        };
        let together: Vec<&SandboxProbe> = here.iter().copied().filter(|probe| !probe.runs_alone).collect();
        lines.extend(runtime.block_on(run_attackers(&world, &sandbox, stage, stage.as_str(), &together)));
        for probe in here.into_iter().filter(|probe| probe.runs_alone) {
            let what = format!("alone:{}", probe.name);
            lines.extend(runtime.block_on(run_attackers(&world, &sandbox, stage, &what, &[probe])));
        }
    }
    apply_evidence(&mut lines, &mut world)?;
    if order.without.is_none() && order.backend != SandboxBackend::Off {
        lines.push((
            BEST_BACKEND_ROW.to_owned(),
            ProbeOutcome::Succeeded(minke_exec::probe::best_backend().to_string()),
        ));
    }
    Ok(lines)
}

/// Corrects results by evidence from outside, which counts more than the attacker's own report.
fn apply_evidence(lines: &mut Vec<(String, ProbeOutcome)>, world: &mut ProbeWorld) -> io::Result<()> {
    let evidence = world.collect_evidence()?;
    for (name, seen) in &mut *lines {
        if evidence.succeeded.contains(name) && !matches!(seen, ProbeOutcome::Succeeded(_)) {
            *seen = ProbeOutcome::Succeeded("seen from outside".to_owned());
        }
    }
    let is_attack = |name: &str| {
        attacks::all_probes().iter().any(|probe| probe.name == name && probe.kind == ProbeKind::Attack)
    };
    let any_through =
        lines.iter().any(|(name, seen)| matches!(seen, ProbeOutcome::Succeeded(_)) && is_attack(name));
    if !any_through && !evidence.changed.is_empty() {
        let why = format!("nobody says so, but these changed: {:?}", evidence.changed);
        lines.push(("unaccounted-change".to_owned(), ProbeOutcome::Succeeded(why)));
    }
    Ok(())
}

/// Returns the output of an attacker. An attacker that escaped may outlive its sandbox, so it gets some time.
async fn read_all_output(path: &Path, lines: usize) -> io::Result<String> {
    let end = Instant::now() + OUTPUT_GRACE;
    loop {
        let text = fs::read_to_string(path)?;
        if text.lines().count() >= lines || Instant::now() > end {
            return Ok(text);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts one attacker and returns the result of every probe it had to try.
async fn run_attackers(
    world: &ProbeWorld,
    sandbox: &Sandbox,
    stage: ProbeStage,
    what: &str,
    probes: &[&SandboxProbe],
) -> Vec<(String, ProbeOutcome)> {
    if probes.is_empty() {
        return Vec::new();
    }
    let said = match run_attacker(world, sandbox, stage, (what, probes.len())).await {
        Ok(said) => said,
        Err(why) => {
            return probes
                .iter()
                .map(|probe| (probe.name.to_owned(), ProbeOutcome::Unclear(why.clone())))
                .collect();
        }
    };
    let told = |name: &str| {
        said.text.lines().find_map(|line| {
            let mut parts = line.splitn(3, '\t');
            (parts.next() == Some(name)).then_some(())?;
            ProbeOutcome::parse_outcome(parts.next()?, parts.next()?)
        })
    };
    let silent = || ProbeOutcome::Unclear(format!("the attacker did not report it; its exit: {}", said.end));
    probes.iter().map(|probe| (probe.name.to_owned(), told(probe.name).unwrap_or_else(silent))).collect()
}

struct AttackerOutput {
    text: String,
    end: String,
}

/// Lets an attacker try `what`, and waits for this number of output lines.
async fn run_attacker(
    world: &ProbeWorld,
    sandbox: &Sandbox,
    stage: ProbeStage,
    (what, lines): (&str, usize),
) -> Result<AttackerOutput, String> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    let path = world.base.join(format!("said-{}", what.replace(':', "-")));
    let (stdout, stderr) = open_streams(&path).map_err(told("output"))?;
    let (stdin, master) = open_stdin(stage).map_err(told("input"))?;
    let arguments = [world.program().display().to_string(), "inside".to_owned(), what.to_owned()];
    let facts = world.attacker_arguments().map_err(told("facts"))?;
    let argv = arguments.into_iter().chain(facts).map(Into::into).collect();
    let limits = match stage {
        ProbeStage::Small => CommandLimits {
            file_bytes: Some(FILE_BYTES),
            open_files: Some(OPEN_FILES),
            processes: Some(PROCESSES),
            ..CommandLimits::default()
        },
        _ => CommandLimits::default(),
    };
    let start = SandboxCommand {
        argv,
        cwd: world.base.join("work"),
        stdin,
        stdout,
        stderr,
        tty: stage == ProbeStage::Terminal,
        limits,
    };
    let mut started = sandbox.start_command(start).map_err(|error| format!("starting: {error}"))?;
    let end = match tokio::time::timeout(STAGE_DEADLINE, started.wait_for_exit()).await {
        Ok(Ok(exit)) => format!("{exit:?}"),
        Ok(Err(error)) => format!("waiting: {error}"),
        Err(_) => {
            started.kill_tree();
            format!("not within {STAGE_DEADLINE:?}")
        }
    };
    drop(started);
    drop(master);
    let text = read_all_output(&path, lines).await.map_err(told("reading what it said"))?;
    Ok(AttackerOutput { text, end })
}

fn open_streams(path: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    let stdout = fs::File::options().create(true).append(true).open(path)?;
    let stderr = fs::File::options().create(true).append(true).open(path.with_extension("err"))?;
    Ok((stdout.into(), stderr.into()))
}

/// Returns empty input, or a terminal with its other end.
fn open_stdin(stage: ProbeStage) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    if stage != ProbeStage::Terminal {
        return Ok((fs::File::open("/dev/null")?.into(), None));
    }
    let (master, path) = open_terminal()?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    Ok((slave, Some(master)))
}
