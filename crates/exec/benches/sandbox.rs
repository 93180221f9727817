//! Measures the cost of a sandbox: `bash -c true` without one, and in each backend that works here.
//!
//! `cargo bench -p minke-exec --bench sandbox [-- BACKEND…]`. This binary is its own helper, as `minke` is. The grant is
//! a repository with a `.git`, so that present and missing names are protected as in real work. Each backend is
//! measured twice: without a spare helper, as for a pod's first command, and with one.

#![expect(clippy::unwrap_used, reason = "an error ends the measurement")]

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use minke_exec::sandbox::{
    CommandLimits, EnvRules, HelperBinary, NetworkAccess, PodDirs, ProcessExit, Sandbox, SandboxCommand,
    SandboxSpec, SpareHelper, helper_main, is_helper,
};
use minke_policy::SandboxBackend;
use minke_record::Scope;

/// Every round measures each kind of start once, so that the load of the machine affects all of them alike.
const ROUNDS_PER_BACKEND: usize = 200;
/// How long a spare helper has before it is needed: less than any model request takes.
const SETTLE_TIME: Duration = Duration::from_millis(10);

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
    let spec = SandboxSpec {
        scope: Scope::writable(at.join("work").to_str().unwrap()),
        read_only: false,
        dirs: PodDirs {
            tmp: at.join("tmp"),
            output: at.join("output"),
            lock_file: at.join("sandboxes"),
            writable_tmp: true,
        },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: minke_exec::sandbox::ScopeFindings::default(),
        network: NetworkAccess::Off,
        env: EnvRules::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let tiers: Vec<SandboxBackend> = [
        SandboxBackend::Off,
        SandboxBackend::Landlock,
        SandboxBackend::Namespaces,
        SandboxBackend::Bubblewrap,
    ]
    .into_iter()
    .filter(|tier| *tier != SandboxBackend::Bubblewrap || std::path::Path::new("/usr/bin/bwrap").exists())
    .filter(|tier| named.is_empty() || named.iter().any(|name| name == tier.as_str()))
    .collect();
    let mut plain = Vec::new();
    let kinds: Vec<(SandboxBackend, bool)> =
        tiers.iter().flat_map(|tier| [(*tier, false), (*tier, true)]).collect();
    let mut sandboxed: Vec<Vec<Duration>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS_PER_BACKEND {
        let begun = Instant::now();
        assert!(Command::new("bash").args(["-c", "true"]).stdin(Stdio::null()).status().unwrap().success());
        plain.push(begun.elapsed());
        for ((tier, with_spare), times) in kinds.iter().zip(&mut sandboxed) {
            let spare =
                with_spare.then(|| SpareHelper::spawn_spare(&HelperBinary::default(), *tier).unwrap());
            if spare.is_some() {
                std::thread::sleep(SETTLE_TIME);
            }
            let begun = Instant::now();
            run_rounds(&runtime, *tier, &spec, spare);
            times.push(begun.elapsed());
        }
    }
    let base = print_report("plain", &mut plain, None);
    for ((tier, with_spare), times) in kinds.iter().zip(&mut sandboxed) {
        let how = if *with_spare { "spare" } else { "first" };
        print_report(&format!("{tier:3} {how}"), times, Some(base));
    }
    ExitCode::SUCCESS
}

fn run_rounds(
    runtime: &tokio::runtime::Runtime,
    tier: SandboxBackend,
    spec: &SandboxSpec,
    spare: Option<SpareHelper>,
) {
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let start = SandboxCommand {
        argv: ["bash", "-c", "true"].iter().map(Into::into).collect(),
        cwd: spec.dirs.tmp.with_file_name("work"),
        stdin: null().into(),
        stdout: null().into(),
        stderr: null().into(),
        tty: false,
        limits: CommandLimits::default(),
    };
    let mut started = Sandbox::compile_spec(tier, spec).unwrap().start_with_spare(spare, start).unwrap();
    assert_eq!(runtime.block_on(started.wait_for_exit()).unwrap(), ProcessExit::Code(0));
}

fn print_report(name: &str, times: &mut [Duration], base: Option<Duration>) -> Duration {
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
