//! The commands of xtask, in the order of the help text.
//!
//! Here: the steps of each command. Elsewhere: the checks (`xtask::arrows` and its neighbours), benchmarks (`bench`).

use std::time::Instant;

use xtask::figures::Limits;
use xtask::{arrows, commits, figures as measured, labels, promises, purity, tree};

use crate::run::{cargo_command, is_available, run_command};

/// Runs all tests, or those selected by the arguments. Doc tests run first, so that the last line is the runner's summary.
pub(crate) fn run_tests(args: &[String]) -> Result<(), String> {
    // With arguments of its own the runner must not select the whole workspace.
    let all: &[&str] = if args.is_empty() { &["--workspace"] } else { &[] };
    if args.is_empty() {
        run_command(&mut cargo_command(&["test", "-q", "--workspace", "--doc"]))?;
    }
    if is_available(&mut cargo_command(&["nextest", "--version"])) {
        return run_command(cargo_command(&["nextest", "run"]).args(all).args(args));
    }
    eprintln!("cargo-nextest is not installed; using `cargo test`, which gives one summary for each binary");
    run_command(cargo_command(&["test", "--tests", "--no-fail-fast"]).args(all).args(args))
}

/// One check; the error lists all problems.
type CheckFn = fn() -> Result<(), String>;

