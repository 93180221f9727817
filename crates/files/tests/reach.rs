//! Access to paths: levels, links, access rules, and error messages.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use minke_files::{AccessLevel, ExpectedContent, FileError, FilesConfig, FilesError, ScopedFiles, TmpAlias};
use minke_record::{Permission, Scope, ScopeRule};
use tempfile::TempDir;

struct ReachFixture {
    _dir: TempDir,
    root: PathBuf,
}

impl ReachFixture {
    /// `in` is in the scope, `out` is not.
    fn new() -> ReachFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["in/deep/er", "out/deep", "read"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("in/a"), "a").unwrap();
        fs::write(root.join("in/deep/b"), "b").unwrap();
        fs::write(root.join("out/secret"), "secret").unwrap();
        fs::write(root.join("read/r"), "r").unwrap();
        ReachFixture { _dir: dir, root }
    }

    fn path_to(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn scope_with(&self) -> Scope {
        let mut scope = Scope::writable(self.path_to("in").to_string_lossy());
        scope.allow.push(scope_rule(&self.path_to("read"), Permission::Read, true));
        scope
    }

    fn open_files(&self) -> ScopedFiles {
        self.files_with(|_| {})
    }

    fn files_with(&self, change: impl FnOnce(&mut FilesConfig)) -> ScopedFiles {
        let mut config = FilesConfig { scope: self.scope_with(), ..FilesConfig::default() };
        change(&mut config);
        ScopedFiles::new(config).unwrap()
    }
}

fn scope_rule(target: &Path, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: target.to_string_lossy().into_owned(), permission, recursive }
}

fn read_text(files: &ScopedFiles, path: &Path) -> Result<String, FileError> {
    let mut opened = files.open_file(path)?;
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    Ok(text)
}

#[test]
fn what_is_inside_is_read_and_what_is_outside_is_not() {
    let house = ReachFixture::new();
    let files = house.open_files();
    assert_eq!(read_text(&files, &house.path_to("in/a")).unwrap(), "a");
    assert_eq!(read_text(&files, &house.path_to("in/./deep//b")).unwrap(), "b");
    assert_eq!(read_text(&files, &house.path_to("read/r")).unwrap(), "r");
    for outside in ["out/secret", "out", "inside", "in2/a", ""] {
        let e = files.open_file(&house.path_to(outside)).unwrap_err();
        assert!(matches!(e, FileError::OutOfScope { .. }), "{outside}: {e:?}");
        assert!(e.to_string().contains("write:"), "{e}");
    }
    assert!(matches!(
        files.open_file(&house.path_to("in/../out/secret")),
        Err(FileError::InvalidPath { .. })
    ));
    assert!(matches!(files.open_file(Path::new("in/a")), Err(FileError::RelativePath { .. })));
    assert!(matches!(files.open_file(Path::new("")), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open_file(&house.path_to("in/a\0b")), Err(FileError::InvalidPath { .. })));
    assert!(matches!(
        files.open_file(&house.path_to(&"in/x".repeat(2_000))),
        Err(FileError::InvalidPath { .. })
    ));
    assert!(matches!(files.open_file(&house.path_to(&"x".repeat(300))), Err(FileError::OutOfScope { .. })));
    let long = house.path_to("in").join("x".repeat(300));
    assert!(matches!(files.open_file(&long), Err(FileError::InvalidPath { .. })));
    assert!(matches!(files.open_file(&house.path_to("in/none")), Err(FileError::NotFound { .. })));
    assert!(matches!(files.open_file(&house.path_to("in/none/x")), Err(FileError::NotFound { .. })));
    assert!(matches!(files.open_file(&house.path_to("in/a/x")), Err(FileError::NotADirectory { .. })));
    assert!(matches!(files.open_file(&house.path_to("in")), Err(FileError::IsDirectory { .. })));
    assert!(matches!(files.open_file(&house.path_to("in/deep")), Err(FileError::IsDirectory { .. })));
    assert!(matches!(
        ScopedFiles::without_grants().open_file(&house.path_to("in/a")),
        Err(FileError::OutOfScope { .. })
    ));
}

