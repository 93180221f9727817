//! The probe: which tiers work on this machine, each tried for real.
//!
//! Here: trying, and what the kernel says about itself. Elsewhere: which tier a pod then takes (`driver`), how it is
//! shown (`minke doctor`). A tier works when a command wrote where it may and could not where it may not.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use minke_policy::Tier;
use minke_record::Scope;

use crate::fence::{
    EnvRules, Exit, Fence, FenceSpec, Helper, Limits, Network, PodDirs, Start, landlock_abi, system_bwrap,
};

/// What this machine offers.
#[derive(Debug, Clone)]
pub struct Report {
    pub tiers: Vec<TierReport>,
    /// The one that a pod takes.
    pub best: Tier,
    pub kernel: String,
    /// 0 without Landlock.
    pub landlock_abi: u32,
    /// Whether this user may make user namespaces, as far as the kernel's settings tell; with the setting that speaks
    /// against it.
    pub user_namespaces: Result<(), String>,
    pub seccomp: bool,
    /// The system's own helper, if it has one.
    pub bwrap: Option<PathBuf>,
}

/// One tier, tried.
#[derive(Debug, Clone)]
pub struct TierReport {
    pub tier: Tier,
    pub works: bool,
    /// What was seen, or what failed.
    pub why: String,
    pub took: Duration,
}

/// Tiers from the strongest to the weakest that holds anything.
const TRIED: [Tier; 4] = [Tier::A, Tier::APrime, Tier::B, Tier::C];
/// How long one try may take. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries every tier.
pub fn probe() -> Report {
    probe_with(&Helper::default())
}

/// The same with another helper, for tests.
pub fn probe_with(helper: &Helper) -> Report {
    let tiers: Vec<TierReport> =
        TRIED.iter().map(|tier| try_tier(helper, *tier, &std::env::temp_dir())).collect();
    let best = tiers.iter().find(|report| report.works).map_or(Tier::D, |report| report.tier);
    Report {
        tiers,
        best,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        landlock_abi: landlock_abi(),
        user_namespaces: user_namespaces(),
        seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        bwrap: system_bwrap(),
    }
}

/// The strongest tier that works: what a pod takes at its start. Stops at the first.
pub fn best_tier() -> Tier {
    best_tier_with(&Helper::default())
}

/// The same with another helper.
pub fn best_tier_with(helper: &Helper) -> Tier {
    best_tier_in(helper, &std::env::temp_dir())
}

/// The same in a directory of our own, where what others left who were killed while they tried is cleared away.
pub fn best_tier_in(helper: &Helper, dir: &Path) -> Tier {
    sweep(dir);
    TRIED.into_iter().find(|tier| try_tier(helper, *tier, dir).works).unwrap_or(Tier::D)
}

/// What a pod takes at its start: the strongest tier that works, remembered in its runtime directory from an earlier start
/// in the same circumstances, or tried now and remembered. Only fences that hold the whole scope are remembered: a memory
/// that is wrong lets no command run, and cannot weaken a fence.
pub fn known_tier_in(helper: &Helper, dir: &Path) -> Tier {
    if let Some(tier) = crate::memory::recall(helper, dir) {
        return tier;
    }
    let tier = best_tier_in(helper, dir);
    remember_in(helper, dir, tier);
    tier
}

/// Remembers what a full probe has just found, in place of what was remembered before.
pub fn remember_in(helper: &Helper, dir: &Path, tier: Tier) {
    // What cannot be written down is tried again by the next.
    let _tried_again = crate::memory::remember(helper, dir, tier);
}

/// Removes grounds whose process is gone. What cannot be removed is tried again by the next.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(GROUND)?.split('-').next()?.parse::<u32>().ok());
        let ours = entry
            .metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw());
        if let Some(pid) = pid.filter(|_| ours)
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            let _left = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn try_tier(helper: &Helper, tier: Tier, dir: &Path) -> TierReport {
    let begun = Instant::now();
    let tried = attempt(helper, tier, dir);
    let (works, why) = match tried {
        Ok(()) => (true, "a command wrote inside and could not write or read outside".to_owned()),
        Err(why) => (false, why),
    };
    TierReport { tier, works, why, took: begun.elapsed() }
}

