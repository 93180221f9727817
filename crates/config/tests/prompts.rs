//! Prompt assets and project instructions: the found and ignored files, and that no file can block.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use minke_config::sources::{
    DeclareRequest, InstructionSearch, ProjectInstructions, PromptDirs, declare_manifest, find_instructions,
};
use minke_manifest::{DEFAULT_INSTRUCTION, PartialManifest};
use minke_prompts::{MAX_PROJECT_BYTES, PromptVariables, SnippetCatalog, project_section};

/// A configuration directory and a workspace.
struct PromptFixture {
    _dir: tempfile::TempDir,
    config: PathBuf,
    workspace: PathBuf,
}

impl PromptFixture {
    fn new() -> PromptFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (config, workspace) = (root.join("config"), root.join("work"));
        std::fs::create_dir_all(&config).unwrap();
        std::fs::create_dir_all(&workspace).unwrap();
        PromptFixture { _dir: dir, config, workspace }
    }

    fn write_workspace_file(&self, name: &str, text: impl AsRef<[u8]>) -> &PromptFixture {
        write_file(&self.workspace, name, text);
        self
    }

    fn write_user_file(&self, name: &str, text: impl AsRef<[u8]>) -> &PromptFixture {
        write_file(&self.config, name, text);
        self
    }

    fn instruction_text(&self, name: &str, trusted: bool) -> Result<String, String> {
        let dirs = PromptDirs { config: &self.config, workspace: &self.workspace, trusted, pack: None };
        let variables = PromptVariables {
            date: "2026-11-16".to_owned(),
            cwd: "/c".to_owned(),
            workspace: "/w".to_owned(),
            language: "French".to_owned(),
            tools: vec!["Read".to_owned()],
            platform: "linux".to_owned(),
            model: "a/b".to_owned(),
        };
        dirs.resolve_instruction(name, &variables).map_err(|e| e.to_string())
    }

    fn load_instructions(&self, cwd: &str) -> ProjectInstructions {
        self.load_readable(cwd, &|_| true)
    }

    fn load_readable(&self, cwd: &str, may_read: &dyn Fn(&Path) -> bool) -> ProjectInstructions {
        let cwd = self.workspace.join(cwd);
        find_instructions(InstructionSearch {
            config: &self.config,
            workspace: &self.workspace,
            cwd: &cwd,
            may_read,
        })
    }
}