#[test]
fn links_lead_wherever_the_scope_goes_and_no_further() {
    let house = ReachFixture::new();
    let files = house.open_files();
    symlink("a", house.path_to("in/near")).unwrap();
    symlink("deep/../deep/./b", house.path_to("in/round")).unwrap();
    symlink("deep", house.path_to("in/dir")).unwrap();
    symlink(house.path_to("read/r"), house.path_to("in/absolute")).unwrap();
    symlink("../read", house.path_to("in/other")).unwrap();
    symlink("other/r", house.path_to("in/two")).unwrap();
    for (name, text) in
        [("near", "a"), ("round", "b"), ("dir/b", "b"), ("absolute", "r"), ("other/r", "r"), ("two", "r")]
    {
        assert_eq!(read_text(&files, &house.path_to("in").join(name)).unwrap(), text, "{name}");
    }
    assert_eq!(files.open_file(&house.path_to("in/round")).unwrap().path, house.path_to("in/deep/b"));
    symlink(house.path_to("out/secret"), house.path_to("in/leak")).unwrap();
    symlink("../out", house.path_to("in/leakdir")).unwrap();
    symlink("leak", house.path_to("in/leak2")).unwrap();
    for name in ["leak", "leakdir/secret", "leak2"] {
        let e = files.open_file(&house.path_to("in").join(name)).unwrap_err();
        assert!(matches!(e, FileError::SymlinkOutOfScope { .. }), "{name}: {e:?}");
        assert!(e.to_string().contains(&*house.path_to("out/secret").to_string_lossy()), "{e}");
        assert!(
            files.replace_file(&house.path_to("in").join(name), b"x", ExpectedContent::Any).is_err(),
            "{name}"
        );
    }
    assert_eq!(fs::read_to_string(house.path_to("out/secret")).unwrap(), "secret");
    symlink("loop2", house.path_to("in/loop1")).unwrap();
    symlink("loop1", house.path_to("in/loop2")).unwrap();
    assert!(matches!(files.open_file(&house.path_to("in/loop1")), Err(FileError::LinkLoop { .. })));
    // As many links as the kernel follows, and one more.
    symlink("a", house.path_to("in/chain-1")).unwrap();
    for n in 2..=41 {
        symlink(format!("chain-{}", n - 1), house.path_to(&format!("in/chain-{n}"))).unwrap();
    }
    assert_eq!(read_text(&files, &house.path_to("in/chain-40")).unwrap(), "a");
    assert!(matches!(files.open_file(&house.path_to("in/chain-41")), Err(FileError::LinkLoop { .. })));
    symlink("gone", house.path_to("in/broken")).unwrap();
    assert!(matches!(files.open_file(&house.path_to("in/broken")), Err(FileError::BrokenSymlink { .. })));
    assert!(matches!(
        files.replace_file(&house.path_to("in/broken"), b"x", ExpectedContent::Any),
        Err(FileError::BrokenSymlink { .. })
    ));
    // A new file below a linked directory is created at the target.
    let made = files.replace_file(&house.path_to("in/dir/new"), b"x", ExpectedContent::Absent).unwrap();
    assert_eq!(made.path, house.path_to("in/deep/new"));
    // A read-only target of a link is not written.
    let e = files.replace_file(&house.path_to("in/absolute"), b"x", ExpectedContent::Any).unwrap_err();
    assert!(e.to_string().contains("write is not allowed"), "{e}");
    // A path from a walk must not contain links.
    assert!(files.open_beneath_nofollow(&house.path_to("in/deep/b")).is_ok());
    for name in ["near", "dir/b", "other/r", "leak"] {
        assert!(
            matches!(
                files.open_beneath_nofollow(&house.path_to("in").join(name)),
                Err(FileError::SymlinkNotFollowed { .. })
            ),
            "{name}"
        );
    }
}

