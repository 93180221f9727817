//! Trust by path and content, and a store that other users cannot write.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use minke_config::trust::{TrustChangeKind, TrustError, TrustStatus, TrustStore, scan_workspace};

fn write_file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn change_list(status: TrustStatus) -> Vec<(String, TrustChangeKind)> {
    match status {
        TrustStatus::Changed(changes) => {
            changes.into_iter().map(|change| (change.path, change.kind)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_of_anything_that_counts_asks_again() {
    let dir = tempfile::tempdir().unwrap();
    let (work, store) = (dir.path().join("work"), TrustStore::in_data_dir(&dir.path().join("data")));
    fs::create_dir(&work).unwrap();
    assert_eq!(store.trust_status(&scan_workspace(&work)).unwrap(), TrustStatus::NotNeeded);
    write_file(&work, ".minke/policy.toml", "");
    write_file(&work, ".minke/readme", "");
    assert_eq!(
        store.trust_status(&scan_workspace(&work)).unwrap(),
        TrustStatus::NotNeeded,
        "nothing here needs trust"
    );
    write_file(&work, ".minke/hooks.toml", "a = 1");
    write_file(&work, ".claude/skills/x/run.sh", "one");
    let inventory = scan_workspace(&work);
    assert_eq!(store.trust_status(&inventory).unwrap(), TrustStatus::Unknown);
    assert_eq!(
        inventory.trust_notices(&TrustStatus::Unknown),
        [
            "this workspace contains .claude/skills/x/, .minke/hooks.toml: ignored until you trust it (`minke trust`)"
        ]
    );
    store.add_workspace(&inventory, 7).unwrap();
    assert_eq!(store.trust_status(&scan_workspace(&work)).unwrap(), TrustStatus::Trusted);
    assert!(inventory.trust_notices(&TrustStatus::Trusted).is_empty());
    write_file(&work, ".minke/policy.toml", "changed");
    assert!(
        store.trust_status(&scan_workspace(&work)).unwrap().is_trusted(),
        "rules that only tighten are always used"
    );

    write_file(&work, ".minke/hooks.toml", "a = 2");
    write_file(&work, ".minke/readme", "a script by now");
    write_file(&work, ".mcp.json", "{}");
    fs::remove_dir_all(work.join(".claude")).unwrap();
    let inventory = scan_workspace(&work);
    let status = store.trust_status(&inventory).unwrap();
    assert_eq!(
        inventory.trust_notices(&status),
        [
            "trusted files of this workspace have changed (.mcp.json is new, .minke/hooks.toml changed, .minke/readme changed, .claude/skills/x/ was removed): ignored until you trust it again (`minke trust`)",
            ".mcp.json names MCP servers: this version does not start them"
        ]
    );
    assert_eq!(
        inventory.trust_notices(&TrustStatus::Trusted),
        [".mcp.json names MCP servers: this version does not start them"],
        "trust does not make it silent"
    );
    assert!(
        inventory.to_listing().contains("is not used yet:\n  .mcp.json names MCP servers"),
        "{}",
        inventory.to_listing()
    );
    let changed = change_list(status);
    assert_eq!(changed.len(), 4);
    assert!(changed.contains(&(".claude/skills/x/".to_owned(), TrustChangeKind::Removed)));
    // The trusted content is the displayed one, not the current one.
    write_file(&work, ".mcp.json", "{\"later\":1}");
    store.add_workspace(&inventory, 8).unwrap();
    assert_eq!(
        change_list(store.trust_status(&scan_workspace(&work)).unwrap()),
        [(".mcp.json".to_owned(), TrustChangeKind::Changed)]
    );
    assert_eq!(store.list_workspaces().unwrap().len(), 1);
}

#[test]
fn trust_is_of_one_path() {
    let dir = tempfile::tempdir().unwrap();
    let store = TrustStore::in_data_dir(&dir.path().join("data"));
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    for work in [&one, &two, &one.join("sub")] {
        write_file(work, ".minke/hooks.toml", "same");
    }
    store.add_workspace(&scan_workspace(&one), 1).unwrap();
    assert_eq!(store.trust_status(&scan_workspace(&two)).unwrap(), TrustStatus::Unknown);
    assert_eq!(store.trust_status(&scan_workspace(&one.join("sub"))).unwrap(), TrustStatus::Unknown);
    // A link to the workspace resolves to the same path.
    symlink(&one, dir.path().join("link")).unwrap();
    assert_eq!(store.trust_status(&scan_workspace(&dir.path().join("link"))).unwrap(), TrustStatus::Trusted);
    assert!(store.remove_workspace(&one.canonicalize().unwrap()).unwrap());
    assert!(!store.remove_workspace(&one.canonicalize().unwrap()).unwrap());
    assert_eq!(store.trust_status(&scan_workspace(&one)).unwrap(), TrustStatus::Unknown);
}

#[test]
fn a_damaged_file_trusts_nobody_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (work, store) = (dir.path().join("work"), TrustStore::in_data_dir(&dir.path().join("data")));
    write_file(&work, ".minke/hooks.toml", "");
    let inventory = scan_workspace(&work);
    store.add_workspace(&inventory, 1).unwrap();
    let good = fs::read_to_string(store.path()).unwrap();
    let cut = good.get(..good.len() / 2).unwrap();
    let newer = good.replace("\"version\": 1", "\"version\": 2");
    let unknown = good.replace("\"version\": 1", "\"version\": 1, \"all\": true");
    for bad in ["", "null", "[]", "{}", cut, &newer, &unknown, &"[".repeat(100_000), "\u{0}"] {
        fs::write(store.path(), bad).unwrap();
        for failed in [
            store.trust_status(&inventory).map(drop),
            store.add_workspace(&inventory, 1),
            store.remove_workspace(&work).map(drop),
            store.list_workspaces().map(drop),
        ] {
            let error = failed.unwrap_err();
            assert!(matches!(error, TrustError::Damaged { .. }), "{error:?}");
            assert!(error.hint().contains("trust your workspaces again"), "{}", error.hint());
        }
        assert_eq!(fs::read_to_string(store.path()).unwrap(), bad, "it is left as it is");
    }
    fs::File::options().write(true).open(store.path()).unwrap().set_len(10 << 30).unwrap();
    assert!(matches!(store.list_workspaces(), Err(TrustError::Damaged { .. })));
}

#[test]
fn only_a_private_file_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (work, store) = (dir.path().join("work"), TrustStore::in_data_dir(&dir.path().join("data")));
    write_file(&work, ".minke/hooks.toml", "");
    let inventory = scan_workspace(&work);
    store.add_workspace(&inventory, 1).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(store.path()), mode(store.path().parent().unwrap())), (0o600, 0o700));
    let refuses = |what: &str| {
        assert!(matches!(store.trust_status(&inventory), Err(TrustError::NotPrivate { .. })), "{what}");
        assert!(matches!(store.add_workspace(&inventory, 2), Err(TrustError::NotPrivate { .. })), "{what}");
    };
    for open in [0o620, 0o602, 0o666] {
        fs::set_permissions(store.path(), fs::Permissions::from_mode(open)).unwrap();
        refuses("others can write");
    }
    let aside = dir.path().join("aside.json");
    fs::set_permissions(store.path(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(store.path(), &aside).unwrap();
    symlink(&aside, store.path()).unwrap();
    refuses("a link");
    fs::remove_file(store.path()).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, store.path(), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    refuses("a FIFO");
    fs::remove_file(store.path()).unwrap();
    // A leftover of a crash, even a link, is not written through.
    let victim = write_file(dir.path(), "victim", "mine");
    symlink(&victim, store.path().with_extension("json.new")).unwrap();
    store.add_workspace(&inventory, 3).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(store.trust_status(&inventory).unwrap(), TrustStatus::Trusted);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(store.path(), Some(65_534), None).unwrap();
        refuses("a foreign file");
    }
}

#[test]
fn many_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = TrustStore::in_data_dir(&dir.path().join("data"));
    let inventory: Vec<_> = (0..24)
        .map(|n| {
            let work = dir.path().join(format!("w{n}"));
            write_file(&work, ".minke/hooks.toml", "");
            scan_workspace(&work)
        })
        .collect();
    std::thread::scope(|scope| {
        for some in inventory.chunks(6) {
            let store = &store;
            scope.spawn(move || {
                for found in some {
                    store.add_workspace(found, 1).unwrap();
                    store.trust_status(found).unwrap();
                }
            });
        }
    });
    assert_eq!(store.list_workspaces().unwrap().len(), 24);
    assert!(inventory.iter().all(|found| store.trust_status(found).unwrap().is_trusted()));
}
