//! Diffs: line numbers, signs, changed words, omitted rows.

use minke_tui::paint::{StyleRole, Theme, count_changes, diff_lines};

use crate::support::{assert_golden, lines_text};

const CHANGE: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -8,7 +8,8 @@ fn main() {\n     let a = 1;\n-    let total = count(files);\n+    let total = count(&paths);\n     print(total);\n--- a comment of SQL\n+-- another comment of SQL\n+\tnew\u{202e} line with\u{1b}[2J tricks\n \n }\n\\ No newline at end of file\n";

#[test]
fn a_diff_at_three_widths() {
    for width in [120, 80, 40, 20] {
        assert_golden(
            &format!("diff-{width}"),
            &lines_text(&diff_lines(CHANGE, width, &Theme::default(), 100)),
        );
    }
}

#[test]
fn the_words_that_differ_are_marked() {
    let theme = Theme::default();
    let lines = diff_lines(CHANGE, 80, &theme, 100);
    let marked = |role| {
        let style = theme.role_style(role);
        let spans = lines.iter().flat_map(|line| &line.spans).filter(|span| span.style == style);
        spans.map(|span| span.content.as_ref()).collect::<Vec<_>>().join("|")
    };
    assert_eq!(marked(StyleRole::RemovedWord), "files|a");
    assert_eq!(marked(StyleRole::AddedWord), "&paths|another");
}

#[test]
fn what_is_left_out_is_counted() {
    let long = format!("@@ -0,0 +1,500 @@\n{}", "+line\n".repeat(500));
    let lines = diff_lines(&long, 80, &Theme::default(), 10);
    assert_eq!(lines.len(), 11);
    assert_eq!(lines_text(&lines[10..]), "… 491 more lines\n");
    assert_eq!(count_changes(&long), (500, 0));
    assert_eq!(count_changes(CHANGE), (3, 2));
}

#[test]
fn any_text_can_be_called_a_diff() {
    for message in [
        "",
        "@@",
        "@@ -1 +1 @@",
        "@@ -99999999999999999999 +1 @@\nx",
        "+a\n-b\n",
        "@@ -1,2 +1,2 @@\nnonsense\n-a",
    ] {
        diff_lines(message, 80, &Theme::default(), 100);
        diff_lines(message, 1, &Theme::default(), 1);
        diff_lines(message, 0, &Theme::default(), 0);
    }
}

#[test]
fn names_are_shown_once_unless_they_differ() {
    let visible = |said: &str| lines_text(&diff_lines(said, 80, &Theme::default(), 100));
    let part = "@@ -1 +1 @@\n-a\n+b\n";
    assert!(!visible(&format!("--- a/x\n+++ b/x\n{part}")).contains("---"));
    assert!(visible(&format!("--- a/x\n+++ b/y\n{part}")).starts_with("--- a/x\n+++ b/y\n"));
    assert!(visible(&format!("--- a/x\n+++ /dev/null\n{part}")).starts_with("--- a/x\n"));
    assert!(visible("--- alone\n").starts_with("--- alone\n"));
}

#[test]
fn a_line_that_a_diff_did_not_announce_is_shown_whole() {
    let long = format!("+{}", "x".repeat(100));
    let shown =
        lines_text(&diff_lines(&format!("@@ -1 +1 @@\n-a\n+b\n{long}\n"), 40, &Theme::default(), 100));
    assert_eq!(shown.matches('x').count(), 100, "{shown}");
}

#[test]
fn a_great_diff_is_compared_by_words_only_at_its_beginning() {
    let theme = Theme::default();
    let pair = format!("-{}\n+{}\n", "word ".repeat(70), "word ".repeat(69) + "work");
    let part = format!("@@ -1,2 +1,2 @@\n ctx\n{pair}");
    let lines = diff_lines(&part.repeat(400), 400, &theme, 4000);
    let marked = |line: &ratatui::text::Line<'_>| {
        line.spans.iter().any(|span| span.style == theme.role_style(StyleRole::AddedWord))
    };
    let count = lines.iter().filter(|line| marked(line)).count();
    assert!((10..100).contains(&count), "{count} lines of 400");
    assert!(lines.iter().take(5).any(marked));
}
