//! Note, through the front door: what is written, and what is never written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use minke_record::{Class, Scope};
use minke_tool::{Call, News, Place, Tool, ToolError, ToolOutput};

fn tool() -> Arc<dyn Tool> {
    minke_tools::builtin().into_iter().find(|tool| tool.spec().name == "Note").expect("it is built in")
}

fn call(place: Place) -> Call {
    Call { id: "c".into(), place: place.into(), news: News::nobody() }
}

fn place(cwd: &Path) -> Place {
    Place { cwd: cwd.to_owned(), scope: Scope::write(cwd.to_string_lossy()) }
}

async fn note(cwd: &Path, arguments: &str) -> Result<ToolOutput, ToolError> {
    tool().run(arguments, &call(place(cwd))).await
}

#[tokio::test]
async fn a_line_is_appended_and_the_file_made() {
    let home = tempfile::tempdir().unwrap();
    note(home.path(), r#"{"line":"first"}"#).await.unwrap();
    let got = note(home.path(), r#"{"line":"second","file":"./NOTES.md"}"#).await.unwrap();
    assert_eq!(got.summary, "noted in NOTES.md: second");
    assert_eq!(fs::read_to_string(home.path().join("NOTES.md")).unwrap(), "first\nsecond\n");
}

#[tokio::test]
async fn a_file_that_ends_in_the_middle_of_a_line_keeps_its_line() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("a"), "old").unwrap();
    note(home.path(), r#"{"line":"new","file":"a"}"#).await.unwrap();
    assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "old\nnew\n");
}

#[tokio::test]
async fn the_action_names_what_is_written_and_the_class_is_once() {
    let home = tempfile::tempdir().unwrap();
    let action = tool().prepare(r#"{"line":"x","file":"d/a"}"#, &place(home.path())).unwrap();
    assert_eq!(action.writes, [home.path().join("d/a").to_string_lossy()]);
    assert!(action.side_effects && action.reads.is_empty());
    assert_eq!(tool().class(), Class::Once);
}

#[tokio::test]
async fn a_note_never_leaves_the_working_directory() {
    let home = tempfile::tempdir().unwrap();
    let cwd = home.path().join("in");
    fs::create_dir_all(cwd.join("deep")).unwrap();
    let outside = home.path().join("outside");
    fs::write(&outside, "untouched").unwrap();
    symlink(&outside, cwd.join("link")).unwrap();
    symlink(home.path(), cwd.join("out")).unwrap();
    symlink("deep", cwd.join("near")).unwrap();
    let absolute = outside.to_string_lossy().into_owned();
    let sibling = format!("{}-not", cwd.display());
    for file in
        ["../outside", "deep/../../outside", &absolute, &sibling, "/etc/minke-test", "", ".", "a\\u0000b"]
    {
        let arguments = format!(r#"{{"line":"x","file":"{file}"}}"#);
        let prepared = tool().prepare(&arguments, &place(&cwd));
        assert!(matches!(prepared, Err(ToolError::Invalid(_))), "{file}: {prepared:?}");
        assert!(matches!(note(&cwd, &arguments).await, Err(ToolError::Invalid(_))), "{file}");
    }
    for file in ["link", "out/outside", "near/new"] {
        let got = note(&cwd, &format!(r#"{{"line":"x","file":"{file}"}}"#)).await;
        let Err(ToolError::Failed(text)) = got else { panic!("{file}: {got:?}") };
        assert!(text.contains("symbolic link"), "{file}: {text}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    assert!(!cwd.join("deep/new").exists());
    let inside = cwd.join("deep/ok").to_string_lossy().into_owned();
    note(&cwd, &format!(r#"{{"line":"x","file":"{inside}"}}"#)).await.unwrap();
    assert_eq!(fs::read_to_string(inside).unwrap(), "x\n");
}

#[tokio::test]
async fn what_cannot_take_a_line_is_refused_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("file"), "").unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap();
    assert!(made.success());
    let cases = [
        ("none/a", "Note makes none"),
        ("dir", "it is a directory"),
        ("file/a", "not a directory"),
        ("fifo", "not a regular file"),
    ];
    for (file, why) in cases {
        let got = note(home.path(), &format!(r#"{{"line":"x","file":"{file}"}}"#)).await;
        let Err(ToolError::Failed(text)) = got else { panic!("{file}: {got:?}") };
        assert!(text.contains(why), "{file}: {text}");
    }
}

#[tokio::test]
async fn bad_arguments_are_quoted() {
    let home = tempfile::tempdir().unwrap();
    let long = format!(r#"{{"line":"{}"}}"#, "x".repeat(16 * 1024 + 1));
    let cases = [
        (r#"{"line":"a\nb"}"#, "line break"),
        (r#"{"line":"a\rb"}"#, "line break"),
        (r#"{"lin":"a"}"#, "`lin`"),
        (r#"{"file":"a"}"#, "`line`"),
        (r#"{"line":7}"#, "7"),
        (r#"not json"#, "Note"),
        (long.as_str(), "16384"),
    ];
    for (arguments, why) in cases {
        let got = note(home.path(), arguments).await;
        let Err(ToolError::Invalid(text)) = got else { panic!("{got:?}") };
        assert!(text.contains(why), "{text}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "a refused call touches nothing");
}

#[tokio::test]
async fn notes_written_at_once_do_not_mix() {
    const NOTES: usize = 64;
    let home = tempfile::tempdir().unwrap();
    let calls: Vec<_> = (0..NOTES)
        .map(|n| {
            let line = format!("{n} {}", "x".repeat(5_000));
            tokio::spawn(tool().run(&format!(r#"{{"line":"{line}"}}"#), &call(place(home.path()))))
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let text = fs::read_to_string(home.path().join("NOTES.md")).unwrap();
    let mut numbers: Vec<usize> = text
        .lines()
        .map(|line| {
            let (number, rest) = line.split_once(' ').unwrap();
            assert!(rest == "x".repeat(5_000), "a line is whole");
            number.parse().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..NOTES).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_that_somebody_keeps_locked_is_told_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let held = fs::File::create(home.path().join("NOTES.md")).unwrap();
    held.lock().unwrap();
    let got = note(home.path(), r#"{"line":"x"}"#).await;
    let Err(ToolError::Failed(text)) = got else { panic!("{got:?}") };
    assert!(text.contains("another process keeps it locked"), "{text}");
    assert_eq!(held.metadata().unwrap().len(), 0);
}

#[tokio::test]
async fn the_summary_always_fits() {
    let home = tempfile::tempdir().unwrap();
    let (name, line) = ("ö".repeat(120), "ä".repeat(8_000));
    let got = note(home.path(), &format!(r#"{{"line":"{line}","file":"{name}"}}"#)).await.unwrap();
    assert!(got.summary.len() <= 200, "{}", got.summary.len());
}
