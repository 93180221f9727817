//! What can be reached: levels, links, walls, and what each refusal says.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its world has failed")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use minke_files::{Expect, FileError, Files, FilesConfig, FilesError, Level, TmpAlias};
use minke_record::{Permission, Scope, ScopeRule};
use tempfile::TempDir;

struct House {
    _dir: TempDir,
    root: PathBuf,
}

impl House {
    /// `in` is the scope, `out` is not.
    fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["in/deep/er", "out/deep", "read"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("in/a"), "a").unwrap();
        fs::write(root.join("in/deep/b"), "b").unwrap();
        fs::write(root.join("out/secret"), "secret").unwrap();
        fs::write(root.join("read/r"), "r").unwrap();
        House { _dir: dir, root }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn scope(&self) -> Scope {
        let mut scope = Scope::write(self.at("in").to_string_lossy());
        scope.allow.push(rule(&self.at("read"), Permission::Read, true));
        scope
    }

    fn files(&self) -> Files {
        self.with(|_| {})
    }

    fn with(&self, change: impl FnOnce(&mut FilesConfig)) -> Files {
        let mut config = FilesConfig { scope: self.scope(), ..FilesConfig::default() };
        change(&mut config);
        Files::new(config).unwrap()
    }
}

fn rule(target: &Path, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: target.to_string_lossy().into_owned(), permission, recursive }
}

