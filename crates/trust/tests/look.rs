//! Looking at a workspace: what is found, what is left alone, and that nothing in it can hold the look up.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minke_trust::{FILE_BYTES, Found, Kind, LOOK_TIME, Use, Why, look, read};

fn put(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn make(dir: &Path, name: &str, kind: rustix::fs::FileType, mode: u32) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(mode);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
}

fn sparse(dir: &Path, name: &str) {
    let path = put(dir, name, "");
    fs::File::options().write(true).open(path).unwrap().set_len(10 << 30).unwrap();
}

fn kinds(found: &Found) -> Vec<(&str, Kind)> {
    found.items.iter().map(|item| (item.path.as_str(), item.kind)).collect()
}

fn ignored(found: &Found) -> Vec<(&str, &Why)> {
    found.ignored.iter().map(|ignored| (ignored.path.as_str(), &ignored.why)).collect()
}

#[test]
fn everything_that_could_run_is_found_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    put(at, ".mcp.json", r#"{"mcpServers":{"x":{"command":"evil"}}}"#);
    put(at, ".minke/config.toml", "");
    put(at, ".minke/policy.toml", "");
    put(at, ".minke/hooks.toml", "[[hook]]\nevent = \"before_tool\"\ncommand = \"./.minke/check.sh\"\n");
    put(at, ".minke/check.sh", "#!/bin/sh\n");
    put(at, ".minke/profiles.toml", "");
    put(at, ".minke/profiles/a.lua", "return 1");
    put(at, ".minke/prompts/default.md", "x");
    put(at, ".minke/workflows/deploy.md", "x");
    put(at, ".minke/memory/x.md", "x");
    put(at, ".minke/knowledge/x.md", "x");
    put(at, ".minke/skills/plain/SKILL.md", "x");
    put(at, ".agents/skills/tool/SKILL.md", "x");
    put(at, ".agents/skills/tool/scripts/run.py", "x");
    put(at, ".claude/skills/shy/SKILL.md", "x");
    let shy = put(at, ".claude/skills/shy/notes.md", "x");
    fs::set_permissions(shy, fs::Permissions::from_mode(0o755)).unwrap();
    put(at, ".claude/skills/bang/SKILL.md", "#!/bin/sh\n");
    put(at, ".claude/settings.json", "{\"hooks\":{}}");
    put(at, ".claude/hooks/pre.sh", "x");
    let found = look(at);
    assert_eq!(
        kinds(&found),
        [
            (".agents/skills/tool/", Kind::Skill),
            (".claude/hooks", Kind::Foreign),
            (".claude/settings.json", Kind::Foreign),
            (".claude/skills/bang/", Kind::Skill),
            (".claude/skills/shy/", Kind::Skill),
            (".mcp.json", Kind::Servers),
            (".minke/check.sh", Kind::Other),
            (".minke/config.toml", Kind::Settings),
            (".minke/hooks.toml", Kind::Hooks),
            (".minke/policy.toml", Kind::Rules),
            (".minke/profiles.toml", Kind::Profiles),
            (".minke/profiles/", Kind::Profiles),
            (".minke/prompts/", Kind::Prompts),
            (".minke/skills/plain/", Kind::TextSkill),
            (".minke/workflows/", Kind::Workflows),
        ]
    );
    assert!(found.ignored.is_empty());
    let text = found.listing();
    for line in [
        "would be used if you trust",
        "before_tool: runs `./.minke/check.sh`",
        "server x: starts `evil`",
        "scripts/run.py",
        "is used, trusted or not:\n  .minke/policy.toml",
        "is not used by Minke:\n  .claude/hooks",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(found.text(".minke/hooks.toml").map(|text| text.contains("check.sh")), Some(true));
    assert_eq!(found.text(".minke/check.sh"), None);
}

#[test]
fn a_workspace_without_anything_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "src/main.rs", "");
    put(dir.path(), ".git/config", "");
    fs::create_dir(dir.path().join(".minke")).unwrap();
    fs::create_dir_all(dir.path().join(".claude/skills/empty")).unwrap();
    let found = look(dir.path());
    assert!(found.items.is_empty() && found.ignored.is_empty(), "{found:?}");
    assert_eq!(found.listing(), "");
    assert_eq!(look(&dir.path().join("nowhere")).items.len(), 0);
}

/// One hostile thing in a workspace, and how it is named.
type Trap = (&'static str, fn(&Path), &'static str);

