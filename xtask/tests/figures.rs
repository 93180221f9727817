//! Figures of names, sentences and structure: each can fail, and its limit only tightens.

use std::path::Path;

use xtask::figures::{Figure, Limits, MEASURES, SourceFile, count_phrase, loosened, measure};
use xtask::{commits, tree};

fn parse(path: &str, text: &str) -> SourceFile {
    SourceFile::parse(Path::new(path), text).expect("the sample is valid Rust")
}

#[test]
fn the_figures_of_this_tree_meet_their_limits() {
    let root = tree::workspace_root();
    let complaints = Limits::read(&root).unwrap().complaints(&measure(&root).unwrap());
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_worse_figure_is_refused() {
    let root = tree::workspace_root();
    let limits = Limits::read(&root).unwrap();
    let measured = measure(&root).unwrap();
    for one in MEASURES {
        let mut worse = measured.clone();
        let limit = limits.get(one.name).unwrap();
        let value = if one.higher_is_better { limit - 0.01 } else { limit + 0.01 };
        worse.insert(one.name, Figure { value, places: vec!["src/lib.rs:1".to_owned()] });
        let complaints = limits.complaints(&worse);
        assert!(
            complaints.iter().any(|complaint| complaint.starts_with(one.name)),
            "{}: {complaints:?}",
            one.name
        );
    }
}

#[test]
fn a_limit_that_became_looser_is_named() {
    let limits = |value: f64| {
        Limits::parse(&format!("{{\"phrase: stands\": {value}, \"median function name\": 8}}")).unwrap()
    };
    assert_eq!(loosened(&limits(20.0), &limits(21.0)), ["phrase: stands"]);
    assert!(loosened(&limits(20.0), &limits(19.0)).is_empty());
    let without = Limits::parse("{\"phrase: stands\": 20}").unwrap();
    assert_eq!(loosened(&limits(20.0), &without), ["median function name"]);
}

#[test]
fn items_are_read_with_a_parser() {
    let text = "
        pub struct Found { a: u8, b: u8 }
        enum LogReader { A }
        impl LogReader { fn read(&self, (a, b): (u8, u8), c: u8) {} fn close(self) {} }
        impl Drop for LogReader { fn drop(&mut self) {} }
        #[cfg(test)]
        mod tests { struct Seen; fn helper(pair: (u8, u8)) {} }
    ";
    let file = parse("crates/pod/src/calls/gate.rs", text);
    assert_eq!(file.package, "crates/pod");
    assert_eq!(file.module.as_deref(), Some(&["calls".to_owned(), "gate".to_owned()][..]));
    let names: Vec<&str> = file.types.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, ["Found", "LogReader"]);
    let functions: Vec<(&str, usize, bool)> =
        file.functions.iter().map(|f| (f.name.as_str(), f.arguments, f.has_tuple)).collect();
    assert_eq!(functions, [("read", 2, true), ("close", 0, false)]);
    assert_eq!(file.fields, [("Found".to_owned(), 2)]);
    assert_eq!(file.methods.len(), 2);
    assert_eq!(parse("crates/pod/tests/stories/main.rs", "fn main() {}").module, None);
}

#[test]
fn phrases_are_counted_in_words_and_not_in_names() {
    let text = "What is told here stands; what_is is a name.\n// somebody WHAT the\n// goes\n// on";
    assert_eq!(count_phrase(text, &["what"], &["is", "the"]), 2);
    assert_eq!(count_phrase(text, &["is"], &["told"]), 1);
    assert_eq!(count_phrase(text, &["stands"], &[]), 1);
    assert_eq!(count_phrase("it goes, on the other hand", &["goes"], &["on"]), 0);
}

#[test]
fn a_commit_subject_of_another_form_is_named() {
    for good in ["pod: return the budget of a child", "cli, host: read the token from a file"] {
        assert_eq!(commits::problem(good), None, "{good}");
    }
    let long = format!("pod: {}", "x".repeat(70));
    for bad in ["wip", "Pod: return it", "pod: ", "pod: done.", &long, "a b: c"] {
        assert!(commits::problem(bad).is_some(), "{bad}");
    }
}
