//! Bad input to every file tool: each call returns a useful error quickly, and nothing changes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use minke_tool::ToolError;
use serde_json::{Value, json};

use crate::fixture::FileToolFixture;

const TOOLS: [&str; 4] = ["Read", "Write", "Edit", "MultiEdit"];

/// Returns valid arguments with another path.
fn arguments_with_path(tool: &str, path: Value) -> Value {
    match tool {
        "Read" => json!({"file_path": path}),
        "Write" => json!({"file_path": path, "content": "new\n"}),
        "Edit" => json!({"file_path": path, "old_string": "old", "new_string": "new"}),
        _ => json!({"file_path": path, "edits": [{"old_string": "old", "new_string": "new"}]}),
    }
}

#[tokio::test]
async fn arguments_that_are_wrong_are_named() {
    let fixture = FileToolFixture::new();
    fixture.write_file("f", "old\n");
    for tool in TOOLS {
        let good = arguments_with_path(tool, json!("f"));
        let mut cases: Vec<(String, String)> =
            ["", "{", "[]", "null", "7", "\"f\"", "{}", "{\"file_path\":}", "\u{0}"]
                .into_iter()
                .map(|text| (text.to_owned(), String::new()))
                .collect();
        // Omit each key, and set it to values of other types.
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
            cases.push((arguments_with_path(tool, json!(path)).to_string(), why.to_owned()));
        }
        for (arguments, why) in cases {
            let e = fixture.run_raw(tool, &arguments).await.unwrap_err();
            let ToolError::InvalidArguments(text) = &e else { panic!("{tool} {arguments}: {e:?}") };
            assert!(text.contains(&why) && text.len() < 2_000, "{tool} {arguments}: {text}");
            assert_eq!(
                fixture.prepare_call(tool, &arguments).unwrap_err(),
                e,
                "prepare and run return the same error"
            );
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
        let text = fixture.run_invalid(tool, arguments.clone()).await;
        assert!(text.contains(why), "{tool} {arguments}: {text}");
    }
    assert_eq!(fixture.read_file("f"), b"old\n");
    // Extreme numbers do not overflow.
    let edge =
        fixture.run_tool("Read", json!({"file_path": "f", "offset": 1, "limit": u64::MAX})).await.unwrap();
    assert_eq!(edge.content.unwrap(), "     1\told\n");
    assert!(
        fixture.run_failed("Read", json!({"file_path": "f", "offset": u64::MAX})).await.contains("1 lines")
    );
}

#[tokio::test]
async fn whatever_stands_at_the_path_the_answer_comes_soon() {
    let desk = FileToolFixture::new();
    fs::create_dir(desk.path_of("dir")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(desk.path_of("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(desk.path_of("socket")).unwrap();
    symlink("loop-b", desk.path_of("loop-a")).unwrap();
    symlink("loop-a", desk.path_of("loop-b")).unwrap();
    symlink(".", desk.path_of("self")).unwrap();
    symlink("/dev/zero", desk.path_of("zero")).unwrap();
    symlink("fifo", desk.path_of("to-fifo")).unwrap();
    symlink("/proc/self/environ", desk.path_of("environ")).unwrap();
    // The target belongs to the test, because root can write through a missing check.
    let victim = tempfile::NamedTempFile::new().unwrap();
    let outside = victim.path().to_str().unwrap().to_owned();
    symlink(format!("/proc/self/root{outside}"), desk.path_of("root")).unwrap();
    for n in 0..60 {
        symlink(format!("chain-{}", n + 1), desk.path_of(&format!("chain-{n}"))).unwrap();
    }
    desk.write_file("chain-60", "old\n");
    desk.write_file("file", "old\n");
    let deep = "self/".repeat(30);
    let long_name = "x".repeat(300);
    let long_path = "d/".repeat(3_000) + "f";
    let before = desk.entry_names();
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
            let e = desk.run_tool(tool, arguments_with_path(tool, json!(path))).await.unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(5), "{tool} {path}");
            let text = e.message();
            assert!(text.contains(why), "{tool} {path}: {text}");
            assert!(
                text.len() < 2_000 && !text.contains('\u{1b}') && !text.contains('\0'),
                "{tool} {path}: {text}"
            );
            assert!(!matches!(e, ToolError::Internal(_)), "{tool} {path}: {text}");
            let previewed = desk.preview_call(tool, arguments_with_path(tool, json!(path)));
            assert!(tool == "Read" || previewed.is_err(), "{tool} {path}");
        }
    }
    assert_eq!(desk.entry_names(), before, "no files were left");
    // A chain of links below the limit works.
    let far = desk.run_tool("Read", json!({"file_path": "chain-25"})).await.unwrap();
    assert_eq!(far.content.unwrap(), "     1\told\n");
}

