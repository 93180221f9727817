//! Write: new and replaced files, and the properties that a replaced file keeps.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::json;

use crate::fixture::FileToolFixture;

#[tokio::test]
async fn a_new_file_comes_with_its_directories() {
    let fixture = FileToolFixture::new();
    let output =
        fixture.run_tool("Write", json!({"file_path": "a/b/c", "content": "one\ntwo"})).await.unwrap();
    assert!(
        output.summary.starts_with("created /") && output.summary.ends_with("a/b/c: 2 lines"),
        "{output:?}"
    );
    assert_eq!(fixture.read_file("a/b/c"), b"one\ntwo");
    // A written file counts as read.
    fixture.run_tool("Write", json!({"file_path": "a/b/c", "content": ""})).await.unwrap();
    assert_eq!(fixture.read_file("a/b/c"), b"");
    fixture.run_tool("Write", json!({"file_path": "a/b/c", "content": "x"})).await.unwrap();
    let same = fixture.run_tool("Write", json!({"file_path": "a/b/c", "content": "x"})).await.unwrap();
    assert!(same.summary.contains("already"), "{}", same.summary);
    assert_eq!(fs::read_dir(fixture.path_of("a/b")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_replaced_file_keeps_what_the_text_does_not_say() {
    let desk = FileToolFixture::new();
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
    for (name, before, content, after) in [
        ("crlf", b"a\r\nb\r\n".to_vec(), "x\ny", b"x\r\ny".to_vec()),
        ("cr", b"a\rb\r".to_vec(), "x\ny", b"x\ry".to_vec()),
        // Explicit line endings in the content stay.
        ("meant", b"a\r\nb\r\n".to_vec(), "x\ny\r\n", b"x\ny\r\n".to_vec()),
        ("lf", b"a\nb\n".to_vec(), "x\r\ny", b"x\r\ny".to_vec()),
        ("mark", b"\xef\xbb\xbfa\n".to_vec(), "x\n", b"\xef\xbb\xbfx\n".to_vec()),
        ("mark2", b"\xef\xbb\xbfa\n".to_vec(), "\u{feff}x\n", b"\xef\xbb\xbfx\n".to_vec()),
        ("wide", wide("\u{feff}a\r\n"), "ä😀\n", wide("\u{feff}ä😀\r\n")),
        (
            "latin",
            b"Gr\xfc\xdfe aus K\xf6ln, sch\xf6n hier. Die Stra\xdfe war m\xfcde.".to_vec(),
            "Grüße",
            b"Gr\xfc\xdfe".to_vec(),
        ),
        ("stray", b"\xc3\xa4 \xc3\xb6 \xff\n".to_vec(), "ü\n", "ü\n".as_bytes().to_vec()),
        ("one-line", b"a".to_vec(), "x\ny\n", b"x\ny\n".to_vec()),
    ] {
        let path = desk.write_file(name, before);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o754)).unwrap();
        let output = desk.read_and_run("Write", json!({"file_path": name, "content": content})).await;
        let output = output.unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert_eq!(desk.read_file(name), after, "{name}");
        assert!(output.content.unwrap().starts_with("--- "), "{name}: a diff");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o754, "{name}");
    }
    if rustix::process::geteuid().is_root() {
        let path = desk.write_file("owned", "x");
        std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
        desk.read_and_run("Write", json!({"file_path": "owned", "content": "y"})).await.unwrap();
        let now = fs::metadata(&path).unwrap();
        assert_eq!((now.uid(), now.gid()), (1234, 5678));
    }
}

#[tokio::test]
async fn what_must_not_be_written_is_not() {
    let fixture = FileToolFixture::new();
    fs::write(fixture.root.join("outside"), "safe").unwrap();
    fs::create_dir_all(fixture.path_of(".git/hooks")).unwrap();
    symlink(fixture.root.join("outside"), fixture.path_of("out")).unwrap();
    symlink(".git/hooks", fixture.path_of("innocent")).unwrap();
    fs::create_dir(fixture.path_of("dir")).unwrap();
    symlink("nowhere", fixture.path_of("broken")).unwrap();
    let outside = fixture.root.join("outside");
    for (path, why) in [
        (&*outside.to_string_lossy(), "outside of the scope"),
        ("/etc/minke-test", "outside of the scope"),
        ("out", "leads through a symbolic link to"),
        (".git/hooks/pre-commit", "protected"),
        ("innocent/pre-commit", "protected"),
        (".mcp.json", "protected"),
        ("sub/.claude/settings.json", "protected"),
        ("broken", "where there is nothing"),
        (".git", "protected"),
        ("dir", "is a directory"),
    ] {
        let e = fixture.run_failed("Write", json!({"file_path": path, "content": "x"})).await;
        assert!(e.contains(why) && e.starts_with("cannot write "), "{path}: {e}");
        let edit = json!({"file_path": path, "old_string": "", "new_string": "x"});
        assert!(fixture.run_tool("Edit", edit).await.is_err(), "{path}");
        assert!(fixture.preview_call("Write", json!({"file_path": path, "content": "x"})).is_err(), "{path}");
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "safe");
    assert_eq!(fixture.entry_names(), [".git", "broken", "dir", "innocent", "out"]);
    assert_eq!(fs::read_dir(fixture.path_of(".git/hooks")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_preview_names_the_outermost_directory_that_would_be_made() {
    let desk = FileToolFixture::new();
    std::fs::create_dir(desk.path_of("dir")).unwrap();
    let missing = |path: &str| {
        let previewed = desk.preview_call("Write", json!({"file_path": path, "content": "x\n"})).unwrap();
        previewed.unwrap().missing_dir
    };
    assert_eq!(missing("file"), None);
    assert_eq!(missing("dir/file"), None);
    assert_eq!(missing("dir/new/file"), Some(desk.path_of("dir/new")));
    assert_eq!(missing("new/deep/er/file"), Some(desk.path_of("new")));
    desk.run_tool("Write", json!({"file_path": "new/deep/file", "content": "x\n"})).await.unwrap();
    assert_eq!(missing("new/deep/file"), None);
    assert_eq!(missing("new/deep/er/file"), Some(desk.path_of("new/deep/er")));
}
