//! Scanning a workspace: the found and ignored paths, and that no file can block the scan.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minke_config::trust::{
    IgnoreReason, InventoryKind, ItemUse, MAX_FILE_BYTES, SCAN_TIMEOUT, WorkspaceInventory, read_text_file,
    scan_workspace,
};

fn write_file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn make_node(dir: &Path, name: &str, kind: rustix::fs::FileType, mode: u32) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(mode);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
}

fn write_sparse_file(dir: &Path, name: &str) {
    let path = write_file(dir, name, "");
    fs::File::options().write(true).open(path).unwrap().set_len(10 << 30).unwrap();
}

fn item_kinds(inventory: &WorkspaceInventory) -> Vec<(&str, InventoryKind)> {
    inventory.items.iter().map(|item| (item.path.as_str(), item.kind)).collect()
}

fn ignored_paths(found: &WorkspaceInventory) -> Vec<(&str, &IgnoreReason)> {
    found.ignored.iter().map(|ignored| (ignored.path.as_str(), &ignored.reason)).collect()
}

#[test]
fn everything_that_could_run_is_found_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    write_file(at, ".mcp.json", r#"{"mcpServers":{"x":{"command":"evil"}}}"#);
    write_file(at, ".minke/config.toml", "");
    write_file(at, ".minke/policy.toml", "");
    write_file(
        at,
        ".minke/hooks.toml",
        "[[hook]]\nevent = \"before_tool\"\ncommand = \"./.minke/check.sh\"\n",
    );
    write_file(at, ".minke/check.sh", "#!/bin/sh\n");
    write_file(at, ".minke/profiles.toml", "");
    write_file(at, ".minke/profiles/a.lua", "return 1");
    write_file(at, ".minke/prompts/default.md", "x");
    write_file(at, ".minke/workflows/deploy.md", "x");
    write_file(at, ".minke/memory/x.md", "x");
    write_file(at, ".minke/knowledge/x.md", "x");
    write_file(at, ".minke/skills/plain/SKILL.md", "x");
    write_file(at, ".agents/skills/tool/SKILL.md", "x");
    write_file(at, ".agents/skills/tool/scripts/run.py", "x");
    write_file(at, ".claude/skills/shy/SKILL.md", "x");
    let shy = write_file(at, ".claude/skills/shy/notes.md", "x");
    fs::set_permissions(shy, fs::Permissions::from_mode(0o755)).unwrap();
    write_file(at, ".claude/skills/bang/SKILL.md", "#!/bin/sh\n");
    write_file(at, ".claude/settings.json", "{\"hooks\":{}}");
    write_file(at, ".claude/hooks/pre.sh", "x");
    let inventory = scan_workspace(at);
    assert_eq!(
        item_kinds(&inventory),
        [
            (".agents/skills/tool/", InventoryKind::Skill),
            (".claude/hooks", InventoryKind::Foreign),
            (".claude/settings.json", InventoryKind::Foreign),
            (".claude/skills/bang/", InventoryKind::Skill),
            (".claude/skills/shy/", InventoryKind::Skill),
            (".mcp.json", InventoryKind::Servers),
            (".minke/check.sh", InventoryKind::Other),
            (".minke/config.toml", InventoryKind::Settings),
            (".minke/hooks.toml", InventoryKind::Hooks),
            (".minke/policy.toml", InventoryKind::Rules),
            (".minke/profiles.toml", InventoryKind::Profiles),
            (".minke/profiles/", InventoryKind::Profiles),
            (".minke/prompts/", InventoryKind::Prompts),
            (".minke/skills/plain/", InventoryKind::TextSkill),
            (".minke/workflows/", InventoryKind::Workflows),
        ]
    );
    assert!(inventory.ignored.is_empty());
    let text = inventory.to_listing();
    for line in [
        "would be used if you trust",
        "before_tool: runs `./.minke/check.sh`",
        "server x: starts `evil`",
        "scripts/run.py",
        "is always used:\n  .minke/policy.toml",
        "is not used by Minke:\n  .claude/hooks",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(inventory.file_text(".minke/hooks.toml").map(|text| text.contains("check.sh")), Some(true));
    assert_eq!(inventory.file_text(".minke/check.sh"), None);
}

#[test]
fn a_workspace_without_anything_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    write_file(dir.path(), "src/main.rs", "");
    write_file(dir.path(), ".git/config", "");
    fs::create_dir(dir.path().join(".minke")).unwrap();
    fs::create_dir_all(dir.path().join(".claude/skills/empty")).unwrap();
    let inventory = scan_workspace(dir.path());
    assert!(inventory.items.is_empty() && inventory.ignored.is_empty(), "{inventory:?}");
    assert_eq!(inventory.to_listing(), "");
    assert_eq!(scan_workspace(&dir.path().join("nowhere")).items.len(), 0);
}

