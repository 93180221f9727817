//! Prompt assets and instructions of a project: what is found, what is left out, and that nothing is waited for.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use minke_manifest::{INSTRUCTION, Partial};
use minke_prompts::{Catalog, PROJECT_BYTES, Variables, project_part};
use minke_sources::{Asked, Project, Searching, Shelves, declare, project};

/// A configuration directory and a workspace.
struct House {
    _dir: tempfile::TempDir,
    config: PathBuf,
    workspace: PathBuf,
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (config, workspace) = (root.join("config"), root.join("work"));
        std::fs::create_dir_all(&config).unwrap();
        std::fs::create_dir_all(&workspace).unwrap();
        House { _dir: dir, config, workspace }
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) -> &House {
        put(&self.workspace, name, text);
        self
    }

    fn person(&self, name: &str, text: impl AsRef<[u8]>) -> &House {
        put(&self.config, name, text);
        self
    }

    fn told(&self, name: &str, trusted: bool) -> Result<String, String> {
        let shelves = Shelves { config: &self.config, workspace: &self.workspace, trusted, pack: None };
        let variables = Variables {
            date: "2026-11-16".to_owned(),
            cwd: "/c".to_owned(),
            workspace: "/w".to_owned(),
            language: "French".to_owned(),
            tools: vec!["Read".to_owned()],
            platform: "linux".to_owned(),
            model: "a/b".to_owned(),
        };
        shelves.instruction(name, &variables).map_err(|e| e.to_string())
    }

    fn project(&self, cwd: &str) -> Project {
        self.project_with(cwd, &|_| true)
    }

    fn project_with(&self, cwd: &str, may_read: &dyn Fn(&Path) -> bool) -> Project {
        let cwd = self.workspace.join(cwd);
        project(Searching { config: &self.config, workspace: &self.workspace, cwd: &cwd, may_read })
    }
}

