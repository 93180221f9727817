//! The backend cache: when it is valid, and that a wrong one weakens nothing.
//!
//! The helper writes a line for each execution, which shows whether a backend was tried.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use minke_exec::probe::{cache_backend_in, cached_backend_in};
use minke_exec::sandbox::{
    CommandLimits, EnvRules, HelperBinary, NetworkAccess, PodDirs, Sandbox, SandboxCommand, SandboxError,
    SandboxSpec,
};
use minke_policy::SandboxBackend;
use minke_record::Scope;

/// A change to the file.
type DamageFn<'a> = Box<dyn Fn() + 'a>;

struct CacheFixture {
    _dir: tempfile::TempDir,
    at: PathBuf,
    helper: HelperBinary,
}

impl CacheFixture {
    /// Creates a runtime directory, and a helper that records its executions.
    fn new() -> CacheFixture {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = dir.path().canonicalize().unwrap();
        for name in ["run", "work", "tmp", "output"] {
            std::fs::create_dir(at.join(name)).unwrap();
        }
        let real = env!("CARGO_BIN_EXE_minke-sandbox");
        let counted = at.join("counted");
        let script = format!(
            "#!/bin/bash\necho once >> {}\nexec -a minke-sandbox {real} \"$@\"\n",
            at.join("executed").display()
        );
        std::fs::write(&counted, script).unwrap();
        std::fs::set_permissions(&counted, std::fs::Permissions::from_mode(0o755)).unwrap();
        CacheFixture { _dir: dir, helper: HelperBinary::from_path(counted), at }
    }

    fn runtime_dir(&self) -> PathBuf {
        self.at.join("run")
    }

    fn cache_path(&self) -> PathBuf {
        self.at.join("run/sandbox-backend")
    }

    fn helper_executions(&self) -> usize {
        std::fs::read_to_string(self.at.join("executed")).map_or(0, |text| text.lines().count())
    }

    /// Returns the backend and whether it was tried.
    fn best_backend(&self) -> (SandboxBackend, bool) {
        let before = self.helper_executions();
        let backend = cached_backend_in(&self.helper, &self.runtime_dir());
        (backend, self.helper_executions() > before)
    }
}

/// Returns a fixture with a cached backend; `None` where no backend enforces the whole scope.
fn cached_fixture() -> Option<(CacheFixture, SandboxBackend)> {
    let world = CacheFixture::new();
    let (backend, tried) = world.best_backend();
    assert!(tried, "the first start finds no cache");
    if !backend.enforces_scope() {
        assert!(!world.cache_path().exists(), "{backend} does not enforce the scope and is not cached");
        let why = "no backend enforces the whole scope here, so none is cached";
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
        eprintln!("SKIPPED: {why}");
        return None;
    }
    Some((world, backend))
}

#[test]
fn the_second_start_does_not_try() {
    let Some((world, backend)) = cached_fixture() else { return };
    assert_eq!(world.best_backend(), (backend, false));
    assert_eq!(world.cache_path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> =
        std::fs::read_dir(world.runtime_dir()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["sandbox-backend"], "no other file is left");
}

#[test]
fn what_somebody_could_have_written_is_not_believed() {
    let Some((world, backend)) = cached_fixture() else { return };
    let good = std::fs::read_to_string(world.cache_path()).unwrap();
    let replaced = |text: &str| std::fs::write(world.cache_path(), text).unwrap();
    let line = |start: &str, with: &str| {
        let changed = good.lines().map(|line| if line.starts_with(start) { with } else { line });
        changed.collect::<Vec<_>>().join("\n") + "\n"
    };
    let mode =
        |mode| std::fs::set_permissions(world.cache_path(), std::fs::Permissions::from_mode(mode)).unwrap();
    let time = |time: SystemTime| {
        std::fs::File::options().write(true).open(world.cache_path()).unwrap().set_modified(time).unwrap();
    };
    let day = Duration::from_secs(24 * 60 * 60 + 60);
    let mut cases: Vec<(&str, DamageFn<'_>)> = vec![
        ("empty", Box::new(|| replaced(""))),
        ("not UTF-8", Box::new(|| std::fs::write(world.cache_path(), [0xff, 0, 0xfe]).unwrap())),
        ("cut", Box::new(|| replaced(good.trim_end()))),
        ("extra text", Box::new(|| replaced(&format!("{good}backend namespaces\n")))),
        ("no backend", Box::new(|| replaced(&line("backend ", "backend Z")))),
        ("a weak backend", Box::new(|| replaced(&line("backend ", "backend landlock")))),
        ("no sandbox", Box::new(|| replaced(&line("backend ", "backend off")))),
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
                std::fs::rename(world.cache_path(), &elsewhere).unwrap();
                symlink(elsewhere, world.cache_path()).unwrap();
            }),
        ),
        ("two names", Box::new(|| std::fs::hard_link(world.cache_path(), world.at.join("second")).unwrap())),
    ];
    if rustix::process::getuid().is_root() {
        let foreign = || std::os::unix::fs::chown(world.cache_path(), Some(65534), None).unwrap();
        cases.push(("another user's", Box::new(foreign)));
    }
    for (what, damage) in cases {
        assert_eq!(world.best_backend(), (backend, false), "before: {what}");
        damage();
        assert_eq!(world.best_backend(), (backend, true), "{what}");
        assert!(world.cache_path().symlink_metadata().unwrap().is_file(), "{what}: it is cached again");
    }
}

#[test]
fn another_helper_is_tried() {
    let Some((world, backend)) = cached_fixture() else { return };
    let path = world.at.join("counted");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\n")).unwrap();
    assert_eq!(world.best_backend(), (backend, true));
    assert_eq!(world.best_backend(), (backend, false));
}

#[test]
fn a_probe_replaces_what_was_remembered() {
    let Some((world, backend)) = cached_fixture() else { return };
    cache_backend_in(&world.helper, &world.runtime_dir(), SandboxBackend::Unavailable);
    assert!(!world.cache_path().exists(), "a failure is not cached");
    cache_backend_in(&world.helper, &world.runtime_dir(), backend);
    assert_eq!(world.best_backend(), (backend, false));
}

/// With a wrong cache no command runs, and the next start probes again.
#[test]
fn a_wrong_memory_runs_nothing_and_is_forgotten() {
    let Some((world, backend)) = cached_fixture() else { return };
    assert_eq!(world.best_backend(), (backend, false));
    let ran = world.at.join("work/ran");
    let sandbox = Sandbox::compile_spec(backend, &sandbox_spec(&world.at)).unwrap();
    // The helper exits without a reply, as if a restriction could not be applied.
    let error = sandbox
        .with_helper(HelperBinary::from_path("/bin/true"))
        .start_command(touch_command(&world.at))
        .unwrap_err();
    assert!(matches!(error, SandboxError::SetupFailed { .. }), "{error}");
    assert!(!ran.exists(), "the command ran without a sandbox");
    assert!(!world.cache_path().exists(), "the cache is removed");
    assert_eq!(world.best_backend(), (backend, true));
}

fn sandbox_spec(at: &Path) -> SandboxSpec {
    SandboxSpec {
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
    }
}

fn touch_command(at: &Path) -> SandboxCommand {
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    SandboxCommand {
        argv: ["sh", "-c", "echo > ran"].iter().map(Into::into).collect(),
        cwd: at.join("work"),
        stdin: null().into(),
        stdout: null().into(),
        stderr: null().into(),
        tty: false,
        limits: CommandLimits::default(),
    }
}
