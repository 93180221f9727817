//! A column of the table: one tier for one user, in a world of its own, with all stages.
//!
//! Here: starting the fences and hearing what the attackers say. Elsewhere: the world (`world`), what is expected
//! (`table`). A column is run in a process of its own (`part`), because a user is a property of a process.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use minke_exec::fence::{Fence, FenceError, Limits, Start, Walls};
use minke_policy::Tier;

use crate::attacks::{self, FILE_BYTES, OPEN_FILES, PROCESSES};
use crate::probe::{Kind, Probe, Seen, Stage, Wall};
use crate::world::{World, terminal};

/// A stage takes about a second on a busy machine.
const STAGE_DEADLINE: Duration = Duration::from_secs(40);
/// How long an attacker that outlived its fence is listened to.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a part is to do: `part BIN BASE TIER [WALL [kept]]`.
struct Order {
    bin: PathBuf,
    base: PathBuf,
    tier: Tier,
    /// The wall whose probes are tried, and what is left out for that.
    without: Option<(Wall, Walls)>,
}

impl Order {
    fn from_args(args: &[String]) -> Result<Order, String> {
        let [bin, base, tier, rest @ ..] = args else { return Err("part BIN BASE TIER [WALL]".to_owned()) };
        let without = match rest {
            [] => None,
            [name, kept @ ..] => {
                let found = Wall::REMOVABLE.into_iter().find(|(wall, ..)| wall.as_str() == name);
                let (wall, walls, first) = found.ok_or_else(|| format!("`{name}` is not a wall"))?;
                Some((wall, if kept.is_empty() { walls.with(first) } else { first }))
            }
        };
        Ok(Order { bin: bin.into(), base: base.into(), tier: tier.parse()?, without })
    }

    /// Without a wall only the probes that name it are of interest.
    fn probes(&self) -> Vec<Probe> {
        let mut probes = attacks::all();
        if let Some((wall, _)) = self.without {
            probes.retain(|probe| probe.kind == Kind::Attack && probe.wall == wall);
        }
        probes
    }

    fn fence(&self, world: &World, stage: Stage) -> Result<Fence, FenceError> {
        let spec = world.spec(stage);
        match (self.tier, self.without) {
            // Nothing at all: attacks must succeed here, or they prove nothing.
            (Tier::Off, _) => Fence::compile_without(Tier::Off, &spec, Walls::ALL),
            (tier, None) => Fence::compile(tier, &spec),
            (tier, Some((_, walls))) => Fence::compile_without(tier, &spec, walls),
        }
        .map(|fence| match bwrap() {
            Some(path) => fence.with_bwrap(path),
            None => fence,
        })
    }
}

/// The `bwrap` of tier A′: the machine's, or another that is to be tried.
pub(crate) fn bwrap() -> Option<PathBuf> {
    let named = std::env::var_os("MINKE_BWRAP").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from("/usr/bin/bwrap"))).filter(|path| path.exists())
}

/// What a pod would choose here; a row of its own.
pub(crate) const BEST: &str = "best-tier";

/// Runs a column and writes a line for each probe: its name, a word, the reason.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let done = Order::from_args(args).and_then(|order| run(&order).map_err(|error| error.to_string()));
    let lines = match done {
        Ok(lines) => lines,
        Err(why) => {
            eprintln!("part {args:?}: {why}");
            return ExitCode::FAILURE;
        }
    };
    let text: String =
        lines.iter().map(|(name, seen)| format!("{name}\t{}\t{}\n", seen.word(), seen.why())).collect();
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(order: &Order) -> io::Result<Vec<(String, Seen)>> {
    let probes = order.probes();
    let mut world = World::build(&order.base, &order.bin, &probes)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = Vec::new();
    for stage in Stage::ALL {
        let here: Vec<&Probe> = probes.iter().filter(|probe| probe.stage == stage).collect();
        if here.is_empty() {
            continue;
        }
        let fence = match order.fence(&world, stage) {
            Ok(fence) => fence,
            Err(error) => {
                lines.extend(
                    here.iter().map(|probe| (probe.name.to_owned(), Seen::Refused(error.to_string()))),
                );
                continue;
            }
        };
        let together: Vec<&Probe> = here.iter().copied().filter(|probe| !probe.alone).collect();
        lines.extend(runtime.block_on(heard(&world, &fence, stage, stage.as_str(), &together)));
        for probe in here.into_iter().filter(|probe| probe.alone) {
            let what = format!("alone:{}", probe.name);
            lines.extend(runtime.block_on(heard(&world, &fence, stage, &what, &[probe])));
        }
    }
    correct(&mut lines, &mut world)?;
    if order.without.is_none() && order.tier != Tier::Off {
        lines.push((BEST.to_owned(), Seen::Done(minke_exec::probe::best_tier().to_string())));
    }
    Ok(lines)
}