fn write_file(dir: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn instruction_texts(project: &ProjectInstructions) -> Vec<&str> {
    project.instructions.files.iter().map(|file| file.text.as_str()).collect()
}

#[test]
fn an_asset_of_a_workspace_is_used_once_trusted() {
    let fixture = PromptFixture::new();
    fixture
        .write_workspace_file(".minke/prompts/mine.md", "Mine on {{ date }}.")
        .write_user_file("prompts/mine.md", "Yours.");
    fixture.write_user_file("prompts/both.md", "{% include '$user/mine' %} {% include '$workspace/mine' %}");
    assert_eq!(fixture.instruction_text("$user/mine", false).unwrap(), "Yours.");
    assert_eq!(fixture.instruction_text("$workspace/mine", true).unwrap(), "Mine on 2026-11-16.");
    assert_eq!(fixture.instruction_text("$user/both", true).unwrap(), "Yours. Mine on 2026-11-16.");
    for name in ["$workspace/mine", "$user/both"] {
        assert!(fixture.instruction_text(name, false).unwrap_err().contains("`minke trust`"));
    }
    assert_eq!(
        fixture.instruction_text("Mine is {{ date }}.", false).unwrap(),
        "Mine is {{ date }}.",
        "a plain text is not a template"
    );
    assert!(
        fixture.instruction_text(DEFAULT_INSTRUCTION, false).unwrap().starts_with("You are a coding agent.")
    );
}

#[test]
fn whatever_lies_in_the_place_of_an_asset_is_told() {
    let house = PromptFixture::new();
    let outside = house.config.parent().unwrap().join("secret.md");
    std::fs::write(&outside, "secret").unwrap();
    let prompts = house.workspace.join(".minke/prompts");
    std::fs::create_dir_all(prompts.join("dir.md")).unwrap();
    std::fs::create_dir_all(house.config.join("prompts")).unwrap();
    symlink(&outside, prompts.join("link.md")).unwrap();
    symlink(outside.parent().unwrap(), prompts.join("away")).unwrap();
    make_fifo(&prompts.join("fifo.md"));
    make_fifo(&house.config.join("prompts/fifo.md"));
    house
        .write_workspace_file(".minke/prompts/long.md", "x".repeat(65_537))
        .write_workspace_file(".minke/prompts/bytes.md", b"\xff");
    house.write_user_file("prompts/long.md", "x".repeat(65_537)).write_user_file("prompts/nul.md", "a\0b");
    for (name, word) in [
        ("$workspace/link", "symbolic link"),
        ("$workspace/away/secret", "symbolic link"),
        ("$workspace/fifo", "a FIFO"),
        ("$workspace/dir", "a directory"),
        ("$workspace/long", "longer than 65536"),
        ("$workspace/bytes", "not UTF-8"),
        ("$workspace/gone", "does not exist"),
        ("$user/fifo", "not a file"),
        ("$user/long", "65537 bytes"),
        ("$user/nul", "$user/nul:1: it contains a NUL"),
        ("$user/gone", "does not exist"),
        ("$user/../secret", "behind `$user/` belong"),
        ("$home/x", "a prompt asset begins with"),
    ] {
        let error = house.instruction_text(name, true).unwrap_err();
        assert!(error.contains(word), "{name}: `{word}` is missing: {error}");
    }
}

#[test]
fn an_instruction_that_cannot_be_used_stops_the_start_and_names_its_layer() {
    let fixture = PromptFixture::new();
    fixture.write_user_file("config.toml", "[worker]\nmax_turns = 3\ninstruction = '$user/mine'\n");
    let declared = || {
        let error_text = PartialManifest::default();
        let (config, workspace) = (fixture.config.as_path(), fixture.workspace.as_path());
        declare_manifest(DeclareRequest {
            config,
            workspace,
            cwd: workspace,
            options: error_text,
            trusted: false,
            profile: None,
        })
    };
    let error = declared().unwrap_err();
    let message = format!("{error}; {}", error.hint());
    for word in
        ["config.toml:3", "`worker.instruction`", "$user/mine", "prompts/mine.md", "docs/guide/prompts.md"]
    {
        assert!(message.contains(word), "`{word}` is missing: {message}");
    }
    fixture.write_user_file("prompts/mine.md", "a\n{{ dat }}");
    let error = declared().unwrap_err();
    let told = format!("{error}; {}", error.hint());
    assert!(told.contains("$user/mine:2") && told.contains("the nearest is `date`"), "{told}");
    fixture.write_user_file("prompts/mine.md", "{{ date }}");
    assert_eq!(declared().unwrap().manifest.worker.instruction, "$user/mine");
}

#[test]
fn the_nearest_instructions_come_last_and_an_override_counts() {
    let fixture = PromptFixture::new();
    assert_eq!(fixture.load_instructions("a/b"), ProjectInstructions::default());
    assert_eq!(fixture.load_instructions("a/b").load_summary(), None);
    fixture
        .write_user_file("AGENTS.md", "person")
        .write_workspace_file("AGENTS.md", "root")
        .write_workspace_file("CLAUDE.md", "never");
    fixture
        .write_workspace_file("a/CLAUDE.md", "a")
        .write_workspace_file("a/b/AGENTS.md", "never")
        .write_workspace_file("a/b/AGENTS.override.md", "b");
    fixture.write_workspace_file("a/b/c/AGENTS.md", "below").write_workspace_file("x/AGENTS.md", "beside");
    let inventory = fixture.load_instructions("a/b");
    assert_eq!(instruction_texts(&inventory), ["person", "root", "a", "b"]);
    assert_eq!(inventory.problems, [""; 0]);
    let message = inventory.load_summary().unwrap();
    assert!(message.contains("a/b/AGENTS.override.md (1 bytes)") && !message.contains('\n'), "{message}");
    assert_eq!(instruction_texts(&fixture.load_instructions("")), ["person", "root"]);
    let denied = |path: &Path| !path.ends_with("a/b/AGENTS.override.md") && !path.ends_with("work/AGENTS.md");
    assert_eq!(instruction_texts(&fixture.load_readable("a/b", &denied)), ["person", "never", "a", "never"]);
}

#[test]
fn instructions_that_are_too_long_are_cut_from_the_outside() {
    let house = PromptFixture::new();
    house
        .write_workspace_file("AGENTS.md", "r".repeat(50_000))
        .write_workspace_file("a/AGENTS.md", "ä".repeat(20_000))
        .write_workspace_file("a/b/AGENTS.md", "near");
    let inventory = house.load_instructions("a/b");
    let lengths: Vec<usize> = instruction_texts(&inventory).iter().map(|text| text.len()).collect();
    assert_eq!(lengths, [MAX_PROJECT_BYTES - 40_004, 40_000, 4]);
    let message = inventory.load_summary().unwrap();
    assert!(message.contains("work/AGENTS.md (25532 of 50000 bytes, truncated)"), "{message}");
    assert!(
        project_section(&inventory.instructions, &SnippetCatalog::default())
            .contains("[cut here: 25532 of 50000 bytes are shown")
    );
    // A file above the total limit is truncated at a character boundary.
    house.write_workspace_file("a/b/AGENTS.md", format!("x{}", "ä".repeat(40_000)));
    let inventory = house.load_instructions("a/b");
    assert_eq!(instruction_texts(&inventory), [format!("x{}", "ä".repeat(32_767)).as_str()]);
    assert_eq!(inventory.instructions.dropped.len(), 2);
    assert!(inventory.load_summary().unwrap().contains("omitted beyond 65536 bytes: "));
    assert_eq!(inventory.problems, [""; 0], "a truncated character is not an invalid byte");
}

#[test]
fn whatever_lies_there_instructions_are_found_or_named() {
    let fixture = PromptFixture::new();
    let outside = fixture.config.parent().unwrap().join("secret.md");
    std::fs::write(&outside, "secret").unwrap();
    for dir in ["link", "fifo", "dir", "bytes", "nul"] {
        std::fs::create_dir_all(fixture.workspace.join(dir)).unwrap();
    }
    symlink(&outside, fixture.workspace.join("link/AGENTS.md")).unwrap();
    fixture.write_workspace_file("link/CLAUDE.md", "instead");
    make_fifo(&fixture.workspace.join("fifo/AGENTS.md"));
    std::fs::create_dir_all(fixture.workspace.join("dir/AGENTS.md")).unwrap();
    fixture
        .write_workspace_file("bytes/AGENTS.md", b"a\xff\xfeb")
        .write_workspace_file("nul/AGENTS.md", "a\0b");
    let linked = fixture.load_instructions("link");
    assert_eq!(instruction_texts(&linked), ["instead"]);
    assert!(
        linked.problems[0].contains("link/AGENTS.md is not used: a symbolic link"),
        "{:?}",
        linked.problems
    );
    for (dir, word) in [("fifo", "a FIFO"), ("dir", "a directory instead of a file")] {
        let inventory = fixture.load_instructions(dir);
        assert_eq!(instruction_texts(&inventory), [""; 0]);
        assert!(inventory.problems[0].contains(word), "{dir}: {:?}", inventory.problems);
    }
    let bytes = fixture.load_instructions("bytes");
    assert_eq!(instruction_texts(&bytes), ["a\u{fffd}\u{fffd}b"]);
    assert!(bytes.problems[0].contains("not UTF-8"), "{:?}", bytes.problems);
    assert_eq!(instruction_texts(&fixture.load_instructions("nul")), ["a\0b"]);
    // A link to a directory is not followed either.
    symlink(outside.parent().unwrap(), fixture.workspace.join("away")).unwrap();
    std::fs::write(outside.with_file_name("AGENTS.md"), "secret").unwrap();
    let away = fixture.load_instructions("away");
    assert_eq!(instruction_texts(&away), [""; 0]);
    assert!(away.problems[0].contains("symbolic link"), "{:?}", away.problems);
    make_fifo(&fixture.config.join("AGENTS.md"));
    assert!(fixture.load_instructions("").problems[0].contains("not a file"));
}
