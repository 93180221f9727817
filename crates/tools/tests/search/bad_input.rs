//! Bad input: for any arguments and any kind of path, the tools return a useful error quickly.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use minke_tool::ToolError;
use serde_json::json;

use crate::{Tools, home};

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[tokio::test]
async fn arguments_that_cannot_be_used_are_quoted() {
    let (_home, root) = home();
    let tools = Tools::at(&root);
    let both = [
        ("", "EOF"),
        ("{", "EOF"),
        ("null", "null"),
        ("[]", "expected"),
        ("7", "7"),
        ("{}", "`pattern`"),
        (r#"{"pattern":null}"#, "null"),
        (r#"{"pattern":7}"#, "7"),
        (r#"{"pattern":["a"]}"#, "sequence"),
        (r#"{"pattern":""}"#, "`pattern` is empty"),
        (r#"{"pattern":"a\u0000b"}"#, "zero byte"),
        (r#"{"pattern":"a","pattren":"b"}"#, "`pattren`"),
        (r#"{"pattern":"a","path":""}"#, "`path` is not a path"),
        (r#"{"pattern":"a","path":7}"#, "7"),
        (r#"{"pattern":"a","path":"x\u0000"}"#, "`path` is not a path"),
        (r#"{"pattern":"a","path":"../x"}"#, "leaves the directory"),
        (r#"{"pattern":"a","path":"x/../../y"}"#, "leaves the directory"),
        ("{\"pattern\":\"\u{7f}\u{1b}", "control character"),
    ];
    let grep = [
        (r#"{"pattern":"a","output_mode":"lines"}"#, "`files_with_matches`"),
        (r#"{"pattern":"a","output_mode":3}"#, "3"),
        (r#"{"pattern":"a","-i":"yes"}"#, "yes"),
        (r#"{"pattern":"a","-A":-1}"#, "-1"),
        (r#"{"pattern":"a","-B":1.5}"#, "1.5"),
        (r#"{"pattern":"a","-C":1001}"#, "at most 1000"),
        (r#"{"pattern":"a","-C":18446744073709551615}"#, "at most 1000"),
        (r#"{"pattern":"a","-C":99999999999999999999}"#, "1e+20"),
        (r#"{"pattern":"a","head_limit":-5}"#, "-5"),
        (r#"{"pattern":"a","offset":20001}"#, "at most 20000"),
        (r#"{"pattern":"a","multiline":1}"#, "1"),
        (r#"{"pattern":"a","glob":""}"#, "`glob` is empty"),
        (r#"{"pattern":"a","glob":"a\u0000"}"#, "zero byte"),
        (r#"{"pattern":"a","type":""}"#, "`type` is ``"),
    ];
    let glob = [(r#"{"pattern":"a","include_ignored":"no"}"#, "no")];
    let cases =
        both.iter().flat_map(|(arguments, why)| [("Glob", *arguments, *why), ("Grep", *arguments, *why)]);
    let cases = cases.chain(grep.map(|(arguments, why)| ("Grep", arguments, why)));
    for (tool, arguments, why) in cases.chain(glob.map(|(arguments, why)| ("Glob", arguments, why))) {
        match tools.raw(tool, arguments).await {
            Err(ToolError::InvalidArguments(text)) => {
                assert!(text.contains(why), "{tool} {arguments}: {text}")
            }
            other => panic!("{tool} {arguments}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn huge_arguments_are_refused_in_few_words() {
    let (_home, root) = home();
    let tools = Tools::at(&root);
    let huge = "x".repeat(1_000_000);
    let nested = "(".repeat(16_000);
    let deep = format!("{}a{}", "(".repeat(8_000), ")".repeat(8_000));
    let braces = "{a,".repeat(5_000);
    for (tool, arguments) in [
        ("Glob", json!({ "pattern": huge })),
        ("Grep", json!({ "pattern": huge })),
        ("Grep", json!({ "pattern": "x", "glob": huge })),
        ("Grep", json!({ "pattern": "x", "type": huge })),
        ("Grep", json!({ "pattern": nested })),
        ("Grep", json!({ "pattern": deep })),
        ("Glob", json!({ "pattern": braces })),
    ] {
        let e = tools.run(tool, arguments).await.unwrap_err();
        assert!(matches!(e, ToolError::InvalidArguments(_)), "{tool}: {e:?}");
        assert!(e.message().len() < 2_500, "{tool}: {} bytes", e.message().len());
    }
    for tool in ["Glob", "Grep"] {
        let e = tools.run(tool, json!({ "pattern": "x", "path": huge })).await.unwrap_err();
        assert!(e.message().contains("too long") && e.message().len() < 2_000, "{tool}: {e:?}");
    }
}

#[tokio::test]
async fn paths_that_lead_nowhere_say_so() {
    let (_home, root) = home();
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("file"), "x").unwrap();
    make_fifo(&root.join("fifo"));
    let _listener = std::os::unix::net::UnixListener::bind(root.join("sock")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("b", root.join("a")).unwrap();
    symlink("a", root.join("b")).unwrap();
    symlink("nothing", root.join("broken")).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    symlink("/etc/passwd", root.join("outfile")).unwrap();
    let tools = Tools::at(&root);
    let both = [
        ("none", "no such"),
        ("dir/none/x", "no such"),
        ("file/x", "not a directory"),
        ("loop", "circle"),
        ("a", "circle"),
        ("broken", "where there is nothing"),
        ("out", "not allowed"),
        ("outfile", "not allowed"),
        ("/etc", "outside of the scope"),
        ("/etc/passwd", "outside of the scope"),
        ("/", "outside of the scope"),
        ("/proc/self", "hidden from agents"),
    ];
    let grep = [("fifo", "FIFO"), ("sock", "socket"), ("/dev/zero", "outside of the scope")];
    let glob = [("fifo", "not a directory"), ("file", "it is a file")];
    let cases = both.iter().flat_map(|(path, why)| [("Glob", *path, *why), ("Grep", *path, *why)]);
    let cases = cases.chain(grep.map(|(path, why)| ("Grep", path, why)));
    for (tool, path, why) in cases.chain(glob.map(|(path, why)| ("Glob", path, why))) {
        let ran = tokio::time::timeout(
            Duration::from_secs(10),
            tools.run(tool, json!({"pattern": ".", "path": path})),
        );
        match ran.await.expect("the search does not block") {
            Err(ToolError::ExecutionFailed(text)) => {
                assert!(text.contains(why) && text.contains(path), "{tool} {path}: {text}");
            }
            other => panic!("{tool} {path}: {other:?}"),
        }
    }
}

/// Each of these files makes a walker that opens by path block, or read endlessly.
#[tokio::test]
async fn ignore_files_that_are_no_files_hold_nobody_up() {
    let (_home, root) = home();
    fs::create_dir_all(root.join(".git/info")).unwrap();
    fs::write(root.join("a.txt"), "hit").unwrap();
    make_fifo(&root.join(".gitignore"));
    symlink("/dev/zero", root.join(".ignore")).unwrap();
    symlink("/dev/tty", root.join(".rgignore")).unwrap();
    make_fifo(&root.join(".git/info/exclude"));
    fs::create_dir_all(root.join("sub/.gitignore")).unwrap();
    fs::create_dir(root.join("huge")).unwrap();
    fs::write(root.join("huge/.gitignore"), "*.txt\n".repeat(400_000)).unwrap();
    fs::write(root.join("huge/b.txt"), "hit").unwrap();
    let tools = Tools::at(&root);
    for (tool, pattern) in [("Grep", "hit"), ("Glob", "*.txt")] {
        let ran =
            tokio::time::timeout(Duration::from_secs(10), tools.run(tool, json!({ "pattern": pattern })));
        let output = ran.await.expect("the search does not block").unwrap();
        let mut lines: Vec<&str> = output.content.as_deref().unwrap().lines().collect();
        lines.sort();
        assert_eq!(lines, ["a.txt", "huge/b.txt"], "{tool}");
        assert!(output.summary.ends_with("6 ignore files could not be used"), "{tool}: {}", output.summary);
    }
}

#[tokio::test]
async fn links_devices_and_fifos_in_a_tree_are_passed_by() {
    let (_home, root) = home();
    fs::create_dir_all(root.join("dir/deep")).unwrap();
    fs::write(root.join("dir/real.txt"), "hit").unwrap();
    make_fifo(&root.join("fifo.txt"));
    let _listener = std::os::unix::net::UnixListener::bind(root.join("sock.txt")).unwrap();
    symlink("/etc/passwd", root.join("passwd.txt")).unwrap();
    symlink("/etc", root.join("etc")).unwrap();
    symlink(".", root.join("dir/deep/again")).unwrap();
    symlink("..", root.join("dir/deep/up")).unwrap();
    symlink("real.txt", root.join("dir/link.txt")).unwrap();
    let tools = Tools::at(&root);
    for (tool, pattern) in [("Grep", "hit|root"), ("Glob", "**")] {
        let ran =
            tokio::time::timeout(Duration::from_secs(10), tools.lines(tool, json!({ "pattern": pattern })));
        assert_eq!(ran.await.expect("the search does not block"), ["dir/real.txt"], "{tool}");
    }
    // A link given as the path is followed inside the scope.
    let named = tools.lines("Grep", json!({"pattern": "hit", "path": "dir/link.txt"})).await;
    assert_eq!(named, ["dir/link.txt"]);
    let named = tools.lines("Glob", json!({"pattern": "**", "path": "dir/deep/up"})).await;
    assert_eq!(named, ["dir/deep/up/real.txt"]);
}

#[tokio::test]
async fn a_file_to_look_in_is_told_apart_from_a_wrong_path() {
    let (_home, root) = home();
    fs::write(root.join("file"), "x\n").unwrap();
    let tools = Tools::at(&root);
    let failed = async |path: &str| match tools.run("Glob", json!({"pattern": "*", "path": path})).await {
        Err(ToolError::ExecutionFailed(text)) => text,
        other => panic!("{path}: {other:?}"),
    };
    let said = failed("file").await;
    assert!(said.contains("it is a file; give the directory"), "{said}");
    let said = failed("file/below").await;
    assert!(said.contains("not a directory"), "{said}");
    let said = tools.run("Glob", json!({"pattern": "~/*.rs"})).await.unwrap().summary;
    assert!(said.contains("`~` is not the home directory"), "{said}");
    let said = tools.run("Grep", json!({"pattern": "x", "path": "~/src"})).await.unwrap_err();
    assert!(said.message().contains("write the whole path"), "{}", said.message());
}

/// A sparse file of ten gigabytes: the walk treats it as binary, and as the path it is searched up to the
/// limit. That takes too long here, so the test only cancels the call while it reads.
#[tokio::test]
async fn a_huge_file_does_not_hold_a_search() {
    let (_home, root) = home();
    fs::File::create(root.join("sparse")).unwrap().set_len(10 << 30).unwrap();
    fs::write(root.join("text"), "needle\n").unwrap();
    let tools = Tools::at(&root);
    let walked =
        tokio::time::timeout(Duration::from_secs(10), tools.lines("Grep", json!({"pattern": "needle"})));
    assert_eq!(walked.await.unwrap(), ["text"]);
    let named = tools.run("Grep", json!({"pattern": "needle", "path": "sparse"}));
    if std::env::var_os("MINKE_LONG").is_some() {
        let said = named.await.unwrap().summary;
        assert!(said.contains("of 1 file only the first 1 GiB was searched"), "{said}");
    } else {
        drop(tokio::time::timeout(Duration::from_millis(50), named).await);
    }
}