#[test]
fn every_wall_holds_on_the_real_path() {
    let house = ReachFixture::new();
    fs::create_dir_all(house.path_to("in/.git/hooks")).unwrap();
    fs::create_dir_all(house.path_to("in/.ssh")).unwrap();
    fs::write(house.path_to("in/.ssh/key"), "key").unwrap();
    fs::create_dir_all(house.path_to("in/denied")).unwrap();
    fs::write(house.path_to("in/denied/x"), "x").unwrap();
    fs::create_dir_all(house.path_to("in/lent")).unwrap();
    fs::write(house.path_to("in/lent/x"), "x").unwrap();
    for (link, target) in
        [("hooks", ".git/hooks"), ("keys", ".ssh"), ("denied-link", "denied"), ("lent-link", "lent")]
    {
        symlink(target, house.path_to("in").join(link)).unwrap();
    }
    let files = house.files_with(|config| {
        config.masked.push(house.path_to("in/.ssh"));
        config.scope.deny.push(scope_rule(&house.path_to("in/denied"), Permission::Read, true));
        config.scope.deny.push(scope_rule(&house.path_to("in/lent"), Permission::Write, true));
    });
    for (path, link) in [(".ssh/key", "keys/key"), ("denied/x", "denied-link/x")] {
        assert!(files.open_file(&house.path_to("in").join(path)).is_err(), "{path}");
        assert!(files.open_file(&house.path_to("in").join(link)).is_err(), "{link}");
        assert_eq!(files.access_level(&house.path_to("in").join(path)), AccessLevel::None);
    }
    assert!(matches!(files.open_file(&house.path_to("in/.ssh/key")), Err(FileError::Masked { .. })));
    for path in
        [".git/hooks/pre-commit", "hooks/pre-commit", ".mcp.json", "deep/.claude/x", "lent/x", "lent-link/x"]
    {
        let e = files.replace_file(&house.path_to("in").join(path), b"x", ExpectedContent::Any).unwrap_err();
        assert_eq!(
            files.locate_path(&house.path_to("in").join(path), AccessLevel::Write).unwrap_err(),
            e,
            "{path}"
        );
        assert!(files.locate_path(&house.path_to("in").join(path), AccessLevel::Read).is_ok(), "{path}");
    }
    assert!(!house.path_to("in/.mcp.json").exists() && !house.path_to("in/deep/.claude").exists());
    let lifted = house.files_with(|config| config.lifted.push(house.path_to("in/.git/hooks")));
    assert!(
        lifted.replace_file(&house.path_to("in/.git/hooks/pre-commit"), b"x", ExpectedContent::Any).is_ok()
    );
    assert!(lifted.replace_file(&house.path_to("in/.mcp.json"), b"x", ExpectedContent::Any).is_err());
    // Making a path inside a mask writable affects that path only, not its parents.
    fs::write(house.path_to("in/.ssh/known"), "known").unwrap();
    let lifted = house.files_with(|config| {
        config.masked.push(house.path_to("in/.ssh"));
        config.lifted = vec![house.path_to("in"), house.path_to("in/.ssh/known")];
    });
    assert_eq!(read_text(&lifted, &house.path_to("in/.ssh/known")).unwrap(), "known");
    assert!(matches!(lifted.open_file(&house.path_to("in/.ssh/key")), Err(FileError::Masked { .. })));
    assert!(lifted.replace_file(&house.path_to("in/.mcp.json"), b"x", ExpectedContent::Any).is_err());
}

