//! Edit and MultiEdit, as a model calls them: what real models wrote, what was generated and compared with `patch`, and
//! what an edit that cannot be done says.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use minke_record::Class;
use minke_tool::ToolError;
use serde_json::{Value, json};

use crate::desk::{Desk, shown, skip};

/// How a file is written, for trying one edit in many forms.
#[derive(Debug, Clone, Copy)]
enum Form {
    Plain,
    CrLf,
    Cr,
    Mark,
    Utf16Le,
    Utf16Be,
}

const FORMS: [Form; 6] = [Form::Plain, Form::CrLf, Form::Cr, Form::Mark, Form::Utf16Le, Form::Utf16Be];

impl Form {
    fn encode(self, text: &str) -> Vec<u8> {
        let wide = |text: &str| format!("\u{feff}{text}").encode_utf16().collect::<Vec<u16>>();
        match self {
            Form::Plain => text.into(),
            Form::CrLf => text.replace('\n', "\r\n").into(),
            Form::Cr => text.replace('\n', "\r").into(),
            Form::Mark => format!("\u{feff}{text}").into(),
            Form::Utf16Le => wide(text).into_iter().flat_map(u16::to_le_bytes).collect(),
            Form::Utf16Be => wide(text).into_iter().flat_map(u16::to_be_bytes).collect(),
        }
    }
}

