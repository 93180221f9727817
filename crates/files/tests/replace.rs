//! Replacing, restoring and removing files: preserved metadata, refused targets, and cleanup.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use minke_files::{ExpectedContent, FileError, FilesConfig, PathEntryKind, ScopedFiles, content_hash};
use minke_record::Scope;
use tempfile::TempDir;

struct ReplaceFixture {
    _dir: TempDir,
    root: PathBuf,
    files: ScopedFiles,
}

impl ReplaceFixture {
    fn new() -> ReplaceFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let scope = Scope::writable(root.to_string_lossy());
        let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
        ReplaceFixture { _dir: dir, root, files }
    }

    fn path_to(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn file_names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn file_mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_expected_must_be_there() {
    let house = ReplaceFixture::new();
    let path = house.path_to("f");
    assert!(matches!(
        house.files.replace_file(&path, b"x", ExpectedContent::Hash("0")),
        Err(FileError::Changed { .. })
    ));
    let made = house.files.replace_file(&path, b"one", ExpectedContent::Absent).unwrap();
    assert!(
        made.created
            && made.new_hash == content_hash(b"one")
            && made.created_directories.is_empty()
            && !made.owner_lost
    );
    assert!(matches!(
        house.files.replace_file(&path, b"two", ExpectedContent::Absent),
        Err(FileError::Exists { .. })
    ));
    assert!(matches!(
        house.files.replace_file(&path, b"two", ExpectedContent::Hash(&content_hash(b"other"))),
        Err(FileError::Changed { .. })
    ));
    let changed =
        house.files.replace_file(&path, b"two", ExpectedContent::Hash(&content_hash(b"one"))).unwrap();
    assert_eq!(changed.old_hash, Some(content_hash(b"one")));
    assert!(!changed.created);
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(house.file_names(), ["f"]);
}

#[test]
fn mode_owner_and_attributes_stay() {
    let house = ReplaceFixture::new();
    let path = house.path_to("f");
    for bits in [0o755, 0o600, 0o640, 0o666, 0o777] {
        fs::write(&path, "old").unwrap();
        set_mode(&path, bits);
        house.files.replace_file(&path, b"new", ExpectedContent::Any).unwrap();
        assert_eq!(file_mode(&path), bits);
    }
    // Changing a program must not keep the set-ID bits of its owner.
    set_mode(&path, 0o4755);
    house.files.replace_file(&path, b"new", ExpectedContent::Any).unwrap();
    assert_eq!(file_mode(&path), 0o755);
    #[cfg(target_os = "linux")]
    match rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty()) {
        Ok(()) => {
            house.files.replace_file(&path, b"newer", ExpectedContent::Any).unwrap();
            let mut value = [0_u8; 16];
            let length = rustix::fs::getxattr(&path, "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"kept");
        }
        Err(e) => print_skip(&format!("no attributes on this file system: {e}")),
    }
    // Only root can change the owner; the tests run as root and as a user.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
    let replaced = house.files.replace_file(&path, b"newest", ExpectedContent::Any).unwrap();
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.uid(), now.gid(), replaced.owner_lost), (1234, 5678, false));
}

