//! Replacing, putting back and removing: what stays, what is refused, and that nothing is left behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its world has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use minke_files::{Expect, FileError, Files, FilesConfig, Kind, hash};
use minke_record::Scope;
use tempfile::TempDir;

struct House {
    _dir: TempDir,
    root: PathBuf,
    files: Files,
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let scope = Scope::write(root.to_string_lossy());
        let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
        House { _dir: dir, root, files }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_expected_must_be_there() {
    let house = House::new();
    let path = house.at("f");
    assert!(matches!(house.files.replace(&path, b"x", Expect::Hash("0")), Err(FileError::Changed { .. })));
    let made = house.files.replace(&path, b"one", Expect::Absent).unwrap();
    assert!(made.created && made.hash == hash(b"one") && made.directories.is_empty() && !made.owner_lost);
    assert!(matches!(house.files.replace(&path, b"two", Expect::Absent), Err(FileError::Exists { .. })));
    assert!(matches!(
        house.files.replace(&path, b"two", Expect::Hash(&hash(b"other"))),
        Err(FileError::Changed { .. })
    ));
    let changed = house.files.replace(&path, b"two", Expect::Hash(&hash(b"one"))).unwrap();
    assert_eq!(changed.before, Some(hash(b"one")));
    assert!(!changed.created);
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(house.names(), ["f"]);
}

#[test]
fn mode_owner_and_attributes_stay() {
    let house = House::new();
    let path = house.at("f");
    for bits in [0o755, 0o600, 0o640, 0o666, 0o777] {
        fs::write(&path, "old").unwrap();
        set_mode(&path, bits);
        house.files.replace(&path, b"new", Expect::Any).unwrap();
        assert_eq!(mode(&path), bits);
    }
    // Whoever changes a program does not get its owner's rights with it.
    set_mode(&path, 0o4755);
    house.files.replace(&path, b"new", Expect::Any).unwrap();
    assert_eq!(mode(&path), 0o755);
    #[cfg(target_os = "linux")]
    match rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty()) {
        Ok(()) => {
            house.files.replace(&path, b"newer", Expect::Any).unwrap();
            let mut value = [0_u8; 16];
            let length = rustix::fs::getxattr(&path, "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"kept");
        }
        Err(e) => skip(&format!("no attributes on this file system: {e}")),
    }
    // Only root can give a file away; the tests run as both.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
    let replaced = house.files.replace(&path, b"newest", Expect::Any).unwrap();
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.uid(), now.gid(), replaced.owner_lost), (1234, 5678, false));
}

