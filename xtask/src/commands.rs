//! The commands of the house, in the order of the help text.
//!
//! Here: what each command runs. Elsewhere: the rules they ask about (`xtask::arrows` and its
//! neighbours), figures (`bench`).

use std::time::Instant;

use xtask::figures::Limits;
use xtask::{arrows, commits, figures as measured, labels, promises, purity, tree};

use crate::run::{cargo, is_there, must};

/// All tests, or those that the arguments choose. Doc tests come first, so that the last line is the runner's summary.
pub(crate) fn test(args: &[String]) -> Result<(), String> {
    // With arguments of its own the runner must not be told to take the whole workspace besides.
    let all: &[&str] = if args.is_empty() { &["--workspace"] } else { &[] };
    if args.is_empty() {
        must(&mut cargo(&["test", "-q", "--workspace", "--doc"]))?;
    }
    if is_there(&mut cargo(&["nextest", "--version"])) {
        return must(cargo(&["nextest", "run"]).args(all).args(args));
    }
    eprintln!("cargo-nextest is not installed; using `cargo test`, which gives one summary for each binary");
    must(cargo(&["test", "--tests", "--no-fail-fast"]).args(all).args(args))
}

/// One thing that is looked at; the error lists every complaint.
type Question = fn() -> Result<(), String>;

