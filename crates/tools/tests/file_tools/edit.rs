//! Edit and MultiEdit, called as a model calls them: edits from real models, generated edits compared with
//! `patch`, and the errors of edits that fail.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use minke_record::Class;
use minke_tool::ToolError;
use serde_json::{Value, json};

use crate::fixture::{FileToolFixture, path_text, skip_test};

/// The encoding and line ending of a file, to test one edit in many forms.
#[derive(Debug, Clone, Copy)]
enum FileForm {
    Plain,
    CrLf,
    Cr,
    Bom,
    Utf16Le,
    Utf16Be,
}

const FORMS: [FileForm; 6] =
    [FileForm::Plain, FileForm::CrLf, FileForm::Cr, FileForm::Bom, FileForm::Utf16Le, FileForm::Utf16Be];

impl FileForm {
    fn encode_text(self, text: &str) -> Vec<u8> {
        let wide = |text: &str| format!("\u{feff}{text}").encode_utf16().collect::<Vec<u16>>();
        match self {
            FileForm::Plain => text.into(),
            FileForm::CrLf => text.replace('\n', "\r\n").into(),
            FileForm::Cr => text.replace('\n', "\r").into(),
            FileForm::Bom => format!("\u{feff}{text}").into(),
            FileForm::Utf16Le => wide(text).into_iter().flat_map(u16::to_le_bytes).collect(),
            FileForm::Utf16Be => wide(text).into_iter().flat_map(u16::to_be_bytes).collect(),
        }
    }
}

#[tokio::test]
async fn what_models_wrote_is_applied_byte_for_byte() {
    let fixture = FileToolFixture::new();
    let corpus = include_str!("../data/search-replace.jsonl");
    let mut edits = 0;
    for (index, line) in corpus.lines().enumerate() {
        let edit: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| edit[key].as_str().unwrap().to_owned();
        let (search, replace) = (text("search"), text("replace"));
        let (head, tail) = (format!("first line of {index}\n\n"), format!("\n\tlast line of {index}"));
        for form in FORMS {
            let (before, after) = if search.is_empty() {
                (String::new(), replace.clone())
            } else {
                (format!("{head}{search}{tail}"), format!("{head}{replace}{tail}"))
            };
            let new = search.is_empty();
            if new && !matches!(form, FileForm::Plain) {
                continue;
            }
            let name = format!("f-{index}-{form:?}");
            if !new {
                fixture.write_file(&name, form.encode_text(&before));
            }
            let arguments = json!({"file_path": name, "old_string": search, "new_string": replace});
            let result = if new {
                fixture.run_tool("Edit", arguments).await
            } else {
                fixture.read_and_run("Edit", arguments).await
            };
            assert!(result.is_ok(), "{index} {form:?}: {result:?}");
            assert!(fixture.read_file(&name) == form.encode_text(&after), "{index} {form:?}");
            edits += 1;
        }
    }
    assert_eq!(edits, 342 * FORMS.len() + 1);
}

/// A deterministic random number generator.
struct EditRng(u64);

