//! The lookup with the real file system: every way in which a `PATH` may lead into a workspace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use minke_programs::{Lookup, ProgramError};

/// A workspace with a hostile `git`, and a directory outside it with the good one.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let world = World { dir: tempfile::tempdir().unwrap() };
        for dir in ["ws/rel/bin", "ws/deep/er", "good", "empty", "outer"] {
            fs::create_dir_all(world.at(dir)).unwrap();
        }
        for dir in ["ws", "ws/rel/bin", "ws/deep/er", "good"] {
            program(&world.at(dir).join("git"), 0o755);
        }
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        // macOS has its temporary directories behind a link.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn find(&self, path: &str) -> Result<PathBuf, ProgramError> {
        Lookup::over(Some(OsStr::new(path)), [self.at("ws")]).find("git")
    }
}

fn program(path: &Path, mode: u32) {
    fs::write(path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn no_part_of_path_leads_into_a_workspace() {
    let world = World::new();
    let (ws, good) = (world.at("ws"), world.at("good"));
    symlink(&ws, world.at("link")).unwrap();
    symlink("ws/deep", world.at("below")).unwrap();
    symlink(world.at("link"), world.at("twice")).unwrap();
    symlink(&good, ws.join("out")).unwrap();
    fs::create_dir(world.at("linked")).unwrap();
    symlink(ws.join("git"), world.at("linked/git")).unwrap();
    let (ws, up) = (ws.display(), world.at("").display().to_string());
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
        // It leads outside now; a command could change where it leads.
        &format!("{ws}/out"),
        &format!("{up}no-such-directory"),
    ] {
        for path in
            [format!("{first}:{}", good.display()), format!("{}:{first}", world.at("empty").display())]
        {
            match world.find(&path) {
                Ok(found) => assert_eq!(found, good.join("git"), "{path}"),
                Err(e) => assert!(!path.contains("good:") && path.contains("empty"), "{path}: {e}"),
            }
        }
        let found = world.find(&format!("{first}:{}", good.display()));
        assert_eq!(found, Ok(good.join("git")), "{first}");
    }
}

/// The working directory of the process is the workspace in most cases, so each of these would be `./git`.
#[test]
fn empty_and_relative_parts_are_nothing() {
    let world = World::new();
    let good = world.at("good").display().to_string();
    for path in [format!(":{good}"), format!("{good}:"), format!("::{good}"), format!(":{good}::")] {
        assert_eq!(world.find(&path), Ok(world.at("good/git")), "{path}");
    }
    for path in ["", ":", "::", ".", ".:", "./:rel/bin"] {
        let error = world.find(path).unwrap_err();
        assert!(matches!(error, ProgramError::Missing { .. }), "{path}: {error}");
    }
    let unset = Lookup::over(None, [world.at("ws")]).find("git").unwrap_err();
    assert!(unset.to_string().contains("names no absolute directory"), "{unset}");
}

#[test]
fn only_an_executable_file_is_a_program() {
    let world = World::new();
    let (first, second) = (world.at("outer"), world.at("good"));
    let path = format!("{}:{}", first.display(), second.display());
    fs::create_dir(first.join("git")).unwrap();
    assert_eq!(world.find(&path), Ok(second.join("git")), "a directory called git");
    fs::remove_dir(first.join("git")).unwrap();
    program(&first.join("git"), 0o644);
    assert_eq!(world.find(&path), Ok(second.join("git")), "not executable");
    fs::remove_file(first.join("git")).unwrap();
    symlink(first.join("gone"), first.join("git")).unwrap();
    assert_eq!(world.find(&path), Ok(second.join("git")), "a link to nothing");
    fs::remove_file(first.join("git")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        first.join("git"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o777),
        0,
    )
    .unwrap();
    assert_eq!(world.find(&path), Ok(second.join("git")), "a FIFO");
}

#[test]
fn a_name_with_a_directory_is_absolute_and_outside() {
    let world = World::new();
    let lookup = Lookup::over(Some(OsStr::new("/usr/bin:/bin")), [world.at("ws")]);
    for name in ["./git", "rel/bin/git", "../ws/git", ".", "..", "a/"] {
        assert!(matches!(lookup.find(name), Err(ProgramError::Relative { .. })), "{name}");
    }
    symlink(world.at("ws/git"), world.at("outer/git")).unwrap();
    for inside in ["ws/git", "ws/rel/../git", "good/../ws/git", "outer/git"] {
        let found = lookup.find(world.at(inside));
        assert!(matches!(found, Err(ProgramError::InWorkspace { .. })), "{inside}: {found:?}");
    }
    assert_eq!(lookup.find(world.at("good/git")), Ok(world.at("good/git")));
    assert!(matches!(lookup.find(world.at("empty")), Err(ProgramError::NotExecutable { .. })));
    assert!(matches!(lookup.find(""), Err(ProgramError::Missing { .. })));
}

#[test]
fn a_missing_program_names_what_was_searched() {
    let world = World::new();
    let path = format!(".::{}:{}", world.at("ws/rel/bin").display(), world.at("empty").display());
    let error = world.find(&path).unwrap_err().to_string();
    for part in [
        "no program `git`".to_owned(),
        format!("searched: {}", world.at("empty").display()),
        "not `.` (relative)".to_owned(),
        "not `` (empty)".to_owned(),
        format!("not `{}` (inside the workspace)", world.at("ws/rel/bin").display()),
    ] {
        assert!(error.contains(&part), "{part}: {error}");
    }
}

#[test]
fn the_workspace_may_be_named_by_a_link_and_may_be_the_root() {
    let world = World::new();
    symlink(world.at("ws"), world.at("desk")).unwrap();
    let path: OsString = format!("{}:{}", world.at("ws").display(), world.at("good").display()).into();
    assert_eq!(Lookup::over(Some(&path), [world.at("desk")]).find("git"), Ok(world.at("good/git")));
    let root = Lookup::over(Some(OsStr::new("/usr/bin:/bin")), ["/"]);
    assert!(root.find("sh").is_ok(), "programs of the system are found though `/` is the workspace");
    assert!(Lookup::over(Some(&path), ["/"]).find("git").is_err());
    let two = Lookup::over(Some(&path), [world.at("ws"), world.at("good")]);
    assert!(two.find("git").is_err(), "each grant counts");
    assert_eq!(two.path(), OsString::new());
}

#[test]
fn directories_can_be_searched_first() {
    let world = World::new();
    let path: OsString = world.at("good").into();
    let lookup = Lookup::over(Some(&path), [world.at("ws")]).first_in(&["/bin", "/usr/bin"]);
    let sh = lookup.find("sh").unwrap();
    assert!(sh.starts_with("/bin") || sh.starts_with("/usr/bin"), "{sh:?}");
    assert_eq!(lookup.find("git").unwrap().parent().map(|dir| dir.ends_with("good")).map(|_| ()), Some(()));
}