/// A hostile path in a workspace, and its expected description.
type HostilePath = (&'static str, fn(&Path), &'static str);

const HOSTILE_PATHS: [HostilePath; 24] = [
    (
        "link to a secret",
        |at| make_link(at, "/etc/shadow", ".minke/hooks.toml"),
        ".minke/hooks.toml (a symbolic link",
    ),
    ("dead link", |at| make_link(at, "/no/where", ".mcp.json"), ".mcp.json (a symbolic link"),
    ("link to itself", |at| make_link(at, "hooks.toml", ".minke/hooks.toml"), "(a symbolic link"),
    ("magic link", |at| make_link(at, "/proc/self/fd/0", ".minke/hooks.toml"), "(a symbolic link"),
    ("a whole linked directory", |at| make_link(at, "/etc", ".minke"), ".minke (a symbolic link"),
    ("linked skills", |at| make_link(at, "/usr/share", ".claude/skills"), ".claude/skills (a symbolic link"),
    (
        "link inside a skill",
        |at| make_link(at, "/etc/passwd", ".agents/skills/a/run.sh"),
        "a/run.sh (a symbolic link",
    ),
    ("directory loop", |at| make_link(at, "..", ".agents/skills/a/again"), "a/again (a symbolic link"),
    (
        "fifo",
        |at| make_node(at, ".minke/hooks.toml", rustix::fs::FileType::Fifo, 0o644),
        "hooks.toml (a FIFO)",
    ),
    ("fifo at the top", |at| make_node(at, ".minke", rustix::fs::FileType::Fifo, 0o644), ".minke (a FIFO)"),
    (
        "fifo in a skill",
        |at| make_node(at, ".claude/skills/a/x", rustix::fs::FileType::Fifo, 0o644),
        "a/x (a FIFO)",
    ),
    (
        "socket",
        |at| make_node(at, ".minke/hooks.toml", rustix::fs::FileType::Socket, 0o644),
        "hooks.toml (a socket)",
    ),
    (
        "open socket at the top",
        |at| make_node(at, ".mcp.json", rustix::fs::FileType::Socket, 0o644),
        ".mcp.json (a socket)",
    ),
    (
        "directory",
        |at| drop(write_file(at, ".minke/hooks.toml/x", "")),
        "hooks.toml (a directory instead of a file)",
    ),
    ("file", |at| drop(write_file(at, ".minke", "")), ".minke (a file instead of a directory)"),
    ("sparse", |at| write_sparse_file(at, ".minke/hooks.toml"), "hooks.toml (longer than"),
    ("sparse profile", |at| write_sparse_file(at, ".minke/profiles/a.lua"), "profiles/a.lua (longer than"),
    ("sparse other", |at| write_sparse_file(at, ".minke/big"), ".minke/big (longer than"),
    (
        "not text",
        |at| fs::write(write_file(at, ".minke/hooks.toml", ""), b"\xff\xfe").unwrap(),
        "hooks.toml (not UTF-8",
    ),
    (
        "escape in a name",
        |at| drop(write_file(at, ".claude/skills/a\u{1b}[2J/x.sh", "")),
        "a\\u{1b}[2J (a name with",
    ),
    ("line break in a name", |at| drop(write_file(at, ".minke/a\nb", "")), ".minke/a\\nb (a name with"),
    (
        "name that is not text",
        |at| {
            let name = std::ffi::OsStr::from_bytes(b".minke/a\xff");
            write_file(at, ".minke/x", "");
            fs::write(at.join(name), "").unwrap();
        },
        ".minke/a\\xff (a name with",
    ),
    (
        "deep",
        |at| drop(write_file(at, &format!(".claude/skills/{}x.sh", "d/".repeat(300)), "")),
        "nested directories",
    ),
    (
        "many",
        |at| {
            for n in 0..2_000 {
                write_file(at, &format!(".claude/skills/a/{n}.sh"), "");
            }
        },
        ".claude/skills/a (a directory of more than",
    ),
];

