//! The memory of the tier: who is believed, who is not, and that a wrong one opens nothing.
//!
//! Whether a tier was tried is seen by the helper: each execution of it leaves a line.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use minke_exec::fence::{EnvRules, Fence, FenceError, FenceSpec, Helper, Limits, Network, PodDirs, Start};
use minke_exec::probe::{known_tier_in, remember_in};
use minke_policy::Tier;
use minke_record::Scope;

/// Something done to the file.
type Damage<'a> = Box<dyn Fn() + 'a>;

struct World {
    _dir: tempfile::TempDir,
    at: PathBuf,
    helper: Helper,
}

impl World {
    /// A runtime directory, and a helper that writes down that it was executed.
    fn new() -> World {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = dir.path().canonicalize().unwrap();
        for name in ["run", "work", "tmp", "output"] {
            std::fs::create_dir(at.join(name)).unwrap();
        }
        let real = env!("CARGO_BIN_EXE_minke-fence");
        let counted = at.join("counted");
        let script = format!(
            "#!/bin/bash\necho once >> {}\nexec -a minke-fence {real} \"$@\"\n",
            at.join("executed").display()
        );
        std::fs::write(&counted, script).unwrap();
        std::fs::set_permissions(&counted, std::fs::Permissions::from_mode(0o755)).unwrap();
        World { _dir: dir, helper: Helper::at(counted), at }
    }

    fn run(&self) -> PathBuf {
        self.at.join("run")
    }

    fn file(&self) -> PathBuf {
        self.at.join("run/fence-tier")
    }

    fn executed(&self) -> usize {
        std::fs::read_to_string(self.at.join("executed")).map_or(0, |text| text.lines().count())
    }

    /// The tier, and whether it was tried for.
    fn known(&self) -> (Tier, bool) {
        let before = self.executed();
        let tier = known_tier_in(&self.helper, &self.run());
        (tier, self.executed() > before)
    }
}

/// A world that remembers, with its tier; none where no fence is whole.
fn remembering() -> Option<(World, Tier)> {
    let world = World::new();
    let (tier, tried) = world.known();
    assert!(tried, "the first start has nothing to remember");
    if !tier.holds() {
        assert!(!world.file().exists(), "tier {tier} does not hold and is not remembered");
        let why = "no whole fence works here, so none is remembered";
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
        eprintln!("SKIPPED: {why}");
        return None;
    }
    Some((world, tier))
}

#[test]
fn the_second_start_does_not_try() {
    let Some((world, tier)) = remembering() else { return };
    assert_eq!(world.known(), (tier, false));
    assert_eq!(world.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> =
        std::fs::read_dir(world.run()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["fence-tier"], "nothing else is left");
}

#[test]
fn what_somebody_could_have_written_is_not_believed() {
    let Some((world, tier)) = remembering() else { return };
    let good = std::fs::read_to_string(world.file()).unwrap();
    let replaced = |text: &str| std::fs::write(world.file(), text).unwrap();
    let line = |start: &str, with: &str| {
        let changed = good.lines().map(|line| if line.starts_with(start) { with } else { line });
        changed.collect::<Vec<_>>().join("\n") + "\n"
    };
    let mode = |mode| std::fs::set_permissions(world.file(), std::fs::Permissions::from_mode(mode)).unwrap();
    let time = |time: SystemTime| {
        std::fs::File::options().write(true).open(world.file()).unwrap().set_modified(time).unwrap();
    };
    let day = Duration::from_secs(24 * 60 * 60 + 60);
    let mut cases: Vec<(&str, Damage<'_>)> = vec![
        ("empty", Box::new(|| replaced(""))),
        ("no text", Box::new(|| std::fs::write(world.file(), [0xff, 0, 0xfe]).unwrap())),
        ("cut", Box::new(|| replaced(good.trim_end()))),
        ("more behind it", Box::new(|| replaced(&format!("{good}tier A\n")))),
        ("no tier", Box::new(|| replaced(&line("tier ", "tier Z")))),
        ("a weak tier", Box::new(|| replaced(&line("tier ", "tier B")))),
        ("no fence at all", Box::new(|| replaced(&line("tier ", "tier off")))),
        ("another boot", Box::new(|| replaced(&line("kernel/random/boot_id", "kernel/random/boot_id 0")))),
        (
            "another setting",
            Box::new(|| replaced(&line("user/max_user_namespaces", "user/max_user_namespaces 0"))),
        ),
        (
            "another helper",
            Box::new(|| replaced(&line("helper ", "helper 1:2 size 3 modified 4.5 changed 6.7"))),
        ),
        ("another kernel", Box::new(|| replaced(&line("landlock ", "landlock 99")))),
        ("too long", Box::new(|| replaced(&format!("{good}{}", "x".repeat(1 << 20))))),
        ("open to others", Box::new(|| mode(0o644))),
        ("too old", Box::new(|| time(SystemTime::now() - day))),
        ("from the future", Box::new(|| time(SystemTime::now() + day))),
        (
            "a link",
            Box::new(|| {
                let elsewhere = world.at.join("elsewhere");
                std::fs::rename(world.file(), &elsewhere).unwrap();
                symlink(elsewhere, world.file()).unwrap();
            }),
        ),
        ("two names", Box::new(|| std::fs::hard_link(world.file(), world.at.join("second")).unwrap())),
    ];
    if rustix::process::getuid().is_root() {
        let foreign = || std::os::unix::fs::chown(world.file(), Some(65534), None).unwrap();
        cases.push(("somebody else's", Box::new(foreign)));
    }
    for (what, damage) in cases {
        assert_eq!(world.known(), (tier, false), "before: {what}");
        damage();
        assert_eq!(world.known(), (tier, true), "{what}");
        assert!(world.file().symlink_metadata().unwrap().is_file(), "{what}: it is remembered anew");
    }
}

#[test]
fn another_helper_is_tried() {
    let Some((world, tier)) = remembering() else { return };
    let path = world.at.join("counted");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\n")).unwrap();
    assert_eq!(world.known(), (tier, true));
    assert_eq!(world.known(), (tier, false));
}

#[test]
fn a_probe_replaces_what_was_remembered() {
    let Some((world, tier)) = remembering() else { return };
    remember_in(&world.helper, &world.run(), Tier::D);
    assert!(!world.file().exists(), "that nothing works is not remembered");
    remember_in(&world.helper, &world.run(), tier);
    assert_eq!(world.known(), (tier, false));
}

/// A memory that says what is not true: nothing runs, and the next start tries.
#[test]
fn a_wrong_memory_runs_nothing_and_is_forgotten() {
    let Some((world, tier)) = remembering() else { return };
    assert_eq!(world.known(), (tier, false));
    let ran = world.at.join("work/ran");
    let fence = Fence::compile(tier, &spec(&world.at)).unwrap();
    // A helper that ends without a word, as one does whose walls do not stand.
    let error = fence.with_helper(Helper::at("/bin/true")).start(touch(&world.at)).unwrap_err();
    assert!(matches!(error, FenceError::Broken { .. }), "{error}");
    assert!(!ran.exists(), "the command ran without walls");
    assert!(!world.file().exists(), "the memory is thrown away");
    assert_eq!(world.known(), (tier, true));
}

fn spec(at: &Path) -> FenceSpec {
    FenceSpec {
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
    }
}

fn touch(at: &Path) -> Start {
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    Start {
        argv: ["sh", "-c", "echo > ran"].iter().map(Into::into).collect(),
        cwd: at.join("work"),
        stdin: null().into(),
        stdout: null().into(),
        stderr: null().into(),
        tty: false,
        limits: Limits::default(),
    }
}