fn read(files: &Files, path: &Path) -> Result<String, FileError> {
    let mut opened = files.open(path)?;
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn what_is_inside_is_read_and_what_is_outside_is_not() {
    let house = House::new();
    let files = house.files();
    assert_eq!(read(&files, &house.at("in/a")).unwrap(), "a");
    assert_eq!(read(&files, &house.at("in/./deep//b")).unwrap(), "b");
    assert_eq!(read(&files, &house.at("read/r")).unwrap(), "r");
    for outside in ["out/secret", "out", "inside", "in2/a", ""] {
        let e = files.open(&house.at(outside)).unwrap_err();
        assert!(matches!(e, FileError::OutOfScope { .. }), "{outside}: {e:?}");
        assert!(e.to_string().contains("write:"), "{e}");
    }
    assert!(matches!(files.open(&house.at("in/../out/secret")), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open(Path::new("in/a")), Err(FileError::RelativePath { .. })));
    assert!(matches!(files.open(Path::new("")), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open(&house.at("in/a\0b")), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open(&house.at(&"in/x".repeat(2_000))), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open(&house.at(&"x".repeat(300))), Err(FileError::OutOfScope { .. })));
    let long = house.at("in").join("x".repeat(300));
    assert!(matches!(files.open(&long), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open(&house.at("in/none")), Err(FileError::NotFound { .. })));
    assert!(matches!(files.open(&house.at("in/none/x")), Err(FileError::NotFound { .. })));
    assert!(matches!(files.open(&house.at("in/a/x")), Err(FileError::NotADirectory { .. })));
    assert!(matches!(files.open(&house.at("in")), Err(FileError::IsDirectory { .. })));
    assert!(matches!(files.open(&house.at("in/deep")), Err(FileError::IsDirectory { .. })));
    assert!(matches!(Files::none().open(&house.at("in/a")), Err(FileError::OutOfScope { .. })));
}

#[test]
fn links_lead_wherever_the_scope_goes_and_no_further() {
    let house = House::new();
    let files = house.files();
    symlink("a", house.at("in/near")).unwrap();
    symlink("deep/../deep/./b", house.at("in/round")).unwrap();
    symlink("deep", house.at("in/dir")).unwrap();
    symlink(house.at("read/r"), house.at("in/absolute")).unwrap();
    symlink("../read", house.at("in/other")).unwrap();
    symlink("other/r", house.at("in/two")).unwrap();
    for (name, text) in
        [("near", "a"), ("round", "b"), ("dir/b", "b"), ("absolute", "r"), ("other/r", "r"), ("two", "r")]
    {
        assert_eq!(read(&files, &house.at("in").join(name)).unwrap(), text, "{name}");
    }
    assert_eq!(files.open(&house.at("in/round")).unwrap().path, house.at("in/deep/b"));
    symlink(house.at("out/secret"), house.at("in/leak")).unwrap();
    symlink("../out", house.at("in/leakdir")).unwrap();
    symlink("leak", house.at("in/leak2")).unwrap();
    for name in ["leak", "leakdir/secret", "leak2"] {
        let e = files.open(&house.at("in").join(name)).unwrap_err();
        assert!(matches!(e, FileError::SymlinkOutOfScope { .. }), "{name}: {e:?}");
        assert!(e.to_string().contains(&*house.at("out/secret").to_string_lossy()), "{e}");
        assert!(files.replace(&house.at("in").join(name), b"x", Expect::Any).is_err(), "{name}");
    }
    assert_eq!(fs::read_to_string(house.at("out/secret")).unwrap(), "secret");
    symlink("loop2", house.at("in/loop1")).unwrap();
    symlink("loop1", house.at("in/loop2")).unwrap();
    assert!(matches!(files.open(&house.at("in/loop1")), Err(FileError::LinkLoop { .. })));
    // As many as the kernel follows, and not one more.
    symlink("a", house.at("in/chain-1")).unwrap();
    for n in 2..=41 {
        symlink(format!("chain-{}", n - 1), house.at(&format!("in/chain-{n}"))).unwrap();
    }
    assert_eq!(read(&files, &house.at("in/chain-40")).unwrap(), "a");
    assert!(matches!(files.open(&house.at("in/chain-41")), Err(FileError::LinkLoop { .. })));
    symlink("gone", house.at("in/broken")).unwrap();
    assert!(matches!(files.open(&house.at("in/broken")), Err(FileError::BrokenSymlink { .. })));
    assert!(matches!(
        files.replace(&house.at("in/broken"), b"x", Expect::Any),
        Err(FileError::BrokenSymlink { .. })
    ));
    // Through a directory that is a link, a new file is what was meant.
    let made = files.replace(&house.at("in/dir/new"), b"x", Expect::Absent).unwrap();
    assert_eq!(made.path, house.at("in/deep/new"));
    // A link to what may only be read is not written through.
    let e = files.replace(&house.at("in/absolute"), b"x", Expect::Any).unwrap_err();
    assert!(e.to_string().contains("write is not allowed"), "{e}");
    // What was found by walking is opened only without links.
    assert!(files.open_beneath_nofollow(&house.at("in/deep/b")).is_ok());
    for name in ["near", "dir/b", "other/r", "leak"] {
        assert!(
            matches!(
                files.open_beneath_nofollow(&house.at("in").join(name)),
                Err(FileError::SymlinkNotFollowed { .. })
            ),
            "{name}"
        );
    }
}

#[test]
fn every_wall_holds_on_the_real_path() {
    let house = House::new();
    fs::create_dir_all(house.at("in/.git/hooks")).unwrap();
    fs::create_dir_all(house.at("in/.ssh")).unwrap();
    fs::write(house.at("in/.ssh/key"), "key").unwrap();
    fs::create_dir_all(house.at("in/denied")).unwrap();
    fs::write(house.at("in/denied/x"), "x").unwrap();
    fs::create_dir_all(house.at("in/lent")).unwrap();
    fs::write(house.at("in/lent/x"), "x").unwrap();
    for (link, target) in
        [("hooks", ".git/hooks"), ("keys", ".ssh"), ("denied-link", "denied"), ("lent-link", "lent")]
    {
        symlink(target, house.at("in").join(link)).unwrap();
    }
    let files = house.with(|config| {
        config.masked.push(house.at("in/.ssh"));
        config.scope.deny.push(rule(&house.at("in/denied"), Permission::Read, true));
        config.scope.deny.push(rule(&house.at("in/lent"), Permission::Write, true));
    });
    for (path, link) in [(".ssh/key", "keys/key"), ("denied/x", "denied-link/x")] {
        assert!(files.open(&house.at("in").join(path)).is_err(), "{path}");
        assert!(files.open(&house.at("in").join(link)).is_err(), "{link}");
        assert_eq!(files.level(&house.at("in").join(path)), Level::None);
    }
    assert!(matches!(files.open(&house.at("in/.ssh/key")), Err(FileError::Masked { .. })));
    for path in
        [".git/hooks/pre-commit", "hooks/pre-commit", ".mcp.json", "deep/.claude/x", "lent/x", "lent-link/x"]
    {
        let e = files.replace(&house.at("in").join(path), b"x", Expect::Any).unwrap_err();
        assert_eq!(files.locate(&house.at("in").join(path), Level::Write).unwrap_err(), e, "{path}");
        assert!(files.locate(&house.at("in").join(path), Level::Read).is_ok(), "{path}");
    }
    assert!(!house.at("in/.mcp.json").exists() && !house.at("in/deep/.claude").exists());
    let lifted = house.with(|config| config.lifted.push(house.at("in/.git/hooks")));
    assert!(lifted.replace(&house.at("in/.git/hooks/pre-commit"), b"x", Expect::Any).is_ok());
    assert!(lifted.replace(&house.at("in/.mcp.json"), b"x", Expect::Any).is_err());
    // A mask is lifted at a place within it, for that place alone; what lies above it lifts nothing.
    fs::write(house.at("in/.ssh/known"), "known").unwrap();
    let lifted = house.with(|config| {
        config.masked.push(house.at("in/.ssh"));
        config.lifted = vec![house.at("in"), house.at("in/.ssh/known")];
    });
    assert_eq!(read(&lifted, &house.at("in/.ssh/known")).unwrap(), "known");
    assert!(matches!(lifted.open(&house.at("in/.ssh/key")), Err(FileError::Masked { .. })));
    assert!(lifted.replace(&house.at("in/.mcp.json"), b"x", Expect::Any).is_err());
}

#[test]
fn own_processes_are_hidden_even_where_everything_may_be_read() {
    let house = House::new();
    let files = house.with(|config| config.scope.allow.push(rule(Path::new("/"), Permission::Read, true)));
    for path in
        ["/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/1/environ", "/dev/fd/0", "/dev/stdin"]
    {
        let e = files.open(Path::new(path)).unwrap_err();
        assert!(
            matches!(
                e,
                FileError::Masked { .. } | FileError::SymlinkOutOfScope { .. } | FileError::NotFound { .. }
            ),
            "{path}: {e:?}"
        );
    }
    assert!(files.open(Path::new("/etc/passwd")).is_ok());
    assert!(matches!(files.open(Path::new("/dev/null")), Err(FileError::Special { .. })));
}

#[test]
fn a_grant_without_what_is_below_and_a_grant_of_one_file() {
    let house = House::new();
    let files = house.with(|config| {
        config.scope = Scope {
            allow: vec![
                rule(&house.at("in"), Permission::Write, false),
                rule(&house.at("out/secret"), Permission::Write, true),
            ],
            deny: Vec::new(),
        };
    });
    assert!(files.open(&house.at("in/a")).is_ok());
    assert!(matches!(files.open(&house.at("in/deep/b")), Err(FileError::OutOfScope { .. })));
    assert!(files.replace(&house.at("in/new"), b"x", Expect::Any).is_ok());
    assert!(files.replace(&house.at("in/deep/new"), b"x", Expect::Any).is_err());
    assert_eq!(read(&files, &house.at("out/secret")).unwrap(), "secret");
    assert!(files.replace(&house.at("out/secret"), b"known", Expect::Any).is_ok());
    assert!(files.open(&house.at("out/deep")).is_err());
    assert!(files.replace(&house.at("out/new"), b"x", Expect::Any).is_err());
}

#[test]
fn a_grant_is_opened_not_spelled() {
    let house = House::new();
    symlink("in", house.at("link")).unwrap();
    for bad in ["link", "link/deep", "in/../in", "in/", "in/./deep"] {
        let scope = Scope::write(format!("{}/{bad}", house.root.display()));
        let config = FilesConfig { scope, ..FilesConfig::default() };
        assert!(matches!(Files::new(config), Err(FilesError::NotCanonical { .. })), "{bad}");
    }
    let relative = FilesConfig { scope: Scope::write("in"), ..FilesConfig::default() };
    assert!(matches!(Files::new(relative), Err(FilesError::NotCanonical { .. })));
    // One that does not exist yet gives nothing until it does.
    let files = house.with(|config| config.scope = Scope::write(house.at("later").to_string_lossy()));
    assert!(files.open(&house.at("later/x")).unwrap_err().is_missing());
    fs::create_dir(house.at("later")).unwrap();
    assert!(files.replace(&house.at("later/x"), b"x", Expect::Absent).is_ok());
    // One that is a link by then gives nothing.
    let files = house.with(|config| config.scope = Scope::write(house.at("then").to_string_lossy()));
    symlink(house.at("out"), house.at("then")).unwrap();
    assert!(files.open(&house.at("then/secret")).is_err());
}

#[test]
fn another_scope_holds_from_the_next_call_on() {
    let house = House::new();
    let files = house.files();
    let mut less = house.scope();
    less.deny.push(rule(&house.at("in/deep"), Permission::Write, true));
    files.set_scope(&less).unwrap();
    assert_eq!(files.scope(), less);
    assert!(files.open(&house.at("in/deep/b")).is_ok());
    assert!(matches!(
        files.replace(&house.at("in/deep/b"), b"x", Expect::Any),
        Err(FileError::ReadOnly { .. })
    ));
    files.set_scope(&house.scope()).unwrap();
    assert!(files.replace(&house.at("in/deep/b"), b"x", Expect::Any).is_ok());
    // One that cannot be held takes everything away.
    assert!(files.set_scope(&Scope::write("relative")).is_err());
    assert!(files.open(&house.at("in/a")).is_err());
}

#[test]
fn tmp_is_the_pods_own_unless_a_grant_lies_there() {
    let house = House::new();
    for name in ["data/tmp", "data/output", "shown/granted"] {
        fs::create_dir_all(house.at(name)).unwrap();
    }
    fs::write(house.at("data/tmp/t"), "mine").unwrap();
    fs::write(house.at("data/output/o"), "said").unwrap();
    fs::write(house.at("data/key"), "key").unwrap();
    fs::write(house.at("shown/t"), "somebody's").unwrap();
    fs::write(house.at("shown/granted/g"), "granted").unwrap();
    let own = |config: &mut FilesConfig| {
        config.tmp = Some(TmpAlias { shown: house.at("shown"), real: house.at("data/tmp") });
        config.tmp_dir = Some(house.at("data/tmp"));
        config.output = Some(house.at("data/output"));
        config.masked = vec![house.at("data")];
        config.scope.allow.push(rule(&house.at("shown/granted"), Permission::Read, true));
    };
    let files = house.with(own);
    assert_eq!(read(&files, &house.at("shown/t")).unwrap(), "mine");
    assert_eq!(read(&files, &house.at("data/tmp/t")).unwrap(), "mine");
    assert_eq!(read(&files, &house.at("shown/granted/g")).unwrap(), "granted");
    assert_eq!(files.shown(&house.at("data/tmp/t")), house.at("shown/t"));
    files.replace(&house.at("shown/new"), b"x", Expect::Absent).unwrap();
    assert!(house.at("data/tmp/new").exists() && !house.at("shown/new").exists());
    // A link that a command made in there says `/tmp` and means it.
    symlink(house.at("shown/t"), house.at("data/tmp/l")).unwrap();
    assert_eq!(read(&files, &house.at("shown/l")).unwrap(), "mine");
    assert_eq!(files.open_dir(&house.at("shown")).unwrap().path, house.at("data/tmp"));
    assert_eq!(read(&files, &house.at("data/output/o")).unwrap(), "said");
    assert!(files.replace(&house.at("data/output/o"), b"x", Expect::Any).is_err());
    assert!(matches!(files.open(&house.at("data/key")), Err(FileError::Masked { .. })));
    let read_only = house.with(|config| {
        own(config);
        config.tmp_read_only = true;
    });
    assert!(read_only.replace(&house.at("shown/t"), b"x", Expect::Any).is_err());
    assert!(read_only.open(&house.at("shown/t")).is_ok());
}

/// The pod's own directory is never named to a model that wrote `/tmp`.
#[test]
fn a_refusal_in_the_moved_tmp_names_the_path_as_it_was_asked_for() {
    let house = House::new();
    for name in ["data/tmp/dir", "shown"] {
        fs::create_dir_all(house.at(name)).unwrap();
    }
    fs::write(house.at("data/tmp/t"), "mine").unwrap();
    fs::write(house.at("data/tmp/closed"), "mine").unwrap();
    fs::set_permissions(house.at("data/tmp/closed"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink("gone", house.at("data/tmp/broken")).unwrap();
    symlink("round", house.at("data/tmp/round")).unwrap();
    symlink(house.at("out/secret"), house.at("data/tmp/away")).unwrap();
    let files = house.with(|config| {
        config.tmp = Some(TmpAlias { shown: house.at("shown"), real: house.at("data/tmp") });
        config.masked = vec![house.at("data")];
    });
    let shown = |name: &str| house.at("shown").join(name);
    let change = |name: &str, expect| files.replace(&shown(name), b"x", expect).map(drop);
    let lock = |name: &str| files.lock(&shown(name)).and_then(|guard| guard.read()).map(drop);
    let refusals: [(&str, Result<(), FileError>); 15] = [
        ("none", files.open(&shown("none")).map(drop)),
        ("no/ne", files.open(&shown("no/ne")).map(drop)),
        ("dir", files.open(&shown("dir")).map(drop)),
        ("t/x", files.open(&shown("t/x")).map(drop)),
        ("broken", files.open(&shown("broken")).map(drop)),
        ("round", files.open(&shown("round")).map(drop)),
        ("away", files.open(&shown("away")).map(drop)),
        ("broken", files.open_beneath_nofollow(&shown("broken")).map(drop)),
        ("t", files.open_dir(&shown("t")).map(drop)),
        ("t/x", files.locate(&shown("t/x"), Level::Write).map(drop)),
        ("dir", lock("dir")),
        ("t", change("t", Expect::Absent)),
        ("t", change("t", Expect::Hash("another"))),
        ("closed", change("closed", Expect::Any)),
        ("dir", change("dir", Expect::Any)),
    ];
    for (name, refused) in refusals {
        let words = refused.unwrap_err().to_string();
        let asked = shown(name).display().to_string();
        assert!(words.starts_with(&format!("{asked}: ")), "{name}: {words}");
        assert!(!words.contains("data/tmp"), "{name}: {words}");
    }
    let gone = files.remove(&shown("none")).unwrap_err().to_string();
    let far = files.make_directory(&shown("no/ne"), 0o755).unwrap_err().to_string();
    let there = files.make_link(&shown("t"), Path::new("x")).unwrap_err().to_string();
    for words in [gone, far, there] {
        assert!(words.contains("shown/") && !words.contains("data/tmp"), "{words}");
    }
}

/// Other systems' file systems take only text.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_text_work() {
    use std::os::unix::ffi::OsStrExt;
    let house = House::new();
    let name = std::ffi::OsStr::from_bytes(b"x\xff\xfe");
    let files = house.files();
    let path = house.at("in").join(name).join("f");
    files.replace(&path, b"bytes", Expect::Absent).unwrap();
    assert_eq!(read(&files, &path).unwrap(), "bytes");
    assert!(files.open(&house.at("out").join(name)).is_err());
}

#[test]
fn what_is_no_file_is_not_even_opened() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let house = House::new();
    let files = house.files();
    let fifo = house.at("in/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (ready, through) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Whoever opens a FIFO to write waits until somebody opens it to read: that must not be us.
        scope.spawn(|| {
            ready.store(true, Ordering::SeqCst);
            drop(fs::OpenOptions::new().write(true).open(&fifo));
            through.store(true, Ordering::SeqCst);
        });
        let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
        let mut tries = 0;
        while !ready.load(Ordering::SeqCst) || std::time::Instant::now() < until {
            assert!(matches!(files.open(&fifo), Err(FileError::Special { .. })));
            assert!(matches!(files.replace(&fifo, b"x", Expect::Any), Err(FileError::Special { .. })));
            tries += 1;
        }
        let woken = through.load(Ordering::SeqCst);
        // Lets the writer go, and does not wait for it if it has gone.
        let nonblock = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::RDONLY;
        let reader = rustix::fs::open(&fifo, nonblock, rustix::fs::Mode::empty()).unwrap();
        while !through.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(reader);
        assert!(tries > 0 && !woken, "the FIFO was opened in one of {tries} tries");
    });
}