fn make_link(at: &Path, target: &str, name: &str) {
    let path = at.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

#[test]
fn whatever_lies_there_the_look_ends_and_names_it() {
    for (what, lay, named) in HOSTILE_PATHS {
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path());
        let began = Instant::now();
        let inventory = scan_workspace(dir.path());
        let took = began.elapsed();
        let told = inventory.trust_notices(&minke_config::trust::TrustStatus::NotNeeded).join("\n");
        assert!(told.contains(named), "{what}: {told:?} of {inventory:?}");
        assert!(took < SCAN_TIMEOUT, "{what}: {took:?}");
        assert!(!inventory.to_listing().contains("root:"), "{what}");
        assert!(inventory.to_listing().contains("is never used:"), "{what}");
    }
}

#[test]
fn bounds_hold_for_the_whole_look() {
    let dir = tempfile::tempdir().unwrap();
    for skill in 0..300 {
        write_file(dir.path(), &format!(".agents/skills/s{skill}/run.sh"), "x");
    }
    let inventory = scan_workspace(dir.path());
    assert_eq!(inventory.items.len(), 256);
    assert_eq!((inventory.ignored.len(), inventory.ignored_count()), (44, 44));
    let dir = tempfile::tempdir().unwrap();
    for file in 0..257 {
        write_file(dir.path(), &format!(".agents/skills/s/{file}.sh"), "x");
    }
    assert!(matches!(
        ignored_paths(&scan_workspace(dir.path()))[..],
        [(".agents/skills/s", IgnoreReason::LimitExceeded(_))]
    ));
    let dir = tempfile::tempdir().unwrap();
    for file in 0..9 {
        write_file(
            dir.path(),
            &format!(".minke/profiles/{file}.lua"),
            &"x".repeat(usize::try_from(MAX_FILE_BYTES).unwrap()),
        );
    }
    let inventory = scan_workspace(dir.path());
    assert!(inventory.items.is_empty(), "{:?}", item_kinds(&inventory));
    assert!(matches!(ignored_paths(&inventory)[..], [(".minke/profiles", IgnoreReason::LimitExceeded(_))]));
    // The number of listed paths is limited too.
    let dir = tempfile::tempdir().unwrap();
    for file in 0..200 {
        make_link(dir.path(), "x", &format!(".minke/{file}"));
    }
    let inventory = scan_workspace(dir.path());
    assert_eq!((inventory.ignored.len(), inventory.unnamed_ignored), (64, 136));
    assert!(
        inventory.trust_notices(&minke_config::trust::TrustStatus::NotNeeded)[0].ends_with("and 196 more")
    );
}

/// While a command of another pod runs, its sandbox reserves names with sockets that have no permissions.
#[test]
fn what_a_sandbox_reserves_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".minke", ".mcp.json", ".agents", ".claude"] {
        make_node(dir.path(), name, rustix::fs::FileType::Socket, 0);
    }
    let inventory = scan_workspace(dir.path());
    assert!(inventory.items.is_empty() && inventory.ignored.is_empty(), "{inventory:?}");
    assert_eq!(read_text_file(dir.path(), ".minke/policy.toml".as_ref(), 64), Ok(None));
}

