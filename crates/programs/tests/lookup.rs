//! The lookup with the real file system: every way in which a `PATH` may lead into a workspace.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use minke_programs::{ProgramError, ProgramLookup};

/// A workspace with a hostile `git`, and a directory outside with a good one.
struct LookupFixture {
    dir: tempfile::TempDir,
}

impl LookupFixture {
    fn new() -> LookupFixture {
        let world = LookupFixture { dir: tempfile::tempdir().unwrap() };
        for dir in ["ws/rel/bin", "ws/deep/er", "good", "empty", "outer"] {
            fs::create_dir_all(world.path_to(dir)).unwrap();
        }
        for dir in ["ws", "ws/rel/bin", "ws/deep/er", "good"] {
            create_program(&world.path_to(dir).join("git"), 0o755);
        }
        world
    }

    fn path_to(&self, name: &str) -> PathBuf {
        // macOS has its temporary directories behind a link.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn find_program(&self, path: &str) -> Result<PathBuf, ProgramError> {
        ProgramLookup::with_path(Some(OsStr::new(path)), [self.path_to("ws")]).find_program("git")
    }
}

fn create_program(path: &Path, mode: u32) {
    fs::write(path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn no_part_of_path_leads_into_a_workspace() {
    let world = LookupFixture::new();
    let (ws, good) = (world.path_to("ws"), world.path_to("good"));
    symlink(&ws, world.path_to("link")).unwrap();
    symlink("ws/deep", world.path_to("below")).unwrap();
    symlink(world.path_to("link"), world.path_to("twice")).unwrap();
    symlink(&good, ws.join("out")).unwrap();
    fs::create_dir(world.path_to("linked")).unwrap();
    symlink(ws.join("git"), world.path_to("linked/git")).unwrap();
    let (ws, up) = (ws.display(), world.path_to("").display().to_string());
    for first in [
        ".",
        "",
        "./",
        "..",
        "../ws",
        "rel/bin",
        "./rel/bin",
        "~/bin",
        "ws",
        ":",
        "::",
        ".:.:",
        &format!("{ws}"),
        &format!("{ws}/"),
        &format!("{ws}/."),
        &format!("{ws}/rel/bin"),
        &format!("{ws}/rel/../rel/bin"),
        &format!("{ws}//deep/er"),
        &format!("{up}good/../ws"),
        &format!("{up}link"),
        &format!("{up}link/rel/bin"),
        &format!("{up}below/er"),
        &format!("{up}twice"),
        &format!("{up}linked"),
        // It leads outside now, but a command could change it.
        &format!("{ws}/out"),
        &format!("{up}no-such-directory"),
    ] {
        for path in
            [format!("{first}:{}", good.display()), format!("{}:{first}", world.path_to("empty").display())]
        {
            match world.find_program(&path) {
                Ok(found) => assert_eq!(found, good.join("git"), "{path}"),
                Err(e) => assert!(!path.contains("good:") && path.contains("empty"), "{path}: {e}"),
            }
        }
        let found = world.find_program(&format!("{first}:{}", good.display()));
        assert_eq!(found, Ok(good.join("git")), "{first}");
    }
}

/// The working directory is usually the workspace, so each of these would find `./git`.
#[test]
fn empty_and_relative_parts_are_nothing() {
    let world = LookupFixture::new();
    let good = world.path_to("good").display().to_string();
    for path in [format!(":{good}"), format!("{good}:"), format!("::{good}"), format!(":{good}::")] {
        assert_eq!(world.find_program(&path), Ok(world.path_to("good/git")), "{path}");
    }
    for path in ["", ":", "::", ".", ".:", "./:rel/bin"] {
        let error = world.find_program(path).unwrap_err();
        assert!(matches!(error, ProgramError::Missing { .. }), "{path}: {error}");
    }
    let unset = ProgramLookup::with_path(None, [world.path_to("ws")]).find_program("git").unwrap_err();
    assert!(unset.to_string().contains("names no absolute directory"), "{unset}");
}

#[test]
fn only_an_executable_file_is_a_program() {
    let world = LookupFixture::new();
    let (first, second) = (world.path_to("outer"), world.path_to("good"));
    let path = format!("{}:{}", first.display(), second.display());
    fs::create_dir(first.join("git")).unwrap();
    assert_eq!(world.find_program(&path), Ok(second.join("git")), "a directory named git");
    fs::remove_dir(first.join("git")).unwrap();
    create_program(&first.join("git"), 0o644);
    assert_eq!(world.find_program(&path), Ok(second.join("git")), "not executable");
    fs::remove_file(first.join("git")).unwrap();
    symlink(first.join("gone"), first.join("git")).unwrap();
    assert_eq!(world.find_program(&path), Ok(second.join("git")), "a broken link");
    fs::remove_file(first.join("git")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        first.join("git"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o777),
        0,
    )
    .unwrap();
    assert_eq!(world.find_program(&path), Ok(second.join("git")), "a FIFO");
}

#[test]
fn a_name_with_a_directory_is_absolute_and_outside() {
    let world = LookupFixture::new();
    let lookup = ProgramLookup::with_path(Some(OsStr::new("/usr/bin:/bin")), [world.path_to("ws")]);
    for name in ["./git", "rel/bin/git", "../ws/git", ".", "..", "a/"] {
        assert!(matches!(lookup.find_program(name), Err(ProgramError::Relative { .. })), "{name}");
    }
    symlink(world.path_to("ws/git"), world.path_to("outer/git")).unwrap();
    for inside in ["ws/git", "ws/rel/../git", "good/../ws/git", "outer/git"] {
        let found = lookup.find_program(world.path_to(inside));
        assert!(matches!(found, Err(ProgramError::InWorkspace { .. })), "{inside}: {found:?}");
    }
    assert_eq!(lookup.find_program(world.path_to("good/git")), Ok(world.path_to("good/git")));
    assert!(matches!(lookup.find_program(world.path_to("empty")), Err(ProgramError::NotExecutable { .. })));
    assert!(matches!(lookup.find_program(""), Err(ProgramError::Missing { .. })));
}

#[test]
fn a_missing_program_names_what_was_searched() {
    let world = LookupFixture::new();
    let path = format!(".::{}:{}", world.path_to("ws/rel/bin").display(), world.path_to("empty").display());
    let error = world.find_program(&path).unwrap_err().to_string();
    for part in [
        "could not find the program `git`".to_owned(),
        format!("searched: {}", world.path_to("empty").display()),
        "not `.` (relative)".to_owned(),
        "not `` (empty)".to_owned(),
        format!("not `{}` (inside the workspace)", world.path_to("ws/rel/bin").display()),
    ] {
        assert!(error.contains(&part), "{part}: {error}");
    }
}

#[test]
fn the_workspace_may_be_named_by_a_link_and_may_be_the_root() {
    let world = LookupFixture::new();
    symlink(world.path_to("ws"), world.path_to("desk")).unwrap();
    let path: OsString =
        format!("{}:{}", world.path_to("ws").display(), world.path_to("good").display()).into();
    assert_eq!(
        ProgramLookup::with_path(Some(&path), [world.path_to("desk")]).find_program("git"),
        Ok(world.path_to("good/git"))
    );
    let root = ProgramLookup::with_path(Some(OsStr::new("/usr/bin:/bin")), ["/"]);
    assert!(root.find_program("sh").is_ok(), "programs of the system are found though `/` is the workspace");
    assert!(ProgramLookup::with_path(Some(&path), ["/"]).find_program("git").is_err());
    let two = ProgramLookup::with_path(Some(&path), [world.path_to("ws"), world.path_to("good")]);
    assert!(two.find_program("git").is_err(), "each grant counts");
    assert_eq!(two.search_path(), OsString::new());
}

#[test]
fn directories_can_be_searched_first() {
    let world = LookupFixture::new();
    let path: OsString = world.path_to("good").into();
    let lookup =
        ProgramLookup::with_path(Some(&path), [world.path_to("ws")]).search_first(&["/bin", "/usr/bin"]);
    let sh = lookup.find_program("sh").unwrap();
    assert!(sh.starts_with("/bin") || sh.starts_with("/usr/bin"), "{sh:?}");
    assert_eq!(
        lookup.find_program("git").unwrap().parent().map(|dir| dir.ends_with("good")).map(|_| ()),
        Some(())
    );
}