#[test]
fn own_processes_are_hidden_even_where_everything_may_be_read() {
    let house = ReachFixture::new();
    let files = house
        .files_with(|config| config.scope.allow.push(scope_rule(Path::new("/"), Permission::Read, true)));
    for path in
        ["/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/1/environ", "/dev/fd/0", "/dev/stdin"]
    {
        let e = files.open_file(Path::new(path)).unwrap_err();
        assert!(
            matches!(
                e,
                FileError::Masked { .. } | FileError::SymlinkOutOfScope { .. } | FileError::NotFound { .. }
            ),
            "{path}: {e:?}"
        );
    }
    assert!(files.open_file(Path::new("/etc/passwd")).is_ok());
    assert!(matches!(files.open_file(Path::new("/dev/null")), Err(FileError::Special { .. })));
}

#[test]
fn a_grant_without_what_is_below_and_a_grant_of_one_file() {
    let house = ReachFixture::new();
    let files = house.files_with(|config| {
        config.scope = Scope {
            allow: vec![
                scope_rule(&house.path_to("in"), Permission::Write, false),
                scope_rule(&house.path_to("out/secret"), Permission::Write, true),
            ],
            deny: Vec::new(),
        };
    });
    assert!(files.open_file(&house.path_to("in/a")).is_ok());
    assert!(matches!(files.open_file(&house.path_to("in/deep/b")), Err(FileError::OutOfScope { .. })));
    assert!(files.replace_file(&house.path_to("in/new"), b"x", ExpectedContent::Any).is_ok());
    assert!(files.replace_file(&house.path_to("in/deep/new"), b"x", ExpectedContent::Any).is_err());
    assert_eq!(read_text(&files, &house.path_to("out/secret")).unwrap(), "secret");
    assert!(files.replace_file(&house.path_to("out/secret"), b"known", ExpectedContent::Any).is_ok());
    assert!(files.open_file(&house.path_to("out/deep")).is_err());
    assert!(files.replace_file(&house.path_to("out/new"), b"x", ExpectedContent::Any).is_err());
}

#[test]
fn a_grant_is_opened_not_spelled() {
    let house = ReachFixture::new();
    symlink("in", house.path_to("link")).unwrap();
    for bad in ["link", "link/deep", "in/../in", "in/", "in/./deep"] {
        let scope = Scope::writable(format!("{}/{bad}", house.root.display()));
        let config = FilesConfig { scope, ..FilesConfig::default() };
        assert!(matches!(ScopedFiles::new(config), Err(FilesError::NotCanonical { .. })), "{bad}");
    }
    let relative = FilesConfig { scope: Scope::writable("in"), ..FilesConfig::default() };
    assert!(matches!(ScopedFiles::new(relative), Err(FilesError::NotCanonical { .. })));
    // A missing directory grants nothing until it exists.
    let files =
        house.files_with(|config| config.scope = Scope::writable(house.path_to("later").to_string_lossy()));
    assert!(files.open_file(&house.path_to("later/x")).unwrap_err().is_missing());
    fs::create_dir(house.path_to("later")).unwrap();
    assert!(files.replace_file(&house.path_to("later/x"), b"x", ExpectedContent::Absent).is_ok());
    // A directory that has been replaced by a link grants nothing.
    let files =
        house.files_with(|config| config.scope = Scope::writable(house.path_to("then").to_string_lossy()));
    symlink(house.path_to("out"), house.path_to("then")).unwrap();
    assert!(files.open_file(&house.path_to("then/secret")).is_err());
}

#[test]
fn another_scope_holds_from_the_next_call_on() {
    let house = ReachFixture::new();
    let files = house.open_files();
    let mut less = house.scope_with();
    less.deny.push(scope_rule(&house.path_to("in/deep"), Permission::Write, true));
    files.set_scope(&less).unwrap();
    assert_eq!(files.scope(), less);
    assert!(files.open_file(&house.path_to("in/deep/b")).is_ok());
    assert!(matches!(
        files.replace_file(&house.path_to("in/deep/b"), b"x", ExpectedContent::Any),
        Err(FileError::ReadOnly { .. })
    ));
    files.set_scope(&house.scope_with()).unwrap();
    assert!(files.replace_file(&house.path_to("in/deep/b"), b"x", ExpectedContent::Any).is_ok());
    // An invalid scope removes all access.
    assert!(files.set_scope(&Scope::writable("relative")).is_err());
    assert!(files.open_file(&house.path_to("in/a")).is_err());
}