fn skip(why: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

#[test]
fn a_new_file_gets_what_any_new_file_gets() {
    let house = House::new();
    fs::write(house.at("plain"), "x").unwrap();
    house.files.replace(&house.at("ours"), b"x", Expect::Absent).unwrap();
    assert_eq!(mode(&house.at("ours")), mode(&house.at("plain")));
}

#[test]
fn a_hard_link_elsewhere_keeps_what_it_had() {
    let house = House::new();
    fs::write(house.at("f"), "old").unwrap();
    fs::hard_link(house.at("f"), house.at("other")).unwrap();
    house.files.replace(&house.at("f"), b"new", Expect::Any).unwrap();
    assert_eq!(fs::read(house.at("other")).unwrap(), b"old");
}

#[test]
fn directories_are_made_and_go_again_if_it_was_for_nothing() {
    let house = House::new();
    let made = house.files.replace(&house.at("a/b/c/f"), b"x", Expect::Absent).unwrap();
    assert_eq!(made.directories, [house.at("a"), house.at("a/b"), house.at("a/b/c")]);
    // The last part is a name that no system takes.
    let long = house.at("d/e").join("x".repeat(300));
    assert!(house.files.replace(&long, b"x", Expect::Absent).is_err());
    assert!(house.files.replace(&house.at("g/h"), b"x", Expect::Hash("0")).is_err());
    assert_eq!(house.names(), ["a"]);
    assert!(matches!(
        house.files.replace(&house.at("a/b/c/f/g"), b"x", Expect::Any),
        Err(FileError::NotADirectory { .. })
    ));
}

#[test]
fn what_is_no_regular_writable_file_is_left_alone() {
    let house = House::new();
    fs::create_dir(house.at("dir")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(house.at("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(house.at("socket")).unwrap();
    for name in ["dir", ""] {
        let e = house.files.replace(&house.at(name), b"x", Expect::Any).unwrap_err();
        assert!(matches!(e, FileError::IsDirectory { .. }), "{e}");
    }
    for name in ["fifo", "socket"] {
        let e = house.files.replace(&house.at(name), b"x", Expect::Any).unwrap_err();
        assert!(matches!(e, FileError::Special { .. }), "{e}");
        assert!(matches!(house.files.open(&house.at(name)), Err(FileError::Special { .. })), "{name}");
    }
    fs::write(house.at("fixed"), "x").unwrap();
    set_mode(&house.at("fixed"), 0o444);
    let e = house.files.replace(&house.at("fixed"), b"y", Expect::Any).unwrap_err();
    assert!(e.to_string().contains("read-only"), "{e}");
    assert_eq!(fs::read(house.at("fixed")).unwrap(), b"x");
    // Root may write to a read-only directory; the tests run as both.
    if rustix::process::geteuid().is_root() {
        return;
    }
    fs::write(house.at("dir/f"), "x").unwrap();
    set_mode(&house.at("dir"), 0o555);
    let e = house.files.replace(&house.at("dir/f"), b"y", Expect::Any).unwrap_err();
    set_mode(&house.at("dir"), 0o755);
    assert!(matches!(e, FileError::Denied { .. }), "{e}");
}

#[test]
fn parallel_replacements_lose_nothing() {
    let house = House::new();
    let path = house.at("count");
    fs::write(&path, "0").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let guard = house.files.lock(&path).unwrap();
                    let (content, _) = guard.read().unwrap().unwrap();
                    let count: u32 = String::from_utf8(content.clone()).unwrap().parse().unwrap();
                    guard.replace((count + 1).to_string().as_bytes(), Expect::Hash(&hash(&content))).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "200");
    assert_eq!(house.names(), ["count"]);
}

#[test]
fn things_are_put_back_as_they_were() {
    let house = House::new();
    let files = &house.files;
    files.restore(&house.at("f"), b"x", 0o711).unwrap();
    assert_eq!(mode(&house.at("f")), 0o711);
    files.restore(&house.at("f"), b"y", 0o644).unwrap();
    assert_eq!((fs::read(house.at("f")).unwrap().as_slice(), mode(&house.at("f"))), (&b"y"[..], 0o644));
    files.make_link(&house.at("l"), Path::new("nowhere/at all")).unwrap();
    let link = files.entry(&house.at("l")).unwrap().unwrap();
    assert_eq!(link.kind, Kind::Link("nowhere/at all".into()));
    assert!(matches!(files.make_link(&house.at("l"), Path::new("x")), Err(FileError::Exists { .. })));
    files.make_directory(&house.at("d"), 0o750).unwrap();
    assert_eq!(mode(&house.at("d")), 0o750);
    assert_eq!(files.entry(&house.at("d")).unwrap().unwrap().kind, Kind::Directory);
    assert_eq!(files.entry(&house.root).unwrap().unwrap().kind, Kind::Directory);
    assert_eq!(files.entry(&house.at("none/x")).unwrap(), None);
    let file = files.entry(&house.at("f")).unwrap().unwrap();
    assert_eq!((file.kind, file.mode, file.size), (Kind::File, 0o644, 1));
    // A link goes, and not what it points to.
    symlink("f", house.at("to-f")).unwrap();
    files.remove(&house.at("to-f")).unwrap();
    assert!(house.at("f").exists());
    assert!(files.remove(&house.at("none")).unwrap_err().is_missing());
    assert!(files.remove(&house.at("d")).is_err());
    assert!(files.remove_directory(&house.root).is_err());
    for name in ["f", "l"] {
        files.remove(&house.at(name)).unwrap();
    }
    files.remove_directory(&house.at("d")).unwrap();
    assert_eq!(house.names(), [""; 0]);
    // Not through a link to a directory, wherever that is.
    fs::create_dir(house.at("real")).unwrap();
    fs::write(house.at("real/f"), "x").unwrap();
    symlink("real", house.at("dir")).unwrap();
    assert!(files.remove(&house.at("dir/f")).is_err());
    assert!(files.entry(&house.at("dir/f")).is_err());
    assert!(files.make_link(&house.at("dir/l"), Path::new("x")).is_err());
}

#[test]
fn devices_are_refused_before_anything_is_written_to_them() {
    let scope = Scope::write("/dev");
    let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
    for device in ["/dev/null", "/dev/full", "/dev/zero"] {
        let e = files.replace(Path::new(device), b"x", Expect::Any).unwrap_err();
        assert!(matches!(e, FileError::Special { .. }), "{e}");
        assert!(matches!(files.open(Path::new(device)), Err(FileError::Special { .. })));
    }
}

/// Names the small disk of the test below, in the process that has it.
const SMALL_DISK: &str = "MINKE_TEST_SMALL_DISK";

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_changes_nothing() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return fill(Path::new(&disk));
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64k none \"$0\" && exec \"$@\"";
    let ran = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", script])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_changes_nothing", "--nocapture"])
        .env(SMALL_DISK, disk.path())
        .output();
    match ran {
        Ok(ran) if ran.status.success() => {}
        Ok(ran) if !String::from_utf8_lossy(&ran.stderr).contains("panicked") => {
            skip(&format!("no small disk here: {}", String::from_utf8_lossy(&ran.stderr)));
        }
        ran => panic!("{ran:?}"),
    }
}

#[cfg(target_os = "linux")]
fn fill(disk: &Path) {
    let scope = Scope::write(disk.canonicalize().unwrap().to_string_lossy());
    let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
    let path = disk.join("f");
    files.replace(&path, b"old", Expect::Absent).unwrap();
    let e = files.replace(&path, &vec![b'x'; 1 << 20], Expect::Any).unwrap_err();
    assert!(e.to_string().contains("the disk is full; nothing was changed"), "{e}");
    let e = files.replace(&disk.join("d/e/new"), &vec![b'x'; 1 << 20], Expect::Absent).unwrap_err();
    assert!(matches!(e, FileError::Denied { .. }), "{e}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(disk).unwrap().count(), 1, "something was left behind");
}
