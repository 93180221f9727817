//! Who is trusted, by path and content, and a file that nobody can slip something into.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use minke_trust::{How, Standing, TrustError, TrustStore, look};

fn put(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn changes(standing: Standing) -> Vec<(String, How)> {
    match standing {
        Standing::Changed(changes) => changes.into_iter().map(|change| (change.path, change.how)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_of_anything_that_counts_asks_again() {
    let dir = tempfile::tempdir().unwrap();
    let (work, store) = (dir.path().join("work"), TrustStore::in_data(&dir.path().join("data")));
    fs::create_dir(&work).unwrap();
    assert_eq!(store.standing(&look(&work)).unwrap(), Standing::Nothing);
    put(&work, ".minke/policy.toml", "");
    put(&work, ".minke/readme", "");
    assert_eq!(store.standing(&look(&work)).unwrap(), Standing::Nothing, "nothing here needs trust");
    put(&work, ".minke/hooks.toml", "a = 1");
    put(&work, ".claude/skills/x/run.sh", "one");
    let found = look(&work);
    assert_eq!(store.standing(&found).unwrap(), Standing::Unknown);
    assert_eq!(
        found.notices(&Standing::Unknown),
        [
            "this workspace contains .claude/skills/x/, .minke/hooks.toml: ignored until you trust it (`minke trust`)"
        ]
    );
    store.trust(&found, 7).unwrap();
    assert_eq!(store.standing(&look(&work)).unwrap(), Standing::Trusted);
    assert!(found.notices(&Standing::Trusted).is_empty());
    put(&work, ".minke/policy.toml", "changed");
    assert!(store.standing(&look(&work)).unwrap().holds(), "what only tightens counts anyway");

    put(&work, ".minke/hooks.toml", "a = 2");
    put(&work, ".minke/readme", "a script by now");
    put(&work, ".mcp.json", "{}");
    fs::remove_dir_all(work.join(".claude")).unwrap();
    let found = look(&work);
    let standing = store.standing(&found).unwrap();
    assert_eq!(
        found.notices(&standing),
        [
            "what you trusted in this workspace is not the same any more (.mcp.json is new, .minke/hooks.toml changed, .minke/readme changed, .claude/skills/x/ is gone): ignored until you trust it again (`minke trust`)",
            ".mcp.json names MCP servers: this version does not start them"
        ]
    );
    assert_eq!(
        found.notices(&Standing::Trusted),
        [".mcp.json names MCP servers: this version does not start them"],
        "trust does not make it silent"
    );
    assert!(
        found.listing().contains("is not used yet:\n  .mcp.json names MCP servers"),
        "{}",
        found.listing()
    );
    let changed = changes(standing);
    assert_eq!(changed.len(), 4);
    assert!(changed.contains(&(".claude/skills/x/".to_owned(), How::Gone)));
    // What is trusted is what was shown, not what lies there by now.
    put(&work, ".mcp.json", "{\"later\":1}");
    store.trust(&found, 8).unwrap();
    assert_eq!(changes(store.standing(&look(&work)).unwrap()), [(".mcp.json".to_owned(), How::Changed)]);
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn trust_is_of_one_path() {
    let dir = tempfile::tempdir().unwrap();
    let store = TrustStore::in_data(&dir.path().join("data"));
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    for work in [&one, &two, &one.join("sub")] {
        put(work, ".minke/hooks.toml", "same");
    }
    store.trust(&look(&one), 1).unwrap();
    assert_eq!(store.standing(&look(&two)).unwrap(), Standing::Unknown);
    assert_eq!(store.standing(&look(&one.join("sub"))).unwrap(), Standing::Unknown);
    // A link to it leads to the same place.
    symlink(&one, dir.path().join("link")).unwrap();
    assert_eq!(store.standing(&look(&dir.path().join("link"))).unwrap(), Standing::Trusted);
    assert!(store.distrust(&one.canonicalize().unwrap()).unwrap());
    assert!(!store.distrust(&one.canonicalize().unwrap()).unwrap());
    assert_eq!(store.standing(&look(&one)).unwrap(), Standing::Unknown);
}

#[test]
fn a_damaged_file_trusts_nobody_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (work, store) = (dir.path().join("work"), TrustStore::in_data(&dir.path().join("data")));
    put(&work, ".minke/hooks.toml", "");
    let found = look(&work);
    store.trust(&found, 1).unwrap();
    let good = fs::read_to_string(store.path()).unwrap();
    let cut = good.get(..good.len() / 2).unwrap();
    let newer = good.replace("\"version\": 1", "\"version\": 2");
    let unknown = good.replace("\"version\": 1", "\"version\": 1, \"all\": true");
    for bad in ["", "null", "[]", "{}", cut, &newer, &unknown, &"[".repeat(100_000), "\u{0}"] {
        fs::write(store.path(), bad).unwrap();
        for failed in [
            store.standing(&found).map(drop),
            store.trust(&found, 1),
            store.distrust(&work).map(drop),
            store.list().map(drop),
        ] {
            let error = failed.unwrap_err();
            assert!(matches!(error, TrustError::Damaged { .. }), "{error:?}");
            assert!(error.hint().contains("trust your workspaces again"), "{}", error.hint());
        }
        assert_eq!(fs::read_to_string(store.path()).unwrap(), bad, "it is left as it is");
    }
    fs::File::options().write(true).open(store.path()).unwrap().set_len(10 << 30).unwrap();
    assert!(matches!(store.list(), Err(TrustError::Damaged { .. })));
}

#[test]
fn only_a_private_file_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (work, store) = (dir.path().join("work"), TrustStore::in_data(&dir.path().join("data")));
    put(&work, ".minke/hooks.toml", "");
    let found = look(&work);
    store.trust(&found, 1).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(store.path()), mode(store.path().parent().unwrap())), (0o600, 0o700));
    let refuses = |what: &str| {
        assert!(matches!(store.standing(&found), Err(TrustError::NotPrivate { .. })), "{what}");
        assert!(matches!(store.trust(&found, 2), Err(TrustError::NotPrivate { .. })), "{what}");
    };
    for open in [0o620, 0o602, 0o666] {
        fs::set_permissions(store.path(), fs::Permissions::from_mode(open)).unwrap();
        refuses("others may write");
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
    // A leftover of a crash, even as a link, is not written through.
    let victim = put(dir.path(), "victim", "mine");
    symlink(&victim, store.path().with_extension("json.new")).unwrap();
    store.trust(&found, 3).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(store.standing(&found).unwrap(), Standing::Trusted);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(store.path(), Some(65_534), None).unwrap();
        refuses("somebody else's");
    }
}

#[test]
fn many_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = TrustStore::in_data(&dir.path().join("data"));
    let found: Vec<_> = (0..24)
        .map(|n| {
            let work = dir.path().join(format!("w{n}"));
            put(&work, ".minke/hooks.toml", "");
            look(&work)
        })
        .collect();
    std::thread::scope(|scope| {
        for some in found.chunks(6) {
            let store = &store;
            scope.spawn(move || {
                for found in some {
                    store.trust(found, 1).unwrap();
                    store.standing(found).unwrap();
                }
            });
        }
    });
    assert_eq!(store.list().unwrap().len(), 24);
    assert!(found.iter().all(|found| store.standing(found).unwrap().holds()));
}