#[test]
fn tmp_is_the_pods_own_unless_a_grant_lies_there() {
    let house = ReachFixture::new();
    for name in ["data/tmp", "data/output", "shown/granted"] {
        fs::create_dir_all(house.path_to(name)).unwrap();
    }
    fs::write(house.path_to("data/tmp/t"), "mine").unwrap();
    fs::write(house.path_to("data/output/o"), "said").unwrap();
    fs::write(house.path_to("data/key"), "key").unwrap();
    fs::write(house.path_to("shown/t"), "another user's").unwrap();
    fs::write(house.path_to("shown/granted/g"), "granted").unwrap();
    let own = |config: &mut FilesConfig| {
        config.tmp = Some(TmpAlias { shown: house.path_to("shown"), real: house.path_to("data/tmp") });
        config.tmp_dir = Some(house.path_to("data/tmp"));
        config.output = Some(house.path_to("data/output"));
        config.masked = vec![house.path_to("data")];
        config.scope.allow.push(scope_rule(&house.path_to("shown/granted"), Permission::Read, true));
    };
    let files = house.files_with(own);
    assert_eq!(read_text(&files, &house.path_to("shown/t")).unwrap(), "mine");
    assert_eq!(read_text(&files, &house.path_to("data/tmp/t")).unwrap(), "mine");
    assert_eq!(read_text(&files, &house.path_to("shown/granted/g")).unwrap(), "granted");
    assert_eq!(files.shown_path(&house.path_to("data/tmp/t")), house.path_to("shown/t"));
    files.replace_file(&house.path_to("shown/new"), b"x", ExpectedContent::Absent).unwrap();
    assert!(house.path_to("data/tmp/new").exists() && !house.path_to("shown/new").exists());
    // A link that a command created there uses `/tmp` for the pod's own directory.
    symlink(house.path_to("shown/t"), house.path_to("data/tmp/l")).unwrap();
    assert_eq!(read_text(&files, &house.path_to("shown/l")).unwrap(), "mine");
    assert_eq!(files.open_dir(&house.path_to("shown")).unwrap().path, house.path_to("data/tmp"));
    assert_eq!(read_text(&files, &house.path_to("data/output/o")).unwrap(), "said");
    assert!(files.replace_file(&house.path_to("data/output/o"), b"x", ExpectedContent::Any).is_err());
    assert!(matches!(files.open_file(&house.path_to("data/key")), Err(FileError::Masked { .. })));
    let read_only = house.files_with(|config| {
        own(config);
        config.tmp_read_only = true;
    });
    assert!(read_only.replace_file(&house.path_to("shown/t"), b"x", ExpectedContent::Any).is_err());
    assert!(read_only.open_file(&house.path_to("shown/t")).is_ok());
}