#[test]
fn the_hash_is_over_content_and_nothing_else() {
    let make = |order: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        for name in order {
            write_file(dir.path(), name, name);
        }
        dir
    };
    let names = [".minke/hooks.toml", ".mcp.json", ".minke/lib/a.sh", ".claude/skills/x/b.sh"];
    let (one, two) = (make(&names), make(&[names[3], names[1], names[2], names[0]]));
    let hash = scan_workspace(one.path()).hash;
    assert_eq!(hash, scan_workspace(two.path()).hash);
    // Used in another way, so not part of the hash.
    write_file(one.path(), ".minke/policy.toml", "x");
    write_file(one.path(), ".claude/settings.json", "x");
    write_file(one.path(), ".minke/memory/x", "x");
    write_file(one.path(), ".claude/skills/text/SKILL.md", "x");
    write_file(one.path(), "src/main.rs", "x");
    assert_eq!(hash, scan_workspace(one.path()).hash);
    for name in names {
        write_file(one.path(), name, "other");
        assert_ne!(hash, scan_workspace(one.path()).hash, "{name}");
        write_file(one.path(), name, name);
        assert_eq!(hash, scan_workspace(one.path()).hash, "{name}");
    }
    let script = one.path().join(".minke/lib/a.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(hash, scan_workspace(one.path()).hash, "permission to execute counts");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(one.path().join(".minke/lib"), one.path().join(".minke/lic")).unwrap();
    assert_ne!(hash, scan_workspace(one.path()).hash, "a name counts");
    fs::rename(one.path().join(".minke/lic"), one.path().join(".minke/lib")).unwrap();
    // Moving content from one file to the next changes the hash.
    fs::rename(&script, one.path().join(".minke/lib/b.sh")).unwrap();
    assert_ne!(hash, scan_workspace(one.path()).hash);
}

#[test]
fn one_file_is_read_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    write_file(at, "sub/deep/AGENTS.md", "text");
    let get = |name: &str| read_text_file(at, Path::new(name), 64);
    assert_eq!(get("sub/deep/AGENTS.md"), Ok(Some("text".to_owned())));
    assert_eq!(get("./sub/./deep/AGENTS.md"), Ok(Some("text".to_owned())));
    assert_eq!(get("none"), Ok(None));
    assert_eq!(get("none/none"), Ok(None));
    assert_eq!(get("sub/deep/AGENTS.md/none"), Ok(None));
    assert_eq!(get(&"x".repeat(5_000)), Ok(None));
    assert_eq!(read_text_file(&at.join("nowhere"), Path::new("x"), 64), Ok(None));
    for outside in ["../x", "sub/../../x", "/etc/passwd", "", ".", "sub/.."] {
        assert_eq!(get(outside).unwrap_err().reason, IgnoreReason::OutsideWorkspace, "{outside}");
    }
    write_file(at, "long", &"x".repeat(65));
    write_file(at, "fits", &"x".repeat(64));
    assert_eq!(get("long").unwrap_err().to_string(), "long is not used: longer than 64 bytes");
    assert!(get("fits").is_ok());
    write_sparse_file(at, "sparse");
    assert_eq!(get("sparse").unwrap_err().reason, IgnoreReason::TooLong { max: 64 });
    make_link(at, "sub", "way");
    make_link(at, "deep/AGENTS.md", "sub/link");
    assert_eq!(get("way/deep/AGENTS.md").unwrap_err().reason, IgnoreReason::Link);
    assert_eq!(get("sub/link").unwrap_err().reason, IgnoreReason::Link);
    make_node(at, "fifo", rustix::fs::FileType::Fifo, 0o644);
    assert_eq!(get("fifo").unwrap_err().reason, IgnoreReason::WrongFileType("a FIFO"));
    assert!(matches!(get("sub").unwrap_err().reason, IgnoreReason::WrongFileType(_)));
    fs::write(at.join("bytes"), b"\xff").unwrap();
    assert_eq!(get("bytes").unwrap_err().reason, IgnoreReason::NotText);
    assert!(get("a\u{1b}b/../x").unwrap_err().to_string().starts_with("a\\u{1b}b/../x is"));
}