const TRAPS: [Trap; 24] = [
    (
        "link to a secret",
        |at| link(at, "/etc/shadow", ".minke/hooks.toml"),
        ".minke/hooks.toml (a symbolic link",
    ),
    ("dead link", |at| link(at, "/no/where", ".mcp.json"), ".mcp.json (a symbolic link"),
    ("link to itself", |at| link(at, "hooks.toml", ".minke/hooks.toml"), "(a symbolic link"),
    ("magic link", |at| link(at, "/proc/self/fd/0", ".minke/hooks.toml"), "(a symbolic link"),
    ("a whole linked directory", |at| link(at, "/etc", ".minke"), ".minke (a symbolic link"),
    ("linked skills", |at| link(at, "/usr/share", ".claude/skills"), ".claude/skills (a symbolic link"),
    (
        "link inside a skill",
        |at| link(at, "/etc/passwd", ".agents/skills/a/run.sh"),
        "a/run.sh (a symbolic link",
    ),
    ("directory loop", |at| link(at, "..", ".agents/skills/a/again"), "a/again (a symbolic link"),
    ("fifo", |at| make(at, ".minke/hooks.toml", rustix::fs::FileType::Fifo, 0o644), "hooks.toml (a FIFO)"),
    ("fifo at the top", |at| make(at, ".minke", rustix::fs::FileType::Fifo, 0o644), ".minke (a FIFO)"),
    (
        "fifo in a skill",
        |at| make(at, ".claude/skills/a/x", rustix::fs::FileType::Fifo, 0o644),
        "a/x (a FIFO)",
    ),
    (
        "socket",
        |at| make(at, ".minke/hooks.toml", rustix::fs::FileType::Socket, 0o644),
        "hooks.toml (a socket)",
    ),
    (
        "open socket at the top",
        |at| make(at, ".mcp.json", rustix::fs::FileType::Socket, 0o644),
        ".mcp.json (a socket)",
    ),
    (
        "directory",
        |at| drop(put(at, ".minke/hooks.toml/x", "")),
        "hooks.toml (a directory where a file belongs)",
    ),
    ("file", |at| drop(put(at, ".minke", "")), ".minke (a file where a directory belongs)"),
    ("sparse", |at| sparse(at, ".minke/hooks.toml"), "hooks.toml (longer than"),
    ("sparse profile", |at| sparse(at, ".minke/profiles/a.lua"), "profiles/a.lua (longer than"),
    ("sparse other", |at| sparse(at, ".minke/big"), ".minke/big (longer than"),
    (
        "not text",
        |at| fs::write(put(at, ".minke/hooks.toml", ""), b"\xff\xfe").unwrap(),
        "hooks.toml (not UTF-8",
    ),
    (
        "escape in a name",
        |at| drop(put(at, ".claude/skills/a\u{1b}[2J/x.sh", "")),
        "a\\u{1b}[2J (a name with",
    ),
    ("line break in a name", |at| drop(put(at, ".minke/a\nb", "")), ".minke/a\\nb (a name with"),
    (
        "name that is no text",
        |at| {
            let name = std::ffi::OsStr::from_bytes(b".minke/a\xff");
            put(at, ".minke/x", "");
            fs::write(at.join(name), "").unwrap();
        },
        ".minke/a\\xff (a name with",
    ),
    (
        "deep",
        |at| drop(put(at, &format!(".claude/skills/{}x.sh", "d/".repeat(300)), "")),
        "directories below each other",
    ),
    (
        "many",
        |at| {
            for n in 0..2_000 {
                put(at, &format!(".claude/skills/a/{n}.sh"), "");
            }
        },
        ".claude/skills/a (a directory of more than",
    ),
];

fn link(at: &Path, target: &str, name: &str) {
    let path = at.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

#[test]
fn whatever_lies_there_the_look_ends_and_names_it() {
    for (what, lay, named) in TRAPS {
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path());
        let began = Instant::now();
        let found = look(dir.path());
        let took = began.elapsed();
        let told = found.notices(&minke_trust::Standing::Nothing).join("\n");
        assert!(told.contains(named), "{what}: {told:?} of {found:?}");
        assert!(took < LOOK_TIME, "{what}: {took:?}");
        assert!(!found.listing().contains("root:"), "{what}");
        assert!(found.listing().contains("is never used:"), "{what}");
    }
}

