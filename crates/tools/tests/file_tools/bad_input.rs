//! Bad input to every file tool: each gets an answer that a model can act on, soon, and nothing changes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use minke_tool::ToolError;
use serde_json::{Value, json};

use crate::desk::Desk;

const TOOLS: [&str; 4] = ["Read", "Write", "Edit", "MultiEdit"];

/// Arguments that are right but for the path.
fn with_path(tool: &str, path: Value) -> Value {
    match tool {
        "Read" => json!({"file_path": path}),
        "Write" => json!({"file_path": path, "content": "new\n"}),
        "Edit" => json!({"file_path": path, "old_string": "old", "new_string": "new"}),
        _ => json!({"file_path": path, "edits": [{"old_string": "old", "new_string": "new"}]}),
    }
}

#[tokio::test]
async fn arguments_that_are_wrong_are_named() {
    let desk = Desk::new();
    desk.put("f", "old\n");
    for tool in TOOLS {
        let good = with_path(tool, json!("f"));
        let mut cases: Vec<(String, String)> =
            ["", "{", "[]", "null", "7", "\"f\"", "{}", "{\"file_path\":}", "\u{0}"]
                .into_iter()
                .map(|text| (text.to_owned(), String::new()))
                .collect();
        // Each key left out, and each with values of other types.
        for key in good.as_object().unwrap().keys() {
            let mut without = good.clone();
            without.as_object_mut().unwrap().remove(key);
            cases.push((without.to_string(), key.clone()));
            for wrong in [json!(null), json!(7), json!(true), json!({"a": 1}), json!([1]), json!([])] {
                let mut bad = good.clone();
                bad[key] = wrong;
                cases.push((bad.to_string(), String::new()));
            }
        }
        let mut unknown = good.clone();
        unknown["colour"] = json!("blue");
        cases.push((unknown.to_string(), "colour".to_owned()));
        for (path, why) in [("", "file_path"), ("a\0b", "file_path"), ("../f", ".."), ("a/../../f", "..")] {
            cases.push((with_path(tool, json!(path)).to_string(), why.to_owned()));
        }
        for (arguments, why) in cases {
            let e = desk.run_text(tool, &arguments).await.unwrap_err();
            let ToolError::Invalid(text) = &e else { panic!("{tool} {arguments}: {e:?}") };
            assert!(text.contains(&why) && text.len() < 2_000, "{tool} {arguments}: {text}");
            assert_eq!(desk.prepare(tool, &arguments).unwrap_err(), e, "prepare and run say the same");
        }
    }
    for (tool, arguments, why) in [
        ("Read", json!({"file_path": "f", "offset": 0}), "offset"),
        ("Read", json!({"file_path": "f", "limit": 0}), "limit"),
        ("Read", json!({"file_path": "f", "offset": -1}), "-1"),
        ("Read", json!({"file_path": "f", "offset": 1.5}), "1.5"),
        ("Read", json!({"file_path": "f", "offset": "1"}), "string"),
        ("Edit", json!({"file_path": "f", "old_string": "a", "new_string": "a"}), "same"),
        (
            "Edit",
            json!({"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": "yes"}),
            "yes",
        ),
        ("MultiEdit", json!({"file_path": "f", "edits": []}), "0 edits"),
        ("MultiEdit", json!({"file_path": "f", "edits": [{"old_string": "a", "new_string": "a"}]}), "edit 1"),
        (
            "MultiEdit",
            json!({"file_path": "f", "edits": vec![json!({"old_string": "a", "new_string": "b"}); 1_000]}),
            "1000 edits",
        ),
    ] {
        let text = desk.invalid(tool, arguments.clone()).await;
        assert!(text.contains(why), "{tool} {arguments}: {text}");
    }
    assert_eq!(desk.get("f"), b"old\n");
    // Numbers at the edge are no arithmetic for us.
    let edge = desk.run("Read", json!({"file_path": "f", "offset": 1, "limit": u64::MAX})).await.unwrap();
    assert_eq!(edge.content.unwrap(), "     1\told\n");
    assert!(desk.failed("Read", json!({"file_path": "f", "offset": u64::MAX})).await.contains("1 lines"));
}

