//! What a fence costs: `bash -c true` plain, and behind each tier that works here, side by side.
//!
//! `cargo bench -p minke-exec --bench fence`. This binary is its own helper, as `minke` is. A repository with a `.git`
//! is the grant, so that protected names, there and missing, are held as in real work.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use minke_exec::fence::{
    EnvRules, Exit, Fence, FenceSpec, Limits, Network, PodDirs, Start, helper_main, is_helper,
};
use minke_policy::Tier;
use minke_record::Scope;

/// Rounds; in each, every kind of start is measured once, so that load of the machine falls on all of them alike.
const ROUNDS: usize = 200;

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
        network: Network::Off,
        env: EnvRules::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tiers: Vec<Tier> = [Tier::Off, Tier::B, Tier::A, Tier::APrime]
        .into_iter()
        .filter(|tier| *tier != Tier::APrime || std::path::Path::new("/usr/bin/bwrap").exists())
        .collect();
    let mut plain = Vec::new();
    let mut fenced: Vec<Vec<Duration>> = vec![Vec::new(); tiers.len()];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        assert!(Command::new("bash").args(["-c", "true"]).stdin(Stdio::null()).status().unwrap().success());
        plain.push(begun.elapsed());
        for (tier, times) in tiers.iter().zip(&mut fenced) {
            let begun = Instant::now();
            run(&runtime, *tier, &spec);
            times.push(begun.elapsed());
        }
    }
    let base = report("plain", &mut plain, None);
    for (tier, times) in tiers.iter().zip(&mut fenced) {
        report(&format!("tier {tier}"), times, Some(base));
    }
    ExitCode::SUCCESS
}

fn run(runtime: &tokio::runtime::Runtime, tier: Tier, spec: &FenceSpec) {
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
    let mut started = Fence::compile(tier, spec).unwrap().start(start).unwrap();
    assert_eq!(runtime.block_on(started.wait()).unwrap(), Exit::Code(0));
}

fn report(name: &str, times: &mut [Duration], base: Option<Duration>) -> Duration {
    times.sort_unstable();
    let part = |of: usize| times[times.len() * of / 100];
    let against = base.map(|base| format!("  {:.2} x plain", part(50).as_secs_f64() / base.as_secs_f64()));
    eprintln!(
        "{name:8}  p10 {:?}  p50 {:?}  p90 {:?}{}",
        part(10),
        part(50),
        part(90),
        against.unwrap_or_default()
    );
    part(50)
}