#[tokio::test]
async fn what_models_wrote_is_applied_byte_for_byte() {
    let desk = Desk::new();
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
            if new && !matches!(form, Form::Plain) {
                continue;
            }
            let name = format!("f-{index}-{form:?}");
            if !new {
                desk.put(&name, form.encode(&before));
            }
            let arguments = json!({"file_path": name, "old_string": search, "new_string": replace});
            let result =
                if new { desk.run("Edit", arguments).await } else { desk.change("Edit", arguments).await };
            assert!(result.is_ok(), "{index} {form:?}: {result:?}");
            assert!(desk.get(&name) == form.encode(&after), "{index} {form:?}");
            edits += 1;
        }
    }
    assert_eq!(edits, 342 * FORMS.len() + 1);
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn line(&mut self) -> String {
        const WORDS: [&str; 12] =
            ["let", "x", "=", "größer", "日本", "{", "}", "\treturn", "  if", "(a, b)", "\"\\n\"", "😀"];
        let words = self.below(6);
        (0..words).map(|_| WORDS[self.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

/// One generated edit: lines `from..to` of a file become others.
struct Case {
    before: Vec<u8>,
    old: String,
    new: String,
    /// What `patch` is told.
    hunk: Vec<u8>,
}

impl Case {
    /// Lines are unique by a number, except in blocks that are repeated on purpose.
    fn roll(dice: &mut Dice, index: usize) -> Case {
        let end: &str = ["\n", "\n", "\r\n"][index % 3];
        // Bytes that are no UTF-8, in lines that the edit does not touch.
        let foreign = index.is_multiple_of(7);
        let count = 1 + dice.below(30);
        // A line by itself that does not end shows nobody how lines end.
        let last_ends = dice.below(3) > 0 || count == 1;
        let repeated: Vec<String> = (0..3).map(|_| dice.line()).collect();
        let mut lines: Vec<String> = (0..count)
            .map(|n| match dice.below(4) {
                0 => repeated[n % 3].clone(),
                _ => format!("{} // {index}.{n}", dice.line()),
            })
            .collect();
        let from = dice.below(count);
        let to = (from + 1 + dice.below(4)).min(count);
        // Duplicated blocks: this line makes the quoted one unique.
        lines[from] = format!("{} // {index}.here", dice.line());
        let mut new: Vec<String> = (0..dice.below(5)).map(|_| dice.line()).collect();
        let at_end = to == count;
        // A line that is empty and does not end is no line.
        if !last_ends && lines[count - 1].is_empty() {
            lines[count - 1] = "last".to_owned();
        }
        if at_end && !last_ends && new.last().is_none_or(String::is_empty) {
            new.push("last".to_owned());
        }
        if foreign {
            // One encoding or the other; both at once is for `encodings_stay_and_what_they_lack_is_named`.
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
        let hunk = Case::hunk(&before, (from, to), &new, (end, open));
        Case { before, old, new: replacement, hunk }
    }

    /// A unified hunk with all the lines of the file, bytes as they are.
    fn hunk(before: &[u8], (from, to): (usize, usize), new: &[String], (end, open): (&str, bool)) -> Vec<u8> {
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
        return skip("there is no `patch` here");
    }
    let desk = Desk::new();
    let theirs = tempfile::tempdir().unwrap();
    let mut dice = Dice(4);
    let mut patch = Vec::new();
    let mut cases = Vec::new();
    while cases.len() < CASES {
        let case = Case::roll(&mut dice, cases.len());
        if case.old == case.new {
            continue;
        }
        let name = format!("f{}", cases.len());
        desk.put(&name, &case.before);
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
        let result = desk.change("Edit", arguments).await;
        let output = result.unwrap_or_else(|e| panic!("{name}: {e:?}\n{:?}\n{:?}", case.old, case.new));
        let theirs = fs::read(theirs.path().join(name)).unwrap_or_default();
        assert!(desk.get(name) == theirs, "{name}: {:?} → {:?}", case.old, case.new);
        // Our own diff, put to the test in the other direction, where it is about bytes that a diff can show.
        if std::str::from_utf8(&case.before).is_ok() && !case.before.contains(&b'\r') {
            let diff = output.content.unwrap();
            let path = shown(&desk.at(name));
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
    eprintln!("{CASES} edits as `patch` makes them; {undone} of our diffs undone by it");
    assert!(undone > CASES / 3);
}

#[tokio::test]
async fn a_file_of_ten_megabytes_is_edited_and_errors_about_it_come_soon() {
    let desk = Desk::new();
    let line = |n: usize| format!("line {n} of a large file, with some words in it\r\n");
    let mut before: String = (0..210_000).map(line).collect();
    before.push_str("the end");
    assert!(before.len() > 10_000_000);
    desk.put("big", &before);
    let arguments = json!({
        "file_path": "big",
        "old_string": "line 123456 of a large file, with some words in it\nline 123457 of",
        "new_string": "one line\nline 123457 of",
    });
    let output = desk.change("Edit", arguments).await.unwrap();
    let after = before.replace(&line(123_456), "one line\r\n");
    assert!(desk.get("big") == after.as_bytes());
    assert!(output.summary.contains("at line 123457"), "{}", output.summary);
    let start = std::time::Instant::now();
    let e = desk
        .failed("Edit", json!({"file_path": "big", "old_string": "line 777 of a smal file, with words", "new_string": ""}))
        .await;
    assert!(e.contains("nearest lines are 778 to 778"), "{e}");
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_file_must_have_been_read_and_be_unchanged_since() {
    let desk = Desk::new();
    desk.put("f", "one\n");
    let edit = json!({"file_path": "f", "old_string": "one", "new_string": "two"});
    let multi = json!({"file_path": "f", "edits": [{"old_string": "one", "new_string": "two"}]});
    let write = json!({"file_path": "f", "content": "two\n"});
    for (tool, arguments) in [("Edit", &edit), ("MultiEdit", &multi), ("Write", &write)] {
        let e = desk.failed(tool, arguments.clone()).await;
        assert!(e.contains("has not been read yet"), "{tool}: {e}");
        assert!(desk.preview(tool, arguments.clone()).is_err(), "{tool}");
    }
    desk.run("Read", json!({"file_path": "f", "offset": 1, "limit": 1})).await.unwrap();
    desk.put("f", "one\nmore\n");
    for (tool, arguments) in [("Edit", &edit), ("MultiEdit", &multi), ("Write", &write)] {
        let e = desk.failed(tool, arguments.clone()).await;
        assert!(e.contains("has been changed since"), "{tool}: {e}");
    }
    assert_eq!(desk.get("f"), b"one\nmore\n");
    desk.change("Edit", edit).await.unwrap();
    // What it wrote itself it knows.
    desk.run("Edit", json!({"file_path": "f", "old_string": "two", "new_string": "three"})).await.unwrap();
    assert_eq!(desk.get("f"), b"three\nmore\n");
    // By whatever name.
    symlink("f", desk.at("link")).unwrap();
    desk.run("Edit", json!({"file_path": "link", "old_string": "three", "new_string": "four"}))
        .await
        .unwrap();
    assert_eq!(desk.get("f"), b"four\nmore\n");
    assert!(fs::symlink_metadata(desk.at("link")).unwrap().is_symlink());
}

#[tokio::test]
async fn parallel_edits_of_one_file_all_arrive() {
    const EDITS: usize = 100;
    let desk = std::sync::Arc::new(Desk::new());
    let text: String = (0..EDITS).fold(String::new(), |mut text, n| {
        writeln!(text, "<{n}>").unwrap();
        text
    });
    desk.put("f", &text);
    symlink("f", desk.at("link")).unwrap();
    desk.run("Read", json!({"file_path": "f"})).await.unwrap();
    let running: Vec<_> = (0..EDITS)
        .map(|n| {
            let desk = std::sync::Arc::clone(&desk);
            // One file by two names.
            let name = if n % 2 == 0 { "f" } else { "link" };
            tokio::spawn(async move {
                let new = format!("[{n}]");
                desk.run(
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
    assert_eq!(String::from_utf8(desk.get("f")).unwrap(), all);
    assert_eq!(desk.names(), ["f", "link"]);
}

#[tokio::test]
async fn multi_edit_is_all_or_nothing_and_each_edit_works_on_the_one_before() {
    let desk = Desk::new();
    desk.put("f", "one two three\n");
    let edits = json!([
        {"old_string": "one", "new_string": "four"},
        {"old_string": "four two", "new_string": "five"},
        {"old_string": "e", "new_string": "E", "replace_all": true},
    ]);
    let output = desk.change("MultiEdit", json!({"file_path": "f", "edits": edits})).await.unwrap();
    assert_eq!(desk.get("f"), b"fivE thrEE\n");
    assert!(output.content.unwrap().contains("edit 3 of 3: 3 places were replaced"));
    let edits = json!([
        {"old_string": "fivE", "new_string": "six"},
        {"old_string": "fivE", "new_string": "seven"},
    ]);
    let e = desk.failed("MultiEdit", json!({"file_path": "f", "edits": edits})).await;
    assert!(e.contains("edit 2 of 2: `old_string` was not found"), "{e}");
    assert_eq!(desk.get("f"), b"fivE thrEE\n");
    // Making a file, then changing it.
    let edits = json!([{"old_string": "", "new_string": "a\nb\n"}, {"old_string": "b", "new_string": "c"}]);
    desk.run("MultiEdit", json!({"file_path": "new/dir/f", "edits": edits})).await.unwrap();
    assert_eq!(desk.get("new/dir/f"), b"a\nc\n");
    assert_eq!(desk.names(), ["f", "new"]);
}

#[tokio::test]
async fn an_edit_that_cannot_be_done_says_what_to_do() {
    let desk = Desk::new();
    desk.put("f", "fn alpha() {\n    beta(1);\n}\n\nfn gamma() {\n    beta(2);\n}\n");
    desk.put("empty", "");
    desk.put("binary", b"a\0b");
    desk.run("Read", json!({"file_path": "f"})).await.unwrap();
    let edit = |old: &str, new: &str| json!({"file_path": "f", "old_string": old, "new_string": new});
    for (arguments, why) in [
        (edit("    beta(", "x"), "occurs 2 times, at lines 2, 6"),
        (edit("fn alpha() {\n    beta(3);\n}", "x"), "nearest lines are 1 to 3"),
        (edit("fn alpha() {\n    beta(3);\n}", "x"), "first line that differs is 2"),
        (edit("fn alpho() {", "x"), "nearest lines are 1 to 1"),
        (edit("quite something else", "x"), "nothing in the file is like it"),
        (edit("     1\tfn alpha() {", "x"), "line numbers that Read puts"),
        (edit("", "x"), "`old_string` is empty"),
        (json!({"file_path": "none", "old_string": "a", "new_string": "b"}), "there is no such file"),
        (json!({"file_path": "binary", "old_string": "a", "new_string": "b"}), "not text but"),
    ] {
        let e = desk.failed("Edit", arguments.clone()).await;
        assert!(e.contains(why), "{arguments}: {e}");
        assert!(e.starts_with("cannot edit /") || e.contains("has not been read"), "{e}");
        assert!(e.len() < 4_096, "{}", e.len());
        let previewed = desk.preview("Edit", arguments).map(|_| ()).unwrap_err();
        assert_eq!(previewed, ToolError::Failed(e), "preview and run say the same");
    }
    assert!(desk.invalid("Edit", edit("a", "a")).await.contains("are the same"));
    // An empty file has nothing that could have been read.
    desk.run("Edit", json!({"file_path": "empty", "old_string": "", "new_string": "x"})).await.unwrap();
    assert_eq!(desk.get("empty"), b"x");
}

#[tokio::test]
async fn white_space_is_forgiven_and_said() {
    let desk = Desk::new();
    desk.put("f", "class A:\r\n\tdef f(self):\r\n\t\treturn 1   \r\n\r\n\tdef g(self):\r\n\t\treturn 2\r\n");
    let arguments = json!({
        "file_path": "f",
        "old_string": "    def f(self):\n        return 1\n",
        "new_string": "    def f(self):\n        x = 1\n        return x\n",
    });
    let output = desk.change("Edit", arguments).await.unwrap();
    assert_eq!(
        String::from_utf8(desk.get("f")).unwrap(),
        "class A:\r\n\tdef f(self):\r\n\t\tx = 1\r\n\t\treturn x\r\n\r\n\tdef g(self):\r\n\t\treturn 2\r\n"
    );
    let content = output.content.unwrap();
    assert!(content.contains("without regard to white space"), "{content}");
    assert!(content.contains("CRLF line ends"), "{content}");
    // Not where it could be two places.
    let twice = json!({"file_path": "f", "old_string": "def  f", "new_string": "def h"});
    assert!(desk.run("Edit", twice).await.is_ok());
    let twice = json!({"file_path": "f", "old_string": "( self )", "new_string": "(me)"});
    assert!(desk.failed("Edit", twice).await.contains("2 times, at lines 2, 6"));
}

#[tokio::test]
async fn encodings_stay_and_what_they_lack_is_named() {
    let desk = Desk::new();
    let latin = b"Die Stra\xdfe nach K\xf6ln ist sch\xf6n.\r\nDort gibt es M\xfchlen und B\xe4ume.\r\n";
    desk.put("latin", latin);
    let edit =
        |name: &str, old: &str, new: &str| json!({"file_path": name, "old_string": old, "new_string": new});
    let output = desk.change("Edit", edit("latin", "Mühlen", "Gärten\nund Höfe")).await.unwrap();
    assert_eq!(
        desk.get("latin"),
        b"Die Stra\xdfe nach K\xf6ln ist sch\xf6n.\r\nDort gibt es G\xe4rten\r\nund H\xf6fe und B\xe4ume.\r\n"
    );
    assert!(output.content.unwrap().contains("windows-1252"));
    let e = desk.failed("Edit", edit("latin", "Gärten", "庭")).await;
    assert!(e.contains("windows-1252, which has no `庭`"), "{e}");
    // Stray bytes in UTF-8 stay where they are.
    desk.put("stray", b"gr\xc3\xb6\xc3\x9fer\nbroken \xff\xfe here\nend");
    desk.change("Edit", edit("stray", "end", "größte")).await.unwrap();
    assert_eq!(desk.get("stray"), b"gr\xc3\xb6\xc3\x9fer\nbroken \xff\xfe here\ngr\xc3\xb6\xc3\x9fte");
    // What is not quite UTF-16 cannot be written back.
    desk.put("half", b"\xff\xfea\0b\0c");
    let e = desk.change("Edit", edit("half", "a", "b")).await.unwrap_err();
    assert!(e.message().contains("cannot edit") && e.message().contains("encoding"), "{e:?}");
    assert_eq!(desk.get("half"), b"\xff\xfea\0b\0c");
}

#[tokio::test]
async fn a_preview_says_what_would_be_and_changes_nothing() {
    let desk = Desk::new();
    let path = desk.put("f", "one\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("f", desk.at("link")).unwrap();
    desk.run("Read", json!({"file_path": "f"})).await.unwrap();
    let arguments = json!({"file_path": "link", "old_string": "one", "new_string": "two"});
    let previewed = desk.preview("Edit", arguments.clone()).unwrap().unwrap();
    // Where it leads, not what it is called.
    assert_eq!(previewed.preview.path, shown(&path));
    assert_eq!(previewed.preview.before, Some(minke_files::hash(b"one\n")));
    assert_eq!(previewed.preview.after, minke_files::hash(b"two\n"));
    assert!(previewed.preview.diff.unwrap().ends_with("@@ -1 +1 @@\n-one\n+two\n"));
    let before = previewed.before.unwrap();
    assert_eq!((before.mode, before.content.as_slice()), (0o750, &b"one\n"[..]));
    assert_eq!(desk.get("f"), b"one\n");
    desk.run("Edit", arguments).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    let new = desk.preview("Write", json!({"file_path": "d/new", "content": "x"})).unwrap().unwrap();
    assert!(new.before.is_none() && new.preview.before.is_none() && !desk.at("d").exists());
    for tool in ["Edit", "MultiEdit", "Write"] {
        assert_eq!(desk.tool(tool).class(), Class::Verifiable);
    }
    let action = desk.prepare("Edit", r#"{"file_path":"./f","old_string":"a","new_string":"b"}"#).unwrap();
    assert_eq!((action.writes, action.reads, action.side_effects), (vec![shown(&path)], vec![], true));
}