/// An error for a path in `/tmp` never names the pod's own directory.
#[test]
fn a_refusal_in_the_moved_tmp_names_the_path_as_it_was_asked_for() {
    let house = ReachFixture::new();
    for name in ["data/tmp/dir", "shown"] {
        fs::create_dir_all(house.path_to(name)).unwrap();
    }
    fs::write(house.path_to("data/tmp/t"), "mine").unwrap();
    fs::write(house.path_to("data/tmp/closed"), "mine").unwrap();
    fs::set_permissions(house.path_to("data/tmp/closed"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink("gone", house.path_to("data/tmp/broken")).unwrap();
    symlink("round", house.path_to("data/tmp/round")).unwrap();
    symlink(house.path_to("out/secret"), house.path_to("data/tmp/away")).unwrap();
    let files = house.files_with(|config| {
        config.tmp = Some(TmpAlias { shown: house.path_to("shown"), real: house.path_to("data/tmp") });
        config.masked = vec![house.path_to("data")];
    });
    let shown = |name: &str| house.path_to("shown").join(name);
    let change = |name: &str, expect| files.replace_file(&shown(name), b"x", expect).map(drop);
    let lock = |name: &str| files.lock_file(&shown(name)).and_then(|guard| guard.read_content()).map(drop);
    let refusals: [(&str, Result<(), FileError>); 15] = [
        ("none", files.open_file(&shown("none")).map(drop)),
        ("no/ne", files.open_file(&shown("no/ne")).map(drop)),
        ("dir", files.open_file(&shown("dir")).map(drop)),
        ("t/x", files.open_file(&shown("t/x")).map(drop)),
        ("broken", files.open_file(&shown("broken")).map(drop)),
        ("round", files.open_file(&shown("round")).map(drop)),
        ("away", files.open_file(&shown("away")).map(drop)),
        ("broken", files.open_beneath_nofollow(&shown("broken")).map(drop)),
        ("t", files.open_dir(&shown("t")).map(drop)),
        ("t/x", files.locate_path(&shown("t/x"), AccessLevel::Write).map(drop)),
        ("dir", lock("dir")),
        ("t", change("t", ExpectedContent::Absent)),
        ("t", change("t", ExpectedContent::Hash("another"))),
        ("closed", change("closed", ExpectedContent::Any)),
        ("dir", change("dir", ExpectedContent::Any)),
    ];
    for (name, refused) in refusals {
        let words = refused.unwrap_err().to_string();
        let asked = shown(name).display().to_string();
        assert!(words.starts_with(&format!("{asked}: ")), "{name}: {words}");
        assert!(!words.contains("data/tmp"), "{name}: {words}");
    }
    let gone = files.remove_entry(&shown("none")).unwrap_err().to_string();
    let far = files.create_directory(&shown("no/ne"), 0o755).unwrap_err().to_string();
    let there = files.create_symlink(&shown("t"), Path::new("x")).unwrap_err().to_string();
    for words in [gone, far, there] {
        assert!(words.contains("shown/") && !words.contains("data/tmp"), "{words}");
    }
}

/// File systems of other operating systems accept only UTF-8.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_text_work() {
    use std::os::unix::ffi::OsStrExt;
    let house = ReachFixture::new();
    let name = std::ffi::OsStr::from_bytes(b"x\xff\xfe");
    let files = house.open_files();
    let path = house.path_to("in").join(name).join("f");
    files.replace_file(&path, b"bytes", ExpectedContent::Absent).unwrap();
    assert_eq!(read_text(&files, &path).unwrap(), "bytes");
    assert!(files.open_file(&house.path_to("out").join(name)).is_err());
}

#[test]
fn what_is_no_file_is_not_even_opened() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let house = ReachFixture::new();
    let files = house.open_files();
    let fifo = house.path_to("in/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (ready, through) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Opening a FIFO for writing blocks until a reader opens it; this process must not be that reader.
        scope.spawn(|| {
            ready.store(true, Ordering::SeqCst);
            drop(fs::OpenOptions::new().write(true).open(&fifo));
            through.store(true, Ordering::SeqCst);
        });
        let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
        let mut tries = 0;
        while !ready.load(Ordering::SeqCst) || std::time::Instant::now() < until {
            assert!(matches!(files.open_file(&fifo), Err(FileError::Special { .. })));
            assert!(matches!(
                files.replace_file(&fifo, b"x", ExpectedContent::Any),
                Err(FileError::Special { .. })
            ));
            tries += 1;
        }
        let woken = through.load(Ordering::SeqCst);
        // Unblocks the writer, and does not block if it has ended.
        let nonblock = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::RDONLY;
        let reader = rustix::fs::open(&fifo, nonblock, rustix::fs::Mode::empty()).unwrap();
        while !through.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(reader);
        assert!(tries > 0 && !woken, "the FIFO was opened in one of {tries} tries");
    });
}