impl EditRng {
    fn next_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn random_line(&mut self) -> String {
        const WORDS: [&str; 12] =
            ["let", "x", "=", "größer", "日本", "{", "}", "\treturn", "  if", "(a, b)", "\"\\n\"", "😀"];
        let words = self.next_below(6);
        (0..words).map(|_| WORDS[self.next_below(WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

/// A generated edit that replaces lines `from..to` of a file.
struct EditCase {
    before: Vec<u8>,
    old: String,
    new: String,
    /// The patch for `patch`.
    hunk: Vec<u8>,
}

impl EditCase {
    /// Lines are unique by a number, except in blocks that are repeated on purpose.
    fn random(rng: &mut EditRng, index: usize) -> EditCase {
        let end: &str = ["\n", "\n", "\r\n"][index % 3];
        // Invalid UTF-8, in lines outside the edit.
        let foreign = index.is_multiple_of(7);
        let count = 1 + rng.next_below(30);
        // A single line without a line break does not define a line ending.
        let last_ends = rng.next_below(3) > 0 || count == 1;
        let repeated: Vec<String> = (0..3).map(|_| rng.random_line()).collect();
        let mut lines: Vec<String> = (0..count)
            .map(|n| match rng.next_below(4) {
                0 => repeated[n % 3].clone(),
                _ => format!("{} // {index}.{n}", rng.random_line()),
            })
            .collect();
        let from = rng.next_below(count);
        let to = (from + 1 + rng.next_below(4)).min(count);
        // Blocks may be duplicated; this line makes the quoted one unique.
        lines[from] = format!("{} // {index}.here", rng.random_line());
        let mut new: Vec<String> = (0..rng.next_below(5)).map(|_| rng.random_line()).collect();
        let at_end = to == count;
        // An empty line without a line break is not a line.
        if !last_ends && lines[count - 1].is_empty() {
            lines[count - 1] = "last".to_owned();
        }
        if at_end && !last_ends && new.last().is_none_or(String::is_empty) {
            new.push("last".to_owned());
        }
        if foreign {
            // One encoding per file; `encodings_stay_and_what_they_lack_is_named` tests both.
            lines.iter_mut().chain(&mut new).for_each(|line| line.retain(|c| c.is_ascii()));
        }
        let ended = |n: usize| n + 1 < count || last_ends;
        let raw = |lines: &[String], n: usize| -> Vec<u8> {
            let mut bytes = lines[n].clone().into_bytes();
            if foreign && !(from..to).contains(&n) {
                bytes.extend_from_slice(b" sch\xf6n");
            }
            bytes.extend_from_slice(if ended(n) { end.as_bytes() } else { b"" });
            bytes
        };
        let before: Vec<u8> = (0..count).flat_map(|n| raw(&lines, n)).collect();
        let open = at_end && !last_ends;
        let quoted = |lines: &[String]| {
            let mut text = lines.join("\n");
            if !open && !lines.is_empty() {
                text.push('\n');
            }
            text
        };
        let old = quoted(&lines[from..to]);
        let replacement = quoted(&new);
        let hunk = EditCase::build_hunk(&before, (from, to), &new, (end, open));
        EditCase { before, old, new: replacement, hunk }
    }

    /// Returns a unified hunk with all lines of the file, with unchanged bytes.
    fn build_hunk(
        before: &[u8],
        (from, to): (usize, usize),
        new: &[String],
        (end, open): (&str, bool),
    ) -> Vec<u8> {
        let lines: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
        let after = lines.len() - (to - from) + new.len();
        let first = usize::from(after > 0);
        let mut hunk = format!("@@ -1,{} +{first},{after} @@\n", lines.len()).into_bytes();
        let mut push = |sign: u8, line: &[u8]| {
            hunk.push(sign);
            hunk.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                hunk.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        };
        for (n, line) in lines.iter().enumerate() {
            push(if (from..to).contains(&n) { b'-' } else { b' ' }, line);
            if n + 1 == to {
                for (m, line) in new.iter().enumerate() {
                    let last = open && m + 1 == new.len();
                    push(b'+', format!("{line}{}", if last { "" } else { end }).as_bytes());
                }
            }
        }
        hunk
    }
}

#[tokio::test]
async fn generated_edits_are_exact() {
    const CASES: usize = 1_200;
    if Command::new("patch").arg("--version").output().is_err() {
        return skip_test("there is no `patch` here");
    }
    let fixture = FileToolFixture::new();
    let theirs = tempfile::tempdir().unwrap();
    let mut rng = EditRng(4);
    let mut patch = Vec::new();
    let mut cases = Vec::new();
    while cases.len() < CASES {
        let case = EditCase::random(&mut rng, cases.len());
        if case.old == case.new {
            continue;
        }
        let name = format!("f{}", cases.len());
        fixture.write_file(&name, &case.before);
        fs::write(theirs.path().join(&name), &case.before).unwrap();
        patch.extend_from_slice(format!("--- {name}\n+++ {name}\n").as_bytes());
        patch.extend_from_slice(&case.hunk);
        cases.push((name, case));
    }
    let file = theirs.path().join("all.patch");
    fs::write(&file, patch).unwrap();
    let ran = Command::new("patch")
        .args(["--binary", "-p0", "--fuzz=0", "-s", "-i"])
        .arg(&file)
        .current_dir(theirs.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let mut ours = String::new();
    for (name, case) in &cases {
        let arguments = json!({"file_path": name, "old_string": case.old, "new_string": case.new});
        let result = fixture.read_and_run("Edit", arguments).await;
        let output = result.unwrap_or_else(|e| panic!("{name}: {e:?}\n{:?}\n{:?}", case.old, case.new));
        let theirs = fs::read(theirs.path().join(name)).unwrap_or_default();
        assert!(fixture.read_file(name) == theirs, "{name}: {:?} → {:?}", case.old, case.new);
        // Apply Minke's diff in reverse, where a diff can represent the bytes.
        if std::str::from_utf8(&case.before).is_ok() && !case.before.contains(&b'\r') {
            let diff = output.content.unwrap();
            let path = path_text(&fixture.path_of(name));
            let diff = diff.replace(&format!("--- {path}\n+++ {path}"), &format!("--- {name}\n+++ {name}"));
            ours.push_str(&diff);
        }
    }
    let file = theirs.path().join("ours.patch");
    fs::write(&file, ours).unwrap();
    let back = Command::new("patch")
        .args(["--binary", "-R", "-p0", "--fuzz=0", "-s", "-i"])
        .arg(&file)
        .current_dir(theirs.path())
        .output()
        .unwrap();
    assert!(back.status.success(), "{back:?}");
    let mut undone = 0;
    for (name, case) in &cases {
        if std::str::from_utf8(&case.before).is_ok() && !case.before.contains(&b'\r') {
            assert!(fs::read(theirs.path().join(name)).unwrap() == case.before, "{name}");
            undone += 1;
        }
    }
    eprintln!("{CASES} edits as `patch` makes them; `patch` reverted {undone} of Minke's diffs");
    assert!(undone > CASES / 3);
}

#[tokio::test]
async fn a_file_of_ten_megabytes_is_edited_and_errors_about_it_come_soon() {
    let fixture = FileToolFixture::new();
    let line = |n: usize| format!("line {n} of a large file, with some words in it\r\n");
    let mut before: String = (0..210_000).map(line).collect();
    before.push_str("the end");
    assert!(before.len() > 10_000_000);
    fixture.write_file("big", &before);
    let arguments = json!({
        "file_path": "big",
        "old_string": "line 123456 of a large file, with some words in it\nline 123457 of",
        "new_string": "one line\nline 123457 of",
    });
    let output = fixture.read_and_run("Edit", arguments).await.unwrap();
    let after = before.replace(&line(123_456), "one line\r\n");
    assert!(fixture.read_file("big") == after.as_bytes());
    assert!(output.summary.contains("at line 123457"), "{}", output.summary);
    let start = std::time::Instant::now();
    let e = fixture
        .run_failed("Edit", json!({"file_path": "big", "old_string": "line 777 of a smal file, with words", "new_string": ""}))
        .await;
    assert!(e.contains("nearest lines are 778 to 778"), "{e}");
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_file_must_have_been_read_and_be_unchanged_since() {
    let fixture = FileToolFixture::new();
    fixture.write_file("f", "one\n");
    let edit = json!({"file_path": "f", "old_string": "one", "new_string": "two"});
    let multi = json!({"file_path": "f", "edits": [{"old_string": "one", "new_string": "two"}]});
    let write = json!({"file_path": "f", "content": "two\n"});
    for (tool, arguments) in [("Edit", &edit), ("MultiEdit", &multi), ("Write", &write)] {
        let e = fixture.run_failed(tool, arguments.clone()).await;
        assert!(e.contains("has not been read yet"), "{tool}: {e}");
        assert!(fixture.preview_call(tool, arguments.clone()).is_err(), "{tool}");
    }
    fixture.run_tool("Read", json!({"file_path": "f", "offset": 1, "limit": 1})).await.unwrap();
    fixture.write_file("f", "one\nmore\n");
    for (tool, arguments) in [("Edit", &edit), ("MultiEdit", &multi), ("Write", &write)] {
        let e = fixture.run_failed(tool, arguments.clone()).await;
        assert!(e.contains("has been changed since"), "{tool}: {e}");
    }
    assert_eq!(fixture.read_file("f"), b"one\nmore\n");
    fixture.read_and_run("Edit", edit).await.unwrap();
    // A file written by the tool counts as read.
    fixture
        .run_tool("Edit", json!({"file_path": "f", "old_string": "two", "new_string": "three"}))
        .await
        .unwrap();
    assert_eq!(fixture.read_file("f"), b"three\nmore\n");
    // Also by another name.
    symlink("f", fixture.path_of("link")).unwrap();
    fixture
        .run_tool("Edit", json!({"file_path": "link", "old_string": "three", "new_string": "four"}))
        .await
        .unwrap();
    assert_eq!(fixture.read_file("f"), b"four\nmore\n");
    assert!(fs::symlink_metadata(fixture.path_of("link")).unwrap().is_symlink());
}

#[tokio::test]
async fn parallel_edits_of_one_file_all_arrive() {
    const EDITS: usize = 100;
    let desk = std::sync::Arc::new(FileToolFixture::new());
    let text: String = (0..EDITS).fold(String::new(), |mut text, n| {
        writeln!(text, "<{n}>").unwrap();
        text
    });
    desk.write_file("f", &text);
    symlink("f", desk.path_of("link")).unwrap();
    desk.run_tool("Read", json!({"file_path": "f"})).await.unwrap();
    let running: Vec<_> = (0..EDITS)
        .map(|n| {
            let fixture = std::sync::Arc::clone(&desk);
            // One file by two names.
            let name = if n % 2 == 0 { "f" } else { "link" };
            tokio::spawn(async move {
                let new = format!("[{n}]");
                fixture
                    .run_tool(
                        "Edit",
                        json!({"file_path": name, "old_string": format!("<{n}>"), "new_string": new}),
                    )
                    .await
            })
        })
        .collect();
    for running in running {
        running.await.unwrap().unwrap();
    }
    let all = text.replace('<', "[").replace('>', "]");
    assert_eq!(String::from_utf8(desk.read_file("f")).unwrap(), all);
    assert_eq!(desk.entry_names(), ["f", "link"]);
}

#[tokio::test]
async fn multi_edit_is_all_or_nothing_and_each_edit_works_on_the_one_before() {
    let fixture = FileToolFixture::new();
    fixture.write_file("f", "one two three\n");
    let edits = json!([
        {"old_string": "one", "new_string": "four"},
        {"old_string": "four two", "new_string": "five"},
        {"old_string": "e", "new_string": "E", "replace_all": true},
    ]);
    let output = fixture.read_and_run("MultiEdit", json!({"file_path": "f", "edits": edits})).await.unwrap();
    assert_eq!(fixture.read_file("f"), b"fivE thrEE\n");
    assert!(output.content.unwrap().contains("edit 3 of 3: 3 places were replaced"));
    let edits = json!([
        {"old_string": "fivE", "new_string": "six"},
        {"old_string": "fivE", "new_string": "seven"},
    ]);
    let e = fixture.run_failed("MultiEdit", json!({"file_path": "f", "edits": edits})).await;
    assert!(e.contains("edit 2 of 2: `old_string` was not found"), "{e}");
    assert_eq!(fixture.read_file("f"), b"fivE thrEE\n");
    // Create a file, then change it.
    let edits = json!([{"old_string": "", "new_string": "a\nb\n"}, {"old_string": "b", "new_string": "c"}]);
    fixture.run_tool("MultiEdit", json!({"file_path": "new/dir/f", "edits": edits})).await.unwrap();
    assert_eq!(fixture.read_file("new/dir/f"), b"a\nc\n");
    assert_eq!(fixture.entry_names(), ["f", "new"]);
}

#[tokio::test]
async fn an_edit_that_cannot_be_done_says_what_to_do() {
    let desk = FileToolFixture::new();
    desk.write_file("f", "fn alpha() {\n    beta(1);\n}\n\nfn gamma() {\n    beta(2);\n}\n");
    desk.write_file("empty", "");
    desk.write_file("binary", b"a\0b");
    desk.run_tool("Read", json!({"file_path": "f"})).await.unwrap();
    let edit = |old: &str, new: &str| json!({"file_path": "f", "old_string": old, "new_string": new});
    for (arguments, why) in [
        (edit("    beta(", "x"), "occurs 2 times, at lines 2, 6"),
        (edit("fn alpha() {\n    beta(3);\n}", "x"), "nearest lines are 1 to 3"),
        (edit("fn alpha() {\n    beta(3);\n}", "x"), "first line that differs is 2"),
        (edit("fn alpho() {", "x"), "nearest lines are 1 to 1"),
        (edit("quite something else", "x"), "nothing in the file is similar"),
        (edit("     1\tfn alpha() {", "x"), "line numbers that Read adds"),
        (edit("", "x"), "`old_string` is empty"),
        (json!({"file_path": "none", "old_string": "a", "new_string": "b"}), "there is no such file"),
        (json!({"file_path": "binary", "old_string": "a", "new_string": "b"}), "not text but"),
    ] {
        let e = desk.run_failed("Edit", arguments.clone()).await;
        assert!(e.contains(why), "{arguments}: {e}");
        assert!(e.starts_with("cannot edit /") || e.contains("has not been read"), "{e}");
        assert!(e.len() < 4_096, "{}", e.len());
        let previewed = desk.preview_call("Edit", arguments).map(|_| ()).unwrap_err();
        assert_eq!(previewed, ToolError::ExecutionFailed(e), "preview and run return the same error");
    }
    assert!(desk.run_invalid("Edit", edit("a", "a")).await.contains("are the same"));
    // An empty file has no content that must be read.
    desk.run_tool("Edit", json!({"file_path": "empty", "old_string": "", "new_string": "x"})).await.unwrap();
    assert_eq!(desk.read_file("empty"), b"x");
}

#[tokio::test]
async fn white_space_is_forgiven_and_said() {
    let fixture = FileToolFixture::new();
    fixture.write_file(
        "f",
        "class A:\r\n\tdef f(self):\r\n\t\treturn 1   \r\n\r\n\tdef g(self):\r\n\t\treturn 2\r\n",
    );
    let arguments = json!({
        "file_path": "f",
        "old_string": "    def f(self):\n        return 1\n",
        "new_string": "    def f(self):\n        x = 1\n        return x\n",
    });
    let output = fixture.read_and_run("Edit", arguments).await.unwrap();
    assert_eq!(
        String::from_utf8(fixture.read_file("f")).unwrap(),
        "class A:\r\n\tdef f(self):\r\n\t\tx = 1\r\n\t\treturn x\r\n\r\n\tdef g(self):\r\n\t\treturn 2\r\n"
    );
    let content = output.content.unwrap();
    assert!(content.contains("only when ignoring white space"), "{content}");
    assert!(content.contains("CRLF line ends"), "{content}");
    // An ambiguous match is rejected.
    let twice = json!({"file_path": "f", "old_string": "def  f", "new_string": "def h"});
    assert!(fixture.run_tool("Edit", twice).await.is_ok());
    let twice = json!({"file_path": "f", "old_string": "( self )", "new_string": "(me)"});
    assert!(fixture.run_failed("Edit", twice).await.contains("2 times, at lines 2, 6"));
}

#[tokio::test]
async fn encodings_stay_and_what_they_lack_is_named() {
    let desk = FileToolFixture::new();
    let latin = b"Die Stra\xdfe nach K\xf6ln ist sch\xf6n.\r\nDort gibt es M\xfchlen und B\xe4ume.\r\n";
    desk.write_file("latin", latin);
    let edit =
        |name: &str, old: &str, new: &str| json!({"file_path": name, "old_string": old, "new_string": new});
    let output = desk.read_and_run("Edit", edit("latin", "Mühlen", "Gärten\nund Höfe")).await.unwrap();
    assert_eq!(
        desk.read_file("latin"),
        b"Die Stra\xdfe nach K\xf6ln ist sch\xf6n.\r\nDort gibt es G\xe4rten\r\nund H\xf6fe und B\xe4ume.\r\n"
    );
    assert!(output.content.unwrap().contains("windows-1252"));
    let e = desk.run_failed("Edit", edit("latin", "Gärten", "庭")).await;
    assert!(e.contains("windows-1252, which has no `庭`"), "{e}");
    // Invalid bytes in UTF-8 stay in place.
    desk.write_file("stray", b"gr\xc3\xb6\xc3\x9fer\nbroken \xff\xfe here\nend");
    desk.read_and_run("Edit", edit("stray", "end", "größte")).await.unwrap();
    assert_eq!(desk.read_file("stray"), b"gr\xc3\xb6\xc3\x9fer\nbroken \xff\xfe here\ngr\xc3\xb6\xc3\x9fte");
    // Invalid UTF-16 cannot be written back.
    desk.write_file("half", b"\xff\xfea\0b\0c");
    let e = desk.read_and_run("Edit", edit("half", "a", "b")).await.unwrap_err();
    assert!(e.message().contains("cannot edit") && e.message().contains("encoding"), "{e:?}");
    assert_eq!(desk.read_file("half"), b"\xff\xfea\0b\0c");
}

#[tokio::test]
async fn a_preview_says_what_would_be_and_changes_nothing() {
    let fixture = FileToolFixture::new();
    let path = fixture.write_file("f", "one\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("f", fixture.path_of("link")).unwrap();
    fixture.run_tool("Read", json!({"file_path": "f"})).await.unwrap();
    let arguments = json!({"file_path": "link", "old_string": "one", "new_string": "two"});
    let previewed = fixture.preview_call("Edit", arguments.clone()).unwrap().unwrap();
    // The preview has the target of the link.
    assert_eq!(previewed.preview.path, path_text(&path));
    assert_eq!(previewed.preview.before, Some(minke_files::content_hash(b"one\n")));
    assert_eq!(previewed.preview.after, minke_files::content_hash(b"two\n"));
    assert!(previewed.preview.diff.unwrap().ends_with("@@ -1 +1 @@\n-one\n+two\n"));
    let before = previewed.before.unwrap();
    assert_eq!((before.mode, before.content.as_slice()), (0o750, &b"one\n"[..]));
    assert_eq!(fixture.read_file("f"), b"one\n");
    fixture.run_tool("Edit", arguments).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    let new = fixture.preview_call("Write", json!({"file_path": "d/new", "content": "x"})).unwrap().unwrap();
    assert!(new.before.is_none() && new.preview.before.is_none() && !fixture.path_of("d").exists());
    for tool in ["Edit", "MultiEdit", "Write"] {
        assert_eq!(fixture.find_tool(tool).class(), Class::Verifiable);
    }
    let action =
        fixture.prepare_call("Edit", r#"{"file_path":"./f","old_string":"a","new_string":"b"}"#).unwrap();
    assert_eq!((action.writes, action.reads, action.side_effects), (vec![path_text(&path)], vec![], true));
}