#[tokio::test]
async fn whatever_stands_at_the_path_the_answer_comes_soon() {
    let desk = Desk::new();
    fs::create_dir(desk.at("dir")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(desk.at("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(desk.at("socket")).unwrap();
    symlink("loop-b", desk.at("loop-a")).unwrap();
    symlink("loop-a", desk.at("loop-b")).unwrap();
    symlink(".", desk.at("self")).unwrap();
    symlink("/dev/zero", desk.at("zero")).unwrap();
    symlink("fifo", desk.at("to-fifo")).unwrap();
    symlink("/proc/self/environ", desk.at("environ")).unwrap();
    // A victim of the test's own: should a guard be missing, root writes through it.
    let victim = tempfile::NamedTempFile::new().unwrap();
    let outside = victim.path().to_str().unwrap().to_owned();
    symlink(format!("/proc/self/root{outside}"), desk.at("root")).unwrap();
    for n in 0..60 {
        symlink(format!("chain-{}", n + 1), desk.at(&format!("chain-{n}"))).unwrap();
    }
    desk.put("chain-60", "old\n");
    desk.put("file", "old\n");
    let deep = "self/".repeat(30);
    let long_name = "x".repeat(300);
    let long_path = "d/".repeat(3_000) + "f";
    let before = desk.names();
    for (path, why) in [
        ("dir", "is a directory"),
        (".", "is a directory"),
        ("fifo", "a FIFO"),
        ("to-fifo", "a FIFO"),
        ("socket", "a socket"),
        ("zero", "leads through a symbolic link to /dev/zero"),
        ("/dev/null", "outside of the scope"),
        ("/", "outside of the scope"),
        ("loop-a", "in a circle"),
        ("loop-a/x", "in a circle"),
        ("chain-0", "in a circle or through more than 40"),
        ("environ", "/proc/self/environ"),
        ("root", "/proc/self/root"),
        ("file/below", "not a directory"),
        (&*format!("{deep}dir"), "is a directory"),
        (&*long_name, "too long"),
        (&*long_path, "too long"),
        (&*outside, "outside of the scope"),
        ("/proc/self/mem", "hidden from agents"),
        ("a\nb\u{1b}[31m", "no such file"),
    ] {
        for tool in TOOLS {
            if tool == "Write" && why == "no such file" {
                continue;
            }
            let start = Instant::now();
            let e = desk.run(tool, with_path(tool, json!(path))).await.unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(5), "{tool} {path}");
            let text = e.message();
            assert!(text.contains(why), "{tool} {path}: {text}");
            assert!(
                text.len() < 2_000 && !text.contains('\u{1b}') && !text.contains('\0'),
                "{tool} {path}: {text}"
            );
            assert!(!matches!(e, ToolError::Internal(_)), "{tool} {path}: {text}");
            let previewed = desk.preview(tool, with_path(tool, json!(path)));
            assert!(tool == "Read" || previewed.is_err(), "{tool} {path}");
        }
    }
    assert_eq!(desk.names(), before, "nothing has been left behind");
    // Under the limit a long way round is a way.
    let far = desk.run("Read", json!({"file_path": "chain-25"})).await.unwrap();
    assert_eq!(far.content.unwrap(), "     1\told\n");
}

#[tokio::test]
async fn names_that_are_no_text_are_reached_through_links_and_shown() {
    let desk = Desk::new();
    let name = OsStr::from_bytes(b"odd\xff\xfename");
    if fs::write(desk.at("").join(name), "old\n").is_err() {
        return crate::desk::skip("this file system takes only text as names");
    }
    symlink(name, desk.at("link")).unwrap();
    desk.change("Edit", with_path("Edit", json!("link"))).await.unwrap();
    assert_eq!(fs::read(desk.at("").join(name)).unwrap(), b"new\n");
    // It cannot be written in JSON, so what a model would write is another name.
    let e = desk.failed("Read", json!({"file_path": "odd\u{fffd}\u{fffd}name"})).await;
    assert!(e.contains("no such file"), "{e}");
}

#[tokio::test]
async fn what_may_not_be_written_stays() {
    let desk = Desk::new();
    let path = desk.put("fixed", "old\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    desk.run("Read", json!({"file_path": "fixed"})).await.unwrap();
    for tool in ["Write", "Edit", "MultiEdit"] {
        let e = desk.failed(tool, with_path(tool, json!("fixed"))).await;
        assert!(e.contains("read-only"), "{tool}: {e}");
    }
    assert_eq!(desk.get("fixed"), b"old\n");
    assert_eq!(desk.names(), ["fixed"]);
}

#[tokio::test]
async fn huge_arguments_are_answered() {
    let desk = Desk::new();
    desk.put("f", "old\n");
    desk.run("Read", json!({"file_path": "f"})).await.unwrap();
    let huge = "x".repeat(2 * 1024 * 1024);
    let e = desk.failed("Edit", json!({"file_path": "f", "old_string": huge, "new_string": "y"})).await;
    assert!(e.contains("was not found") && e.len() < 4_096, "{}", e.len());
    let output = desk.run("Write", json!({"file_path": "f", "content": huge})).await.unwrap();
    assert!(output.content.unwrap().len() < 20_000);
    assert_eq!(desk.get("f").len(), huge.len());
    let e = desk.invalid("Read", json!({"file_path": "f", "x".repeat(100_000): 1})).await;
    assert!(e.len() < 2_000, "{}", e.len());
    let e = desk.run("Read", json!({"file_path": "y".repeat(4_000)})).await.unwrap_err();
    assert!(e.message().contains("too long") && e.message().len() < 1_000, "{}", e.message().len());
}

#[tokio::test]
async fn a_path_that_can_only_be_a_directory_or_means_home_is_refused() {
    let desk = Desk::new();
    for (path, why) in [
        ("trail/", "names a directory"),
        ("new/deep/", "names a directory"),
        ("new/.", "names a directory"),
        ("~/x", "write the whole path"),
        ("~", "write the whole path"),
    ] {
        for tool in ["Write", "Edit", "MultiEdit"] {
            let e = desk.invalid(tool, with_path(tool, json!(path))).await;
            assert!(e.contains(why) && e.contains(path), "{tool} {path}: {e}");
        }
    }
    let e = desk.invalid("Read", json!({"file_path": "~/x"})).await;
    assert!(e.contains("write the whole path"), "{e}");
    assert!(desk.names().is_empty());
    // What is really called so has a way.
    desk.run("Write", json!({"file_path": "./~/x", "content": "here\n"})).await.unwrap();
    desk.run("Write", json!({"file_path": "~x", "content": "here\n"})).await.unwrap();
    assert_eq!(desk.names(), ["~", "~x"]);
}

#[tokio::test]
async fn what_is_no_text_is_not_read_and_written_in_a_circle() {
    let desk = Desk::new();
    desk.put("data", b"abc\0def");
    desk.put("broken.png", b"\x89PNG\r\n\x1a\n....");
    for name in ["data", "broken.png"] {
        for tool in ["Edit", "MultiEdit"] {
            let e = desk.failed(tool, with_path(tool, json!(name))).await;
            assert!(e.contains("not text") && e.contains("with a command"), "{tool} {name}: {e}");
        }
        // Once it was told what it would replace, Write does it.
        let write = json!({"file_path": name, "content": "text\n"});
        let e = desk.failed("Write", write.clone()).await;
        assert!(e.contains("has not been read yet"), "{e}");
        desk.failed("Read", json!({"file_path": name})).await;
        desk.run("Write", write).await.unwrap();
        assert_eq!(desk.get(name), b"text\n");
    }
    // A text of which nothing was shown has not been seen.
    desk.put("text", "one\n");
    desk.failed("Read", json!({"file_path": "text", "offset": 9})).await;
    let e = desk.failed("Write", json!({"file_path": "text", "content": "two\n"})).await;
    assert!(e.contains("has not been read yet"), "{e}");
}