/// How the directories are called in which a tier is tried.
const GROUND: &str = "minke-probe-";

/// A directory that is removed with what is in it.
struct Ground(PathBuf);

impl Ground {
    fn new(dir: &Path) -> io::Result<Ground> {
        use std::os::unix::fs::DirBuilderExt;
        // Random, because numbers of processes come again and names in a shared directory can be taken by others.
        let random = RandomState::new().build_hasher().finish();
        let path = dir.canonicalize()?.join(format!("{GROUND}{}-{random:016x}", std::process::id()));
        // Not there yet, and nobody else's: or it is an error.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let ground = Ground(path);
        for name in ["work", "tmp", "output", "outside"] {
            std::fs::create_dir(ground.0.join(name))?;
        }
        std::fs::write(ground.0.join("outside/secret"), "secret")?;
        Ok(ground)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What cannot be removed lies in the temporary directory, which is where such things may lie.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes inside; fails if it can write or read outside.
const TRY: &str = r#"echo in > "$1/work/in" || exit 2
(echo out > "$1/outside/out") 2>/dev/null && exit 3
(cat "$1/outside/secret") >/dev/null 2>&1 && exit 4
exit 0"#;

fn attempt(helper: &Helper, tier: Tier, dir: &Path) -> Result<(), String> {
    let ground = Ground::new(dir).map_err(|error| format!("no temporary directory to try in: {error}"))?;
    let at = |name: &str| ground.0.join(name);
    let text =
        |path: &Path| path.to_str().map(str::to_owned).ok_or("the temporary directory has no plain name");
    let spec = FenceSpec {
        scope: Scope::write(text(&at("work"))?),
        read_only: false,
        dirs: PodDirs { tmp: at("tmp"), output: at("output"), fences: at("fences"), writable_tmp: true },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: crate::fence::Findings::default(),
        network: Network::Off,
        env: EnvRules::default(),
    };
    let nothing = || File::options().read(true).write(true).open("/dev/null").map_err(|e| e.to_string());
    let root = text(&ground.0)?;
    let argv = ["/bin/sh", "-c", TRY, "sh", &root];
    let start = Start {
        argv: argv.iter().map(Into::into).collect(),
        cwd: at("work"),
        stdin: nothing()?.into(),
        stdout: nothing()?.into(),
        stderr: nothing()?.into(),
        tty: false,
        limits: Limits::default(),
    };
    let fence = Fence::compile(tier, &spec).map_err(|error| error.to_string())?;
    let mut started = fence.with_helper(helper.clone()).start(start).map_err(|error| error.to_string())?;
    let exit = started.wait_blocking(PATIENCE).map_err(|error| error.to_string())?;
    match exit {
        Exit::Code(0) if at("outside/out").exists() => Err("a command wrote outside".to_owned()),
        Exit::Code(0) => Ok(()),
        Exit::Code(2) => Err("a command could not write where it may".to_owned()),
        Exit::Code(3) => Err("a command wrote outside".to_owned()),
        Exit::Code(4) => Err("a command read outside".to_owned()),
        other => Err(format!("a command ended unexpectedly ({other:?})")),
    }
}

/// Settings of kernels and distributions that switch user namespaces off.
fn user_namespaces() -> Result<(), String> {
    let setting = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    for (name, bad) in [
        ("user/max_user_namespaces", 0),
        ("kernel/unprivileged_userns_clone", 0),
        ("kernel/apparmor_restrict_unprivileged_userns", 1),
    ] {
        if setting(name) == Some(bad) {
            return Err(format!("/proc/sys/{name} is {bad}"));
        }
    }
    if !Path::new("/proc/self/ns/user").exists() {
        return Err("this kernel has none".to_owned());
    }
    Ok(())
}