/// Runs all checks, so that one run shows every problem.
pub(crate) fn run_checks() -> Result<(), String> {
    let questions: [(&str, CheckFn); 9] = [
        ("format", || run_command(&mut cargo_command(&["fmt", "--all", "--check"]))),
        ("arrows", check_arrows),
        ("labels", check_labels),
        ("purity", check_purity),
        ("promises", check_promises),
        ("figures", check_figures),
        ("commits", check_commit_subjects),
        ("clippy", || {
            run_command(&mut cargo_command(&[
                "clippy",
                "-q",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]))
        }),
        ("drift", || {
            run_command(&mut cargo_command(&["test", "-q", "-p", "minke-protocol", "--all-features"]))
        }),
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

fn read_page() -> Result<String, String> {
    let path = tree::workspace_root().join("ARCHITECTURE.md");
    std::fs::read_to_string(&path).map_err(|why| format!("cannot read ARCHITECTURE.md: {why}"))
}

fn rust_sources() -> Result<Vec<std::path::PathBuf>, String> {
    tree::rust_files(&tree::workspace_root()).map_err(|why| format!("cannot list the source files: {why}"))
}

fn fail_on_complaints(complaints: Vec<String>) -> Result<(), String> {
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

fn check_arrows() -> Result<(), String> {
    let drawn = arrows::read_page_plan(&read_page()?)?;
    let built = arrows::read_cargo_plan(&tree::cargo_metadata(&tree::workspace_root(), false)?)?;
    fail_on_complaints(arrows::compare_plans(&drawn, &built).iter().map(ToString::to_string).collect())
}

fn check_labels() -> Result<(), String> {
    let bare = labels::missing_labels(&tree::workspace_root(), &rust_sources()?)
        .map_err(|why| format!("cannot read a source file: {why}"))?;
    fail_on_complaints(
        bare.iter().map(|file| format!("{} has no `//!` label on its first line", file.display())).collect(),
    )
}

fn check_purity() -> Result<(), String> {
    let root = tree::workspace_root();
    let plan = arrows::read_page_plan(&read_page()?)?;
    let pure = purity::pure_crates(&plan);
    let mut complaints = purity::find_runtimes(&tree::cargo_metadata(&root, true)?, &pure)?;
    complaints.extend(purity::missing_bans(&root, &pure));
    fail_on_complaints(complaints)
}

fn check_promises() -> Result<(), String> {
    let known = promises::find_tests(&tree::workspace_root(), &rust_sources()?)
        .map_err(|why| format!("cannot read a source file: {why}"))?;
    let mut complaints = Vec::new();
    for name in promises::PAGES {
        let page = std::fs::read_to_string(tree::workspace_root().join(name))
            .map_err(|why| format!("could not read {name}: {why}"))?;
        complaints
            .extend(promises::promise_problems(&page, &known).into_iter().map(|c| format!("{name}: {c}")));
    }
    fail_on_complaints(complaints)
}

/// Checks that the figures of names, phrases and structure meet their limits, and that no commit loosened a limit.
fn check_figures() -> Result<(), String> {
    let root = tree::workspace_root();
    let limits = Limits::read(&root)?;
    let mut complaints = limits.complaints(&measured::measure(&root)?);
    if let Some(before) = commits::git(&root, &["show", "HEAD:xtask/limits.json"]) {
        complaints.extend(loosened_limits(&Limits::parse(&before)?, &limits));
    }
    let changes = ["log", "--no-merges", "--format=%H", "-n", "2", "--", "xtask/limits.json"];
    if let Some(log) = commits::git(&root, &changes)
        && let [newer, older] = log.lines().collect::<Vec<_>>()[..]
    {
        let at = |commit: &str| commits::git(&root, &["show", &format!("{commit}:xtask/limits.json")]);
        if let (Some(newer), Some(older)) = (at(newer), at(older)) {
            complaints.extend(loosened_limits(&Limits::parse(&older)?, &Limits::parse(&newer)?));
        }
    }
    fail_on_complaints(complaints)
}

fn loosened_limits(old: &Limits, new: &Limits) -> Vec<String> {
    let complaint =
        |name: String| format!("{name}: its limit in xtask/limits.json became looser; limits only tighten");
    measured::loosened(old, new).into_iter().map(complaint).collect()
}

fn check_commit_subjects() -> Result<(), String> {
    match commits::complaints(&tree::workspace_root()) {
        Ok(complaints) => fail_on_complaints(complaints),
        Err(why) => {
            println!("commits    SKIPPED  {why}");
            Ok(())
        }
    }
}

/// Prints the figures next to the values before issue "Plain names", the limits and the goals.
pub(crate) fn print_figures(args: &[String]) -> Result<(), String> {
    let root = tree::workspace_root();
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

/// Writes golden files. The tests that compare them write them instead if `MINKE_BLESS` is set.
pub(crate) fn write_schema() -> Result<(), String> {
    run_command(
        cargo_command(&["test", "-q", "-p", "minke-protocol", "--all-features"]).env("MINKE_BLESS", "1"),
    )?;
    run_command(
        cargo_command(&["test", "-q", "-p", "minke-manifest", "--test", "schema"]).env("MINKE_BLESS", "1"),
    )?;
    println!("golden files written; `git diff crates/protocol schema` shows what changed");
    Ok(())
}

/// The simulators: of one pod with its clients, or with `--tree` of the tree. `--long` uses the long count of steps,
/// `--seed N` repeats one run.
pub(crate) fn run_simulation(args: &[String]) -> Result<(), String> {
    let tree = args.iter().any(|arg| arg == "--tree");
    let (test, seed_of, long) = if tree {
        ("tree", "MINKE_TREE_SEED", "MINKE_LONG")
    } else {
        ("sim", "MINKE_SIM_SEED", "MINKE_SIM_LONG")
    };
    // The crates of the tree simulator are optimised in the dev profile too: a second build would cost more than it saves.
    let profile = if tree { "dev" } else { "release" };
    let test = ["test", "--profile", profile, "-p", "minke-testkit", "--test", test, "--", "--nocapture"];
    let mut command = cargo_command(&test);
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
    run_command(&mut command)
}

/// Random mutations and flipped bits in the promised counts; `--long` runs ten times the mutations.
pub(crate) fn run_mutations(args: &[String]) -> Result<(), String> {
    let mutations = match args {
        [] => "100000",
        [long] if long == "--long" => "1000000",
        [other, ..] => return Err(format!("`mutate` knows --long, not `{other}`")),
    };
    let flipped = (2 * 1024 * 1024).to_string();
    let mut command = cargo_command(&[
        "test",
        "--release",
        "-p",
        "minke-session",
        "--test",
        "log",
        "damage",
        "--",
        "--nocapture",
    ]);
    run_command(command.env("MINKE_MUTATIONS", mutations).env("MINKE_FLIP_BYTES", flipped))
}

/// Every point of the fault sweep, for all kinds, on the real binary.
pub(crate) fn run_faults() -> Result<(), String> {
    let mut command =
        cargo_command(&["test", "--release", "-p", "minke-cli", "--test", "faults", "--", "--nocapture"]);
    run_command(command.env("MINKE_FAULTS_LONG", "1"))
}

/// Licences, advisories, bans and sources, according to deny.toml.
pub(crate) fn run_deny() -> Result<(), String> {
    if !is_available(&mut cargo_command(&["deny", "--version"])) {
        return Err("cargo-deny is not installed: `cargo install --locked cargo-deny`, then again".into());
    }
    run_command(&mut cargo_command(&["deny", "check"]))
}
