//! Measures completions in a tree of 100,000 files: the first query and later ones.
//!
//! The first query builds the index and waits a short time for it; later ones use the memory. Prints the median and the
//! maximum of the samples, and whether the goal was reached.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::Scope;
use minke_references::{CompletionKind, ReferenceDirs, ReferenceResolver};

const DIRECTORIES: usize = 2_000;
const FILES: usize = 50;
const SAMPLES: usize = 51;
const MAX_TIME: Duration = Duration::from_millis(50);

fn main() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path().canonicalize().expect("it exists").join("w");
    for directory in 0..DIRECTORIES {
        let path = root.join(format!("crates/part{}/module{directory}", directory % 40));
        fs::create_dir_all(&path).expect("a directory");
        for file in 0..FILES {
            fs::write(path.join(format!("source_file_{file}.rs")), "").expect("a file");
        }
    }
    fs::write(root.join(".gitignore"), "target/\n*.o\n").expect("a file");
    let scope = Scope::writable(root.to_str().expect("a text"));
    let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).expect("it can be held");
    let places = ReferenceDirs { cwd: root.clone(), workspace: root, ..ReferenceDirs::default() };
    let references = ReferenceResolver::new(Arc::new(files), places);
    let begun = Instant::now();
    let found = references.complete_prefix(CompletionKind::File, "cr").len();
    print_times("the first query", &[begun.elapsed()], found);
    let begun = Instant::now();
    // Until the index answers.
    while references.complete_prefix(CompletionKind::File, "mod1999sf49").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the index was not built");
        std::thread::yield_now();
    }
    println!("the index was built after {:?}", begun.elapsed());
    for typed in ["c", "crates/part3/", "mod1999sf49", "source", "srcfl7rs", "zzzz"] {
        let mut took = Vec::new();
        let mut found = 0;
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            found = references.complete_prefix(CompletionKind::File, typed).len();
            took.push(begun.elapsed());
        }
        print_times(&format!("`{typed}`"), &took, found);
    }
}

fn print_times(what: &str, took: &[Duration], found: usize) {
    let mut took = took.to_vec();
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    let goal = if longest <= MAX_TIME { "met" } else { "MISSED" };
    println!(
        "{what}: {median:?}, longest {longest:?} of {}; {found} found; goal {MAX_TIME:?}: {goal}",
        took.len()
    );
}
