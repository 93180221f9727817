//! Nothing outside the scope is listed or searched, even if the tree changes concurrently.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, TmpAlias};
use minke_record::{Permission, Scope, ScopeRule};
use serde_json::json;

use crate::{Tools, home};

fn scope_rule(target: &Path, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: target.to_str().unwrap().to_owned(), permission, recursive }
}

fn write_file(path: PathBuf, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Returns the files with `hit` that both tools find.
async fn visible_files(tools: &Tools, path: &str) -> Vec<String> {
    let found = tools.lines("Grep", json!({"pattern": "hit", "path": path})).await;
    let mut listed = tools.lines("Glob", json!({"pattern": "**", "path": path})).await;
    listed.sort();
    assert_eq!(found, listed, "both tools find the same files");
    found
}

#[tokio::test]
async fn denied_and_hidden_places_are_passed_by() {
    let (_home, root) = home();
    for name in ["open/a", "shut/b", "open/shut/c", "vault/d", "open/key", "lent/e", "flat/f", "flat/deep/g"]
    {
        write_file(root.join(name), "hit");
    }
    let read = |name: &str, recursive| scope_rule(&root.join(name), Permission::Read, recursive);
    let scope = Scope {
        allow: vec![
            scope_rule(&root, Permission::Read, false),
            read("open", true),
            read("shut", true),
            read("vault", true),
            read("flat", false),
            scope_rule(&root.join("lent"), Permission::Write, true),
        ],
        deny: vec![
            read("shut", true),
            read("open/shut", true),
            // A lent directory may still be read.
            scope_rule(&root.join("lent"), Permission::Write, true),
        ],
    };
    let masked = vec![root.join("vault"), root.join("open/key")];
    let tools = Tools::over(FilesConfig { scope, masked, ..FilesConfig::default() }, &root);
    assert_eq!(visible_files(&tools, ".").await, ["flat/f", "lent/e", "open/a"]);
    assert_eq!(visible_files(&tools, "flat").await, ["flat/f"]);
    // A direct child of a non-recursive grant may be opened, but its files may not be read.
    assert_eq!(visible_files(&tools, "flat/deep").await, Vec::<String>::new());
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
    write_file(root.join("a/x"), "hit");
    write_file(root.join("b/y"), "hit");
    let tools = Tools::at(&root);
    assert_eq!(visible_files(&tools, ".").await, ["a/x", "b/y"]);
    tools.files.set_scope(&Scope::writable(root.join("a").to_str().unwrap())).unwrap();
    assert!(tools.run("Grep", json!({"pattern": "hit"})).await.is_err());
    assert_eq!(visible_files(&tools, "a").await, ["a/x"]);
}

#[tokio::test]
async fn ignore_files_above_the_scope_are_not_read_but_the_repository_is_seen() {
    let (_home, root) = home();
    fs::create_dir(root.join(".git")).unwrap();
    write_file(root.join(".gitignore"), "*.txt\n");
    write_file(root.join("sub/.gitignore"), "*.log\n");
    write_file(root.join("sub/deep/a.txt"), "hit");
    write_file(root.join("sub/deep/b.log"), "hit");
    let deep = root.join("sub/deep");
    assert_eq!(visible_files(&Tools::at(&root), "sub/deep").await, Vec::<String>::new());
    let narrow = Tools::over(
        FilesConfig { scope: Scope::writable(root.join("sub").to_str().unwrap()), ..FilesConfig::default() },
        &deep,
    );
    assert_eq!(visible_files(&narrow, ".").await, ["a.txt"]);
}

/// The temporary directory and spilled output are outside the scope, and in this test all of them are below
/// `/tmp`.
#[tokio::test]
async fn the_pods_own_directories_are_searched_under_the_names_that_the_shell_has_for_them() {
    let (_home, root) = home();
    for dir in ["work", "pod/tmp", "pod/output", "pod/secret"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    write_file(root.join("pod/tmp/scratch"), "hit");
    write_file(root.join("pod/output/call-1"), "hit");
    write_file(root.join("pod/secret/key"), "hit");
    let config = FilesConfig {
        scope: Scope::writable(root.join("work").to_str().unwrap()),
        tmp: Some(TmpAlias { shown: root.clone(), real: root.join("pod/tmp") }),
        tmp_dir: Some(root.join("pod/tmp")),
        output: Some(root.join("pod/output")),
        masked: vec![root.join("pod")],
        ..FilesConfig::default()
    };
    let tools = Tools::over(config, &root.join("work"));
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    assert_eq!(visible_files(&tools, &at("")).await, [at("scratch")]);
    assert_eq!(visible_files(&tools, &at("pod/output")).await, [at("pod/output/call-1")]);
    assert_eq!(visible_files(&tools, &at("pod/tmp")).await, [at("pod/tmp/scratch")]);
    assert!(tools.run("Grep", json!({"pattern": "hit", "path": at("pod/secret")})).await.is_err());
}

/// The duration of the race; `MINKE_LONG` sets it to a minute.
fn race_duration() -> Duration {
    Duration::from_secs(if std::env::var_os("MINKE_LONG").is_some() { 60 } else { 2 })
}

#[cfg(target_os = "linux")]
#[test]
fn a_swapped_directory_shows_nothing_outside() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let (_home, home) = home();
    let root = home.join("in");
    for n in 0..20 {
        write_file(root.join(format!("dir/sub/inside-{n}.txt")), "word inside");
        write_file(home.join(format!("out/sub/CANARY-{n}.txt")), "word CANARY");
    }
    write_file(home.join("out/CANARY.txt"), "word CANARY");
    symlink(home.join("out"), root.join("dir-link")).unwrap();
    symlink(home.join("out/CANARY.txt"), root.join("dir/file-link")).unwrap();
    write_file(root.join("dir/file"), "word inside");
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
            let end = Instant::now() + race_duration();
            while Instant::now() < end {
                for (tool, arguments) in [
                    ("Grep", json!({"pattern": "word", "output_mode": "content"})),
                    ("Glob", json!({"pattern": "**"})),
                ] {
                    let output = tools.run(tool, arguments).await.unwrap();
                    let content = output.content.unwrap_or_default();
                    assert!(!content.contains("CANARY"), "{tool} left the scope: {content}");
                    calls += 1;
                    if content.lines().count() >= 20 { all += 1 } else { some += 1 }
                }
            }
        };
        let raced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(race)));
        done.store(true, Ordering::Relaxed);
        raced.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    eprintln!("{calls} calls, {all} found the directory and {some} a link, none left the scope");
    assert!(all > 0 && some > 0, "there was no race: {all} and {some}");
}