#[tokio::test]
async fn names_that_are_no_text_are_reached_through_links_and_shown() {
    let fixture = FileToolFixture::new();
    let name = OsStr::from_bytes(b"odd\xff\xfename");
    if fs::write(fixture.path_of("").join(name), "old\n").is_err() {
        return crate::fixture::skip_test("this file system takes only text as names");
    }
    symlink(name, fixture.path_of("link")).unwrap();
    fixture.read_and_run("Edit", arguments_with_path("Edit", json!("link"))).await.unwrap();
    assert_eq!(fs::read(fixture.path_of("").join(name)).unwrap(), b"new\n");
    // JSON cannot contain the name, so the model's text names another file.
    let e = fixture.run_failed("Read", json!({"file_path": "odd\u{fffd}\u{fffd}name"})).await;
    assert!(e.contains("no such file"), "{e}");
}

#[tokio::test]
async fn what_may_not_be_written_stays() {
    let desk = FileToolFixture::new();
    let path = desk.write_file("fixed", "old\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    desk.run_tool("Read", json!({"file_path": "fixed"})).await.unwrap();
    for tool in ["Write", "Edit", "MultiEdit"] {
        let e = desk.run_failed(tool, arguments_with_path(tool, json!("fixed"))).await;
        assert!(e.contains("read-only"), "{tool}: {e}");
    }
    assert_eq!(desk.read_file("fixed"), b"old\n");
    assert_eq!(desk.entry_names(), ["fixed"]);
}

#[tokio::test]
async fn huge_arguments_are_answered() {
    let fixture = FileToolFixture::new();
    fixture.write_file("f", "old\n");
    fixture.run_tool("Read", json!({"file_path": "f"})).await.unwrap();
    let huge = "x".repeat(2 * 1024 * 1024);
    let e =
        fixture.run_failed("Edit", json!({"file_path": "f", "old_string": huge, "new_string": "y"})).await;
    assert!(e.contains("was not found") && e.len() < 4_096, "{}", e.len());
    let output = fixture.run_tool("Write", json!({"file_path": "f", "content": huge})).await.unwrap();
    assert!(output.content.unwrap().len() < 20_000);
    assert_eq!(fixture.read_file("f").len(), huge.len());
    let e = fixture.run_invalid("Read", json!({"file_path": "f", "x".repeat(100_000): 1})).await;
    assert!(e.len() < 2_000, "{}", e.len());
    let e = fixture.run_tool("Read", json!({"file_path": "y".repeat(4_000)})).await.unwrap_err();
    assert!(e.message().contains("too long") && e.message().len() < 1_000, "{}", e.message().len());
}

#[tokio::test]
async fn a_path_that_can_only_be_a_directory_or_means_home_is_refused() {
    let fixture = FileToolFixture::new();
    for (path, why) in [
        ("trail/", "names a directory"),
        ("new/deep/", "names a directory"),
        ("new/.", "names a directory"),
        ("~/x", "write the whole path"),
        ("~", "write the whole path"),
    ] {
        for tool in ["Write", "Edit", "MultiEdit"] {
            let e = fixture.run_invalid(tool, arguments_with_path(tool, json!(path))).await;
            assert!(e.contains(why) && e.contains(path), "{tool} {path}: {e}");
        }
    }
    let e = fixture.run_invalid("Read", json!({"file_path": "~/x"})).await;
    assert!(e.contains("write the whole path"), "{e}");
    assert!(fixture.entry_names().is_empty());
    // Files with such names are reachable.
    fixture.run_tool("Write", json!({"file_path": "./~/x", "content": "here\n"})).await.unwrap();
    fixture.run_tool("Write", json!({"file_path": "~x", "content": "here\n"})).await.unwrap();
    assert_eq!(fixture.entry_names(), ["~", "~x"]);
}

#[tokio::test]
async fn what_is_no_text_is_not_read_and_written_in_a_circle() {
    let desk = FileToolFixture::new();
    desk.write_file("data", b"abc\0def");
    desk.write_file("broken.png", b"\x89PNG\r\n\x1a\n....");
    for name in ["data", "broken.png"] {
        for tool in ["Edit", "MultiEdit"] {
            let e = desk.run_failed(tool, arguments_with_path(tool, json!(name))).await;
            assert!(e.contains("not text") && e.contains("with a command"), "{tool} {name}: {e}");
        }
        // After Read reported its kind, Write replaces it.
        let write = json!({"file_path": name, "content": "text\n"});
        let e = desk.run_failed("Write", write.clone()).await;
        assert!(e.contains("has not been read yet"), "{e}");
        desk.run_failed("Read", json!({"file_path": name})).await;
        desk.run_tool("Write", write).await.unwrap();
        assert_eq!(desk.read_file(name), b"text\n");
    }
    // A text file counts as unread if no line was shown.
    desk.write_file("text", "one\n");
    desk.run_failed("Read", json!({"file_path": "text", "offset": 9})).await;
    let e = desk.run_failed("Write", json!({"file_path": "text", "content": "two\n"})).await;
    assert!(e.contains("has not been read yet"), "{e}");
}
