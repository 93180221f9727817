//! What a fence costs: `bash -c true` plain, and behind each tier that works here, side by side.
//!
//! `cargo bench -p minke-exec --bench fence [-- TIER…]`. This binary is its own helper, as `minke` is. A repository with a `.git`
//! is the grant, so that protected names, there and missing, are held as in real work. Each tier is measured twice: as a
//! pod's first command, and with the spare helper that every later one finds.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use minke_exec::fence::{
    EnvRules, Exit, Fence, FenceSpec, Helper, Limits, Network, PodDirs, Spare, Start, helper_main, is_helper,
};
use minke_policy::Tier;
use minke_record::Scope;

/// Rounds; in each, every kind of start is measured once, so that load of the machine falls on all of them alike.
const ROUNDS: usize = 200;
/// How long a spare helper has before it is needed: less than a model ever thinks.
const SETTLED: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| is_helper(&name)) {
        return helper_main();
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = root.path().canonicalize().unwrap();
    for dir in ["work/.git/hooks", "tmp", "output"] {
        std::fs::create_dir_all(at.join(dir)).unwrap();
    }
    std::fs::write(at.join("work/.git/config"), "[core]").unwrap();
    let spec = FenceSpec {
        scope: Scope::write(at.join("work").to_str().unwrap()),
        read_only: false,
        dirs: PodDirs {
            tmp: at.join("tmp"),
            output: at.join("output"),
            fences: at.join("fences"),
            writable_tmp: true,
        },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: minke_exec::fence::Findings::default(),
        network: Network::Off,
        env: EnvRules::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let tiers: Vec<Tier> = [Tier::Off, Tier::B, Tier::A, Tier::APrime]
        .into_iter()
        .filter(|tier| *tier != Tier::APrime || std::path::Path::new("/usr/bin/bwrap").exists())
        .filter(|tier| named.is_empty() || named.iter().any(|name| name == tier.as_str()))
        .collect();
    let mut plain = Vec::new();
    let kinds: Vec<(Tier, bool)> = tiers.iter().flat_map(|tier| [(*tier, false), (*tier, true)]).collect();
    let mut fenced: Vec<Vec<Duration>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        assert!(Command::new("bash").args(["-c", "true"]).stdin(Stdio::null()).status().unwrap().success());
        plain.push(begun.elapsed());
        for ((tier, with_spare), times) in kinds.iter().zip(&mut fenced) {
            let spare = with_spare.then(|| Spare::make(&Helper::default(), *tier).unwrap());
            if spare.is_some() {
                std::thread::sleep(SETTLED);
            }
            let begun = Instant::now();
            run(&runtime, *tier, &spec, spare);
            times.push(begun.elapsed());
        }
    }
    let base = report("plain", &mut plain, None);
    for ((tier, with_spare), times) in kinds.iter().zip(&mut fenced) {
        let how = if *with_spare { "spare" } else { "first" };
        report(&format!("tier {tier:3} {how}"), times, Some(base));
    }
    ExitCode::SUCCESS
}

fn run(runtime: &tokio::runtime::Runtime, tier: Tier, spec: &FenceSpec, spare: Option<Spare>) {
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let start = Start {
        argv: ["bash", "-c", "true"].iter().map(Into::into).collect(),
        cwd: spec.dirs.tmp.with_file_name("work"),
        stdin: null().into(),
        stdout: null().into(),
        stderr: null().into(),
        tty: false,
        limits: Limits::default(),
    };
    let mut started = Fence::compile(tier, spec).unwrap().start_with(spare, start).unwrap();
    assert_eq!(runtime.block_on(started.wait()).unwrap(), Exit::Code(0));
}

fn report(name: &str, times: &mut [Duration], base: Option<Duration>) -> Duration {
    times.sort_unstable();
    let part = |of: usize| times[times.len() * of / 100];
    let against = base.map(|base| format!("  {:.2} x plain", part(50).as_secs_f64() / base.as_secs_f64()));
    eprintln!(
        "{name:15}  p10 {:?}  p50 {:?}  p90 {:?}{}",
        part(10),
        part(50),
        part(90),
        against.unwrap_or_default()
    );
    part(50)
}
