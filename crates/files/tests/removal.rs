//! Removing directories of any shape that a command may leave.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use minke_files::{Removal, remove_tree};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

/// Creates a directory with many levels, by descriptors, because no path could name the deepest.
fn create_deep_tree(dir: &Path, levels: usize) {
    fs::create_dir(dir).unwrap();
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(dir, open, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", open, Mode::empty()).unwrap();
    }
}

/// Removes a directory and returns the CPU time, which does not depend on the load of the machine.
fn time_removal(dir: &Path) -> Duration {
    let begin = processor_time();
    assert_eq!(remove_tree(dir, None).unwrap(), Removal::Complete);
    assert!(!dir.exists());
    processor_time() - begin
}

/// Returns the user and system time of this thread.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

#[test]
fn a_deep_directory_is_removed_in_linear_time() {
    let place = tempfile::tempdir().unwrap();
    let few = if std::env::var_os("MINKE_LONG").is_some() { 30_000 } else { 7_500 };
    let many = 4 * few;
    let dir = place.path().join("d");
    create_deep_tree(&dir, few);
    let short = time_removal(&dir);
    create_deep_tree(&dir, many);
    let long = time_removal(&dir);
    // Four times as much; quadratic time would be sixteen times as much. The base absorbs noise.
    let most = short * 8 + Duration::from_millis(500);
    assert!(long < most, "{few} levels: {short:?}, {many} levels: {long:?}");
}

#[test]
fn a_directory_with_sixty_thousand_files_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("wide");
    fs::create_dir(&dir).unwrap();
    for number in 0..60_000 {
        fs::File::create(dir.join(number.to_string())).unwrap();
    }
    time_removal(&dir);
}

#[test]
fn closed_directories_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("closed");
    for inner in ["a/b/c", "a/x", "e"] {
        fs::create_dir_all(dir.join(inner)).unwrap();
        fs::write(dir.join(inner).join("f"), "x").unwrap();
    }
    for inner in ["a/b/c", "a/b", "a/x", "a", "e", ""] {
        fs::set_permissions(dir.join(inner), fs::Permissions::from_mode(0o000)).unwrap();
    }
    time_removal(&dir);
}

#[test]
fn removal_follows_no_link() {
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o500)).unwrap();
    let dir = place.path().join("links");
    fs::create_dir_all(dir.join("a/b")).unwrap();
    for at in ["to", "a/to", "a/b/to"] {
        symlink(&outside, dir.join(at)).unwrap();
        symlink(outside.join("kept"), dir.join(format!("{at}-file"))).unwrap();
    }
    time_removal(&dir);
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o500);
    // A link in place of the directory itself is refused, not followed.
    symlink(&outside, &dir).unwrap();
    assert!(remove_tree(&dir, None).is_err());
    assert!(outside.join("kept").exists());
}

#[test]
fn a_removal_whose_time_is_over_is_finished_by_the_next() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("d");
    create_deep_tree(&dir, 2_000);
    assert_eq!(remove_tree(&dir, Some(Instant::now())).unwrap(), Removal::Unfinished);
    assert!(dir.exists());
    let mut calls = 0;
    while remove_tree(&dir, Some(Instant::now() + Duration::from_millis(2))).unwrap() == Removal::Unfinished {
        calls += 1;
        assert!(calls < 100_000, "no call makes progress");
    }
    assert!(!dir.exists());
}

#[test]
fn what_is_not_there_is_removed_already() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(remove_tree(&place.path().join("no"), None).unwrap(), Removal::Complete);
    assert_eq!(remove_tree(&place.path().join("no/way"), None).unwrap(), Removal::Complete);
    assert!(remove_tree(Path::new("/"), None).is_err());
}