#[test]
fn bounds_hold_for_the_whole_look() {
    let dir = tempfile::tempdir().unwrap();
    for skill in 0..300 {
        put(dir.path(), &format!(".agents/skills/s{skill}/run.sh"), "x");
    }
    let found = look(dir.path());
    assert_eq!(found.items.len(), 256);
    assert_eq!((found.ignored.len(), found.left_alone()), (44, 44));
    let dir = tempfile::tempdir().unwrap();
    for file in 0..257 {
        put(dir.path(), &format!(".agents/skills/s/{file}.sh"), "x");
    }
    assert!(matches!(ignored(&look(dir.path()))[..], [(".agents/skills/s", Why::TooMuch(_))]));
    let dir = tempfile::tempdir().unwrap();
    for file in 0..9 {
        put(
            dir.path(),
            &format!(".minke/profiles/{file}.lua"),
            &"x".repeat(usize::try_from(FILE_BYTES).unwrap()),
        );
    }
    let found = look(dir.path());
    assert!(found.items.is_empty(), "{:?}", kinds(&found));
    assert!(matches!(ignored(&found)[..], [(".minke/profiles", Why::TooMuch(_))]));
    // What can be named is bounded too.
    let dir = tempfile::tempdir().unwrap();
    for file in 0..200 {
        link(dir.path(), "x", &format!(".minke/{file}"));
    }
    let found = look(dir.path());
    assert_eq!((found.ignored.len(), found.unnamed), (64, 136));
    assert!(found.notices(&minke_trust::Standing::Nothing)[0].ends_with("and 196 more"));
}

/// While another pod's command runs, names that it must not make are held by sockets that nobody may open.
#[test]
fn what_a_fence_holds_meanwhile_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".minke", ".mcp.json", ".agents", ".claude"] {
        make(dir.path(), name, rustix::fs::FileType::Socket, 0);
    }
    let found = look(dir.path());
    assert!(found.items.is_empty() && found.ignored.is_empty(), "{found:?}");
    assert_eq!(read(dir.path(), ".minke/policy.toml".as_ref(), 64), Ok(None));
}

#[test]
fn the_hash_is_over_content_and_nothing_else() {
    let make = |order: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        for name in order {
            put(dir.path(), name, name);
        }
        dir
    };
    let names = [".minke/hooks.toml", ".mcp.json", ".minke/lib/a.sh", ".claude/skills/x/b.sh"];
    let (one, two) = (make(&names), make(&[names[3], names[1], names[2], names[0]]));
    let hash = look(one.path()).hash;
    assert_eq!(hash, look(two.path()).hash);
    // Of another kind of use: no part of it.
    put(one.path(), ".minke/policy.toml", "x");
    put(one.path(), ".claude/settings.json", "x");
    put(one.path(), ".minke/memory/x", "x");
    put(one.path(), ".claude/skills/text/SKILL.md", "x");
    put(one.path(), "src/main.rs", "x");
    assert_eq!(hash, look(one.path()).hash);
    for name in names {
        put(one.path(), name, "other");
        assert_ne!(hash, look(one.path()).hash, "{name}");
        put(one.path(), name, name);
        assert_eq!(hash, look(one.path()).hash, "{name}");
    }
    let script = one.path().join(".minke/lib/a.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(hash, look(one.path()).hash, "permission to execute counts");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(one.path().join(".minke/lib"), one.path().join(".minke/lic")).unwrap();
    assert_ne!(hash, look(one.path()).hash, "a name counts");
    fs::rename(one.path().join(".minke/lic"), one.path().join(".minke/lib")).unwrap();
    // Content that moves from one file to the next is other content.
    fs::rename(&script, one.path().join(".minke/lib/b.sh")).unwrap();
    assert_ne!(hash, look(one.path()).hash);
}