#[test]
fn what_may_not_be_read_is_named() {
    if rustix::process::geteuid().is_root() {
        // Root can open everything; a mount by another user cannot be read.
        let why = read_text_file(Path::new("/"), Path::new("proc/version"), 4096).unwrap_err().reason;
        assert_eq!(why, IgnoreReason::OtherFilesystem);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(dir.path(), ".minke/hooks.toml", "");
    fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
    assert!(matches!(
        ignored_paths(&scan_workspace(dir.path()))[..],
        [(".minke/hooks.toml", IgnoreReason::Unreadable(_))]
    ));
}

/// A concurrent process swaps files, directories and links; a read returns content from inside, or nothing.
#[test]
fn no_swap_leads_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
    write_file(&outside, "hooks.toml", "OUTSIDE");
    write_file(&inside, "real/hooks.toml", "inside");
    make_link(&inside, "../out", "fake");
    write_file(&inside, ".minke/hooks.toml", "inside");
    let over = AtomicBool::new(false);
    let swaps = std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let mut swaps = 0;
            let (now, real, fake) = (inside.join(".minke"), inside.join("real"), inside.join("fake"));
            while !over.load(Ordering::Relaxed) {
                for other in [&fake, &real] {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(rustix::fs::CWD, &now, rustix::fs::CWD, other, flags).unwrap();
                    swaps += 1;
                }
            }
            swaps
        });
        let end = Instant::now() + Duration::from_millis(400);
        let mut visited = 0;
        while Instant::now() < end {
            if let Ok(Some(text)) = read_text_file(&inside, Path::new(".minke/hooks.toml"), 64) {
                assert_eq!(text, "inside");
                visited += 1;
            }
            let inventory = scan_workspace(&inside);
            assert_ne!(inventory.file_text(".minke/hooks.toml"), Some("OUTSIDE"));
        }
        over.store(true, Ordering::Relaxed);
        assert!(visited > 0);
        swapping.join().unwrap()
    });
    assert!(swaps > 10, "{swaps}");
}

/// A FIFO that replaces the file between the check and the open does not block.
#[test]
fn a_fifo_that_slips_in_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_owned();
    write_file(&at, "file", "inside");
    make_node(&at, "other", rustix::fs::FileType::Fifo, 0o644);
    let (tell, told) = std::sync::mpsc::channel();
    let reading = at.clone();
    // Not joined: a reader that blocks forever is the bug, and would block the test too.
    std::thread::spawn(move || {
        let end = Instant::now() + Duration::from_millis(400);
        let mut slipped = 0;
        while Instant::now() < end {
            slipped += u32::from(read_text_file(&reading, Path::new("file"), 64).is_err());
        }
        tell.send(slipped)
    });
    let (one, other) = (at.join("file"), at.join("other"));
    let deadline = Instant::now() + Duration::from_secs(20);
    let slipped = loop {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, flags).unwrap();
        match told.try_recv() {
            Ok(slipped) => break slipped,
            Err(_) => assert!(Instant::now() < deadline, "the reader blocks on the FIFO"),
        }
    };
    assert!(slipped > 0);
}

#[test]
fn every_kind_says_when_and_what() {
    let gated = [
        InventoryKind::Hooks,
        InventoryKind::Servers,
        InventoryKind::Profiles,
        InventoryKind::Prompts,
        InventoryKind::Workflows,
        InventoryKind::Settings,
        InventoryKind::Skill,
    ];
    assert!(gated.iter().all(|kind| kind.activation() == ItemUse::Trusted && !kind.capability().is_empty()));
    assert_eq!(
        (InventoryKind::Rules.activation(), InventoryKind::TextSkill.activation()),
        (ItemUse::AtOnce, ItemUse::AtOnce)
    );
    assert_eq!(
        (InventoryKind::Other.activation(), InventoryKind::Foreign.activation()),
        (ItemUse::WithOthers, ItemUse::Never)
    );
}

#[test]
fn a_look_is_quick() {
    let dir = tempfile::tempdir().unwrap();
    write_file(dir.path(), ".minke/hooks.toml", "");
    write_file(dir.path(), ".mcp.json", "{}");
    for skill in 0..10 {
        for file in 0..10 {
            write_file(dir.path(), &format!(".claude/skills/s{skill}/{file}.py"), &"x = 1\n".repeat(500));
        }
    }
    let began = Instant::now();
    let inventory = scan_workspace(dir.path());
    let took = began.elapsed();
    eprintln!("102 files: {took:?}");
    assert_eq!(inventory.items.len(), 12);
    assert!(took < Duration::from_millis(500), "{took:?}");
}