fn print_skip(why: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

#[test]
fn a_new_file_gets_what_any_new_file_gets() {
    let house = ReplaceFixture::new();
    fs::write(house.path_to("plain"), "x").unwrap();
    house.files.replace_file(&house.path_to("ours"), b"x", ExpectedContent::Absent).unwrap();
    assert_eq!(file_mode(&house.path_to("ours")), file_mode(&house.path_to("plain")));
}

#[test]
fn a_hard_link_elsewhere_keeps_what_it_had() {
    let house = ReplaceFixture::new();
    fs::write(house.path_to("f"), "old").unwrap();
    fs::hard_link(house.path_to("f"), house.path_to("other")).unwrap();
    house.files.replace_file(&house.path_to("f"), b"new", ExpectedContent::Any).unwrap();
    assert_eq!(fs::read(house.path_to("other")).unwrap(), b"old");
}

#[test]
fn directories_are_made_and_go_again_if_it_was_for_nothing() {
    let house = ReplaceFixture::new();
    let made = house.files.replace_file(&house.path_to("a/b/c/f"), b"x", ExpectedContent::Absent).unwrap();
    assert_eq!(made.created_directories, [house.path_to("a"), house.path_to("a/b"), house.path_to("a/b/c")]);
    // The last part is a name that no system accepts.
    let long = house.path_to("d/e").join("x".repeat(300));
    assert!(house.files.replace_file(&long, b"x", ExpectedContent::Absent).is_err());
    assert!(house.files.replace_file(&house.path_to("g/h"), b"x", ExpectedContent::Hash("0")).is_err());
    assert_eq!(house.file_names(), ["a"]);
    assert!(matches!(
        house.files.replace_file(&house.path_to("a/b/c/f/g"), b"x", ExpectedContent::Any),
        Err(FileError::NotADirectory { .. })
    ));
}

#[test]
fn what_is_no_regular_writable_file_is_left_alone() {
    let house = ReplaceFixture::new();
    fs::create_dir(house.path_to("dir")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(house.path_to("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(house.path_to("socket")).unwrap();
    for name in ["dir", ""] {
        let e = house.files.replace_file(&house.path_to(name), b"x", ExpectedContent::Any).unwrap_err();
        assert!(matches!(e, FileError::IsDirectory { .. }), "{e}");
    }
    for name in ["fifo", "socket"] {
        let e = house.files.replace_file(&house.path_to(name), b"x", ExpectedContent::Any).unwrap_err();
        assert!(matches!(e, FileError::Special { .. }), "{e}");
        assert!(
            matches!(house.files.open_file(&house.path_to(name)), Err(FileError::Special { .. })),
            "{name}"
        );
    }
    fs::write(house.path_to("fixed"), "x").unwrap();
    set_mode(&house.path_to("fixed"), 0o444);
    let e = house.files.replace_file(&house.path_to("fixed"), b"y", ExpectedContent::Any).unwrap_err();
    assert!(e.to_string().contains("read-only"), "{e}");
    assert_eq!(fs::read(house.path_to("fixed")).unwrap(), b"x");
    // Root may write to a read-only directory; the tests run as root and as a user.
    if rustix::process::geteuid().is_root() {
        return;
    }
    fs::write(house.path_to("dir/f"), "x").unwrap();
    set_mode(&house.path_to("dir"), 0o555);
    let e = house.files.replace_file(&house.path_to("dir/f"), b"y", ExpectedContent::Any).unwrap_err();
    set_mode(&house.path_to("dir"), 0o755);
    assert!(matches!(e, FileError::Denied { .. }), "{e}");
}

#[test]
fn parallel_replacements_lose_nothing() {
    let house = ReplaceFixture::new();
    let path = house.path_to("count");
    fs::write(&path, "0").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let guard = house.files.lock_file(&path).unwrap();
                    let (content, _) = guard.read_content().unwrap().unwrap();
                    let count: u32 = String::from_utf8(content.clone()).unwrap().parse().unwrap();
                    guard
                        .replace_content(
                            (count + 1).to_string().as_bytes(),
                            ExpectedContent::Hash(&content_hash(&content)),
                        )
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "200");
    assert_eq!(house.file_names(), ["count"]);
}

#[test]
fn things_are_put_back_as_they_were() {
    let house = ReplaceFixture::new();
    let files = &house.files;
    files.restore_file(&house.path_to("f"), b"x", 0o711).unwrap();
    assert_eq!(file_mode(&house.path_to("f")), 0o711);
    files.restore_file(&house.path_to("f"), b"y", 0o644).unwrap();
    assert_eq!(
        (fs::read(house.path_to("f")).unwrap().as_slice(), file_mode(&house.path_to("f"))),
        (&b"y"[..], 0o644)
    );
    files.create_symlink(&house.path_to("l"), Path::new("nowhere/at all")).unwrap();
    let link = files.path_entry(&house.path_to("l")).unwrap().unwrap();
    assert_eq!(link.kind, PathEntryKind::Link("nowhere/at all".into()));
    assert!(matches!(
        files.create_symlink(&house.path_to("l"), Path::new("x")),
        Err(FileError::Exists { .. })
    ));
    files.create_directory(&house.path_to("d"), 0o750).unwrap();
    assert_eq!(file_mode(&house.path_to("d")), 0o750);
    assert_eq!(files.path_entry(&house.path_to("d")).unwrap().unwrap().kind, PathEntryKind::Directory);
    assert_eq!(files.path_entry(&house.root).unwrap().unwrap().kind, PathEntryKind::Directory);
    assert_eq!(files.path_entry(&house.path_to("none/x")).unwrap(), None);
    let file = files.path_entry(&house.path_to("f")).unwrap().unwrap();
    assert_eq!((file.kind, file.mode, file.size), (PathEntryKind::File, 0o644, 1));
    // A link is removed, not its target.
    symlink("f", house.path_to("to-f")).unwrap();
    files.remove_entry(&house.path_to("to-f")).unwrap();
    assert!(house.path_to("f").exists());
    assert!(files.remove_entry(&house.path_to("none")).unwrap_err().is_missing());
    assert!(files.remove_entry(&house.path_to("d")).is_err());
    assert!(files.remove_directory(&house.root).is_err());
    for name in ["f", "l"] {
        files.remove_entry(&house.path_to(name)).unwrap();
    }
    files.remove_directory(&house.path_to("d")).unwrap();
    assert_eq!(house.file_names(), [""; 0]);
    // Never through a link to a directory.
    fs::create_dir(house.path_to("real")).unwrap();
    fs::write(house.path_to("real/f"), "x").unwrap();
    symlink("real", house.path_to("dir")).unwrap();
    assert!(files.remove_entry(&house.path_to("dir/f")).is_err());
    assert!(files.path_entry(&house.path_to("dir/f")).is_err());
    assert!(files.create_symlink(&house.path_to("dir/l"), Path::new("x")).is_err());
}

#[test]
fn devices_are_refused_before_anything_is_written_to_them() {
    let scope = Scope::writable("/dev");
    let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
    for device in ["/dev/null", "/dev/full", "/dev/zero"] {
        let e = files.replace_file(Path::new(device), b"x", ExpectedContent::Any).unwrap_err();
        assert!(matches!(e, FileError::Special { .. }), "{e}");
        assert!(matches!(files.open_file(Path::new(device)), Err(FileError::Special { .. })));
    }
}

/// Names the small disk of the test below, in the process that uses it.
const SMALL_DISK: &str = "MINKE_TEST_SMALL_DISK";

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_changes_nothing() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return fill_disk(Path::new(&disk));
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
            print_skip(&format!("no small disk here: {}", String::from_utf8_lossy(&ran.stderr)));
        }
        ran => panic!("{ran:?}"),
    }
}

#[cfg(target_os = "linux")]
fn fill_disk(disk: &Path) {
    let scope = Scope::writable(disk.canonicalize().unwrap().to_string_lossy());
    let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
    let path = disk.join("f");
    files.replace_file(&path, b"old", ExpectedContent::Absent).unwrap();
    let e = files.replace_file(&path, &vec![b'x'; 1 << 20], ExpectedContent::Any).unwrap_err();
    assert!(e.to_string().contains("the disk is full; nothing was changed"), "{e}");
    let e =
        files.replace_file(&disk.join("d/e/new"), &vec![b'x'; 1 << 20], ExpectedContent::Absent).unwrap_err();
    assert!(matches!(e, FileError::Denied { .. }), "{e}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(disk).unwrap().count(), 1, "a file was left behind");
}
