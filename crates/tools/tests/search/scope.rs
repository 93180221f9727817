//! What lies outside of the scope is neither listed nor searched, whoever changes the tree meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, TmpAlias};
use minke_record::{Permission, Scope, ScopeRule};
use serde_json::json;

use crate::{Tools, home};

fn rule(target: &Path, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: target.to_str().unwrap().to_owned(), permission, recursive }
}

fn write(path: PathBuf, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// What both tools see of files that hold `hit`.
async fn seen(tools: &Tools, path: &str) -> Vec<String> {
    let found = tools.lines("Grep", json!({"pattern": "hit", "path": path})).await;
    let mut listed = tools.lines("Glob", json!({"pattern": "**", "path": path})).await;
    listed.sort();
    assert_eq!(found, listed, "both see the same");
    found
}

#[tokio::test]
async fn denied_and_hidden_places_are_passed_by() {
    let (_home, root) = home();
    for name in ["open/a", "shut/b", "open/shut/c", "vault/d", "open/key", "lent/e", "flat/f", "flat/deep/g"]
    {
        write(root.join(name), "hit");
    }
    let read = |name: &str, recursive| rule(&root.join(name), Permission::Read, recursive);
    let scope = Scope {
        allow: vec![
            rule(&root, Permission::Read, false),
            read("open", true),
            read("shut", true),
            read("vault", true),
            read("flat", false),
            rule(&root.join("lent"), Permission::Write, true),
        ],
        deny: vec![
            read("shut", true),
            read("open/shut", true),
            // A loan that is out: it may still be read.
            rule(&root.join("lent"), Permission::Write, true),
        ],
    };
    let masked = vec![root.join("vault"), root.join("open/key")];
    let tools = Tools::over(FilesConfig { scope, masked, ..FilesConfig::default() }, &root);
    assert_eq!(seen(&tools, ".").await, ["flat/f", "lent/e", "open/a"]);
    assert_eq!(seen(&tools, "flat").await, ["flat/f"]);
    // A direct child of a grant that is not recursive may be looked into, but nothing in it may be read.
    assert_eq!(seen(&tools, "flat/deep").await, Vec::<String>::new());
    for shut in ["shut", "open/shut", "vault", "open/key"] {
        for tool in ["Grep", "Glob"] {
            let e = tools.run(tool, json!({"pattern": "hit", "path": shut})).await.unwrap_err();
            let text = e.message();
            assert!(
                text.contains("outside of the scope") || text.contains("hidden from agents"),
                "{shut}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn a_changed_scope_holds_from_the_next_call_on() {
    let (_home, root) = home();
    write(root.join("a/x"), "hit");
    write(root.join("b/y"), "hit");
    let tools = Tools::at(&root);
    assert_eq!(seen(&tools, ".").await, ["a/x", "b/y"]);
    tools.files.set_scope(&Scope::write(root.join("a").to_str().unwrap())).unwrap();
    assert!(tools.run("Grep", json!({"pattern": "hit"})).await.is_err());
    assert_eq!(seen(&tools, "a").await, ["a/x"]);
}

#[tokio::test]
async fn ignore_files_above_the_scope_are_not_read_but_the_repository_is_seen() {
    let (_home, root) = home();
    fs::create_dir(root.join(".git")).unwrap();
    write(root.join(".gitignore"), "*.txt\n");
    write(root.join("sub/.gitignore"), "*.log\n");
    write(root.join("sub/deep/a.txt"), "hit");
    write(root.join("sub/deep/b.log"), "hit");
    let deep = root.join("sub/deep");
    assert_eq!(seen(&Tools::at(&root), "sub/deep").await, Vec::<String>::new());
    let narrow = Tools::over(
        FilesConfig { scope: Scope::write(root.join("sub").to_str().unwrap()), ..FilesConfig::default() },
        &deep,
    );
    assert_eq!(seen(&narrow, ".").await, ["a.txt"]);
}

/// The temporary directory and spilled output are beside the scope, and here all of them lie below `/tmp` themselves.
#[tokio::test]
async fn the_pods_own_directories_are_searched_under_the_names_that_the_shell_has_for_them() {
    let (_home, root) = home();
    for dir in ["work", "pod/tmp", "pod/output", "pod/secret"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    write(root.join("pod/tmp/scratch"), "hit");
    write(root.join("pod/output/call-1"), "hit");
    write(root.join("pod/secret/key"), "hit");
    let config = FilesConfig {
        scope: Scope::write(root.join("work").to_str().unwrap()),
        tmp: Some(TmpAlias { shown: root.clone(), real: root.join("pod/tmp") }),
        tmp_dir: Some(root.join("pod/tmp")),
        output: Some(root.join("pod/output")),
        masked: vec![root.join("pod")],
        ..FilesConfig::default()
    };
    let tools = Tools::over(config, &root.join("work"));
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    assert_eq!(seen(&tools, &at("")).await, [at("scratch")]);
    assert_eq!(seen(&tools, &at("pod/output")).await, [at("pod/output/call-1")]);
    assert_eq!(seen(&tools, &at("pod/tmp")).await, [at("pod/tmp/scratch")]);
    assert!(tools.run("Grep", json!({"pattern": "hit", "path": at("pod/secret")})).await.is_err());
}

/// How long somebody swaps directories under the search; `MINKE_LONG` makes it a minute.
fn race_time() -> Duration {
    Duration::from_secs(if std::env::var_os("MINKE_LONG").is_some() { 60 } else { 2 })
}

#[cfg(target_os = "linux")]
#[test]
fn a_swapped_directory_shows_nothing_outside() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let (_home, home) = home();
    let root = home.join("in");
    for n in 0..20 {
        write(root.join(format!("dir/sub/inside-{n}.txt")), "word inside");
        write(home.join(format!("out/sub/CANARY-{n}.txt")), "word CANARY");
    }
    write(home.join("out/CANARY.txt"), "word CANARY");
    symlink(home.join("out"), root.join("dir-link")).unwrap();
    symlink(home.join("out/CANARY.txt"), root.join("dir/file-link")).unwrap();
    write(root.join("dir/file"), "word inside");
    let tools = Tools::at(&root);
    let done = AtomicBool::new(false);
    let (mut calls, mut all, mut some) = (0_u32, 0_u32, 0_u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let swap = |a: PathBuf, b: PathBuf| renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
            while !done.load(Ordering::Relaxed) {
                swap(root.join("dir"), root.join("dir-link"));
                swap(root.join("dir"), root.join("dir-link"));
                swap(root.join("dir/file"), root.join("dir/file-link"));
                swap(root.join("dir/file"), root.join("dir/file-link"));
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let race = async {
            let end = Instant::now() + race_time();
            while Instant::now() < end {
                for (tool, arguments) in [
                    ("Grep", json!({"pattern": "word", "output_mode": "content"})),
                    ("Glob", json!({"pattern": "**"})),
                ] {
                    let output = tools.run(tool, arguments).await.unwrap();
                    let content = output.content.unwrap_or_default();
                    assert!(!content.contains("CANARY"), "{tool} went outside: {content}");
                    calls += 1;
                    if content.lines().count() >= 20 { all += 1 } else { some += 1 }
                }
            }
        };
        let raced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(race)));
        done.store(true, Ordering::Relaxed);
        raced.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    eprintln!("{calls} calls, {all} that saw the directory and {some} that met a link, none went outside");
    assert!(all > 0 && some > 0, "nobody raced: {all} and {some}");
}
