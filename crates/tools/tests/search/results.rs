//! The results for a model: format, order, pages, and notes about omitted parts.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use minke_record::Class;
use minke_tool::ToolError;
use serde_json::json;

use crate::{Tools, home};

fn write_file(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Sets the modification time, in seconds after a fixed time.
fn set_age(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[tokio::test]
async fn both_are_pure_named_as_models_know_them_and_short() {
    let (_home, root) = home();
    let tools = Tools::at(&root);
    let names: Vec<String> = tools.tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names, ["Glob", "Grep"]);
    for tool in &tools.tools {
        let spec = tool.spec();
        assert_eq!(tool.class(), Class::Pure);
        assert!(spec.description.len() <= 600, "{}: {}", spec.name, spec.description.len());
        assert_eq!(spec.schema["additionalProperties"], false);
        let action = tool.prepare(r#"{"pattern":"x","path":"./sub"}"#, &tools.place).unwrap();
        assert_eq!(action.reads, [root.join("sub").to_string_lossy()]);
        assert!(action.writes.is_empty() && action.command.is_none() && !action.side_effects);
        let action = tool.prepare(r#"{"pattern":"x"}"#, &tools.place).unwrap();
        assert_eq!(action.reads, [root.to_string_lossy()]);
    }
}

#[tokio::test]
async fn files_come_newest_first_and_of_one_age_by_path() {
    let (_home, root) = home();
    for (name, age) in [("old.rs", 1), ("sub/new.rs", 9), ("b.rs", 5), ("a.rs", 5), ("other.py", 7)] {
        write_file(&root.join(name), "");
        set_age(&root.join(name), age);
    }
    let tools = Tools::at(&root);
    assert_eq!(
        tools.lines("Glob", json!({"pattern": "*.rs"})).await,
        ["sub/new.rs", "a.rs", "b.rs", "old.rs"]
    );
    assert_eq!(tools.lines("Glob", json!({"pattern": "*.rs", "path": "sub"})).await, ["sub/new.rs"]);
    let output = tools.run("Glob", json!({"pattern": "*.rs"})).await.unwrap();
    assert_eq!(output.summary, "4 files match `*.rs`");
    let output = tools.run("Glob", json!({"pattern": "*.py"})).await.unwrap();
    assert_eq!(output.summary, "1 file matches `*.py`");
}

#[tokio::test]
async fn a_pattern_may_spell_out_where_it_is() {
    let (_home, root) = home();
    write_file(&root.join("src/a.rs"), "");
    write_file(&root.join("src/deep/b.rs"), "");
    write_file(&root.join("#odd!.rs"), "");
    write_file(&root.join("!odd.rs"), "");
    let tools = Tools::at(&root);
    for pattern in [format!("{}/src/*.rs", root.display()), "./src/*.rs".to_owned(), "/src/*.rs".to_owned()] {
        assert_eq!(tools.lines("Glob", json!({ "pattern": pattern })).await, ["src/a.rs"], "{pattern}");
    }
    assert_eq!(tools.lines("Glob", json!({"pattern": "#*"})).await, ["#odd!.rs"]);
    assert_eq!(tools.lines("Glob", json!({"pattern": "!*"})).await, ["!odd.rs"]);
    let none = tools.run("Glob", json!({"pattern": "/etc/*.conf"})).await.unwrap();
    assert!(none.summary.contains("give the directory there") && none.content.is_none(), "{}", none.summary);
    let none = tools.run("Glob", json!({"pattern": "src/"})).await.unwrap();
    assert!(none.summary.contains("end it with `/**`"), "{}", none.summary);
}

#[tokio::test]
async fn ignored_and_hidden_files_are_listed_when_asked_for() {
    let (_home, root) = home();
    fs::create_dir(root.join(".git")).unwrap();
    write_file(&root.join(".gitignore"), "*.log\nout/\n");
    for name in ["a.log", "out/b.rs", ".github/ci.yml", ".env", "c.rs"] {
        write_file(&root.join(name), "");
    }
    let tools = Tools::at(&root);
    let list = async |pattern: &str, include_ignored: bool| {
        let arguments = json!({"pattern": pattern, "include_ignored": include_ignored});
        let mut lines = tools.lines("Glob", arguments).await;
        lines.sort();
        lines
    };
    assert_eq!(list("**", false).await, ["c.rs"]);
    assert_eq!(list("**", true).await, ["a.log", "c.rs", "out/b.rs"]);
    assert_eq!(list(".github/**", false).await, [".github/ci.yml"]);
    assert_eq!(list("**/.env", false).await, [".env"]);
    let none = tools.run("Glob", json!({"pattern": "*.log"})).await.unwrap();
    assert!(none.summary.contains("`include_ignored`"), "{}", none.summary);
}

#[tokio::test]
async fn results_look_as_rg_prints_them() {
    let (_home, root) = home();
    write_file(&root.join("b.rs"), "one\nfn two() {\n}\nfour\nfive\nfn six()");
    write_file(&root.join("a/x.rs"), "fn a\r\n");
    let tools = Tools::at(&root);
    let grep = async |more: serde_json::Value| {
        let mut arguments = json!({"pattern": "fn"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        tools.run("Grep", arguments).await.unwrap()
    };
    let output = grep(json!({})).await;
    assert_eq!(output.content.as_deref(), Some("a/x.rs\nb.rs\n"));
    assert_eq!(output.summary, "2 files match `fn`");
    let output = grep(json!({"output_mode": "content"})).await;
    assert_eq!(output.content.as_deref(), Some("a/x.rs:1:fn a\r\nb.rs:2:fn two() {\nb.rs:6:fn six()\n"));
    assert_eq!(output.summary, "3 lines of 2 files for `fn`");
    let output = grep(json!({"output_mode": "content", "-n": false, "path": "b.rs"})).await;
    assert_eq!(output.content.as_deref(), Some("b.rs:fn two() {\nb.rs:fn six()\n"));
    let output = grep(json!({"output_mode": "content", "-A": 1})).await;
    let want = "a/x.rs:1:fn a\r\n--\nb.rs:2:fn two() {\nb.rs-3-}\n--\nb.rs:6:fn six()\n";
    assert_eq!(output.content.as_deref(), Some(want));
    let output = grep(json!({"output_mode": "count"})).await;
    assert_eq!(output.content.as_deref(), Some("a/x.rs:1\nb.rs:2\n"));
    assert_eq!(output.summary, "3 matches in 2 files for `fn`");
    let output = grep(json!({"pattern": "FN", "-i": true, "glob": "!a/"})).await;
    assert_eq!(output.content.as_deref(), Some("b.rs\n"));
    let output = grep(json!({"pattern": "nothing"})).await;
    assert_eq!(
        (output.summary.as_str(), output.content),
        ("nothing matches `nothing` in 2 files searched", None)
    );
}

#[tokio::test]
async fn a_long_result_goes_on_where_it_ended() {
    let (_home, root) = home();
    for file in 0..30 {
        write_file(&root.join(format!("f{file:02}.txt")), "hit\n".repeat(20));
    }
    let tools = Tools::at(&root);
    let mut seen = Vec::new();
    let mut offset = 0;
    loop {
        let arguments =
            json!({"pattern": "hit", "output_mode": "content", "head_limit": 70, "offset": offset});
        let output = tools.run("Grep", arguments).await.unwrap();
        assert!(output.summary.starts_with("600 lines of 30 files"), "{}", output.summary);
        let content = output.content.unwrap();
        let (rows, remark) = content.trim_end().rsplit_once('\n').unwrap();
        seen.extend(rows.lines().map(str::to_owned));
        let Some((shown, next)) = remark.split_once("; continue with offset ") else { break };
        assert_eq!(shown, format!("[rows {} to {} of 600 are shown", offset + 1, offset + 70));
        offset = next.split(' ').next().unwrap().parse::<usize>().unwrap();
    }
    let want: Vec<String> =
        (0..30).flat_map(|file| (1..=20).map(move |line| format!("f{file:02}.txt:{line}:hit"))).collect();
    assert_eq!(seen, want);
    let beyond = tools.run("Grep", json!({"pattern": "hit", "offset": 30})).await.unwrap_err();
    assert!(beyond.message().contains("the result has 30 rows"), "{beyond:?}");
}

#[tokio::test]
async fn nothing_in_a_result_is_longer_than_it_may_be() {
    let (_home, root) = home();
    let line = format!("{}needle{}\n", "ä".repeat(9_000), "ö".repeat(9_000));
    write_file(&root.join("long.txt"), line.repeat(200));
    let tools = Tools::at(&root);
    let arguments = json!({"pattern": "needle", "output_mode": "content", "head_limit": 0});
    let output = tools.run("Grep", arguments).await.unwrap();
    let content = output.content.unwrap();
    assert!(content.len() <= 64 * 1024 && content.len() > 40 * 1024, "{}", content.len());
    assert!(output.summary.len() <= 200, "{}", output.summary);
    let mut rows: Vec<&str> = content.lines().collect();
    let remark = rows.pop().unwrap();
    assert!(remark.contains(&format!("continue with offset {}", rows.len())), "{remark}");
    for row in rows {
        assert!(row.len() < 1_200 && row.contains("needle") && !row.contains('\u{fffd}'), "{row}");
        assert!(row.contains(" bytes …]ä") && row.contains("[… "), "{row}");
    }
    for n in 0..1_500 {
        write_file(&root.join(format!("{}/{n}.x", "d".repeat(100))), "");
    }
    let output = tools.run("Glob", json!({"pattern": "*.x"})).await.unwrap();
    let content = output.content.unwrap();
    assert!(content.len() <= 64 * 1024 && output.summary.contains("1500 in all"), "{}", output.summary);
}

#[tokio::test]
async fn many_files_are_counted_and_the_newest_shown() {
    let (_home, root) = home();
    for n in 0..1_700_u64 {
        let path = root.join(format!("{n:04}"));
        write_file(&path, "");
        set_age(&path, (n * 7) % 1_700);
    }
    let tools = Tools::at(&root);
    let output = tools.run("Glob", json!({"pattern": "*"})).await.unwrap();
    assert_eq!(output.summary, "1000+ files match `*`, 1700 in all");
    let content = output.content.unwrap();
    let mut lines: Vec<&str> = content.lines().collect();
    assert_eq!(
        lines.pop().unwrap(),
        "[the 1000 newest files of 1700 are shown; use a narrower pattern or a `path` for the others]"
    );
    let ages: Vec<u64> = lines.iter().map(|name| name.parse::<u64>().unwrap() * 7 % 1_700).collect();
    assert_eq!(ages, (700..1_700).rev().collect::<Vec<u64>>());
}

#[tokio::test]
async fn what_cannot_be_read_is_counted_and_the_rest_is_searched() {
    let (_home, root) = home();
    write_file(&root.join("good.txt"), "hit");
    write_file(&root.join("late.txt"), [b"hit\n".repeat(40_000), b"\0".to_vec()].concat());
    fs::create_dir(root.join(".git")).unwrap();
    write_file(&root.join("sub/.gitignore"), b"caf\xe9\n");
    let tools = Tools::at(&root);
    let output = tools.run("Grep", json!({"pattern": "hit", "output_mode": "content"})).await.unwrap();
    assert!(output.summary.contains("1 ignore file could not be used"), "{}", output.summary);
    let output = tools.run("Grep", json!({"pattern": "hit"})).await.unwrap();
    assert_eq!(
        output.content.as_deref().map(|text| text.lines().collect::<Vec<_>>()),
        Some(vec!["good.txt", "late.txt"])
    );
    // Permissions do not restrict root.
    if rustix::process::geteuid().is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;
    write_file(&root.join("shut.txt"), "hit");
    fs::create_dir(root.join("shut")).unwrap();
    for shut in ["shut.txt", "shut"] {
        fs::set_permissions(root.join(shut), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let output = tools.run("Grep", json!({"pattern": "hit"})).await.unwrap();
    assert!(
        output.summary.contains("1 file could not be read; 1 directory could not be listed"),
        "{}",
        output.summary
    );
    fs::set_permissions(root.join("shut"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_named_file_is_searched_whatever_the_ignore_files_say() {
    let (_home, root) = home();
    fs::create_dir(root.join(".git")).unwrap();
    write_file(&root.join(".gitignore"), "*.log\n");
    write_file(&root.join(".hidden/a.log"), "hit\n");
    write_file(&root.join("bin"), b"hit\n\0\nhit\n");
    let tools = Tools::at(&root);
    let found = tools
        .lines("Grep", json!({"pattern": "hit", "path": ".hidden/a.log", "output_mode": "content"}))
        .await;
    assert_eq!(found, [".hidden/a.log:1:hit"]);
    let found = tools.lines("Grep", json!({"pattern": "hit", "path": "bin", "output_mode": "count"})).await;
    assert_eq!(found, ["bin:2"]);
    let found = tools.lines("Grep", json!({"pattern": "hit", "path": "bin", "output_mode": "content"})).await;
    assert_eq!(found, ["bin: [matches, but is not text from byte 4 on]"]);
}

#[tokio::test]
async fn names_that_would_break_a_line_are_shown_escaped() {
    let (_home, root) = home();
    write_file(&root.join("a\nfake.rs:1:hit"), "hit\n");
    let tools = Tools::at(&root);
    assert_eq!(tools.lines("Grep", json!({"pattern": "hit"})).await, ["a\\nfake.rs:1:hit"]);
    assert_eq!(tools.lines("Glob", json!({"pattern": "*"})).await, ["a\\nfake.rs:1:hit"]);
}

#[tokio::test]
async fn a_bad_pattern_is_explained() {
    let (_home, root) = home();
    write_file(&root.join("a"), "x");
    let tools = Tools::at(&root);
    for (arguments, why) in [
        (json!({"pattern": "fn main("}), "put a backslash before"),
        (json!({"pattern": "a\\nb"}), "set `multiline` to true"),
        (json!({"pattern": "(?=x)"}), "without look-around"),
        (json!({"pattern": "(a)\\1"}), "without look-around and backreferences"),
        (json!({"pattern": "\\x00"}), "zero bytes are not searched"),
        (json!({"pattern": "(\\w{500}){500}"}), "smaller repetitions"),
        (json!({"pattern": "x", "glob": "a{b"}), "`glob` is `a{b`"),
        (json!({"pattern": "x", "type": "rs"}), "`*.rs` files are of type `rust`"),
        (json!({"pattern": "x", "type": "klingon"}), "use `glob` for the rest"),
    ] {
        match tools.run("Grep", arguments.clone()).await {
            Err(ToolError::InvalidArguments(text)) => assert!(text.contains(why), "{arguments}: {text}"),
            other => panic!("{arguments}: {other:?}"),
        }
    }
    for (pattern, why) in
        [("a{b", "`pattern` is `a{b`"), ("[a", "is not valid"), ("../*.rs", "leaves the directory with `..`")]
    {
        match tools.run("Glob", json!({ "pattern": pattern })).await {
            Err(ToolError::InvalidArguments(text)) => assert!(text.contains(why), "{pattern}: {text}"),
            other => panic!("{pattern}: {other:?}"),
        }
    }
}