/// What the machine refuses, all of it, so that one run shows every complaint.
pub(crate) fn check() -> Result<(), String> {
    let questions: [(&str, Question); 9] = [
        ("format", || must(&mut cargo(&["fmt", "--all", "--check"]))),
        ("arrows", arrows_agree),
        ("labels", labels_stand),
        ("purity", core_is_pure),
        ("promises", promises_are_kept),
        ("figures", figures_meet_their_limits),
        ("commits", commits_have_subjects),
        ("clippy", || {
            must(&mut cargo(&["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        }),
        ("drift", || must(&mut cargo(&["test", "-q", "-p", "minke-protocol", "--all-features"]))),
    ];
    let mut refused = Vec::new();
    for (name, ask) in questions {
        let start = Instant::now();
        match ask() {
            Ok(()) => println!("{name:<10} ok       {:.1} s", start.elapsed().as_secs_f64()),
            Err(why) => {
                println!("{name:<10} REFUSED  {:.1} s\n{why}", start.elapsed().as_secs_f64());
                refused.push(name);
            }
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(format!("refused: {}", refused.join(", "))) }
}

fn page() -> Result<String, String> {
    let path = tree::root().join("ARCHITECTURE.md");
    std::fs::read_to_string(&path).map_err(|why| format!("cannot read ARCHITECTURE.md: {why}"))
}

fn files() -> Result<Vec<std::path::PathBuf>, String> {
    tree::rust_files(&tree::root()).map_err(|why| format!("cannot list the source files: {why}"))
}

fn all_well(complaints: Vec<String>) -> Result<(), String> {
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

fn arrows_agree() -> Result<(), String> {
    let drawn = arrows::drawn(&page()?)?;
    let built = arrows::built(&tree::metadata(&tree::root(), false)?)?;
    all_well(arrows::compare(&drawn, &built).iter().map(ToString::to_string).collect())
}

fn labels_stand() -> Result<(), String> {
    let bare = labels::missing(&tree::root(), &files()?)
        .map_err(|why| format!("cannot read a source file: {why}"))?;
    all_well(
        bare.iter().map(|file| format!("{} has no `//!` label on its first line", file.display())).collect(),
    )
}

fn core_is_pure() -> Result<(), String> {
    let root = tree::root();
    let plan = arrows::drawn(&page()?)?;
    let pure = purity::pure_crates(&plan);
    let mut complaints = purity::runtimes_below(&tree::metadata(&root, true)?, &pure)?;
    complaints.extend(purity::missing_bans(&root, &pure));
    all_well(complaints)
}

fn promises_are_kept() -> Result<(), String> {
    let known = promises::tests_in(&tree::root(), &files()?)
        .map_err(|why| format!("cannot read a source file: {why}"))?;
    let mut complaints = Vec::new();
    for name in promises::PAGES {
        let page = std::fs::read_to_string(tree::root().join(name))
            .map_err(|why| format!("could not read {name}: {why}"))?;
        complaints.extend(promises::complaints(&page, &known).into_iter().map(|c| format!("{name}: {c}")));
    }
    all_well(complaints)
}

/// Figures of names, phrases and structure are no worse than their limits, and no commit made a limit looser.
fn figures_meet_their_limits() -> Result<(), String> {
    let root = tree::root();
    let limits = Limits::read(&root)?;
    let mut complaints = limits.complaints(&measured::measure(&root)?);
    if let Some(before) = commits::git(&root, &["show", "HEAD:xtask/limits.json"]) {
        complaints.extend(loosened(&Limits::parse(&before)?, &limits));
    }
    let changes = ["log", "--no-merges", "--format=%H", "-n", "2", "--", "xtask/limits.json"];
    if let Some(log) = commits::git(&root, &changes)
        && let [newer, older] = log.lines().collect::<Vec<_>>()[..]
    {
        let at = |commit: &str| commits::git(&root, &["show", &format!("{commit}:xtask/limits.json")]);
        if let (Some(newer), Some(older)) = (at(newer), at(older)) {
            complaints.extend(loosened(&Limits::parse(&older)?, &Limits::parse(&newer)?));
        }
    }
    all_well(complaints)
}

fn loosened(old: &Limits, new: &Limits) -> Vec<String> {
    let complaint =
        |name: String| format!("{name}: its limit in xtask/limits.json became looser; limits only tighten");
    measured::loosened(old, new).into_iter().map(complaint).collect()
}

fn commits_have_subjects() -> Result<(), String> {
    match commits::complaints(&tree::root()) {
        Ok(complaints) => all_well(complaints),
        Err(why) => {
            println!("commits    SKIPPED  {why}");
            Ok(())
        }
    }
}

/// Prints the figures beside the values before issue "Plain names", the limits and the goals.
pub(crate) fn figures(args: &[String]) -> Result<(), String> {
    let root = tree::root();
    let figures = measured::measure(&root)?;
    let limits = Limits::read(&root).unwrap_or_default();
    match args {
        [] => println!("{}", measured::table(&figures, &limits)),
        [flag] if flag == "--tighten" => {
            let tight = limits.tightened(&figures);
            tight.write(&root)?;
            println!("{}", measured::table(&figures, &tight));
        }
        [flag, name] if flag == "--places" => {
            let figure = figures.get(name.as_str()).ok_or_else(|| format!("there is no figure `{name}`"))?;
            figure.places.iter().for_each(|place| println!("{place}"));
        }
        _ => return Err("`figures` knows --tighten and --places NAME".to_owned()),
    }
    Ok(())
}

/// Writes golden files anew. The tests that compare them write instead when they see `MINKE_BLESS`.
pub(crate) fn schema() -> Result<(), String> {
    must(cargo(&["test", "-q", "-p", "minke-protocol", "--all-features"]).env("MINKE_BLESS", "1"))?;
    must(cargo(&["test", "-q", "-p", "minke-manifest", "--test", "schema"]).env("MINKE_BLESS", "1"))?;
    println!("golden files written; `git diff crates/protocol schema` shows what changed");
    Ok(())
}

/// The simulators: of one pod with its clients, or with `--tree` of the tree. `--long` takes the long count of steps,
/// `--seed N` replays one run.
pub(crate) fn sim(args: &[String]) -> Result<(), String> {
    let tree = args.iter().any(|arg| arg == "--tree");
    let (test, seed_of, long) = if tree {
        ("tree", "MINKE_TREE_SEED", "MINKE_LONG")
    } else {
        ("sim", "MINKE_SIM_SEED", "MINKE_SIM_LONG")
    };
    // What the tree runs through is optimised in the dev profile too: a second build would cost more than it saves.
    let profile = if tree { "dev" } else { "release" };
    let test = ["test", "--profile", profile, "-p", "minke-testkit", "--test", test, "--", "--nocapture"];
    let mut command = cargo(&test);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tree" => &mut command,
            "--long" => command.env(long, "1"),
            "--seed" => {
                let seed =
                    args.next().ok_or("`--seed` needs a number, as printed by a failure before the `@`")?;
                let seed = seed.split('@').next().unwrap_or(seed);
                let seed: u64 =
                    seed.parse().map_err(|why| format!("`--seed {seed}` is not a number: {why}"))?;
                command.env(seed_of, seed.to_string())
            }
            other => return Err(format!("`sim` knows --tree, --long and --seed N, not `{other}`")),
        };
    }
    must(&mut command)
}

/// Random mutations and flipped bits in the counts that are promised; `--long` ten times the mutations.
pub(crate) fn mutate(args: &[String]) -> Result<(), String> {
    let mutations = match args {
        [] => "100000",
        [long] if long == "--long" => "1000000",
        [other, ..] => return Err(format!("`mutate` knows --long, not `{other}`")),
    };
    let flipped = (2 * 1024 * 1024).to_string();
    let mut command =
        cargo(&["test", "--release", "-p", "minke-session", "--test", "log", "damage", "--", "--nocapture"]);
    must(command.env("MINKE_MUTATIONS", mutations).env("MINKE_FLIP_BYTES", flipped))
}

/// Every point of the fault sweep, for all kinds, on the real binary.
pub(crate) fn faults() -> Result<(), String> {
    let mut command =
        cargo(&["test", "--release", "-p", "minke-cli", "--test", "faults", "--", "--nocapture"]);
    must(command.env("MINKE_FAULTS_LONG", "1"))
}

/// Licences, advisories, bans and sources, as deny.toml says.
pub(crate) fn deny() -> Result<(), String> {
    if !is_there(&mut cargo(&["deny", "--version"])) {
        return Err("cargo-deny is not installed: `cargo install --locked cargo-deny`, then again".into());
    }
    must(&mut cargo(&["deny", "check"]))
}