#[test]
fn one_file_is_read_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    put(at, "sub/deep/AGENTS.md", "text");
    let get = |name: &str| read(at, Path::new(name), 64);
    assert_eq!(get("sub/deep/AGENTS.md"), Ok(Some("text".to_owned())));
    assert_eq!(get("./sub/./deep/AGENTS.md"), Ok(Some("text".to_owned())));
    assert_eq!(get("none"), Ok(None));
    assert_eq!(get("none/none"), Ok(None));
    assert_eq!(get("sub/deep/AGENTS.md/none"), Ok(None));
    assert_eq!(get(&"x".repeat(5_000)), Ok(None));
    assert_eq!(read(&at.join("nowhere"), Path::new("x"), 64), Ok(None));
    for outside in ["../x", "sub/../../x", "/etc/passwd", "", ".", "sub/.."] {
        assert_eq!(get(outside).unwrap_err().why, Why::Outside, "{outside}");
    }
    put(at, "long", &"x".repeat(65));
    put(at, "fits", &"x".repeat(64));
    assert_eq!(get("long").unwrap_err().to_string(), "long is not used: longer than 64 bytes");
    assert!(get("fits").is_ok());
    sparse(at, "sparse");
    assert_eq!(get("sparse").unwrap_err().why, Why::TooLong { max: 64 });
    link(at, "sub", "way");
    link(at, "deep/AGENTS.md", "sub/link");
    assert_eq!(get("way/deep/AGENTS.md").unwrap_err().why, Why::Link);
    assert_eq!(get("sub/link").unwrap_err().why, Why::Link);
    make(at, "fifo", rustix::fs::FileType::Fifo, 0o644);
    assert_eq!(get("fifo").unwrap_err().why, Why::Kind("a FIFO"));
    assert!(matches!(get("sub").unwrap_err().why, Why::Kind(_)));
    fs::write(at.join("bytes"), b"\xff").unwrap();
    assert_eq!(get("bytes").unwrap_err().why, Why::NotText);
    assert!(get("a\u{1b}b/../x").unwrap_err().to_string().starts_with("a\\u{1b}b/../x is"));
}

#[test]
fn what_may_not_be_read_is_named() {
    if rustix::process::geteuid().is_root() {
        // Nothing is forbidden to root; a mount that is not ours is.
        let why = read(Path::new("/"), Path::new("proc/version"), 4096).unwrap_err().why;
        assert_eq!(why, Why::Mounted);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), ".minke/hooks.toml", "");
    fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
    assert!(matches!(ignored(&look(dir.path()))[..], [(".minke/hooks.toml", Why::Unreadable(_))]));
}

/// Somebody exchanges file, directory and links while we read: what comes back is from inside, or nothing.
#[test]
fn no_swap_leads_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
    put(&outside, "hooks.toml", "OUTSIDE");
    put(&inside, "real/hooks.toml", "inside");
    link(&inside, "../out", "fake");
    put(&inside, ".minke/hooks.toml", "inside");
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
        let mut seen = 0;
        while Instant::now() < end {
            if let Ok(Some(text)) = read(&inside, Path::new(".minke/hooks.toml"), 64) {
                assert_eq!(text, "inside");
                seen += 1;
            }
            let found = look(&inside);
            assert_ne!(found.text(".minke/hooks.toml"), Some("OUTSIDE"));
        }
        over.store(true, Ordering::Relaxed);
        assert!(seen > 0);
        swapping.join().unwrap()
    });
    assert!(swaps > 10, "{swaps}");
}

/// A FIFO that takes the place of a file between the look and the opening is not waited for.
#[test]
fn a_fifo_that_slips_in_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_owned();
    put(&at, "file", "inside");
    make(&at, "other", rustix::fs::FileType::Fifo, 0o644);
    let (tell, told) = std::sync::mpsc::channel();
    let reading = at.clone();
    // Not joined: a reader that waits for ever is what must not be, and would hold the test up, too.
    std::thread::spawn(move || {
        let end = Instant::now() + Duration::from_millis(400);
        let mut slipped = 0;
        while Instant::now() < end {
            slipped += u32::from(read(&reading, Path::new("file"), 64).is_err());
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
            Err(_) => assert!(Instant::now() < deadline, "the reader waits for somebody to write"),
        }
    };
    assert!(slipped > 0);
}

#[test]
fn every_kind_says_when_and_what() {
    let gated = [
        Kind::Hooks,
        Kind::Servers,
        Kind::Profiles,
        Kind::Prompts,
        Kind::Workflows,
        Kind::Settings,
        Kind::Skill,
    ];
    assert!(gated.iter().all(|kind| kind.when() == Use::Trusted && !kind.what().is_empty()));
    assert_eq!((Kind::Rules.when(), Kind::TextSkill.when()), (Use::AtOnce, Use::AtOnce));
    assert_eq!((Kind::Other.when(), Kind::Foreign.when()), (Use::Along, Use::Never));
}

#[test]
fn a_look_is_quick() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), ".minke/hooks.toml", "");
    put(dir.path(), ".mcp.json", "{}");
    for skill in 0..10 {
        for file in 0..10 {
            put(dir.path(), &format!(".claude/skills/s{skill}/{file}.py"), &"x = 1\n".repeat(500));
        }
    }
    let began = Instant::now();
    let found = look(dir.path());
    let took = began.elapsed();
    eprintln!("102 files: {took:?}");
    assert_eq!(found.items.len(), 12);
    assert!(took < Duration::from_millis(500), "{took:?}");
}