fn put(dir: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn texts(project: &Project) -> Vec<&str> {
    project.fitted.files.iter().map(|file| file.text.as_str()).collect()
}

#[test]
fn an_asset_of_a_workspace_is_used_once_trusted() {
    let house = House::new();
    house.put(".minke/prompts/mine.md", "Mine on {{ date }}.").person("prompts/mine.md", "Yours.");
    house.person("prompts/both.md", "{% include '$user/mine' %} {% include '$workspace/mine' %}");
    assert_eq!(house.told("$user/mine", false).unwrap(), "Yours.");
    assert_eq!(house.told("$workspace/mine", true).unwrap(), "Mine on 2026-11-16.");
    assert_eq!(house.told("$user/both", true).unwrap(), "Yours. Mine on 2026-11-16.");
    for name in ["$workspace/mine", "$user/both"] {
        assert!(house.told(name, false).unwrap_err().contains("`minke trust`"));
    }
    assert_eq!(
        house.told("Mine is {{ date }}.", false).unwrap(),
        "Mine is {{ date }}.",
        "words are no template"
    );
    assert!(house.told(INSTRUCTION, false).unwrap().starts_with("You are a coding agent."));
}

#[test]
fn whatever_lies_in_the_place_of_an_asset_is_told() {
    let house = House::new();
    let outside = house.config.parent().unwrap().join("secret.md");
    std::fs::write(&outside, "secret").unwrap();
    let prompts = house.workspace.join(".minke/prompts");
    std::fs::create_dir_all(prompts.join("dir.md")).unwrap();
    std::fs::create_dir_all(house.config.join("prompts")).unwrap();
    symlink(&outside, prompts.join("link.md")).unwrap();
    symlink(outside.parent().unwrap(), prompts.join("away")).unwrap();
    fifo(&prompts.join("fifo.md"));
    fifo(&house.config.join("prompts/fifo.md"));
    house.put(".minke/prompts/long.md", "x".repeat(65_537)).put(".minke/prompts/bytes.md", b"\xff");
    house.person("prompts/long.md", "x".repeat(65_537)).person("prompts/nul.md", "a\0b");
    for (name, word) in [
        ("$workspace/link", "symbolic link"),
        ("$workspace/away/secret", "symbolic link"),
        ("$workspace/fifo", "a FIFO"),
        ("$workspace/dir", "a directory"),
        ("$workspace/long", "longer than 65536"),
        ("$workspace/bytes", "not UTF-8"),
        ("$workspace/gone", "there is no file"),
        ("$user/fifo", "not a file"),
        ("$user/long", "65537 bytes"),
        ("$user/nul", "$user/nul:1: there is a NUL"),
        ("$user/gone", "there is no file"),
        ("$user/../secret", "behind `$user/` belong"),
        ("$home/x", "begins with none"),
    ] {
        let error = house.told(name, true).unwrap_err();
        assert!(error.contains(word), "{name}: `{word}` is missing: {error}");
    }
}

#[test]
fn an_instruction_that_cannot_be_used_stops_the_start_and_names_its_layer() {
    let house = House::new();
    house.person("config.toml", "[worker]\nmax_turns = 3\ninstruction = '$user/mine'\n");
    let declared = || {
        let said = Partial::default();
        let (config, workspace) = (house.config.as_path(), house.workspace.as_path());
        declare(Asked { config, workspace, here: workspace, said, trusted: false, profile: None })
    };
    let error = declared().unwrap_err();
    let told = format!("{error}; {}", error.hint());
    for word in
        ["config.toml:3", "`worker.instruction`", "$user/mine", "prompts/mine.md", "docs/guide/prompts.md"]
    {
        assert!(told.contains(word), "`{word}` is missing: {told}");
    }
    house.person("prompts/mine.md", "a\n{{ dat }}");
    let error = declared().unwrap_err();
    let told = format!("{error}; {}", error.hint());
    assert!(told.contains("$user/mine:2") && told.contains("the nearest is `date`"), "{told}");
    house.person("prompts/mine.md", "{{ date }}");
    assert_eq!(declared().unwrap().manifest.worker.instruction, "$user/mine");
}

#[test]
fn the_nearest_instructions_come_last_and_an_override_counts() {
    let house = House::new();
    assert_eq!(house.project("a/b"), Project::default());
    assert_eq!(house.project("a/b").told(), None);
    house.person("AGENTS.md", "person").put("AGENTS.md", "root").put("CLAUDE.md", "never");
    house.put("a/CLAUDE.md", "a").put("a/b/AGENTS.md", "never").put("a/b/AGENTS.override.md", "b");
    house.put("a/b/c/AGENTS.md", "below").put("x/AGENTS.md", "beside");
    let found = house.project("a/b");
    assert_eq!(texts(&found), ["person", "root", "a", "b"]);
    assert_eq!(found.problems, [""; 0]);
    let told = found.told().unwrap();
    assert!(told.contains("a/b/AGENTS.override.md (1 bytes)") && !told.contains('\n'), "{told}");
    assert_eq!(texts(&house.project("")), ["person", "root"]);
    let denied = |path: &Path| !path.ends_with("a/b/AGENTS.override.md") && !path.ends_with("work/AGENTS.md");
    assert_eq!(texts(&house.project_with("a/b", &denied)), ["person", "never", "a", "never"]);
}

#[test]
fn instructions_that_are_too_long_are_cut_from_the_outside() {
    let house = House::new();
    house
        .put("AGENTS.md", "r".repeat(50_000))
        .put("a/AGENTS.md", "ä".repeat(20_000))
        .put("a/b/AGENTS.md", "near");
    let found = house.project("a/b");
    let lengths: Vec<usize> = texts(&found).iter().map(|text| text.len()).collect();
    assert_eq!(lengths, [PROJECT_BYTES - 40_004, 40_000, 4]);
    let told = found.told().unwrap();
    assert!(told.contains("work/AGENTS.md (25532 of 50000 bytes, cut)"), "{told}");
    assert!(
        project_part(&found.fitted, &Catalog::default())
            .contains("[cut here: 25532 of 50000 bytes are shown")
    );
    // One that is longer than all of them may be is read in part, on a whole character.
    house.put("a/b/AGENTS.md", format!("x{}", "ä".repeat(40_000)));
    let found = house.project("a/b");
    assert_eq!(texts(&found), [format!("x{}", "ä".repeat(32_767)).as_str()]);
    assert_eq!(found.fitted.dropped.len(), 2);
    assert!(found.told().unwrap().contains("left out beyond 65536 bytes: "));
    assert_eq!(found.problems, [""; 0], "a cut character is no foreign byte");
}

#[test]
fn whatever_lies_there_instructions_are_found_or_named() {
    let house = House::new();
    let outside = house.config.parent().unwrap().join("secret.md");
    std::fs::write(&outside, "secret").unwrap();
    for dir in ["link", "fifo", "dir", "bytes", "nul"] {
        std::fs::create_dir_all(house.workspace.join(dir)).unwrap();
    }
    symlink(&outside, house.workspace.join("link/AGENTS.md")).unwrap();
    house.put("link/CLAUDE.md", "instead");
    fifo(&house.workspace.join("fifo/AGENTS.md"));
    std::fs::create_dir_all(house.workspace.join("dir/AGENTS.md")).unwrap();
    house.put("bytes/AGENTS.md", b"a\xff\xfeb").put("nul/AGENTS.md", "a\0b");
    let linked = house.project("link");
    assert_eq!(texts(&linked), ["instead"]);
    assert!(
        linked.problems[0].contains("link/AGENTS.md is not used: a symbolic link"),
        "{:?}",
        linked.problems
    );
    for (dir, word) in [("fifo", "a FIFO"), ("dir", "a directory where a file belongs")] {
        let found = house.project(dir);
        assert_eq!(texts(&found), [""; 0]);
        assert!(found.problems[0].contains(word), "{dir}: {:?}", found.problems);
    }
    let bytes = house.project("bytes");
    assert_eq!(texts(&bytes), ["a\u{fffd}\u{fffd}b"]);
    assert!(bytes.problems[0].contains("not UTF-8"), "{:?}", bytes.problems);
    assert_eq!(texts(&house.project("nul")), ["a\0b"]);
    // The way into a directory is no link either.
    symlink(outside.parent().unwrap(), house.workspace.join("away")).unwrap();
    std::fs::write(outside.with_file_name("AGENTS.md"), "secret").unwrap();
    let away = house.project("away");
    assert_eq!(texts(&away), [""; 0]);
    assert!(away.problems[0].contains("symbolic link"), "{:?}", away.problems);
    fifo(&house.config.join("AGENTS.md"));
    assert!(house.project("").problems[0].contains("not a file"));
}