/// What is seen from outside counts more than what an attacker says of itself.
fn correct(lines: &mut Vec<(String, Seen)>, world: &mut World) -> io::Result<()> {
    let evidence = world.evidence()?;
    for (name, seen) in &mut *lines {
        if evidence.through.contains(name) && !matches!(seen, Seen::Done(_)) {
            *seen = Seen::Done("seen from outside".to_owned());
        }
    }
    let is_attack =
        |name: &str| attacks::all().iter().any(|probe| probe.name == name && probe.kind == Kind::Attack);
    let any_through = lines.iter().any(|(name, seen)| matches!(seen, Seen::Done(_)) && is_attack(name));
    if !any_through && !evidence.changed.is_empty() {
        let why = format!("nobody says so, but these changed: {:?}", evidence.changed);
        lines.push(("unaccounted-change".to_owned(), Seen::Done(why)));
    }
    Ok(())
}

/// What an attacker has written. One that got rid of its starter may not have ended with its fence: it gets a moment.
async fn all_said(path: &Path, lines: usize) -> io::Result<String> {
    let end = Instant::now() + LAST_WORDS;
    loop {
        let text = fs::read_to_string(path)?;
        if text.lines().count() >= lines || Instant::now() > end {
            return Ok(text);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts one attacker and hears of every probe it was to try.
async fn heard(
    world: &World,
    fence: &Fence,
    stage: Stage,
    what: &str,
    probes: &[&Probe],
) -> Vec<(String, Seen)> {
    if probes.is_empty() {
        return Vec::new();
    }
    let said = match attacker(world, fence, stage, (what, probes.len())).await {
        Ok(said) => said,
        Err(why) => {
            return probes.iter().map(|probe| (probe.name.to_owned(), Seen::Unclear(why.clone()))).collect();
        }
    };
    let told = |name: &str| {
        said.text.lines().find_map(|line| {
            let mut parts = line.splitn(3, '\t');
            (parts.next() == Some(name)).then_some(())?;
            Seen::parse(parts.next()?, parts.next()?)
        })
    };
    let silent = || Seen::Unclear(format!("the attacker said nothing of it; its end: {}", said.end));
    probes.iter().map(|probe| (probe.name.to_owned(), told(probe.name).unwrap_or_else(silent))).collect()
}

struct Said {
    text: String,
    end: String,
}

/// Lets an attacker try `what`, of which it is to write so many lines.
async fn attacker(
    world: &World,
    fence: &Fence,
    stage: Stage,
    (what, lines): (&str, usize),
) -> Result<Said, String> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    let path = world.base.join(format!("said-{}", what.replace(':', "-")));
    let (stdout, stderr) = streams(&path).map_err(told("output"))?;
    let (stdin, master) = stdin(stage).map_err(told("input"))?;
    let arguments = [world.program().display().to_string(), "inside".to_owned(), what.to_owned()];
    let facts = world.told().map_err(told("facts"))?;
    let argv = arguments.into_iter().chain(facts).map(Into::into).collect();
    let limits = match stage {
        Stage::Small => Limits {
            file_bytes: Some(FILE_BYTES),
            open_files: Some(OPEN_FILES),
            processes: Some(PROCESSES),
            ..Limits::default()
        },
        _ => Limits::default(),
    };
    let start = Start {
        argv,
        cwd: world.base.join("work"),
        stdin,
        stdout,
        stderr,
        tty: stage == Stage::Terminal,
        limits,
    };
    let mut started = fence.start(start).map_err(|error| format!("starting: {error}"))?;
    let end = match tokio::time::timeout(STAGE_DEADLINE, started.wait()).await {
        Ok(Ok(exit)) => format!("{exit:?}"),
        Ok(Err(error)) => format!("waiting: {error}"),
        Err(_) => {
            started.kill();
            format!("not within {STAGE_DEADLINE:?}")
        }
    };
    drop(started);
    drop(master);
    let text = all_said(&path, lines).await.map_err(told("reading what it said"))?;
    Ok(Said { text, end })
}

fn streams(path: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    let stdout = fs::File::options().create(true).append(true).open(path)?;
    let stderr = fs::File::options().create(true).append(true).open(path.with_extension("err"))?;
    Ok((stdout.into(), stderr.into()))
}

/// Nothing to read, or a terminal with its other end.
fn stdin(stage: Stage) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    if stage != Stage::Terminal {
        return Ok((fs::File::open("/dev/null")?.into(), None));
    }
    let (master, path) = terminal()?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    Ok((slave, Some(master)))
}
